"""When a backup writes the index of facts, and that nothing waits for it."""

import asyncio
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace

import pytest

import archiver.backup.service.indexer
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.index.index_file import split_file
from archiver.archive.index.index_generations import MOST_FILES, append_to_index, read_index
from archiver.archive.notes.holds import Hold, add_hold, release_hold
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.segments.entries import IndexEntry
from archiver.backup.service.indexer import EVERY_S, Indexer
from archiver.errors import StoppedError, StoreError, StoreTemporaryError
from archiver.store.port import Body, ObjectKind
from archiver.upkeep.verify import check_listing
from tests.support.memory_store import CountingStore
from tests.support.segments import facts_of

LAYOUT = Layout("p")


class IndexStore(CountingStore):
    """Counts the files of the index; a put may fail or hang."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        if "/index/" in key:
            self.may_answer.wait(30)
            if self.error is not None:
                raise self.error
        return super().put_if_absent(key, body, metadata, kind=kind)

    @property
    def files(self) -> list[str]:
        return sorted(key for key in self.objects if "/index/" in key)


class World:
    def __init__(self) -> None:
        self.store = IndexStore()
        self.fresh = FreshEntries()
        self.now_s = 0.0
        self.base = 0
        self.turns = asyncio.Semaphore(0)
        self.indexer = Indexer(Archive(self.store, LAYOUT), self.fresh, clock=lambda: self.now_s, wait=self.wait)

    async def wait(self, seconds: float) -> None:
        await self.turns.acquire()
        self.now_s += seconds

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            key, facts = SegmentKey(topic="t", partition=0, base=self.base), facts_of(self.base, self.base + 1)
            etag = self.store.put_if_absent(
                LAYOUT.segment_key(key), b"%d" % self.base, facts.to_metadata(), kind=ObjectKind.SEGMENT
            )
            assert etag is not None
            self.fresh.note(IndexEntry(key, len(b"%d" % self.base), etag, facts))
            self.base += 1


async def settled(condition: object) -> None:
    for _ in range(500):
        if callable(condition) and condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not reached")


def test_a_file_every_ten_minutes_if_there_is_something_or_sooner_if_there_is_much() -> None:
    async def run() -> None:
        world = World()
        running = asyncio.create_task(world.indexer.run())
        world.put()
        for _ in range(int(EVERY_S / 10) - 1):
            world.turns.release()
        await settled(lambda: world.now_s == EVERY_S - 10)
        assert world.store.files == []
        world.turns.release()
        await settled(lambda: len(world.store.files) == 1)
        for _ in range(int(EVERY_S / 10) + 1):
            world.turns.release()
        await settled(lambda: world.now_s == 2 * EVERY_S + 10)
        assert len(world.store.files) == 1
        world.put(2_000)
        world.turns.release()
        await settled(lambda: len(world.store.files) == 2)
        running.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("error", [StoreError("denied"), RuntimeError("a defect"), ValueError("no number")])
def test_what_goes_wrong_is_swallowed(error: Exception) -> None:
    world = World()
    world.store.error = error
    world.fresh.note_found(("t", 0), 0, 4)
    world.put(3)
    world.indexer.write()
    world.indexer.bring_in()
    assert (world.store.files, len(world.fresh)) == ([], 0)


def test_what_may_work_later_is_tried_again() -> None:
    world = World()
    world.store.error = StoreTemporaryError("slow down")
    world.put(3)
    world.indexer.write()
    assert len(world.fresh) == 3
    world.store.error = None
    world.indexer.write()
    assert (len(world.store.files), len(world.fresh)) == (1, 0)


def test_control_facts_of_topics_without_a_record_are_remembered_once() -> None:
    world = World()
    for topic in ("empty", "t"):
        record_topic(
            Archive(world.store, LAYOUT), topic=topic, topic_id=topic, cluster_id="c", partitions=1, configs={}
        )
    for told in ({"empty": 0, "t": 0}, {"t": 0}):
        world.put()
        world.indexer.write()
        assert split_file(world.store.objects[world.store.files[-1]].body, "k").seen_control.newest_facts == told
    empty = LAYOUT.fact_key("topics/empty", 0)
    world.store.delete([empty])
    assert [one for one in check_listing(Archive(world.store, LAYOUT)).problems if one.startswith(f"{empty}: is gone")]


def test_many_files_become_a_generation_but_not_at_a_stop() -> None:
    world = World()
    for _ in range(MOST_FILES - 1):
        world.put()
        world.indexer.write(has_time=False)
    world.put()
    asyncio.run(world.indexer.finish())
    assert len(world.store.files) == MOST_FILES
    world.put()
    world.indexer.write()
    assert world.store.files[-1] == LAYOUT.index_key(1, 0)


def test_a_damaged_file_stops_merges_and_is_told_and_costs_no_entry(caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt reads all files: there is one in MOST_FILES."""
    world = World()
    first = LAYOUT.index_key(0, 0)
    world.put()
    world.indexer.write()
    kept = world.store.objects[first]
    world.store.objects[first] = replace(kept, body=b"damaged")
    for count in range(1, 3 * MOST_FILES):
        assert len(world.store.files) == count
        world.put()
        world.indexer.write()
        assert len(world.fresh) == 0
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 3
    assert warnings[0].startswith(f"the files of the index of facts were not merged: {first}: ")
    world.store.objects[first] = kept
    for _ in range(MOST_FILES):
        world.put()
        world.indexer.write()
    assert world.store.files[-1] == LAYOUT.index_key(1, 0)
    assert known_bases(world.store) == list(range(world.base))


def test_the_end_of_a_run_that_put_nothing_writes_the_news_of_holds() -> None:
    world = World()
    archive = Archive(world.store, LAYOUT)

    async def run() -> None:
        async with Indexer(archive, world.fresh, clock=lambda: 0.0).attend(asyncio.Event()):
            pass

    asyncio.run(run())
    assert world.store.files == []
    add_hold(archive, Hold(name="case-7", topics="*", reason="", by="me", added_ms=1))
    release_hold(archive, "case-7", by="me", now_ms=2)
    for _ in range(2):
        asyncio.run(run())
        assert len(world.store.files) == 1
    assert split_file(world.store.objects[world.store.files[-1]].body, "k").seen_control.newest_holds == {"case-7": 1}
    assert check_listing(archive).problems == []
    keys = [LAYOUT.fact_key("holds/case-7", number) for number in range(2)]
    world.store.delete(keys[1:])  # its release
    assert check_listing(archive).problems == [f"{keys[1]}: is gone; bring it back from the bucket's versions"]
    world.store.delete(keys)
    assert [one.partition(":")[0] for one in check_listing(archive).problems] == keys


# --- what a backup that was killed has put


def known_bases(store: IndexStore) -> list[int]:
    index = read_index(Archive(store, LAYOUT))
    keys = [LAYOUT.parse_segment(key) for key in store.objects]
    return sorted(key.base for key in keys if key is not None and index.remembered(key) is not None)


def killed_world(known: Collection[int], total: int) -> World:
    """Of so many segments the index knows some; the next process finds the partition's end there."""
    world = World()
    world.put(total)
    entries = [entry for entry in world.fresh.take() if entry.key.base in known]
    if entries:
        append_to_index(Archive(world.store, LAYOUT), entries)
    world.fresh.note_found(("t", 0), 0, total)
    world.store.heads = 0
    return world


@pytest.mark.parametrize(
    "known", [set(), {0, 1}, {0, 3, 4}, {0, 1, 2, 3, 4}], ids=["nothing", "the end", "the middle", "all"]
)
def test_the_next_backup_brings_in_what_the_index_does_not_know(known: set[int]) -> None:
    """Where the killed one was the first, or another one has gone on behind it. Nothing is asked for that is known."""
    world = killed_world(known, 5)
    world.indexer.bring_in()
    assert known_bases(world.store) == [0, 1, 2, 3, 4]
    assert world.store.heads == 5 - len(known)
    assert len(world.store.files) == bool(known) + (len(known) < 5)
    world.indexer.bring_in()
    assert world.store.heads == 5 - len(known)


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "at its end"])
def test_what_this_backup_puts_hides_nothing_of_what_was_before(is_stopped: bool) -> None:
    """One that lives for a moment brings it in, too."""
    world = killed_world(set(), 5)

    async def run() -> None:
        async with world.indexer.attend(asyncio.Event()):
            world.put(2)
            if is_stopped:
                raise StoppedError

    with pytest.raises(StoppedError) if is_stopped else nullcontext():
        asyncio.run(run())
    assert known_bases(world.store) == [0, 1, 2, 3, 4, 5, 6]


def test_it_is_brought_in_soon_and_not_with_the_next_file() -> None:
    async def run() -> None:
        world = killed_world({0}, 3)
        running = asyncio.create_task(world.indexer.run())
        world.turns.release()
        await settled(lambda: known_bases(world.store) == [0, 1, 2])
        assert world.now_s < EVERY_S / 10
        running.cancel()

    asyncio.run(run())


def test_what_is_not_brought_in_in_time_is_found_by_the_one_after() -> None:
    world = killed_world(set(), 250)
    brought = []
    for _ in range(3):
        world.indexer.bring_in(0)
        brought.append(len(known_bases(world.store)))
        world.fresh.note_found(("t", 0), 0, 250)
    assert brought == [100, 200, 250]


def test_a_damaged_object_is_not_brought_in_and_keeps_no_other_out() -> None:
    world = killed_world({0}, 4)
    damaged = LAYOUT.segment_key(SegmentKey(topic="t", partition=0, base=2))
    world.store.objects[damaged] = replace(world.store.objects[damaged], metadata={"archiver-format": "1"})
    world.indexer.bring_in()
    assert known_bases(world.store) == [0, 1, 3]


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "at its end"])
def test_the_end_writes_what_is_left(is_stopped: bool) -> None:
    world = World()

    async def run() -> None:
        async with world.indexer.attend(asyncio.Event()):
            world.put()
            if is_stopped:
                raise StoppedError

    if is_stopped:
        with pytest.raises(StoppedError):
            asyncio.run(run())
    else:
        asyncio.run(run())
    assert len(world.store.files) == 1


def test_a_store_that_hangs_holds_no_stop_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver.backup.service.indexer, "_LAST_S", 0.1)
    world = World()
    world.store.may_answer.clear()
    facts = facts_of(0, 1)
    world.fresh.note(IndexEntry(SegmentKey(topic="t", partition=0, base=0), 1, "e", facts))

    async def stop_at_the_end() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        async with world.indexer.attend(stop):
            pass

    started_s = time.monotonic()
    asyncio.run(world.indexer.finish())
    world.fresh.note(IndexEntry(SegmentKey(topic="t", partition=0, base=0), 1, "e", facts))
    asyncio.run(stop_at_the_end())
    assert time.monotonic() - started_s < 5
    world.store.may_answer.set()
