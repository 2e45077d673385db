"""Test topics by way of our own admin and confluent-kafka's producer; record batches by way of aiokafka."""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Replicas, TopicDescription
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import KafkaAdmin

Value = TypeVar("Value")


def described(name: str, topic_id: str) -> TopicDescription:
    """Make the description of a topic of one partition with one replica."""
    return TopicDescription(
        name=name,
        topic_id=topic_id,
        partitions=(0,),
        leaders={0: 1},
        is_internal=False,
        fewest=Replicas(1, 1, 0),
        replicas=(1,),
    )


def settings_of(bootstrap: str, **properties: object) -> KafkaSettings:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return KafkaSettings.parse({"bootstrap.servers": bootstrap, **named})


def with_client(bootstrap: str, body: Callable[[KafkaClient], Awaitable[Value]]) -> Value:
    """Run a coroutine function with a connected client."""

    async def run() -> Value:
        async with KafkaClient(settings_of(bootstrap)) as client:
            return await body(client)

    return asyncio.run(run())


def create_topic(bootstrap: str, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    admin = KafkaAdmin(settings_of(bootstrap))
    asyncio.run(admin.create_topic(topic, partitions=partitions, replication_factor=1, configs=configs))


def delete_topic(bootstrap: str, topic: str) -> None:
    """Returns when it is gone."""
    asyncio.run(KafkaAdmin(settings_of(bootstrap)).delete_topic(topic))


def recreate_topic(bootstrap: str, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Delete a topic and create another of its name. With ZooKeeper the name is free some time after it is gone."""
    delete_topic(bootstrap, topic)
    deadline_s = time.monotonic() + 30
    while True:
        try:
            return create_topic(bootstrap, topic, partitions, configs)
        except KafkaError as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Returns when all are led."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(20)
    with_client(bootstrap, lambda client: client.offsets([(topic, partition) for partition in range(total)]))


def producer_of(bootstrap: str, **properties: object) -> Producer:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return Producer({"bootstrap.servers": bootstrap, **named})


def produce_values(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **properties: object) -> None:
    """Returns when the broker has all of them."""
    producer = producer_of(bootstrap, message_max_bytes=20_000_000, **properties)
    refused: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    assert producer.flush(30) == 0
    assert refused == []


async def until_stable(client: KafkaClient, topic: str, offset: int) -> None:
    """Brokers write a transaction's marker after they answered its end: wait for it."""
    async with asyncio.timeout(30):
        while (await client.offsets([(topic, 0)]))[topic, 0].last_stable < offset:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


def build_batch(
    values: list[bytes], *, producer_id: int, epoch: int, base_sequence: int, timestamp: int = 1000
) -> bytes:
    """One uncompressed record batch of an idempotent producer."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, epoch, base_sequence, 1 << 24)
    for delta, value in enumerate(values):
        assert builder.append(delta, timestamp, None, value, []) is not None
    return bytes(builder.build())


def batches_in(records: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """(base offset, last offset, bytes) of every whole batch."""
    at = 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        whole = records[at : at + 12 + length]
        if len(whole) < 12 + length:
            return
        yield base, base + struct.unpack_from(">i", whole, 23)[0], bytes(whole)
        at += len(whole)
