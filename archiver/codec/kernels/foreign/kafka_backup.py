"""Kernels for the files of itadventurer/kafka-backup: read the records of a segment file, and write them.

A record, big-endian: offset int64, kind of its time int32 (-1 none, 0 CreateTime, 1 LogAppendTime, -2 CreateTime without a
time), the time int64 for kinds 0 and 1, key length int32 (-1 null), key, value length, value, number of headers int32, and for
each header its key length, key, value length (-1 null), value. An index entry: offset, position, length, int64 each.
"""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.batches import big_endian
from archiver.codec.kernels.headers import read_header
from archiver.codec.kernels.jit import BYTES, LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import copy_bytes, holds, inside, write_varint

MAGIC = 1  # the first byte of every file
ENTRY_SIZE = 24
FRAME_BYTES = 4 * 1024 * 1024  # of records in one frame, but for a larger one
_SMALLEST = 24  # a record without a time, key, value and headers
MOST_OFFSET = 2**63 - 2
_NONE = -1
_NO_CREATE_TIME = -2

# Why index_stored ended before the last record.
OK, BAD_ENTRY, LEFTOVERS, NO_RECORD, NOT_RISING, NEEDS_ROOM = range(6)

# Its state: the next byte and the end; the next index entry, their number, the offset of the one before, and how many bytes to
# pass over at the beginning of its record; offsets must be above FLOOR and below CEILING; NEEDED: bytes of header room; STOPS: 1 to
# end behind the last record of the index.
POSITION, END, ENTRY, ENTRIES, INDEXED, PASSED, FLOOR, CEILING, NEEDED, STOPS = range(10)
STATE_SIZE = 10


@inner
def _int(source: Bytes, position: int) -> int:
    return np.int64(np.int32(big_endian(source, position, 4)))


@inner
def _blob(source: Bytes, position: int, end: int) -> tuple[int, int, int]:
    """Return (start, length or -1, position after it) of a key or value; the position is -1 if it is broken."""
    broken = np.int64(-1)
    if end - position < 4:
        return broken, broken, broken
    length = _int(source, position)
    start = position + 4
    if length < _NONE or length > end - start:
        return broken, broken, broken
    return start, length, start + max(length, 0)


@inner
def _header_end(source: Bytes, position: int, end: int) -> int:
    """Return the position after a header; -1 if it is broken."""
    _, key_length, position = _blob(source, position, end)
    if position < 0 or key_length < 0:
        return np.int64(-1)
    _, _, position = _blob(source, position, end)
    return position


@inner
def _fill(source: Bytes, position: int, end: int, row: Longs) -> int:
    """Fill a row of a frame's table from a record; its headers are where they are in the source. Returns the record's end, or -1."""
    broken = np.int64(-1)
    if end - position < _SMALLEST:
        return broken
    row[0] = big_endian(source, position, 8)
    kind = _int(source, position + 8)
    position += 12
    if row[0] < 0 or row[0] > MOST_OFFSET or kind < _NO_CREATE_TIME or kind > 1:
        return broken
    row[1], row[2] = _NONE, max(kind, _NONE)
    if kind >= 0:
        if end - position < 8:
            return broken
        row[1] = big_endian(source, position, 8)
        position += 8
    if kind == _NO_CREATE_TIME:
        row[2] = 0
    row[3], row[4], position = _blob(source, position, end)
    if position < 0:
        return broken
    row[5], row[6], position = _blob(source, position, end)
    if position < 0 or end - position < 4:
        return broken
    count = _int(source, position)
    position += 4
    row[7], row[9] = position, count
    if count < 0 or count > (end - position) // 8:
        return broken
    for _ in range(count):
        position = _header_end(source, position, end)
        if position < 0:
            return broken
    row[8] = position - row[7]
    return position


@inner
def _move_headers(source: Bytes, row: Longs, headers: Bytes, used: int) -> int:
    """Write a record's headers as frames have them, and point the row at them. Returns the bytes used."""
    position, end = row[7], row[7] + row[8]
    row[7] = used
    for _ in range(row[9]):
        for is_value in range(2):
            start, length, position = _blob(source, position, end)
            used = write_varint(headers, used, length)
            if length > 0 or is_value == 0:
                used = copy_bytes(headers, used, source, start, length)
    row[8] = used - row[7]
    return used


@kernel(types.UniTuple(LONG, 2)(READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, BYTES, LONGS))
def index_stored(source: Bytes, index: Bytes, table: Longs, headers: Bytes, state: Longs) -> tuple[int, int]:
    """Fill the table with the next records. Returns (records, why it ended).

    Records that the index has must be where, and as long as, it says. Ends behind the last one, or when table or headers are
    full.
    """
    rows, used, problem = np.int64(0), np.int64(0), np.int64(OK)
    first = state[POSITION]
    row = np.zeros(10, np.int64)
    while rows < table.shape[1]:
        start, end, offset = state[POSITION], state[END], np.int64(-1)
        is_indexed = state[ENTRY] < state[ENTRIES]
        if is_indexed:
            at = 1 + ENTRY_SIZE * state[ENTRY]
            offset, begin, length = (
                big_endian(index, at, 8),
                big_endian(index, at + 8, 8),
                big_endian(index, at + 16, 8),
            )
            if begin < 0 or offset <= state[INDEXED] or length < _SMALLEST or length > end - begin:
                problem = np.int64(BAD_ENTRY)
                break
            if begin + state[PASSED] != start:
                problem = np.int64(LEFTOVERS if begin > start and not state[PASSED] else BAD_ENTRY)
                break
            end = begin + length
        elif start >= end or state[STOPS]:
            break
        after = _fill(source, start, end, row)
        if after < 0 or (is_indexed and (after != end or row[0] != offset)):
            problem = np.int64(NO_RECORD)
            break
        if row[0] <= state[FLOOR] or row[0] >= state[CEILING]:
            problem = np.int64(NOT_RISING)
            break
        if rows > 0 and after - first > FRAME_BYTES:
            break
        needed = (
            row[8] + 2 * row[9]
        )  # a length takes at most ten bytes in both spellings of a header, of which eight are here
        if needed > len(headers) - used:
            if rows == 0:
                problem, state[NEEDED] = np.int64(NEEDS_ROOM), needed
            break
        used = _move_headers(source, row, headers, used)
        table[:, rows] = row
        rows += 1
        state[POSITION], state[FLOOR] = after, row[0]
        if is_indexed:
            state[ENTRY], state[INDEXED], state[PASSED] = state[ENTRY] + 1, row[0], np.int64(0)
    return rows, problem


@kernel(LONG(READ_ONLY_BYTES, LONG, LONG, LONG))
def find_record(source: Bytes, start: int, end: int, offset: int) -> int:
    """Return where a record of this offset begins that ends exactly at `end`; -1: nowhere from `start` on."""
    row = np.zeros(10, np.int64)
    for position in range(start, end - _SMALLEST + 1):
        if big_endian(source, position, 8) == offset and _fill(source, position, end, row) == end:
            return np.int64(position)
    return np.int64(-1)


@kernel(types.UniTuple(LONG, 2)(READ_ONLY_BYTES, READ_ONLY_BYTES, LONG, LONG, LONG))
def next_entry(source: Bytes, index: Bytes, entry: int, entries: int, floor: int) -> tuple[int, int]:
    """Return the first entry behind `entry` with a record as the index has it, and 1; or the first one that cannot be, and 0.

    The record must be above the offset `floor`.
    """
    row = np.zeros(10, np.int64)
    before = big_endian(index, 1 + ENTRY_SIZE * entry, 8)
    for one in range(entry + 1, entries):
        at = 1 + ENTRY_SIZE * one
        offset, begin, length = big_endian(index, at, 8), big_endian(index, at + 8, 8), big_endian(index, at + 16, 8)
        if begin < 0 or offset <= before or length < _SMALLEST or length > len(source) - begin:
            return np.int64(one), np.int64(0)
        if offset > floor and _fill(source, begin, begin + length, row) == begin + length and row[0] == offset:
            return np.int64(one), np.int64(1)
        before = offset
    return np.int64(entries), np.int64(0)


@inner
def _put(target: Bytes, position: int, value: int, size: int) -> int:
    """Write an integer, big-endian. Returns the position after it."""
    for index in range(size):
        target[position + index] = np.uint8((value >> (8 * (size - 1 - index))) & 0xFF)
    return position + size


@inner
def _put_blob(target: Bytes, position: int, source: Bytes, start: int, length: int) -> int:
    """Write a key or value that the caller has checked. Returns the position after it."""
    position = _put(target, position, max(length, _NONE), 4)
    return copy_bytes(target, position, source, start, length) if length > 0 else position


@kernel(types.UniTuple(LONG, 3)(READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, LONG, LONG, BYTES, BYTES))
def write_stored(
    body: Bytes, header_body: Bytes, table: Longs, first: int, place: int, target: Bytes, index: Bytes
) -> tuple[int, int, int]:
    """Write records from row `first` on, as far as there is room, and their index entries; `place` is where they will be in their file.

    Returns (the next row, bytes written, or needed if not even one record fits, -1). The last number is the row of a record
    whose fields leave the buffers, if there is one.
    """
    used, entries = np.int64(0), np.int64(0)
    for one in range(first, table.shape[1]):
        row = table[:, one]
        key_length, value_length, count = max(row[4], 0), max(row[6], 0), row[9]
        is_inside = holds(len(body), row[3], row[4]) and holds(len(body), row[5], row[6])
        if not is_inside or not inside(row[7], row[8], len(header_body)) or count < 0 or count > row[8]:
            return np.int64(one), used, np.int64(one)
        size = _SMALLEST + 8 + key_length + value_length + row[8] + 8 * count
        if size > len(target) - used or (entries + 1) * ENTRY_SIZE > len(index):
            return np.int64(one), used if one > first else size, np.int64(-1)
        start, kind = used, row[2]
        if kind < 0 and row[1] != _NONE:  # a time of unknown type: the format has no such type
            kind = 0
        elif kind == 0 and row[1] == _NONE:
            kind = _NO_CREATE_TIME
        position = _put(target, _put(target, used, row[0], 8), kind, 4)
        if kind >= 0:
            position = _put(target, position, row[1], 8)
        position = _put_blob(target, position, body, row[3], row[4])
        position = _put_blob(target, position, body, row[5], row[6])
        position = _put(target, position, count, 4)
        at, end = row[7], row[7] + row[8]
        for _ in range(count):
            key_start, length, value_start, value_size, at = read_header(header_body, at, end)
            if at < 0:
                return np.int64(one), start, np.int64(one)
            position = _put_blob(target, position, header_body, key_start, length)
            position = _put_blob(target, position, header_body, value_start, value_size)
        used = position
        at = _put(index, entries * ENTRY_SIZE, row[0], 8)
        _put(index, _put(index, at, place + start, 8), used - start, 8)
        entries += 1
    return np.int64(table.shape[1]), used, np.int64(-1)
