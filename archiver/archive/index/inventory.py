"""Applies the read rule to a listing: sorts each partition into readable, shadowed, missing and damaged parts (docs/format.md §7)."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from archiver.archive.format.handle import Archive
from archiver.archive.index.index_generations import read_index
from archiver.archive.index.learned_facts import share_learned
from archiver.archive.index.loaded_index import Index
from archiver.archive.index.lookup import DamagedSegment, ReportProgress, ask_facts, find_facts
from archiver.archive.index.overlaps import (
    LeftOut,
    Overlap,
    Walk,
    contradiction,
    left_out_of,
    overlap_of,
    shared_offsets,
    shared_overlap,
    told_overlaps,
)
from archiver.archive.notes.swept import OffsetRanges, read_swept
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.listing import Partition, list_directory, list_segments
from archiver.archive.segments.partition_segments import Readings, Segment, Segments, SegmentSlice, blocks_of
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.selection import Wanted
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError
from archiver.process.values.columns import Chain, as_slice

log = logging.getLogger(__name__)

_LEARNED_AT_ONCE = 100  # objects whose facts are requested before the answers are passed on
_BRING_BACK = "bring their objects back from the bucket's versions"
_PERHAPS_FALSE = " (of the last ones the index of facts tells; if there never were such objects, delete control/index/)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets, both inclusive, that no segment covers. Next to an object of v1.0 they may never have been records."""

    first_offset: int
    last_offset: int
    is_certain: bool = True
    is_remembered: bool = False  # only the index shows it

    def __str__(self) -> str:
        return f"{self.first_offset}-{self.last_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInventory:
    """One partition, arranged by the read rule. `position`: the end of the coverage without a gap; `end`: the end of all coverage."""

    readable: Sequence[SegmentSlice]
    shadowed: Sequence[Segment]
    gaps: tuple[Gap, ...]
    overlaps: tuple[Overlap, ...] = ()
    swept: tuple[Gap, ...] = ()  # offsets that no segment covers because a sweep deleted them: no loss

    @property
    def segments(self) -> Sequence[Segment]:
        return Chain(block.objects for block in blocks_of(self.readable))

    @property
    def position(self) -> int:
        if self.gaps:
            return self.gaps[0].first_offset
        return self.readable[-1].segment.facts.next if self.readable else 0

    @property
    def end(self) -> int:
        return self.readable[-1].next if self.readable else 0

    def from_offset(self, offset: int) -> "PartitionInventory":
        """Leave out everything below an offset."""
        return PartitionInventory(
            readable=Chain(block.above(offset) for block in blocks_of(self.readable)),
            shadowed=self.shadowed,
            gaps=_gaps_above(self.gaps, offset),
            overlaps=tuple(overlap for overlap in self.overlaps if overlap.last_offset >= offset),
            swept=_gaps_above(self.swept, offset),
        )

    def below(self, offset: int) -> "PartitionInventory":
        """Leave out everything at or above an offset."""
        return PartitionInventory(
            readable=Chain(block.below(offset) for block in blocks_of(self.readable)),
            shadowed=self.shadowed,
            gaps=_gaps_below(self.gaps, offset),
            overlaps=tuple(overlap for overlap in self.overlaps if overlap.first_offset < offset),
            swept=_gaps_below(self.swept, offset),
        )

    def until_offset(self, offset: int) -> "PartitionInventory":
        """Leave out everything at or above an offset; missing offsets up to it are a gap."""
        left = self.below(offset)
        gaps = tuple(gap for gap in self.gaps if gap.last_offset < left.end)
        if left.end < offset:
            swept = OffsetRanges.of((gap.first_offset, gap.last_offset + 1) for gap in left.swept)
            gaps += _split(Gap(first_offset=left.end, last_offset=offset - 1), swept)[0]
        return replace(left, gaps=gaps)

    def reaching(self, end: int, *, is_remembered: bool = False) -> "PartitionInventory":
        """Add the gap up to a noted end: no listing shows that the last objects are missing."""
        if self.end >= end:
            return self
        gap = Gap(first_offset=self.end, last_offset=end - 1, is_remembered=is_remembered)
        return replace(self, gaps=(*self.gaps, gap))

    def then(self, later: "PartitionInventory") -> "PartitionInventory":
        """Append the coverage of another life, from the end of this one on."""
        return PartitionInventory(
            readable=Chain([self.readable, later.readable]),
            shadowed=Chain([self.shadowed, later.shadowed]),
            gaps=self.gaps + later.gaps,
            overlaps=self.overlaps + later.overlaps,
            swept=self.swept + later.swept,
        )

    def without_swept(self, swept: OffsetRanges) -> "PartitionInventory":
        """Split missing offsets into swept and lost ones. A missing end that only the index shows is lost: sweeps keep last objects."""
        parts = [((gap,), ()) if gap.is_remembered else _split(gap, swept) for gap in self.gaps]
        return replace(
            self,
            gaps=tuple(gap for missing, _ in parts for gap in missing),
            swept=(*self.swept, *(gap for _, taken in parts for gap in taken)),
        )


def _gaps_above(gaps: tuple[Gap, ...], offset: int) -> tuple[Gap, ...]:
    return tuple(replace(gap, first_offset=max(gap.first_offset, offset)) for gap in gaps if gap.last_offset >= offset)


def _gaps_below(gaps: tuple[Gap, ...], offset: int) -> tuple[Gap, ...]:
    return tuple(
        replace(gap, last_offset=min(gap.last_offset, offset - 1)) for gap in gaps if gap.first_offset < offset
    )


def _split(gap: Gap, swept: OffsetRanges) -> tuple[tuple[Gap, ...], tuple[Gap, ...]]:
    """Split a gap into lost and swept offsets."""
    whole = OffsetRanges.of([(gap.first_offset, gap.last_offset + 1)])

    def gaps(ranges: OffsetRanges) -> tuple[Gap, ...]:
        return tuple(replace(gap, first_offset=start, last_offset=stop - 1) for start, stop in ranges.ranges)

    missing = whole.minus(swept)
    return gaps(missing), gaps(whole.minus(missing))


EMPTY_PARTITION = PartitionInventory(readable=(), shadowed=(), gaps=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything under `topics/`."""

    partitions: Mapping[tuple[str, int], Mapping[int, PartitionInventory]]  # (topic, life) -> partition -> inventory
    strangers: tuple[str, ...]
    damaged: tuple[DamagedSegment, ...]
    learned: Sequence[Segment] = field(default=(), compare=False)  # segments with missing or wrong facts in the index
    _damaged_in: dict[tuple[str, int], dict[int, list[DamagedSegment]]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for damage in self.damaged:
            key = damage.key
            self._damaged_in.setdefault((key.topic, key.life), {}).setdefault(key.partition, []).append(damage)

    def lives(self) -> dict[str, set[int]]:
        """Return the lives with an object, by topic."""
        lives: dict[str, set[int]] = {}
        for topic, life in (*self.partitions, *self._damaged_in):
            lives.setdefault(topic, set()).add(life)
        return lives

    def damage_of(self, topic: str, life: int) -> dict[int, list[str]]:
        """Return the problems of each partition with a damaged object."""
        damaged = self._damaged_in.get((topic, life), {})
        return {number: [damage.message for damage in found] for number, found in damaged.items()}

    def numbers_of(self, topic: str, lives: Iterable[int]) -> set[int]:
        """Return the partitions with an object in any of these lives."""
        return {
            number
            for life in lives
            for found in (self.partitions, self._damaged_in)
            for number in found.get((topic, life), ())
        }

    def join(
        self, topic: str, partition: int, lineage: Iterable[tuple[int, int, int | None]]
    ) -> tuple[PartitionInventory, list[str]]:
        """Join the parts of a partition from several lives, each given as (life, from, until). Returns the result and its problems.

        Damaged objects that end below `from` do not count.
        """
        joined, damaged = EMPTY_PARTITION, list[str]()
        for life, start, until in lineage:
            part = self.partitions.get((topic, life), {}).get(partition, EMPTY_PARTITION)
            part = part if until is None else part.until_offset(until)
            joined = joined.then(part.from_offset(start))
            least = last_base(part, start)
            damaged += [
                damage.message
                for damage in self._damaged_in.get((topic, life), {}).get(partition, ())
                if damage.key.base >= least and (until is None or damage.key.base < until)
            ]
        return joined, damaged


def last_base(partition: PartitionInventory, offset: int) -> int:
    """Return the base of the last segment that begins at or below an offset: earlier segments end below the offset."""
    bases = np.concatenate([[0], *(block.segments.numbers("base") for block in blocks_of(partition.readable))])
    return int(bases[bases <= offset].max())


def arrange(segments: Iterable[Segment]) -> PartitionInventory:
    """Apply the read rule to the segments of one partition in one life."""
    found = segments if isinstance(segments, Segments) else tuple(segments)
    if not found:
        return EMPTY_PARTITION
    found = _in_order(found if isinstance(found, Segments) else Segments.of(found))
    base, following, has_facts = (*(found.numbers(name).astype(np.int64) for name in ("base", "next")), found.has_facts)
    walk, left_out = Walk.of(following), list[LeftOut]()
    if walk.overlapping(base).any() and (left_out := left_out_of(found, base, following)):
        following[[one.place for one in left_out]] = 0
        walk = Walk.of(following)
    walks, read, shared = [walk], walk.ranges(base), list[Overlap]()
    is_merged = found.numbers("merged").astype(bool)
    if is_merged.any() and walk.overlapping(base).any():  # a merged object may be put over any others
        walks = [Walk.of(np.where(is_merged == kind, following, 0)) for kind in (False, True)]
        plain, merged = (one.ranges(base) for one in walks)
        read = plain.joined(merged.outside(plain))
        shared = [shared_overlap(found, *one) for one in shared_offsets(merged, plain, base)]
    end_before = np.append(0, read.stop[:-1])
    is_certain = has_facts[read.places] & np.append(True, has_facts[read.places[:-1]])
    # An archive of v1.0 begins where the log began, and does not record earlier offsets.
    gaps = (read.start > end_before) & ((np.arange(len(read.places)) > 0) | is_certain)
    is_shadowed = np.ones(len(base), bool)
    is_shadowed[read.places] = False
    segments = found.only(as_slice(read.places))
    named, until = segments.numbers("base"), np.where(read.stop < following[read.places], read.stop, 0)
    return PartitionInventory(
        # Most segments are read from base to end, and need no further column.
        readable=Readings(
            segments,
            named if np.array_equal(named, read.start) else read.start,
            until if until.any() else None,
        ),
        shadowed=found.only(as_slice(np.flatnonzero(is_shadowed))),
        gaps=tuple(
            Gap(first_offset=int(end_before[at]), last_offset=int(read.start[at]) - 1, is_certain=bool(is_certain[at]))
            for at in np.flatnonzero(gaps).tolist()
        ),
        overlaps=tuple(
            overlap
            for one in walks
            for at in np.flatnonzero(one.overlapping(base)).tolist()
            for overlap in overlap_of(found[int(one.before[at])], found[at], int(one.position[at]))
        )
        + tuple(shared)
        + tuple(contradiction(found, one) for one in left_out if one.is_damaged),
    )


def _in_order(segments: Segments) -> Segments:
    """Sort by base; of segments with the same base, the one that reaches furthest comes first, and of rewrites the last one."""
    base, following = (segments.numbers(name).astype(np.int64) for name in ("base", "next"))
    if bool((np.diff(base) > 0).all()):
        return segments
    return segments.only(as_slice(np.lexsort((-segments.numbers("rewrite").astype(np.int64), -following, base))))


def swept_note(name: str, partition: PartitionInventory) -> str:
    """Describe the swept offsets of a partition, given by its name; empty: none."""
    swept = ", ".join(str(gap) for gap in partition.swept)
    return f"{name}: offsets {swept} are no longer in the archive: a retention sweep took them" if swept else ""


def problems_of(topic: str, number: int, partition: PartitionInventory, damaged: Iterable[str]) -> list[str]:
    """List the problems of a partition: its damaged objects, and its missing offsets."""
    problems = list(damaged)
    missing = ", ".join(str(gap) for gap in partition.gaps if gap.is_certain)
    unknown = ", ".join(str(gap) for gap in partition.gaps if not gap.is_certain)
    if missing:
        doubt = _PERHAPS_FALSE if any(gap.is_remembered for gap in partition.gaps) else ""
        problems.append(f"{topic}-{number}: offsets {missing} are missing from the archive; {_BRING_BACK}{doubt}")
    if unknown:
        problems.append(
            f"{topic}-{number}: offsets {unknown} are in no object, and v1.0 does not tell whether they ever were records"
        )
    problems += [f"{topic}-{number}: {overlap}" for overlap in told_overlaps(partition.overlaps)]
    # A single damaged object is most often the reason for the single gap: one line names both.
    is_one = len(problems) == 2 and partition.gaps and not partition.overlaps
    return ["; ".join(problems)] if is_one else problems


def read_inventory(
    archive: Archive,
    wanted: Callable[[str], bool] | None = None,
    *,
    use: IndexUse = IndexUse.CHECK,
    reads: Wanted | None = None,
    asks_all: Index | None = None,
    report_progress: ReportProgress = lambda _done, _total: None,
) -> Inventory:
    """List the archive and learn the facts of every segment; of the wanted topics only, if `wanted` is given.

    `reads`: the records of each partition that the caller will read and compare with their facts; facts are requested for
    objects that only the index would leave out (archiver.archive.index.lookup). `asks_all`, an index: the facts of each object are
    requested, and the index only saves memory. `report_progress` is called now and then with the numbers of requested and of all
    objects. Facts that the index lacked are added to it, but not those of `asks_all`.
    """
    # The index is read first: an object that is put meanwhile must not look as if it were missing.
    index = read_index(archive, wanted) if asks_all is None else asks_all
    listing = list_segments(archive, wanted)
    strangers = tuple(sorted(listing.strangers))
    segments, learned, damaged, contradicted = find_facts(
        archive.store,
        listing,
        index,
        use=use if asks_all is None else IndexUse.IGNORE,
        reads=reads,
        report_progress=report_progress,
    )
    if asks_all is None:
        share_learned(archive, learned, contradicted)
    partitions = arrange_all(segments)
    if asks_all is None:
        _add_lost_ends(partitions, index, damaged)
    tell_swept(archive, partitions)
    return Inventory(partitions=partitions, strangers=strangers, damaged=damaged, learned=Chain(learned.values()))


def learn_unknown(archive: Archive, index: Index, topic: str, life: int, partition: int) -> Iterator[list[IndexEntry]]:
    """Request the facts of the objects of a partition that the index lacks. Yields the entries some at a time."""
    listing = list_directory(archive, topic, life, partition)
    for listed in listing.partitions.values():
        unknown = listed.only(np.flatnonzero(index.of((topic, life)).find(listed) < 0))
        for start in range(0, len(unknown), _LEARNED_AT_ONCE):
            found = ask_facts(archive.store, unknown[start : start + _LEARNED_AT_ONCE])
            yield [one.entry for one in found if isinstance(one, Segment) and isinstance(one.facts, SegmentFacts)]


def arrange_all(segments: dict[Partition, Segments]) -> dict[tuple[str, int], dict[int, PartitionInventory]]:
    """Apply the read rule to segments of any partitions: (topic, life) -> partition -> inventory."""
    found: dict[tuple[str, int], dict[int, PartitionInventory]] = {}
    for topic, life, number in sorted(segments):
        found.setdefault((topic, life), {})[number] = arrange(segments[topic, life, number])
    return found


def _add_lost_ends(
    partitions: dict[tuple[str, int], dict[int, PartitionInventory]], index: Index, damaged: Iterable[DamagedSegment]
) -> None:
    """Add the gaps that no listing shows: the index has entries of objects behind a partition's last existing one."""
    unknown = {
        (one.key.topic, one.key.life, one.key.partition) for one in damaged
    }  # partitions with damaged objects, whose ends are unknown

    def found(place: Partition) -> PartitionInventory:
        return partitions.get(place[:2], {}).get(place[2], EMPTY_PARTITION)

    for place, end in index.reach_beyond(lambda place: found(place).end).items():
        if place not in unknown:
            partitions.setdefault(place[:2], {})[place[2]] = found(place).reaching(end, is_remembered=True)


def tell_swept(archive: Archive, partitions: dict[tuple[str, int], dict[int, PartitionInventory]]) -> None:
    """Split missing offsets into swept and lost ones. Read after the listing: a sweep notes ranges before it deletes."""
    topics = {topic for (topic, _), found in partitions.items() if any(one.gaps for one in found.values())}
    for topic in sorted(topics):
        try:
            swept = read_swept(archive, topic)
        except NotWholeError as error:
            log.warning("%s; what is missing of %s counts as lost", error, topic)
            continue
        for place, ranges in swept.items():
            numbered = partitions.get((topic, place.life), {})
            if place.partition in numbered:
                numbered[place.partition] = numbered[place.partition].without_swept(ranges)
