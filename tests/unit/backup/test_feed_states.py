"""Every state of a feed in a pump that any order of events reaches: how it ends, and that no held record is lost silently."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.archived_end import position_of
from archiver.archive.segments.segment_facts import HoleCause
from archiver.archive.segments.spool import Spool
from archiver.backup.partition import fetching
from archiver.backup.partition.diagnosis import Skip
from archiver.backup.partition.feed import EndState, Feed, FetchState, PutState
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter
from archiver.backup.partition.pump import Pump
from archiver.errors import ArchiverError, CorruptBatchError, KafkaError, StoreError, StoreTemporaryError
from archiver.process.running.silence import SilenceCounter
from archiver.store.port import Body, ObjectKind
from tests.support.feeds import sink_of
from tests.support.memory_store import MemoryStore
from tests.support.segments import SOURCE
from tests.unit.backup.test_partition_writer import fetch_of

PER_FETCH = 3
MOST_OFFSETS = 2 * PER_FETCH


class Store(MemoryStore):
    error: ArchiverError | None = None

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        if self.error is not None:
            raise self.error
        return super().put_if_absent(key, body, metadata, kind=kind)


class Writer(PartitionWriter):
    """Counts the records that it took, and those that it dropped."""

    taken = lost = 0

    def take(self, fetch: Fetch) -> Fetch | None:
        before = self.held_records
        try:
            return super().take(fetch)
        finally:
            self.taken += self.held_records - before

    def discard(self) -> None:
        self.lost += self.held_records
        super().discard()


class Pool:
    """Works when the test lets it."""

    count = 2

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.is_working = False

    async def call(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        self.is_working = True
        await self.gate.wait()
        self.gate.clear()
        self.is_working = False
        return work()


class World:
    """One partition, whose puts wait for an event."""

    def __init__(self, spool: Spool) -> None:
        self.now_s, self.store, self.workers, self.putters = 0.0, Store(), Pool(), Pool()
        self.diagnosis: Any = None
        self.is_dropped, self.may_put = False, True
        sink = sink_of(
            Archive(self.store, Layout()),
            spool,
            records=100,
            clock=lambda: self.now_s,
            silence_counter=SilenceCounter(1e9),
        )
        self.writer = Writer(SOURCE, position_of(sink.archive, SOURCE.topic, 0, SOURCE.partition), sink, silences=0)
        self.feed = Feed(writer=self.writer)
        client: Any = SimpleNamespace(diagnosis=lambda: self.diagnosis)
        self.pump = Pump(
            client, sink, pool=cast("Any", self.workers), memory_bytes=1 << 20, spool_bytes=1 << 40, rate_bytes=0,
            on_durable=lambda _: None,
        )  # fmt: skip
        self.pump._putters = cast("Any", self.putters)
        self.pump.add(self.feed)

    @property
    def state(self) -> tuple[object, ...]:
        feed, writer = self.feed, self.writer
        error = type(feed.ending.error).__name__
        progress = len(feed.fetches.queue), writer.held_records, writer.position, writer.durable_position, writer.is_due
        phase = self.diagnosis is None, self.workers.is_working, self.may_put
        return feed.fetches.state, feed.puts.state, feed.ending.state, error, phase, progress

    def answer(self, item: Fetch) -> None:
        self.feed.enqueue(item, item.position + PER_FETCH, 0)
        self.pump.advance(self.feed)

    def answer_broken(self, diagnosis: object) -> None:
        good = fetch_of(self.feed.fetches.offset, PER_FETCH)
        self.diagnosis = diagnosis
        self.answer(replace(good, records=memoryview(bytes(good.records[:-1]) + b"\xff")))

    def put(self, error: ArchiverError | None) -> None:
        self.store.error = error
        self.putters.gate.set()

    def retry(self) -> None:
        self.now_s += 60.0
        self.pump.advance(self.feed)

    def make_due(self) -> None:
        self.writer.close_early()
        self.pump.advance(self.feed)

    def drop(self) -> None:
        self.is_dropped, self.may_put = True, self.putters.is_working
        self.pump.drop(self.feed)

    async def close(self, timeout_s: float | None) -> None:
        closing = asyncio.create_task(self.pump.close([self.feed], timeout_s))
        if timeout_s is not None:
            await closing

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)


SKIPPED = Skip(2 * MOST_OFFSETS, HoleCause.UNREADABLE)
FOR_NOW, FOR_GOOD = StoreTemporaryError("slow"), StoreError("denied")


def may_fetch(world: World) -> bool:
    return world.feed.wants_more and world.feed.fetches.offset < MOST_OFFSETS


def may_break(world: World) -> bool:
    return may_fetch(world) and world.diagnosis is None


def is_putting(world: World) -> bool:
    return world.putters.is_working


def is_there(world: World) -> bool:
    return world.feed.key in world.pump.feeds


EVENTS: Mapping[str, tuple[Callable[[World], bool], Callable[[World], Any]]] = {
    "an answer": (may_fetch, lambda world: world.answer(fetch_of(world.feed.fetches.offset, PER_FETCH))),
    "a broken batch": (may_break, lambda world: world.answer_broken(CorruptBatchError("broken"))),
    "a batch to skip": (may_break, lambda world: world.answer_broken(SKIPPED)),
    "fetches fail": (is_there, lambda world: world.pump._fetching._fail(world.feed, KafkaError("denied"))),
    "a segment is old": (lambda world: world.writer.opened_at_s is not None, World.make_due),
    "a worker goes on": (lambda world: world.workers.is_working, lambda world: world.workers.gate.set()),
    "a put works": (is_putting, lambda world: world.put(None)),
    "a put fails for now": (is_putting, lambda world: world.put(FOR_NOW)),
    "a put fails for good": (is_putting, lambda world: world.put(FOR_GOOD)),
    "time passes": (lambda world: world.feed.puts.state is PutState.FAILED, World.retry),
    "memory is short": (lambda world: world.feed.puts.due_since_s is not None, lambda world: world.feed.set_aside()),
    "a pause": (lambda world: world.feed.wants_more, lambda world: world.feed.fetches.pause()),
    "it resumes": (
        lambda world: world.feed.fetches.state is FetchState.PAUSED,
        lambda world: world.feed.fetches.leave(FetchState.PAUSED),
    ),
    "a close": (is_there, lambda world: world.close(None)),
    "a close that takes too long": (is_there, lambda world: world.close(0.0)),
    "the partition is lost": (is_there, World.drop),
}

PUTS = ("a put works", "a put fails for now", "a put fails for good")


async def take_event(world: World, name: str) -> str | None:
    """Let an event happen. Returns how the feed ended by it, or None. What it must have told by then is checked."""
    feed, before, lost_before = world.feed, world.feed.ending.state, world.writer.lost
    put_before = len(world.store.objects)
    happening = EVENTS[name][1](world)
    if asyncio.iscoroutine(happening):
        await happening
    await world.settle()
    told = feed.report()
    assert world.may_put or len(world.store.objects) == put_before
    assert feed.ending.state >= before
    assert feed.ending.ended.is_set() == (feed.ending.state is EndState.ENDED)
    lost = world.writer.lost - lost_before
    assert not lost or world.is_dropped or (told.error is not None and told.dropped_records == lost), name
    assert world.writer.written.records + world.writer.held_records + world.writer.lost == world.writer.taken
    if feed.ending.state is not EndState.ENDED or before is EndState.ENDED:
        return None
    assert not world.writer.holds_records
    assert feed not in world.pump._unended
    if world.is_dropped:
        return "dropped"
    return "a reported error" if told.error is not None else "nothing held"


@asynccontextmanager
async def replayed(spool: Spool, path: tuple[str, ...]) -> AsyncIterator[World]:
    """A world in which these events happened."""
    world = World(spool)
    for name in path:
        await take_event(world, name)
    yield world
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await world.settle()


async def check_end(world: World) -> None:
    """A feed ends that is closed, while the store works from now on."""
    closing = asyncio.create_task(world.pump.close([world.feed]))
    for _ in range(6):
        world.workers.gate.set()
        world.retry()
        world.put(None)
        await world.settle()
    assert closing.done()
    assert world.feed.ending.state is EndState.ENDED


async def walk(spool: Spool) -> tuple[set[tuple[object, ...]], dict[str, set[str]]]:
    """Take each event in each state. Returns the states, and for each way to end the events that it came by."""
    states, ends = set[tuple[object, ...]](), dict[str, set[str]]()
    todo: list[tuple[str, ...]] = [()]
    while todo:
        path = todo.pop(0)
        async with replayed(spool, path) as world:
            happens = [name for name, (may, _) in EVENTS.items() if may(world)]
            await check_end(world)
        for name in happens:
            async with replayed(spool, path) as world:
                end = await take_event(world, name)
                if end is not None:
                    ends.setdefault(end, set()).add(name)
                elif world.state not in states:
                    states.add(world.state)
                    todo.append((*path, name))
    return states, ends


def test_a_feed_ends_only_with_nothing_held_or_dropped_or_with_a_reported_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def judge(client: Any, *_: object) -> object:  # noqa: ANN401
        return client.diagnosis()

    monkeypatch.setattr(fetching, "judge_broken", judge)
    caplog.set_level(logging.CRITICAL)
    states, ends = asyncio.run(walk(Spool(tmp_path, keeps_bytes=1 << 20, keeps_from_bytes=0)))
    assert ends == {
        "nothing held": {"a close", "a close that takes too long", "a put works", "a worker goes on"},
        "dropped": {"the partition is lost", "a worker goes on", *PUTS},
        "a reported error": {"fetches fail", "a worker goes on", "a put works", "a put fails for good"},
    }
    assert {state[0] for state in states} == {*FetchState} - {FetchState.STARVING}
    assert {state[1] for state in states} == {*PutState} - {PutState.WAITING, PutState.WAITING_AT_END}
    assert {state[2] for state in states} == {*EndState} - {EndState.ENDED}
