"""Scans all files of one replica before anything is written: valid batches, damage, transactions. Reads headers and checksums only.

1. A file's batches must have right checksums and rising offsets, above those before and below the next file's.
2. Damage ends at the first batch from which a chain of valid batches leads to the end of the file. Records can contain whole
   batches, which lead nowhere.
3. Transactions are decided by their markers. One without a marker, or with damage before it, is undecided.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from archiver.archive.format.layout import MOST_OFFSET
from archiver.codec.batch import BATCH_MAGIC, decode_batches, first_batch_offset, whole_batches
from archiver.codec.frame import Bytes, Column, Longs
from archiver.codec.kernels import batches as columns
from archiver.codec.kernels import messages as message_kernels
from archiver.codec.kernels.varint import read_long
from archiver.errors import CorruptBatchError
from archiver.imports.log_directory import LogFile, PartitionFolder, is_swap
from archiver.imports.mapped_file import map_file

PIECE_BYTES: Final = 16 * 1024 * 1024  # of a file that is scanned, and handed to the writer, at once
_SEARCHED_BYTES: Final = 1024 * 1024
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_ABORT, _COMMIT = 0, 1
_MAGIC_AT: Final = 16
_SMALLEST: Final = 17  # bytes up to and including the magic byte


class Batch(NamedTuple):
    """Where a batch is."""

    file: LogFile
    start: int
    size: int
    base: int
    last: int


class Piece(NamedTuple):
    """Valid batches behind each other in one file."""

    file: LogFile
    start: int
    end: int
    first: int  # offset
    next: int


class Damage(NamedTuple):
    """Bytes that are not valid batches, and the offsets that they may have had."""

    file: Path
    start: int
    end: int
    from_offset: int
    until_offset: int  # exclusive


class Aborted(NamedTuple):
    """An aborted transaction of a producer, up to its marker."""

    producer_id: int
    first: int
    marker: int


@dataclass(slots=True)
class ScannedLog:
    """What one replica's files hold."""

    folder: PartitionFolder
    pieces: list[Piece] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    cut_bytes: int = 0  # behind the last valid batch of the last file
    aborted: list[Aborted] = field(default_factory=list)
    undecided: list[Batch] = field(default_factory=list)  # in order
    leader_epoch: int = -1  # the highest of any batch
    is_compacted: bool = False  # offsets are missing between batches of one file
    other_markers: int = 0  # control records that end no transaction

    @property
    def first(self) -> int:
        return self.folder.files[0].base if self.folder.files else 0

    @property
    def next(self) -> int:
        return self.pieces[-1].next if self.pieces else self.first


@dataclass(slots=True)
class _Transactions:
    """Transactions without a marker so far, by producer: their batches."""

    open: dict[int, list[Batch]] = field(default_factory=dict)

    def note(self, log: ScannedLog, batch: Batch, producer_id: int, *, control: int | None) -> None:
        if control is None:
            self.open.setdefault(producer_id, []).append(batch)
        elif control not in {_ABORT, _COMMIT}:
            log.other_markers += 1
        elif (batches := self.open.pop(producer_id, None)) and control == _ABORT:
            log.aborted.append(Aborted(producer_id, batches[0].base, batch.base))

    def give_up(self, log: ScannedLog) -> None:
        """Leave the open transactions undecided: the log ended, or damage may have held their markers."""
        log.undecided += (batch for batches in self.open.values() for batch in batches)
        self.open.clear()


def scan_log(folder: PartitionFolder) -> ScannedLog:
    """Scan the files of a replica in the order of their offsets."""
    log = ScannedLog(folder)
    transactions = _Transactions()
    files = _in_use(folder.files)
    for number, file in enumerate(files):
        until = files[number + 1].base if number + 1 < len(files) else MOST_OFFSET
        if file.size:
            _scan_file(log, file, map_file(file.path), until, transactions)
    transactions.give_up(log)
    log.undecided.sort(key=lambda batch: batch.base)
    return log


def _in_use(files: tuple[LogFile, ...]) -> list[LogFile]:
    """Leave out the files that a finished file of the cleaner replaces."""
    replaced = [(swap.base, _last_offset(swap)) for swap in files if is_swap(swap)]
    return [file for file in files if is_swap(file) or not any(base <= file.base <= last for base, last in replaced)]


def _last_offset(file: LogFile) -> int:
    tables = _valid_rows(map_file(file.path), 0, file.base - 1, MOST_OFFSET) if file.size else ()
    return max((int(rows[columns.LAST_OFFSET, -1]) for rows in tables), default=file.base)


def _scan_file(log: ScannedLog, file: LogFile, source: Bytes, until: int, transactions: _Transactions) -> None:
    position, last = 0, max(log.next, file.base) - 1
    while True:
        for rows in _valid_rows(source, position, last, until):
            _note_rows(log, file, source, rows, transactions)
            position, last = _end_of(rows), int(rows[columns.LAST_OFFSET, -1])
        if _is_zero(source, position):
            return
        found = _next_chain(source, position, last, until)
        if found is None and until == MOST_OFFSET:
            log.cut_bytes += len(source) - position
            return
        end, base = (len(source), until) if found is None else (found, _first_offset(source, found))
        transactions.give_up(log)
        log.damages.append(Damage(file.path, position, end, last + 1, base))
        if found is None:
            return
        position, last = end, base - 1


def _valid_rows(source: Bytes, position: int, last: int, until: int) -> Iterator[Longs]:
    """Yield tables of the valid batches from a position on, up to the first that is not, a piece at a time."""
    while position < len(source):
        size = _claimed_size(source, position)
        if size > len(source) - position:
            return
        try:
            rows, _ = whole_batches(source[position : position + max(size, PIECE_BYTES)].data, 0)
        except CorruptBatchError:
            return
        rows[columns.START] += position
        good = _count_valid(source, rows, last, until)
        if good:
            rows = np.ascontiguousarray(rows[:, :good]) if good < rows.shape[1] else rows
            yield rows
            position, last = _end_of(rows), int(rows[columns.LAST_OFFSET, -1])
        if good < rows.shape[1] or not good:
            return


def _claimed_size(source: Bytes, position: int) -> int:
    head = source[position + 8 : position + columns.LOG_OVERHEAD].tobytes()
    return columns.LOG_OVERHEAD + int.from_bytes(head, "big", signed=True) if len(head) == 4 else len(source) + 1


def _end_of(rows: Longs) -> int:
    return int(rows[columns.START, -1] + rows[columns.SIZE, -1])


def _count_valid(source: Bytes, rows: Longs, last: int, until: int) -> int:
    """Return how many batches are valid and in order, from the first on. Rows of messages v0 and v1 are completed."""
    is_batch = rows[columns.MAGIC] == BATCH_MAGIC
    is_message = rows[columns.MAGIC] < BATCH_MAGIC
    changes = np.flatnonzero(np.diff(is_message.astype(np.int8))) + 1
    bounds: list[int] = [0, *changes.tolist(), rows.shape[1]]
    for start, stop in pairwise(bounds):
        if is_message[start]:
            some = np.ascontiguousarray(rows[:, start:stop])
            good = int(message_kernels.check_messages(source, some)[0])
            rows[:, start:stop] = some
        else:
            good = _count_right(source, rows[:, start:stop], is_batch[start:stop])
        lasts = rows[columns.LAST_OFFSET, start : start + good]
        bases = rows[columns.BASE_OFFSET, start : start + good]
        before = np.concatenate([[last], lasts[:-1]]) if good else lasts
        wrong = np.flatnonzero((bases <= before) | (lasts < bases) | (lasts >= until))
        if len(wrong):
            return start + int(wrong[0])
        if good < stop - start:
            return start + int(good)
        last = int(lasts[-1])
    return int(rows.shape[1])


def _count_right(source: Bytes, rows: Longs, is_batch: np.typing.NDArray[np.bool_]) -> int:
    """Return how many record batches have the checksum of their bytes, from the first on."""
    for index, (start, size, crc) in enumerate(
        zip(*rows[[columns.START, columns.SIZE, columns.CRC]].tolist(), strict=True)
    ):
        if not is_batch[index] or google_crc32c.value(source[start + columns.CRC_END : start + size]) != crc:
            return index
    return int(rows.shape[1])


def _next_chain(source: Bytes, position: int, last: int, until: int) -> int | None:
    """Return where valid batches begin again and lead to the end of the file; None: nowhere."""
    for candidate in _candidates(source, position + 1, last, until):
        end = candidate
        for rows in _valid_rows(source, candidate, last, until):
            end = _end_of(rows)
        if end > candidate and _is_zero(source, end):
            return candidate
    return None


def _first_offset(source: Bytes, position: int) -> int:
    """Return the first offset of a valid batch. A compressed message of an old format has only its last one in its header."""
    in_header = first_batch_offset(source[position : position + 8].data)
    if source[position + _MAGIC_AT] == BATCH_MAGIC:
        return in_header
    try:
        decoded = decode_batches(source[position : position + _claimed_size(source, position)].data, 0)
    except CorruptBatchError:  # its producer wrote it so: the import reports it
        return in_header
    return next((int(frame.column(Column.OFFSET)[0]) for frame in decoded.frames() if len(frame)), in_header)


def _candidates(source: Bytes, position: int, last: int, until: int) -> Iterator[int]:
    """Yield the places where a batch may begin, by its magic, its length and its offset."""
    for start in range(position, len(source) - _SMALLEST + 1, _SEARCHED_BYTES):
        part = source[start : start + _SEARCHED_BYTES + _SMALLEST - 1].astype(np.int64)
        count = len(part) - _SMALLEST + 1
        base = sum(part[byte : byte + count] << (56 - 8 * byte) for byte in range(8))
        length = sum(part[8 + byte : 8 + byte + count] << (24 - 8 * byte) for byte in range(4))
        room = len(source) - columns.LOG_OVERHEAD - np.arange(start, start + count)
        fits = (
            (part[16 : 16 + count] <= BATCH_MAGIC) & (length >= 14) & (length <= room) & (base > last) & (base < until)
        )
        yield from (start + np.flatnonzero(fits)).tolist()


def _is_zero(source: Bytes, position: int) -> bool:
    """Return whether the rest of a file is empty: brokers may allocate files before they fill them."""
    return all(not source[start : start + PIECE_BYTES].any() for start in range(position, len(source), PIECE_BYTES))


def _note_rows(log: ScannedLog, file: LogFile, source: Bytes, rows: Longs, transactions: _Transactions) -> None:
    bases, lasts = rows[columns.BASE_OFFSET], rows[columns.LAST_OFFSET]
    log.leader_epoch = max(log.leader_epoch, int(rows[columns.LEADER_EPOCH].max()))
    # The first offsets inside compressed messages of old formats are not known here: they show no gap.
    is_known = (rows[columns.MAGIC] == BATCH_MAGIC) | (rows[columns.COUNT] == 1)
    log.is_compacted |= bool(((bases[1:] != lasts[:-1] + 1) & is_known[1:]).any())
    start, first = int(rows[columns.START, 0]), int(bases[0])
    if rows[columns.MAGIC, 0] < BATCH_MAGIC and rows[columns.COUNT, 0] == 0 and first > log.next:
        first = _first_offset(source, start)
    if first > log.next and not log.is_compacted:  # a marker may be among the missing offsets
        transactions.give_up(log)
    log.pieces.append(Piece(file, start, _end_of(rows), first, int(lasts[-1]) + 1))
    attributes = rows[columns.ATTRIBUTES] * (rows[columns.MAGIC] == BATCH_MAGIC)
    for index in np.flatnonzero(attributes & _TRANSACTIONAL).tolist():
        start, size, base, end, producer_id = rows[
            [columns.START, columns.SIZE, columns.BASE_OFFSET, columns.LAST_OFFSET, columns.PRODUCER_ID], index
        ].tolist()
        control = _control_type(source[start : start + size]) if attributes[index] & _CONTROL else None
        transactions.note(log, Batch(file, start, size, base, end), producer_id, control=control)


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
