"""Batches that are small as they are sent and large when they are open: the same records come back, in a process that stays small."""

import json
import random
import sys
from typing import Final

import pytest
import yaml
from confluent_kafka import Producer

from archiver.process.running.children import start_child
from tests.support import bombs
from tests.support.brokers import Broker
from tests.support.cat_lines import cat_line
from tests.support.foreign_reader import read_partitions
from tests.support.forked_commands import COMMAND
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.processes import end_of
from tests.support.raw_produce import produce_raw, produce_records
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite, environment_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

MEMORY_BYTES: Final = 16 << 20  # the least that can be given
PROGRAM_BYTES: Final = 256 << 20  # docs/reference.md: beside backup.memory and the largest batch
VALUE_BYTES: Final = 100_000_000
MEASURE: Final = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""


def peak_of(site: ArchiveSite, *arguments: str) -> int:
    """How much memory the installed command took at most; it must end well."""
    command = [sys.executable, "-c", MEASURE, str(COMMAND), *arguments]
    done = end_of(
        start_child(command, stdout=-1, stderr=-1, text=True, cwd=site.folder, env=environment_of(site.bucket)), 120.0
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def large_records(seed: int) -> list[Rec]:
    """Of each kind that is written in pieces, among small ones."""
    noise = random.Random(seed).randbytes
    small = Rec(0, NOW_MS, 0, b"k", b"v", ((b"h", b"w"),))
    unlike = tuple((b"%d" % number, noise(3)) for number in range(20_000))
    return [
        small,
        Rec(1, NOW_MS, 0, noise(1_200_000), noise(1_300_000)),
        Rec(2, NOW_MS, 0, None, None, unlike),
        Rec(3, NOW_MS, 0, b"", None, ((b"same", None), (b"", b"")) * 9_000),
        Rec(4, NOW_MS, 0, None, b"", ((b"one", noise(3_000_000)), (b"\xe2\x82\xac" * 500_000, None))),
        small,
    ]


def test_records_that_are_written_in_pieces_come_back(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    """And a batch of more records than a table holds at once."""
    create_topic(broker_41.bootstrap, topic, configs=KEEP_ALL)
    produce_records(broker_41.bootstrap, topic, large_records(seed), codec="zstd", size=3)
    produce_raw(broker_41.bootstrap, topic, [bombs.tiny_records(70_000)])
    produce_records(broker_41.bootstrap, topic, large_records(seed)[:1])
    site.write_config(broker_41.bootstrap, topic)
    assert site.run("backup", "--until-end").returncode == 0
    written = java_oracle.consume(broker_41.bootstrap, topic).records
    assert len(written[0]) == 70_007
    assert read_partitions(site.bucket, topic) == written
    shown = [json.loads(line) for line in site.run("cat", topic).stdout.splitlines()]
    assert shown == [cat_line(record, 0) for record in written[0]]
    (report,) = site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"]).topics
    assert report.errors == ()
    assert java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records == written


def test_a_process_stays_small(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """4 million headers, a value of 100 MB and 200,000 records, each in a batch of some KB; beside them a plain producer."""
    create_topic(broker_41.bootstrap, topic, configs=KEEP_ALL)
    sent = [bombs.headers(4_000_000, b"\0\0"), bombs.value(VALUE_BYTES), bombs.tiny_records(200_000)]
    assert sum(map(len, sent[:2])) < 50_000
    produce_raw(broker_41.bootstrap, topic, sent)
    producer = Producer({"bootstrap.servers": broker_41.bootstrap})
    producer.produce(topic, b"last", partition=0)
    assert producer.flush(20) == 0
    config = site.config(broker_41.bootstrap, [topic])
    config["backup"]["memory"] = MEMORY_BYTES
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    assert peak_of(site, "backup", "--until-end") <= MEMORY_BYTES + PROGRAM_BYTES + VALUE_BYTES
    assert peak_of(site, "cat", topic, "--from-offset", "1") <= PROGRAM_BYTES + 2 * VALUE_BYTES
    assert site.run("verify", "--level", "records", "--against-kafka").returncode == 0
