"""Imports one scanned log: hands its valid batches to a partition writer, and notes holes for everything else."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.fetched_batches import Fetch
from archiver.codec.batch import whole_batches
from archiver.codec.frame import Bytes
from archiver.codec.kernels import batches as columns
from archiver.errors import CorruptBatchError
from archiver.imports.log_directory import LogFile
from archiver.imports.log_scan import Batch, Damage, Piece, ScannedLog
from archiver.imports.mapped_file import map_file
from archiver.imports.partition_fill import Hole, PartitionFill


class Slice(NamedTuple):
    """Valid batches of one file, to be taken."""

    file: LogFile
    start: int
    end: int
    next: int  # the offset behind them


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

    def __init__(self, log: ScannedLog, fill: PartitionFill) -> None:
        self._log = log
        self._fill = fill
        self._writer = fill.writer
        self._aborted = sorted(log.aborted, key=lambda one: one.first)
        self._file: LogFile | None = None
        self._content: Bytes = np.empty(0, np.uint8)

    def run(self, *, until: int = MOST_OFFSET, takes_undecided: bool = False) -> None:
        """Import the log from the archive's end on."""
        for step in steps(self._log, until=until, takes_undecided=takes_undecided):
            if isinstance(step, Slice):
                if step.next > self._writer.position:
                    self._take(step)
            elif step.until > self._writer.position:
                self._fill.skip(step)

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
                self._fill.put()

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
        self._fill.skip(
            Hole(last + 1, HoleCause.UNREADABLE, f"a batch of {self._file.path if self._file else ''}: {error}")
        )
        left = records[start + size :]
        if not len(left):
            return None
        return Fetch(
            position=self._writer.position,
            records=left,
            aborted=self._aborted_until(end),
            follows=True,
        )
