"""Holds all segments of a partition in columns, with their readings: the offsets to read of each segment. Inventories consist of them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from archiver.archive.format.layout import SegmentKey, offsets_name, stem_of
from archiver.archive.segments.entries import Entries, IndexEntry
from archiver.archive.segments.listing import Partition, moment_of, ticks_of
from archiver.archive.segments.segment_facts import Bounds, Hole, HoleCause, SegmentFacts, check_named
from archiver.process.values.columns import Chain, Lazy, Numbers, Places, as_slice, chunks

_UNKNOWN: Final = -(2**63)  # ticks of an unknown moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One object: the parts of its key, and its facts, or the bounds of a v1.0 object."""

    key: SegmentKey
    object_key: str
    size: int
    etag: str = ""  # of the object with these facts
    put_at: datetime | None = None  # by the store's clock
    facts: SegmentFacts | Bounds

    def __post_init__(self) -> None:
        check_named(self.facts, self.key.base, self.key.next, self.object_key)

    @property
    def entry(self) -> IndexEntry:
        return IndexEntry(self.key, self.size, self.etag, self.facts)

    @property
    def put_ticks(self) -> int:
        return _UNKNOWN if self.put_at is None else ticks_of(self.put_at)


class Segments(Lazy[Segment]):
    """Segments of one partition in one life: some entries of the topic directory, and the put times of their objects."""

    def __init__(self, partition: Partition, stem: str, entries: Entries, rows: Places, put: Numbers) -> None:
        self.partition = partition
        self.stem = stem  # the common beginning of all keys
        self._entries = entries
        self._rows = rows
        self.put = put  # ticks

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "Segments":
        """Make columns of segments of one partition in one life."""
        key = segments[0].key
        return cls(
            (key.topic, key.life, key.partition),
            stem_of(segments[0].object_key),
            Entries.of([one.entry for one in segments]),
            slice(0, len(segments)),
            np.array([one.put_ticks for one in segments], np.int64),
        )

    def __len__(self) -> int:
        return len(self.put)

    def only(self, places: Places) -> "Segments":
        rows = (
            np.arange(self._rows.start, self._rows.stop, dtype=np.int32)
            if isinstance(self._rows, slice)
            else self._rows
        )
        return Segments(self.partition, self.stem, self._entries, as_slice(rows[places]), self.put[places])

    def value(self, place: int) -> Segment:
        row = self._rows.start + place if isinstance(self._rows, slice) else int(self._rows[place])
        (key, size, etag, facts), put = self._entries.entry(row, *self.partition[:2]), int(self.put[place])
        return Segment(
            key=key,
            object_key=f"{self.stem}{offsets_name(key.base, key.next, key.rewrite)}",
            size=size,
            etag=etag,
            put_at=None if put == _UNKNOWN else moment_of(put),
            facts=facts,
        )

    def numbers(self, name: str) -> Numbers:
        """Return a column (archiver.archive.segments.entries); for a v1.0 object most columns have zero."""
        return self._entries.numbers(name)[self._rows]

    @property
    def entries(self) -> Entries:
        """Return the entries of these segments alone."""
        return self._entries.only(self._rows)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle these segments alone, without the other entries of the topic directory."""
        return Segments, (self.partition, self.stem, self.entries, slice(0, len(self)), self.put)

    @property
    def named_next(self) -> Numbers:
        """Return the `next` in each name; 0 without one."""
        return self._entries.named_next(self._rows)

    @property
    def has_facts(self) -> Numbers:
        """Return for each segment whether it has facts; a segment without facts is of v1.0."""
        return self._entries.has_facts(self._rows)

    @property
    def known(self) -> "Segments":
        """Return only the segments with facts: all except v1.0."""
        has_facts = self.has_facts
        return self if has_facts.all() else self.only(np.flatnonzero(has_facts))

    @property
    def of_v1(self) -> "Segments":
        """Return only the segments of v1.0."""
        return self.only(np.flatnonzero(~self.has_facts))

    def put_since(self, moment_s: int) -> "Segments":
        """Return the segments put at a moment or later, and those with an unknown put time."""
        return self.only(np.flatnonzero((self.put == _UNKNOWN) | (self.put >= moment_s * 1_000_000)))

    @property
    def last_put(self) -> datetime | None:
        known = self.put[self.put != _UNKNOWN]
        return moment_of(int(known.max())) if len(known) else None

    def places_with_holes(self) -> Places:
        """Return the places of segments with holes."""
        has_holes = np.array([trait is not None and bool(trait.holes) for trait in self._entries.traits], bool)
        return np.flatnonzero(has_holes[self.numbers("kind")]) if has_holes.any() else slice(0, 0)

    def facts_with_holes(self) -> Iterator[SegmentFacts]:
        """Make the facts of the segments with holes."""
        with_holes = self.only(self.places_with_holes())
        return (one.facts for one in with_holes if isinstance(one.facts, SegmentFacts))

    def origins(self) -> dict[tuple[str, str], int]:
        """Count the objects by the topic id and cluster id of their facts."""
        kinds, counts = np.unique(self.numbers("kind"), return_counts=True)
        found: dict[tuple[str, str], int] = {}
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            trait = self._entries.traits[kind]
            if trait is not None:  # v1.0 names neither
                origin = trait.topic_id, trait.cluster_id
                found[origin] = found.get(origin, 0) + count
        return found

    def object_keys(self) -> Iterator[str]:
        """Spell the keys of the objects."""
        names = self.numbers("base"), self.named_next, self.numbers("rewrite")
        for places in chunks(len(self)):
            for base, named, rewrite in zip(*(column[places].tolist() for column in names), strict=True):
                yield f"{self.stem}{offsets_name(base, named or None, rewrite)}"

    def content_ids(self) -> Iterator[str]:
        """Return for each segment the id of its content: its digest, or the ETag of a v1.0 object."""
        rows, has_facts = self._rows, self.has_facts
        digests, etags = (self._entries.texts(name).only(rows) for name in ("sha256", "etag"))
        for places in chunks(len(self)):
            facts = has_facts[places]
            if facts.all():
                yield from digests.texts(places)
            else:
                both = zip(facts.tolist(), digests.texts(places), etags.texts(places), strict=True)
                yield from (digest if is_known else etag for is_known, digest, etag in both)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSlice:
    """The records of a segment at or above an offset, and below `until_offset` if that is given."""

    segment: Segment
    from_offset: int
    until_offset: int | None = None

    @property
    def next(self) -> int:
        """The offset where the reading ends."""
        return self.segment.facts.next if self.until_offset is None else self.until_offset

    @property
    def holes(self) -> Sequence[Hole]:
        facts = self.segment.facts
        return facts.holes if isinstance(facts, SegmentFacts) else ()


class Readings(Lazy[SegmentSlice]):
    """Readings of segments, in the order of their offsets."""

    def __init__(self, segments: Segments, from_offset: Numbers, until_offset: Numbers | None = None) -> None:
        self.segments = segments
        self.from_offset = from_offset
        self.until_offset = until_offset  # 0: up to the segment's end; None: all end there

    def __len__(self) -> int:
        return len(self.from_offset)

    def only(self, places: Places) -> "Readings":
        until = None if self.until_offset is None else self.until_offset[places]
        return Readings(self.segments.only(places), self.from_offset[places], until)

    def value(self, place: int) -> SegmentSlice:
        until = 0 if self.until_offset is None else int(self.until_offset[place])
        return SegmentSlice(
            segment=self.segments[place], from_offset=int(self.from_offset[place]), until_offset=until or None
        )

    @property
    def objects(self) -> Segments:
        """Return the segments, none twice: a merged one is read in parts between plain ones."""
        if self.until_offset is None:
            return self.segments
        names = self.segments.numbers("base"), self.segments.named_next, self.segments.numbers("rewrite")
        first = np.unique(np.stack([one.astype(np.int64) for one in names]), axis=1, return_index=True)[1]
        return self.segments if len(first) == len(self) else self.segments.only(as_slice(np.sort(first)))

    @property
    def next(self) -> Numbers:
        """Return the offset where each reading ends."""
        following = self.segments.numbers("next")
        return following if self.until_offset is None else np.where(self.until_offset > 0, self.until_offset, following)

    def uncovered(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges between two offsets that no reading covers; holes within segments count as not covered."""
        first, stop = (np.clip(ends.astype(np.int64), start, max(start, end)) for ends in (self.from_offset, self.next))
        begins, ends = np.concatenate(([start], stop)), np.concatenate((first, [end]))
        gaps = [(int(begins[place]), int(ends[place])) for place in np.flatnonzero(ends > begins)]
        return gaps + self.holes(start, end)

    def holes(self, start: int, end: int, causes: Collection[HoleCause] = tuple(HoleCause)) -> list[tuple[int, int]]:
        """Return the holes between two offsets, as ranges whose ends are not included."""
        holes = (
            (max(hole.first_offset, reading.from_offset, start), min(hole.last_offset + 1, reading.next, end))
            for reading in self.only(self.segments.places_with_holes())
            for hole in reading.holes
            if hole.cause in causes
        )
        return [hole for hole in holes if hole[0] < hole[1]]

    def above(self, offset: int) -> "Readings":
        """Leave out everything below an offset."""
        kept = self.next > offset
        left = self if kept.all() else self.only(as_slice(np.flatnonzero(kept)))
        if not len(left) or int(left.from_offset.min()) >= offset:
            return left
        return Readings(left.segments, np.maximum(left.from_offset.astype(np.int64), offset), left.until_offset)

    def below(self, offset: int) -> "Readings":
        """Leave out everything at or above an offset."""
        kept = self.from_offset < offset
        left = self if kept.all() else self.only(as_slice(np.flatnonzero(kept)))
        ends = left.next
        if not len(left) or int(ends.max()) <= offset:
            return left
        until = np.zeros(len(left), np.int64) if left.until_offset is None else left.until_offset
        return Readings(left.segments, left.from_offset, np.where(ends > offset, offset, until))


def blocks_of(readings: Sequence[SegmentSlice]) -> tuple[Readings, ...]:
    """Split readings of several lives by life: columns have only one life."""
    return tuple(block if isinstance(block, Readings) else _readings(block) for block in Chain([readings]).blocks)


def unreadable_within(readings: Sequence[SegmentSlice], start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges, ends not included, where Kafka had batches that no backup could read."""
    return [hole for block in blocks_of(readings) for hole in block.holes(start, end, (HoleCause.UNREADABLE,))]


def segment_blocks(segments: Sequence[Segment]) -> tuple[Segments, ...]:
    """Split segments of several partitions by partition."""
    return tuple(block if isinstance(block, Segments) else Segments.of(block) for block in Chain([segments]).blocks)


def _readings(readings: Sequence[SegmentSlice]) -> Readings:
    return Readings(
        Segments.of([one.segment for one in readings]),
        np.array([one.from_offset for one in readings], np.int64),
        np.array([one.until_offset or 0 for one in readings], np.int64),
    )
