"""Compares a partition's noted plan with the present one, object by object, in columns: plans have millions of objects."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from archiver.archive.format.layout import Layout, offsets_name, stem_of
from archiver.archive.segments.parts import PART_COLUMNS, Chosen, FactsOfParts, ObjectPart, ObjectParts, are_chosen
from archiver.archive.segments.segment_facts import PartFacts
from archiver.process.values.columns import Chain, Numbers, Texts, total
from archiver.restore.plan.restore_plan import PartitionPlan

_CHOSEN_NAME: Final = re.compile(r"([0-9a-f]{24})\.offsets", re.ASCII)
_DIGEST_DIGITS: Final = 24
_NAME: Final = ("stem", *PART_COLUMNS[:3])  # the columns that name an object
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """The objects of a plan, in order, as columns: their directories, names, offsets and facts."""

    parts: Sequence[ObjectPart]
    lives: Mapping[str, int]  # by directory
    columns: Mapping[str, Numbers]  # `stem` (the number of the directory), PART_COLUMNS and the facts
    chosen: Texts | None  # digests of the lists of chosen records

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, name: str) -> Numbers:
        return self.columns[name]

    @property
    def ends(self) -> Numbers:
        """Return the end offset of each part; below 0: only the object itself has it."""
        until, following = self["until_offset"], self["next_offset"]
        return np.where((until > 0) & ((following < 0) | (until < following)), until, following)

    def first_key(self, wrong: Numbers) -> str:
        return self.parts[int(np.argmax(wrong))].object_key


def difference(noted: PartitionPlan, present: PartitionPlan, source: Source, *, may_lack: bool) -> str:
    """Return how a noted plan contradicts the archive; empty: not at all. Raises ValueError and TypeError if it is none of this partition.

    Objects put after the plan, or deleted since, are no contradiction. `may_lack`: nor are objects that the plan left
    out before its end, which were damaged then and may have been mended.
    """
    numbers: dict[str, int] = {}
    ours, theirs = _rows(noted, source, numbers), _rows(present, source, numbers)
    if noted.records != total(FactsOfParts.of(noted.facts).numbers("records")):
        return f"has {noted.records} records, not those of its objects"
    for stem, life in ours.lives.items():
        if stem not in theirs.lives and life != source.life:
            raise ValueError(f"{stem!r:.300} is of a life that is not read")
    is_narrowed = are_chosen(noted.parts) and not are_chosen(present.parts)
    problem = _disorder(ours)
    if problem:
        return problem
    mine, there = _common(ours, theirs)
    problem = _change(ours, theirs, mine, there, is_narrowed=is_narrowed) or _stray(ours, theirs, mine)
    return problem or ("" if is_narrowed or may_lack else _lack(ours, theirs, there))


def later(noted: PartitionPlan, present: PartitionPlan, source: Source) -> tuple[int, int]:
    """Count the archived objects after the noted plan, and an upper bound of their records."""
    ours, theirs = _rows(noted, source, {}), _rows(present, source, {})
    behind = theirs["from_offset"] >= (int(ours.ends[-1]) if len(ours) else 0)
    return int(behind.sum()), total(theirs["records"][behind])


def has_gaps(noted: PartitionPlan, source: Source) -> bool:
    """Return whether some offsets below the end of the noted plan are in none of its objects."""
    rows = _rows(noted, source, {})
    first = rows["from_offset"]
    return not len(rows) or bool(first[0] > noted.selection.first_offset or (first[1:] > rows.ends[:-1]).any())


# --- the parts of a plan


def _rows(plan: PartitionPlan, source: Source, numbers: dict[str, int]) -> _Rows:
    """Return a plan as columns. `numbers`: of directories, shared by the plans that are compared."""
    facts = FactsOfParts.of(plan.facts)
    if len(facts) != len(plan.parts):
        raise ValueError(f"facts of {len(facts)} objects, not of {len(plan.parts)}")
    found = (
        [parts] if isinstance(parts, ObjectParts) else _columns(parts, source) for parts in Chain([plan.parts]).blocks
    )
    blocks = [block for some in found for block in some]
    stems = [np.full(len(block), numbers.setdefault(block.stem, len(numbers))) for block in blocks]
    named = zip(PART_COLUMNS, zip(*(block.columns for block in blocks), strict=True), strict=False)
    columns = {name: _joined(some) for name, some in (("stem", stems), *named)}
    digests = [block.chosen.digests for block in blocks if block.chosen is not None]
    return _Rows(
        plan.parts,
        {block.stem: _life_of(block, source) for block in blocks},
        {name: _joined(()) for name in PART_COLUMNS}
        | columns
        | {name: _joined([facts.numbers(name)]) for name in PartFacts._fields},
        Texts.join(digests) if digests else None,
    )


def _joined(columns: Sequence[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *columns]).astype(np.int64)


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


def _disorder(rows: _Rows) -> str:
    """Return the first parts out of order, or no ranges of their objects: records would be read twice, or out of order."""
    base, first, ends, named = rows["base"], rows["from_offset"], rows.ends, rows["named_next"]
    starts = np.concatenate(([0], np.maximum(ends[:-1], first[:-1] + 1)))[: len(rows)]
    wrong = (base < 0) | (first < base) | (first < starts) | ((ends >= 0) & (ends <= first))
    wrong |= ((named != 0) & (named <= base)) | ((named == 0) & (rows["rewrite"] != 0))
    if wrong.any():
        place = int(np.argmax(wrong))
        return f"has offsets {first[place]}-{ends[place] - 1} of {rows.first_key(wrong)} where they cannot be"
    return ""


# --- comparison with the archive


def _common(ours: _Rows, theirs: _Rows) -> tuple[Numbers, Numbers]:
    """Return the places of the common objects in both plans. Usually the noted plan is the beginning of the present one."""
    count = len(ours)
    if count <= len(theirs) and all(np.array_equal(ours[name], theirs[name][:count]) for name in _NAME):
        return np.arange(count), np.arange(count)
    kind = np.dtype([(name, np.int64) for name in _NAME])
    mine, there = (np.stack([rows[name] for name in _NAME], axis=1).view(kind).ravel() for rows in (ours, theirs))
    _, *places = np.intersect1d(mine, there, assume_unique=True, return_indices=True)
    return places[0], places[1]


def _change(ours: _Rows, theirs: _Rows, mine: Numbers, there: Numbers, *, is_narrowed: bool) -> str:
    """Return how a noted object differs from the archive's; empty: no difference."""
    pairs = {name: (ours[name][mine], theirs[name][there]) for name in (*PART_COLUMNS, *PartFacts._fields)}
    differs = {name: one != two for name, (one, two) in pairs.items()}
    differs["next_offset"] &= pairs["next_offset"][0] != _UNTOLD
    wrong = np.zeros(len(ours), bool)
    wrong[mine] = np.logical_or.reduce([differs[name] for name in PART_COLUMNS])
    if wrong.any():
        return f"does not have the offsets of {ours.first_key(wrong)} that are read"
    if is_narrowed:
        # Facts of some of an object's records are at most those of the object. Unknown for objects of v1.0, and parts of objects.
        beyond = [one > two for one, two in map(pairs.__getitem__, _BOUNDS)]
        beyond.append(pairs["min_timestamp"][0] < pairs["min_timestamp"][1])
        wrong[mine] = np.logical_or.reduce(beyond) & (pairs["is_exact"][1] != 0) | (pairs["records"][0] < 1)
    else:
        wrong[mine] = np.logical_or.reduce([differs[name] for name in PartFacts._fields])
        if ours.chosen is not None and theirs.chosen is not None:
            wrong[mine] |= ~ours.chosen.only(mine).are(theirs.chosen.only(there))
    return f"has other facts of {ours.first_key(wrong)}" if wrong.any() else ""


def _stray(ours: _Rows, theirs: _Rows, mine: Numbers) -> str:
    """Report an object that only the noted plan has, and that overlaps others.

    A deleted object has left a gap, and an object that was merged is in the range of the merged one. The end
    of an object is compared when it is read, so the plan must have it.
    """
    alone = np.ones(len(ours), bool)
    alone[mine] = False
    untold = alone & (ours["next_offset"] <= 0)
    if untold.any():
        return f"does not tell where {ours.first_key(untold)} ends, which this restore does not read"
    if not alone.any() or not len(theirs):
        return ""
    first = ours["from_offset"]
    nearest = np.minimum(np.searchsorted(theirs.ends, first, side="right"), len(theirs) - 1)
    meets = alone & (theirs["from_offset"][nearest] < ours.ends) & (theirs.ends[nearest] > first)
    merged = theirs["named_next"][nearest]
    is_within = (merged > 0) & (theirs["base"][nearest] <= ours["base"]) & (ours["next_offset"] <= merged)
    meets &= ~(is_within & (theirs["stem"][nearest] == ours["stem"]))
    return f"has {ours.first_key(meets)} in the place of others" if meets.any() else ""


def _lack(ours: _Rows, theirs: _Rows, there: Numbers) -> str:
    """Report an object that the noted plan left out: below the plan's end, and in the range of no other object."""
    if not len(ours):
        return ""
    first, ends = ours["from_offset"], ours.ends
    begins = np.concatenate(([True], first[1:] > ends[:-1]))  # of consecutive ranges
    starts, stops = first[begins], ends[np.concatenate((begins[1:], [True]))]
    lacks = theirs["from_offset"] < ends[-1]
    lacks[there] = False
    runs = np.searchsorted(starts, theirs["from_offset"], side="right") - 1
    lacks &= (runs < 0) | (stops[np.maximum(runs, 0)] < np.minimum(theirs.ends, ends[-1]))
    return f"leaves out {theirs.first_key(lacks)}" if lacks.any() else ""
