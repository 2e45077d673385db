"""Finds where records of `__consumer_offsets` may be missing in the archive, so that positions are unknown.

Compaction removes a commit only if a later record has the same key. Records that are missing for another reason may be
anything, also the removal of a position. Compaction also removes removals, some time after they were written.

A compacted record is not missing while its replacement is archived: the survivor. If a backup ended before it had read the
log up to where it was compacted, the survivor may not be archived yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from archiver.archive.index.inventory import PartitionInventory
from archiver.archive.segments.partition_segments import SegmentSlice
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.frame import Longs
from archiver.codec.selection import NO_TIMESTAMP
from archiver.groups.log.lives import CLOCKS_DIFFER_MS

# Brokers do not compact records younger than an active segment's roll, nor within minutes: earlier reads are complete.
_UNCOMPACTED_MS: Final = 3_600_000
_FIRST_BEFORE_ALL: Final = -1


class Doubt(NamedTuple):
    """Offsets first..last with possibly missing records. `needs_later`: only records whose keys have a later record."""

    first: int
    last: int
    needs_later: bool


class Below(NamedTuple):
    """The record of a fold about the log below its end, whose objects may be deleted: the time of its newest record."""

    next: int
    last_ms: int


def doubts_of(
    inventory: PartitionInventory,
    delete_retention_ms: int,
    first_seen_ms: int | None = None,
    below: Below | None = None,
) -> list[Doubt]:
    """List the doubts of a partition, by the names and the facts of its objects.

    `first_seen_ms`: when a backup first saw the topic; it has read nothing before. None: unknown.
    """
    missing = (*inventory.gaps, *inventory.swept)
    found = [Doubt(gap.first_offset, gap.last_offset, needs_later=False) for gap in missing]
    survivors = Survivors.of(inventory)
    for number, (reading, is_prompt) in enumerate(_in_order(inventory, delete_retention_ms, first_seen_ms, below)):
        if not number and reading.from_offset > 0:
            found.append(Doubt(0, reading.from_offset - 1, needs_later=False))
        found += _doubts_within(reading, survivors, is_prompt=is_prompt)
    return sorted(found)


def unsettled_above(
    inventory: PartitionInventory,
    offset: int,
    delete_retention_ms: int,
    first_seen_ms: int | None = None,
    below: Below | None = None,
) -> list[Doubt]:
    """List the doubts from an offset on that lack `needs_later` only because the archive ends too early.

    The next backup settles them, unless the log was truncated since: records above the cut will not be archived.
    """
    survivors, found = Survivors.of(inventory), list[Doubt]()
    for reading, is_prompt in _in_order(inventory, delete_retention_ms, first_seen_ms, below):
        is_newest = reading.next > offset and _life(reading) == survivors.newest_life
        if is_newest and is_prompt and not survivors.are_archived(reading):
            found += _compacted(reading, needs_later=True)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """Evidence, for each life of a partition, that the survivors of compaction are archived."""

    newest_life: int
    ends: Mapping[int, int]  # the end of each life's archive
    newest_ms: Mapping[int, int]  # the time of each life's newest record

    @classmethod
    def of(cls, inventory: PartitionInventory) -> "Survivors":
        life, ends, newest_ms = 0, dict[int, int](), dict[int, int]()
        for reading in inventory.readable:
            life = _life(reading)
            ends[life] = reading.next
            if (at_ms := _newest_ms(reading)) is not None:
                newest_ms[life] = max(at_ms, newest_ms.get(life, at_ms))
        return cls(newest_life=life, ends=ends, newest_ms=newest_ms)

    def are_archived(self, reading: SegmentSlice) -> bool:
        """Return whether all survivors that existed when an object was read are archived, or have their own doubt.

        Brokers compact neither behind the last stable offset nor young records. Objects of earlier programs lack that offset:
        their survivors count as archived.
        """
        facts, put_at, life = reading.segment.facts, reading.segment.put_at, _life(reading)
        if not isinstance(facts, SegmentFacts) or facts.stable_end is None or self.ends[life] >= facts.stable_end:
            return True
        newest_ms = self.newest_ms.get(life)
        if newest_ms is None or put_at is None:
            return False
        return newest_ms > _put_ms(put_at) - _UNCOMPACTED_MS + CLOCKS_DIFFER_MS


def _life(reading: SegmentSlice) -> int:
    return reading.segment.key.life


def _in_order(
    inventory: PartitionInventory, delete_retention_ms: int, first_seen_ms: int | None, below: Below | None
) -> Iterator[tuple[SegmentSlice, bool]]:
    """Yield the objects, and whether each was read promptly: no commit was read whose removal was already compacted.

    Compaction removes the commit first, and its removal after delete.retention.ms. So it suffices that reading began within that time.
    """
    since_ms: int | None = None
    position = 0
    first_ms = _age_ms(inventory.readable[0], first_seen_ms) if inventory.readable else None
    if first_ms is None or first_ms < -CLOCKS_DIFFER_MS:  # objects were read earlier, so the topic was seen earlier
        first_seen_ms = None
    for reading in inventory.readable:
        if below is not None and position < below.next <= reading.from_offset:  # the object before it is deleted
            since_ms = None if below.last_ms == NO_TIMESTAMP else below.last_ms
        most_ms, seen_for_ms = _age_ms(reading, since_ms), _age_ms(reading, first_seen_ms)
        is_prompt = most_ms is not None and most_ms <= delete_retention_ms
        is_prompt |= seen_for_ms is not None and seen_for_ms <= delete_retention_ms - CLOCKS_DIFFER_MS
        yield reading, is_prompt
        since_ms, position = _newest_ms(reading), reading.next


def _newest_ms(reading: SegmentSlice) -> int | None:
    """Return the time of an object's newest record: records of the next object are later. None: unknown.

    In a truncated log, that record may be a lost one, and younger than the following records.
    """
    facts = reading.segment.facts
    if not isinstance(facts, SegmentFacts) or facts.max_timestamp == NO_TIMESTAMP or reading.until_offset is not None:
        return None
    return facts.max_timestamp


def _age_ms(reading: SegmentSlice, since_ms: int | None) -> int | None:
    """Return the highest age of records when they were read. Remaining records prove nothing: compaction leaves young ones."""
    put_at = reading.segment.put_at
    return None if put_at is None or since_ms is None else _put_ms(put_at) - since_ms


def _put_ms(put_at: datetime) -> int:
    return int(put_at.timestamp() * 1000)


def _doubts_within(reading: SegmentSlice, survivors: Survivors, *, is_prompt: bool) -> Sequence[Doubt]:
    facts = reading.segment.facts
    first, last = reading.from_offset, reading.next - 1
    if not isinstance(facts, SegmentFacts):  # v1.0: unknown
        return [Doubt(first, last, needs_later=False)]
    holes = [(max(hole.first_offset, first), min(hole.last_offset, last)) for hole in facts.holes]
    found = [Doubt(begin, end, needs_later=False) for begin, end in holes if begin <= end]
    return [*found, *_compacted(reading, needs_later=is_prompt and survivors.are_archived(reading))]


def _compacted(reading: SegmentSlice, *, needs_later: bool) -> Sequence[Doubt]:
    """Return the doubt of an object that compaction may have removed records from. Without counts, other gaps look the same."""
    facts = reading.segment.facts
    if not isinstance(facts, SegmentFacts) or facts.unserved == 0 or facts.next - facts.base == facts.records:
        return ()
    return [Doubt(reading.from_offset, reading.next - 1, needs_later=needs_later)]


@dataclass(frozen=True, slots=True)
class Doubts:
    """All doubts of a partition, for queries about many positions at once."""

    doubts: Sequence[Doubt]

    def reach(self, until: Longs, has_later: npt.NDArray[np.bool_]) -> Longs:
        """Return for each position the last offset below `until` at which a record of it may be missing; -1: nowhere."""
        everything = self._reach(until, [one for one in self.doubts if not one.needs_later])
        compacted = self._reach(until, [one for one in self.doubts if one.needs_later])
        found: Longs = np.maximum(everything, np.where(has_later, compacted, _FIRST_BEFORE_ALL))
        return found

    def _reach(self, until: Longs, doubts: Sequence[Doubt]) -> Longs:
        firsts = np.array([_FIRST_BEFORE_ALL, *(one.first for one in doubts)], np.int64)
        lasts = np.maximum.accumulate(np.array([_FIRST_BEFORE_ALL, *(one.last for one in doubts)], np.int64))
        place = np.searchsorted(firsts, until, side="left") - 1
        found: Longs = np.minimum(lasts[np.maximum(place, 0)], until - 1)
        return found
