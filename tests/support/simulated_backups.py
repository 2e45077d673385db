"""Backups of a simulated log that is compacted again and again, and what the facts of their objects leave in doubt.

A backup may die half way: then what was compacted away below its end may have its survivor beyond it.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.inventory import PartitionInventory
from archiver.archive.segments.partition_segments import Segment, SegmentSlice
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.groups.log.doubts import Doubt, doubts_of

EVERY = 3  # offsets a row; the others are of markers
HOUR_MS = 3_600_000
CLOCKS_MS = 25_000  # by which stamps are wrong
_LONG_MS = 10**12  # no removal is compacted away
_TOPIC = "__consumer_offsets"


class Row(Protocol):
    """What a log has at an offset, which is three times its place."""

    @property
    def key(self) -> bytes: ...
    @property
    def offset(self) -> int: ...
    @property
    def stamp_ms(self) -> int: ...


AnyRow = TypeVar("AnyRow", bound=Row)


class Run(NamedTuple):
    """One backup: how many rows the log had, how many are archived then, and when."""

    rows: int
    end: int
    at_ms: int


def dying_runs(drawn: random.Random, log: Sequence[Row]) -> list[Run]:
    """Up to three backups, each of a longer log; the last one, too, may have died."""
    found, end = list[Run](), 0
    for rows in sorted(drawn.randint(0, len(log)) for _ in range(drawn.randint(1, 3))):
        end = drawn.randint(end, rows)
        found.append(Run(rows, end, _read_ms(log[:rows]) + drawn.choice([0, HOUR_MS // 2, 9 * HOUR_MS])))
        found[-1] = found[-1]._replace(at_ms=max(one.at_ms for one in found))
    return found


def _read_ms(log: Sequence[Row]) -> int:
    return max((row.stamp_ms for row in log), default=0) + 2 * CLOCKS_MS


def read_log_in_runs(
    drawn: random.Random, log: Sequence[AnyRow], runs: Sequence[Run], *, untouched: int
) -> tuple[list[AnyRow], list[Doubt], int]:
    """Return the rows that are archived, what is in doubt, and the end. The first rows are not compacted: `untouched`."""
    gone, kept, readings, start = set[int](), list[AnyRow](), list[SegmentSlice](), 0
    for run in runs:
        compactable = _compactable(log[: run.rows], run.at_ms)
        last = {row.key: row.offset for row in log[:compactable]}
        gone |= {
            row.offset
            for row in log[untouched:compactable]
            if last[row.key] > row.offset and drawn.random() < drawn.choice([0.1, 0.9])
        }
        stable = drawn.randint(max(compactable, run.end), run.rows)
        cuts = sorted({*(drawn.randint(start, run.end) for _ in range(3)), min(untouched, run.end), run.end})
        for end in (cut for cut in cuts if cut > start):
            left = [row for row in log[start:end] if row.offset not in gone]
            if left:
                facts = _facts(start, end, left, EVERY * stable)
                readings.append(_reading(facts, run.at_ms))
                kept += left
                start = end
    inventory = PartitionInventory(readable=readings, shadowed=(), gaps=())
    return kept, doubts_of(inventory, _LONG_MS), EVERY * start


def _compactable(log: Sequence[Row], at_ms: int) -> int:
    """Brokers compact up to the first young record."""
    young = (place for place, row in enumerate(log) if row.stamp_ms > at_ms - HOUR_MS)
    return next(young, len(log))


def _facts(start: int, end: int, left: Sequence[Row], stable_end: int) -> SegmentFacts:
    times = [row.stamp_ms for row in left]
    return SegmentFacts(
        writer="test",
        cluster_id="c",
        topic_id="t",
        leader_epoch=0,
        base=EVERY * start,
        first=left[0].offset,
        last=left[-1].offset,
        next=EVERY * end,
        records=len(left),
        tombstones=0,
        min_timestamp=min(times),
        max_timestamp=max(times),
        timestamp_types=(0,),
        bytes=1,
        largest_record=1,
        source_bytes=1,
        unserved=end - start - len(left),
        stable_end=stable_end,
        sha256="0" * 64,
        digest=0,
    )


def _reading(facts: SegmentFacts, at_ms: int) -> SegmentSlice:
    key = SegmentKey(topic=_TOPIC, partition=0, base=facts.base)
    put_at = datetime.fromtimestamp(at_ms / 1000, UTC)
    segment = Segment(key=key, object_key=Layout("p").segment_key(key), size=1, put_at=put_at, facts=facts)
    return SegmentSlice(segment=segment, from_offset=facts.base)
