"""Pure decisions about one partition's turn in one process: state, event -> state, effects. No input, output or waiting.

Decisions depend on the newest entry of the role log, on a listing made after that entry was read, and
on this process's own reading. An entry that was put counts only when the next survey shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import CompleteCopy, EntryType, Generation, RoleEntry


class Role(Enum):
    """The role of this instance for a partition."""

    UNKNOWN = "unknown"  # before the first survey
    PASSIVE = "passive"
    CATCH_UP = "catch-up"
    ACTIVE = "active"


class CopyEnd(NamedTuple):
    """The listed end of a generation that this instance fills, by the read rule, from offset 0 on."""

    next: int
    is_whole: bool  # no gap, and no damage
    has_expired: bool = False  # records expired, behind others that were read, before they were read: it is unsure


@dataclass(frozen=True, slots=True, kw_only=True)
class Dues:
    """The clock's part of a survey. See `turn_schedule.judge`."""

    is_turn_due: bool  # the current copy's turn is over, or it is silent, unsure or damaged
    is_overdue: bool  # the turn is overdue: any instance may begin
    is_candidate_heard: bool  # the candidate's instance works on it
    may_try_again: bool = False  # the candidate is so old that its instance may replace it
    begins_first: bool = False  # this instance begins the first copy


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The state in storage at one survey: the newest entry, and the listing made after reading it."""

    number: int  # of the newest entry; -1: none
    entry: RoleEntry | None
    readers_end: int  # the end for readers now: of the current copy, with its tail
    has_history: bool  # objects exist under `topics/`
    highest: int = -1  # the highest number of an existing generation, if another one may be begun
    ends: Mapping[int, CopyEnd] = field(default_factory=lambda: MappingProxyType({}))  # of own generations
    dues: Dues


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """A generation that this process fills."""

    position: int  # every offset below was read
    durable: int  # every offset below is in storage, or has nothing to archive
    next: int = 0  # the end of its objects that this process has seen
    complete_at: int | None = None  # the leader had no more records at this position
    is_sure: bool = True
    is_given_up: bool = False  # it cannot become complete: a gap, or damage

    @property
    def is_complete(self) -> bool:
        """Whether all records of the leader are in storage, and none was read since."""
        return self.complete_at == self.position == self.durable


# --- events


class Looked(NamedTuple):
    sight: StoredState


class Opened(NamedTuple):
    """A generation continues in this process, at the end of its objects."""

    generation: int
    next: int
    is_sure: bool


class FetchEvent(NamedTuple):
    """A broker answered a fetch, or fetched data was dropped. `last_stable` is that of the same answer."""

    generation: int
    position: int
    last_stable: int
    is_of_leader: bool


class Put(NamedTuple):
    """All records below an offset are durable, and objects end at `next`."""

    generation: int
    durable: int
    next: int


class Broke(NamedTuple):
    """Too much time has passed: tombstones may have been missed (Rule W)."""

    generation: int


class GaveUp(NamedTuple):
    """The generation has a gap, or damage."""

    generation: int


Event = Looked | Opened | FetchEvent | Put | Broke | GaveUp


# --- effects


class Append(NamedTuple):
    """Put an entry if its number is free, and survey again in any case."""

    number: int
    entry: RoleEntry


class Open(NamedTuple):
    """Fill a generation of this instance, from the end of its objects."""

    generation: int


class Close(NamedTuple):
    """Stop filling a generation; drop unwritten records."""

    generation: int


class Tell(NamedTuple):
    """Publish a hint."""

    kind: str  # ACTIVATE, PASSIVATE


Effect = Append | Open | Close | Tell
ACTIVATE, PASSIVATE = "ACTIVATE", "PASSIVATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A process's state of a partition. It reads two generations if its instance makes the current and the next copy."""

    instance: str
    sight: StoredState | None = None
    readings: Mapping[int, CopyProgress] = field(default_factory=lambda: MappingProxyType({}))
    unusable: frozenset[int] = frozenset()  # generations that cannot continue: an object of them is damaged
    switching: int | None = (
        None  # a generation that may be current by now: its entry was to be put, without a survey since
    )

    @property
    def role(self) -> Role:
        if self.sight is None:
            return Role.UNKNOWN
        if self.holds is not None:
            return Role.ACTIVE
        return Role.PASSIVE if self.candidacy is None else Role.CATCH_UP

    @property
    def holds(self) -> int | None:
        """The current generation, if it is this instance's."""
        entry = self.sight.entry if self.sight else None
        return self._own(entry.current) if entry else None

    @property
    def candidacy(self) -> int | None:
        """The next generation, if it is this instance's."""
        entry = self.sight.entry if self.sight else None
        return self._own(entry.open_candidate) if entry else None

    @property
    def wanted(self) -> frozenset[int]:
        """The generations that this instance fills."""
        return frozenset(number for number in (self.holds, self.candidacy) if number is not None)

    @property
    def is_all_filled(self) -> bool:
        """Whether this process fills all of them."""
        return self.wanted <= self.readings.keys()

    def _own(self, generation: Generation | None) -> int | None:
        return generation.number if generation and generation.instance == self.instance else None

    def may_put(self, generation: int) -> bool:
        """Return whether objects may be put now: a current copy that missed tombstones must note that first."""
        reading = self.readings.get(generation)
        may_count = generation == self.switching or (generation == self.holds and self._counts_as_sure())
        return reading is not None and (reading.is_sure or not may_count)

    def may_hold(self, generation: int) -> bool:
        """Return whether a generation may become current once it is complete: an unsure one never replaces a sure one."""
        reading, entry = self.readings.get(generation), self.sight.entry if self.sight else None
        return reading is not None and entry is not None and (reading.is_sure or not _is_sure(entry))

    def _counts_as_sure(self) -> bool:
        entry = self.sight.entry if self.sight else None
        return entry is not None and entry.copy is not None and entry.copy.is_sure


def spell_role(turn: Turn) -> str:
    """Spell this instance's role for the partition, for people."""
    role = {
        Role.ACTIVE: f"this instance is active, with generation {turn.holds}",
        Role.CATCH_UP: f"this instance catches up, in generation {turn.candidacy}",
        Role.PASSIVE: "this instance is passive",
        Role.UNKNOWN: "nothing is known yet",
    }[turn.role]
    also = f"; it makes the next copy, too, in generation {turn.candidacy}" if turn.holds and turn.candidacy else ""
    return f"{role}{also}"


def react(turn: Turn, event: Event) -> tuple[Turn, tuple[Effect, ...]]:
    """Process an event; return the new state, and the effects."""
    match event:
        case Looked(sight):
            return _look(turn, sight)
        case Opened(generation, following, is_sure):
            opened = CopyProgress(position=following, durable=following, next=following, is_sure=is_sure)
            return replace(turn, readings={**turn.readings, generation: opened}), ()
        case _:
            reading = turn.readings.get(event.generation)
            if reading is None and isinstance(event, GaveUp):
                return replace(turn, unusable=turn.unusable | {event.generation}), ()
            if reading is None:  # closed meanwhile
                return turn, ()
            return replace(turn, readings={**turn.readings, event.generation: _moved(reading, event)}), ()


def _moved(reading: CopyProgress, event: FetchEvent | Put | Broke | GaveUp) -> CopyProgress:
    match event:
        case FetchEvent(_, position, last_stable, is_of_leader):
            is_complete = is_of_leader and position >= last_stable
            kept = reading.complete_at if position == reading.position else None
            complete_at = position if is_complete else kept
            return replace(reading, position=position, complete_at=complete_at)
        case Put(_, durable, following):
            return replace(reading, durable=durable, next=max(reading.next, following))
        case Broke():
            return replace(reading, is_sure=False)
        case GaveUp():
            return replace(reading, is_given_up=True)


def _look(turn: Turn, sight: StoredState) -> tuple[Turn, tuple[Effect, ...]]:
    before = turn
    turn = replace(turn, sight=sight, switching=None)
    wanted = turn.wanted
    closed = sorted(turn.readings.keys() - wanted)
    opened = sorted(wanted - turn.readings.keys())
    turn = replace(turn, readings={number: one for number, one in turn.readings.items() if number in wanted})
    effects: list[Effect] = [Close(number) for number in closed]
    effects += [Open(number) for number in opened]
    effects += _hints(before, turn)
    entry = _next_entry(turn, sight)
    if entry is not None:
        turn = replace(turn, switching=turn.candidacy if entry.type is EntryType.SWITCH else None)
        begun = entry.candidate if entry.type is EntryType.BEGIN else None
        effects.append(Append(sight.number + 1 if begun is None else begun.number, entry))
    return turn, tuple(effects)


def _hints(before: Turn, now: Turn) -> list[Effect]:
    """Return hints for the other instance, which it needs before its own next survey."""
    if now.holds is not None and now.holds != before.holds and before.candidacy == now.holds:
        return [Tell(PASSIVATE)]
    if now.holds is not None and now.sight and now.sight.dues.is_turn_due and now.sight.entry:
        return [] if now.sight.entry.open_candidate else [Tell(ACTIVATE)]
    return []


def _next_entry(turn: Turn, sight: StoredState) -> RoleEntry | None:
    """The entry that this process may put now. At most one: the survey after it decides again."""
    number, entry = sight.number + 1, sight.entry
    holds, candidacy = turn.holds, turn.candidacy
    if entry is not None and holds is not None and holds in turn.readings and not turn.may_put(holds):
        return entries.unsure(entry, number, turn.instance)
    if entry is not None and candidacy is not None:
        copy = _complete_copy(turn, sight, candidacy)
        if copy is not None and turn.may_hold(candidacy):
            return entries.switch(entry, number, copy)
    if _may_begin(turn, sight):
        # Deleted entries would free their numbers: a new generation must not share its number with existing objects.
        number = max(number, sight.highest + 1)
        return entries.begin(entry, number, turn.instance, has_history=sight.has_history)
    return None


def _complete_copy(turn: Turn, sight: StoredState, generation: int) -> CompleteCopy | None:
    """The candidate's copy, if it may become current: complete, whole in its listing, and at least up to the end for readers."""
    reading, end = turn.readings.get(generation), sight.ends.get(generation)
    if reading is None or end is None or reading.is_given_up or not reading.is_complete:
        return None
    if not end.is_whole or end.next < reading.next or reading.position < max(end.next, sight.readers_end):
        return None
    return CompleteCopy(
        generation=Generation(instance=turn.instance, number=generation),
        next=end.next,
        position=reading.position,
        is_sure=reading.is_sure,
    )


def _is_sure(entry: RoleEntry) -> bool:
    """Return whether the current copy has lost no deletion. The history under `topics/` keeps each tombstone."""
    return entry.copy.is_sure if entry.copy else entry.holder is not None


def would_begin(turn: Turn, sight: StoredState) -> bool:
    """Return whether this process would begin a generation on such a survey: only then existing ones matter."""
    return _may_begin(replace(turn, sight=sight), sight)


def _may_begin(turn: Turn, sight: StoredState) -> bool:
    entry, dues = sight.entry, sight.dues
    candidate = entry.open_candidate if entry else None
    if candidate is not None and turn.candidacy is not None:
        reading = turn.readings.get(candidate.number)
        is_vain = reading is not None and not turn.may_hold(candidate.number) and dues.may_try_again
        is_given_up = candidate.number in turn.unusable if reading is None else reading.is_given_up
        return is_vain or is_given_up
    if candidate is not None and dues.is_candidate_heard:
        return False
    if not dues.is_turn_due:
        return False
    if entry is not None and entry.copy is not None:
        return turn.holds is None or dues.is_overdue
    return dues.begins_first or dues.is_overdue
