"""A restore of chosen records, by the installed command on a Spark of its own (the rest is in tests/spark/test_record_choice.py)."""

import json

import pytest

from tests.support.brokers import Broker
from tests.support.dealt_records import brute_force, fill, on_target
from tests.support.java_oracle import JavaOracle
from tests.support.records import NOW_MS
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]

RUN_S = 240.0  # a start of Spark takes 50 s where others want both cores, too


def test_chosen_and_dealt_by_key_killed_and_run_again(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    written = fill(broker_41, topic, [400, 0, 150], seed)
    site.back_up(broker_41.bootstrap, topic, records=60)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    chosen = {}
    for partition, rows in written.items():
        wanted = [row for row in rows if row.timestamp < NOW_MS + 900 and (row.key is None or len(row.key) > 1)]
        last = {row.key: row.offset for row in wanted}
        chosen[partition] = [row for row in wanted if row.key is None or last[row.key] == row.offset]
    command = ["restore", "--target", "target.yaml", "--topics", topic, "--rename", f"{topic}={topic}.back"]
    command += ["--where", f"timestampMs < {NOW_MS + 900} and (key is null or length(key) > 1)", "--latest-per-key"]
    command += ["--repartition", "5", "--batch-bytes", "1", "--format", "json"]
    # A batch for each record: whichever worker it is has more than four.
    killed = site.command(*command, ARCHIVER_FAILPOINT="batch.answered:4")
    _, told = killed.communicate(timeout=RUN_S)
    assert killed.returncode == 4, told

    done = site.run(*command, timeout_s=RUN_S)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    (restored,) = json.loads(done.stdout)["topics"]
    assert [one["records"] for one in restored["partitions"]] == [len(rows) for rows in chosen.values()]
    assert sum(one["already_there"] for one in restored["partitions"]) > 0
    assert on_target(java_oracle, broker_41, f"{topic}.back") == brute_force(chosen, 5)
