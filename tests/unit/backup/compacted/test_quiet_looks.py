"""Partitions of which nothing is new share one listing of their topic's role logs; whoever decides anything looks by itself."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry, RolePlace, put_entry, read_newest_entry
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.backup.compacted.turn.role_listings import RoleListings
from archiver.backup.compacted.turn.turn_schedule import TurnTimes
from archiver.backup.compacted.work.partition_turn import PartitionTurn
from archiver.backup.reports.troubles import Troubles
from archiver.process.running.workers import Workers
from archiver.store.port import ListedObject, ObjectKind
from tests.support.memory_store import MemoryStore
from tests.unit.backup.compacted.test_partition_turn import parts_of, turn_by

INTERVAL_S = 0.2
COUNT = 40
OWN, OTHER = "a", "b"
LONG_MS = 10**12


class CountingStore(MemoryStore):
    """Counts what is listed below `control/roles/`, by the prefix."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: Counter[str] = Counter()

    def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
        if prefix.startswith("control/roles/"):
            self.listed[prefix] += 1
        return super().list(prefix, start_after)


class Bench:
    """Partitions of two topics that the other instance holds; what of them this instance has in its hands."""

    def __init__(self, *, now_ms: int = 0, length_ms: int = LONG_MS) -> None:
        self.places = [place(number) for number in range(COUNT)]
        self.store = CountingStore()
        self.archive = Archive(self.store, Layout())
        self.now_ms = now_ms
        self.times = TurnTimes(length_ms=length_ms, takeover_ms=LONG_MS)
        for one in self.places:
            begun = entries.begin(None, 0, OTHER, has_history=False)
            put_entry(self.archive, one, 0, begun)
            put_entry(self.archive, one, 1, entries.switch(begun, 1, copy_of(OTHER, 0)))

    def turns(self, pool: Workers) -> list[PartitionTurn]:
        parts = parts_of(
            self.archive,
            OWN,
            times=self.times,
            interval_s=INTERVAL_S,
            sink=SimpleNamespace(archive=self.archive, clock=time.monotonic, troubles=Troubles()),
            pool=pool,
            listings=RoleListings(self.archive, pool, time.monotonic, INTERVAL_S),
            clock=SimpleNamespace(earliest_ms=lambda _: self.now_ms, latest_ms=lambda _: self.now_ms),
        )
        return [turn_by(parts, one) for one in self.places]

    def newest(self, number: int) -> tuple[int, RoleEntry]:
        found = read_newest_entry(self.archive, place(number))
        assert found is not None
        return found.number, found.entry


def place(number: int) -> RolePlace:
    return RolePlace(topic=f"t{number % 2}", life=0, partition=number)


def copy_of(instance: str, number: int) -> CompleteCopy:
    return CompleteCopy(generation=Generation(instance=instance, number=number), next=0, position=0, is_sure=True)


@contextlib.asynccontextmanager
async def running(bench: Bench) -> Any:  # noqa: ANN401 - an iterator of the turns
    pool = Workers(4, "looks")
    turns = bench.turns(pool)
    tasks = [asyncio.get_running_loop().create_task(turn.run()) for turn in turns]
    await until(lambda: all(turn.turn.sight is not None for turn in turns))
    try:
        yield turns
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(reached: Any) -> None:  # noqa: ANN401 - a condition
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


def test_what_is_quiet_is_listed_together() -> None:
    """Not each partition in each interval, nor each topic."""

    async def run() -> Mapping[str, int]:
        bench = Bench()
        bench.store.put_if_absent("control/roles/x y/0/0/000007.json", b"{}", {}, kind=ObjectKind.FACT)  # is no topic's
        async with running(bench):
            bench.store.listed.clear()
            await asyncio.sleep(5 * INTERVAL_S)
            return dict(bench.store.listed)

    listed = asyncio.run(run())
    assert listed.keys() == {"control/roles/"}
    assert 2 <= listed["control/roles/"] <= 12


def test_news_is_seen() -> None:
    """A newer entry; and one that comes on a low number that was freed."""

    async def run() -> None:
        bench = Bench()
        async with running(bench) as turns:
            _, entry = bench.newest(7)
            put_entry(bench.archive, place(7), 2, entries.begin(entry, 2, OTHER, has_history=False))
            await until(lambda: turns[7].turn.sight.number == 2)
            bench.store.delete(["control/roles/t1/0/9/000000.json"])
            await until(lambda: turns[9]._log.put_at.keys() == {1})
            assert turns[8].turn.sight.number == 1

    asyncio.run(run())


def test_what_is_due_is_done_after_a_look_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared listing is older than what the other instance has put meanwhile: nothing is decided on it."""
    bench = Bench(length_ms=1)

    async def run() -> None:
        first_ms = int(next(iter(bench.store.objects.values())).last_modified.timestamp() * 1000)
        bench.now_ms = first_ms
        async with running(bench) as turns:
            stale = {number: dict(turns[number]._log.put_at) for number in range(COUNT)}

            async def numbers(_: RoleListings, one: RolePlace) -> object:
                return stale[one.partition]

            monkeypatch.setattr(RoleListings, "numbers", numbers)
            _, entry = bench.newest(7)
            put_entry(bench.archive, place(7), 2, entries.begin(entry, 2, OTHER, has_history=False))
            bench.now_ms = first_ms + 10**9
            await until(lambda: all(turn.turn.sight.number == 2 for turn in turns))
        for number in range(COUNT):
            newest, entry = bench.newest(number)
            assert newest == 2
            assert entry.candidate == Generation(instance=OTHER if number == 7 else OWN, number=2)

    asyncio.run(run())
