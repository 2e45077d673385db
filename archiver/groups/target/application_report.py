"""Reports the result of an application or rollback: every position of each group, before, wanted and after."""

from collections.abc import Sequence
from dataclasses import dataclass

from archiver.errors import ArchiverError, NotWholeError
from archiver.groups.target.application_decisions import Decision, PositionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group. `refusal`: why its name or kind prevents a change; `error`: the failure. A dry run has moved no position."""

    group: str
    source_group: str
    positions: Sequence[Decision] = ()
    refusal: str = ""
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
