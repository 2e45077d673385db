"""Reads all role logs of a topic: lists them once, and reads their entries on demand. Readers and writers of copies use it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final

from archiver.archive.copies.copy_proof import WAYS_ON
from archiver.archive.copies.roles import (
    HISTORY,
    ROLES,
    CompleteCopy,
    Generation,
    Holder,
    RoleEntry,
    RoleLog,
    RolePlace,
    name_of_holder,
    read_entry,
)
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import is_partition_number, is_topic_name
from archiver.archive.notes.topics import TopicFact, is_compacted
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.process.running.workers import side_by_side
from archiver.store.port import ListedObject

NEVER_COPIED: Final = "__consumer_offsets"  # positions as of a time come from its history
_AT_ONCE: Final = 8
_MOST_STEPS: Final = 1_000  # the most entries to read of one role log, to find former holders and contradictions

Numbers = Mapping[int, datetime]  # of the entries of one role log, with put times
ReadEntry = RoleEntry | NotWholeError


@dataclass(frozen=True, slots=True)
class RoleLogs:
    """The role logs of one topic: life -> partition -> numbers."""

    archive: Archive
    topic: str
    listed: Mapping[int, Mapping[int, Numbers]]
    _read: dict[tuple[int, int, int], ReadEntry] = field(default_factory=dict, init=False, repr=False, compare=False)

    def numbers(self, life: int, partition: int) -> Numbers:
        return self.listed.get(life, {}).get(partition, {})

    def newest(self, lives: Iterable[int]) -> dict[int, dict[int, ReadEntry]]:
        """Read the deciding entries of some lives, several at a time: life -> partition -> entry, or why it cannot be read."""
        wanted = [(life, number) for life in lives for number in self.listed.get(life, {})]
        told = side_by_side(_AT_ONCE, lambda one: self._newest(*one), wanted, "role")
        found: dict[int, dict[int, ReadEntry]] = {}
        for (life, number), entry in zip(wanted, told, strict=True):
            found.setdefault(life, {})[number] = entry
        return found

    def _newest(self, life: int, partition: int) -> ReadEntry:
        """Read the newest entry. Refuse one without a holder if an earlier entry has one: no writer removes the holder."""
        numbers = self.numbers(life, partition)
        newest = self.entry(life, partition, max(numbers))
        if isinstance(newest, NotWholeError) or newest.holder is not None:
            return newest
        held = next((one.holder for one in self.holders(life, partition) if one.holder is not None), None)
        if held is None and len(numbers) <= _MOST_STEPS:
            return newest
        place = RolePlace(topic=self.topic, life=life, partition=partition)
        key = self.archive.layout.fact_key(place.stream, max(numbers))
        earlier = f"but an earlier entry has {name_of_holder(held)} as its holder"
        unknown = f"and whether an earlier entry has one is unknown: there are more than {_MOST_STEPS:,}"
        return CorruptSegmentError(f"{key}: names no holder, {unknown if held is None else earlier}; {WAYS_ON}")

    def entry(self, life: int, partition: int, number: int) -> ReadEntry:
        place = (life, partition, number)
        if place not in self._read:
            try:
                self._read[place] = read_entry(
                    self.archive, RolePlace(topic=self.topic, life=life, partition=partition), number
                )
            except NotWholeError as error:
                self._read[place] = error
        return self._read[place]

    def holders(self, life: int, partition: int) -> Iterator[RoleEntry]:
        """Yield an entry of each holder, the newest first; leave out unreadable and missing entries.

        Entries that later ones skip by `switched` come last: `switched` may be false.
        """
        numbers, passed = sorted(self.numbers(life, partition), reverse=True), list[int]()
        for _ in range(_MOST_STEPS):
            if not numbers:
                numbers, passed = passed, []
            if not numbers:
                return
            entry, before = self.entry(life, partition, numbers[0]), numbers[0]
            if isinstance(entry, RoleEntry):
                yield entry
                before = before if entry.switched is None else entry.switched
            passed += [one for one in numbers[1:] if one >= before]
            numbers = [one for one in numbers[1:] if one < before]

    def was_complete(self, life: int, partition: int, generation: Generation) -> bool | None:
        """Return whether any entry since a generation began calls it complete; None if the log has too many entries to read."""
        numbers = self._since(life, partition, generation)
        told = (self.entry(life, partition, number) for number in numbers[:_MOST_STEPS])
        is_named = any(isinstance(entry, RoleEntry) and _calls_complete(entry, generation) for entry in told)
        return True if is_named else None if len(numbers) > _MOST_STEPS else False

    def contradictions(self, newest: Mapping[int, tuple[int, RoleEntry]]) -> dict[int, str]:
        """Return for several partitions, given with life and newest entry, how the first entry with the holder contradicts the newest."""
        told = side_by_side(
            _AT_ONCE, lambda one: self.contradiction(one[1][0], one[0], one[1][1]), newest.items(), "role"
        )
        return dict(zip(newest, told, strict=True))

    def contradiction(self, life: int, partition: int, newest: RoleEntry) -> str:
        """Return how the first entry with the holder contradicts the newest one; empty: it does not, or is missing.

        A copy becomes the holder once. No later entry changes its end, `switched`, or what it replaced.
        """
        if not isinstance(newest.holder, CompleteCopy):
            return ""
        generation = newest.holder.generation
        numbers = self._since(life, partition, generation)
        for number in numbers[:_MOST_STEPS]:
            first = self.entry(life, partition, number)
            if isinstance(first, RoleEntry) and _is_of(first.holder, generation):
                is_true = _of_switch(first) == _of_switch(newest) and self._is_switch(life, partition, number, first)
                why = f"entry {number} of the role log has copy {generation} as its holder first"
                return "" if is_true else f"{why}, and the newest entry, or the one before it, contradicts that"
        unknown = f"whether the role log contradicts its newest entry is unknown: it has more than {_MOST_STEPS:,}"
        return unknown if len(numbers) > _MOST_STEPS else ""

    def _is_switch(self, life: int, partition: int, number: int, first: RoleEntry) -> bool:
        """Return whether the first entry with a holder may be its switch, according to the remaining entries before it."""
        if first.switched != number:
            return first.switched not in self.numbers(life, partition)
        before = self.entry(life, partition, number - 1) if number - 1 in self.numbers(life, partition) else None
        return not isinstance(before, RoleEntry) or first.replaced == (before.holder or HISTORY)

    def _since(self, life: int, partition: int, generation: Generation) -> list[int]:
        """Return the entries since a generation began, the oldest first: later entries may be forged, and many."""
        return sorted(one for one in self.numbers(life, partition) if one > generation.number)

    def put_by(self, life: int, partition: int, number: int) -> datetime | None:
        """Return the latest possible time of an entry's put; later entries bound it if its object is gone."""
        return min((at for one, at in self.numbers(life, partition).items() if one >= number), default=None)


def _is_of(copy: Holder, generation: Generation) -> bool:
    return isinstance(copy, CompleteCopy) and copy.generation == generation


def _calls_complete(entry: RoleEntry, generation: Generation) -> bool:
    return _is_of(entry.holder, generation) or _is_of(entry.replaced, generation)


def _of_switch(entry: RoleEntry) -> tuple[Holder, int | None, Holder]:
    """Return the part of a switch that later entries with the same holder repeat. `is_sure` is left out: it may change."""
    holder = replace(entry.holder, is_sure=False) if isinstance(entry.holder, CompleteCopy) else entry.holder
    return holder, entry.switched, entry.replaced


def list_copied_topics(archive: Archive) -> frozenset[str]:
    """List the topics that have a role log."""
    names = archive.store.list_directories(archive.layout.control_prefix(ROLES))
    return frozenset(name for name in names if is_topic_name(name) and name != NEVER_COPIED)


def list_role_logs(archive: Archive, topic: str) -> RoleLogs:
    """List the role logs of a topic, in one listing."""
    prefix = archive.layout.control_prefix(f"{ROLES}/{topic}")
    items = () if topic == NEVER_COPIED else archive.store.list(prefix)
    return RoleLogs(archive, topic, _sorted_by_place(archive, topic, prefix, items))


def list_role_logs_at_once(archive: Archive) -> dict[str, RoleLogs]:
    """List the role logs of all topics, in one listing: for many topics with short logs, that takes far fewer requests."""
    prefix = archive.layout.control_prefix(ROLES)
    found: dict[str, RoleLogs] = {}
    for topic, items in groupby(archive.store.list(prefix), key=lambda item: _name_below(prefix, item)):
        if is_topic_name(topic) and topic != NEVER_COPIED:
            listed = _sorted_by_place(archive, topic, f"{prefix}{topic}/", items)
            found[topic] = RoleLogs(archive, topic, listed)
    return found


def _sorted_by_place(
    archive: Archive, topic: str, prefix: str, items: Iterable[ListedObject]
) -> dict[int, dict[int, dict[int, datetime]]]:
    """Sort listed entries of a topic by life and partition. Other objects are skipped."""
    listed: dict[int, dict[int, dict[int, datetime]]] = {}
    for item in items:
        life, _, rest = item.key.removeprefix(prefix).partition("/")
        partition = rest.partition("/")[0]
        if not (is_partition_number(life) and is_partition_number(partition)):
            continue
        number = archive.layout.parse_fact(f"{ROLES}/{topic}/{life}/{partition}", item.key)
        if number is not None:
            listed.setdefault(int(life), {}).setdefault(int(partition), {})[number] = item.last_modified
    return listed


def _name_below(prefix: str, item: ListedObject) -> str:
    return item.key.removeprefix(prefix).partition("/")[0]


def read_role_logs(
    archive: Archive, topic: str, wanted: Collection[RolePlace] | None = None
) -> dict[RolePlace, RoleLog]:
    """Read the newest entry of each role log of a topic; only of the wanted logs, if `wanted` is given."""
    logs = list_role_logs(archive, topic)
    listed = (
        RolePlace(topic=topic, life=life, partition=number)
        for life, partitions in logs.listed.items()
        for number in partitions
    )
    places = [place for place in listed if wanted is None or place in wanted]
    return dict(zip(places, side_by_side(_AT_ONCE, partial(_read, logs), places, "role"), strict=True))


def _read(logs: RoleLogs, place: RolePlace) -> RoleLog:
    put_at = logs.numbers(place.life, place.partition)
    told = logs.entry(place.life, place.partition, max(put_at))
    return RoleLog(place=place, number=max(put_at), told=told, put_at=put_at)


def list_all_role_logs(archive: Archive, wanted: Callable[[str], bool] | None = None) -> dict[str, RoleLogs]:
    """List the role logs of all wanted topics with a role log."""
    names = sorted(name for name in list_copied_topics(archive) if wanted is None or wanted(name))
    found = zip(names, side_by_side(_AT_ONCE, lambda name: list_role_logs(archive, name), names, "role"), strict=True)
    return {name: logs for name, logs in found if logs.listed}


def of_compacted(logs: RoleLogs, history: Sequence[TopicFact]) -> tuple[RoleLogs, tuple[str, ...]]:
    """Leave out and report role logs of a topic that was never compacted. A fact without a policy may hide that it was."""
    if not logs.listed or not history or any(is_compacted(fact) is not False for fact in history):
        return logs, ()
    where = f"{logs.archive.layout.control_prefix(ROLES)}{logs.topic}/"
    told = (
        f"{logs.topic}: {where} is not read: the topic never had compact in cleanup.policy, so no instance has written that;"
        " see who has, and delete it"
    )
    return replace(logs, listed={}), (told,)


def of_known_lives(logs: RoleLogs, history: Sequence[TopicFact]) -> tuple[RoleLogs, list[str]]:
    """Leave out lives that the topic does not have: writers note a life before any entry."""
    strange = sorted(life for life in logs.listed if history and life >= len(history[-1].lives))
    notes = [
        f"{logs.topic}: there is a role log of life {life}, which the topic's control fact does not have; it is not read"
        for life in strange
    ]
    known = {life: found for life, found in logs.listed.items() if life not in strange}
    return (replace(logs, listed=known) if strange else logs), notes
