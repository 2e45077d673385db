"""Fills one partition of the archive with records and holes, in the order of offsets. Imports of all formats use it.

A killed import is run again from the beginning of its input: what the archive has is passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from archiver.archive.index.archived_end import position_of
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.fetched_batches import too_large_rows
from archiver.backup.partition.partition_writer import PartitionWriter, PutLaterError, Written
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.codec.frame import Column, Frame
from archiver.errors import CorruptSegmentError


class ImportHole(NamedTuple):
    """Offsets that the import leaves out, up to `until`, which is exclusive."""

    until: int
    cause: HoleCause
    why: str


@dataclass(slots=True)
class ImportedPartition:
    """What came of one partition."""

    source: PartitionSource
    written: Written = field(default_factory=Written)
    holes: list[ImportHole] = field(default_factory=list)
    from_offset: int = 0
    next: int = 0
    error: str = ""
    exit_code: int = 0  # of the error


class PartitionFill:
    """Hands records of one partition to its writer, and puts each segment that is due."""

    def __init__(self, source: PartitionSource, sink: SegmentSink, wait: Callable[[float], object]) -> None:
        """Read the archive's end."""
        end = position_of(sink.archive, source.topic, source.life, source.partition)
        self.report = ImportedPartition(source, from_offset=end.next, next=end.next)
        self.writer = PartitionWriter(
            source, end, sink, silences=sink.silence_counter.silences, written=self.report.written
        )
        self._wait = wait
        self._read = -1  # the highest offset that this run has read

    def take(self, frame: Frame) -> None:
        """Take the records at or above the writer's position. Raises CorruptSegmentError if offsets do not rise."""
        offsets = frame.column(Column.OFFSET)
        if not len(offsets):
            return
        if offsets[0] <= self._read or (offsets[1:] <= offsets[:-1]).any():
            raise CorruptSegmentError(f"{self.report.source}: offsets do not rise behind {offsets[0]}")
        self._read = int(offsets[-1])
        row = int(offsets.searchsorted(self.writer.position))
        for large in [*np.flatnonzero(too_large_rows(frame)).tolist(), len(frame)]:
            self._take_rows(frame, row, large)
            row = max(row, large)
            if row < len(frame) and row == large:
                self.skip(
                    ImportHole(int(offsets[row]) + 1, HoleCause.UNREADABLE, f"record {offsets[row]} is too large")
                )
                row += 1

    def _take_rows(self, frame: Frame, row: int, stop: int) -> None:
        while row < stop:
            row = self.writer.take_frame(frame if stop == len(frame) else frame.rows(0, stop), row)
            if self.writer.is_due:
                self.put()

    def skip(self, hole: ImportHole) -> None:
        """Report a hole, and note it behind the writer's position. A segment has a limit of holes: one that is due is put before."""
        if hole.until > self.writer.position:
            if self.writer.is_due:
                self.put()
            self.writer.skip(hole.until, hole.cause, why=hole.why)
        self.report.holes.append(hole)

    def put(self) -> None:
        """Put the segment, however often that takes; nothing else is taken meanwhile."""
        position = self.writer.position
        while self.writer.holds_records:
            try:
                self.writer.flush()
            except PutLaterError as later:
                self._wait(later.pause_s)
        if self.writer.position != position:
            raise CorruptSegmentError(
                f"{self.report.source}: another writer has put an object of this partition meanwhile; stop it, and run the"
                " same command again"
            )
        self.report.next = position
