"""What a backup notes of where the logs of `__consumer_offsets` end, and when."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import read_topic
from archiver.backup.opening.offsets_log_ends import OffsetsLogEnds
from archiver.backup.partition.feed import Feed
from archiver.backup.reports.troubles import Troubles
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import Workers
from tests.support.memory_store import MemoryStore

AGE_S = 10.0


class Pool:
    async def call(self, work: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        return work(*arguments)


class World:
    """Partitions 0 and 1 of the offsets topic, as an instance has them."""

    def __init__(self) -> None:
        self.archive = Archive(MemoryStore(), Layout())
        record_topic(self.archive, topic=OFFSETS_TOPIC, topic_id="A", cluster_id="c", partitions=2, configs={})
        self.now_ms = 1_000
        pool, client = cast("Workers", Pool()), cast("KafkaClient", None)
        self.ends = OffsetsLogEnds(client, self.archive, pool, lambda: self.now_ms)

    def noted(self) -> dict[int, int]:
        fact = read_topic(self.archive, OFFSETS_TOPIC)
        assert fact is not None
        return {number: end.offset for number, end in fact.ends.items()}

    def open(self, feeds: Mapping[int, Feed], ends: Mapping[int, int]) -> None:
        asyncio.run(self.ends.note_opened([*feeds.values()], {place(number): end for number, end in ends.items()}))

    def watch_once(self, feeds: Mapping[int, Feed], now_s: float) -> None:
        async def wait(_: float) -> None:
            waited.append(0)
            if len(waited) > 1:
                raise InterruptedError

        waited = list[int]()
        mine = {feed.key: feed for feed in feeds.values()}
        with pytest.raises(InterruptedError):
            asyncio.run(self.ends.watch(mine, AGE_S, lambda: now_s, Troubles(), wait))


def place(number: int) -> TopicPartition:
    return OFFSETS_TOPIC, number


def feed(number: int, *, position: int = 0, objects_end: int = 0, **told: object) -> Feed:
    """A partition whose records up to the position are durable, unless it holds some."""
    writer = SimpleNamespace(position=position, durable_position=position, objects_end=objects_end, holds_records=False)
    plain = {"key": place(number), "writer": writer, "pending_since_s": None, "high_watermark": position}
    return cast("Feed", SimpleNamespace(**(plain | told)))


def test_ends_are_noted_before_anything_is_read_and_are_what_an_archive_must_reach() -> None:
    world = World()
    behind, whole = feed(0, position=3, objects_end=3), feed(1, position=7, objects_end=5)
    world.open({0: behind, 1: whole}, {0: 9, 1: 7})
    assert world.noted() == {0: 9, 1: 5}  # behind offset 5 there are markers alone


def test_what_was_read_and_is_in_no_object_is_no_lag() -> None:
    world = World()
    world.open({0: feed(0, position=3, objects_end=3), 1: feed(1)}, {0: 9, 1: 4})
    asyncio.run(world.ends.settle([feed(0, position=8, objects_end=3)]))
    assert world.noted() == {0: 9, 1: 4}
    asyncio.run(world.ends.settle([feed(0, position=9, objects_end=3)]))
    assert world.noted() == {0: 3, 1: 4}


def test_a_partition_that_stands_still_is_noted_once() -> None:
    world = World()
    held = feed(0, position=3, objects_end=3, high_watermark=5, pending_since_s=100.0)
    world.open({0: held, 1: feed(1)}, {0: 3, 1: 0})
    world.watch_once({0: held}, 169.0)
    assert world.noted() == {0: 3, 1: 0}
    world.watch_once({0: held}, 171.0)
    assert world.noted() == {0: 5, 1: 0}
    held.high_watermark = 6
    world.watch_once({0: held}, 999.0)
    assert world.noted() == {0: 5, 1: 0}
