"""Sets the consumer groups of a restore when all its topics are whole."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from archiver.archive.format.handle import Archive
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count
from archiver.restore.groups.group_restore import (
    GroupRequest,
    GroupRestore,
    apply_group_plan,
    read_group_plan,
    read_positions,
)
from archiver.restore.groups.unmatched_groups import unmatched_problem
from archiver.restore.report.restore_report import RestoreResult

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class GroupJob:
    """The groups of one run of a restore. Their positions are read first: refusals come before topics are changed."""

    archive: Archive
    kafka: KafkaSettings  # of the target
    asked: GroupRequest
    _positions: Sequence[ArchivedPosition] = ()
    _problems: list[str] = field(default_factory=list)

    def read(self, notice: Callable[[str], None]) -> None:
        """Read the positions of the groups. Raises UsageError if no positions are archived."""
        notice("reading where groups stood")
        self._positions = read_positions(self.archive, self.asked, self._problems.append)
        if not self._positions:
            log.warning(
                "no group that --groups matches has an archived position: none is set when the topics are whole"
            )

    def run_after(self, result: RestoreResult, notice: Callable[[str], None]) -> RestoreResult:
        """Set the groups if all topics are whole. Returns the topics' result with that of the groups, or with their failure."""
        if not result.is_whole:
            return result
        try:
            return replace(result, groups=self._run(result.restore_id, notice))
        except Exception as error:  # noqa: BLE001 - also a defect: the topics are whole, and that is told all the same
            return replace(result, failure=as_ours(error))

    def _run(self, restore_id: str, notice: Callable[[str], None]) -> GroupRestore:
        notice("finding where groups are to stand")
        plan = asyncio.run(
            read_group_plan(self.archive, self.kafka, restore_id, self.asked, self._positions, self._problems.append)
        )
        if not plan.groups and (problem := unmatched_problem(self.archive, self.asked, plan.restored.sources)):
            self._problems.append(problem)

        def report_progress(done: int, total: int) -> None:
            notice(f"{done:,} of {spell_count(total, 'group')}")

        plan, report = asyncio.run(
            apply_group_plan(self.archive, self.kafka, plan, report_progress, as_of_ms=self.asked.as_of_ms)
        )
        return GroupRestore(plan=plan, report=report, problems=tuple(self._problems))
