"""Topics of a live broker in the formats before Kafka 0.11: archived, compared with the broker, and restored into a present one."""

import random
from dataclasses import replace

import pytest

from tests.support.brokers import Broker
from tests.support.foreign_reader import read_partitions
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of
from tests.support.zookeeper import StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

CODECS = ("none", "gzip", "snappy", "lz4")


def produce(bootstrap: str, topic: str, codec: str, seed: int) -> None:
    source = random.Random(seed)
    producer = producer_of(bootstrap, compression_type=codec, linger_ms=50)
    for number in range(300):
        key, value = (source.choice([None, b"", source.randbytes(source.randrange(200))]) for _ in range(2))
        producer.produce(topic, value, key, partition=0, timestamp=NOW_MS + number)
        if number % 60 == 59:
            producer.flush()
    assert producer.flush(30) == 0


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_they_are_archived_and_restored(
    broker_41: Broker,
    shared_zookeeper_broker: StartZooKeeperBroker,
    java_oracle: JavaOracle,
    topic: str,
    site: ArchiveSite,
    seed: int,
    version: str,
) -> None:
    old = shared_zookeeper_broker().bootstrap
    names = [f"{topic}.{codec}" for codec in CODECS]
    for name, codec in zip(names, CODECS, strict=True):
        configs = KEEP_ALL | {"message.format.version": version}
        if codec == "gzip" and version != "0.9.0":
            configs |= {"message.timestamp.type": "LogAppendTime"}
        create_topic(
            old,
            name,
            1,
            {
                key: value
                for key, value in configs.items()
                if "timestamp.after" not in key and "timestamp.before" not in key
            },
        )
        produce(old, name, codec, seed)
    assert not errors_of(site.back_up(old, f"{topic}.*"))
    for name in names:
        theirs = java_oracle.consume(old, name).records[0]
        assert len(theirs) == 300
        assert read_partitions(site.bucket, name)[0] == [_as_archived(one, version) for one in theirs]
    assert site.verify(old, [f"{topic}.*"], against_kafka=True).is_whole
    site.restore(broker_41.bootstrap, rename=[f"{name}={name}.back" for name in names])
    for name in names:
        theirs = java_oracle.consume(old, name).records[0]
        back = java_oracle.consume(broker_41.bootstrap, f"{name}.back").records[0]
        assert back == [replace(one, offset=index, timestamp_type=0) for index, one in enumerate(theirs)]


def _as_archived(record: Rec, version: str) -> Rec:
    """Java's consumer gives v0 a type of -1, as the archive does."""
    return replace(record, timestamp_type=-1) if version == "0.9.0" else record
