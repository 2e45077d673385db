"""Lists the copies of compacted partitions: their gaps and damage, the end for readers, and the next offset for writers.

Used by turns, clearing, `status` and the return to `topics/`. It caches only facts of objects, by key and ETag, and
which objects were read. Entries, listings, pins and log ends are read for each decision.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

from archiver.archive.copies.copy_listings import ListedCopies, list_copies, list_copy_objects, list_instances
from archiver.archive.copies.copy_proof import settled_ends
from archiver.archive.copies.roles import (
    HISTORY,
    CompleteCopy,
    Generation,
    Holder,
    RoleEntry,
    RolePlace,
    read_newest_entry,
)
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import LAST_FACT_NUMBER, CopyKey, SegmentKey
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.archived_end import ArchivedEnd, position_of, position_of_copy
from archiver.archive.index.lookup import ask_facts
from archiver.archive.segments.listing import ListedSegment
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.segment_facts import HoleCause, SegmentFacts, named_facts
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.store.port import ListedObject, ReadBuffer


class ReadersEnd(NamedTuple):
    """The end of the records for readers."""

    offset: int  # at or above the end; a gap may end it earlier
    archived: Sequence[ArchivedEnd]  # of the current copy, and of the copy that it replaced


class CopyState(NamedTuple):
    """The offsets that the objects of a copy cover."""

    whole_to: int  # from offset 0 on, without a gap
    end: int  # the highest `next`, also behind a gap
    begins: int  # the log start when it was read
    problem: str = ""  # an unreadable object: then `end` is unknown
    has_expired: bool = False  # records expired in Kafka, behind others that were read, before they were read
    # Offsets up to which objects prove it complete, and the put times of these objects (ms).
    proven: tuple[tuple[int, int], ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.problem and self.whole_to == self.end

    @property
    def complete_to(self) -> int:
        """Offset up to which its objects prove that it has each record of the log, or a later one that replaced it."""
        return self.proven[-1][0] if self.proven else 0

    def proven_since_ms(self, offset: int) -> int | None:
        """Return the put time of the last object of the proof; None: it is not complete up to the offset."""
        return next((put_ms for end, put_ms in self.proven if end >= offset), None)

    def damage(self, copy: CompleteCopy) -> str:
        """Return why the current copy is not whole up to the end in its entry; empty: it is whole."""
        if self.problem:
            return f"is damaged: {self.problem}"
        if not self.is_whole or self.whole_to < copy.next:
            return f"has a gap at offset {self.whole_to}"
        return ""


NOTHING: Final = CopyState(0, 0, 0)


class _Span(NamedTuple):
    """The cached part of an object's facts."""

    base: int
    next: int
    begins: int
    lacks_until: int
    has_expired: bool


_ROW: Final = struct.Struct("<16sqqqq?")  # the mark and span of an object, compact: many copies may have many objects


@dataclass(slots=True)
class _Known:
    """The known objects of a copy, by mark."""

    spans: bytes = b""  # rows
    read: set[bytes] = field(default_factory=set)  # objects that this process has put, or read whole


class CopyCatalog:
    """Reads copies from object storage. Thread-safe, except for `read_bodies`: one thread at a time."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._known: dict[CopyKey, _Known] = {}
        self._buffer = ReadBuffer()

    # --- listings

    def list_life(self, topic: str, life: int) -> ListedCopies:
        """List the objects of all copies of a topic in one life, of any instance."""
        return list_copies(self.archive, list_instances(self.archive), topic, life)

    def list_copy(self, copy: CopyKey) -> list[ListedSegment]:
        """List the objects of one copy."""
        return [listed for _, listed in list_copy_objects(self.archive, self.archive.layout.copy_prefix(copy))]

    def highest_generation(self, place: RolePlace) -> int:
        """Return the highest number of a generation with an object, of any instance; -1: none."""
        store, layout, highest = self.archive.store, self.archive.layout, -1
        for instance in list_instances(self.archive):
            some = place.copy_key(Generation(instance=instance, number=0))
            parent = layout.copy_prefix(some).removesuffix("/").rpartition("/")[0] + "/"
            copies = (layout.parse_copy(f"{parent}{name}/") for name in store.list_directories(parent))
            numbers = (copy.generation for copy in copies if copy is not None)
            # No entry has begun a generation with a higher number.
            highest = max([highest, *(number for number in numbers if number < LAST_FACT_NUMBER)])
        return highest

    # --- wholeness

    def wholeness(self, copy: CopyKey, objects: Sequence[ListedSegment]) -> CopyState:
        """Return the coverage of a copy's listed objects, by the read rule. Reads the facts of each object once."""
        known = self._known.setdefault(copy, _Known())
        told = {row[0]: row for row in _ROW.iter_unpack(known.spans)}
        rows = {one.item.key: told[mark] for one in objects if (mark := _mark_of(one.item)) in told}
        problems: list[str] = []
        for seen in ask_facts(self.archive.store, [one for one in objects if one.item.key not in rows]):
            if isinstance(seen, Segment) and isinstance(seen.facts, SegmentFacts):
                rows[seen.object_key] = _mark(seen.object_key, seen.etag), *_span_of(seen.facts)
            else:
                problems.append(f"{seen.object_key}: has no facts" if isinstance(seen, Segment) else seen.message)
        if {row[0] for row in rows.values()} != told.keys():
            known.spans = b"".join(_ROW.pack(*row) for row in rows.values())
        put_ms = {one.item.key: epoch_ms(one.item.last_modified) for one in objects}
        state = _coverage((_Span(*row[1:]), put_ms[key]) for key, row in rows.items())
        return state._replace(problem=problems[0]) if problems else state

    def look_over(self, place: RolePlace, generation: Generation) -> CopyState:
        """List a copy, and return its coverage."""
        copy = place.copy_key(generation)
        return self.wholeness(copy, self.list_copy(copy))

    def forget_others(self, places: Collection[RolePlace], copies: ListedCopies) -> None:
        """Forget copies of these partitions that are no longer listed."""
        for copy in list(self._known):
            if RolePlace.of_copy(copy) in places and copy not in copies.get(copy.partition, {}):
                del self._known[copy]

    def forget_facts(self, copy: CopyKey) -> None:
        """Forget the coverage of a copy that is no longer watched, but not which of its objects were put here."""
        known = self._known.get(copy)
        if known is not None:
            known.spans = b""

    # --- bodies

    def note_put(self, copy: CopyKey, key: str, etag: str) -> None:
        """Note an object that this process has put: no other object can have its ETag."""
        self._known.setdefault(copy, _Known()).read.add(_mark(key, etag))

    def read_bodies(self, copy: CopyKey, objects: Iterable[ListedSegment], goes_on: Callable[[], bool]) -> bool:
        """Read the objects that this process has neither put nor read. Returns False if it was stopped. Raises NotWholeError.

        Facts are metadata, and prove nothing without the body. Takes as much memory as the largest object has bytes.
        """
        known = self._known.setdefault(copy, _Known())
        for one in objects:
            if not goes_on():
                return False
            if _mark_of(one.item) not in known.read:
                self._read_whole(copy, one)
                known.read.add(_mark_of(one.item))
        return True

    def _read_whole(self, copy: CopyKey, one: ListedSegment) -> None:
        from archiver.archive.segments.segment import open_segment  # noqa: PLC0415 - its kernels load slowly, and `status` needs none

        key = one.item.key
        found = self.archive.store.get_into(self._buffer, key)
        if found is None:
            raise CorruptSegmentError(f"{key}: was listed, and is gone")
        named_facts(found[1], one.key.base, one.key.next, key)
        for _ in open_segment(*found, key).frames(copy.topic, copy.partition):
            pass

    # --- ends

    def end_for_readers(self, place: RolePlace, entry: RoleEntry, history_begin: int = 0) -> ReadersEnd:
        """Return the end of the current copy, and its tail. `history_begin`: the begin of the partition's life under `topics/`."""
        # Without a current copy, readers have the history under `topics/`.
        named = (entry.holder or HISTORY, entry.replaced)
        archived = [self._end_of(place, holder) for holder in named]
        read = [one.position for one in named if isinstance(one, CompleteCopy)]
        begun = [history_begin] if HISTORY in named else []
        return ReadersEnd(max(0, *(one.next for one in archived), *read, *begun), archived)

    def _end_of(self, place: RolePlace, holder: Holder) -> ArchivedEnd:
        """Return the end of the newest object; if that is damaged, its begin: readers skip a damaged object.

        Otherwise damage in the current copy would keep whole copies from replacing it.
        """
        if holder is None:
            return ArchivedEnd()
        copy = place.copy_key(holder.generation) if isinstance(holder, CompleteCopy) else None
        try:
            if copy is not None:
                return position_of_copy(self.archive, copy)
            return position_of(self.archive, place.topic, place.life, place.partition)
        except CorruptSegmentError:
            keys = (one.key for one in self.list_copy(copy)) if copy is not None else self._list_history(place)
            return ArchivedEnd(next=max((key.base for key in keys), default=0))

    def has_history(self, place: RolePlace, earlier: Collection[int] = (), begin: int = 0) -> bool:
        """Return whether readers of a life without a copy have the history under `topics/`.

        `earlier`: the lives that it continues from `begin` on. Their copy is read while this life has no current copy: it
        has everything up to the truncation, and `topics/` ends at its begin.
        """
        if any(self._is_copy_read(replace(place, life=life)) for life in earlier):
            return False
        return begin > 0 or any(True for _ in self._list_history(place))

    def _is_copy_read(self, place: RolePlace) -> bool:
        try:
            newest = read_newest_entry(self.archive, place)
        except NotWholeError:
            return False
        return newest is not None and isinstance(newest.entry.holder, CompleteCopy)

    def _list_history(self, place: RolePlace) -> Iterable[SegmentKey]:
        layout = self.archive.layout
        prefix = layout.partition_prefix(place.topic, place.life, place.partition)
        found = (layout.parse_segment(item.key) for item in self.archive.store.list(prefix))
        return (key for key in found if key is not None)


def _mark_of(item: ListedObject) -> bytes:
    return _mark(item.key, item.etag)


def _mark(key: str, etag: str) -> bytes:
    return hashlib.blake2b(f"{key}\n{etag}".encode(), digest_size=16).digest()


def _span_of(facts: SegmentFacts) -> _Span:
    begins = facts.base
    for hole in sorted(facts.holes, key=lambda hole: hole.first_offset):
        if hole.cause is HoleCause.EXPIRED and hole.first_offset <= begins:
            begins = max(begins, hole.last_offset + 1)
    above = facts.first if facts.base == 0 else -1  # a hole before the first record of a copy: the log began behind it
    lacks_until = facts.lacks_until(0 if facts.base else begins)
    return _Span(facts.base, facts.next, begins, lacks_until, facts.expired_above(above) is not None)


def _coverage(spans: Iterable[tuple[_Span, int]]) -> CopyState:
    """Yield objects by the read rule, from offset 0 on: each with its put time (ms)."""
    position = begins = 0
    in_order, read = sorted(spans, key=lambda one: (one[0].base, -one[0].next)), list[tuple[_Span, int]]()
    for span, put_ms in in_order:
        if span.base > position:
            break
        if span.next <= position:  # shadowed
            continue
        begins = span.begins if position == 0 else begins
        position = span.next
        read.append((span, put_ms))
    ends = settled_ends((span.next, span.lacks_until) for span, _ in read)
    puts = accumulate((put_ms for _, put_ms in read), max)
    proven = tuple((offset, put_ms) for (offset, is_settled), put_ms in zip(ends, puts, strict=True) if is_settled)
    end = max((span.next for span, _ in in_order), default=0)
    return CopyState(position, end, begins, has_expired=any(span.has_expired for span, _ in in_order), proven=proven)
