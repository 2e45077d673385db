"""Draws archived and missing offsets of a partition, and its puts, on a time axis. The report uses it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.index.inventory import PartitionInventory
from archiver.archive.segments.partition_segments import Segments, segment_blocks
from archiver.process.values.columns import Numbers

BINS: Final = 120
COLUMNS: Final = {"objects": "", "records": "records", "bytes": "bytes", "stored": "size"}
# Codes of lost offsets by cause, of holes also; a later one is drawn over an earlier one.
CODES: Final = {
    "swept": "s",
    "before-start": "b",
    "expired": "e",
    "erased": "x",
    "undecided": "d",
    "unreadable": "u",
    "missing": "m",
}
_LEAST_MS: Final = 3_600_000
_FIRST_MS: Final = 1_293_840_000_000  # 2011, the year of Kafka 0.6: earlier timestamps are not plausible
LostRange = tuple[int, int, str]  # the first and the last offset, and the cause


class Axis(NamedTuple):
    """A range of time in `BINS` equal parts."""

    from_ms: int
    until_ms: int

    def bins(self, times_ms: Numbers) -> Numbers:
        """Return the bins of times; -1: before the axis, BINS: after it."""
        near = np.clip(times_ms.astype(np.int64), self.from_ms - 1, self.until_ms + 1)
        inside = np.minimum((near - self.from_ms) * BINS // (self.until_ms - self.from_ms), BINS - 1)
        return np.where(near > self.until_ms, BINS, inside)


def axis_of(times_ms: Sequence[int], now_ms: int, last_ms: int | None) -> Axis:
    """Return the axis from the first time until now, or of the last `last_ms`."""
    first_ms = min(times_ms, default=now_ms) if last_ms is None else now_ms - last_ms
    return Axis(min(first_ms, now_ms - _LEAST_MS), now_ms)


def first_times_ms(segments: Segments) -> list[int]:
    """Return the earliest plausible timestamp, if any."""
    earliest = segments.known.numbers("min_timestamp")
    return [int(some.min())] if len(some := earliest[earliest >= _FIRST_MS]) else []


def put_times_ms(segments: Segments) -> Numbers:
    """Return the put times, without unknown ones."""
    return segments.put[segments.put > 0] // 1_000


def lost_ranges(inventory: PartitionInventory) -> list[LostRange]:
    """Return the missing offsets: holes, missing objects, and deleted objects."""
    facts = (one for block in segment_blocks(inventory.segments) for one in block.facts_with_holes())
    holes = [(hole.first_offset, hole.last_offset, str(hole.cause)) for one in facts for hole in one.holes]
    gaps = [(gap.first_offset, gap.last_offset, "missing") for gap in inventory.gaps]
    return sorted([*holes, *gaps, *((gap.first_offset, gap.last_offset, "swept") for gap in inventory.swept)])


def line_of(segments: Sequence[Segments], lost: Sequence[LostRange], axis: Axis) -> str:
    """Return a letter for each bin, by timestamp: `.` is empty, `a` has records. A loss has its neighbours' times."""
    line = np.full(BINS, ".", dtype="U1")
    known = [block.known for block in segments if len(block.known)]
    if known:
        first, last, earliest, latest = (
            np.concatenate([block.numbers(name).astype(np.int64) for block in known])
            for name in ("first", "last", "min_timestamp", "max_timestamp")
        )
        starts, ends = axis.bins(earliest), axis.bins(latest)
        depth = np.zeros(BINS + 1, np.int64)
        seen = (ends >= 0) & (starts < BINS)
        np.add.at(depth, np.maximum(starts[seen], 0), 1)
        np.add.at(depth, np.minimum(ends[seen], BINS - 1) + 1, -1)
        line[np.cumsum(depth[:BINS]) > 0] = "a"
        _draw_lost(line, lost, axis, np.concatenate([first, last]), np.concatenate([earliest, latest]))
    return "".join(line.tolist())


def _draw_lost(line: Numbers, lost: Sequence[LostRange], axis: Axis, offsets: Numbers, times_ms: Numbers) -> None:
    order = np.argsort(offsets, kind="stable")
    offsets, times_ms = offsets[order], np.maximum.accumulate(times_ms[order])
    for first, last, cause in sorted(lost, key=lambda one: list(CODES).index(one[2])):
        start, end = axis.bins(np.interp([first - 1, last + 1], offsets, times_ms)).tolist()
        line[max(start, 0) : max(end + 1, 0)] = CODES[cause]


def puts_of(segments: Sequence[Segments], axis: Axis) -> dict[str, Numbers]:
    """Return sums of the objects put in each bin. Objects without a put time are left out."""
    sums = {name: np.zeros(BINS, np.int64) for name in COLUMNS}
    for block in segments:
        bins = axis.bins(block.put // 1_000)
        seen = (bins >= 0) & (bins < BINS)
        for name, column in COLUMNS.items():
            np.add.at(sums[name], bins[seen], block.numbers(column)[seen].astype(np.int64) if column else 1)
    return sums


def shape_of(sums: Numbers) -> str:
    """Return a digit for each bin: 9 is the largest one, 0 an empty one."""
    return "".join(map(str, np.ceil(sums / max(1, int(sums.max())) * 9).astype(int).tolist()))
