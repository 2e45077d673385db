"""Raw idempotent produce against real brokers: each kind of answer once."""

import pytest

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import Code
from archiver.kafka.records.fetch import FetchTarget, fetch
from archiver.kafka.records.produce import ProduceAnswer, ProduceOutcome, init_producer_id, produce
from tests.support.brokers import Broker
from tests.support.kafka_topics import batches_in, build_batch, create_topic, with_client

pytestmark = pytest.mark.kafka


def test_a_repeated_batch_is_answered_with_its_first_offset(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)

    async def body(client: KafkaClient) -> None:
        identity = await init_producer_id(client)

        async def send(base_sequence: int) -> ProduceAnswer:
            batch = build_batch(
                [b"r"] * 10, producer_id=identity.producer_id, epoch=identity.epoch, base_sequence=base_sequence
            )
            return await produce(client, topic, 0, batch, 10_000)

        assert [(await send(sequence)).base_offset for sequence in (0, 10, 20, 10, 0)] == [0, 10, 20, 10, 0]
        ahead = await send(40)
        assert (ahead.outcome, ahead.error_code) == (ProduceOutcome.OUT_OF_SEQUENCE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert topic in ahead.message
        for sequence in (30, 40, 50, 60):
            assert (await send(sequence)).outcome is ProduceOutcome.DONE
        behind = await send(0)  # further back than the five batches that a broker remembers
        assert behind.outcome in {ProduceOutcome.OUT_OF_SEQUENCE, ProduceOutcome.DUPLICATE}
        assert (await client.offsets([(topic, 0)]))[topic, 0].high_watermark == 70

    with_client(broker.bootstrap, body)


def test_what_was_sent_is_what_is_stored(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)

    async def body(client: KafkaClient) -> None:
        identity = await init_producer_id(client)
        batch = build_batch([b"a", b"b"], producer_id=identity.producer_id, epoch=identity.epoch, base_sequence=0)
        assert (await produce(client, topic, 0, memoryview(batch), 10_000)).outcome is ProduceOutcome.DONE
        target = FetchTarget(topic=topic, topic_id="", partition=0, offset=0)
        (row,) = await fetch(client, 1, [target], max_bytes=9999, partition_bytes=9999, max_wait_ms=5000, min_bytes=1)
        ((base, last, stored),) = batches_in(row.records)
        assert (base, last) == (0, 1)
        assert stored[16:] == batch[16:]  # from the magic on: base offset and leader epoch are the broker's

    with_client(broker.bootstrap, body)


def test_two_identities_differ(broker: Broker) -> None:
    async def body(client: KafkaClient) -> None:
        assert await init_producer_id(client) != await init_producer_id(client)

    with_client(broker.bootstrap, body)


@pytest.mark.parametrize(
    ("configs", "value", "timestamp", "code"),
    [
        ({"max.message.bytes": "1000"}, bytes(2000), 1000, Code.MESSAGE_TOO_LARGE),
        ({"message.timestamp.before.max.ms": "60000"}, b"old", 1000, Code.INVALID_TIMESTAMP),
        ({"cleanup.policy": "compact"}, b"without a key", 1000, Code.INVALID_RECORD),
    ],
    ids=["too large", "too old", "no key"],
)
def test_what_is_never_taken_is_fatal(
    broker: Broker, topic: str, configs: dict[str, str], value: bytes, timestamp: int, code: Code
) -> None:
    create_topic(broker.bootstrap, topic, configs=configs)

    async def body(client: KafkaClient) -> None:
        identity = await init_producer_id(client)
        batch = build_batch(
            [value], producer_id=identity.producer_id, epoch=identity.epoch, base_sequence=0, timestamp=timestamp
        )
        answer = await produce(client, topic, 0, batch, 10_000)
        assert (answer.outcome, answer.error_code, answer.base_offset) == (ProduceOutcome.FATAL, code, -1)
        assert f"{topic}[0]: {code.name}" in answer.message

    with_client(broker.bootstrap, body)


def test_a_broken_batch_is_fatal(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)

    async def body(client: KafkaClient) -> None:
        batch = bytearray(build_batch([b"whole"], producer_id=-1, epoch=-1, base_sequence=-1))
        batch[-2] ^= 1
        answer = await produce(client, topic, 0, bytes(batch), 10_000)
        assert (answer.outcome, answer.error_code) == (ProduceOutcome.FATAL, Code.CORRUPT_MESSAGE)

    with_client(broker.bootstrap, body)
