"""Kernel that decodes Avro records, v1.0 and v2.0, to a frame (docs/format.md §3)."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.headers import write_header
from archiver.codec.kernels.jit import BYTES, LONG, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import BROKEN, MAX_VARINT_BYTES, inside, read_varint

# Branches of the schema's unions.
PRESENT, NULL = 0, 1  # of key, value and headers
NO_LIST, LIST = 0, 1  # of orderedHeaders
HEADER_NULL = 0  # of a header's value and rawKey
NO_UNION = -1  # in v1.0, of a value that cannot be null

# Reasons for the end of decode_rows; the texts are in codec.avro.
ALL_READ, FIELD_CUT, BRANCH_UNKNOWN, WRONG_TOPIC, HEADER_ROOM, BYTES_LEFT, TYPE_UNKNOWN = range(7)


@inner
def read_bytes(body: Bytes, position: int, end: int, null_branch: int) -> tuple[int, int, int, int]:
    """Read bytes, or a union of bytes and null. Returns (start, length or -1, position after it, problem)."""
    if null_branch != NO_UNION:
        branch, position = read_varint(body, position, end)
        if position < 0:
            return np.int64(0), np.int64(0), np.int64(BROKEN), FIELD_CUT
        if branch == null_branch:
            return position, np.int64(-1), position, ALL_READ
        if branch != 1 - null_branch:
            return np.int64(0), np.int64(0), np.int64(BROKEN), BRANCH_UNKNOWN
    length, position = read_varint(body, position, end)
    if position < 0 or not inside(position, length, end):
        return np.int64(0), np.int64(0), np.int64(BROKEN), FIELD_CUT
    return position, length, position + length, ALL_READ


@inner
def read_count(body: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read the count of a block of a map or array; a negative one is followed by the block's size."""
    count, position = read_varint(body, position, end)
    if position < 0 or count >= 0:
        return count, position
    _, position = read_varint(body, position, end)
    # The smallest long has no positive counterpart, and no block holds that many.
    return max(-count, -(count + 1)), position


@inner
def _append_header(
    target: Bytes, used: int, body: Bytes, key_start: int, key_length: int, start: int, length: int
) -> int:
    if key_length + max(length, 0) + 2 * MAX_VARINT_BYTES > len(target) - used:
        return np.int64(BROKEN)
    return write_header(target, used, body, key_start, key_length, body, start, length)


@inner
def _read_map(body: Bytes, position: int, end: int, target: Bytes, used: int) -> tuple[int, int, int, int]:
    """Return (position, bytes used of the target, headers, problem)."""
    headers = np.int64(0)
    broken = np.int64(BROKEN)
    branch, position = read_varint(body, position, end)
    if position < 0:
        return broken, used, headers, FIELD_CUT
    if branch == NULL:
        return position, used, headers, ALL_READ
    if branch != PRESENT:
        return broken, used, headers, BRANCH_UNKNOWN
    return read_map_blocks(body, position, end, target, used)


@inner
def read_map_blocks(body: Bytes, position: int, end: int, target: Bytes, used: int) -> tuple[int, int, int, int]:
    """Read a map of bytes as headers. Returns (position, bytes used of the target, headers, problem)."""
    headers = np.int64(0)
    broken = np.int64(BROKEN)
    while True:
        count, position = read_count(body, position, end)
        if position < 0 or count > end - position:
            return broken, used, headers, FIELD_CUT
        if count == 0:
            return position, used, headers, ALL_READ
        for _ in range(count):
            key_length, key_start = read_varint(body, position, end)
            if key_start < 0 or not inside(key_start, key_length, end):
                return broken, used, headers, FIELD_CUT
            length, start = read_varint(body, key_start + key_length, end)
            if start < 0 or not inside(start, length, end):
                return broken, used, headers, FIELD_CUT
            used = _append_header(target, used, body, key_start, key_length, start, length)
            if used < 0:
                return broken, used, headers, HEADER_ROOM
            position = start + length
            headers += 1


@inner
def _read_list(body: Bytes, position: int, end: int, target: Bytes, used: int) -> tuple[int, int, int, int]:
    """Return (position, bytes used of the target, headers, problem)."""
    headers = np.int64(0)
    broken = np.int64(BROKEN)
    while True:
        count, position = read_count(body, position, end)
        if position < 0 or count > end - position:
            return broken, used, headers, FIELD_CUT
        if count == 0:
            return position, used, headers, ALL_READ
        for _ in range(count):
            key_length, key_start = read_varint(body, position, end)
            if key_start < 0 or not inside(key_start, key_length, end):
                return broken, used, headers, FIELD_CUT
            start, length, position, problem = read_bytes(body, key_start + key_length, end, HEADER_NULL)
            if problem != ALL_READ:
                return broken, used, headers, problem
            raw_start, raw_length, position, problem = read_bytes(body, position, end, HEADER_NULL)
            if problem != ALL_READ:
                return broken, used, headers, problem
            if raw_length >= 0:
                key_start = raw_start
                key_length = raw_length
            used = _append_header(target, used, body, key_start, key_length, start, length)
            if used < 0:
                return broken, used, headers, HEADER_ROOM
            headers += 1


@kernel(
    types.UniTuple(LONG, 4)(
        READ_ONLY_BYTES, LONG, LONG, types.boolean, types.boolean, READ_ONLY_BYTES, LONG, TABLE, BYTES
    )
)
def decode_rows(
    body: Bytes,
    start: int,
    count: int,
    nullable_value: bool,
    second_version: bool,
    topic: Bytes,
    partition: int,
    table: Longs,
    header_target: Bytes,
) -> tuple[int, int, int, int]:
    """Fill the table with the next `count` Avro records of the body, from byte `start` on.

    Writes headers to header_target in Kafka's form. Returns (rows, begin of the next record, bytes of headers, end reason).
    """
    position = np.int64(start)
    end = np.int64(len(body))
    used = np.int64(0)
    value_null = NULL if nullable_value else NO_UNION
    if count < 0 or count > table.shape[1] or not inside(position, 0, end):
        return np.int64(0), position, used, FIELD_CUT
    for row in range(count):
        length, position = read_varint(body, position, end)
        if position < 0 or not inside(position, length, end):
            return row, position, used, FIELD_CUT
        if length != len(topic):
            return row, position, used, WRONG_TOPIC
        for index in range(length):
            if body[position + index] != topic[index]:
                return row, position, used, WRONG_TOPIC
        found, position = read_varint(body, position + length, end)
        if position < 0:
            return row, position, used, FIELD_CUT
        if found != partition:
            return row, position, used, WRONG_TOPIC
        table[0, row], position = read_varint(body, position, end)
        if position < 0:
            return row, position, used, FIELD_CUT
        table[1, row], position = read_varint(body, position, end)
        if position < 0:
            return row, position, used, FIELD_CUT
        table[3, row], table[4, row], position, problem = read_bytes(body, position, end, NULL)
        if problem != ALL_READ:
            return row, position, used, problem
        table[5, row], table[6, row], position, problem = read_bytes(body, position, end, value_null)
        if problem != ALL_READ:
            return row, position, used, problem
        position, written, headers, problem = _read_map(body, position, end, header_target, used)
        if problem != ALL_READ:
            return row, position, used, problem
        table[2, row] = -1
        if second_version:
            branch, position = read_varint(body, position, end)
            if position < 0:
                return row, position, used, FIELD_CUT
            if branch == LIST:
                position, written, headers, problem = _read_list(body, position, end, header_target, used)
                if problem != ALL_READ:
                    return row, position, used, problem
            elif branch != NO_LIST:
                return row, position, used, BRANCH_UNKNOWN
            table[2, row], position = read_varint(body, position, end)
            if position < 0:
                return row, position, used, FIELD_CUT
            if table[2, row] < -1 or table[2, row] > 1:
                return row, position, used, TYPE_UNKNOWN
        table[7, row] = used
        table[8, row] = written - used
        table[9, row] = headers
        used = written
    return count, position, used, ALL_READ
