"""Reads the inputs of a clearing: role logs, existing copies, and restores that read them. Deletes nothing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.copies.copy_catalog import NOTHING, CopyCatalog, CopyState
from archiver.archive.copies.role_logs import ListedRoleLog, read_role_logs
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry, RolePlace, read_entry
from archiver.archive.format.handle import Archive
from archiver.archive.restores.restore_pins import PinnedCopies, RestorePins
from archiver.archive.segments.listing import ListedSegment
from archiver.backup.compacted.clearing.clearing_rules import (
    ClearingRules,
    LogBounds,
    Situation,
    StandingCopy,
    early_reasons,
    is_left,
)
from archiver.errors import NotWholeError

_MOST_READ: Final = 64  # most entries to read for the time at which a copy became current

AskLogs = Callable[[Collection[RolePlace]], Mapping[RolePlace, LogBounds]]
Objects = Mapping[Generation, Sequence[ListedSegment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One partition: its copies, and the state that decides. `situation` None: its role log is unreadable, and nothing is cleared."""

    log: ListedRoleLog
    objects: Objects
    situation: Situation | None = None

    @property
    def place(self) -> RolePlace:
        return self.log.place


@dataclass(slots=True)
class ClearingSurvey:
    """Surveys topics. Entries, listings, pins and log ends are read each time; the catalog caches facts of objects."""

    archive: Archive
    rules: ClearingRules
    pin_ms: int
    ask_logs: AskLogs  # asked last, so that no copy was read beyond the returned log end
    catalog: CopyCatalog
    pins: RestorePins
    asks_all: bool = False  # also if nothing may be deleted yet

    @classmethod
    def of(
        cls,
        archive: Archive,
        rules: ClearingRules,
        pin_ms: int,
        ask_logs: AskLogs,
        *,
        asks_all: bool = False,
        catalog: CopyCatalog | None = None,
    ) -> "ClearingSurvey":
        return cls(archive, rules, pin_ms, ask_logs, catalog or CopyCatalog(archive), RestorePins(archive), asks_all)

    def survey(self, topic: str, now_ms: int, places: Collection[RolePlace] | None = None) -> list[Surveyed]:
        """Survey the partitions of a topic that have a role log, in all lives; of these places only, if they are given.

        Entries are read before any listing, and the log last. Objects are read only if the decision depends on them.
        """
        logs = read_role_logs(self.archive, topic, places)
        surveyed: list[Surveyed] = []
        for life in sorted({place.life for place in logs}):
            some = {place: log for place, log in sorted(logs.items(), key=_by_place) if place.life == life}
            surveyed += self._survey_life(topic, life, some, now_ms)
        return surveyed

    def _survey_life(
        self, topic: str, life: int, logs: Mapping[RolePlace, ListedRoleLog], now_ms: int
    ) -> list[Surveyed]:
        copies = self.catalog.list_life(topic, life)
        self.catalog.forget_others(logs.keys(), copies)
        surveyed = [self._standing(log, copies.get(place, {}), now_ms) for place, log in logs.items()]
        if any(self._may_go(one) for one in surveyed):
            surveyed = self._ask(surveyed, now_ms)
        return surveyed

    def _standing(self, log: ListedRoleLog, objects: Objects, now_ms: int) -> Surveyed:
        if log.entry is None:
            return Surveyed(log=log, objects=objects)
        standing = tuple(_standing_copy(log, log.entry, generation) for generation in sorted(objects, key=_by_number))
        situation = Situation(number=log.number, entry=log.entry, now_ms=now_ms, standing=standing)
        return Surveyed(log=log, objects=objects, situation=situation)

    def _may_go(self, one: Surveyed) -> bool:
        situation = one.situation
        if self.asks_all:
            return situation is not None and isinstance(situation.entry.holder, CompleteCopy)
        return situation is not None and any(
            not early_reasons(situation, self.rules, copy) for copy in situation.standing
        )

    def _ask(self, surveyed: Sequence[Surveyed], now_ms: int) -> list[Surveyed]:
        """Read objects where a deletion is possible, then the restores that read copies, then the bounds of the logs."""
        asked = {one.place: self._with_objects(one) for one in surveyed if self._may_go(one)}
        pins = self.pins.read(now_ms - self.pin_ms)
        bounds = self.ask_logs(asked.keys())
        return [
            _with_pins(asked[one.place], pins, bounds.get(one.place)) if one.place in asked else one for one in surveyed
        ]

    def _with_objects(self, one: Surveyed) -> Surveyed:
        situation = one.situation
        if situation is None or not isinstance(situation.entry.holder, CompleteCopy):
            return one
        holder = situation.entry.holder.generation
        is_listed, copy = holder in one.objects, one.place.copy_key(holder)
        state = self.catalog.wholeness(copy, one.objects[holder]) if is_listed else NOTHING
        held_ms = self._held_since_ms(one.log, holder)
        standing = tuple(self._with_state(one, situation, copy) for copy in situation.standing)
        standing = tuple(_proven_since(copy, state, held_ms) for copy in standing)
        return replace(one, situation=replace(situation, standing=standing, holder=state))

    def _held_since_ms(self, log: ListedRoleLog, holder: Generation) -> int:
        """Return the put time of the entry that made a copy current: the first of the newest ones that all name it."""
        since = log.number
        for number in sorted(log.put_at, reverse=True)[1:_MOST_READ]:
            try:
                entry = read_entry(self.archive, log.place, number)
            except NotWholeError:
                break
            if not isinstance(entry.holder, CompleteCopy) or entry.holder.generation != holder:
                break
            since = number
        return log.put_ms(since)

    def _with_state(self, one: Surveyed, situation: Situation, copy: StandingCopy) -> StandingCopy:
        if not is_left(situation.entry, copy.generation):
            return copy
        was_holder, promised = self._past_of(one, situation, copy.generation)
        state = self.catalog.wholeness(one.place.copy_key(copy.generation), one.objects[copy.generation])
        return replace(copy, was_holder=was_holder, promised=promised, state=state)

    def _past_of(self, one: Surveyed, situation: Situation, generation: Generation) -> tuple[bool | None, int]:
        """Return whether a generation was current, and its end then. None: the entry that replaced it is gone."""
        since = next((left.since for left in situation.entry.left if left.generation == generation), None)
        if since is None or not self.rules.keep_generations:
            return False, 0
        try:
            replaced = read_entry(self.archive, one.place, since).replaced
        except NotWholeError:
            return None, 0
        was_holder = isinstance(replaced, CompleteCopy) and replaced.generation == generation
        return was_holder, replaced.next if was_holder and isinstance(replaced, CompleteCopy) else 0


def _with_pins(one: Surveyed, pins: PinnedCopies, log: LogBounds | None) -> Surveyed:
    """Add the restores that read the copies, and the log. An unreadable restore blocks all deletes."""
    situation = one.situation
    if situation is None:
        return one
    standing = tuple(
        replace(copy, restores=pins.restores.get(one.place.copy_key(copy.generation), ()))
        for copy in situation.standing
    )
    doubts = (*situation.doubts, *(f"which copies a restore reads is not known: {why}" for why in pins.unreadable))
    return replace(one, situation=replace(situation, standing=standing, doubts=doubts, log=log))


def _standing_copy(log: ListedRoleLog, entry: RoleEntry, generation: Generation) -> StandingCopy:
    """Return since when a generation is left: since the entry that left it, or, if no entry names it, since its begin."""
    since = next((left.since for left in entry.left if left.generation == generation), generation.number)
    return StandingCopy(generation=generation, left_ms=log.put_ms(since))


def _proven_since(copy: StandingCopy, holder: CopyState, held_ms: int) -> StandingCopy:
    """Return the later of two times: the switch to the current copy, and the proof by its objects that it has all of this one."""
    proven_ms = None if copy.state is None else holder.proven_since_ms(copy.state.end)
    return copy if proven_ms is None else replace(copy, needless_ms=max(held_ms, proven_ms))


def _by_number(generation: Generation) -> tuple[int, str]:
    return generation.number, generation.instance


def _by_place(item: tuple[RolePlace, ListedRoleLog]) -> int:
    return item[0].partition
