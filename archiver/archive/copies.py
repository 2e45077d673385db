"""Copies of compacted topics: what of a partition is read, by an entry of its role log (docs/format.md §11)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.archived_topic import CopyReading, CopyStretch
from archiver.archive.handle import Archive
from archiver.archive.index import Index
from archiver.archive.inventory import EMPTY_PARTITION, PartitionInventory, arrange
from archiver.archive.layout import CopyKey
from archiver.archive.listing import ListedPartition, ListedSegments
from archiver.archive.lookup import DamagedSegment, find_facts
from archiver.archive.roles import CompleteCopy, Generation, Holder, RoleEntry
from archiver.process.workers import side_by_side
from archiver.store.port import ListedObject

_LISTINGS_AT_ONCE: Final = 8

# What lies under `topics/` of a partition in a life, with the lives that it goes on from, at or above an offset; and what is
# wrong with that. Called with the life, the partition and the offset.
History = Callable[[int, int, int], tuple[PartitionInventory, Sequence[str]]]


class LifeEntry(NamedTuple):
    """The entry by which a partition is read, and the life whose role log has it."""

    life: int
    entry: RoleEntry


class ReadPartition(NamedTuple):
    """What is read of one partition: its objects, what is wrong with them, and whose they are."""

    inventory: PartitionInventory
    damaged: Sequence[str]
    reading: CopyReading
    reach: int  # up to where that is all: behind the last object the log held no record, as far as that is known


class _Loaded(NamedTuple):
    """The objects of a generation that reach above an offset, arranged."""

    inventory: PartitionInventory
    damaged: Sequence[str]


_NOTHING: Final = _Loaded(EMPTY_PARTITION, ())


class _Wanted(NamedTuple):
    """What is to be read of a generation: what lies at or above an offset."""

    key: CopyKey
    from_offset: int


class CopyReader:
    """Reads what a topic has in copies; of several partitions at once."""

    def __init__(self, archive: Archive, topic: str, history: History) -> None:
        self._archive = archive
        self._topic = topic
        self._history = history
        self._listed: dict[CopyKey, ListedPartition | None] = {}
        self._loaded: dict[_Wanted, _Loaded] = {}

    def read_by(self, entries: Mapping[int, LifeEntry]) -> dict[int, ReadPartition]:
        """Read partitions as entries say: the holder, and behind its end what it replaced."""
        self._load(self._wanted(number, life, entry.holder, 0) for number, (life, entry) in entries.items())
        holders = {
            number: self._of(number, life, entry.holder, 0, is_promised=True)
            for number, (life, entry) in entries.items()
        }
        ends = {number: _end_of(entries[number].entry.holder, one.inventory) for number, one in holders.items()}
        self._load(
            self._wanted(number, life, entry.replaced, ends[number]) for number, (life, entry) in entries.items()
        )
        return {
            number: self._joined(number, life, entry, holders[number], ends[number])
            for number, (life, entry) in entries.items()
        }

    def read_alone(self, partition: int, life: int, copy: CompleteCopy) -> ReadPartition:
        """Read a copy without a tail."""
        self._load([self._wanted(partition, life, copy, 0)])
        found = self._of(partition, life, copy, 0, is_promised=True)
        stretch = CopyStretch(copy.generation, life, 0)
        reading = CopyReading(stretches=(stretch,), is_sure=copy.is_sure)
        return ReadPartition(found.inventory, found.damaged, reading, _end_of(copy, found.inventory))

    def read_stretches(self, readings: Mapping[int, CopyReading]) -> dict[int, ReadPartition]:
        """Read partitions again as they were read before, whoever holds by now. What has come behind a stretch since is left out."""
        self._load(
            self._wanted(number, one.life, one.generation, one.from_offset)
            for number, reading in readings.items()
            for one in reading.stretches
        )
        return {number: self._again(number, reading) for number, reading in readings.items()}

    def _again(self, number: int, reading: CopyReading) -> ReadPartition:
        joined, damaged = EMPTY_PARTITION, list[str]()
        bounds = [one.from_offset for one in reading.stretches[1:]]
        for one, until in zip(reading.stretches, [*bounds, None], strict=True):
            found = self._of(number, one.life, one.generation, one.from_offset)
            inventory = found.inventory.from_offset(one.from_offset)
            joined = joined.then(inventory if until is None else inventory.below(until))
            damaged += found.damaged
        return ReadPartition(joined, damaged, reading, max(joined.end, *bounds, 0))

    def _joined(self, number: int, life: int, entry: RoleEntry, held: _Loaded, end: int) -> ReadPartition:
        begins = CopyStretch(_generation(entry.holder), life, 0)
        is_sure = not isinstance(entry.holder, CompleteCopy) or entry.holder.is_sure
        tail = _NOTHING if entry.replaced is None else self._of(number, life, entry.replaced, end)
        if not (tail.inventory.readable or tail.inventory.gaps or tail.damaged):
            return ReadPartition(held.inventory, held.damaged, CopyReading(stretches=(begins,), is_sure=is_sure), end)
        behind = CopyStretch(_generation(entry.replaced), life, end)
        return ReadPartition(
            held.inventory.then(tail.inventory),
            [*held.damaged, *tail.damaged],
            CopyReading(stretches=(begins, behind), is_sure=is_sure),
            max(end, tail.inventory.end),
        )

    # --- objects of generations, and under `topics/`

    def _wanted(self, partition: int, life: int, whose: Holder | Generation, from_offset: int) -> _Wanted | None:
        generation = _generation(whose)
        if generation is None:
            return None
        key = CopyKey(
            instance=generation.instance,
            topic=self._topic,
            life=life,
            partition=partition,
            generation=generation.number,
        )
        return _Wanted(key, from_offset)

    def _of(
        self, partition: int, life: int, whose: Holder | Generation, from_offset: int, *, is_promised: bool = False
    ) -> _Loaded:
        """Return what is read at or above an offset of what was loaded, or of what lies under `topics/`."""
        wanted = self._wanted(partition, life, whose, from_offset)
        if wanted is None:
            return _Loaded(*self._history(life, partition, from_offset))
        found = self._loaded.get(wanted, _NOTHING)
        if isinstance(whose, CompleteCopy) and is_promised and not found.damaged:
            return found._replace(inventory=found.inventory.reaching(whose.next))
        return found

    def _load(self, wanted: Iterable[_Wanted | None]) -> None:
        """List generations, and ask their objects for their facts: of several generations at once, of each partition one."""
        asked = [one for one in dict.fromkeys(wanted) if one is not None and one not in self._loaded]
        keys = [one for one in dict.fromkeys(one.key for one in asked) if one not in self._listed]
        self._listed |= zip(keys, side_by_side(_LISTINGS_AT_ONCE, self._list, keys, "copy"), strict=True)
        while asked:
            some = {(one.key.life, one.key.partition): one for one in reversed(asked)}
            self._ask(list(some.values()))
            asked = [one for one in asked if one not in self._loaded]

    def _list(self, copy: CopyKey) -> ListedPartition | None:
        layout = self._archive.layout
        items = self._archive.store.list(layout.copy_prefix(copy))
        parsed = ((layout.parse_copied_segment(copy, item.key), item) for item in items)
        rows: list[tuple[int, int, ListedObject]] = [(key.base, key.next or 0, item) for key, item in parsed if key]
        return ListedPartition.of((copy.topic, copy.life, copy.partition), rows) if rows else None

    def _ask(self, some: Sequence[_Wanted]) -> None:
        """Ask what can reach above the wanted offsets; where that leaves a gap, everything, for an older object may reach further."""
        first = {one: _places_above(self._listed[one.key], one.from_offset) for one in some}
        self._loaded |= self._arranged(first)
        again = {one: 0 for one, place in first.items() if place and self._loaded[one].inventory.gaps}
        self._loaded |= self._arranged(again)

    def _arranged(self, places: Mapping[_Wanted, int]) -> dict[_Wanted, _Loaded]:
        listed = {one: self._listed[one.key] for one in places}
        there = {
            (one.key.topic, one.key.life, one.key.partition): (one, found.only(slice(places[one], None)))
            for one, found in listed.items()
            if found is not None
        }
        partitions = {place: found for place, (_, found) in there.items()}
        found = find_facts(self._archive.store, ListedSegments(partitions, ()), Index())
        damaged: dict[tuple[str, int, int], list[DamagedSegment]] = {}
        for damage in found.damaged:
            damaged.setdefault((damage.key.topic, damage.key.life, damage.key.partition), []).append(damage)
        loaded = dict.fromkeys(places, _NOTHING)
        for place, (one, _) in there.items():
            inventory = arrange(found.segments.get(place, ()))
            loaded[one] = _Loaded(
                inventory.from_offset(one.from_offset), [damage.message for damage in damaged.get(place, ())]
            )
        return loaded


def _places_above(listed: ListedPartition | None, offset: int) -> int:
    """Return the first place of a listing whose object can reach above an offset, as far as names show that."""
    if listed is None or not offset:
        return 0
    if int(listed.named_next.max()):  # a merged object may reach far
        return 0
    return max(0, int(np.searchsorted(listed.base.astype(np.int64), offset, side="right")) - 1)


def _generation(whose: Holder | Generation) -> Generation | None:
    if isinstance(whose, CompleteCopy):
        return whose.generation
    return whose if isinstance(whose, Generation) else None


def _end_of(holder: Holder, inventory: PartitionInventory) -> int:
    """Return where a holder ends: up to its position, the log held no record behind its objects."""
    return max(inventory.end, holder.position if isinstance(holder, CompleteCopy) else 0)


def is_whole_until(read: ReadPartition, offset: int) -> bool:
    """Tell whether nothing below an offset is missing or damaged."""
    return not read.damaged and not any(gap.first_offset < offset for gap in read.inventory.gaps)


def join_read(one: ReadPartition, behind: ReadPartition) -> ReadPartition:
    """Read on behind the end of what was read, in what another reading has there."""
    end = one.reach
    later = behind.inventory.from_offset(end)
    if not (later.readable or later.gaps):
        return one
    starts = [stretch.from_offset for stretch in behind.reading.stretches]
    ends = [*(following for _, following in pairwise(starts)), None]
    stretches = [
        stretch._replace(from_offset=max(stretch.from_offset, end))
        for stretch, until in zip(behind.reading.stretches, ends, strict=True)
        if until is None or until > end
    ]
    return ReadPartition(
        one.inventory.then(later),
        [*one.damaged, *behind.damaged],
        CopyReading(
            stretches=(*one.reading.stretches, *stretches), is_sure=one.reading.is_sure and behind.reading.is_sure
        ),
        max(end, behind.reach),
    )
