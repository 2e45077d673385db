"""Reads what decides which old copies are deleted: role logs, copies, and the restores that read copies. Deletes nothing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from archiver.archive.copies.copy_catalog import NOTHING, CopyCatalog, CopyState
from archiver.archive.copies.role_logs import read_role_logs
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleLog, RolePlace, read_entry
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey
from archiver.archive.restores.restore_pins import PinnedCopies, RestorePins
from archiver.archive.segments.listing import ListedPartition
from archiver.backup.compacted.clearing.clearing_rules import (
    ClearingRules,
    ExistingCopy,
    LogBounds,
    Situation,
    early_reasons,
    is_left,
)
from archiver.errors import NotWholeError

_MOST_READ: Final = 64  # most entries to read for the time at which a copy became current

AskLogs = Callable[[Collection[RolePlace]], Mapping[RolePlace, LogBounds]]


class ClearingSurvey:
    """Surveys topics. Entries, listings, pins and log ends are read each time; the catalog caches facts of objects.

    `ask_logs` is called last, so that no copy was read beyond the returned log end. `asks_all`: also if nothing may be
    deleted yet.
    """

    def __init__(
        self,
        archive: Archive,
        rules: ClearingRules,
        pin_ms: int,
        ask_logs: AskLogs,
        *,
        asks_all: bool = False,
        catalog: CopyCatalog | None = None,
    ) -> None:
        self.archive = archive
        self.rules = rules
        self.catalog = catalog or CopyCatalog(archive)
        self._pin_ms = pin_ms
        self._ask_logs = ask_logs
        self._asks_all = asks_all
        self._pins = RestorePins(archive)

    def survey(self, topic: str, now_ms: int, places: Collection[RolePlace] | None = None) -> list[Situation]:
        """Survey the partitions of a topic that have a role log, in all lives; of these places only, if they are given.

        Entries are read before any listing, and the log last. Objects are read only if the decision depends on them.
        """
        logs = read_role_logs(self.archive, topic, places)
        surveyed: list[Situation] = []
        for life in sorted({place.life for place in logs}):
            some = {place: log for place, log in sorted(logs.items(), key=_by_place) if place.life == life}
            surveyed += self._survey_life(topic, life, some, now_ms)
        return surveyed

    def read_pins(self, now_ms: int) -> PinnedCopies:
        """Read which copies unfinished restores may read by now."""
        return self._pins.read(now_ms - self._pin_ms)

    def _survey_life(self, topic: str, life: int, logs: Mapping[RolePlace, RoleLog], now_ms: int) -> list[Situation]:
        copies = self.catalog.list_life(topic, life)
        self.catalog.forget_others(logs.keys(), copies)
        surveyed = [_standing(log, copies.get(place.partition, {}), now_ms) for place, log in logs.items()]
        if any(self._may_go(one) for one in surveyed):
            surveyed = self._ask(surveyed, now_ms)
        return surveyed

    def _may_go(self, one: Situation) -> bool:
        if one.problem or one.copy is None:
            return False
        return self._asks_all or any(
            is_left(one.entry, copy.generation) and not any(early_reasons(one, self.rules, copy))
            for copy in one.standing
        )

    def _ask(self, surveyed: Sequence[Situation], now_ms: int) -> list[Situation]:
        """Read objects where a deletion is possible, then the restores that read copies, then the bounds of the logs."""
        asked = {one.place: self._with_objects(one, one.copy) for one in surveyed if self._may_go(one) and one.copy}
        pins = self.read_pins(now_ms)
        bounds = self._ask_logs(asked.keys())
        return [
            _with_pins(asked[one.place], pins, bounds.get(one.place)) if one.place in asked else one for one in surveyed
        ]

    def _with_objects(self, one: Situation, holder: CompleteCopy) -> Situation:
        key = one.place.copy_key(holder.generation)
        is_listed = holder.generation in one.objects
        state = self.catalog.wholeness(key, one.objects[holder.generation]) if is_listed else NOTHING
        held_ms = self._held_since_ms(one.role_log, holder.generation)
        standing = (self._with_state(one, copy) for copy in one.standing)
        return replace(one, standing=tuple(_proven_since(copy, state, held_ms) for copy in standing), holder=state)

    def _held_since_ms(self, log: RoleLog, holder: Generation) -> int:
        """Return the put time of the entry that made a copy current: the first of the newest ones that all name it."""
        since = log.number
        for number in sorted(log.put_at, reverse=True)[1:_MOST_READ]:
            try:
                entry = read_entry(self.archive, log.place, number)
            except NotWholeError:
                break
            if entry.current != holder:
                break
            since = number
        return log.put_ms(since)

    def _with_state(self, one: Situation, copy: ExistingCopy) -> ExistingCopy:
        if not is_left(one.entry, copy.generation):
            return copy
        was_holder, promised = self._past_of(one, copy.generation)
        state = self.catalog.wholeness(one.place.copy_key(copy.generation), one.objects[copy.generation])
        return replace(copy, was_holder=was_holder, promised=promised, state=state)

    def _past_of(self, one: Situation, generation: Generation) -> tuple[bool | None, int]:
        """Return whether a generation was current, and its end then. None: the entry that replaced it is gone."""
        since = next((left.since for left in one.entry.left if left.generation == generation), None)
        if since is None or not self.rules.keep_generations:
            return False, 0
        try:
            replaced = read_entry(self.archive, one.place, since).replaced
        except NotWholeError:
            return None, 0
        was_holder = isinstance(replaced, CompleteCopy) and replaced.generation == generation
        return was_holder, replaced.next if was_holder and isinstance(replaced, CompleteCopy) else 0


def _with_pins(one: Situation, pins: PinnedCopies, log: LogBounds | None) -> Situation:
    """Add the restores that read the copies, and the log. An unreadable restore blocks all deletes."""
    standing = tuple(
        replace(copy, restores=pins.restores.get(one.place.copy_key(copy.generation), ())) for copy in one.standing
    )
    doubts = tuple(f"which copies a restore reads is not known: {why}" for why in pins.unreadable)
    return replace(one, standing=standing, doubts=doubts, log=log)


def _standing(log: RoleLog, copies: Mapping[CopyKey, ListedPartition], now_ms: int) -> Situation:
    objects = {Generation.of_copy(copy): listed for copy, listed in copies.items()}
    if isinstance(log.told, NotWholeError):
        return Situation(role_log=log, objects=objects, now_ms=now_ms, problem=str(log.told))
    standing = tuple(_standing_copy(log, generation) for generation in sorted(objects, key=_by_number))
    return Situation(role_log=log, objects=objects, now_ms=now_ms, standing=standing)


def _standing_copy(log: RoleLog, generation: Generation) -> ExistingCopy:
    """Return since when a generation is left: since the entry that left it, or, if no entry names it, since its begin."""
    since = next((left.since for left in log.entry.left if left.generation == generation), generation.number)
    return ExistingCopy(generation=generation, left_ms=log.put_ms(since))


def _proven_since(copy: ExistingCopy, holder: CopyState, held_ms: int) -> ExistingCopy:
    """Return the later of two times: the switch to the current copy, and the proof by its objects that it has all of this one."""
    proven_ms = None if copy.state is None else holder.proven_since_ms(copy.state.end)
    return copy if proven_ms is None else replace(copy, needless_ms=max(held_ms, proven_ms))


def _by_number(generation: Generation) -> tuple[int, str]:
    return generation.number, generation.instance


def _by_place(item: tuple[RolePlace, RoleLog]) -> int:
    return item[0].partition
