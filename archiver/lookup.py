"""The facts of listed segments: as the index knows them, or as the objects themselves tell."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from archiver.ahead import run_ahead
from archiver.columns import CHUNK, Numbers, as_slice
from archiver.entries import Entries
from archiver.errors import NotWholeError
from archiver.facts import Bounds, SegmentFacts, facts_from_metadata
from archiver.index import Index, KnownDirectory
from archiver.index_file import Directory
from archiver.layout import SegmentKey
from archiver.listing import ListedPartition, ListedSegment, Listing, Partition
from archiver.segments import Segment, Segments
from archiver.store import ListedObject, ObjectStore

HEADS_AT_ONCE = 16
_TOLD_EACH = 100  # objects that are asked for their facts

Tell = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A segment by its key whose facts cannot be trusted; the message names it."""

    key: SegmentKey
    message: str


class LookedUp(NamedTuple):
    """What was listed, with its facts; `learned` of it: whose facts no index told, or other ones."""

    segments: dict[Partition, Segments]
    learned: dict[Partition, Segments]
    damaged: tuple[Damage, ...]


def look_up(
    store: ObjectStore,
    listing: Listing,
    index: Index,
    *,
    asks_all: bool = False,
    tell: Tell = lambda _done, _total: None,
) -> LookedUp:
    """Take from the index what it knows of exactly the listed objects, and ask the others; or all, and compare.

    The listing is used up. One that has gone since it was listed is left out.
    """
    found = [_Found.of(listing.partitions.pop(place), index, asks_all=asks_all) for place in list(listing.partitions)]
    learned: dict[Directory, _Learned] = {}
    damaged: list[Damage] = []
    total = sum(len(one.asked) for one in found)
    waiting = ((one, int(place), listed) for one in found for place, listed in zip(one.places, one.asked, strict=True))
    answers = run_ahead(partial(_ask, store), waiting, HEADS_AT_ONCE, "head")
    for asked, ((one, place, _), seen) in enumerate(answers, start=1):
        if isinstance(seen, Damage):
            damaged.append(seen)
        if not one.confirms(place, seen) and isinstance(seen, Segment):
            one.learn(seen, learned.setdefault(one.partition[:2], _Learned()))
        if asked % _TOLD_EACH == 0:
            tell(asked, total)
    for one in found:
        one.forget_asked()
    first = {directory: index.of(directory).extend(some.entries()) for directory, some in learned.items()}
    pairs = [(one.partition, *one.segments(index, first.get(one.partition[:2], 0))) for one in found]
    return LookedUp(
        {place: segments for place, segments, _ in pairs if len(segments)},
        {place: fresh for place, _, fresh in pairs if len(fresh)},
        tuple(damaged),
    )


def learn(store: ObjectStore, listed: Iterable[ListedSegment]) -> Iterator[Segment | Damage]:
    """Ask objects for their facts, several at a time. One that has gone since it was listed is left out."""
    return filter(None, run_ahead(partial(_look_at, store), listed, HEADS_AT_ONCE, "head"))


class _Learned:
    """Segments of one topic directory, as columns as soon as there are some."""

    def __init__(self) -> None:
        self._some: list[Segment] = []
        self._pieces: list[Entries] = []
        self._count = 0

    def add(self, segment: Segment) -> int:
        """Return which one it is."""
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
class _Found:
    """One partition: which entry is of each object that was listed, and which objects have to be asked."""

    partition: Partition
    stem: str
    rows: Numbers  # of the index; -1: of none
    put: Numbers
    asked: ListedPartition
    places: range | Numbers  # of those that are asked
    compares: bool
    known: KnownDirectory
    learned: "array[int]" = field(default_factory=lambda: array("i"))
    learned_put: "array[int]" = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, listed: ListedPartition, index: Index, *, asks_all: bool) -> "_Found":
        known = index.of(listed.partition[:2])
        rows = known.find(listed)
        unknown = np.flatnonzero(rows < 0)
        asked = listed if asks_all else listed.only(as_slice(unknown))
        places = range(len(listed)) if asks_all or len(unknown) == len(listed) else unknown.astype(np.int32)
        return cls(
            listed.partition,
            listed.stem,
            rows,
            listed.put,
            asked,
            places,
            asks_all,
            known,
        )

    def confirms(self, place: int, seen: "Segment | Damage | None") -> bool:
        """Tell whether an object has the facts that the index has of it; if not, those are forgotten."""
        row = int(self.rows[place])
        if (
            row >= 0
            and isinstance(seen, Segment)
            and self._is(place, seen)
            and seen.facts == self.known.entries.facts(row)
        ):
            return True
        self.rows[place] = -1
        return False

    def _is(self, place: int, seen: Segment) -> bool:
        """Tell whether an object is still the one that was listed."""
        return (int(self.asked.size[place]), self.asked.etag[place]) == (seen.size, seen.etag)

    def learn(self, segment: Segment, learned: _Learned) -> None:
        self.learned.append(learned.add(segment))
        self.learned_put.append(segment.put_ticks)

    def forget_asked(self) -> None:
        """Let go of what was listed, before what was learned of it is put together."""
        self.asked, self.places = self.asked.only(slice(0, 0)), range(0)

    def segments(self, index: Index, first_learned: int) -> tuple[Segments, Segments]:
        """Return all segments of the partition, and those that were learned."""
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


_Asked = tuple[_Found, int, ListedSegment]


def _ask(store: ObjectStore, asked: _Asked) -> tuple[_Asked, Segment | Damage | None]:
    return asked, _look_at(store, asked[2])


def _look_at(store: ObjectStore, listed: ListedSegment) -> Segment | Damage | None:
    """Read a segment's facts; None for an object that has gone since the listing."""
    key, item = listed
    info = store.head(item.key)
    if info is None:
        return None
    try:
        facts = facts_from_metadata(info.metadata, item.key) or _bounds_of(store, key, item.key, info.size)
        return None if facts is None else _segment(key, replace(item, size=info.size, etag=info.etag), facts)
    except NotWholeError as error:
        return Damage(key=key, message=str(error))


def _bounds_of(store: ObjectStore, key: SegmentKey, name: str, size: int) -> Bounds | None:
    from archiver.ends import read_bounds  # noqa: PLC0415 - its kernels take a second to load, and few archives need them

    return read_bounds(store, key, name, size)


def _segment(key: SegmentKey, item: ListedObject, facts: SegmentFacts | Bounds) -> Segment:
    return Segment(key=key, object_key=item.key, size=item.size, etag=item.etag, put_at=item.last_modified, facts=facts)
