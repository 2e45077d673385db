"""What happens to a topic and its groups before a disaster: done on a real broker by real clients, and noted in plain lists.

A record counts as archived when a plain consumer reads it right before a backup; nothing is asked of the code under test.
"""

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.kafka_topics import with_client
from tests.support.service import eventually

_REQUEST_S: Final = 30
_APART_S: Final = 0.004  # between a moment and whatever is before and behind it: clocks tell whole milliseconds
ALWAYS: Final = 2**62
REMOVED: Final = -1


class Stored(NamedTuple):
    """A record."""

    offset: int
    timestamp: int
    value: bytes


class Said(NamedTuple):
    """What a group said of a partition: that it stands there; REMOVED: that it stands nowhere."""

    life: int
    at_ms: int
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class History:
    """Of one topic, in all its lives."""

    archived: dict[tuple[int, int], dict[int, Stored]] = field(default_factory=lambda: defaultdict(dict))
    ends: dict[tuple[int, int], int] = field(
        default_factory=lambda: defaultdict(int)
    )  # of the logs, at the last backup
    said: dict[tuple[str, int], list[Said]] = field(default_factory=lambda: defaultdict(list))

    def position(self, group: str, partition: int, life: int, as_of_ms: int) -> Said | None:
        """Where a group stood in a life, by its last word up to a time."""
        words = [one for one in self.said[group, partition] if one.life == life and one.at_ms <= as_of_ms]
        return words[-1] if words and words[-1].offset != REMOVED else None

    def spoke(self, group: str, as_of_ms: int) -> bool:
        return any(one.at_ms <= as_of_ms for (name, _), words in self.said.items() if name == group for one in words)

    def stands(self, life: int, but: str) -> bool:
        """Whether another group has a position in the topic."""
        return any(self.position(name, number, life, ALWAYS) for name, number in list(self.said) if name != but)


def next_index(records: Sequence[Stored], offset: int) -> int:
    """Which of some records is the first at or after an offset; as many as there are: none."""
    return bisect_left([one.offset for one in records], offset)


@dataclass(frozen=True, slots=True)
class Hands:
    """Clients that do what a case asks for."""

    bootstrap: str
    plain: Producer
    transactional: Producer
    admin: AdminClient

    @staticmethod
    def of(bootstrap: str) -> "Hands":
        shared = {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0}
        plain, transactional = Producer(shared), Producer({**shared, "transactional.id": "cases"})
        transactional.init_transactions(_REQUEST_S)
        return Hands(bootstrap, plain, transactional, AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}))

    # --- records

    def write(self, topic: str, records: Iterable[tuple[int, Stored]]) -> None:
        """One batch of each partition, as a rule."""
        _send(self.plain, topic, records)

    def write_in_transaction(self, topic: str, records: Iterable[tuple[int, Stored]], *, commits: bool) -> None:
        self.transactional.begin_transaction()
        _send(self.transactional, topic, records)
        self._end(commits=commits)

    def delete_records(self, topic: str, partition: int, below: int) -> None:
        (done,) = self.admin.delete_records([ClientPartition(topic, partition, below)]).values()
        done.result(_REQUEST_S)

    def set_policy(self, topic: str, name: str) -> None:
        policy = ConfigEntry("cleanup.policy", name, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
        self.admin.incremental_alter_configs([resource])[resource].result(_REQUEST_S)

    def bounds(self, topic: str, partitions: int) -> list[tuple[int, int]]:
        """Where each partition begins and ends, when no transaction is open any more."""
        places = [(topic, number) for number in range(partitions)]
        while True:
            found = with_client(self.bootstrap, lambda client: client.offsets(places))
            if all(one.last_stable == one.high_watermark for one in found.values()):
                return [(found[place].log_start, found[place].high_watermark) for place in places]
            time.sleep(0.01)

    def read(self, topic: str, partitions: int) -> list[list[Stored]]:
        """All that a plain consumer sees."""
        found: list[list[Stored]] = [[] for _ in range(partitions)]
        consumer = self._consumer("reader")
        try:
            consumer.assign([ClientPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
            left = set(range(partitions))
            while left:
                number, record = _polled(consumer)
                if record is None:
                    left.discard(number)
                else:
                    found[number].append(record)
        finally:
            consumer.close()
        return found

    def epochs(self, topic: str, partitions: int) -> list[int]:
        """In which leader epoch the last record of each partition was written."""
        found: dict[int, int] = {}
        consumer = self._consumer("reader")
        try:
            ends = [end for _, end in self.bounds(topic, partitions)]
            consumer.assign([ClientPartition(topic, number, end - 1) for number, end in enumerate(ends)])
            while len(found) < partitions:
                message = consumer.poll(_REQUEST_S)
                assert message is not None
                if message.error() is None:
                    number, epoch = message.partition(), message.leader_epoch()
                    assert number is not None
                    assert epoch is not None
                    found[number] = epoch
        finally:
            consumer.close()
        return [found[number] for number in range(partitions)]

    # --- positions

    def commit(self, group: str, positions: Sequence[ClientPartition]) -> None:
        consumer = self._consumer(group)
        try:
            consumer.commit(offsets=list(positions), asynchronous=False)
        finally:
            consumer.close()

    def commit_in_transaction(self, group: str, positions: Sequence[ClientPartition], *, commits: bool) -> None:
        consumer = self._consumer(group)
        try:
            self.transactional.begin_transaction()
            self.transactional.send_offsets_to_transaction(
                list(positions), consumer.consumer_group_metadata(), _REQUEST_S
            )
            self._end(commits=commits)
            consumer.committed(list(positions), _REQUEST_S)  # waits for the marker, which brokers write a little later
        finally:
            consumer.close()

    def delete_group(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(_REQUEST_S)

    def wait_until_forgotten(self, groups: Collection[str], topic: str, partitions: int) -> None:
        """Brokers remove the positions in a deleted topic some time after it."""
        places = [ClientPartition(topic, number) for number in range(partitions)]
        for group in groups:
            consumer = self._consumer(group)
            try:
                eventually(partial(_stand_nowhere, consumer, places), f"{group} still stands in {topic}")
            finally:
                consumer.close()

    def next_records(self, group: str, topic: str, partitions: int) -> dict[int, tuple[str, bytes | None]]:
        """What a consumer of the group reads first where it stands, of each partition in which it stands; None: the end.

        With the metadata of its position.
        """
        consumer = self._consumer(group)
        try:
            committed = consumer.committed([ClientPartition(topic, number) for number in range(partitions)], _REQUEST_S)
            standing = {one.partition: one for one in committed if one.offset >= 0}
            found: dict[int, tuple[str, bytes | None]] = {}
            if standing:
                consumer.assign(list(standing.values()))
            while len(found) < len(standing):
                number, record = _polled(consumer)
                told = (standing[number].metadata or "").rstrip("\0")  # librdkafka commits its zero, too
                found.setdefault(number, (told, None if record is None else record.value))
            return found
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        consumer.list_topics(timeout=_REQUEST_S)  # else librdkafka looks for the coordinator half a second later
        return consumer

    def _end(self, *, commits: bool) -> None:
        if commits:
            self.transactional.commit_transaction(_REQUEST_S)
        else:
            self.transactional.abort_transaction(_REQUEST_S)


def _stand_nowhere(consumer: Consumer, places: list[ClientPartition]) -> bool:
    return all(place.offset < 0 for place in consumer.committed(places, _REQUEST_S))


def moment_ms() -> int:
    """A time that is surely behind all that was done, and before all that follows."""
    time.sleep(_APART_S)
    now_ms = time.time_ns() // 1_000_000
    time.sleep(_APART_S)
    return now_ms


def key_of(value: bytes) -> bytes:
    """Values end with a number. A few keys come again and again, and some only once."""
    number = int(value.rpartition(b"-")[2])
    return b"once %d" % number if number % 11 == 5 else b"%d" % (number**2 % 7)


def _send(producer: Producer, topic: str, records: Iterable[tuple[int, Stored]]) -> None:
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for partition, one in records:
        producer.produce(
            topic, one.value, key_of(one.value), partition=partition, timestamp=one.timestamp, on_delivery=note
        )
    assert producer.flush(_REQUEST_S) == 0
    assert refused == []


def _polled(consumer: Consumer) -> tuple[int, Stored | None]:
    """The next record and its partition; None: the partition's end."""
    message = consumer.poll(_REQUEST_S)
    assert message is not None
    partition, offset, error = message.partition(), message.offset(), message.error()
    assert partition is not None
    if error is not None:
        assert error.code() == KafkaError._PARTITION_EOF, error
        return partition, None
    assert offset is not None
    return partition, Stored(offset, message.timestamp()[1], message.value() or b"")
