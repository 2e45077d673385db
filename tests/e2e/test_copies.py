"""A compacted topic by the installed command: which copy is read is shown, printed, asked by SQL, and restored, without being told."""

import json

import pytest

from tests.support.brokers import Broker
from tests.support.copied_topic import complete_copy, move_to_copy, put_role_entry
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_records
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]

RUN_S = 240.0
ROWS = [Rec(at, NOW_MS + at, 0, b"k%d" % (at % 7), None if at % 7 == 3 else b"%d" % at) for at in range(60)]


def test_the_copy_that_holds_is_read_by_every_command(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL | {"cleanup.policy": "compact"})
    produce_records(broker_41.bootstrap, topic, ROWS, size=20, partition=0)
    site.back_up(broker_41.bootstrap, topic, records=25)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    move_to_copy(site.bucket, topic, 0, "green", 1)
    put_role_entry(site.bucket, topic, 0, 2, holder=complete_copy("green", 1, 60))

    shown = site.run("ls", topic)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[-1].split()[-1] == "green/1"
    (row,) = json.loads(site.run_within("ls", "--format", "json").stdout)["holdings"]
    assert (row["copy"], row["records"], row["partitions"]) == ("green", 60, 1)
    printed = site.run("cat", topic)
    assert (printed.returncode, len(printed.stdout.splitlines())) == (0, 60)
    assert len(site.run_within("cat", topic, "--instance", "green").stdout.splitlines()) == 60
    refused = site.run_within("cat", topic, "--instance", "blue")
    assert (refused.returncode, "the copies that are read are of green" in refused.stderr) == (2, True)
    refused = site.run_within("cat", topic, "--instance", "a/b")
    assert (refused.returncode, "'a/b' is not the name of an instance" in refused.stderr) == (2, True)
    assert site.run_within("cat", topic, "--history").stdout == ""

    asked = site.run("query", f"SELECT count(*) AS n FROM `{topic}`", "--format", "json", timeout_s=RUN_S)
    assert json.loads(asked.stdout) == {"n": 60}, asked.stderr
    command = ["restore", "--target", "target.yaml", "--topics", topic, "--rename", f"{topic}={topic}.back"]
    done = site.run(*command, timeout_s=RUN_S)
    assert done.returncode == 0, done.stderr
    last = {row.key: row for row in ROWS}
    restored = java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records[0]
    assert [(row.key, row.value) for row in restored] == [
        (row.key, row.value) for row in sorted(last.values(), key=lambda row: row.offset)
    ]
