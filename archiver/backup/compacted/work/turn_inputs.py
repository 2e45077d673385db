"""Inputs of a partition's turn: shared parts of the process, and present terms from the topic's configs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.backup.compacted.turn.reading import Clock
from archiver.backup.compacted.turn.role_listings import RoleListings
from archiver.backup.compacted.turn.turn_schedule import TurnTimes
from archiver.backup.compacted.work.instance_metrics import InstanceMetrics
from archiver.backup.compacted.work.progress_notes import ProgressNotes
from archiver.backup.partition.pump import Pump
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.kafka.brokers.client import KafkaClient
from archiver.process.running.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The present terms from the topic's configs."""

    is_compacted: bool
    kept_ms: int  # retention of tombstones, less the margin
    retention_ms: int | None = None  # retention of unreplaced records; None: unlimited


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that all partitions of a process share."""

    instance: str
    instances: Sequence[str]
    begins_first: bool
    times: TurnTimes  # but for the stagger
    interval_s: float
    client: KafkaClient
    pumps: Sequence[Pump]  # a partition has a feed in each, if two of its generations are filled
    sink: SegmentSink
    pool: Workers
    listings: RoleListings
    catalog: CopyCatalog
    clock: Clock
    notes: ProgressNotes
    publish: Callable[[str, RolePlace, int], None]
    counts: InstanceMetrics

    @property
    def archive(self) -> Archive:
        return self.sink.archive
