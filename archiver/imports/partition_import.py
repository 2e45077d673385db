"""Imports one scanned log: hands its valid batches to a partition writer, and notes holes for everything else.

Order of effects: read the archive's end, then per piece of the log: note holes, take, put. A killed import is run again, and
continues behind its last object.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.index.archived_end import position_of
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter, PutLaterError, Written
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.codec.batch import whole_batches
from archiver.codec.frame import Bytes
from archiver.codec.kernels import batches as columns
from archiver.errors import CorruptBatchError, CorruptSegmentError
from archiver.imports.log_directory import LogFile
from archiver.imports.log_scan import Batch, Damage, Piece, ScannedLog, map_file


class Hole(NamedTuple):
    """Offsets that the import leaves out, up to `until`, which is exclusive."""

    until: int
    cause: HoleCause
    why: str


class Slice(NamedTuple):
    """Valid batches of one file, to be taken."""

    file: LogFile
    start: int
    end: int
    next: int  # the offset behind them


@dataclass(slots=True)
class ImportedPartition:
    """What came of one partition."""

    source: PartitionSource
    written: Written = field(default_factory=Written)
    holes: list[Hole] = field(default_factory=list)
    from_offset: int = 0
    next: int = 0
    error: str = ""


def steps(log: ScannedLog, *, until: int = MOST_OFFSET, takes_undecided: bool = False) -> Iterator[Hole | Slice]:
    """Yield what the import does with a log, in the order of offsets, below `until`."""
    if log.first:
        yield Hole(log.first, HoleCause.EXPIRED, "the log begins here")
    damages, undecided = deque(log.damages), deque(() if takes_undecided else log.undecided)
    position = log.first
    for found in log.pieces:
        while damages and damages[0].until_offset <= found.first:
            position = damages[0].until_offset
            yield _hole_of(damages.popleft(), until)
        if found.first > position and not log.is_compacted:
            yield Hole(min(found.first, until), HoleCause.UNREADABLE, f"no file in {log.folder.path} has these offsets")
        yield from _decided(found if found.next <= until else _below(found, until), undecided)
        position = found.next
        if position >= until:
            return
    yield from (_hole_of(damage, until) for damage in damages)


def _hole_of(damage: Damage, until: int) -> Hole:
    why = f"bytes {damage.start:,} to {damage.end:,} of {damage.file} are damaged"
    return Hole(min(damage.until_offset, until), HoleCause.UNREADABLE, why)


def _decided(piece: Piece, undecided: deque[Batch]) -> Iterator[Hole | Slice]:
    """Yield a piece without the undecided batches that are in it."""
    start = piece.start
    while undecided and undecided[0].file is piece.file and undecided[0].start < piece.end:
        batch = undecided.popleft()
        if batch.start > start:
            yield Slice(piece.file, start, batch.start, batch.base)
        yield Hole(batch.last + 1, HoleCause.UNDECIDED, "a transaction without an outcome")
        start = batch.start + batch.size
    if start < piece.end:
        yield Slice(piece.file, start, piece.end, piece.next)


def _below(piece: Piece, until: int) -> Piece:
    """Return the batches of a piece that end below an offset."""
    rows, _ = whole_batches(map_file(piece.file.path)[piece.start : piece.end].data, 0)
    rows = rows[:, rows[columns.LAST_OFFSET] < until]
    size = int(rows[[columns.START, columns.SIZE], -1].sum()) if rows.shape[1] else 0
    return piece._replace(end=piece.start + size, next=min(piece.next, until))


class PartitionImport:
    """Carries out the steps of one partition."""

    def __init__(
        self, source: PartitionSource, log: ScannedLog, sink: SegmentSink, wait: Callable[[float], object]
    ) -> None:
        end = position_of(sink.archive, source.topic, source.life, source.partition)
        self.report = ImportedPartition(source, from_offset=end.next)
        self._log = log
        self._sink = sink
        self._wait = wait
        self._writer = PartitionWriter(
            source, end, sink, silences=sink.silence_counter.silences, written=self.report.written
        )
        self._aborted = sorted(log.aborted, key=lambda one: one.first)
        self._file: LogFile | None = None
        self._content: Bytes = np.empty(0, np.uint8)

    def run(self, *, until: int = MOST_OFFSET, takes_undecided: bool = False) -> None:
        """Import the log from the archive's end on."""
        writer = self._writer
        for step in steps(self._log, until=until, takes_undecided=takes_undecided):
            if isinstance(step, Slice):
                if step.next > writer.position:
                    self._take(step)
            elif step.until > writer.position:
                self._skip(step)
        self._flush()
        self.report.next = writer.position

    def _take(self, step: Slice) -> None:
        if self._file is not step.file:
            self._file, self._content = step.file, map_file(step.file.path)
        records = self._content[step.start : step.end].data
        rest: Fetch | None = Fetch(
            position=self._writer.position,
            records=records,
            aborted=self._aborted_until(step.next),
        )
        while (present := rest) is not None:
            try:
                rest = self._writer.take(present)
            except CorruptBatchError as error:
                rest = self._behind_broken(records, error, step.next)
            if self._writer.is_due:
                self._flush()

    def _aborted_until(self, end: int) -> tuple[tuple[int, int], ...]:
        """Return the aborted transactions that may have records between the writer's position and an offset."""
        position = self._writer.position
        return tuple(
            (one.producer_id, one.first) for one in self._aborted if one.first < end and one.marker >= position
        )

    def _behind_broken(self, records: memoryview, error: CorruptBatchError, end: int) -> Fetch | None:
        """Skip a batch with a right checksum that cannot be read: its producer wrote it so."""
        position = self._writer.position
        table, _ = whole_batches(records, position)
        index = int(np.searchsorted(table[columns.LAST_OFFSET], position))
        if index >= table.shape[1]:
            raise error
        last, start, size = table[[columns.LAST_OFFSET, columns.START, columns.SIZE], index].tolist()
        self._skip(Hole(last + 1, HoleCause.UNREADABLE, f"a batch of {self._file.path if self._file else ''}: {error}"))
        left = records[start + size :]
        if not len(left):
            return None
        return Fetch(
            position=self._writer.position,
            records=left,
            aborted=self._aborted_until(end),
            follows=True,
        )

    def _skip(self, hole: Hole) -> None:
        self._writer.skip(hole.until, hole.cause, why=hole.why)
        self.report.holes.append(hole)

    def _flush(self) -> None:
        """Put the segment, however often that takes; nothing else is taken meanwhile."""
        position = self._writer.position
        while self._writer.holds_records:
            try:
                self._writer.flush()
            except PutLaterError as later:
                self._wait(later.pause_s)
        if self._writer.position != position:
            raise CorruptSegmentError(
                f"{self.report.source}: another writer has put an object of this partition meanwhile; stop it, and run the"
                " same command again"
            )
