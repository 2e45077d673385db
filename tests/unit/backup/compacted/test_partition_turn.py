"""A partition in the hands of a process, where what its generations hold cannot be gone on with."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import RoleEntry, RolePlace, read_newest_entry
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import StoreClock
from archiver.archive.notes.topics import PartitionSource
from archiver.backup.compacted.turn.role_listings import RoleListings
from archiver.backup.compacted.turn.turn_decisions import CopyProgress
from archiver.backup.compacted.turn.turn_schedule import TurnTimes
from archiver.backup.compacted.work.instance_metrics import NOTHING_SEEN, InstanceMetrics
from archiver.backup.compacted.work.partition_turn import PartitionTurn
from archiver.backup.compacted.work.turn_inputs import Parts, Terms
from archiver.errors import CorruptSegmentError, KafkaTemporaryError
from archiver.process.running.workers import Workers
from tests.support.standing_copies import PLACE, StandingCopies, at_ms, copy_of, generation

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 30 * DAY_MS


async def is_same_log(_: object) -> None:
    return


async def no_broker(*_: object) -> None:
    raise KafkaTemporaryError("no broker")


def parts_of(archive: Archive, instance: str, **changes: Any) -> Parts:  # noqa: ANN401 - as Parts has them
    """No broker is there, and none is needed: an object is in the way before one is asked."""
    clock = StoreClock(lambda: 0.0)
    clock.note(0.0, 0.0, at_ms(NOW_MS))
    sink = SimpleNamespace(archive=archive, clock=lambda: 0.0, silence_counter=SimpleNamespace(silences=0))
    parts = Parts(
        instance=instance,
        instances=("a", "b"),
        begins_first=False,
        times=TurnTimes(length_ms=7 * DAY_MS, takeover_ms=HOUR_MS),
        interval_s=60.0,
        client=cast("Any", SimpleNamespace(offsets=no_broker)),
        pumps=[cast("Any", SimpleNamespace(feeds={})) for _ in range(2)],
        sink=cast("Any", sink),
        pool=Workers(1, "test"),
        catalog=CopyCatalog(archive),
        listings=RoleListings(archive, Workers(1, "test"), lambda: 0.0, 60.0),
        clock=clock,
        notes=cast("Any", SimpleNamespace(heard=lambda _: {}, remember=lambda _: None)),
        publish=lambda *_: None,
        counts=InstanceMetrics(lambda: (), lambda: NOTHING_SEEN, lambda: NOW_MS),
    )
    return replace(parts, **changes)


def turn_by(parts: Parts, place: RolePlace = PLACE) -> PartitionTurn:
    source = PartitionSource(topic=place.topic, partition=place.partition, life=0, topic_id="t", cluster_id="c")
    terms = Terms(is_compacted=True, kept_ms=DAY_MS)
    return PartitionTurn(parts, source, lambda: terms, report_end=lambda *_: None)


def turn_of(stand: StandingCopies, instance: str, *, begins_first: bool = False) -> PartitionTurn:
    return turn_by(parts_of(stand.archive, instance, begins_first=begins_first))


def newest(stand: StandingCopies) -> RoleEntry:
    found = read_newest_entry(stand.archive, PLACE)
    assert found is not None
    return found.entry


def held_by_a(stand: StandingCopies) -> RoleEntry:
    begun = entries.begin(None, 0, "a", has_history=False)
    stand.note(0, begun, 0)
    held = entries.switch(begun, 1, copy_of("a0", 20))
    stand.note(1, held, HOUR_MS)
    return held


def test_a_candidate_with_a_damaged_object_is_begun_anew_by_its_own_instance() -> None:
    stand = StandingCopies()
    held = held_by_a(stand)
    stand.fill("a0", [(0, 20)])
    stand.note(2, entries.begin(held, 2, "b", has_history=False), NOW_MS)
    stand.fill("b2", [(0, 10), (10, 20)], damaged=[10])
    turn = turn_of(stand, "b")
    with pytest.raises(CorruptSegmentError):
        asyncio.run(turn._look_until_quiet())
    assert newest(stand).candidate == generation("b2")
    with pytest.raises(KafkaTemporaryError, match="no broker"):
        asyncio.run(turn._look_until_quiet())
    assert newest(stand).candidate == generation("b3")


def test_the_next_copy_is_begun_when_the_current_one_is_damaged() -> None:
    """One survivor can take every step."""
    stand = StandingCopies()
    held_by_a(stand)
    stand.fill("a0", [(0, 10), (10, 20)], damaged=[10])
    turn = turn_of(stand, "a")
    with pytest.raises(KafkaTemporaryError, match="no broker"):
        asyncio.run(turn._look_until_quiet())
    assert newest(stand).candidate == generation("a2")
    assert newest(stand).holder == copy_of("a0", 20)


def test_a_candidate_that_an_earlier_process_read_past_expired_records_never_replaces_a_sure_copy() -> None:
    """That process died before it could tell: the hole in the object does."""
    stand = StandingCopies()
    held = held_by_a(stand)
    stand.fill("a0", [(0, 20)])
    stand.note(2, entries.begin(held, 2, "b", has_history=False), NOW_MS)
    stand.fill("b2", [(0, 20), (20, 30)], expired=[20])
    turn = turn_of(stand, "b")
    turn._cut_check = cast("Any", SimpleNamespace(refuse_cut_log=is_same_log))
    feed = SimpleNamespace(
        fetches=SimpleNamespace(state=None), writer=SimpleNamespace(durable_position=30, objects_end=30)
    )
    turn.readings[2] = reading = cast("Any", SimpleNamespace(is_unsure=False, feed=feed, report_durable=lambda: None))
    turn.turn = replace(turn.turn, readings={2: CopyProgress(position=30, durable=30, next=30, complete_at=30)})
    reading.check_time = lambda: False
    for _ in range(2):
        asyncio.run(turn._look_until_quiet())
    assert newest(stand).holder == copy_of("a0", 20)
    assert (reading.is_unsure, turn.turn.readings[2].is_sure) == (True, False)


def test_a_number_never_comes_again_also_where_a_role_log_was_deleted() -> None:
    """What stands below it is of another reading: a new one that went on behind it would count as sure, and is not."""
    stand = StandingCopies()
    stand.fill("a7", [(0, 20)])
    stand.fill("b3", [(0, 20)])
    for strange in ("=2000000000", "=999999"):  # nobody has begun those
        stand.put(f"{stand.prefix('a7').replace('=7', strange)}x", b"x")
    turn = turn_of(stand, "a", begins_first=True)
    with pytest.raises(KafkaTemporaryError, match="no broker"):
        asyncio.run(turn._look_until_quiet())
    found = read_newest_entry(stand.archive, PLACE)
    assert found is not None
    assert (found.number, found.entry.candidate) == (8, generation("a8"))


def test_nothing_is_begun_after_the_last_number_of_a_role_log() -> None:
    stand = StandingCopies()
    stand.note(999_999, entries.begin(None, 999_999, "a", has_history=False), 0)
    turn = turn_of(stand, "b", begins_first=True)
    with pytest.raises(CorruptSegmentError, match=r"999999.json: is the last number that a fact can have"):
        asyncio.run(turn._look_until_quiet())


def test_both_generations_of_a_partition_are_put_at_the_same_time_when_it_ends() -> None:
    """One after the other would take twice the time that a stop has, where the store hangs."""

    async def run() -> int:
        begun, both = list[object](), asyncio.Event()

        async def close(feeds: list[object], timeout_s: float) -> list[object]:
            begun.extend(feeds)
            if len(begun) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), timeout_s)
            return []

        turn = turn_of(StandingCopies(), "a")
        for number, pump in enumerate(turn._parts.pumps):
            feed: Any = SimpleNamespace(key=(PLACE.topic, PLACE.partition))
            pump.feeds[feed.key], cast("Any", pump).close = feed, close
            turn.readings[number] = cast(
                "Any", SimpleNamespace(generation=number, feed=feed, wants_end=None, moment=lambda: None)
            )
        await turn.close(5.0)
        return len(begun)

    assert asyncio.run(run()) == 2
