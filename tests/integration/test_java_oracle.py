"""The oracle against real brokers: what is produced by one party is consumed by another, byte for byte."""

from collections.abc import Mapping

import pytest

from tests.support.brokers import Broker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic as create_served
from tests.support.raw_produce import RefusedError, produce_raw, produce_records
from tests.support.records import ALL_CLASSES, Rec, classes_of, generate, missing_classes, without_offsets
from tests.support.reference_batch import CODECS, Oddities, batch_of, encode

pytestmark = pytest.mark.kafka

# Brokers from 3.6 on refuse timestamps an hour ahead of their clock, unless the topic says otherwise.
ANY_TIMESTAMP = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def create_topic(broker: Broker, topic: str, partitions: int = 1, config: Mapping[str, str] = ANY_TIMESTAMP) -> None:
    create_served(broker.bootstrap, topic, partitions, config)


@pytest.mark.parametrize("codec", CODECS)
def test_what_java_produces_it_consumes(
    broker: Broker, topic: str, java_oracle: JavaOracle, codec: str, seed: int
) -> None:
    create_topic(broker, topic, partitions=2)
    sent = {partition: generate(seed + partition, 300, raw=False) for partition in (0, 1)}
    offsets = java_oracle.produce(broker.bootstrap, topic, sent, compression_type=codec)
    assert offsets == {partition: list(range(300)) for partition in sent}
    consumed = java_oracle.consume(broker.bootstrap, topic)
    assert consumed.records == sent
    assert consumed.ranges == {0: (0, 300), 1: (0, 300)}


@pytest.mark.parametrize("codec", CODECS)
def test_raw_batches_bring_every_class_to_the_consumer(
    broker: Broker, topic: str, java_oracle: JavaOracle, codec: str, seed: int
) -> None:
    create_topic(broker, topic)
    sent = generate(seed, 2000)
    assert missing_classes(classes_of(sent), ALL_CLASSES) == []
    produce_records(broker.bootstrap, topic, sent, codec)
    assert java_oracle.consume(broker.bootstrap, topic).records[0] == sent


def test_log_append_time(broker: Broker, topic: str, java_oracle: JavaOracle, seed: int) -> None:
    create_topic(broker, topic, config={"message.timestamp.type": "LogAppendTime"})
    java_oracle.produce(broker.bootstrap, topic, {0: generate(seed, 10, raw=False)})
    records = java_oracle.consume(broker.bootstrap, topic).records[0]
    assert {record.timestamp_type for record in records} == {1}


def test_transactions_commit_abort_and_stay_open(
    broker: Broker, topic: str, java_oracle: JavaOracle, seed: int
) -> None:
    create_topic(broker, topic)
    sent = generate(seed, 9, raw=False)

    def produce(part: list[Rec], transactional_id: str) -> None:
        java_oracle.produce(broker.bootstrap, topic, {0: part}, transactional_id=transactional_id)

    produce(sent[:3], f"{topic}-a")
    java_oracle.end_transaction(f"{topic}-a", commit=True)
    produce(sent[3:6], f"{topic}-b")
    java_oracle.end_transaction(f"{topic}-b", commit=False)
    produce(sent[6:], f"{topic}-c")
    committed = java_oracle.consume(broker.bootstrap, topic)
    assert without_offsets(committed.records[0]) == without_offsets(sent[:3])
    assert committed.ranges == {0: (0, 8)}  # two markers; the open transaction holds the last stable offset
    everything = java_oracle.consume(broker.bootstrap, topic, isolation="read_uncommitted")
    assert without_offsets(everything.records[0]) == without_offsets(sent)
    java_oracle.end_transaction(f"{topic}-c", commit=True)
    after = java_oracle.consume(broker.bootstrap, topic)
    assert [record.offset for record in after.records[0]] == [0, 1, 2, 8, 9, 10]
    assert after.ranges == {0: (0, 12)}


def test_a_broker_refuses_a_wrong_checksum(broker: Broker, topic: str, seed: int) -> None:
    create_topic(broker, topic)
    batch = batch_of(generate(seed, 3))
    assert produce_raw(broker.bootstrap, topic, [encode(batch), encode(batch)]) == [0, 3]
    with pytest.raises(RefusedError, match="2"):  # CORRUPT_MESSAGE
        produce_raw(broker.bootstrap, topic, [encode(batch, Oddities(crc=1))])
