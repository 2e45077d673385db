"""Imports one scanned log: hands its valid batches to a partition writer, and notes holes for everything else."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from archiver.archive.format.layout import MOST_OFFSET
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.fetched_batches import Fetch
from archiver.codec.batch import whole_batches
from archiver.codec.foreign.damage import NO_OFFSETS
from archiver.codec.frame import Longs
from archiver.codec.kernels import batches as columns
from archiver.errors import CorruptBatchError
from archiver.imports.filling.partition_fill import ImportHole, PartitionFill
from archiver.imports.logs.log_directory import LogFile
from archiver.imports.logs.log_reader import LogReader
from archiver.imports.logs.log_scan import CONTROL, TRANSACTIONAL, DamagedBytes, Piece, ScannedLog, Undecided, end_of


class Slice(NamedTuple):
    """Valid batches of one file, to be taken."""

    file: LogFile
    start: int
    end: int
    next: int  # the offset behind them


def steps(log: ScannedLog, *, until: int = MOST_OFFSET, takes_undecided: bool = False) -> Iterator[ImportHole | Slice]:
    """Yield what the import does with a log, in the order of offsets, below `until`: the end of the log, or of its committed part."""
    if log.first:
        yield ImportHole(log.first, HoleCause.EXPIRED, "the log begins here")
    damages, undecided = deque(log.damages), () if takes_undecided else log.undecided
    position = log.first
    for found in log.pieces:
        while damages and damages[0].until_offset <= found.first and damages[0].from_offset < until:
            yield _hole_of(damages[0], position, until)
            position = damages.popleft().until_offset
        if position >= until:
            return
        if log.is_missing(position, found.first):
            yield ImportHole(
                min(found.first, until), HoleCause.UNREADABLE, f"no file in {log.folder.path} has these offsets"
            )
        if found.next > until:
            return
        yield from _decided(found, [one for one in undecided if one.first < found.next and one.last >= found.first])
        position = found.next
    yield from (_hole_of(damage, position, until) for damage in damages if damage.from_offset < until)


def _hole_of(damage: DamagedBytes, position: int, until: int) -> ImportHole:
    """Return the hole of damaged bytes behind a position. Bytes between two batches may have had no offsets."""
    why = f"bytes {damage.start:,} to {damage.end:,} of {damage.file} are damaged"
    end = min(damage.until_offset, until)
    return ImportHole(end if end > position else NO_OFFSETS, HoleCause.UNREADABLE, why)


def _decided(piece: Piece, undecided: Sequence[Undecided]) -> Iterator[ImportHole | Slice]:
    """Yield a piece without the batches of undecided transactions."""
    begin = piece.start
    if undecided:
        with LogReader(piece.file.path) as source:
            for position, rows, _ in source.batches(piece.start, piece.end):
                for start, stop in _runs(_is_of(rows, undecided)):
                    at = position + int(rows[columns.START, start])
                    if at > begin:
                        yield Slice(piece.file, begin, at, int(rows[columns.BASE_OFFSET, start]))
                    until = int(rows[columns.LAST_OFFSET, stop - 1]) + 1
                    yield ImportHole(until, HoleCause.UNDECIDED, "a transaction without an outcome")
                    begin = position + end_of(rows[:, :stop])
    if begin < piece.end:
        yield Slice(piece.file, begin, piece.end, piece.next)


def _is_of(rows: Longs, undecided: Sequence[Undecided]) -> npt.NDArray[np.bool_]:
    """Mark the batches of these transactions."""
    bases, producers = rows[columns.BASE_OFFSET], rows[columns.PRODUCER_ID]
    found = np.zeros(rows.shape[1], np.bool_)
    for one in undecided:
        found |= (producers == one.producer_id) & (bases >= one.first) & (bases <= one.last)
    is_data: npt.NDArray[np.bool_] = (rows[columns.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL
    return found & is_data


def _runs(marked: npt.NDArray[np.bool_]) -> Sequence[tuple[int, int]]:
    """Return where runs of marks begin and end."""
    changes = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(np.int8), [0]])))
    return list(zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True))


class PartitionImport:
    """Carries out the steps of one partition."""

    def __init__(self, log: ScannedLog, fill: PartitionFill) -> None:
        self._log = log
        self._fill = fill
        self._writer = fill.writer
        self._aborted = log.aborted
        self._stable_end = log.stable_end

    def run(self, *, until: int = MOST_OFFSET, takes_undecided: bool = False) -> None:
        """Import the log from the archive's end on."""
        for step in steps(self._log, until=until, takes_undecided=takes_undecided):
            if isinstance(step, Slice):
                if step.next > self._writer.position:
                    self._take(step)
            elif step.until > self._writer.position:
                self._fill.skip(step)

    def _take(self, step: Slice) -> None:
        with LogReader(step.file.path) as source:
            for _, rows, content in source.batches(step.start, step.end):
                last = int(rows[columns.LAST_OFFSET, -1])
                if last >= self._writer.position:
                    self._take_batches(step.file, content.data, last + 1)

    def _take_batches(self, file: LogFile, batches: memoryview, end: int) -> None:
        rest: Fetch | None = self._fetch(batches, end)
        while (present := rest) is not None:
            try:
                rest = self._writer.take(present)
            except CorruptBatchError as error:
                rest = self._behind_broken(file, batches, error, end)
            if self._writer.is_due:
                self._fill.put()

    def _fetch(self, batches: memoryview, end: int, *, follows: bool = False) -> Fetch:
        """Return batches below an offset as an answer, with the aborted transactions that may have records in them."""
        position = self._writer.position
        producers, firsts, markers = self._aborted
        chosen = (firsts < end) & (markers >= position)
        aborted = tuple(zip(producers[chosen].tolist(), firsts[chosen].tolist(), strict=True))
        return Fetch(position=position, records=batches, aborted=aborted, follows=follows, stable_end=self._stable_end)

    def _behind_broken(self, file: LogFile, records: memoryview, error: CorruptBatchError, end: int) -> Fetch | None:
        """Skip a batch with a right checksum that cannot be read: its producer wrote it so."""
        position = self._writer.position
        table, _ = whole_batches(records, position)
        index = int(np.searchsorted(table[columns.LAST_OFFSET], position))
        if index >= table.shape[1]:
            raise error
        last, start, size = table[[columns.LAST_OFFSET, columns.START, columns.SIZE], index].tolist()
        self._fill.skip(ImportHole(last + 1, HoleCause.UNREADABLE, f"a batch of {file.path}: {error}"))
        left = records[start + size :]
        return self._fetch(left, end, follows=True) if len(left) else None
