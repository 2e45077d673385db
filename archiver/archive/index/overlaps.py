"""Decides which ranges to read of objects with common offsets in one partition, and what readers report (docs/format.md §7)."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.segments.partition_segments import Segment, Segments
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.process.values.columns import Numbers

# Facts that prove that two objects have the same records. False times would hide records from readers by time.
_SAME_RECORDS = ("base", "next", "records", "digest", "min_timestamp", "max_timestamp")


class OverlapCause(StrEnum):
    """The reason to report that two objects cover the same offsets."""

    OF_V1 = (
        "offsets {offsets} are in {read} and in {left_out}, and v1.0 does not tell whether they are the same records; the first"
        " are read"
    )
    UNPROVEN = (
        "offsets {offsets} are in {read} and in {left_out}, and their facts do not tell whether they are the same records; the"
        " first are read. `archiver verify --level records` compares them, and `archiver retention` deletes what is the same"
    )
    DIFFERENT = (
        "{left_out} is damaged: it covers offsets {offsets}, and does not have the records of the objects there, of which one is"
        " {read}; these are read. Look who wrote it, and move it away"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Offsets, both inclusive, that two objects cover although their facts do not prove that they have the same records."""

    first_offset: int
    last_offset: int
    read: str
    left_out: str
    cause: OverlapCause
    whole: str  # of both objects the one that may contain the other
    is_within: bool = False  # it does: their content can be compared

    @classmethod
    def between(
        cls, read: Segment, left_out: Segment, whole: Segment, first_offset: int, last_offset: int
    ) -> "Overlap":
        """Return an unproven overlap of two objects; one of them is the `whole`."""
        ours, theirs = whole.facts, (left_out if whole is read else read).facts
        have_facts = isinstance(ours, SegmentFacts) and isinstance(theirs, SegmentFacts)
        return cls(
            first_offset=first_offset,
            last_offset=last_offset,
            read=read.object_key,
            left_out=left_out.object_key,
            cause=OverlapCause.UNPROVEN if have_facts else OverlapCause.OF_V1,
            whole=whole.object_key,
            is_within=have_facts and ours.base <= theirs.base and theirs.next <= ours.next,
        )

    @property
    def part_in_whole(self) -> tuple[str, str]:
        """Return the inner and the outer object."""
        return self.left_out if self.whole == self.read else self.read, self.whole

    def __str__(self) -> str:
        return self.cause.format(
            offsets=f"{self.first_offset}-{self.last_offset}", read=self.read, left_out=self.left_out
        )


def told_overlaps(overlaps: Iterable[Overlap]) -> list[str]:
    """Spell overlaps, one line for each object that overlaps many others."""
    hidden: dict[str, list[Overlap]] = {}
    for one in overlaps:
        hidden.setdefault(one.whole if one.cause is OverlapCause.UNPROVEN else f"{one}", []).append(one)
    return [f"{first}{f' ({len(more)} more objects lie there)' if more else ''}" for first, *more in hidden.values()]


class LeftOut(NamedTuple):
    """A merged object that is not read, since other objects cover all of its offsets."""

    place: int
    beside: int  # the place of one of these objects
    is_damaged: bool  # by their facts it does not have the same records


class Walk(NamedTuple):
    """Some objects of a partition, in the order of reading."""

    position: Numbers  # the end of the earlier objects, before each
    before: Numbers  # the place of the object read last before each; -1: none
    following: Numbers  # the end of each; 0: the object is left out

    @classmethod
    def of(cls, following: Numbers) -> "Walk":
        position, before = np.zeros_like(following), np.full(len(following), -1)
        np.maximum.accumulate(following[:-1], out=position[1:])
        read = np.where(following > position, np.arange(len(following)), -1)
        before[1:] = np.maximum.accumulate(read)[:-1]
        return cls(position, before, following)

    def overlapping(self, base: Numbers) -> Numbers:
        """Return for each object whether it begins below the end of an earlier one."""
        found: Numbers = (self.before >= 0) & (base < self.position) & (self.following > 0)
        return found

    def ranges(self, base: Numbers) -> "ReadRanges":
        places = np.flatnonzero(self.following > self.position)
        return ReadRanges(places, np.maximum(base, self.position)[places], self.following[places])


class ReadRanges(NamedTuple):
    """The offsets to read of each object: by place, in order, none twice."""

    places: Numbers
    start: Numbers
    stop: Numbers

    def outside(self, other: "ReadRanges") -> "ReadRanges":
        """Return the parts of these ranges outside all other ranges."""
        begins, ends = np.append(0, other.stop), np.append(other.start, MOST_OFFSET)  # the ranges between the others
        first = np.searchsorted(ends, self.start, side="right")
        counts = np.maximum(np.searchsorted(begins, self.stop, side="left") - first, 0)
        rows = np.repeat(np.arange(len(counts)), counts)
        between = np.arange(len(rows)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        start, stop = np.maximum(self.start[rows], begins[between]), np.minimum(self.stop[rows], ends[between])
        kept = start < stop
        return ReadRanges(self.places[rows][kept], start[kept], stop[kept])

    def joined(self, other: "ReadRanges") -> "ReadRanges":
        both = [np.concatenate(pair) for pair in zip(self, other, strict=True)]
        order = np.argsort(both[1], kind="stable")
        return ReadRanges(*(column[order] for column in both))


def shared_offsets(merged: ReadRanges, plain: ReadRanges, base: Numbers) -> Iterator[tuple[int, int, int, int]]:
    """Yield the offsets of merged objects that are read from plain ones: the place of both objects, the first offset and the last."""
    for place, stop in zip(merged.places.tolist(), merged.stop.tolist(), strict=True):
        low = int(np.searchsorted(plain.stop, base[place], side="right"))
        for at in range(low, int(np.searchsorted(plain.start, stop, side="left"))):
            yield (
                place,
                int(plain.places[at]),
                max(int(base[place]), int(plain.start[at])),
                min(stop, int(plain.stop[at])) - 1,
            )


def overlap_of(read: Segment, left_out: Segment, position: int) -> Iterator[Overlap]:
    """Report the unread offsets of a segment, unless its facts equal those of another segment with the same range."""
    ours, theirs = read.facts, left_out.facts
    both_have_facts = isinstance(ours, SegmentFacts) and isinstance(theirs, SegmentFacts)
    if not (both_have_facts and all(getattr(ours, name) == getattr(theirs, name) for name in _SAME_RECORDS)):
        yield Overlap.between(read, left_out, read, theirs.base, min(position, theirs.next) - 1)


def shared_overlap(found: Segments, merged: int, plain: int, first_offset: int, last_offset: int) -> Overlap:
    """Report offsets of a merged segment that are read from a plain one."""
    whole = found[merged]
    return Overlap.between(found[plain], whole, whole, first_offset, last_offset)


def contradiction(found: Segments, one: LeftOut) -> Overlap:
    """Report a damaged merged segment, which does not have the records of the objects that cover it."""
    left_out, read = found[one.place], found[one.beside]
    overlap = Overlap.between(read, left_out, read, left_out.facts.base, left_out.facts.next - 1)
    return replace(overlap, cause=OverlapCause.DIFFERENT, is_within=False)


class _Row(NamedTuple):
    """One object that overlaps another."""

    place: int
    base: int
    next: int
    is_merged: bool
    rewrite: int
    records: int
    digest: int


def left_out_of(found: Segments, base: Numbers, following: Numbers) -> list[LeftOut]:
    """Find the merged objects whose offsets other objects cover. `found` is in the order of reading, and some overlap.

    Existing plain objects are always read. So no merged object, and no index entry of one, can hide their records.
    """
    if not found.numbers("merged").any():
        return []
    rows = _contested(found, base, following)
    plain = [row for row in rows if not row.is_merged]
    runs = _Plain.of(plain)
    by_base = {row.base: [row] for row in plain}
    left_out: list[LeftOut] = []
    for merged in sorted((row for row in rows if row.is_merged), key=lambda row: (row.next - row.base, row.rewrite)):
        chain = _chain(merged, by_base)
        if chain:
            left_out.append(LeftOut(merged.place, chain[0].place, not _has_records_of(merged, chain)))
        elif beside := runs.covering(merged):
            left_out.append(LeftOut(merged.place, beside.place, is_damaged=True))
        else:
            by_base.setdefault(merged.base, []).append(merged)
    return left_out


def _contested(found: Segments, base: Numbers, following: Numbers) -> list[_Row]:
    """Return the objects with facts that overlap others."""
    reach = np.maximum.accumulate(following)
    overlaps = np.zeros(len(base), bool)
    overlaps[1:] = base[1:] < reach[:-1]
    overlaps[:-1] |= base[1:] < following[:-1]
    places = np.flatnonzero(overlaps & found.has_facts)
    some = found.only(places)
    names = ("base", "next", "merged", "rewrite", "records", "digest")
    columns = (some.numbers(name).tolist() for name in names)
    return [_Row(*row) for row in zip(places.tolist(), *columns, strict=True)]


class _Plain(NamedTuple):
    """The plain objects, in order, and their runs of covered offsets without a gap."""

    rows: Sequence[_Row]
    starts: Sequence[int]
    ends: Mapping[int, int]  # by start

    @classmethod
    def of(cls, rows: Sequence[_Row]) -> "_Plain":
        starts, ends = list[int](), dict[int, int]()
        for row in rows:
            if not starts or row.base > ends[starts[-1]]:
                starts.append(row.base)
            ends[starts[-1]] = max(ends.get(starts[-1], 0), row.next)
        return cls(rows, starts, ends)

    def covering(self, merged: _Row) -> _Row | None:
        """Return the last object that begins at or before a merged one, if plain objects cover all of its offsets."""
        place = bisect_right(self.starts, merged.base) - 1
        if place < 0 or self.ends[self.starts[place]] < merged.next:
            return None
        return self.rows[bisect_right(self.rows, merged.base, key=lambda row: row.base) - 1]


def _chain(merged: _Row, by_base: Mapping[int, Sequence[_Row]]) -> list[_Row]:
    """Return objects within a merged one that cover it from base to next without a gap; empty if none do."""
    chain, position = list[_Row](), merged.base
    while position < merged.next:
        joining = max(
            _within(merged, by_base.get(position, ())), key=lambda row: (not row.is_merged, row.next), default=None
        )
        if joining is None:
            return []
        chain.append(joining)
        position = joining.next
    return chain


def _within(merged: _Row, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the possible parts of a merged object, without other rewrites of the same offsets."""
    for row in rows:
        is_rewrite = row.is_merged and (row.base, row.next) == (merged.base, merged.next)
        if row.next <= merged.next and not is_rewrite:
            yield row


def _has_records_of(merged: _Row, chain: Sequence[_Row]) -> bool:
    from archiver.codec.kernels.digest import join_digests  # noqa: PLC0415 - kernels load slowly, and few archives need them

    records = digest = 0
    for row in chain:
        records, digest = records + row.records, join_digests(digest, row.digest, row.records)
    return (merged.records, merged.digest) == (records, digest)
