"""The result of a restore: of each topic, and of the whole run. For printers and exit codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from archiver.errors import ArchiverError
from archiver.restore.groups.group_restore import GroupRestore
from archiver.restore.plan.task import TaskReport
from archiver.restore.targets.target_configs import Finish

_UNFINISHED: Final = Finish()


class Nothing(StrEnum):
    """Why a topic was restored without a record."""

    ARCHIVED = "nothing archived"  # the archive has a note of the topic, and no object
    CHOSEN = "nothing chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """The result for one topic."""

    source: str
    life: int
    target: str
    partitions: tuple[TaskReport, ...]
    retention_command: str = ""  # empty if nothing is left to set, or no command can set it
    is_finished: bool = False  # False: its configs are still those of the filling
    finish: Finish = _UNFINISHED  # its configs
    appends: bool = False  # after records of others; keeps its own configs
    strange_retention: tuple[str, ...] = ()  # archived values that no topic can have
    nothing: Nothing | None = None
    left_out_filling: tuple[str, ...] = ()  # configs that the cluster refused for the fill, and their values
    repartition: int | None = None  # into so many partitions; None: each into its own
    target_partitions: tuple[TaskReport, ...] = ()  # of a repartition: each target partition as read back

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def errors(self) -> tuple[TaskReport, ...]:
        return tuple(report for report in (*self.partitions, *self.target_partitions) if report.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """The result of a restore."""

    restore_id: str  # empty: the run ended before it was known
    filling_seconds: float  # creating, filling and reading back, without Spark's start
    topics: Sequence[TopicReport]
    seconds: float = 0.0  # of the whole run
    failure: ArchiverError | None = None  # the error that ended it early
    not_begun: Sequence[str] = ()  # targets that were not begun
    groups: GroupRestore | None = None  # None: not asked for, or not begun
    problems: Sequence[str] = ()  # of the archive, which stopped no restore

    @classmethod
    def of_failure(cls, restore_id: str, seconds: float, failure: ArchiverError) -> "RestoreResult":
        """Return the result of a restore that ended before any topic was begun."""
        return cls(restore_id=restore_id, seconds=seconds, filling_seconds=0.0, topics=(), failure=failure)

    @property
    def is_filled(self) -> bool:
        """Whether every partition of every topic was read back."""
        return bool(self.topics) and not self.not_begun and not any(topic.errors for topic in self.topics)

    @property
    def is_whole(self) -> bool:
        """Whether every partition of every topic was read back, and no step has failed."""
        return self.is_filled and self.failure is None

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def filled(self) -> int:
        """The number of records that this run added to the target."""
        return sum(one.records - one.already_there for topic in self.topics for one in topic.partitions)

    @property
    def records_a_second(self) -> float | None:
        """The rate of this run's filling and reading back; None: it had nothing to fill."""
        return round(self.filled / self.filling_seconds, 1) if self.filled and self.filling_seconds else None

    @property
    def bytes(self) -> int | None:
        """The restored bytes of keys and values; None: some partition has not counted them."""
        sizes = [one.bytes for topic in self.topics for one in topic.partitions]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None
