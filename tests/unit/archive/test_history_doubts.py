"""What was archived under `topics/` so late that Kafka may have forgotten deletions is told, and nothing else is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import RolePlace, read_newest_entry
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.segments.segment_facts import Hole, HoleCause
from tests.support.copied_bench import Bench, T
from tests.support.copied_topic import complete_copy
from tests.support.memory_store import StoredObject
from tests.support.segments import facts_of
from tests.support.standing_copies import at_ms

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_800_000_000_000


class Part(NamedTuple):
    """An object under `topics/`: its offsets, how many of them Kafka had no more, when its last record was written, and its put."""

    base: int
    next: int
    unserved: int | None
    written_h: float
    put_h: float
    holes: tuple[Hole, ...] = ()


def bench_of(parts: Sequence[Part], kept: Sequence[str] = ("86400000",), seen_h: float | None = None) -> Bench:
    bench = Bench()
    if seen_h is not None:  # as a backup tells it that begins the archive
        bench.store.objects.pop("control/topics/t/000000.json")
        seen_ms = BEGIN_MS + int(seen_h * HOUR_MS)
        record_topic(bench.archive, topic=T, topic_id="A", cluster_id="c", partitions=1, configs={}, seen_ms=seen_ms)
    for one in kept:
        record_topic(
            bench.archive, topic=T, topic_id="A", cluster_id="c", partitions=1, configs={}, effective={"delete.retention.ms": one}
        )  # fmt: skip
    for part in parts:
        lacking = (part.unserved or 0) + sum(hole.last_offset - hole.first_offset + 1 for hole in part.holes)
        facts = replace(
            facts_of(part.base, part.next),
            topic_id="A",
            records=part.next - part.base - lacking or 1,
            first=part.next - 1 if part.holes else part.base,
            unserved=part.unserved,
            holes=part.holes,
            max_timestamp=BEGIN_MS + int(part.written_h * HOUR_MS),
            bytes=1000,
        )
        key = f"topics/{T}/partition=0/{T}+0-{part.base:020}.data"
        put_at = at_ms(BEGIN_MS + int(part.put_h * HOUR_MS))
        bench.store.objects[key] = StoredObject(b"x", facts.to_metadata(), put_at)
    return bench


def doubts(bench: Bench, **wished: object) -> list[str]:
    return [note for note in bench.find(**wished).notes if "is unsure from offset" in note]  # type: ignore[arg-type]


def taken_back(bench: Bench) -> None:
    """By the plain backup, after a copy had held."""
    bench.copy("a", 0, [(0, 15)])
    bench.entry(0, holder="topics/", candidate=("a", 0))
    bench.entry(1, holder=complete_copy("a", 0, 15), replaced="topics/", candidate=("a", 0))
    bench.entry(2, holder="topics/", replaced=complete_copy("a", 0, 15), other={"type": "history"})


FIRST = Part(0, 10, 0, 0, 1)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([FIRST, Part(10, 20, 3, 40, 41)], 10),  # read 41 h after the record before was written
        ([FIRST, Part(10, 20, 3, 20, 21)], None),  # soon enough
        ([FIRST, Part(10, 20, 3, 21, 22)], 10),  # a tenth of the time is not counted on
        ([FIRST, Part(10, 20, 0, 400, 401)], None),  # nothing is lacking, so all deletions are there
        ([FIRST, Part(10, 20, None, 40, 41)], None),  # the same: as many records as offsets
        ([FIRST, Part(10, 20, 0, 40, 41), Part(20, 30, 1, 45, 46)], None),
        ([FIRST, Part(10, 20, 0, 40, 41), Part(20, 30, 1, 90, 91)], 20),
        ([Part(0, 10, 4, 900, 901)], None),  # a reading from the beginning has no value from before
        ([Part(0, 10, 0, 50, 1), Part(10, 20, 3, 20, 21)], 10),  # a clock that was ahead tells nothing
        ([FIRST, Part(10, 20, 0, 40, 41, (Hole(first_offset=10, last_offset=18, cause=HoleCause.EXPIRED),))], 10),
        ([FIRST, Part(10, 20, 0, 1, 2, (Hole(first_offset=10, last_offset=18, cause=HoleCause.EXPIRED),))], 10),
    ],
)  # fmt: skip
def test_what_was_read_late_is_told(parts: Sequence[Part], told: int | None) -> None:
    bench = bench_of(parts)
    taken_back(bench)
    wanted = [] if told is None else [f"{T}-0: what lies under topics/ is unsure from offset {told} on"]
    for wished in ({}, {"is_history": True}):
        assert [one.partition(": it was")[0] for one in doubts(bench, **wished)] == wanted


def test_the_shortest_time_that_was_ever_seen_counts() -> None:
    parts = [FIRST, Part(10, 20, 3, 20, 21)]
    for kept, is_told in ((("86400000",), False), (("3600000", "86400000"), True), ((), True)):
        bench = bench_of(parts, kept)
        taken_back(bench)
        assert bool(doubts(bench)) == is_told


def test_old_records_of_an_archive_that_was_begun_lately_are_told_of_nothing() -> None:
    """No value of it was archived before the topic was seen, so none can have outlived its tombstone."""
    parts = [FIRST, Part(10, 20, 3, 40, 41)]
    for seen_h, is_told in ((39.0, False), (10.0, True)):
        bench = bench_of(parts, seen_h=seen_h)
        taken_back(bench)
        assert bool(doubts(bench)) == is_told


def test_readers_of_a_copy_get_no_doubts_about_the_history_below_it() -> None:
    bench = bench_of([FIRST, Part(10, 20, 3, 40, 41)])
    bench.copy("a", 0, [(0, 25)])
    bench.entry(0, holder="topics/", candidate=("a", 0))
    bench.entry(1, holder=complete_copy("a", 0, 25), replaced="topics/", candidate=("a", 0))
    assert doubts(bench) == []


def test_behind_the_history_the_replaced_copy_is_read_as_before() -> None:
    """By readers; and whoever writes the next entry reckons with it, too."""
    bench = bench_of([FIRST])
    taken_back(bench)
    found = bench.find()
    assert found.partitions[0].end == 15
    assert str(found.copies[0]) == "topics/ + a/0"
    newest = read_newest_entry(bench.archive, RolePlace(topic=T, life=0, partition=0))
    assert newest is not None
    assert (
        CopyCatalog(bench.archive).end_for_readers(RolePlace(topic=T, life=0, partition=0), newest.entry).offset == 15
    )
