"""Decides which generations may be deleted: never the current copy, the candidate, or a copy with later offsets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from archiver.archive.copies.copy_catalog import CopyState
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry, RoleLog, RolePlace
from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.segments.listing import ListedPartition
from archiver.config.quantities import spell_time


def is_left(entry: RoleEntry, generation: Generation) -> bool:
    """Return whether a generation is neither the current copy nor a possible next one."""
    return generation not in {entry.current, entry.candidate}


def is_needless(number: int, entry: RoleEntry, copy: Generation, *, end: int, complete_to: int) -> bool:
    """Return whether a copy that ends at `end` is neither current nor next, and the current one is complete up to there.

    Without a current copy, all stay. Generations begun after this entry, number `number`, stay as well: so nothing is
    lost if a process slept on the entry, and another copy is current by now.
    """
    return entry.copy is not None and is_left(entry, copy) and copy.number <= number and end <= complete_to


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The bounds and policy of a log in the cluster."""

    log_start: int
    log_end: int
    policy: str | None  # the effective cleanup.policy; None: unknown

    @property
    def is_compacted_alone(self) -> bool:
        """Whether the log start cannot move. Assumed if the policy is unknown."""
        return self.policy is None or "delete" not in self.policy

    @property
    def is_known(self) -> bool:
        """Whether the cluster was asked for the log's begin and end."""
        return self.log_end != MOST_OFFSET

    @property
    def is_compacted(self) -> bool:
        return self.policy is None or "compact" in self.policy


FORCED: Final = "`archiver compacted clear --force TOPIC-PARTITION` deletes the copies that are read no more"

# For an ended life, or without a cluster: no log contradicts its copies.
NO_LOG: Final = LogBounds(log_start=0, log_end=MOST_OFFSET, policy="compact,delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearingRules:
    """The configured limits of clearing."""

    delay_ms: int
    keep_generations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingCopy:
    """An existing generation. `state` None: its objects were not read, because it is kept for a simpler reason."""

    generation: Generation
    left_ms: int  # time since which it is neither current nor candidate, by the store's clock
    needless_ms: int = (
        0  # time since which the current copy is proved to have all of it; 0: not proved, or its objects were not read
    )
    was_holder: bool | None = False  # None: that is not known
    promised: int = 0  # the end of its objects when it became current
    restores: tuple[str, ...] = ()  # restores that read it
    state: CopyState | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it was complete once, and is unchanged."""
        is_there = self.state is not None and self.state.is_whole and self.state.end >= self.promised
        return bool(self.was_holder) and is_there


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One partition, and the inputs of the decision which of its generations are deleted.

    `problem`: its role log is unreadable. Then nothing is deleted, and nothing else was read.
    """

    role_log: RoleLog
    objects: Mapping[Generation, ListedPartition]
    now_ms: int  # of the store's clock, at the latest
    standing: tuple[ExistingCopy, ...] = ()
    holder: CopyState | None = None  # None: not read
    log: LogBounds | None = None  # None: unknown
    doubts: tuple[str, ...] = ()  # other reasons to keep everything
    problem: str = ""

    @property
    def place(self) -> RolePlace:
        return self.role_log.place

    @property
    def number(self) -> int:
        """Number of the newest entry."""
        return self.role_log.number

    @property
    def entry(self) -> RoleEntry:
        return self.role_log.entry

    @property
    def copy(self) -> CompleteCopy | None:
        """The current copy."""
        return self.entry.copy

    @property
    def reached(self) -> int:
        """End of the current copy."""
        return max(self.copy.position if self.copy else 0, self.holder.whole_to if self.holder else 0)

    @property
    def holder_begins(self) -> int:
        """The highest possible log start when the current copy was read; its end, for a copy without objects."""
        return self.holder.begins if self.holder and self.holder.end else self.reached


def judge_clearing(situation: Situation, rules: ClearingRules) -> dict[Generation, tuple[str, ...]]:
    """Return for each former copy the reasons to keep it; none: it is deleted."""
    finished = sorted((one.generation for one in situation.standing if one.is_finished), key=_number, reverse=True)
    saved = frozenset(finished[: rules.keep_generations])
    problems = clearing_problems(situation)
    return {
        one.generation: (*_reasons(situation, rules, one, saved), *problems)
        for one in situation.standing
        if is_left(situation.entry, one.generation)
    }


def clearing_problems(situation: Situation) -> tuple[str, ...]:
    """Return the reasons to keep everything: the current copy is not whole, or the log contradicts it."""
    return (*situation.doubts, *holder_problems(situation), *log_problems(situation))


def early_reasons(situation: Situation, rules: ClearingRules, copy: ExistingCopy) -> Iterator[str]:
    """Yield reasons to keep a former copy that do not depend on its objects: before any is read."""
    if situation.copy is None:
        yield "no copy is read in place of it"
    if copy.generation.number > situation.number:
        yield f"it was begun after entry {situation.number}"
    since_ms = max(copy.left_ms, copy.needless_ms)
    if situation.now_ms < since_ms + rules.delay_ms:
        yield f"compacted.clear.delay: it is left since {spell_time(since_ms)}, and stays until {spell_time(since_ms + rules.delay_ms)}"


def _reasons(
    situation: Situation, rules: ClearingRules, copy: ExistingCopy, saved: frozenset[Generation]
) -> Iterator[str]:
    early = list(early_reasons(situation, rules, copy))
    yield from early
    for restore_id in copy.restores:
        yield f"restore {restore_id} reads it"
    if copy.generation in saved:
        yield "compacted.keep.generations"
    if rules.keep_generations and copy.was_holder is None:
        yield "whether it was complete once is not known"
    if copy.state is not None:
        yield from _reasons_of_objects(situation, copy.generation, copy.state)
    if (copy.state is None or situation.holder is None) and not early:
        yield "its objects, or those that are read, were not asked"


def _reasons_of_objects(situation: Situation, generation: Generation, state: CopyState) -> Iterator[str]:
    if state.problem:
        yield f"where it ends is not known: {state.problem}"
    number, entry, complete_to = (
        situation.number,
        situation.entry,
        situation.holder.complete_to if situation.holder else 0,
    )
    if not state.problem and not is_needless(number, entry, generation, end=state.end, complete_to=complete_to):
        yield f"it ends at {state.end}, and what is read is complete up to {complete_to}, as its objects prove: it is needed"
    if begins_lower(situation, state):
        yield (
            f"it has the log from offset {state.begins} on, and records above that were deleted, not compacted, before what is read"
            f" was begun; if that was meant, {FORCED}"
        )


def begins_lower(situation: Situation, state: CopyState) -> bool:
    """Return whether a generation has records that had expired, not by compaction, when the current copy was read."""
    log = situation.log
    if log is None or not log.is_compacted_alone:
        return False
    has_objects = situation.holder is not None and situation.holder.end
    began = situation.holder_begins if has_objects else min(log.log_start, situation.holder_begins)
    return state.begins < began


def holder_problems(situation: Situation) -> tuple[str, ...]:
    """Return the doubts that the current copy is whole."""
    copy, state = situation.copy, situation.holder
    damage = "" if copy is None or state is None else state.damage(copy)
    return (f"what is read {damage}",) if damage else ()


def log_problems(situation: Situation) -> tuple[str, ...]:
    """Return contradictions between the log and the current copy."""
    log = situation.log
    if situation.copy is None or situation.holder is None:
        return ()
    if log is None:
        return ("the cluster does not tell where the log begins and ends",)
    problems = []
    if not log.is_compacted:
        problems.append(f"cleanup.policy is {log.policy}, without compact")
    if log.is_compacted_alone and log.log_start > situation.holder_begins:  # compaction alone never raises it
        problems.append(
            f"the log begins at offset {log.log_start}, and the copy that is read at {situation.holder_begins}: records were"
            f" deleted while cleanup.policy had delete; if that was meant, {FORCED}"
        )
    if situation.reached > log.log_end:
        problems.append(
            f"the log ends at offset {log.log_end}, and the copy that is read reaches {situation.reached}: the log was cut back,"
            f" or is another topic's; if that was meant, {FORCED}"
        )
    return tuple(problems)


def _number(generation: Generation) -> int:
    return generation.number
