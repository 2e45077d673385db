"""Chooses the life and the records to read of a topic with role logs, for each partition, and reports problems (docs/format.md §11)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from archiver.archive.copies.archived_topic import ArchivedTopic, CopyRange, CopyReading
from archiver.archive.copies.copy_listings import list_instances
from archiver.archive.copies.history_doubts import expired_offset, history_doubts
from archiver.archive.copies.partition_copies import CopyReader, LifeEntry, ReadPartition, is_whole_until, until_offset
from archiver.archive.copies.past_copies import PastCopies
from archiver.archive.copies.role_logs import ReadEntry, RoleLogs, list_all_role_logs, of_compacted, of_known_lives
from archiver.archive.copies.roles import ROLES, CompleteCopy, RoleEntry
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.index.inventory import EMPTY_PARTITION, Inventory, PartitionInventory, problems_of
from archiver.archive.notes.topics import (
    LifeRange,
    TopicFact,
    UnnotedLives,
    read_topic_history,
    shape_in,
)
from archiver.archive.segments.partition_segments import Segments, blocks_of, segment_blocks
from archiver.errors import CorruptSegmentError, NotWholeError, UsageError
from archiver.process.values.columns import Chain

_MOST_STRETCHES: Final = 1_000  # of one partition: our plans have no more

Pins = Mapping[str, Mapping[int, CopyReading]]  # topic -> partition -> objects to read


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChoice:
    """The copies that a reader requested. Without a request the role logs decide."""

    instance: str | None = None  # its newest complete copy
    is_history: bool = False  # reads `topics/`, ignoring role logs
    as_of_ms: int | None = None  # the copy must still have all records that the log had then
    pinned: Pins = field(default_factory=dict)  # as planned earlier, even if another copy is current now

    def __post_init__(self) -> None:
        if self.instance is not None and self.is_history:
            raise UsageError(
                "--instance and --history: what an instance has copied is not the history; take one of them"
            )


BY_ROLES: Final = CopyChoice()


@dataclass(slots=True)
class _Found:
    """The readings of the partitions found so far."""

    partitions: dict[int, PartitionInventory] = field(default_factory=dict)
    damaged: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[int, CopyReading] = field(default_factory=dict)

    def add(self, read: Mapping[int, ReadPartition]) -> None:
        for number, one in read.items():
            self.partitions[number] = one.inventory
            self.damaged[number] += one.damaged
            is_sure = one.reading.is_sure and not (one.reading.is_copy and expired_offset(one.inventory) is not None)
            self.copies[number] = replace(one.reading, reach=one.reach, is_sure=is_sure)


class CopiedTopic:
    """A topic with role logs, objects under `topics/`, or both; `history`: its control facts, oldest first."""

    def __init__(
        self,
        logs: RoleLogs,
        inventory: Inventory,
        history: Sequence[TopicFact],
        instances: Callable[[], Collection[str]] | None = None,
    ) -> None:
        logs, self.ignored = of_compacted(logs, history)
        self._logs, self._notes = of_known_lives(logs, history)
        self.topic = logs.topic
        self._inventory = inventory
        self._history = history
        self._newest = history[-1] if history else None
        with_records = inventory.lives().get(self.topic, set())
        self._unnoted, unnoted_problems = UnnotedLives.of(self.topic, history, with_records)
        self.ignored += unnoted_problems
        self._with_records = with_records - self._unnoted
        instances = instances or partial(list_instances, logs.archive)
        self._reader = CopyReader(self._logs, self._under_topics, instances)
        self._past = PastCopies(self._logs, self._reader, self._under_topics)

    @property
    def has_copies(self) -> bool:
        """Whether any life of the topic has a role log."""
        return bool(self._logs.listed)

    def lives(self, choice: CopyChoice = BY_ROLES) -> Sequence[int]:
        """Return the lives that have a role log; for a wanted instance, the lives with a complete copy of it."""
        instance, listed = choice.instance, self._logs.listed
        return [
            life
            for life in sorted(listed)
            if instance is None or any(self._copy_of(instance, life, number) for number in listed[life])
        ]

    def read(self, wanted_life: int | None, choice: CopyChoice) -> ArchivedTopic:
        """Read the topic in the wanted life, or in the one to read by default. Raises UsageError."""
        life = self._life(choice) if wanted_life is None else self._known(wanted_life)
        family = self._family(life)
        fact = shape_in(self._history, life)
        found = _Found()
        numbers = self._numbers(family, fact)
        pinned = {number: one for number, one in choice.pinned.get(self.topic, {}).items() if number in numbers}
        found.add(self._reader.read_stretches({number: self._checked(number, one) for number, one in pinned.items()}))
        left = [number for number in numbers if number not in pinned]
        if choice.instance is None:
            self._read_holders(found, life, family, left, choice.as_of_ms)
        else:
            self._read_instance(found, choice.instance, family, left)
        joined = {block.partition[1] for one in found.partitions.values() for block in segment_blocks(one.segments)}
        return ArchivedTopic(
            topic=self.topic,
            life=life,
            fact=fact,
            partitions=found.partitions,
            damaged=found.damaged,
            other_lives=tuple(sorted((self._with_records | set(self._logs.listed)) - joined - {life})),
            copies=found.copies,
            notes=(
                *self._notes,
                *self._unsure(found.copies),
                *(one.needs for one in found.copies.values() if one.needs),
                *self._doubts(life, found).values(),
            ),
            ignored=self.ignored,
        )

    def copies_in(self, life: int) -> Mapping[int, ReadPartition]:
        """Read the current copies of one life alone, with their tails, by partition. An unreadable entry is damage."""
        found: dict[int, ReadPartition] = {}
        entries: dict[int, LifeEntry] = {}
        for number, entry in self._logs.newest([life]).get(life, {}).items():
            if isinstance(entry, NotWholeError):
                found[number] = ReadPartition(EMPTY_PARTITION, [str(entry)], CopyReading(stretches=()), 0)
            elif isinstance(entry.holder, CompleteCopy):
                entries[number] = LifeEntry(life, entry)
        return found | self._reader.read_by(entries)

    # --- the life to read

    def _life(self, choice: CopyChoice) -> int:
        """Return the newest complete life of the newest topic of that name; report newer, incomplete topics."""
        lives = self._with_records | set(self._logs.listed)
        roots = sorted({self._root(life) for life in lives}, reverse=True)
        told: list[str] = []
        for root in roots:
            family = self._family(max(life for life in lives if self._root(life) == root))
            lack = self._lack(root, family, choice)
            if not lack:
                self._notes += told
                return self._newest_of(family)
            told.append(
                f"{self.topic}: life {max(family)} is passed over, and an older one is read: {lack} (--life {max(family)})"
            )
        return self._newest_of(lives)

    def _lack(self, root: int, family: Sequence[int], choice: CopyChoice) -> str:
        """Return why a topic cannot be read; empty: it can, or nothing is expected of it."""
        if not any(life in self._logs.listed for life in family):
            return "" if choice.instance is None else "it has no copies"
        first = next((one for one in self._history if one.root(one.current.life) == root), None)
        seen = {number for life in family for number in self._logs.listed.get(life, {})}
        archived = self._inventory.numbers_of(self.topic, family)
        told = self._logs.newest(family)
        for number in range(first.partitions) if first else sorted(seen | archived):
            entries = [one for life in family if (one := told.get(life, {}).get(number)) is not None]
            is_told = any(not isinstance(one, RoleEntry) or isinstance(one.holder, CompleteCopy) for one in entries)
            if choice.instance is not None:
                is_told = any(self._copy_of(choice.instance, life, number) for life in family)
            if not is_told and (choice.instance is not None or number not in archived):
                return f"partition {number} has no complete copy there yet"
        return ""

    def _newest_of(self, lives: Collection[int]) -> int:
        """Return the newest life with objects under `topics/` or with a current copy."""
        held = {
            life
            for life, entries in self._logs.newest(lives).items()
            if any(not isinstance(one, RoleEntry) or one.holder is not None for one in entries.values())
        }
        return max([life for life in lives if life in self._with_records or life in held] or lives or (0,))

    def _known(self, life: int) -> int:
        known = self._with_records | self._unnoted | set(self._logs.listed)
        known |= {one.life for fact in self._history for one in fact.lives}
        if life not in known:
            raise UsageError(
                f"{self.topic} has no life {life} in the archive; it has {', '.join(map(str, sorted(known))) or 'none'}"
            )
        return life

    def _root(self, life: int) -> int:
        """Return the root of a life; a life without a note is its own root."""
        known = self._newest
        return life if known is None or life >= len(known.lives) else known.root(life)

    def _family(self, life: int) -> list[int]:
        """Return the lives of the same topic up to a life, with and without records, in order."""
        known = self._newest
        lives = {life} if known is None else {one.life for one in known.lives} | {life}
        return sorted(one for one in lives if one <= life and self._root(one) == self._root(life))

    def _numbers(self, family: Sequence[int], fact: TopicFact | None) -> list[int]:
        """Return the partitions to read: those with a role log or an object, and those of the topic's fact."""
        copied = {number for life in family for number in self._logs.listed.get(life, {})}
        shape = set(range(fact.partitions)) if fact is not None and copied else set()
        return sorted(copied | shape | self._inventory.numbers_of(self.topic, family))

    # --- the copy to read

    def _read_holders(
        self, found: _Found, life: int, family: Sequence[int], numbers: Collection[int], as_of_ms: int | None
    ) -> None:
        told = self._logs.newest(family)
        entries: dict[int, LifeEntry] = {}
        has_copies = any(isinstance(one, RoleEntry) and isinstance(one.holder, CompleteCopy) for one in _each(told))
        for number in numbers:
            which = _deciding(told, family, number)
            if isinstance(which, NotWholeError):
                found.partitions[number] = EMPTY_PARTITION
                found.damaged[number].append(str(which))
            elif which is not None:
                entries[number] = which
            else:
                is_begun = any(number in told.get(one, {}) for one in family)
                self._read_history(found, life, number, is_begun=is_begun, is_expected=has_copies)
        read = self._reader.read_by(entries)
        if as_of_ms is not None:
            read = self._past.read(read, entries, as_of_ms)
        found.add({number: self._with_later(number, life, entries[number].life, one) for number, one in read.items()})

    def _read_history(self, found: _Found, life: int, number: int, *, is_begun: bool, is_expected: bool) -> None:
        """Read a partition without a complete copy from `topics/`, and report that."""
        inventory, damaged = self._under_topics(life, number, 0)
        is_there = bool(inventory.readable or inventory.gaps or damaged)
        if is_there:
            found.partitions[number] = inventory
            found.damaged[number] += damaged
            if is_begun:
                self._notes.append(f"{self.topic}-{number}: no copy is complete; what lies under topics/ is read")
        elif is_begun or is_expected:
            found.partitions[number] = inventory
            found.damaged[number].append(
                f"{self.topic}-{number}: no copy of this partition is complete, and nothing of it lies under topics/; see"
                " that the instances of `archiver compacted` are at work"
            )

    def _with_later(self, number: int, life: int, held_life: int, read: ReadPartition) -> ReadPartition:
        """Continue in `topics/` of a later life after a truncation, if the later life has no complete copy."""
        lineage = self._lineage(life, number)
        later = [one for one in lineage if one.life > held_life and self._has(one.life, number)]
        if not later:
            return read
        branch = later[0].from_offset
        inventory, damaged = self._inventory.join(self.topic, number, later)
        below = read.inventory.until_offset(branch) if read.reach < branch else read.inventory.below(branch)
        self._notes.append(
            f"{self.topic}-{number}: no copy of life {later[-1].life} is complete; from offset {branch} on, what lies under"
            " topics/ is read"
        )
        stretches = until_offset(read.reading.stretches, branch)
        behind = CopyRange(None, later[-1].life, branch)
        return ReadPartition(
            below.then(inventory),
            [*read.damaged, *damaged],
            replace(read.reading, stretches=(*stretches, behind)),
            max(branch, inventory.end),
        )

    def _read_instance(self, found: _Found, instance: str, family: Sequence[int], numbers: Sequence[int]) -> None:
        """Read the newest complete copies of one instance that still exist."""
        for number in numbers:
            copies = ((life, one) for life in reversed(family) if (one := self._copy_of(instance, life, number)))
            first = next(copies, None)
            if first is not None:
                found.add({number: first[1]})
            else:
                found.partitions[number] = EMPTY_PARTITION
                found.damaged[number].append(
                    f"{self.topic}-{number}: instance {instance} has no complete copy of this partition"
                )
        if not found.copies:
            raise UsageError(f"instance {instance} has no complete copy of topic {self.topic}; {self._who_has(family)}")

    def _copy_of(self, instance: str, life: int, number: int) -> ReadPartition | None:
        """Return the newest copy of an instance that was complete and still is. The current copy is read unchanged."""
        for entry in self._logs.holders(life, number):
            copy = entry.holder
            if isinstance(copy, CompleteCopy) and copy.generation.instance == instance:
                read = self._reader.read_alone(number, life, copy)
                is_holder = entry == self._logs.entry(life, number, max(self._logs.numbers(life, number)))
                if is_holder or is_whole_until(read, copy.next):
                    return read
        return None

    def _who_has(self, family: Sequence[int]) -> str:
        holders = (one.holder for one in _each(self._logs.newest(family)) if isinstance(one, RoleEntry))
        having = sorted({one.generation.instance for one in holders if isinstance(one, CompleteCopy)})
        return f"the copies that are read are of {', '.join(having)}" if having else "no instance has one"

    def _checked(self, number: int, reading: CopyReading) -> CopyReading:
        """Refuse a reading that no valid plan contains: a forged plan may name any objects."""
        bounds = [
            bound for one in reading.stretches for bound in (one.from_offset, one.until_offset) if bound is not None
        ]
        is_open = [one.until_offset is None for one in reading.stretches]
        is_order = (
            0 < len(is_open) <= _MOST_STRETCHES
            and not any(is_open[:-1])
            and bounds == sorted(bounds)
            and bounds[0] == 0
        )
        strange = [
            one
            for one in reading.stretches
            if one.generation is not None and not self._logs.was_complete(one.life, number, one.generation)
        ]
        if not is_order or strange:
            what = f"generation {strange[0]}" if strange else "no order of offsets"
            raise CorruptSegmentError(
                f"{self.topic}-{number}: the plan names {what}, and no entry below"
                f" {self._logs.archive.layout.control_prefix(ROLES)}{self.topic}/ says that this was complete"
            )
        return reading

    # --- `topics/`

    def _lineage(self, life: int, number: int) -> list[LifeRange]:
        known = self._newest
        return [LifeRange(life, 0, None)] if known is None or life >= len(known.lives) else known.lineage(life, number)

    def _has(self, life: int, number: int) -> bool:
        return number in self._inventory.numbers_of(self.topic, [life])

    def _under_topics(self, life: int, number: int, from_offset: int) -> tuple[PartitionInventory, Sequence[str]]:
        lineage = [
            stretch._replace(from_offset=max(stretch.from_offset, from_offset))
            for stretch in self._lineage(life, number)
            if stretch.until_offset is None or stretch.until_offset > from_offset
        ]
        return self._inventory.join(self.topic, number, lineage)

    def _doubts(self, life: int, found: _Found) -> Mapping[int, str]:
        """Report where the history under `topics/` may lack deletions."""
        layout = self._logs.archive.layout
        some = {
            number: one
            for number, one in found.partitions.items()
            if number not in found.copies or any(part.generation is None for part in found.copies[number].stretches)
        }
        return history_doubts(self.topic, life, some, layout, self._history)

    def _unsure(self, copies: Mapping[int, CopyReading]) -> Iterator[str]:
        unsure = sorted(number for number, one in copies.items() if not one.is_sure)
        if unsure:
            yield (
                f"{self.topic}: of partition {', '.join(map(str, unsure))} the copy is complete, but unsure: Kafka removed"
                " deletions or newer values before they were read, so a key that was deleted may have a value again, and an"
                " old value may stand for a newer one"
            )


def find_copied_topics(
    archive: Archive, inventory: Inventory, wanted: Callable[[str], bool] | None = None
) -> tuple[list[CopiedTopic], list[str]]:
    """Return the wanted topics with role logs; and the problems: unreadable control facts, and ignored role logs."""
    found, unreadable, instances = list[CopiedTopic](), list[str](), cache(partial(list_instances, archive))
    for name, logs in list_all_role_logs(archive, wanted).items():
        try:
            history = read_topic_history(archive, name)
        except NotWholeError as error:
            unreadable.append(str(error))
            history = []
        found.append(CopiedTopic(logs, inventory, history, instances))
        unreadable += found[-1].ignored
    return [one for one in found if one.has_copies], unreadable


def copied_by(archive: Archive, choice: CopyChoice, wanted: Callable[[str], bool] | None = None) -> frozenset[str]:
    """Return the wanted topics with a complete copy of some partition by the requested instance."""
    found, _ = find_copied_topics(archive, Inventory(partitions={}, strangers=(), damaged=()), wanted)
    return frozenset(one.topic for one in found if one.lives(choice))


def problems_of_copied(topic: ArchivedTopic) -> list[str]:
    """List the problems of partitions that are read by their role logs."""
    name = f"{topic.topic}@{topic.life}" if topic.life else topic.topic
    return [
        problem
        for number in sorted({*topic.copies, *topic.damaged})
        for problem in problems_of(
            name, number, topic.partitions.get(number, EMPTY_PARTITION), topic.damaged.get(number, ())
        )
    ]


def in_copies(layout: Layout, topic: ArchivedTopic) -> dict[int, PartitionInventory]:
    """Return the objects of copies that are read, by partition, without those under `topics/`; nothing is missing there."""

    def is_copied(segments: Segments) -> bool:
        return segments.stem.startswith(layout.copies_root)

    return {
        number: PartitionInventory(
            readable=Chain(one for one in blocks_of(topic.partitions[number].readable) if is_copied(one.segments)),
            shadowed=Chain(one for one in segment_blocks(topic.partitions[number].shadowed) if is_copied(one)),
            gaps=(),
        )
        for number, reading in topic.copies.items()
        if reading.is_copy
    }


def _each(told: Mapping[int, Mapping[int, ReadEntry]]) -> Iterator[ReadEntry]:
    return (one for entries in told.values() for one in entries.values())


def _deciding(
    told: Mapping[int, Mapping[int, ReadEntry]], family: Sequence[int], number: int
) -> LifeEntry | NotWholeError | None:
    """Return the entry of the newest life with a current copy, or the reason why it is unknown."""
    for life in reversed(family):
        entry = told.get(life, {}).get(number)
        if isinstance(entry, NotWholeError):
            return entry
        if entry is not None and entry.holder is not None:
            return LifeEntry(life, entry)
    return None
