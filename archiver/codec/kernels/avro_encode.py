"""Kernel that encodes a frame as AvroKafkaRecord v2.0 (docs/format.md §3.1)."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.headers import (
    READABLE_TIMES,
    index_headers,
    is_utf8,
    keys_are_unique,
    read_header,
    readable_size,
    skip_headers,
    write_readable,
)
from archiver.codec.kernels.jit import BYTES, LONG, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import BROKEN, MAX_VARINT_BYTES, copy_bytes, holds, inside, write_varint

# Branches of the schema's unions.
PRESENT, NULL = 0, 1  # of key, value and headers
NO_LIST, LIST = 0, 1  # of orderedHeaders
HEADER_NULL, HEADER_BYTES = 0, 1  # of a header's value and rawKey

# Reasons for the end of encode_rows.
ALL_WRITTEN, BLOCK_FULL, NEEDS_ROOM, NEEDS_PIECES, ROW_OUTSIDE, HEADERS_BROKEN = range(6)

# Headers of a record that is written at once: their positions take half a megabyte, and a table of their keys as much.
MOST_HEADERS = 16 * 1024
_CHUNK = 1024  # headers whose positions are kept at once, where a record is written in pieces


@inner
def _write_nullable(target: Bytes, used: int, source: Bytes, start: int, length: int) -> int:
    if length < 0:
        target[used] = NULL << 1
        return used + 1
    target[used] = PRESENT << 1
    used = write_varint(target, used + 1, length)
    return copy_bytes(target, used, source, start, length)


@inner
def _write_map(target: Bytes, used: int, source: Bytes, parts: Longs, count: int) -> int:
    for index in range(count):
        used = write_varint(target, used, parts[1, index])
        used = copy_bytes(target, used, source, parts[0, index], parts[1, index])
        used = write_varint(target, used, parts[3, index])
        used = copy_bytes(target, used, source, parts[2, index], parts[3, index])
    return used


@inner
def _write_list(target: Bytes, used: int, source: Bytes, parts: Longs, count: int) -> int:
    for index in range(count):
        key_start = parts[0, index]
        key_length = parts[1, index]
        readable = is_utf8(source, key_start, key_length)
        if readable:
            used = write_varint(target, used, key_length)
            used = copy_bytes(target, used, source, key_start, key_length)
        else:
            used = write_varint(target, used, readable_size(source, key_start, key_length))
            used = write_readable(target, used, source, key_start, key_length)
        if parts[3, index] < 0:
            target[used] = HEADER_NULL << 1
            used += 1
        else:
            target[used] = HEADER_BYTES << 1
            used = write_varint(target, used + 1, parts[3, index])
            used = copy_bytes(target, used, source, parts[2, index], parts[3, index])
        if readable:
            target[used] = HEADER_NULL << 1
            used += 1
        else:
            target[used] = HEADER_BYTES << 1
            used = write_varint(target, used + 1, key_length)
            used = copy_bytes(target, used, source, key_start, key_length)
    return used


@inner
def _write_headers(target: Bytes, used: int, source: Bytes, start: int, length: int, count: int) -> int:
    parts = np.empty((4, count), dtype=np.int64)
    if index_headers(source, start, start + length, count, parts) < 0:
        return np.int64(BROKEN)
    all_utf8 = True
    no_null = True
    for index in range(count):
        all_utf8 = all_utf8 and is_utf8(source, parts[0, index], parts[1, index])
        no_null = no_null and parts[3, index] >= 0
    if all_utf8 and no_null and keys_are_unique(source, parts, count):
        target[used] = PRESENT << 1
        used = write_varint(target, used + 1, count)
        used = _write_map(target, used, source, parts, count)
        target[used] = 0
    else:
        target[used] = NULL << 1
    used += 1
    if count == 1 and all_utf8 and no_null:
        target[used] = NO_LIST << 1
        return used + 1
    target[used] = LIST << 1
    used = write_varint(target, used + 1, count)
    used = _write_list(target, used, source, parts, count)
    target[used] = 0
    return used + 1


@kernel(
    types.UniTuple(LONG, 4)(READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, LONG, LONG, READ_ONLY_BYTES, BYTES, LONG, LONG)
)
def encode_rows(
    body: Bytes,
    header_body: Bytes,
    table: Longs,
    start: int,
    stop: int,
    prefix: Bytes,
    target: Bytes,
    used: int,
    block_size: int,
) -> tuple[int, int, int, int]:
    """Append rows to target[used:] as AvroKafkaRecord v2.0, each led by `prefix` (topic and partition, encoded).

    Ends after the row that reaches block_size. Returns (next row, bytes used, room for one more row, reason for the end).
    """
    if start < 0 or stop > table.shape[1]:
        return start, used, np.int64(0), ROW_OUTSIDE
    for row in range(start, stop):
        if used >= block_size:
            return row, used, np.int64(0), BLOCK_FULL
        key_length = table[4, row]
        value_length = table[6, row]
        header_length = table[8, row]
        count = table[9, row]
        if (
            not holds(len(body), table[3, row], key_length)
            or not holds(len(body), table[5, row], value_length)
            or not inside(table[7, row], header_length, len(header_body))
            or count < 0
            or count > header_length // 2
            or (count == 0 and header_length > 0)
        ):
            return row, used, np.int64(0), ROW_OUTSIDE
        if count > MOST_HEADERS:
            return row, used, np.int64(0), NEEDS_PIECES
        # Headers: once in the map; in the list once, once raw, and three bytes for each byte that is not ASCII. A length
        # inside a buffer takes five bytes, so that four numbers and three branches of a header stay below 40.
        most = (
            len(prefix)
            + max(key_length, 0)
            + max(value_length, 0)
            + 5 * header_length
            + count * 4 * MAX_VARINT_BYTES
            + 12 * MAX_VARINT_BYTES
        )
        if most > len(target) - used:
            return row, used, most, NEEDS_ROOM
        used = copy_bytes(target, used, prefix, 0, len(prefix))
        used = write_varint(target, used, table[0, row])
        used = write_varint(target, used, table[1, row])
        used = _write_nullable(target, used, body, table[3, row], key_length)
        used = _write_nullable(target, used, body, table[5, row], value_length)
        if count == 0:
            target[used] = NULL << 1
            target[used + 1] = NO_LIST << 1
            used += 2
        else:
            used = _write_headers(target, used, header_body, table[7, row], header_length, count)
            if used < 0:
                return row, used, np.int64(0), HEADERS_BROKEN
        used = write_varint(target, used, table[2, row])
    return stop, used, np.int64(0), ALL_WRITTEN


# Forms of headers.
AS_LIST, AS_MAP, AS_BOTH = 0, 1, 2


@kernel(LONG(READ_ONLY_BYTES, LONG, LONG, LONG))
def survey_headers(source: Bytes, start: int, length: int, count: int) -> int:
    """Return the form of a row's headers, as in encode_rows; more than MOST_HEADERS become a list. BROKEN for broken headers."""
    end = start + length
    if not inside(start, length, len(source)):
        return np.int64(BROKEN)
    if count > MOST_HEADERS:
        return np.int64(AS_LIST if skip_headers(source, start, end, count) == end else BROKEN)
    parts = np.empty((4, count), dtype=np.int64)
    if index_headers(source, start, end, count, parts) < 0:
        return np.int64(BROKEN)
    for index in range(count):
        if parts[3, index] < 0 or not is_utf8(source, parts[0, index], parts[1, index]):
            return np.int64(AS_LIST)
    if not keys_are_unique(source, parts, count):
        return np.int64(AS_LIST)
    return np.int64(AS_MAP if count == 1 else AS_BOTH)


@kernel(types.UniTuple(LONG, 3)(READ_ONLY_BYTES, LONG, LONG, LONG, types.boolean, BYTES))
def spell_headers(
    source: Bytes, position: int, end: int, count: int, is_list: bool, target: Bytes
) -> tuple[int, int, int]:
    """Write the next of `count` headers, as members of the list or of the map, as long as they surely fit.

    Returns (how many, the position after them, bytes used).
    """
    parts = np.empty((4, min(count, _CHUNK)), dtype=np.int64)
    taken = np.int64(0)
    room = np.int64(len(target))
    while taken < parts.shape[1]:
        parts[0, taken], parts[1, taken], parts[2, taken], parts[3, taken], after = read_header(source, position, end)
        room -= (1 + READABLE_TIMES) * parts[1, taken] + max(parts[3, taken], 0) + 4 * MAX_VARINT_BYTES
        if after < 0 or room < 0:
            break
        position = after
        taken += 1
    if is_list:
        return taken, position, _write_list(target, np.int64(0), source, parts, taken)
    return taken, position, _write_map(target, np.int64(0), source, parts, taken)


@kernel(LONG(READ_ONLY_BYTES, LONG, LONG))
def key_size(source: Bytes, start: int, length: int) -> int:
    """Return the size of the reading aid of a header's key; -1: none is needed, it is UTF-8."""
    return np.int64(-1) if is_utf8(source, start, length) else readable_size(source, start, length)


@kernel(LONG(READ_ONLY_BYTES, LONG, LONG, BYTES))
def spell_key(source: Bytes, start: int, length: int, target: Bytes) -> int:
    """Write the reading aid of a part of a key; the target has READABLE_TIMES the room. Returns the bytes used."""
    return write_readable(target, np.int64(0), source, start, length)
