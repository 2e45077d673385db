"""Writes and reads topics for the demo with plain confluent-kafka, independently of our own wire code."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError

from archiver.errors import KafkaError, KafkaTemporaryError

OFFSET_BEGINNING = -2
_CRITICAL = 2  # a syslog level: hides librdkafka's lines about brokers that start or stop
_PATIENCE_S = 30.0
_AT_ONCE = 10_000
_POLL_S = 0.2  # longest wait of consume() for a full batch, also at the end of a topic


HeaderPairs = tuple[tuple[str, bytes | None], ...]


class SeenRecord(NamedTuple):
    """One record as a client sees it, without its offset. A tuple, because hundreds of thousands are kept and compared."""

    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int
    timestamp_type: int = 1  # librdkafka's CreateTime


_OnDelivery = Callable[[ClientError | None, Message], None]
Topic = Mapping[int, Sequence[SeenRecord]]  # records by partition, in order


def write_records(bootstrap: str, topic: str, records: Iterable[SeenRecord]) -> None:
    """Write each record to the partition of its key, and wait until the broker has all of them."""
    _produce(Producer(_settings(bootstrap)), topic, records)


def write_transaction(bootstrap: str, topic: str, records: Iterable[SeenRecord], *, name: str, commit: bool) -> None:
    """Write records in one transaction, and commit or abort it. Aborted records reach the broker, too."""
    producer = Producer({**_settings(bootstrap), "transactional.id": name})
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    _produce(producer, topic, records)
    end = producer.commit_transaction if commit else producer.abort_transaction
    end(_PATIENCE_S)


def _settings(bootstrap: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # Java's partitioner, by key
        "linger.ms": 20,
        "compression.type": "lz4",
        "log_level": _CRITICAL,
    }


def _produce(producer: Producer, topic: str, records: Iterable[SeenRecord]) -> None:
    refused: list[str] = []

    def delivered(error: ClientError | None, _: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for record in records:
        while not _take(producer, topic, record, delivered):
            producer.poll(1.0)
        producer.poll(0)
    left = producer.flush(_PATIENCE_S)
    if left or refused:
        raise KafkaError(f"{topic}: {left + len(refused)} records were not written: {(refused or ['no answer'])[0]}")


def _take(producer: Producer, topic: str, record: SeenRecord, delivered: _OnDelivery) -> bool:
    """Hand a record to librdkafka. Returns False when its queue is full."""
    try:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=delivered,
        )
    except BufferError:
        return False
    return True


def consume_topic(bootstrap: str, topic: str) -> Topic:
    """Read all records that a read_committed consumer sees now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "witness",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": _CRITICAL,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return _read_to_ends(consumer, topic, sorted(partitions))
    except KafkaException as error:
        raise KafkaError(f"{topic} could not be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read_to_ends(consumer: Consumer, topic: str, partitions: Sequence[int]) -> Topic:
    seen: dict[int, list[SeenRecord]] = {number: [] for number in partitions}
    unfinished = set(partitions)
    deadline = time.monotonic() + _PATIENCE_S
    while unfinished:
        messages = consumer.consume(_AT_ONCE, _POLL_S)
        if messages:
            deadline = time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            raise KafkaTemporaryError(f"{topic}-{min(unfinished)}: neither records nor the end in {_PATIENCE_S:g} s")
        for message in messages:
            number = message.partition() or 0  # None only for messages that do not come from a broker
            if _is_end(message):
                unfinished.discard(number)
            else:
                seen[number].append(_seen_record(message))
    return seen


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() != ClientError._PARTITION_EOF:  # noqa: SLF001 - public, whatever its name
        raise KafkaException(error)
    return True


def _seen_record(message: Message) -> SeenRecord:
    timestamp_type, timestamp_ms = message.timestamp()
    headers = message.headers() or ()
    return SeenRecord(message.key(), message.value(), tuple(headers), timestamp_ms, timestamp_type)  # type: ignore[arg-type]
