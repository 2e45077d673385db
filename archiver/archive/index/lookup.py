"""Finds the facts of listed segments: in the index, or by a HEAD of the objects themselves. Inventories use it."""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from archiver.archive.format.layout import SegmentKey
from archiver.archive.index.index_file import Directory
from archiver.archive.index.loaded_index import Index, KnownDirectory
from archiver.archive.segments.entries import Entries
from archiver.archive.segments.listing import ListedPartition, ListedSegment, ListedSegments, Partition
from archiver.archive.segments.partition_segments import Segment, Segments
from archiver.archive.segments.segment_facts import Bounds, SegmentFacts, facts_from_metadata
from archiver.codec.selection import NO_TIMESTAMP, Selection, Wanted
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count
from archiver.process.running.ahead import run_ahead
from archiver.process.values.columns import CHUNK, Numbers, as_slice
from archiver.store.port import ObjectStore

log = logging.getLogger(__name__)

HEADS_AT_ONCE = 16
_REPORT_EVERY = 100  # objects between two reports of progress

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment:
    """A segment by its key whose facts cannot be trusted; the message names it."""

    key: SegmentKey
    message: str


class FoundFacts(NamedTuple):
    """Listed segments with their facts. `learned`: those with missing or wrong facts in the index (`contradicted`: the number of wrong ones)."""

    segments: dict[Partition, Segments]
    learned: dict[Partition, Segments]
    damaged: tuple[DamagedSegment, ...]
    contradicted: int


def find_facts(
    store: ObjectStore,
    listing: ListedSegments,
    index: Index,
    *,
    use: IndexUse = IndexUse.CHECK,
    reads: Wanted | None = None,
    report_progress: ReportProgress = lambda _done, _total: None,
) -> FoundFacts:
    """Take the facts of listed objects from the index, and request the facts of the other objects.

    Any writer below `control/` may have written the index. So an entry is trusted only where false facts would be detected: for
    objects that will be read, since their reader compares the facts. `reads`: the records to read of each partition; None: none.
    Consumes the listing. An object that was deleted since is left out.
    """
    found = [
        _PartitionLookup.of(listing.partitions.pop(place), index, use, reads) for place in list(listing.partitions)
    ]
    learned: dict[Directory, _LearnedSegments] = {}
    damaged: list[DamagedSegment] = []
    contradicted = _Contradicted()
    total = sum(len(one.asked) for one in found)
    waiting = ((one, int(place), listed) for one in found for place, listed in zip(one.places, one.asked, strict=True))
    answers = run_ahead(partial(_ask, store), waiting, HEADS_AT_ONCE, "head")
    for asked, ((one, place, listed), seen) in enumerate(answers, start=1):
        if isinstance(seen, DamagedSegment):
            damaged.append(seen)
        if not one.confirms(place, listed, seen, contradicted) and isinstance(seen, Segment):
            one.learn(seen, learned.setdefault(one.partition[:2], _LearnedSegments()))
        if asked % _REPORT_EVERY == 0:
            report_progress(asked, total)
    contradicted.warn()
    for one in found:
        one.forget_asked()
    first = {directory: index.of(directory).extend(some.entries()) for directory, some in learned.items()}
    pairs = [(one.partition, *one.segments(index, first.get(one.partition[:2], 0))) for one in found]
    return FoundFacts(
        {place: segments for place, segments, _ in pairs if len(segments)},
        {place: fresh for place, _, fresh in pairs if len(fresh)},
        tuple(damaged),
        contradicted.count,
    )


def ask_facts(store: ObjectStore, listed: Iterable[ListedSegment]) -> Iterator[Segment | DamagedSegment]:
    """Request the facts of objects, several at a time. Leave out objects that were deleted since the listing."""
    return filter(None, run_ahead(partial(_head_segment, store), listed, HEADS_AT_ONCE, "head"))


@dataclass(slots=True)
class _Contradicted:
    """Counts false index entries: their objects exist but have other facts."""

    count: int = 0
    _first: str = ""

    def add(self, key: str) -> None:
        self.count += 1
        self._first = self._first or key

    def warn(self) -> None:
        if self.count:
            log.warning(
                "the index of facts is false of %s, the first is %s; the objects were asked, and what they say holds. Look who"
                " may write control/index/, which is a cache and may be deleted",
                spell_count(self.count, "object"),
                self._first,
            )


class _LearnedSegments:
    """Segments of one topic directory whose facts the index lacked. They are put into columns some at a time, to save memory."""

    def __init__(self) -> None:
        self._some: list[Segment] = []
        self._pieces: list[Entries] = []
        self._count = 0

    def add(self, segment: Segment) -> int:
        """Add a segment. Returns its number."""
        self._some.append(segment)
        self._count += 1
        if len(self._some) == CHUNK:
            self._flush()
        return self._count - 1

    def entries(self) -> list[Entries]:
        self._flush()
        return self._pieces

    def _flush(self) -> None:
        if self._some:
            self._pieces.append(Entries.of([one.entry for one in self._some]))
            self._some = []


@dataclass(slots=True)
class _PartitionLookup:
    """One partition: the index entry of each listed object, and the objects whose facts have to be requested."""

    partition: Partition
    stem: str
    rows: Numbers  # the index row of each listed object; -1: none
    put: Numbers
    asked: ListedPartition
    places: range | Numbers  # the requested objects, by their places in the listing
    known: KnownDirectory
    learned: "array[int]" = field(default_factory=lambda: array("i"))
    learned_put: "array[int]" = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, listed: ListedPartition, index: Index, use: IndexUse, reads: Wanted | None) -> "_PartitionLookup":
        known = index.of(listed.partition[:2])
        rows = known.find(listed)
        if use is IndexUse.IGNORE:
            return cls(listed.partition, listed.stem, rows, listed.put, listed, range(len(listed)), known)
        is_asked = rows < 0
        if not is_asked.all():
            claims = _Claims.of(listed, known.entries, np.flatnonzero(~is_asked), rows)
            is_asked[claims.places[claims.contradict_names()]] = True
            selection = None if reads is None or use is IndexUse.TRUST else reads(listed.partition[2])
            if selection is not None:
                is_asked[claims.places[claims.leave_out(selection)]] = True
        chosen = as_slice(np.flatnonzero(is_asked))
        places = range(*chosen.indices(len(listed))) if isinstance(chosen, slice) else chosen.astype(np.int32)
        return cls(listed.partition, listed.stem, rows, listed.put, listed.only(chosen), places, known)

    def confirms(
        self, place: int, asked: ListedSegment, seen: "Segment | DamagedSegment | None", contradicted: _Contradicted
    ) -> bool:
        """Return whether an object has the facts of its index entry; reject the entry if not."""
        row = int(self.rows[place])
        if row >= 0 and isinstance(seen, Segment) and (asked.item.size, asked.item.etag) == (seen.size, seen.etag):
            claimed = self.known.entries.facts(row)
            if seen.facts == claimed:
                return True
            if not (isinstance(seen.facts, SegmentFacts) and seen.facts.is_noted_as(claimed)):
                contradicted.add(seen.object_key)
                self.known.disbelieve(row)
        self.rows[place] = -1
        return False

    def learn(self, segment: Segment, learned: _LearnedSegments) -> None:
        self.learned.append(learned.add(segment))
        self.learned_put.append(segment.put_ticks)

    def forget_asked(self) -> None:
        """Free the rows of the listing before learned facts are put into columns."""
        self.asked, self.places = self.asked.only(slice(0, 0)), range(0)

    def segments(self, index: Index, first_learned: int) -> tuple[Segments, Segments]:
        """Return all segments of the partition, and the learned ones among them."""
        entries, is_known = index.of(self.partition[:2]).entries, self.rows >= 0
        fresh, fresh_put = (
            np.array(self.learned, np.int32) + np.int32(first_learned),
            np.array(self.learned_put, np.int64),
        )
        learned = Segments(self.partition, self.stem, entries, as_slice(fresh), fresh_put)
        if not len(fresh):
            rows, put = (self.rows, self.put) if is_known.all() else (self.rows[is_known], self.put[is_known])
            return Segments(self.partition, self.stem, entries, as_slice(rows), put), learned
        rows, put = np.concatenate([self.rows[is_known], fresh]), np.concatenate([self.put[is_known], fresh_put])
        return Segments(self.partition, self.stem, entries, as_slice(rows), put), learned


class _Claims(NamedTuple):
    """The claims of the index about the objects of a partition that it knows, in the order of the listing."""

    places: Numbers  # in the listing
    listed: ListedPartition
    entries: Entries
    rows: Numbers  # of the index
    follows: Numbers  # the base of the next object that begins later; -1: none

    @classmethod
    def of(cls, listed: ListedPartition, entries: Entries, places: Numbers, rows: Numbers) -> "_Claims":
        bases = listed.base.astype(np.int64)  # in order, as keys are
        behind = np.searchsorted(bases, bases[places], side="right")
        return cls(places, listed, entries, rows[places], np.append(bases, -1)[behind])

    def contradict_names(self) -> Numbers:
        """Return the claims that do not end at the next object's base: a gap, an overlap, or a false entry. Names of merged objects give their end."""
        is_plain = self.listed.named_next[self.places] == 0
        found: Numbers = (self.follows >= 0) & (self._numbers("next") != self.follows) & is_plain
        return found

    def leave_out(self, selection: Selection) -> Numbers:
        """Return the objects that would not be read, and so not be compared, only because of their index entries.

        A false end before the next object shows as a gap. Only the last object itself proves the end of a partition.
        """
        following, merged_next = self._numbers("next"), int(self.listed.named_next.max())
        is_last = (self.follows < 0) & (self.listed.named_next[self.places] == 0)
        found: Numbers = is_last & ((following <= selection.first_offset) | (following <= merged_next))
        if selection.has_times:
            earliest, latest = self._numbers("min_timestamp"), self._numbers("max_timestamp")
            bases = self.listed.base[self.places]
            are_wanted = (following > selection.first_offset) & (bases <= selection.last_offset)
            are_outside = (latest < selection.from_ms) | (earliest > selection.until_ms)
            found |= are_wanted & (are_outside | ((earliest == NO_TIMESTAMP) & (latest == NO_TIMESTAMP)))
        return found

    def _numbers(self, name: str) -> Numbers:
        return self.entries.numbers(name)[self.rows].astype(np.int64)


_Asked = tuple[_PartitionLookup, int, ListedSegment]


def _ask(store: ObjectStore, asked: _Asked) -> tuple[_Asked, Segment | DamagedSegment | None]:
    return asked, _head_segment(store, asked[2])


def _head_segment(store: ObjectStore, listed: ListedSegment) -> Segment | DamagedSegment | None:
    """Request the facts of a segment; None for an object that was deleted since the listing."""
    key, item = listed
    info = store.head(item.key)
    if info is None:
        return None
    try:
        facts = facts_from_metadata(info.metadata, item.key) or _bounds_of(store, key, item.key, info.size)
        if facts is None:
            return None
        return Segment(
            key=key, object_key=item.key, size=info.size, etag=info.etag, put_at=item.last_modified, facts=facts
        )
    except NotWholeError as error:
        return DamagedSegment(key=key, message=str(error))


def _bounds_of(store: ObjectStore, key: SegmentKey, name: str, size: int) -> Bounds | None:
    from archiver.archive.segments.v1_bounds import read_bounds  # noqa: PLC0415 - its kernels take a second to load, and few archives need them

    return read_bounds(store, key, name, size)
