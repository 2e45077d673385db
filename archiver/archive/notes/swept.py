"""Notes the offsets that sweeps have deleted from a partition, so that readers do not report them as lost (docs/format.md §14)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from pydantic import Field, Strict

from archiver.archive.format.control import decode_facts, newest_listed
from archiver.archive.format.fact_model import BoundedText, Item, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET, is_topic_name
from archiver.archive.format.note_stream import NoteKind, NoteStream
from archiver.errors import ArchiverError, StoreTemporaryError
from archiver.process.values.json_values import spelled_number

SWEPT: Final = "swept"
MOST_RANGES: Final = 100_000  # held objects between deleted ones
_KEPT_FACTS: Final = 100
_Offset = Annotated[int, Strict(), Field(ge=0, le=MOST_OFFSET)]
Range = tuple[int, int]  # begin, and exclusive end


class SweptPlace(NamedTuple):
    """A partition in one life."""

    topic: str
    life: int
    partition: int

    @property
    def stream(self) -> str:
        return f"{SWEPT}/{self.topic}/{self.life}/{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """Sets of offsets: ranges that neither meet nor touch, in order."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> "OffsetRanges":
        """Join ranges in any order; leave out empty ones."""
        joined: list[Range] = []
        for start, stop in sorted(one for one in ranges if one[0] < one[1]):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], stop)
            else:
                joined.append((start, stop))
        return cls(tuple(joined))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def plus(self, other: "OffsetRanges") -> "OffsetRanges":
        return OffsetRanges.of([*self.ranges, *other.ranges])

    def minus(self, other: "OffsetRanges") -> "OffsetRanges":
        return OffsetRanges.of(piece for start, stop in self.ranges for piece in other.outside(start, stop))

    def within(self, start: int, stop: int) -> Iterator[Range]:
        """Yield the parts between two offsets."""
        place = max(bisect_right(self.ranges, (start, MOST_OFFSET + 1)) - 1, 0)
        for first, last in self.ranges[place:]:
            if first >= stop:
                return
            if max(first, start) < min(last, stop):
                yield max(first, start), min(last, stop)

    def outside(self, start: int, stop: int) -> Iterator[Range]:
        """Yield the parts between two offsets that are in no range."""
        position = start
        for first, last in self.within(start, stop):
            yield position, first
            position = last
        yield position, stop


NOTHING_SWEPT: Final = OffsetRanges()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Swept:
    """The ranges of a partition, in one life, that a sweep has deleted or is about to delete. The newest fact has all of them.

    `noted_ms`: the time of the last note before a deletion, by the store's clock; 0: unknown. `noted_by`: the run that put it;
    empty: unknown, or another run had put a note shortly before.
    """

    topic: BoundedText
    life: Number
    partition: Number
    ranges: Annotated[tuple[Item[tuple[_Offset, _Offset]], ...], Field(max_length=MOST_RANGES)]
    noted_ms: Number = 0
    noted_by: BoundedText = ""

    def __post_init__(self) -> None:
        position = -1
        for start, stop in self.ranges:
            if not position < start < stop:
                raise ValueError(f"ranges that are not in order, at {start}")
            position = stop


_KIND: Final = NoteKind(
    _Swept,
    "swept offsets",
    "bring its older version back",
    lambda swept: SweptPlace(swept.topic, swept.life, swept.partition).stream,
)


def _notes_of(archive: Archive, place: SweptPlace) -> NoteStream[_Swept]:
    return _KIND.at(archive, place.stream)


def _ranges_of(found: _Swept | None) -> OffsetRanges:
    return NOTHING_SWEPT if found is None else OffsetRanges(found.ranges)


def read_swept(archive: Archive, topic: str) -> Mapping[SweptPlace, OffsetRanges]:
    """Read the deleted ranges of a topic in all its lives. Raises NotWholeError."""
    numbers = newest_listed(archive, f"{SWEPT}/{topic}")
    places = {stream: place for stream in numbers if (place := _place_of(stream)) is not None}
    wanted = {stream: numbers[stream] for stream in places}
    found = decode_facts(archive, wanted, lambda stream, fact: _ranges_of(_KIND.decode(fact, archive, stream)))
    return {place: found[stream] for stream, place in places.items()}


def read_swept_place(archive: Archive, place: SweptPlace) -> OffsetRanges:
    """Read the deleted ranges of one partition in one life. Raises NotWholeError."""
    return read_swept_note(archive, place)[0]


def read_swept_note(archive: Archive, place: SweptPlace) -> tuple[OffsetRanges, int]:
    """Read the same, and the time of a sweep's last note before deleting (0: unknown). Raises NotWholeError."""
    found = _notes_of(archive, place).read()
    return _ranges_of(found), 0 if found is None else found.noted_ms


def was_swept(archive: Archive, place: SweptPlace, offset: int) -> bool:
    """Return whether an offset recently counted as swept, even if it was withdrawn since. Raises NotWholeError."""
    notes = _notes_of(archive, place).history()
    return any(one for note in notes for one in _ranges_of(note.value).within(offset, offset + 1))


class Noting(NamedTuple):
    """The run that notes a deletion, and the time. Another run's note within `beside_ms` may belong to a simultaneous deletion."""

    run: str
    now_ms: int
    beside_ms: int

    def is_alone(self, before: _Swept | None) -> bool:
        is_beside = before is not None and abs(self.now_ms - before.noted_ms) < self.beside_ms
        return before is None or not is_beside or before.noted_by == self.run


def note_going(archive: Archive, place: SweptPlace, ranges: OffsetRanges, noting: Noting) -> None:
    """Note that ranges are about to be deleted, even if they already count as swept: other runs do not withdraw them for a while."""
    _write(archive, place, lambda before: before.plus(ranges), noting)


def add_swept(archive: Archive, place: SweptPlace, ranges: OffsetRanges) -> OffsetRanges:
    """Note that ranges are deleted, in addition to earlier ones. Returns the resulting ranges."""
    return _write(archive, place, lambda before: before.plus(ranges))


def take_back_swept(
    archive: Archive, place: SweptPlace, ranges: OffsetRanges, noted_by: str | None = None
) -> OffsetRanges:
    """Remove ranges that were not deleted, so that a later loss is reported. Returns the resulting ranges.

    `noted_by`: remove only if no other run has recently put a note: it may be about to delete its noted ranges.
    """
    return _write(archive, place, lambda before: before.minus(ranges), noted_by=noted_by)


def clear_old_swept(archive: Archive, place: SweptPlace) -> None:
    """Delete old facts. Enough remain for readers that listed them some time ago."""
    old = _notes_of(archive, place).keys_of_old(_KEPT_FACTS)
    if old:
        with suppress(StoreTemporaryError):  # a later sweep deletes them
            archive.store.delete(old)


def _write(
    archive: Archive,
    place: SweptPlace,
    change: Callable[[OffsetRanges], OffsetRanges],
    noting: Noting | None = None,
    *,
    noted_by: str | None = None,
) -> OffsetRanges:
    """Append the result of a change to the newest ranges, if it differs; with `noting`, always."""

    def noted(found: _Swept | None) -> _Swept | None:
        before = _ranges_of(found)
        if noted_by is not None and (found is None or found.noted_by != noted_by):
            return None
        after = change(before)
        if after == before and noting is None:
            return None
        if len(after.ranges) > MOST_RANGES:  # readers would refuse it, and all ranges would count as lost
            raise ArchiverError(
                f"{archive.layout.control_prefix(place.stream)}: would name {len(after.ranges):,} ranges, and readers take"
                f" {MOST_RANGES:,}; release the holds between them"
            )
        known = (0, "") if found is None else (found.noted_ms, found.noted_by)
        if noting is not None:
            known = noting.now_ms, noting.run if noting.is_alone(found) else ""
        return _Swept(
            topic=place.topic,
            life=place.life,
            partition=place.partition,
            ranges=after.ranges,
            noted_ms=known[0],
            noted_by=known[1],
        )

    return _ranges_of(_notes_of(archive, place).update(noted))


def _place_of(stream: str) -> SweptPlace | None:
    """Parse a stream of swept ranges; None for other streams."""
    try:
        kind, topic, life, partition = stream.split("/")
        found = SweptPlace(topic, spelled_number(life), spelled_number(partition))
    except ValueError:
        return None
    return found if kind == SWEPT and is_topic_name(topic) else None


def spell_ranges(ranges: Sequence[Range]) -> str:
    """Spell ranges as gaps are spelled: both ends included."""
    return ", ".join(f"{start}-{stop - 1}" for start, stop in ranges)
