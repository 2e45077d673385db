"""Reads partitions of compacted topics from the copy that their role log names as current (docs/format.md §11)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.copies.archived_topic import CopyRange, CopyReading
from archiver.archive.copies.copy_listings import ListedCopies, list_copies
from archiver.archive.copies.copy_proof import (
    WAYS_ON,
    Settled,
    better_ranges,
    false_claims,
    has_record,
    is_settled,
    settle,
)
from archiver.archive.copies.role_logs import RoleLogs
from archiver.archive.copies.roles import (
    HISTORY,
    CompleteCopy,
    Generation,
    Holder,
    RoleEntry,
    RolePlace,
    name_of_holder,
)
from archiver.archive.format.layout import CopyKey
from archiver.archive.index.inventory import EMPTY_PARTITION, PartitionInventory, arrange, last_base
from archiver.archive.index.loaded_index import Index
from archiver.archive.index.lookup import DamagedSegment, find_facts
from archiver.archive.segments.listing import ListedPartition, ListedSegments, Partition
from archiver.codec.selection import LAST_LONG

# Reads the history under `topics/`: called with life, partition and offset. Returns the objects of this life and of its
# parents, at or above the offset; and their problems.
History = Callable[[int, int, int], tuple[PartitionInventory, Sequence[str]]]


class LifeEntry(NamedTuple):
    """The entry that decides how a partition is read, and the life of its role log."""

    life: int
    entry: RoleEntry


class ReadPartition(NamedTuple):
    """The reading of one partition: its objects, their problems, and the copy they belong to."""

    inventory: PartitionInventory
    damaged: Sequence[str]
    reading: CopyReading
    reach: int  # the objects are complete below this offset; the log held no known record behind the last one


class _Loaded(NamedTuple):
    """The objects of a generation, arranged, from an offset on."""

    inventory: PartitionInventory
    damaged: Sequence[str]


class _Arranged(NamedTuple):
    """The objects of a generation as listed, with the facts that they returned."""

    inventory: PartitionInventory
    damaged: Sequence[DamagedSegment]

    def above(self, offset: int) -> _Loaded:
        """Return the objects at or above an offset. A damaged object counts unless a later object begins below that offset."""
        least = last_base(self.inventory, offset) if offset else 0
        damaged = [damage.message for damage in self.damaged if damage.key.base >= least]
        return _Loaded(self.inventory.from_offset(offset), damaged)


_NOTHING: Final = _Loaded(EMPTY_PARTITION, ())


class _Doubt(NamedTuple):
    """Offsets at which the log held no record, according to an entry."""

    start: int
    stop: int


class CopyReader:
    """Reads the copies of a topic, several partitions at once."""

    def __init__(self, logs: RoleLogs, history: History, instances: Callable[[], Collection[str]]) -> None:
        self._logs = logs
        self._archive = logs.archive
        self._topic = logs.topic
        self._history = history
        self._instances = instances
        self._lives: dict[int, ListedCopies] = {}  # as listed
        self._arranged: dict[CopyKey, _Arranged] = {}

    def read_by(self, entries: Mapping[int, LifeEntry]) -> dict[int, ReadPartition]:
        """Read partitions by their entries: the current copy, followed by the copy that it replaced."""
        wanted = (
            (number, life, whose)
            for number, (life, entry) in entries.items()
            for whose in (entry.holder, entry.replaced)
        )
        self._load(wanted)
        read = {number: self._joined(number, life, entry) for number, (life, entry) in entries.items()}
        for number, problem in (*self._false_switches(entries), *self._contradictions(entries, read)):
            read[number] = read[number]._replace(damaged=[*read[number].damaged, problem])
        return read

    def read_alone(self, partition: int, life: int, copy: CompleteCopy) -> ReadPartition:
        """Read a copy without a tail."""
        self._load([(partition, life, copy)])
        found = self._promised(partition, life, copy)
        reading = CopyReading(stretches=(CopyRange(copy.generation, life, 0),), is_sure=copy.is_sure)
        return ReadPartition(found.inventory, found.damaged, reading, _end_of(copy, found.inventory))

    def read_stretches(self, readings: Mapping[int, CopyReading]) -> dict[int, ReadPartition]:
        """Read partitions again from the same copies as before, whichever copy is current now. Leave out records added behind a stretch."""
        self._load(
            (number, one.life, one.generation) for number, reading in readings.items() for one in reading.stretches
        )
        return {number: self._again(number, reading) for number, reading in readings.items()}

    def _again(self, number: int, reading: CopyReading) -> ReadPartition:
        joined, damaged = EMPTY_PARTITION, list[str]()
        for one in reading.stretches:
            found, until = self._of(number, one.life, one.generation, one.from_offset), one.until_offset
            joined = joined.then(found.inventory if until is None else found.inventory.below(until))
            damaged += found.damaged
        return ReadPartition(joined, damaged, reading, max(joined.end, reading.stretches[-1].from_offset))

    def _joined(self, number: int, life: int, entry: RoleEntry) -> ReadPartition:
        """Read the current copy, missing records beyond the switch from the former copy, and the former copy's tail."""
        held, copy = self._promised(number, life, entry.holder), entry.holder
        end = tail = _end_of(copy, held.inventory)
        settled, problems = Settled(end, ()), list[str]()
        if isinstance(copy, CompleteCopy):
            settled = settle(held.inventory, copy.position)
            tail = self._tail_begin(number, life, entry, held)
            problems = self._false_claims(number, copy, held)
        former = self._former(number, life, entry, min(settled.offset, tail))
        behind = self._former(number, life, entry, tail)
        ranges = better_ranges(settled, former.inventory)
        has_tail = bool(behind.inventory.readable or behind.inventory.gaps or behind.damaged)
        stretches = _stretches(life, entry, ranges, (held.inventory.end, tail) if has_tail else None)
        is_sure = not isinstance(copy, CompleteCopy) or (copy.is_sure and tail == end)
        needs = _needs(entry, settled, former.inventory)
        return ReadPartition(
            _inventory_of(stretches, held, former, _generation(copy)),
            [*held.damaged, *former.damaged, *problems],
            CopyReading(stretches=stretches, is_sure=is_sure, needs=needs and f"{self._topic}-{number}: {needs}"),
            max(end, behind.inventory.end),
        )

    def _former(self, number: int, life: int, entry: RoleEntry, offset: int) -> _Loaded:
        return _NOTHING if entry.replaced is None else self._of(number, life, entry.replaced, offset)

    # --- checks of entries

    def false_switches(self, entries: Mapping[int, LifeEntry]) -> dict[int, str]:
        """Report the entries that an earlier entry contradicts: about when the holder became current, or which copy it replaced."""
        found = self._logs.contradictions(entries)
        return {number: f"{self._topic}-{number}: {why}; {WAYS_ON}" for number, why in found.items() if why}

    def _false_switches(self, entries: Mapping[int, LifeEntry]) -> Iterable[tuple[int, str]]:
        """Return the false switches of copies that are not settled; the role logs of the others are not read."""
        return self.false_switches(
            {number: one for number, one in entries.items() if self._is_open(number, one)}
        ).items()

    def _is_open(self, number: int, one: LifeEntry) -> bool:
        holder = one.entry.holder
        return isinstance(holder, CompleteCopy) and not is_settled(self._promised(number, one.life, holder).inventory)

    def _tail_begin(self, number: int, life: int, entry: RoleEntry, held: _Loaded) -> int:
        """Return where the replaced copy continues the reading: at the holder's end, or behind its last object if the replaced copy has records there."""
        end, last = _end_of(entry.holder, held.inventory), held.inventory.end
        return last if has_record(self._former(number, life, entry, last).inventory, last, end) else end

    def _false_claims(self, number: int, copy: CompleteCopy, held: _Loaded) -> list[str]:
        """Report how the objects of a copy contradict the entry that calls it complete."""
        claims = false_claims(copy, held.inventory, held.damaged)
        return [self._false_claim(number, copy, why) for why in claims]

    def _false_claim(self, number: int, copy: CompleteCopy, why: str) -> str:
        name = f"{self._topic}-{number}: copy {copy.generation} is not as complete as its role log says"
        return f"{name}: {why}; {WAYS_ON}"

    def _contradictions(
        self, entries: Mapping[int, LifeEntry], read: Mapping[int, ReadPartition]
    ) -> Iterator[tuple[int, str]]:
        """Yield how other copies, and `topics/`, contradict entries. Few requests serve many partitions together."""
        doubts = {number: doubt for number, one in entries.items() if (doubt := self._doubt(number, one))}
        others = {number: self._others(number, entries[number]) for number in entries}
        wanted: dict[CopyKey, ListedPartition] = {}
        for number, copies in others.items():
            candidate, doubt = entries[number].entry.open_candidate, doubts.get(number)
            for copy, listed in copies.items():
                part = _asked_of(listed, doubt, is_left=Generation.of_copy(copy) != candidate)
                wanted |= {copy: part} if part else {}
        asked = self._ask(wanted)
        for number, one in entries.items():
            found = {copy: asked[copy].inventory for copy in others[number] if copy in asked}
            false = self._record_in_doubt(number, one, doubts.get(number), found)
            end = read[number].inventory.end
            further = self._further(number, one.life, end, others[number], found)
            yield from ((number, problem) for problem in (*false, *(() if false else further)))

    def _record_in_doubt(
        self, number: int, one: LifeEntry, doubt: _Doubt | None, found: Mapping[CopyKey, PartitionInventory]
    ) -> list[str]:
        """Report a copy with a record where the log held none according to the entry. `found`: requested objects of other copies."""
        if doubt is None or not isinstance(one.entry.holder, CompleteCopy):
            return []
        having = (copy for copy, objects in found.items() if has_record(objects, doubt.start, doubt.stop))
        name = self._other_read(number, one, doubt) or next((str(Generation.of_copy(copy)) for copy in having), "")
        why = f"it has no record from offset {doubt.start} on, and {name} has"
        return [self._false_claim(number, one.entry.holder, why)] if name else []

    def _further(
        self,
        number: int,
        life: int,
        end: int,
        others: Mapping[CopyKey, ListedPartition],
        found: Mapping[CopyKey, PartitionInventory],
    ) -> list[str]:
        """Report a copy that reaches further than the current one and that an earlier entry calls complete: the newest may be forged."""
        reach = {copy: int(listed.base.max()) + 1 for copy, listed in others.items()}
        reach |= {copy: max(reach[copy], inventory.end) for copy, inventory in found.items()}
        for copy in sorted(reach, key=lambda one: -reach[one]):
            generation = Generation.of_copy(copy)
            was = self._logs.was_complete(life, number, generation) if reach[copy] > end else False
            if was is not False:
                name, more = str(generation), "there are more entries than are read"
                why = f"an earlier entry calls copy {name} complete, and that has later records"
                why = why if was else f"copy {name} has later records, and whether it was complete is unknown: {more}"
                newest = f"the newest entry of the role log names objects that end at offset {end}"
                return [f"{self._topic}-{number}: {newest}; {why}; {WAYS_ON}"]
        return []

    def _doubt(self, number: int, one: LifeEntry) -> _Doubt | None:
        """Return the offsets where the log held no record according to an entry, so that any record there contradicts it.

        A copy with objects is checked below its position; a copy without objects, everywhere.
        """
        copy = one.entry.holder
        if not isinstance(copy, CompleteCopy):
            return None
        held = self._promised(number, one.life, copy)
        stop = max(held.inventory.end, copy.position) if held.inventory.readable else LAST_LONG
        if held.inventory.end >= stop or self._false_claims(number, copy, held):
            return None
        return _Doubt(held.inventory.end, stop)

    def _other_read(self, number: int, one: LifeEntry, doubt: _Doubt) -> str:
        """Name the other source that is read anyway and has a record in doubt: the former copy, or `topics/`; empty: neither."""
        life, entry = one
        end = max(doubt.start, _end_of(entry.holder, EMPTY_PARTITION))
        if has_record(self._former(number, life, entry, doubt.start).inventory, doubt.start, end):
            return name_of_holder(entry.replaced)
        has = entry.replaced != HISTORY and has_record(
            self._history(life, number, doubt.start)[0], doubt.start, doubt.stop
        )
        return HISTORY if has else ""

    def _others(self, number: int, one: LifeEntry) -> dict[CopyKey, ListedPartition]:
        """Return the listed copies of a partition that its entry does not name for reading."""
        named = {self._key(number, one.life, whose) for whose in (one.entry.holder, one.entry.replaced)}
        return {copy: listed for copy, listed in self._copies(number, one.life).items() if copy not in named}

    def _copies(self, number: int, life: int) -> Mapping[CopyKey, ListedPartition]:
        """Return all copies of a partition. A life is listed once."""
        if life not in self._lives:
            self._lives[life] = list_copies(self._archive, self._instances(), self._topic, life)
        return self._lives[life].get(number, {})

    # --- objects of generations, and under `topics/`

    def _promised(self, partition: int, life: int, holder: Holder) -> _Loaded:
        """Return the objects of a current copy. A missing end is a gap; the end of a damaged copy is unknown."""
        found = self._of(partition, life, holder, 0)
        if isinstance(holder, CompleteCopy) and not found.damaged:
            return found._replace(inventory=found.inventory.reaching(holder.next))
        return found

    def _of(self, partition: int, life: int, whose: Holder | Generation, from_offset: int) -> _Loaded:
        key = self._key(partition, life, whose)
        if key is None:
            return _Loaded(*self._history(life, partition, from_offset))
        return self._arranged[key].above(from_offset)

    def _key(self, partition: int, life: int, whose: Holder | Generation) -> CopyKey | None:
        generation = _generation(whose)
        if generation is None:
            return None
        return RolePlace(topic=self._topic, life=life, partition=partition).copy_key(generation)

    def _load(self, wanted: Iterable[tuple[int, int, Holder | Generation]]) -> None:
        """List generations, and request the facts of their objects."""
        keys = dict.fromkeys(
            key for one in wanted if (key := self._key(*one)) is not None and key not in self._arranged
        )
        listed = {key: found for key in keys if (found := self._copies(key.partition, key.life).get(key)) is not None}
        self._arranged |= dict.fromkeys(keys, _Arranged(EMPTY_PARTITION, ())) | self._ask(listed)

    def _ask(self, listed: Mapping[CopyKey, ListedPartition]) -> dict[CopyKey, _Arranged]:
        """Request the facts of objects: of several partitions at once, of one generation each."""
        found, waiting = dict[CopyKey, _Arranged](), dict(listed)
        while waiting:
            some = {(key.life, key.partition): key for key in waiting}
            found |= self._ask_together({key: waiting.pop(key) for key in some.values()})
        return found

    def _ask_together(self, listed: Mapping[CopyKey, ListedPartition]) -> dict[CopyKey, _Arranged]:
        partitions = {one.partition: one for one in listed.values()}
        found = find_facts(self._archive.store, ListedSegments(partitions, ()), Index())
        damaged: dict[Partition, list[DamagedSegment]] = {}
        for damage in found.damaged:
            damaged.setdefault((damage.key.topic, damage.key.life, damage.key.partition), []).append(damage)
        places = {key: (key.topic, key.life, key.partition) for key in listed}
        return {
            key: _Arranged(arrange(found.segments.get(place, ())), damaged.get(place, ()))
            for key, place in places.items()
        }


def _generation(whose: Holder | Generation) -> Generation | None:
    if isinstance(whose, CompleteCopy):
        return whose.generation
    return whose if isinstance(whose, Generation) else None


def _asked_of(listed: ListedPartition, doubt: _Doubt | None, *, is_left: bool) -> ListedPartition | None:
    """Return the objects to check in a copy that is not read: around the offsets in doubt, and the last one if the copy was left.

    A candidate is still being written: it is checked only once it begins an object behind the end of the reading.
    """
    places = {len(listed) - 1} if is_left else set[int]()
    if doubt is not None:
        place = int(np.searchsorted(listed.base, doubt.start, side="right"))
        places |= {at for at in (place - 1, place) if 0 <= at < len(listed) and listed.base[at] < doubt.stop}
    return listed.only(np.array(sorted(places), np.int64)) if places else None


def _stretches(
    life: int, entry: RoleEntry, ranges: Sequence[tuple[int, int]], tail: tuple[int, int] | None
) -> tuple[CopyRange, ...]:
    """Return the stretches of a reading: the holder's, except ranges of the replaced copy. `tail`: the holder's end, and the tail's begin."""
    holder, former = _generation(entry.holder), _generation(entry.replaced)
    found, position = list[CopyRange](), 0
    for first, until in ranges:
        found += [CopyRange(holder, life, position, first)] if first > position else []
        found.append(CopyRange(former, life, first, until))
        position = until
    if tail is None:
        return (*found, CopyRange(holder, life, position))
    found += [CopyRange(holder, life, position, tail[0])] if tail[0] > position or not found else []
    return (*found, CopyRange(former, life, tail[1]))


def _inventory_of(
    stretches: Sequence[CopyRange], held: _Loaded, former: _Loaded, holder: Generation | None
) -> PartitionInventory:
    """Combine the parts of a reading. Each shadowed object is reported once."""
    if len(stretches) == 1:
        return held.inventory
    joined, used = EMPTY_PARTITION, set[Generation | None]()
    for one in stretches:
        part = (held if one.generation == holder else former).inventory.from_offset(one.from_offset)
        until = one.until_offset
        is_whole = until is None or (
            one.generation == holder and until == held.inventory.end
        )  # also the missing offsets behind it
        part = part if is_whole or until is None else part.below(until)
        joined = joined.then(replace(part, shadowed=()) if one.generation in used else part)
        used.add(one.generation)
    return joined


def _needs(entry: RoleEntry, settled: Settled, former: PartitionInventory) -> str:
    """Return why the replaced copy is needed; empty: it is not."""
    if not settled.lacking or former.end <= settled.offset:
        return ""
    until = "an offset that nothing tells" if settled.wanted == LAST_LONG else f"offset {settled.wanted}"
    held, before = name_of_holder(entry.holder), name_of_holder(entry.replaced)
    return (
        f"{held} lacks records above offset {settled.offset} that were compacted, and has not reached {until}, up to which those"
        f" lie that replaced them; so {before} is needed, and read, too"
    )


def _end_of(holder: Holder, inventory: PartitionInventory) -> int:
    """Return the end of a holder: its position if higher, since the log held no record between its objects and its position."""
    return max(inventory.end, holder.position if isinstance(holder, CompleteCopy) else 0)


def is_whole_until(read: ReadPartition, offset: int) -> bool:
    """Return whether nothing below an offset is missing or damaged."""
    return not read.damaged and not any(gap.first_offset < offset for gap in read.inventory.gaps)


def join_read(one: ReadPartition, behind: ReadPartition) -> ReadPartition:
    """Extend a reading with another one from its end on."""
    end = one.reach
    later = behind.inventory.from_offset(end)
    if not (later.readable or later.gaps):
        return one
    first = until_offset(one.reading.stretches, one.inventory.end)
    stretches = [
        stretch._replace(from_offset=max(stretch.from_offset, end))
        for stretch in behind.reading.stretches
        if stretch.until_offset is None or stretch.until_offset > end
    ]
    return ReadPartition(
        one.inventory.then(later),
        [*one.damaged, *behind.damaged],
        CopyReading(stretches=(*first, *stretches), is_sure=one.reading.is_sure and behind.reading.is_sure),
        max(end, behind.reach),
    )


def until_offset(stretches: Sequence[CopyRange], offset: int) -> tuple[CopyRange, ...]:
    """Leave out offsets at or above a given one; keep the first stretch, since every reading begins at 0."""
    kept = [one for one in stretches if one.from_offset < offset or not one.from_offset]
    last = kept[-1]
    return (
        *kept[:-1],
        last._replace(until_offset=offset if last.until_offset is None else min(last.until_offset, offset)),
    )
