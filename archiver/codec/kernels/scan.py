"""Kernel that decodes Avro records into the buffers of Arrow arrays: chosen columns and rows, each byte copied once."""

import numpy as np
import numpy.typing as npt
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.avro_decode import (
    ALL_READ,
    BRANCH_UNKNOWN,
    FIELD_CUT,
    HEADER_NULL,
    LIST,
    NO_LIST,
    NO_UNION,
    NULL,
    PRESENT,
    TYPE_UNKNOWN,
    WRONG_TOPIC,
    read_bytes,
    read_count,
)
from archiver.codec.kernels.headers import is_utf8, readable_size, write_readable
from archiver.codec.kernels.jit import BYTES, LONG, LONGS, READ_ONLY_BYTES, inner, kernel
from archiver.codec.kernels.varint import copy_bytes, inside, read_varint

Ints = npt.NDArray[np.int32]
# The arrays of a binary column: the end of each value (behind a leading 0), 1 for non-null values, the bytes end to end.
Blob = tuple[Ints, Bytes, Bytes]

_INTS = types.Array(types.int32, 1, "C")
_BLOB = types.Tuple((_INTS, BYTES, BYTES))

# Reasons for the end besides those of codec.avro_decode.
OFFSETS_FALL, NO_ROOM = 100, 101
# The running totals of scan_rows, by index; they continue from one block to the next.
ROWS, HEADERS, COUNTED, LAST_OFFSET, KEY_BYTES, VALUE_BYTES, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, RAW_KEY_BYTES = (
    range(9)
)
TOTALS_SIZE = 9
# The selection, by index; the last is 1 when records without a timestamp are not selected.
FIRST_OFFSET, LAST_WANTED, FROM_MS, UNTIL_MS, HAS_TIMES = range(5)

_NO_TIMESTAMP = -1
_MOST_MS = 2**63 // 1000 - 1  # the most milliseconds that fit Spark's timestamp, which has microseconds


@inner
def _put(blob: Blob, row: int, used: int, body: Bytes, start: int, length: int) -> int:
    """Append a value, null below length 0. Returns the bytes used, or -1 without enough room."""
    ends, present, target = blob
    if length > len(target) - used or row >= len(present):
        return np.int64(-1)
    present[row] = length >= 0
    if length > 0:
        used = copy_bytes(target, used, body, start, length)
    ends[row + 1] = used
    return used


@inner
def _put_readable(blob: Blob, row: int, used: int, body: Bytes, start: int, length: int) -> int:
    ends, present, target = blob
    if readable_size(body, start, length) > len(target) - used or row >= len(present):
        return np.int64(-1)
    present[row] = 1
    used = write_readable(target, used, body, start, length)
    ends[row + 1] = used
    return used


@inner
def _put_header(
    keys: Blob,
    values: Blob,
    raw_keys: Blob,
    totals: Longs,
    body: Bytes,
    key_start: int,
    key_length: int,
    start: int,
    length: int,
    raw_start: int,
    raw_length: int,
) -> int:
    row = totals[HEADERS]
    if is_utf8(body, key_start, key_length):
        key_bytes = _put(keys, row, totals[HEADER_KEY_BYTES], body, key_start, key_length)
    else:
        key_bytes = _put_readable(keys, row, totals[HEADER_KEY_BYTES], body, key_start, key_length)
        if raw_length < 0:  # v1.0 has only `key`
            raw_start, raw_length = key_start, key_length
    value_bytes = _put(values, row, totals[HEADER_VALUE_BYTES], body, start, length)
    raw_bytes = _put(raw_keys, row, totals[RAW_KEY_BYTES], body, raw_start, raw_length)
    if key_bytes < 0 or value_bytes < 0 or raw_bytes < 0:
        return NO_ROOM
    totals[HEADERS] = row + 1
    totals[HEADER_KEY_BYTES] = key_bytes
    totals[HEADER_VALUE_BYTES] = value_bytes
    totals[RAW_KEY_BYTES] = raw_bytes
    return ALL_READ


@inner
def _scan_headers(
    body: Bytes,
    position: int,
    end: int,
    is_list: bool,
    wanted: bool,
    keys: Blob,
    values: Blob,
    raw_keys: Blob,
    totals: Longs,
) -> tuple[int, int]:
    """Read `headers`, or the list `orderedHeaders` if its branch is present. Returns (position after it, problem)."""
    value_null = HEADER_NULL if is_list else NO_UNION
    while True:
        count, position = read_count(body, position, end)
        if position < 0 or count > end - position:
            return position, FIELD_CUT
        if count == 0:
            return position, ALL_READ
        for _ in range(count):
            key_start, key_length, position, problem = read_bytes(body, position, end, NO_UNION)
            if problem != ALL_READ:
                return position, problem
            start, length, position, problem = read_bytes(body, position, end, value_null)
            if problem != ALL_READ:
                return position, problem
            raw_start, raw_length = np.int64(0), np.int64(-1)
            if is_list:
                raw_start, raw_length, position, problem = read_bytes(body, position, end, HEADER_NULL)
                if problem != ALL_READ:
                    return position, problem
            if wanted:
                problem = _put_header(
                    keys, values, raw_keys, totals, body, key_start, key_length, start, length, raw_start, raw_length
                )
                if problem != ALL_READ:
                    return position, problem


@inner
def _is_selected(offset: int, timestamp: int, selected: Longs) -> bool:
    return (
        selected[FIRST_OFFSET] <= offset <= selected[LAST_WANTED]
        and selected[FROM_MS] <= timestamp <= selected[UNTIL_MS]
        and (selected[HAS_TIMES] == 0 or timestamp != _NO_TIMESTAMP)
    )


@kernel(
    types.UniTuple(LONG, 2)(
        READ_ONLY_BYTES,
        LONG,
        LONG,
        LONG,
        types.boolean,
        types.boolean,
        READ_ONLY_BYTES,
        LONG,
        LONGS,
        LONG,
        LONGS,
        LONGS,
        LONGS,
        BYTES,
        _INTS,
        _BLOB,
        _BLOB,
        _INTS,
        _BLOB,
        _BLOB,
        _BLOB,
        LONGS,
    )
)
def scan_rows(
    body: Bytes,
    start: int,
    end: int,
    count: int,
    nullable_value: bool,
    second_version: bool,
    topic: Bytes,
    partition: int,
    selected: Longs,
    room: int,
    offsets: Longs,
    milliseconds: Longs,
    microseconds: Longs,
    has_moment: Bytes,
    kinds: Ints,
    keys: Blob,
    values: Blob,
    header_ends: Ints,
    header_keys: Blob,
    header_values: Blob,
    raw_keys: Blob,
    totals: Longs,
) -> tuple[int, int]:
    """Append the selected of the next `count` Avro records in body[start:end] to the columns whose arrays have room.

    A column with an empty array is skipped. Returns (begin of the next record, reason for
    the end); on anything but ALL_READ the arrays mean nothing, and totals[COUNTED] is the record that it ended at.
    """
    position = np.int64(start)
    value_null = NULL if nullable_value else NO_UNION
    wants_headers = len(header_ends) > 0
    if not inside(start, end - start, len(body)):
        return position, FIELD_CUT
    for _ in range(count):
        row = totals[ROWS]
        length, position = read_varint(body, position, end)
        if position < 0 or not inside(position, length, end):
            return position, FIELD_CUT
        if length != len(topic):
            return position, WRONG_TOPIC
        for index in range(length):
            if body[position + index] != topic[index]:
                return position, WRONG_TOPIC
        found, position = read_varint(body, position + length, end)
        if position < 0:
            return position, FIELD_CUT
        if found != partition:
            return position, WRONG_TOPIC
        offset, position = read_varint(body, position, end)
        if position < 0:
            return position, FIELD_CUT
        timestamp, position = read_varint(body, position, end)
        if position < 0:
            return position, FIELD_CUT
        if offset <= totals[LAST_OFFSET]:
            return position, OFFSETS_FALL
        totals[LAST_OFFSET] = offset
        wanted = _is_selected(offset, timestamp, selected)
        key_start, key_length, position, problem = read_bytes(body, position, end, NULL)
        if problem != ALL_READ:
            return position, problem
        value_start, value_length, position, problem = read_bytes(body, position, end, value_null)
        if problem != ALL_READ:
            return position, problem
        branch, position = read_varint(body, position, end)
        if position < 0:
            return position, FIELD_CUT
        map_start = position
        has_map = branch == PRESENT
        if has_map:
            position, problem = _scan_headers(
                body, position, end, False, False, header_keys, header_values, raw_keys, totals
            )
            if problem != ALL_READ:
                return position, problem
        elif branch != NULL:
            return position, BRANCH_UNKNOWN
        kind = np.int64(-1)
        if second_version:
            branch, position = read_varint(body, position, end)
            if position < 0:
                return position, FIELD_CUT
            if branch == LIST:
                has_map = False  # the list precedes the map
                position, problem = _scan_headers(
                    body, position, end, True, wanted and wants_headers, header_keys, header_values, raw_keys, totals
                )
                if problem != ALL_READ:
                    return position, problem
            elif branch != NO_LIST:
                return position, BRANCH_UNKNOWN
            kind, position = read_varint(body, position, end)
            if position < 0:
                return position, FIELD_CUT
            if kind < -1 or kind > 1:
                return position, TYPE_UNKNOWN
        if has_map and wanted and wants_headers:
            _, problem = _scan_headers(body, map_start, end, False, True, header_keys, header_values, raw_keys, totals)
            if problem != ALL_READ:
                return position, problem
        totals[COUNTED] += 1
        if not wanted:
            continue
        if row >= room:
            return position, NO_ROOM
        if len(offsets) > 0:
            offsets[row] = offset
        if len(milliseconds) > 0:
            milliseconds[row] = timestamp
        if len(microseconds) > 0:
            holds = timestamp != _NO_TIMESTAMP and -_MOST_MS <= timestamp <= _MOST_MS
            microseconds[row] = timestamp * 1000 if holds else 0
            has_moment[row] = holds
        if len(kinds) > 0:
            kinds[row] = kind
        if len(keys[1]) > 0:
            totals[KEY_BYTES] = _put(keys, row, totals[KEY_BYTES], body, key_start, key_length)
        if len(values[1]) > 0:
            totals[VALUE_BYTES] = _put(values, row, totals[VALUE_BYTES], body, value_start, value_length)
        if wants_headers:
            header_ends[row + 1] = totals[HEADERS]
        if totals[KEY_BYTES] < 0 or totals[VALUE_BYTES] < 0:
            return position, NO_ROOM
        totals[ROWS] = row + 1
    return position, ALL_READ
