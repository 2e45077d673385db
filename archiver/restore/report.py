"""The result of a restore: of each topic, and of the whole run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from archiver.archive.record_counts import Count
from archiver.errors import ArchiverError
from archiver.restore.group_restore import GroupRestore
from archiver.restore.task import TaskReport


class Nothing(StrEnum):
    """Why a topic was restored without a record."""

    ARCHIVED = "nothing archived"  # the archive knows of the topic, and has no object of it
    CHOSEN = "nothing chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """What became of one topic."""

    source: str
    life: int
    target: str
    partitions: tuple[TaskReport, ...]
    retention_command: str  # empty when nothing is left to set, or not to be set by a command
    is_finished: bool  # False: its configs are still those of the filling
    left_out_configs: tuple[str, ...]
    refusal: ArchiverError | None = None  # of configs of the end: of all of them, unless the topic is finished
    appends: bool = False  # behind records that were there; its configs are its own
    retention: str = ""  # that holds in the end, if the restore set one
    strange_retention: tuple[str, ...] = ()  # archived values that no topic can have
    expiring: Count | None = None  # records that the brokers delete for it
    inherits_retention: bool = False  # the cluster's own retention holds: none was archived
    oversized: int = 0  # partitions of which they may delete the oldest records
    nothing: Nothing | None = None
    left_out_filling: tuple[str, ...] = ()  # what the cluster refused while it was filled, and what held instead
    repartition: int | None = None  # into so many partitions; None: each into its own
    target_partitions: tuple[TaskReport, ...] = ()  # of a repartition: each target partition as it was read back

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def errors(self) -> tuple[TaskReport, ...]:
        return tuple(report for report in (*self.partitions, *self.target_partitions) if report.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """What a restore did."""

    restore_id: str  # empty: it ended before it was known
    filling_seconds: float  # creating, filling and reading back, without Spark's start
    topics: Sequence[TopicReport]
    seconds: float = 0.0  # of the whole run
    failure: ArchiverError | None = None  # what ended it before all was done
    not_begun: Sequence[str] = ()  # targets that were not begun
    groups: GroupRestore | None = None  # None: not asked for, or not begun
    problems: Sequence[str] = ()  # of the archive, which kept nothing from being restored

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
        """Whether every partition of every topic was read back, and nothing else has failed."""
        return self.is_filled and self.failure is None

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def filled(self) -> int:
        """How many of the records were not on the target before this run."""
        return sum(one.records - one.already_there for topic in self.topics for one in topic.partitions)

    @property
    def records_a_second(self) -> float | None:
        """How fast this run has filled and read back; None: it had nothing to fill."""
        return round(self.filled / self.filling_seconds, 1) if self.filled and self.filling_seconds else None

    @property
    def bytes(self) -> int | None:
        """How many bytes of keys and values came back; None: some partition has not counted them."""
        sizes = [one.bytes for topic in self.topics for one in topic.partitions]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None
