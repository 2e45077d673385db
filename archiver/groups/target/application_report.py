"""Reports the result of an application or rollback: every position of each group, before, wanted and after."""

from collections.abc import Sequence
from dataclasses import dataclass

from archiver.errors import ArchiverError, NotWholeError
from archiver.groups.target.application_decisions import Decision, PositionOutcome, is_same
from archiver.groups.target.position_moves import Moved
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_commits import GroupActiveError
from archiver.kafka.groups.group_positions import GroupPosition, Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionReport:
    """One position: before, wanted and after; None: the group has no position there. A dry run has moved nothing."""

    topic: str
    partition: int
    before: GroupPosition | None
    wanted: GroupPosition | None
    after: GroupPosition | None
    outcome: PositionOutcome

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group. `refusal`: why its name or kind prevents a change; `skipped`: why it cannot be changed; `error`: the failure."""

    group: str
    source_group: str
    positions: Sequence[PositionReport] = ()
    refusal: str = ""
    skipped: str = ""
    error: ArchiverError | None = None

    @property
    def exit_code(self) -> int:
        outcomes = {one.outcome for one in self.positions}
        if self.error is not None:
            outcomes.discard(PositionOutcome.NOT_SET)
        is_left = bool(self.refusal) or not all(one.is_done for one in outcomes)
        return max(NotWholeError.exit_code if is_left else 0, 0 if self.error is None else self.error.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationReport:
    """All groups, by name. `expiry_ms`: how long brokers keep positions of a group without members; None: unknown."""

    restore_id: str
    groups: Sequence[GroupReport]
    is_rollback: bool
    is_dry_run: bool
    expiry_ms: int | None

    @property
    def exit_code(self) -> int:
        """0: all positions are as wanted; 3: a group or a position was not changed; otherwise the code of the worst error."""
        return max((one.exit_code for one in self.groups), default=0)


def reports_of_looks(decisions: Sequence[Decision], stands: Positions) -> list[PositionReport]:
    """Report decisions on positions that were not moved, or not yet."""
    return [_report(one, stands.get(one.place), one.outcome) for one in decisions]


def reports_of_moves(decisions: Sequence[Decision], moved: Moved) -> list[PositionReport]:
    """Report results. The positions read back decide, not the broker's answer, which may be lost."""
    return [_report(one, moved.after.get(one.place), _outcome(one, moved)) for one in decisions]


def _outcome(decision: Decision, moved: Moved) -> PositionOutcome:
    now = moved.after.get(decision.place)
    if decision.outcome is not PositionOutcome.SET or is_same(now, decision.wanted):
        return decision.outcome
    if not is_same(now, decision.before):
        return PositionOutcome.MOVED
    if moved.is_left:
        return PositionOutcome.GROUP_MOVED
    return PositionOutcome.HAS_MEMBERS if isinstance(moved.error, GroupActiveError) else PositionOutcome.NOT_SET


def _report(decision: Decision, now: GroupPosition | None, outcome: PositionOutcome) -> PositionReport:
    return PositionReport(
        topic=decision.topic,
        partition=decision.partition,
        before=decision.before,
        wanted=decision.wanted,
        after=now,
        outcome=outcome,
    )
