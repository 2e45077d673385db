"""Derives from the objects of a copy where it is settled, where the former copy is still needed, and whether its entry is true."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.copies.roles import CompleteCopy
from archiver.archive.index.inventory import PartitionInventory
from archiver.archive.segments.partition_segments import Readings, Segment, SegmentSlice, blocks_of
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.selection import LAST_LONG
from archiver.process.values.columns import as_slice

WAYS_ON: Final = (
    "see `archiver compacted status`; --instance reads the copy of an instance, and --history what lies under topics/"
)


def settled_ends(objects: Iterable[tuple[int, int]], start: int = 0) -> Iterator[tuple[int, bool]]:
    """Yield for each object the end of the copy behind it, and whether the copy is settled there.

    Settled: below that offset it has each record, or a later one that replaced it. `objects`: `next` and `lacks_until` of each
    object at or above `start`, in read order. Up to `start` the copy is settled.
    """
    position, until = start, 0
    for following, lacks_until in objects:
        position, until = max(position, following), max(until, lacks_until)
        yield position, until <= position


def settled_offset(objects: Iterable[tuple[int, int]], start: int = 0) -> int:
    """Return the highest offset up to which a copy is settled."""
    return max((end for end, is_settled in settled_ends(objects, start) if is_settled), default=start)


class Settled(NamedTuple):
    """The offset up to which a copy is settled, and its objects above that offset that lack records."""

    offset: int
    lacking: Sequence[SegmentSlice]

    @property
    def wanted(self) -> int:
        """The offset that the copy must reach to be settled at its end."""
        return max((lacks_until(one.segment, self.offset) for one in self.lacking), default=self.offset)


def settle(found: PartitionInventory, start: int) -> Settled:
    """Return how far a copy is settled that was complete at offset `start`."""
    above = found.from_offset(start)
    lacking = [
        one for block in blocks_of(above.readable) for one in _may_lack(block) if lacks_until(one.segment, start)
    ]
    until = {one.next: lacks_until(one.segment, start) for one in lacking}
    following = chain.from_iterable(block.next.tolist() for block in blocks_of(above.readable))
    offset = (
        settled_offset(((end, until.get(end, 0)) for end in following), start) if lacking else max(start, above.end)
    )
    return Settled(offset, [one for one in lacking if one.next > offset])


def is_settled(found: PartitionInventory) -> bool:
    """Return whether the objects of a copy prove that it is settled at its end, for any offset where it was complete.

    By columns: nearly each object of a copy lacks records. Expired records before its first one do not count.
    """
    for number, block in enumerate(blocks_of(found.readable)):
        segments = block.segments
        until, unserved = segments.numbers("stable_end"), segments.numbers("unserved")
        is_unproven = (unserved != 0) & ((unserved < 0) | (until < 0) | (until > found.end))
        if is_unproven.any() or not segments.has_facts.all():
            return False
        first = int(segments.numbers("first")[0]) if number == 0 else 0
        if any(hole.last_offset >= first for facts in segments.facts_with_holes() for hole in facts.holes):
            return False
    return True


def _may_lack(block: Readings) -> Readings:
    """Return the objects that have holes, or may lack records, by columns."""
    segments = block.segments
    is_chosen = (segments.numbers("unserved") != 0) | ~segments.has_facts
    is_chosen[segments.places_with_holes()] = True
    return block.only(as_slice(np.flatnonzero(is_chosen)))


def lacks_until(segment: Segment, begin: int) -> int:
    """Return the offset that is above all successors of an object's missing records; 0: nothing is missing."""
    return segment.facts.lacks_until(begin) if isinstance(segment.facts, SegmentFacts) else LAST_LONG


def better_ranges(settled: Settled, former: PartitionInventory) -> list[tuple[int, int]]:
    """Return the offsets to read from the former copy: where its object has more than the current copy's, or was put no later.

    If two objects lack records, each may have some that the other lacks. The object that was put first is read, so that later
    readings return the same records.
    """
    ranges: list[tuple[int, int]] = []
    others = former.from_offset(settled.offset)
    for held in settled.lacking:
        for one in others.from_offset(held.from_offset).below(held.next).readable:
            first, until = max(one.from_offset, held.from_offset), min(one.next, held.next)
            if lacks_until(one.segment, settled.offset) and one.segment.put_ticks > held.segment.put_ticks:
                continue
            if ranges and ranges[-1][1] == first:
                first = ranges.pop()[0]
            ranges.append((first, until))
    return ranges


def has_record(found: PartitionInventory, start: int, stop: int) -> bool:
    """Return whether an object may have a record between two offsets."""
    return any(
        bool(((block.segments.numbers("last") >= start) & (block.segments.numbers("first") < stop)).any())
        for block in blocks_of(found.readable)
    )


def false_claims(copy: CompleteCopy, found: PartitionInventory, damaged: Sequence[str]) -> Iterator[str]:
    """Yield how the objects of a copy contradict the entry that calls it complete."""
    if damaged or any(gap.first_offset < copy.next for gap in found.gaps):
        yield f"its objects do not prove that it is whole up to offset {copy.next}"
    before = found.below(copy.position).readable
    ends = [
        int(told.max())
        for block in blocks_of(before)
        if len(told := block.segments.numbers("stable_end")[block.segments.numbers("next") <= copy.position])
    ]
    if max(ends, default=0) > copy.position:
        yield f"the log went on to offset {max(ends)} while it was read to {copy.position}"
