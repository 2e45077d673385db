"""Sets the consumer groups of a restore when all its topics are whole."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from archiver.archive.format.handle import Archive
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.restore.groups.group_restore import GroupRequest, read_positions, restore_groups
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
        notice("finding where groups are to stand")
        try:
            found = restore_groups(
                self.archive, self.kafka, result.restore_id, self.asked, self._positions, self._problems, notice
            )
        except Exception as error:  # noqa: BLE001 - also a defect: the topics are whole, and that is told all the same
            return replace(result, failure=as_ours(error))
        return replace(result, groups=found)
