"""The offset ranges of objects that a plan reads, as columns: small enough for millions. Restores and readers use them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.format.layout import Layout, chosen_name, offsets_name
from archiver.archive.segments.partition_segments import Readings, SegmentSlice, blocks_of
from archiver.archive.segments.segment_facts import PartFacts, SegmentFacts, check_named
from archiver.codec.selection import FIRST_LONG, LAST_LONG, Selection
from archiver.errors import FalseFactsError
from archiver.process.values.columns import Chain, Lazy, Numbers, Places, Texts, narrow, same


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """The records of one object at or above an offset, and below `until_offset` if that is given."""

    object_key: str
    from_offset: int
    until_offset: int | None = None
    next_offset: int | None = None  # the end of the object's coverage, if known
    chosen_key: str | None = None  # the key of the list of wanted records; None: all are wanted
    # The facts that the plan has noted; None without facts.
    planned: PartFacts | None = field(default=None, compare=False)

    @classmethod
    def of(cls, reading: SegmentSlice) -> "ObjectPart":
        return cls(
            object_key=reading.segment.object_key,
            from_offset=reading.from_offset,
            until_offset=reading.until_offset,
            next_offset=reading.segment.facts.next,
        )

    @property
    def end_offset(self) -> int | None:
        """The end offset of the reading; None where only the object itself shows it."""
        return min((end for end in (self.until_offset, self.next_offset) if end is not None), default=None)

    def __str__(self) -> str:
        end = self.end_offset
        return f"offsets {self.from_offset}-{'' if end is None else end - 1} in {self.object_key}"

    def describe_damage(self, error: object) -> str:
        """Describe a problem with the object of this part; the error's text may begin with its key."""
        return f"{self}: {str(error).removeprefix(f'{self.object_key}: ')}"


PART_COLUMNS: Final = ("base", "named_next", "rewrite", "from_offset", "until_offset", "next_offset")


class Chosen(NamedTuple):
    """The lists of wanted records of some objects: the common beginning of their keys, and the digest of each."""

    stem: str
    digests: Texts


class ObjectParts(Lazy[ObjectPart]):
    """Parts of segments of one partition in one life, as columns; wanted are all records, or only chosen ones."""

    def __init__(
        self, stem: str, *columns: Numbers, chosen: Chosen | None = None, planned: "FactsOfParts | None" = None
    ) -> None:
        self.stem = stem  # the common beginning of the keys of all objects
        self.columns = columns  # PART_COLUMNS; 0 means none: no next in the name, no end of the reading
        self.chosen = chosen  # None: all records are wanted
        self.planned = planned

    @classmethod
    def join(cls, several: Sequence["ObjectParts"]) -> "ObjectParts":
        """Join parts that have the same stem."""
        columns = zip(*(one.columns for one in several), strict=True)
        chosen = [one.chosen for one in several if one.chosen is not None]
        digests = Chosen(chosen[0].stem, Texts.join([one.digests for one in chosen])) if chosen else None
        return cls(several[0].stem, *map(np.concatenate, columns), chosen=digests)

    def __len__(self) -> int:
        return len(self.columns[0])

    def only(self, places: Places) -> "ObjectParts":
        chosen = None if self.chosen is None else self.chosen._replace(digests=self.chosen.digests.only(places))
        planned = None if self.planned is None else self.planned.only(places)
        return ObjectParts(self.stem, *(column[places] for column in self.columns), chosen=chosen, planned=planned)

    def with_planned(self, planned: "FactsOfParts") -> "ObjectParts":
        """Return the same parts with the facts that a plan has noted."""
        return ObjectParts(self.stem, *self.columns, chosen=self.chosen, planned=planned)

    def with_chosen(self, chosen: Chosen) -> "ObjectParts":
        """Return the same parts restricted to chosen records."""
        return ObjectParts(self.stem, *self.columns, chosen=chosen)

    def value(self, place: int) -> ObjectPart:
        base, named_next, rewrite, first, until, following = (int(column[place]) for column in self.columns)
        return ObjectPart(
            object_key=f"{self.stem}{offsets_name(base, named_next or None, rewrite)}",
            from_offset=first,
            until_offset=until or None,
            next_offset=following,
            chosen_key=self.chosen and f"{self.chosen.stem}{chosen_name(self.chosen.digests[place])}",
            planned=None if self.planned is None else self.planned.value(place),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectParts):
            return super().__eq__(other)
        is_same = self.stem == other.stem and all(map(np.array_equal, self.columns, other.columns))
        return is_same and self.chosen == other.chosen

    __hash__ = None


def parts_within(readings: Sequence[SegmentSlice], selection: Selection) -> Sequence[ObjectPart]:
    """Return the parts of readings within a selection, by offsets alone. Times are compared later, record by record."""
    return Chain(_parts_of(block, selection) for block in blocks_of(readings))


def _parts_of(readings: Readings, selection: Selection) -> ObjectParts:
    segments, from_offset = readings.segments, readings.from_offset
    until = same(0, len(readings)) if readings.until_offset is None else readings.until_offset
    if selection.first_offset > 0:
        from_offset = np.maximum(from_offset.astype(np.int64), selection.first_offset)
    if selection.last_offset < LAST_LONG:
        end = selection.last_offset + 1
        until = np.where(until > 0, np.minimum(until.astype(np.int64), end), end)
    names = segments.numbers("base"), segments.named_next, segments.numbers("rewrite")
    return ObjectParts(segments.stem, *names, from_offset, until, segments.numbers("next"))


def are_chosen(parts: Sequence[ObjectPart]) -> bool:
    """Return whether the parts have chosen records: all parts have them, or none."""
    return bool(parts) and parts[0].chosen_key is not None


def with_planned(parts: Sequence[ObjectPart], facts: Sequence[PartFacts]) -> Sequence[ObjectPart]:
    """Return the same parts with the facts that a plan has noted. Facts of chosen records cover only those records."""
    if are_chosen(parts):
        return parts
    blocks, start = list[Sequence[ObjectPart]](), 0
    for block in Chain([parts]).blocks:
        told = facts[start : start + len(block)]
        start += len(block)
        if isinstance(block, ObjectParts):
            blocks.append(block.with_planned(FactsOfParts.of(told)))
        else:
            blocks.append([replace(part, planned=one) for part, one in zip(block, told, strict=True)])
    return Chain(blocks)


def check_planned(part: ObjectPart, facts: SegmentFacts | None) -> None:
    """Compare an object's own facts (None: it is of v1.0) with the facts of its plan. Raises FalseFactsError.

    Plans use facts of the index and are stored below `control/`, where other writers may change them.
    """
    if facts is None:
        told = None if part.planned is None or part.planned.is_unknown else "it has no facts"
    else:
        named = Layout.parse_segment_name(part.object_key.rpartition("/")[2])
        if named is not None:
            check_named(facts, named.base, named.next, part.object_key)
        told = _differing(part, facts)
    if told:
        raise FalseFactsError(
            f"{part.object_key}: {told}: the index of facts, or the noted plan, is false of it, and may hide other objects. Set"
            " storage.index to ignore, or delete control/index/, which is a cache, and run again (a restore: with another --id,"
            " into an empty target); look who may write below control/"
        )


def _differing(part: ObjectPart, facts: SegmentFacts) -> str:
    found = [("next", part.next_offset, facts.next)] if part.next_offset is not None else []
    if part.planned is not None:
        is_exact = part.from_offset <= facts.first and (part.until_offset is None or part.until_offset > facts.last)
        own = (is_exact, *(getattr(facts, name) for name in PartFacts._fields[1:]))
        found += zip(PartFacts._fields, part.planned, own, strict=True)
    return ", ".join(
        f"{name.replace('_', '-')} is {there}, planned was {planned}"
        for name, planned, there in found
        if planned != there
    )


class FactsOfParts(Lazy[PartFacts]):
    """The noted facts of parts in a plan, as columns."""

    def __init__(self, *columns: Numbers) -> None:
        self.columns = columns  # by the fields of PartFacts

    @classmethod
    def of(cls, facts: Sequence[PartFacts]) -> "FactsOfParts":
        if isinstance(facts, FactsOfParts):
            return facts
        exact, *numbers = zip(*facts, strict=True) if facts else [()] * len(PartFacts._fields)
        return cls(np.array(exact, bool), *(narrow(np.array(column, np.int64)) for column in numbers))

    @classmethod
    def of_parts(cls, parts: Sequence[ObjectPart], readings: Sequence[SegmentSlice]) -> "FactsOfParts":
        """Derive the facts of parts from the facts of their objects."""
        blocks = zip(Chain([parts]).blocks, blocks_of(readings), strict=True)
        return cls.join([_facts_of(part, reading) for part, reading in blocks if isinstance(part, ObjectParts)])

    @classmethod
    def join(cls, several: Sequence["FactsOfParts"]) -> "FactsOfParts":
        if len(several) == 1:
            return several[0]
        columns = zip(*(one.columns for one in several), strict=True)
        return cls(*map(np.concatenate, columns)) if several else cls.of(())

    def __len__(self) -> int:
        return len(self.columns[0])

    def only(self, places: Places) -> "FactsOfParts":
        return FactsOfParts(*(column[places] for column in self.columns))

    def value(self, place: int) -> PartFacts:
        exact, *numbers = (column[place] for column in self.columns)
        return PartFacts(bool(exact), *map(int, numbers))

    def numbers(self, name: str) -> Numbers:
        return self.columns[PartFacts._fields.index(name)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactsOfParts):
            return super().__eq__(other)
        return all(map(np.array_equal, self.columns, other.columns))

    __hash__ = None


def _facts_of(parts: ObjectParts, readings: Readings) -> FactsOfParts:
    segments = readings.segments
    *_, first, until, _ = parts.columns
    is_exact = (first <= segments.numbers("first")) & ((until == 0) | (until > segments.numbers("last")))
    has_facts = segments.has_facts
    columns = {name: segments.numbers(name) for name in PartFacts._fields[1:]}
    if not has_facts.all():  # the size of records of v1.0 is unknown: the object's own size replaces it
        size, is_exact = segments.numbers("size"), is_exact & has_facts
        ends = {"min_timestamp": np.int64(FIRST_LONG), "max_timestamp": np.int64(LAST_LONG)}
        unknown = ends | {"bytes": size, "source_bytes": size}
        columns |= {name: np.where(has_facts, columns[name], value) for name, value in unknown.items()}
    return FactsOfParts(is_exact, *columns.values())
