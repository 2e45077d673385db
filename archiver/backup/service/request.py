"""Request of a backup: topics, cluster, archive and settings. Builds the parts of the backup from it."""

from collections.abc import Callable
from dataclasses import dataclass

from archiver.backup.opening.opener import Opener
from archiver.backup.opening.start_offsets import START_EARLIEST
from archiver.backup.partition.feed import Feed
from archiver.backup.partition.pump import Pump
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.service.indexer import Indexer
from archiver.config.model import TopicsConfig
from archiver.config.section import StartPoint
from archiver.groups.positions.keeper import PositionKeeper, PositionPolicy
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.workers import Workers

# Time for puts after a signal; the whole program must end within 15 s.
STOP_S = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """The topics to archive, their source, and the archive."""

    kafka: KafkaSettings
    topics: TopicsConfig
    place_of_include: Callable[[int], str]
    sink: SegmentSink
    positions: PositionPolicy
    memory_bytes: int
    spool_bytes: int
    rate_bytes: int = 0
    start: StartPoint = START_EARLIEST
    leaves_copied: bool = False  # partitions with a current copy are left to the instances that copy them


def opener_of(request: BackupRequest, client: KafkaClient, pool: Workers, cluster_id: str) -> Opener:
    """Make the opener of partitions for this backup."""
    return Opener(
        client,
        sink=request.sink,
        pool=pool,
        cluster_id=cluster_id,
        start=request.start,
        leaves_copied=request.leaves_copied,
    )


def keeper_of(request: BackupRequest, client: KafkaClient, pool: Workers, cluster_id: str) -> PositionKeeper:
    """Make the keeper of consumer group positions."""
    sink = request.sink
    return PositionKeeper(
        client,
        request.positions,
        archive=sink.archive,
        pool=pool,
        cluster_id=cluster_id,
        count_failure=sink.ledger.retried,
    )


def indexer_of(request: BackupRequest) -> Indexer:
    """Make the indexer of this backup's new objects."""
    sink = request.sink
    return Indexer(sink.archive, sink.fresh, clock=sink.clock)


def pump_of(
    request: BackupRequest, client: KafkaClient, pool: Workers, on_durable: Callable[[Feed], None] = lambda _: None
) -> Pump:
    """Make the pump of this backup."""
    return Pump(
        client,
        request.sink,
        pool=pool,
        memory_bytes=request.memory_bytes,
        spool_bytes=request.spool_bytes,
        rate_bytes=request.rate_bytes,
        on_durable=on_durable,
    )
