"""Where a partition of the offsets topic may lack records, by the facts of its objects alone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.inventory import Gap, PartitionInventory
from archiver.archive.segments.partition_segments import Segment, SegmentSlice
from archiver.archive.segments.segment_facts import Bounds, Hole, HoleCause, SegmentFacts
from archiver.codec.selection import NO_TIMESTAMP
from archiver.groups.log.doubts import Doubt, doubts_of, unsettled_above
from archiver.groups.log.lives import CLOCKS_DIFFER_MS
from tests.support.segments import facts_of

RETENTION_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


def counted(base: int, following: int, unserved: int | None = None, **more: int) -> SegmentFacts:
    """All offsets have records but the last two, unless told otherwise; as of noon."""
    records = {"records": following - base - 2} | more
    times = {"min_timestamp": NOON_MS, "max_timestamp": NOON_MS}
    return replace(facts_of(base, following), unserved=unserved, **(times | records))  # type: ignore[arg-type]


def reading(
    facts: SegmentFacts | Bounds, later_ms: int | None = 0, from_offset: int | None = None, life: int = 0
) -> SegmentSlice:
    """An object that was put so long after noon; None: nobody knows when."""
    key = SegmentKey(topic="__consumer_offsets", life=life, partition=0, base=facts.base)
    put_at = None if later_ms is None else NOON + timedelta(milliseconds=later_ms)
    segment = Segment(key=key, object_key=Layout("p").segment_key(key), size=1, put_at=put_at, facts=facts)
    return SegmentSlice(segment=segment, from_offset=facts.base if from_offset is None else from_offset)


def doubts(*readings: SegmentSlice, gaps: tuple[Gap, ...] = ()) -> list[Doubt]:
    return doubts_of(PartitionInventory(readable=readings, shadowed=(), gaps=gaps), RETENTION_MS)


WHOLE = reading(counted(0, 100, records=100))


@pytest.mark.parametrize(
    ("later_ms", "told"),
    [
        (0, [Doubt(100, 199, needs_later=True)]),
        (RETENTION_MS, [Doubt(100, 199, needs_later=True)]),
        (RETENTION_MS + 1, [Doubt(100, 199, needs_later=False)]),  # a removal may have been taken, too
        (None, [Doubt(100, 199, needs_later=False)]),
    ],
)
def test_the_count_decides_where_there_is_one(later_ms: int | None, told: list[Doubt]) -> None:
    assert doubts(WHOLE, reading(counted(100, 200, 1), later_ms)) == told
    assert doubts(WHOLE, reading(counted(100, 200, 0), later_ms)) == []


def test_without_a_count_whatever_has_no_record_may_have_been_compacted() -> None:
    assert doubts(WHOLE, reading(counted(100, 200))) == [Doubt(100, 199, needs_later=True)]
    assert doubts(WHOLE, reading(counted(100, 200, records=100))) == []


def lacking(stable_end: int | None, base: int = 100, later_ms: int = 9 * HOUR_MS, life: int = 0) -> SegmentSlice:
    """An object of a hundred offsets of which compaction took one; the log was stable up to an offset then."""
    return reading(replace(counted(base, base + 100, 1), stable_end=stable_end), later_ms, life=life)


def unsettled(*readings: SegmentSlice, above: int = 0) -> list[Doubt]:
    return unsettled_above(PartitionInventory(readable=readings, shadowed=(), gaps=()), above, RETENTION_MS)


@pytest.mark.parametrize(
    ("stable_end", "needs_later"),
    [
        (None, True),  # of an earlier program
        (200, True),  # the survivor lies below the end of the archive
        (201, False),
    ],
)
def test_a_survivor_behind_the_end_of_the_archive_is_missing(stable_end: int | None, needs_later: bool) -> None:
    assert doubts(WHOLE, lacking(stable_end)) == [Doubt(100, 199, needs_later)]
    assert unsettled(WHOLE, lacking(stable_end)) == ([] if needs_later else [Doubt(100, 199, needs_later=True)])
    assert unsettled(WHOLE, lacking(stable_end), above=200) == []


def test_what_is_archived_later_settles_the_doubt() -> None:
    assert doubts(WHOLE, lacking(250), reading(counted(200, 249, 0))) == [Doubt(100, 199, needs_later=False)]
    assert doubts(WHOLE, lacking(250), reading(counted(200, 250, 0))) == [Doubt(100, 199, needs_later=True)]
    # The later object lacks something, too: its own survivor may lie behind the end.
    assert doubts(WHOLE, lacking(250), lacking(301, base=200)) == [
        Doubt(100, 199, needs_later=True),
        Doubt(200, 299, needs_later=False),
    ]


@pytest.mark.parametrize(("beyond_ms", "needs_later"), [(0, False), (1, True)])
def test_a_record_that_was_too_young_to_be_compacted_shows_that_all_survivors_are_archived(
    beyond_ms: int, needs_later: bool
) -> None:
    at_ms = NOON_MS + 9 * HOUR_MS - HOUR_MS + CLOCKS_DIFFER_MS + beyond_ms  # the object was put at nine
    young = reading(counted(200, 210, 0, min_timestamp=at_ms, max_timestamp=at_ms))
    assert doubts(WHOLE, lacking(500), young) == [Doubt(100, 199, needs_later)]
    # One that the log has lost shows nothing.
    lost = replace(young, until_offset=205)
    assert doubts(WHOLE, lacking(500), lost) == [Doubt(100, 199, needs_later=False)]


def test_what_a_log_lost_when_it_was_cut_back_is_not_archived_later() -> None:
    child = reading(counted(200, 900, 0), life=1)
    assert doubts(WHOLE, lacking(200), child) == [Doubt(100, 199, needs_later=True)]
    assert doubts(WHOLE, lacking(201), child) == [Doubt(100, 199, needs_later=False)]
    assert unsettled(WHOLE, lacking(201), child) == []  # no backup will bring it
    assert unsettled(WHOLE, lacking(201), child, lacking(1001, base=900, life=1)) == [Doubt(900, 999, needs_later=True)]


def test_young_records_of_an_object_prove_nothing() -> None:
    """Compaction leaves the youngest ones."""
    survivors = counted(100, 200, min_timestamp=NOON_MS + 9 * HOUR_MS, max_timestamp=NOON_MS + 9 * HOUR_MS)
    assert doubts(WHOLE, reading(survivors, 9 * HOUR_MS)) == [Doubt(100, 199, needs_later=True)]


def test_nothing_tells_how_old_the_records_of_the_first_object_were() -> None:
    assert doubts(reading(counted(0, 100))) == [Doubt(0, 99, needs_later=False)]
    assert doubts(reading(counted(0, 100, 2))) == [Doubt(0, 99, needs_later=False)]
    assert doubts(reading(counted(0, 100, 0))) == []


@pytest.mark.parametrize(
    ("seen_before_ms", "needs_later"),
    [
        (0, True),
        (RETENTION_MS - MINUTE_MS, True),
        (RETENTION_MS - MINUTE_MS + 1, False),
        (-MINUTE_MS, True),  # clocks differ
        (-MINUTE_MS - 1, False),  # it was noted again, after the object
    ],
)
def test_what_was_first_seen_a_short_time_ago_was_read_since(seen_before_ms: int, needs_later: bool) -> None:
    """So no removal of a commit that the first object still has was gone by then."""
    old = (reading(counted(0, 100, 2)), reading(counted(100, 200, 2), None))
    inventory = PartitionInventory(readable=old, shadowed=(), gaps=())
    found = doubts_of(inventory, RETENTION_MS, first_seen_ms=NOON_MS - seen_before_ms)
    assert found == [Doubt(0, 99, needs_later=needs_later), Doubt(100, 199, needs_later=False)]


@pytest.mark.parametrize(
    "before",
    [
        replace(WHOLE, until_offset=100),  # of a log that was cut back: its newest record may be one that the log lost
        reading(counted(0, 100, 0, min_timestamp=NO_TIMESTAMP, max_timestamp=NO_TIMESTAMP)),
    ],
)
def test_an_object_before_without_a_time_tells_nothing(before: SegmentSlice) -> None:
    assert doubts(before, reading(counted(100, 200))) == [Doubt(100, 199, needs_later=False)]


def test_objects_without_facts_are_doubtful_and_what_lies_below_the_first_is_too() -> None:
    old = Bounds(base=40, first=42, last=99)
    assert doubts(reading(old), reading(counted(100, 200))) == [
        Doubt(0, 39, needs_later=False),
        Doubt(40, 99, needs_later=False),
        Doubt(100, 199, needs_later=False),
    ]


def test_holes_and_gaps_may_have_had_anything_and_are_not_missing_twice() -> None:
    facts = counted(150, 200, records=40)
    hole = Hole(first_offset=160, last_offset=169, cause=HoleCause.EXPIRED)
    told = doubts(
        WHOLE,
        reading(replace(facts, holes=(hole,), unserved=0), 9 * HOUR_MS),
        gaps=(Gap(first_offset=100, last_offset=149),),
    )
    assert told == [Doubt(100, 149, needs_later=False), Doubt(160, 169, needs_later=False)]
    lacks = replace(facts, unserved=1, records=39, holes=(hole,))
    assert Doubt(150, 199, needs_later=True) in doubts(WHOLE, reading(lacks, 9 * HOUR_MS))


def test_only_what_is_read_of_an_object_is_in_doubt() -> None:
    shared = reading(counted(90, 200, 2), from_offset=100)
    assert doubts(WHOLE, shared, reading(counted(200, 300, 0))) == [Doubt(100, 199, needs_later=True)]
    assert doubts(WHOLE, replace(shared, until_offset=150)) == [Doubt(100, 149, needs_later=True)]
    holes = tuple(
        Hole(first_offset=first, last_offset=first + 9, cause=HoleCause.EXPIRED) for first in (90, 140, 155, 190)
    )
    holed = reading(replace(counted(90, 200, 0, records=40), holes=holes), from_offset=95)
    assert doubts(replace(holed, until_offset=160))[1:] == [
        Doubt(95, 99, needs_later=False), Doubt(140, 149, needs_later=False), Doubt(155, 159, needs_later=False)
    ]  # fmt: skip
