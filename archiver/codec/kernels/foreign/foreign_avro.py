"""Kernels for other tools' Avro files: records of kafka-data-keep, header values in Java's serialization, comparison of records."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.avro_decode import ALL_READ, FIELD_CUT, WRONG_TOPIC, read_bytes, read_map_blocks
from archiver.codec.kernels.batches import big_endian
from archiver.codec.kernels.headers import read_header, write_header
from archiver.codec.kernels.jit import BYTES, LONG, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import BROKEN, holds, inside, read_varint, same_bytes

_NULL_FIRST = 0  # ["null", "bytes"]
_UNKNOWN = -1  # the type of the time
_MOST_COMPARED = 4096  # headers of a record: more are compared in their order only


@kernel(types.UniTuple(LONG, 4)(READ_ONLY_BYTES, LONG, LONG, READ_ONLY_BYTES, LONG, TABLE, BYTES))
def decode_keep_rows(
    body: Bytes, start: int, count: int, topic: Bytes, partition: int, table: Longs, header_target: Bytes
) -> tuple[int, int, int, int]:
    """Fill the table with the next `count` records of kafka-data-keep, from byte `start` on.

    Writes headers to header_target in Kafka's form. Returns (rows, begin of the next record, bytes of headers, end reason).
    """
    position = np.int64(start)
    end = np.int64(len(body))
    used = np.int64(0)
    if count < 0 or count > table.shape[1] or not inside(position, 0, end):
        return np.int64(0), position, used, FIELD_CUT
    for row in range(count):
        table[3, row], table[4, row], position, problem = read_bytes(body, position, end, _NULL_FIRST)
        if problem != ALL_READ:
            return row, position, used, problem
        table[5, row], table[6, row], position, problem = read_bytes(body, position, end, _NULL_FIRST)
        if problem != ALL_READ:
            return row, position, used, problem
        position, written, headers, problem = read_map_blocks(body, position, end, header_target, used)
        if problem != ALL_READ:
            return row, position, used, problem
        length, position = read_varint(body, position, end)
        if position < 0 or not inside(position, length, end):
            return row, position, used, FIELD_CUT
        if length != len(topic) or not same_bytes(body, position, topic, 0, length):
            return row, position, used, WRONG_TOPIC
        found, position = read_varint(body, position + length, end)
        if position < 0:
            return row, position, used, FIELD_CUT
        if found != partition:
            return row, position, used, WRONG_TOPIC
        table[1, row], position = read_varint(body, position, end)
        if position < 0:
            return row, position, used, FIELD_CUT
        table[0, row], position = read_varint(body, position, end)
        if position < 0:
            return row, position, used, FIELD_CUT
        table[2, row] = _UNKNOWN
        table[7, row] = used
        table[8, row] = written - used
        table[9, row] = headers
        used = written
    return count, position, used, ALL_READ


# Java's serialization: magic, version 5, and a byte[] or String alone.
_STREAM = np.frombuffer(bytes.fromhex("aced0005"), np.uint8)
_BYTE_ARRAY = np.frombuffer(bytes.fromhex("7572 0002 5b42 acf317f8060854e0 02 0000 78 70"), np.uint8)
_STRING, _LONG_STRING = 0x74, 0x7C


@inner
def _begins_with(source: Bytes, start: int, end: int, prefix: Bytes) -> bool:
    return end - start >= len(prefix) and same_bytes(source, start, prefix, 0, len(prefix))


@inner
def _trail(source: Bytes, position: int, end: int) -> int:
    """Return the low six bits of a byte that continues a character; -1 for any other byte."""
    if position >= end or source[position] & 0xC0 != 0x80:
        return np.int64(-1)
    return np.int64(source[position] & 0x3F)


@inner
def _unit(source: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a UTF-16 unit in Java's modified UTF-8. Returns (unit, position after it); a unit of -1: it is none."""
    broken = np.int64(-1)
    lead = np.int64(source[position])
    if 0 < lead < 0x80:
        return lead, position + 1
    low = _trail(source, position + 1, end)
    if low < 0 or lead < 0xC0 or lead >= 0xF0:
        return broken, position
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | low, position + 2
    last = _trail(source, position + 2, end)
    if last < 0:
        return broken, position
    return (lead & 0x0F) << 12 | low << 6 | last, position + 3


@inner
def _write_text(target: Bytes, used: int, source: Bytes, position: int, end: int) -> int:
    """Write a text of Java's modified UTF-8 as UTF-8, which is never longer; -1 if it is not well-formed."""
    broken = np.int64(-1)
    while position < end:
        unit, position = _unit(source, position, end)
        if unit < 0 or 0xDC00 <= unit < 0xE000:
            return broken
        if 0xD800 <= unit < 0xDC00:
            if position >= end:
                return broken
            second, position = _unit(source, position, end)
            if not 0xDC00 <= second < 0xE000:
                return broken
            unit = 0x10000 + ((unit & 0x3FF) << 10 | second & 0x3FF)
        if unit < 0x80:
            target[used] = unit
            used += 1
            continue
        if unit < 0x800:
            target[used] = 0xC0 | unit >> 6
            used += 1
        else:
            if unit < 0x10000:
                target[used] = 0xE0 | unit >> 12
                used += 1
            else:
                target[used] = 0xF0 | unit >> 18
                target[used + 1] = 0x80 | unit >> 12 & 0x3F
                used += 2
            target[used] = 0x80 | unit >> 6 & 0x3F
            used += 1
        target[used] = 0x80 | unit & 0x3F
        used += 1
    return used


@inner
def _unwrapped(source: Bytes, start: int, end: int, text: Bytes) -> tuple[int, int, bool]:
    """Return (start, length, whether it is in `text`) of what a serialized value holds; a start of -1: no byte[] or String."""
    broken = np.int64(-1)
    if not _begins_with(source, start, end, _STREAM):
        return broken, broken, False
    position = start + len(_STREAM)
    if _begins_with(source, position, end, _BYTE_ARRAY):
        position += len(_BYTE_ARRAY)
        if end - position < 4 or big_endian(source, position, 4) != end - position - 4:
            return broken, broken, False
        return position + 4, end - position - 4, False
    if position >= end:
        return broken, broken, False
    kind = source[position]
    size = 2 if kind == _STRING else 8
    position += 1
    if kind not in (_STRING, _LONG_STRING) or end - position < size:
        return broken, broken, False
    if big_endian(source, position, size) != end - position - size:
        return broken, broken, False
    length = _write_text(text, np.int64(0), source, position + size, end)
    return (broken, broken, True) if length < 0 else (np.int64(0), length, True)


@kernel(types.UniTuple(LONG, 2)(READ_ONLY_BYTES, TABLE, BYTES, BYTES))
def unwrap_headers(source: Bytes, table: Longs, target: Bytes, text: Bytes) -> tuple[int, int]:
    """Write the headers of all rows to the target, with serialized values unwrapped, and put the rows' ranges right.

    Target and `text`, a scratch buffer, have the size of the source. Returns (bytes used or BROKEN, values left as they are).
    """
    used, left = np.int64(0), np.int64(0)
    broken = np.int64(BROKEN)
    if len(target) < len(source) or len(text) < len(source):
        return broken, left
    for row in range(table.shape[1]):
        position, begin = table[7, row], used
        if not inside(position, table[8, row], len(source)):
            return broken, left
        end = position + table[8, row]
        for _ in range(table[9, row]):
            key_start, key_length, start, length, position = read_header(source, position, end)
            if position < 0:
                return broken, left
            inner_start, inner_length, is_text = (
                _unwrapped(source, start, start + length, text) if length >= 0 else (broken, broken, False)
            )
            if inner_start < 0:
                left += 1
                used = write_header(target, used, source, key_start, key_length, source, start, length)
            elif is_text:
                used = write_header(target, used, source, key_start, key_length, text, inner_start, inner_length)
            else:
                used = write_header(target, used, source, key_start, key_length, source, inner_start, inner_length)
        table[7, row] = begin
        table[8, row] = used - begin
    return used, left


@inner
def _has_header(
    source: Bytes, position: int, end: int, count: int, other: Bytes, parts: tuple[int, int, int, int]
) -> bool:
    for _ in range(count):
        key_start, key_length, start, length, position = read_header(source, position, end)
        if position < 0:
            return False
        if (key_length, length) != (parts[1], parts[3]):
            continue
        if same_bytes(source, key_start, other, parts[0], key_length) and same_bytes(
            source, start, other, parts[2], length
        ):
            return True
    return False


@inner
def _same_headers(one: Bytes, table: Longs, row: int, other: Bytes, other_table: Longs, other_row: int) -> bool:
    """Compare headers, in any order: a map has none."""
    start, length, count = table[7, row], table[8, row], table[9, row]
    other_start, other_length = other_table[7, other_row], other_table[8, other_row]
    if not inside(start, length, len(one)) or not inside(other_start, other_length, len(other)):
        return False
    if count != other_table[9, other_row] or length != other_length:
        return False
    if same_bytes(one, start, other, other_start, length):
        return True
    if count > _MOST_COMPARED:
        return False
    position, end = start, start + length
    for _ in range(count):
        key_start, key_length, value_start, value_length, position = read_header(one, position, end)
        parts = (key_start, key_length, value_start, value_length)
        if position < 0 or not _has_header(other, other_start, other_start + other_length, count, one, parts):
            return False
    return True


@kernel(LONG(READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, LONG, READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, LONG, LONG))
def count_same_rows(
    body: Bytes,
    headers: Bytes,
    table: Longs,
    row: int,
    other_body: Bytes,
    other_headers: Bytes,
    other_table: Longs,
    other_row: int,
    most: int,
) -> int:
    """Return how many rows of two frames, from these rows on, are the same records."""
    for count in range(most):
        mine, theirs = row + count, other_row + count
        if mine >= table.shape[1] or theirs >= other_table.shape[1]:
            return np.int64(count)
        for column in (0, 1, 2, 4, 6):
            if table[column, mine] != other_table[column, theirs]:
                return np.int64(count)
        for column in (3, 5):
            start, length = table[column, mine], table[column + 1, mine]
            other_start = other_table[column, theirs]
            if not holds(len(body), start, length) or not holds(len(other_body), other_start, length):
                return np.int64(count)
            if not same_bytes(body, start, other_body, other_start, length):
                return np.int64(count)
        if not _same_headers(headers, table, mine, other_headers, other_table, theirs):
            return np.int64(count)
    return np.int64(most)
