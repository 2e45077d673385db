"""Scans all files of one replica before anything is written: valid batches, damage, transactions. Reads headers and checksums only.

1. A file's batches must have right checksums and rising offsets, above those before and below the next file's.
2. DamagedBytes ends where the damaged batch itself says, if a valid batch begins there. It also ends at a valid batch up to which the
   damaged one has the right checksum: only its length or another field outside of the checksum is wrong then. Otherwise it ends at the
   first batch from which a chain of valid batches leads to the end of the file. Records can contain whole batches, which lead nowhere.
3. Transactions are decided by their markers. One without a marker, or with damage before it, is undecided.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from archiver.archive.format.layout import MOST_OFFSET
from archiver.codec.batch import BATCH_MAGIC, decode_batches, first_batch_bytes, first_batch_offset
from archiver.codec.frame import Bytes, Column, Longs
from archiver.codec.kernels import batches as columns
from archiver.codec.kernels import messages as message_kernels
from archiver.codec.kernels.varint import read_long
from archiver.errors import CorruptBatchError
from archiver.imports.logs.log_directory import LogFile, PartitionFolder, is_swap
from archiver.imports.logs.log_reader import BatchChecksum, LogReader

_SEARCHED_BYTES: Final = 256 * 1024
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_ABORT, _COMMIT = 0, 1
_SMALLEST: Final = 17  # bytes up to and including the magic byte
_ALLOCATED_BYTES: Final = 4096  # so many zeros at the end of a file are no part of a record
_FOLLOWED: Final = 8  # headers that must follow a candidate before its checksum is computed
_MOST_WORK: Final = 4  # times the size of a file: bytes of candidates with wrong checksums


class Piece(NamedTuple):
    """Valid batches behind each other in one file."""

    file: LogFile
    start: int
    end: int
    first: int  # offset
    next: int


class DamagedBytes(NamedTuple):
    """Bytes that are not valid batches, and the offsets that they may have had."""

    file: Path
    start: int
    end: int
    from_offset: int
    until_offset: int  # exclusive


class Undecided(NamedTuple):
    """A transaction without an outcome: the producer's batches between two offsets."""

    producer_id: int
    first: int
    last: int


class Fill(NamedTuple):
    """Offsets that were unreadable, and were taken from another replica."""

    from_offset: int
    until_offset: int  # exclusive
    folder: PartitionFolder


@dataclass(slots=True)
class ScannedLog:
    """What one replica's files hold."""

    folder: PartitionFolder
    pieces: list[Piece] = field(default_factory=list)
    damages: list[DamagedBytes] = field(default_factory=list)
    cut_bytes: int = 0  # behind the last valid batch of the last file
    undecided: list[Undecided] = field(default_factory=list)
    leader_epoch: int = -1  # of the last batch that has one
    old_next: int = 0  # the offset behind the last message of an old format
    is_compacted: bool = False  # the cleaner was there, or offsets are missing within a file
    other_markers: int = 0  # control records that end no transaction
    fills: list[Fill] = field(default_factory=list)
    _aborted: "array[int]" = field(default_factory=lambda: array("q"))
    _open: dict[int, Undecided] = field(default_factory=dict)  # transactions without a marker so far, by producer

    @property
    def first(self) -> int:
        return self.folder.files[0].base if self.folder.files else 0

    @property
    def next(self) -> int:
        return self.pieces[-1].next if self.pieces else self.first

    @property
    def stable_end(self) -> int:
        """The offset that compaction had not passed; the last one of all if unknown, as where two replicas are mixed."""
        return MOST_OFFSET if self.fills else self.folder.stable_end

    def is_missing(self, begin: int, end: int) -> bool:
        """Return whether offsets without a batch are in a missing file. In compacted logs offsets may be missing."""
        return begin < end and (not self.is_compacted or self.folder.loses_file(begin, end))

    @property
    def aborted(self) -> Longs:
        """Return the aborted transactions by column: producer id, first offset, offset of the marker."""
        return np.frombuffer(self._aborted, np.int64).reshape(-1, 3).T

    def note(self, file: LogFile, position: int, rows: Longs, content: Bytes) -> None:
        """Add valid batches, which begin at a position of a file."""
        lasts = rows[columns.LAST_OFFSET]
        is_old = rows[columns.MAGIC] < BATCH_MAGIC
        self._note_epoch(rows[columns.LEADER_EPOCH])
        self.old_next = int(lasts[is_old][-1]) + 1 if is_old.any() else self.old_next
        # The first offsets inside compressed messages of old formats are not known here: they show no gap.
        is_known = ~is_old | (rows[columns.COUNT] == 1)
        self.is_compacted |= bool(((rows[columns.BASE_OFFSET, 1:] != lasts[:-1] + 1) & is_known[1:]).any())
        first = int(rows[columns.BASE_OFFSET, 0])
        if not is_known[0] and first > self.next:
            first = _first_offset(content)
        self.is_compacted |= position == 0 and first > file.base
        if self.is_missing(self.next, first):  # a marker may be among the offsets
            self.give_up()
        committed = MOST_OFFSET if self.folder.replicated_to is None else self.folder.replicated_to
        split = int(np.searchsorted(lasts, committed))
        for start, stop in ((0, split), (split, rows.shape[1])):
            if start < stop:
                at = position + int(rows[columns.START, start])
                base = first if not start else int(rows[columns.BASE_OFFSET, start])
                if start and not is_known[start]:
                    base = _first_offset(content[int(rows[columns.START, start]) :])
                self._add(Piece(file, at, position + end_of(rows[:, :stop]), base, int(lasts[stop - 1]) + 1), committed)
        self._note_transactions(rows, content)

    def _note_epoch(self, epochs: Longs) -> None:
        """Note the last epoch: they never fall. No checksum covers them, so the checkpoint, if there is one, bounds them."""
        known = epochs[epochs >= 0]
        if len(known):
            highest = max((epoch.number for epoch in self.folder.epochs), default=int(known[-1]))
            self.leader_epoch = min(int(known[-1]), highest)

    def _add(self, piece: Piece, committed: int) -> None:
        """Join a piece to the last one, unless other bytes are between them, or only one is known to be committed."""
        before = self.pieces[-1] if self.pieces else None
        is_joined = before is not None and before.file is piece.file and before.end == piece.start
        if before is not None and is_joined and (before.next <= committed) == (piece.next <= committed):
            self.pieces[-1] = before._replace(end=piece.end, next=piece.next)
        else:
            self.pieces.append(piece)

    def note_damage(self, damage: DamagedBytes) -> None:
        """Add damaged bytes, which may have been markers."""
        self.give_up()
        self.damages.append(damage)

    def _note_transactions(self, rows: Longs, content: Bytes) -> None:
        is_new = rows[columns.MAGIC] == BATCH_MAGIC
        chosen = rows[:, is_new & (rows[columns.ATTRIBUTES] & TRANSACTIONAL != 0)]
        told = (columns.START, columns.SIZE, columns.BASE_OFFSET, columns.LAST_OFFSET, columns.PRODUCER_ID)
        is_marker = (chosen[columns.ATTRIBUTES] & CONTROL != 0).tolist()
        for row, marks in zip(chosen[list(told)].T.tolist(), is_marker, strict=True):
            start, size, base, last, producer_id = row
            if not marks:
                begun = self._open.get(producer_id)
                self._open[producer_id] = Undecided(producer_id, base if begun is None else begun.first, last)
                continue
            outcome = _control_type(content[start : start + size])
            if outcome not in {_ABORT, _COMMIT}:
                self.other_markers += 1
            elif (begun := self._open.pop(producer_id, None)) and outcome == _ABORT:
                self._aborted.extend((producer_id, begun.first, base))

    def give_up(self) -> None:
        """Leave the open transactions undecided: the log ended, or damage may have held their markers."""
        self.undecided += self._open.values()
        self._open.clear()


def scan_log(folder: PartitionFolder) -> ScannedLog:
    """Scan the files of a replica in the order of their offsets."""
    log = ScannedLog(folder, is_compacted=folder.cleaned_to > 0)
    files = _in_use(folder.files)
    for number, file in enumerate(files):
        until = files[number + 1].base if number + 1 < len(files) else MOST_OFFSET
        with LogReader(file.path) as source:
            _scan_file(log, file, source, until)
    log.give_up()
    return log


def rescan(folder: PartitionFolder, spans: Sequence[Piece | DamagedBytes]) -> ScannedLog:
    """Scan pieces that are known to be valid, also of other replicas, and the damage between them."""
    log = ScannedLog(folder, is_compacted=folder.cleaned_to > 0)
    for span in spans:
        if isinstance(span, DamagedBytes):
            log.note_damage(span)
            continue
        with LogReader(span.file.path) as source:
            for position, rows, content in source.batches(span.start, span.end):
                _count_valid(content, rows, -1, MOST_OFFSET)  # completes rows of messages of old formats
                log.note(span.file, position, rows, content)
    log.give_up()
    return log


def _in_use(files: tuple[LogFile, ...]) -> list[LogFile]:
    """Leave out the files that a finished file of the cleaner replaces."""
    replaced = [(swap.base, _last_offset(swap)) for swap in files if is_swap(swap)]
    return [file for file in files if is_swap(file) or not any(base <= file.base <= last for base, last in replaced)]


def _last_offset(file: LogFile) -> int:
    with LogReader(file.path) as source:
        tables = _valid_batches(source, 0, file.base - 1, MOST_OFFSET)
        return max((int(rows[columns.LAST_OFFSET, -1]) for _, rows, _ in tables), default=file.base)


def _scan_file(log: ScannedLog, file: LogFile, source: LogReader, until: int) -> None:
    position, last = 0, max(log.next, file.base) - 1
    while True:
        for start, rows, content in _valid_batches(source, position, last, until):
            log.note(file, start, rows, content)
            position, last = start + end_of(rows), int(rows[columns.LAST_OFFSET, -1])
        if position == len(source) or (position >= source.used and (until == MOST_OFFSET or last + 1 >= until)):
            return
        found = _behind_damage(source, position, last, until)
        if found is None and until == MOST_OFFSET:
            log.cut_bytes += len(source) - position
            return
        end, base = (len(source), until) if found is None else (found, _first_at(source, found))
        log.note_damage(DamagedBytes(file.path, position, end, last + 1, base))
        if found is None:
            return
        position, last = end, base - 1


def _valid_batches(source: LogReader, position: int, last: int, until: int) -> Iterator[tuple[int, Longs, Bytes]]:
    """Yield the position, the table and the bytes of valid batches from a place on, up to the first that is not valid."""
    for start, rows, content in source.batches(position, len(source)):
        after = source.header(start + len(content))
        good = _count_valid(content, rows, last, until, None if after is None else after.base)
        if good:
            found = np.ascontiguousarray(rows[:, :good]) if good < rows.shape[1] else rows
            last = int(found[columns.LAST_OFFSET, -1])
            yield start, found, content
        if good < rows.shape[1]:
            return


def end_of(rows: Longs) -> int:
    return int(rows[columns.START, -1] + rows[columns.SIZE, -1])


def _count_valid(source: Bytes, rows: Longs, last: int, until: int, following: int | None = None) -> int:
    """Return how many batches are valid and in order, from the first on. Rows of messages v0 and v1 are completed.

    `following`: the offset of the batch behind them.
    """
    is_batch = rows[columns.MAGIC] == BATCH_MAGIC
    is_message = rows[columns.MAGIC] < BATCH_MAGIC
    changes = np.flatnonzero(np.diff(is_message.astype(np.int8))) + 1
    bounds: list[int] = [0, *changes.tolist(), rows.shape[1]]
    good = 0
    for start, stop in pairwise(bounds):
        if is_message[start]:
            some = np.ascontiguousarray(rows[:, start:stop])
            right = int(message_kernels.check_messages(source, some)[0])
            rows[:, start:stop] = some
        else:
            right = _count_right(source, rows[:, start:stop], is_batch[start:stop])
        good = start + right
        if good < stop:
            following = int(rows[columns.BASE_OFFSET, good])
            break
    return int(np.append(_out_of_order(rows[:, :good], last, until, following), True).argmax())


def _out_of_order(rows: Longs, last: int, until: int, following: int | None) -> npt.NDArray[np.bool_]:
    """Mark the batches whose offsets do not rise.

    No checksum covers the first offset of a batch: one that skips offsets is wrong if the next batch has them.
    """
    bases, lasts = rows[columns.BASE_OFFSET], rows[columns.LAST_OFFSET]
    before = np.concatenate([[last], lasts])[:-1]
    after = np.concatenate([bases, [until if following is None else following]])[1:]
    is_known = (rows[columns.MAGIC] == BATCH_MAGIC) | (rows[columns.COUNT] == 1)
    is_ahead = is_known & (bases != before + 1) & (after > before) & (after <= lasts)
    wrong: npt.NDArray[np.bool_] = (bases <= before) | (lasts < bases) | (lasts >= until) | is_ahead
    return wrong


def _count_right(source: Bytes, rows: Longs, is_batch: npt.NDArray[np.bool_]) -> int:
    """Return how many record batches have the checksum of their bytes, from the first on."""
    for index, (start, size, crc) in enumerate(
        zip(*rows[[columns.START, columns.SIZE, columns.CRC]].tolist(), strict=True)
    ):
        if not is_batch[index] or google_crc32c.value(source[start + columns.CRC_END : start + size]) != crc:
            return index
    return int(rows.shape[1])


def _behind_damage(source: LogReader, position: int, last: int, until: int) -> int | None:
    """Return where valid batches begin again behind a damaged one; None: nowhere."""
    own, used = source.header(position), source.used
    is_last = False  # by its own length
    if own is not None:
        is_torn = own.end > len(source) and until == MOST_OFFSET and own.base == last + 1
        is_last = is_torn or used <= own.end <= len(source)
        if own.end < used and last < own.base <= own.last and _is_valid(source, own.end, own.last, until):
            return own.end
    checksum = BatchChecksum(source, position)
    start, work = position + 1, 0
    for candidate in _candidates(source, start, used, last, until):
        if checksum.is_right(candidate) and _is_valid(source, candidate, last, until):
            return candidate
        if is_last or candidate < start or not _leads_on(source, candidate, last, until, used):
            continue
        end = candidate
        if _is_valid(source, candidate, last, until):
            for at, rows, _ in _valid_batches(source, candidate, last, until):
                end = at + end_of(rows)
        if end == len(source) or (end >= used and len(source) - end >= _ALLOCATED_BYTES):
            return candidate
        failed = source.header(end)
        work += 0 if failed is None else min(failed.end, len(source)) - end
        if work > _MOST_WORK * len(source):
            return None
        start = max(end, candidate + 1)  # what is inside valid batches is their content
    return None


def _is_valid(source: LogReader, position: int, last: int, until: int) -> bool:
    """Return whether the batch at a position is valid."""
    head = source.header(position)
    if head is None or head.end > len(source):
        return False
    after = source.header(head.end)
    following = None if after is None else after.base
    found = source.batches(position, head.end)
    return any(_count_valid(content, rows, last, until, following) for _, rows, content in found)


def _leads_on(source: LogReader, position: int, last: int, until: int, used: int) -> bool:
    """Return whether headers with rising offsets follow each other from a position on: cheap, and rarely true by chance."""
    for _ in range(_FOLLOWED):
        head = source.header(position)
        if head is None or head.end > len(source) or not last < head.base <= head.last < until:
            return False
        if head.end >= used:
            return True
        position, last = head.end, head.last
    return True


def _first_at(source: LogReader, position: int) -> int:
    head = source.header(position)
    return 0 if head is None else _first_offset(source.read(position, head.end))


def _first_offset(content: Bytes) -> int:
    """Return the first offset of a valid batch. A compressed message of an old format has only its last one in its header."""
    batch = content[: first_batch_bytes(content.data)].data
    in_header = first_batch_offset(batch)
    if batch[_SMALLEST - 1] == BATCH_MAGIC:
        return in_header
    try:
        decoded = decode_batches(batch, 0)
    except CorruptBatchError:  # its producer wrote it so: the import reports it
        return in_header
    return next((int(frame.column(Column.OFFSET)[0]) for frame in decoded.frames() if len(frame)), in_header)


def _candidates(source: LogReader, position: int, used: int, last: int, until: int) -> Iterator[int]:
    """Yield the places where a batch may begin, by its magic, its length and its offset."""
    for start in range(position, min(used, len(source) - _SMALLEST + 1), _SEARCHED_BYTES):
        part = source.read(start, min(start + _SEARCHED_BYTES + _SMALLEST - 1, len(source))).astype(np.int64)
        count = len(part) - _SMALLEST + 1
        base = sum(part[byte : byte + count] << (56 - 8 * byte) for byte in range(8))
        length = sum(part[8 + byte : 8 + byte + count] << (24 - 8 * byte) for byte in range(4))
        room = len(source) - columns.LOG_OVERHEAD - np.arange(start, start + count)
        fits = (
            (part[16 : 16 + count] <= BATCH_MAGIC) & (length >= 14) & (length <= room) & (base > last) & (base < until)
        )
        yield from (start + np.flatnonzero(fits)).tolist()


def _control_type(batch: Bytes) -> int:
    """Return the type in the key of a control record (0: abort, 1: commit); -1 if it has none."""
    content = batch[columns.HEADER_SIZE : columns.HEADER_SIZE + 64].tobytes()
    view, position = memoryview(content), 0
    _, position = read_long(view, position)  # length
    position += 1  # attributes
    for _ in range(2):  # differences of time and offset
        _, position = read_long(view, position) if position > 0 else (0, position)
    length, position = read_long(view, position) if position > 0 else (0, position)
    if position < 0 or length < 4 or position + 4 > len(content):
        return -1
    return int.from_bytes(content[position + 2 : position + 4], "big", signed=True)
