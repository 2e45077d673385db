"""Index entries in memory, as columns: the identity of each object, and its facts, or its bounds if it has no facts. The index keeps them."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np

from archiver.archive.format.layout import SegmentKey
from archiver.archive.segments.segment_facts import NOT_IN_ALL, Bounds, Hole, SegmentFacts
from archiver.process.values.columns import Numbers, Places, Texts, narrow, same

NUMBERS: Final = (
    "base", "first", "last", "next", "records", "tombstones", "min_timestamp", "max_timestamp",
    "bytes", "largest_record", "source_bytes", "digest", *NOT_IN_ALL,
)  # fmt: skip
NOT_TOLD: Final = -1  # the object lacks this fact
_TEXTS: Final = ("etag", "sha256")
# Most segments begin with a record: where `first` equals `base` in all rows, both are one column in memory.
_OFTEN_ALIKE: Final = (("first", "base"),)


class Traits(NamedTuple):
    """Facts that many segments have in common."""

    format: int
    writer: str
    cluster_id: str
    topic_id: str
    leader_epoch: int
    timestamp_types: tuple[int, ...]
    holes: tuple[Hole, ...]
    encryption: str


class IndexEntry(NamedTuple):
    """The index entry of one object, with its facts or bounds. It holds only for an object of this key, this size and this ETag."""

    key: SegmentKey
    size: int
    etag: str
    facts: SegmentFacts | Bounds


class Entries:
    """Columns by their names: NUMBERS, `partition`, `merged`, `rewrite`, `size`, `etag`, `sha256`; and `kind`, the number of its traits.

    A row whose traits are None has no facts; it has at most bounds: base, first and last.
    """

    def __init__(self, columns: dict[str, Numbers | Texts], traits: Sequence[Traits | None]) -> None:
        for name, other in _OFTEN_ALIKE:
            if np.array_equal(cast("Numbers", columns[name]), cast("Numbers", columns[other])):
                columns[name] = columns[other]
        self._columns = columns
        self.traits = tuple(traits)

    @classmethod
    def of(cls, entries: Sequence[IndexEntry]) -> "Entries":
        facts = [entry.facts for entry in entries]
        traits: dict[Traits | None, int] = {}
        kinds = [traits.setdefault(_traits_of(one), len(traits)) for one in facts]
        columns: dict[str, Numbers | Texts] = {
            name: narrow(np.array([_number(one, name) for one in facts], np.int64)) for name in NUMBERS
        }
        columns |= {
            "partition": narrow(np.array([entry.key.partition for entry in entries], np.int64)),
            "merged": np.array([entry.key.next is not None for entry in entries], bool),
            "rewrite": narrow(np.array([entry.key.rewrite for entry in entries], np.int64)),
            "size": narrow(np.array([entry.size for entry in entries], np.int64)),
            "etag": Texts.of([entry.etag for entry in entries]),
            "sha256": Texts.of([one.sha256 if isinstance(one, SegmentFacts) else "" for one in facts]),
            "kind": narrow(np.array(kinds, np.int64)),
        }
        return cls(columns, list(traits))

    @classmethod
    def join(cls, several: list["Entries"]) -> "Entries":
        """Join entries in order. Consumes the given ones column by column: both do not fit into memory."""
        several = [one for one in several if len(one)] or several[
            :1
        ]  # entries without a row have columns of other kinds
        if len(several) == 1:
            return several[0]
        traits: dict[Traits | None, int] = {}
        for one in several:
            codes = [traits.setdefault(trait, len(traits)) for trait in one.traits]
            one._columns["kind"] = narrow(np.array(codes, np.int64))[one.numbers("kind")]  # noqa: SLF001 - of this class
        columns: dict[str, Numbers | Texts] = {}
        for name in tuple(several[0]._columns):  # noqa: SLF001
            pieces = [one._columns.pop(name) for one in several]  # noqa: SLF001
            columns[name] = (
                Texts.join(cast("list[Texts]", pieces))
                if name in _TEXTS
                else np.concatenate(cast("list[Numbers]", pieces))
            )
        return cls(columns, list(traits))

    def __len__(self) -> int:
        return len(self.numbers("base"))

    def numbers(self, name: str) -> Numbers:
        return cast("Numbers", self._columns[name])

    def texts(self, name: str) -> Texts:
        return cast("Texts", self._columns[name])

    def only(self, places: Places) -> "Entries":
        return Entries(
            {
                name: column.only(places) if isinstance(column, Texts) else column[places]
                for name, column in self._columns.items()
            },
            self.traits,
        )

    def named_next(self, places: Places) -> Numbers:
        """Return the `next` in the names of these objects; 0 for a plain object, whose name has none."""
        merged = self.numbers("merged")[places]
        return narrow(np.where(merged, self.numbers("next")[places], 0)) if merged.any() else same(0, len(merged))

    def has_facts(self, places: Places) -> Numbers:
        """Return which of these objects have facts."""
        found: Numbers = np.array([trait is not None for trait in self.traits], bool)[self.numbers("kind")[places]]
        return found

    def facts(self, place: int) -> SegmentFacts | Bounds:
        traits = self.traits[self.numbers("kind")[place]]
        numbers = {name: int(self.numbers(name)[place]) for name in (NUMBERS if traits is not None else NUMBERS[:3])}
        if traits is None:
            return Bounds(**numbers)
        told = {name: value for name, value in numbers.items() if name not in NOT_IN_ALL or value != NOT_TOLD}
        return SegmentFacts(**told, **traits._asdict(), sha256=self.texts("sha256")[place])  # type: ignore[arg-type]

    def known_facts(self, place: int) -> SegmentFacts | None:
        """Return the facts of an object, or None. Bounds in an index may also be impossible."""
        facts = self.facts(place) if self.traits[self.numbers("kind")[place]] is not None else None
        return facts if isinstance(facts, SegmentFacts) else None

    def entry(self, place: int, topic: str, life: int) -> IndexEntry:
        facts, partition, rewrite = self.facts(place), self.numbers("partition")[place], self.numbers("rewrite")[place]
        named_next = facts.next if self.numbers("merged")[place] else None
        key = SegmentKey(
            topic=topic,
            life=life,
            partition=int(partition),
            base=facts.base,
            next=named_next,
            rewrite=int(rewrite),
        )
        return IndexEntry(key, int(self.numbers("size")[place]), self.texts("etag")[place], facts)


def _traits_of(facts: SegmentFacts | Bounds) -> Traits | None:
    if isinstance(facts, Bounds):
        return None
    return Traits(*(getattr(facts, name) for name in Traits._fields))


def _number(facts: SegmentFacts | Bounds, name: str) -> int:
    """Return the value of a column; for an object of v1.0, which has no facts, 0 where its bounds do not show it."""
    if isinstance(facts, Bounds) and name == "records":
        return facts.last - facts.first + 1
    value: int | None = getattr(facts, name, None if name in NOT_IN_ALL else 0)
    return NOT_TOLD if value is None else value


def can_be(columns: Mapping[str, Numbers]) -> Numbers:
    """Return for each entry whether its numbers are valid facts, by the rules of SegmentFacts."""
    base, first, last, following = (columns[name] for name in ("base", "first", "last", "next"))
    records, tombstones = columns["records"], columns["tombstones"]
    are_offsets = (base >= 0) & (base <= first) & (first <= last) & (last < following)
    are_counts = (records >= 1) & (records - 1 <= last - first) & (tombstones >= 0) & (tombstones <= records)
    are_times = columns["min_timestamp"] <= columns["max_timestamp"]
    are_sizes = np.logical_and.reduce(
        [columns[name] >= 0 for name in ("bytes", "largest_record", "source_bytes", "digest")]
    )
    unserved = columns["unserved"]
    are_later = (unserved >= NOT_TOLD) & (unserved <= following - base - records) & (columns["stable_end"] >= NOT_TOLD)
    found: Numbers = are_offsets & are_counts & are_times & are_sizes & are_later
    return found
