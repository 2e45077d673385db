"""Compares a partition's noted plan with the present one, object by object, in columns: plans have millions of objects."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.format.layout import Layout, offsets_name, stem_of
from archiver.archive.segments.parts import PART_COLUMNS, Chosen, FactsOfParts, ObjectPart, ObjectParts, are_chosen
from archiver.archive.segments.segment_facts import PartFacts
from archiver.process.values.columns import Chain, Numbers, Texts, total
from archiver.restore.plan.restore_plan import PartitionPlan

_CHOSEN_NAME: Final = re.compile(r"([0-9a-f]{24})\.offsets", re.ASCII)
_DIGEST_DIGITS: Final = 24
_UNTOLD: Final = -1  # the end of an object's coverage
_BOUNDS: Final = (
    "records",
    "bytes",
    "largest_record",
    "max_timestamp",
)  # smaller for some of an object's records


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The archive's objects of one partition: each object of its plan must be among them."""

    layout: Layout
    topic: str
    life: int  # or an earlier life that this life continues
    partition: int
    chosen_stem: str  # common beginning of the keys of lists of chosen records
    stems: frozenset[str] = frozenset()  # common beginnings of the keys of objects in copies

    def place_of(self, key: str) -> tuple[str, int, int] | None:
        """Return the topic, life and partition of an object that may be read; None for any other object."""
        found = self.layout.split_segment(key)
        if found is not None:
            return found[0]
        return self.layout.place_of(key) if key.rpartition("-")[0] + "-" in self.stems else None


class _Block(NamedTuple):
    """Parts of one directory, and their facts."""

    life: int
    parts: ObjectParts
    facts: FactsOfParts

    def __len__(self) -> int:
        return len(self.parts)

    def column(self, name: str) -> Numbers:
        return self.parts.columns[PART_COLUMNS.index(name)]

    @property
    def ends(self) -> Numbers:
        """Return the end offset of each part; below 0: only the object itself has it."""
        until, following = self.column("until_offset").astype(np.int64), self.column("next_offset").astype(np.int64)
        return np.where((until > 0) & ((following < 0) | (until < following)), until, following)

    def key(self, place: int) -> str:
        return self.parts[place].object_key


def difference(noted: PartitionPlan, present: PartitionPlan, source: Source, *, may_lack: bool) -> str:
    """Return how a noted plan contradicts the archive; empty: not at all. Raises ValueError and TypeError if it is none of this partition.

    Objects put after the plan, or deleted since, are no contradiction. `may_lack`: nor are objects that the plan left
    out before its end, which were damaged then and may have been mended.
    """
    ours, theirs = list(_blocks(noted, source)), list(_blocks(present, source))
    if noted.records != total(FactsOfParts.of(noted.facts).numbers("records")):
        return f"has {noted.records} records, not those of its objects"
    matches = [_Match.of(block, theirs, source.life) for block in ours]
    is_narrowed = are_chosen(noted.parts) and not are_chosen(present.parts)
    problem = _disorder(ours) or next(filter(None, (one.change(is_narrowed=is_narrowed) for one in matches)), "")
    problem = problem or next(filter(None, (_stray(one, theirs) for one in matches)), "")
    return problem or ("" if is_narrowed or may_lack else _lack(ours, theirs, matches))


def later(noted: PartitionPlan, present: PartitionPlan, source: Source) -> tuple[int, int]:
    """Count the archived objects after the noted plan, and an upper bound of their records."""
    ours = list(_blocks(noted, source))
    end = int(ours[-1].ends[-1]) if ours else 0
    behind = [(block, block.column("from_offset") >= end) for block in _blocks(present, source)]
    objects = sum(int(places.sum()) for _, places in behind)
    return objects, sum(total(block.facts.numbers("records")[places]) for block, places in behind)


# --- the parts of a plan


def _blocks(plan: PartitionPlan, source: Source) -> Iterator[_Block]:
    facts, begin = FactsOfParts.of(plan.facts), 0
    if len(facts) != len(plan.parts):
        raise ValueError(f"facts of {len(facts)} objects, not of {len(plan.parts)}")
    for parts in Chain([plan.parts]).blocks:
        for block in [parts] if isinstance(parts, ObjectParts) else _columns(parts, source):
            end = begin + len(block)
            yield _Block(_life_of(block, source), block, facts.only(slice(begin, end)))
            begin = end


def _columns(parts: Sequence[ObjectPart], source: Source) -> Iterator[ObjectParts]:
    """Make columns of parts that were noted one by one."""

    def split(part: ObjectPart) -> tuple[str, int, int, int]:
        named = source.layout.parse_segment_name(part.object_key.rpartition("/")[2])
        if named is None or source.layout.place_of(part.object_key) is None:
            raise ValueError(f"{part.object_key!r:.300} is no object of records")
        return stem_of(part.object_key), named.base, named.next or 0, named.rewrite

    for stem, run in groupby(((split(part), part) for part in parts), lambda one: one[0][0]):
        named = list(run)
        rows = [
            (*names, part.from_offset, _until(part), _UNTOLD if part.next_offset is None else part.next_offset)
            for (_, *names), part in named
        ]
        if not all(type(number) is int for row in rows for number in row):
            raise ValueError(f"offsets of objects below {stem!r:.300} are no numbers")
        columns = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        yield ObjectParts(stem, *columns, chosen=_chosen([part.chosen_key for _, part in named], source))


def _until(part: ObjectPart) -> int:
    if part.until_offset == 0:
        raise ValueError(f"nothing is read of {part.object_key!r:.300}")
    return part.until_offset or 0


def _chosen(keys: Sequence[str | None], source: Source) -> Chosen | None:
    if keys[0] is None:
        if any(key is not None for key in keys):
            raise ValueError("records are chosen of some objects only")
        return None
    names = [_CHOSEN_NAME.fullmatch(str(key).removeprefix(source.chosen_stem)) for key in keys]
    digests = [name[1] for name in names if name is not None]
    if len(digests) != len(keys):
        raise ValueError(f"what was chosen does not lie below {source.chosen_stem}")
    return Chosen(source.chosen_stem, Texts.of(digests))


def _life_of(parts: ObjectParts, source: Source) -> int:
    """Return the life of the topic that parts belong to. Raises ValueError for parts of another topic or partition."""
    topic, life, partition = source.place_of(f"{parts.stem}{offsets_name(0, None)}") or ("", 0, 0)
    if (topic, partition) != (source.topic, source.partition) or life > source.life:
        raise ValueError(f"{parts.stem!r:.300} is not where its objects are")
    if parts.chosen is not None and (
        parts.chosen.stem != source.chosen_stem or parts.chosen.digests.digits != _DIGEST_DIGITS
    ):
        raise ValueError(f"what was chosen does not lie below {source.chosen_stem}")
    return life


def _disorder(blocks: Sequence[_Block]) -> str:
    """Return the first parts out of order, or no ranges of their objects: records would be read twice, or out of order."""
    position = 0
    for block in blocks:
        base, first, ends = block.column("base"), block.column("from_offset").astype(np.int64), block.ends
        named = block.column("named_next")
        starts = np.concatenate(([position], np.maximum(ends[:-1], first[:-1] + 1)))
        wrong = (base < 0) | (first < base) | (first < starts) | ((ends >= 0) & (ends <= first))
        wrong |= ((named != 0) & (named <= base)) | ((named == 0) & (block.column("rewrite") != 0))
        if wrong.any():
            place = int(np.argmax(wrong))
            return f"has offsets {first[place]}-{ends[place] - 1} of {block.key(place)} where they cannot be"
        position = max(int(ends[-1]), int(first[-1]) + 1)
    return ""


# --- comparison with the archive


class _Match(NamedTuple):
    """The places of a noted plan's objects in the present one."""

    noted: _Block
    present: _Block | None
    places: Numbers | slice  # in the present block, of the common objects
    ours: Numbers | slice  # in the noted block, of the same objects

    @classmethod
    def of(cls, noted: _Block, blocks: Sequence[_Block], life: int) -> "_Match":
        present = next((block for block in blocks if block.parts.stem == noted.parts.stem), None)
        if present is None:
            if noted.life != life:
                raise ValueError(f"{noted.parts.stem!r:.300} is of a life that is not read")
            return cls(noted, None, slice(0, 0), slice(0, 0))
        count = len(noted)
        ours, theirs = ([block.column(name) for name in PART_COLUMNS[:3]] for block in (noted, present))
        if count <= len(present) and all(
            np.array_equal(one, two[:count]) for one, two in zip(ours, theirs, strict=True)
        ):
            return cls(noted, present, slice(0, count), slice(0, count))
        places = np.minimum(np.searchsorted(theirs[0], ours[0]), len(present) - 1)
        is_same = [one[places] == other for one, other in zip(theirs, ours, strict=True)]
        found = np.flatnonzero(np.logical_and.reduce(is_same))
        return cls(noted, present, places[found], found)

    def change(self, *, is_narrowed: bool) -> str:
        """Return how a noted object differs from the archive's; empty: no difference."""
        if self.present is None:
            return ""
        wrong = np.zeros(len(self.noted.column("base")[self.ours]), bool)
        for name in PART_COLUMNS:
            one, two = self.noted.column(name)[self.ours], self.present.column(name)[self.places]
            wrong |= (one != two) & ((one != _UNTOLD) if name == "next_offset" else np.True_)
        if wrong.any():
            return f"does not have the offsets of {self._first(wrong)} that are read"
        if not is_narrowed and self.noted.parts.chosen is not None and self.present.parts.chosen is not None:
            ours, theirs = self.noted.parts.chosen.digests, self.present.parts.chosen.digests
            wrong |= ~ours.only(self.ours).are(theirs.only(self.places))
        wrong |= self._narrowed_facts() if is_narrowed else self._other_facts()
        return f"has other facts of {self._first(wrong)}" if wrong.any() else ""

    def lacking(self) -> Numbers:
        """Return for each object of the present block whether it is missing in the noted block."""
        lacks = np.ones(0 if self.present is None else len(self.present), bool)
        lacks[self.places] = False
        return lacks

    def _other_facts(self) -> Numbers:
        found: Numbers = np.logical_or.reduce([one != two for one, two in map(self._facts, PartFacts._fields)])
        return found

    def _narrowed_facts(self) -> Numbers:
        """Facts of some of an object's records are at most those of the object. Unknown for objects of v1.0, and parts of objects."""
        wrong = np.logical_or.reduce([one > two for one, two in map(self._facts, _BOUNDS)])
        one, two = self._facts("min_timestamp")
        is_exact = self._facts("is_exact")[1]
        found: Numbers = ((wrong | (one < two)) & is_exact) | (self._facts("records")[0] < 1)
        return found

    def _facts(self, name: str) -> tuple[Numbers, Numbers]:
        present = self.noted if self.present is None else self.present
        return self.noted.facts.numbers(name)[self.ours], present.facts.numbers(name)[self.places]

    def _first(self, wrong: Numbers) -> str:
        return self.noted.key(int(np.arange(len(self.noted))[self.ours][int(np.argmax(wrong))]))


def _stray(match: _Match, theirs: Sequence[_Block]) -> str:
    """Report an object that only the noted plan has, and that overlaps others.

    A deleted object has left a gap, and an object that was merged is in the range of the merged one. The end
    of an object is compared when it is read, so the plan must have it.
    """
    noted = match.noted
    alone = np.ones(len(noted), bool)
    alone[match.ours] = False
    if not alone.any():
        return ""
    untold = alone & (noted.column("next_offset").astype(np.int64) <= 0)
    if untold.any():
        return f"does not tell where {noted.key(int(np.argmax(untold)))} ends, which this restore does not read"
    first, ends = noted.column("from_offset").astype(np.int64), noted.ends
    base, following = noted.column("base"), noted.column("next_offset")
    for block in theirs:
        starts, stops = block.column("from_offset").astype(np.int64), block.ends
        nearest = np.minimum(np.searchsorted(stops, first, side="right"), len(block) - 1)
        meets = alone & (starts[nearest] < ends) & (stops[nearest] > first)
        if block.parts.stem == noted.parts.stem:
            merged_base, merged_next = block.column("base")[nearest], block.column("named_next")[nearest]
            meets &= ~((merged_next > 0) & (merged_base <= base) & (following <= merged_next))
        if meets.any():
            return f"has {noted.key(int(np.argmax(meets)))} in the place of others"
    return ""


def has_gaps(noted: PartitionPlan, source: Source) -> bool:
    """Return whether some offsets below the end of the noted plan are in none of its objects."""
    blocks = list(_blocks(noted, source))
    if not blocks:
        return True
    firsts = np.concatenate([block.column("from_offset").astype(np.int64) for block in blocks])
    ends = np.concatenate([block.ends for block in blocks])
    return bool(firsts[0] > noted.selection.first_offset or (firsts[1:] > ends[:-1]).any())


def _lack(ours: Sequence[_Block], theirs: Sequence[_Block], matches: Sequence[_Match]) -> str:
    """Report an object that the noted plan left out: below the plan's end, and in the range of no other object."""
    if not ours:
        return ""
    end = int(ours[-1].ends[-1])
    starts, stops = _runs(ours)
    for block in theirs:
        match = next((one for one in matches if one.present is block), None)
        first, last = block.column("from_offset"), block.ends
        lacks = (np.ones(len(block), bool) if match is None else match.lacking()) & (first < end)
        if not lacks.any():
            continue
        runs = np.searchsorted(starts, first, side="right") - 1
        lacks &= (runs < 0) | (stops[np.maximum(runs, 0)] < np.minimum(last, end))
        if lacks.any():
            return f"leaves out {block.key(int(np.argmax(lacks)))}"
    return ""


def _runs(blocks: Sequence[_Block]) -> tuple[Numbers, Numbers]:
    """Join consecutive ranges. Returns their starts, and their ends."""
    firsts = np.concatenate([block.column("from_offset").astype(np.int64) for block in blocks])
    ends = np.concatenate([block.ends for block in blocks])
    begins = np.concatenate(([True], firsts[1:] > ends[:-1]))
    return firsts[begins], ends[np.concatenate((begins[1:], [True]))]
