"""Log directories of real brokers that were killed: what is imported is what Java's own consumer read before."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from archiver.demo.sandbox import fetch_kafka
from archiver.upkeep.object_check import Level
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.foreign_reader import read_partitions, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.records import NOW_MS
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path / "broker") as started:
        yield started


def send(producer: Producer, topic: str, source: random.Random, count: int) -> None:
    for number in range(count):
        key, value = (source.choice([None, b"", source.randbytes(source.randrange(300))]) for _ in range(2))
        headers: list[tuple[str, str | bytes | None]] = [("h", source.choice([None, b"", b"x"]))] * source.randrange(3)
        producer.produce(topic, value, key, partition=number % 2, timestamp=NOW_MS + number, headers=headers)
        producer.poll(0)
    assert producer.flush(30) == 0


def import_logs(site: ArchiveSite, broker: KafkaBroker, *arguments: str, code: int = 0) -> dict[str, object]:
    site.write_config(broker.bootstrap)
    done = site.run("import", "kafka-log", str(broker.data_dir / "log"), "--format", "json", *arguments)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else {}


def test_a_killed_broker_s_log_is_imported_whole(
    own_broker: KafkaBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, seed: int
) -> None:
    broker, source = own_broker, random.Random(seed)
    for codec in CODECS:
        create_topic(broker.bootstrap, f"{topic}.{codec}", 2, KEEP_ALL | {"segment.bytes": "1048576"})
        send(producer_of(broker.bootstrap, compression_type=codec, linger_ms=20), f"{topic}.{codec}", source, 2_000)
    create_topic(broker.bootstrap, f"{topic}.tx", 2, KEEP_ALL)
    producer = producer_of(broker.bootstrap, transactional_id=topic)
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        send(producer, f"{topic}.tx", source, 30)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    names = [*(f"{topic}.{codec}" for codec in CODECS), f"{topic}.tx"]
    theirs = {name: java_oracle.consume(broker.bootstrap, name).records for name in names}
    producer.begin_transaction()
    send(producer, f"{topic}.tx", source, 10)
    broker.kill()
    planned = import_logs(site, broker, "--topics", f"{topic}.*", "--dry-run", code=3)
    assert planned["imported"] == []
    import_logs(site, broker, "--topics", f"{topic}.*", code=3)
    for name in names:
        assert read_partitions(site.bucket, name) == theirs[name]
    holes = [segment.holes for segment in read_segments(site.bucket, f"{topic}.tx")]
    assert all(one.endswith(":undecided") for one in holes)
    assert site.verify(broker.bootstrap, (), Level.RECORDS).is_whole
    again = import_logs(site, broker, "--topics", f"{topic}.*", code=3)
    assert all(one["records"] == 0 for one in again["imported"])  # type: ignore[attr-defined]
