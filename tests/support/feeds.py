"""What unit tests of a partition's backup share: a sink and a writer over one archive, and feeds whose writers have only a state."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from archiver.archive.format.handle import Archive
from archiver.archive.index.archived_end import position_of
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.backup.partition.feed import NO_END_OFFSET, Feed
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.reports.ledger import NO_LEDGER
from archiver.process.running.silence import SilenceCounter
from tests.support.segments import SOURCE


def sink_of(
    archive: Archive,
    spool: Spool,
    *,
    records: int = 0,
    clock: Callable[[], float] = lambda: 0.0,
    silence_counter: SilenceCounter | None = None,
) -> SegmentSink:
    """Segments of so many records, which never become old by themselves."""
    return SegmentSink(
        archive=archive,
        limits=SegmentLimits(uncompressed_bytes=0, records=records),
        age_s=1e9,
        spool=spool,
        clock=clock,
        silence_counter=silence_counter or SilenceCounter(10.0, clock),
        ledger=NO_LEDGER,
    )


def writer_of(sink: SegmentSink) -> PartitionWriter:
    """A writer that goes on at the end of the archive of SOURCE."""
    end = position_of(sink.archive, SOURCE.topic, SOURCE.life, SOURCE.partition)
    return PartitionWriter(SOURCE, end, sink, silences=sink.silence_counter.silences)


def take_all(writer: PartitionWriter, fetch: Fetch) -> None:
    """As the pump does: a segment that is due is put before the rest is taken."""
    rest: Fetch | None = fetch
    while rest is not None:
        rest = writer.take(rest)
        if writer.is_due:
            writer.flush()


def feed_of(
    source: PartitionSource = SOURCE, *, position: int = 0, leader_epoch: int = 0, end_offset: int = NO_END_OFFSET
) -> Feed:
    """A feed whose writer holds nothing and does nothing."""
    writer = SimpleNamespace(
        source=source,
        position=position,
        durable_position=position,
        leader_epoch=leader_epoch,
        newest_base=None,
        holds_records=False,
        oldest_held_ms=None,
        putting_since_s=None,
    )
    return Feed(writer=cast("PartitionWriter", writer), end_offset=end_offset)
