"""Kernel for records in segments of osodevops/kafka-backup: little-endian, each behind its length."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.headers import write_header
from archiver.codec.kernels.jit import BYTES, LONG, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import MAX_VARINT_BYTES, same_bytes

_MOST_OFFSET = 2**63 - 2
_SMALLEST = 26  # time, offset, length of key, length of value, count of headers
_UNKNOWN = -1  # the type of the time

# Why the kernel stopped; the text of problems is in codec.foreign.osodevops.
ALL_READ, CUT, TABLE_FULL, LENGTH_WRONG, FIELDS_BROKEN, OFFSET_ORDER, HEADER_ROOM = range(7)

# What a backup appends to the headers of each record, in this order.
_OFFSET_NAME = np.frombuffer(b"x-original-offset", np.uint8)
_TIME_NAME = np.frombuffer(b"x-original-timestamp", np.uint8)
_CLUSTER_NAME = np.frombuffer(b"x-source-cluster", np.uint8)


@inner
def little_endian(source: Bytes, start: int, count: int) -> int:
    """Return a number without sign of up to eight bytes; eight bytes give a signed one."""
    value = np.uint64(0)
    for index in range(count):
        value |= np.uint64(source[start + index]) << np.uint64(8 * index)
    return np.int64(value)


@inner
def _signed_int(source: Bytes, start: int) -> int:
    return np.int64(np.int32(np.uint32(little_endian(source, start, 4))))


@inner
def _is_named(source: Bytes, start: int, length: int, name: Bytes) -> bool:
    return length == len(name) and same_bytes(source, start, name, 0, length)


@inner
def _header_at(source: Bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """Return (key start, key length, value start, value length or -1); a key start of -1: it does not fit."""
    broken = np.int64(-1)
    if end - position < 2:
        return broken, broken, broken, broken
    key_length = little_endian(source, position, 2)
    key_start = position + 2
    if key_length > end - key_start - 4:
        return broken, broken, broken, broken
    value_length = _signed_int(source, key_start + key_length)
    value_start = key_start + key_length + 4
    if value_length < -1 or value_length > end - value_start:
        return broken, broken, broken, broken
    return key_start, key_length, value_start, value_length


@inner
def _is_long(source: Bytes, start: int, length: int, value: int) -> bool:
    return length == 8 and little_endian(source, start, 8) == value


@inner
def _own_headers(source: Bytes, position: int, end: int, count: int, offset: int, time: int) -> tuple[int, int]:
    """Check all headers of a record. Returns (how many are its own, end of the headers or -1).

    The last ones are the backup's if they have its names and order, and this record's offset and time.
    """
    broken = np.int64(-1)
    matched = np.int64(0)  # headers at the end that look like the backup's so far
    for _ in range(count):
        key_start, key_length, start, length = _header_at(source, position, end)
        if key_start < 0:
            return broken, broken
        if _is_named(source, key_start, key_length, _OFFSET_NAME) and _is_long(source, start, length, offset):
            matched = np.int64(1)
        elif (
            matched == 1
            and _is_named(source, key_start, key_length, _TIME_NAME)
            and _is_long(source, start, length, time)
        ):
            matched = np.int64(2)
        elif matched == 2 and _is_named(source, key_start, key_length, _CLUSTER_NAME):
            matched = np.int64(3)
        else:
            matched = np.int64(0)
        position = start + max(length, 0)
    return count - (matched if matched >= 2 else 0), position


@kernel(types.UniTuple(LONG, 5)(READ_ONLY_BYTES, LONG, LONG, TABLE, BYTES))
def index_records(
    body: Bytes, start: int, previous: int, table: Longs, header_target: Bytes
) -> tuple[int, int, int, int, int]:
    """Fill the table with the whole records from byte `start` on. Headers go to header_target in Kafka's form.

    Returns (rows, begin of the next record, bytes of headers, why it stopped, bytes that the next record needs).
    """
    rows = np.int64(0)
    position = np.int64(start)
    used = np.int64(0)
    end = np.int64(len(body))
    nothing = np.int64(0)
    while position < end:
        if rows == table.shape[1]:
            return rows, position, used, np.int64(TABLE_FULL), nothing
        if end - position < 4:
            return rows, position, used, np.int64(CUT), np.int64(4)
        length = little_endian(body, position, 4)
        if length < _SMALLEST:
            return rows, position, used, np.int64(LENGTH_WRONG), nothing
        if length > end - position - 4:
            return rows, position, used, np.int64(CUT), 4 + length
        after = position + 4 + length
        time = little_endian(body, position + 4, 8)
        offset = little_endian(body, position + 12, 8)
        if offset <= previous or offset > _MOST_OFFSET:
            return rows, position, used, np.int64(OFFSET_ORDER), nothing
        key_length = _signed_int(body, position + 20)
        key_start = position + 24
        if key_length < -1 or max(key_length, 0) > after - key_start - 6:
            return rows, position, used, np.int64(FIELDS_BROKEN), nothing
        value_size_at = key_start + max(key_length, 0)
        value_length = _signed_int(body, value_size_at)
        value_start = value_size_at + 4
        if value_length < -1 or max(value_length, 0) > after - value_start - 2:
            return rows, position, used, np.int64(FIELDS_BROKEN), nothing
        count_at = value_start + max(value_length, 0)
        count = little_endian(body, count_at, 2)
        own, headers_end = _own_headers(body, count_at + 2, after, count, offset, time)
        if headers_end != after:
            return rows, position, used, np.int64(FIELDS_BROKEN), nothing
        if after - count_at + 2 * MAX_VARINT_BYTES * (own + 1) > len(header_target) - used:
            return rows, position, used, np.int64(HEADER_ROOM), nothing
        header_start, at = used, count_at + 2
        for _ in range(own):
            name_start, name_length, content_start, content_length = _header_at(body, at, after)
            used = write_header(header_target, used, body, name_start, name_length, body, content_start, content_length)
            at = content_start + max(content_length, 0)
        previous = offset
        table[0, rows] = offset
        table[1, rows] = time
        table[2, rows] = _UNKNOWN
        table[3, rows] = key_start
        table[4, rows] = key_length
        table[5, rows] = value_start
        table[6, rows] = value_length
        table[7, rows] = header_start
        table[8, rows] = used - header_start
        table[9, rows] = own
        rows += 1
        position = after
    return rows, position, used, np.int64(ALL_READ), nothing
