"""Kernels for message sets v0 and v1, the formats before Kafka 0.11: check messages, and index the records inside them."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.batches import (
    ATTRIBUTES,
    BASE_OFFSET,
    COUNT,
    CRC,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    PAYLOAD_END,
    PAYLOAD_START,
    SIZE,
    START,
    big_endian,
)
from archiver.codec.kernels.jit import LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel

CODEC_BITS = 0x07
_CRC_POLYNOMIAL = 0xEDB88320
_CRC_START = LOG_OVERHEAD + 4  # the CRC covers everything behind itself: magic, attributes, time, key, value
_SMALLEST = (LOG_OVERHEAD + 14, LOG_OVERHEAD + 22)  # a message without key and value, by magic
_MOST_OFFSET = 2**63 - 2
_NO_TIME = -1  # the time, and the type of the time, of a message v0

# Reasons for a refusal; the text is in codec.message_sets.
OK, CRC_WRONG, MESSAGE_CUT, FIELDS_BROKEN, OFFSET_ORDER, OTHER_MAGIC, NESTED, NO_PAYLOAD, BASE_BELOW_ZERO = range(9)


def _crc_tables() -> Longs:
    """Return the tables of CRC-32 (IEEE) for eight bytes at once."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_CRC_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for table in range(1, 8):
        before = tables[table - 1]
        tables[table] = tables[0][before & 0xFF] ^ (before >> 8)
    return tables


_TABLES = _crc_tables()


@inner
def crc32(source: Bytes, start: int, end: int) -> int:
    """Return the CRC-32 (IEEE) of a range that the caller has checked."""
    crc = np.uint32(0xFFFFFFFF)
    position = np.uint64(start)
    while end - np.int64(position) >= 8:
        low = crc ^ (
            np.uint32(source[position])
            | np.uint32(source[position + 1]) << np.uint32(8)
            | np.uint32(source[position + 2]) << np.uint32(16)
            | np.uint32(source[position + 3]) << np.uint32(24)
        )
        crc = (
            _TABLES[7, low & np.uint32(0xFF)]
            ^ _TABLES[6, low >> np.uint32(8) & np.uint32(0xFF)]
            ^ _TABLES[5, low >> np.uint32(16) & np.uint32(0xFF)]
            ^ _TABLES[4, low >> np.uint32(24)]
            ^ _TABLES[3, source[position + 4]]
            ^ _TABLES[2, source[position + 5]]
            ^ _TABLES[1, source[position + 6]]
            ^ _TABLES[0, source[position + 7]]
        )
        position += np.uint64(8)
    while np.int64(position) < end:
        crc = _TABLES[0, (crc ^ source[position]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        position += np.uint64(1)
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@inner
def _signed_int(source: Bytes, position: int) -> int:
    return np.int64(np.int32(big_endian(source, position, 4)))


@inner
def _fields(source: Bytes, start: int, end: int) -> tuple[int, int, int, int, int]:
    """Return (key start, key length, value start, value length, problem) of a message in a checked range."""
    magic = np.int64(source[start + LOG_OVERHEAD + 4])
    key_size_at = start + LOG_OVERHEAD + (14 if magic == 1 else 6)
    nothing = np.int64(0)
    if end - key_size_at < 8:
        return nothing, nothing, nothing, nothing, np.int64(FIELDS_BROKEN)
    key_length = _signed_int(source, key_size_at)
    key_start = key_size_at + 4
    if key_length < -1 or max(key_length, 0) > end - key_start - 4:
        return nothing, nothing, nothing, nothing, np.int64(FIELDS_BROKEN)
    value_size_at = key_start + max(key_length, 0)
    value_length = _signed_int(source, value_size_at)
    value_start = value_size_at + 4
    if value_length < -1 or max(value_length, 0) != end - value_start:
        return nothing, nothing, nothing, nothing, np.int64(FIELDS_BROKEN)
    return key_start, key_length, value_start, value_length, np.int64(OK)


@kernel(types.UniTuple(LONG, 2)(READ_ONLY_BYTES, TABLE))
def check_messages(source: Bytes, messages: Longs) -> tuple[int, int]:
    """Check the outer messages of a fetch, and complete their rows of the batch table.

    The payload of a compressed message is its value, and COUNT is 0; that of any other is the whole message, and COUNT is 1.
    Returns (good messages, problem of the next one).
    """
    previous = np.int64(-1)
    for index in range(messages.shape[1]):
        row = messages[:, index]
        start, end, magic = row[START], row[START] + row[SIZE], row[MAGIC]
        if row[SIZE] < (_SMALLEST[1] if magic == 1 else _SMALLEST[0]):
            return np.int64(index), np.int64(MESSAGE_CUT)
        row[CRC] = big_endian(source, start + LOG_OVERHEAD, 4)
        if crc32(source, start + _CRC_START, end) != row[CRC]:
            return np.int64(index), np.int64(CRC_WRONG)
        _, _, value_start, value_length, problem = _fields(source, start, end)
        if problem != OK:
            return np.int64(index), problem
        if not previous < row[BASE_OFFSET] <= _MOST_OFFSET:
            return np.int64(index), np.int64(OFFSET_ORDER)
        previous = row[BASE_OFFSET]
        row[ATTRIBUTES] = source[start + LOG_OVERHEAD + 5]
        row[MAX_TIMESTAMP] = big_endian(source, start + LOG_OVERHEAD + 6, 8) if magic == 1 else _NO_TIME
        if row[ATTRIBUTES] & CODEC_BITS:
            if value_length < 0:
                return np.int64(index), np.int64(NO_PAYLOAD)
            row[PAYLOAD_START], row[PAYLOAD_END], row[COUNT] = value_start, value_start + value_length, 0
        else:
            row[PAYLOAD_START], row[PAYLOAD_END], row[COUNT] = start, end, 1
    return np.int64(messages.shape[1]), np.int64(OK)


@inner
def _message_end(body: Bytes, position: int, end: int) -> int:
    """Return the end of the inner message at a position; -1 if the set ends before it."""
    if end - position < LOG_OVERHEAD:
        return np.int64(-1)
    length = _signed_int(body, position + 8)
    if length < 0 or length > end - position - LOG_OVERHEAD:
        return np.int64(-1)
    return position + LOG_OVERHEAD + length


@inner
def _base_of(body: Bytes, start: int, end: int, wrapper_offset: int) -> int:
    """Return the offset that inner offsets of a set v1 are relative to; below 0 if they do not fit the wrapper's."""
    last = np.int64(0)
    position = start
    while True:
        after = _message_end(body, position, end)
        if after < 0:
            break
        last = big_endian(body, position, 8)
        position = after
    if wrapper_offset == 0:  # some producers left it so
        return np.int64(0)
    return wrapper_offset - last if last >= 0 else np.int64(-1)


# State of index_messages between calls: the outer message, where its next inner message begins (0: at its start), the lowest
# offset that it may have, and the base of its relative offsets. Behind it: inner messages with a wrong CRC, and sets that end early.
INDEX_STATE_SIZE = 6
WRONG_INSIDE, CUT_SETS = 4, 5


@kernel(types.UniTuple(LONG, 3)(READ_ONLY_BYTES, TABLE, LONG, TABLE, LONGS))
def index_messages(body: Bytes, messages: Longs, min_offset: int, table: Longs, state: Longs) -> tuple[int, int, int]:
    """Fill the table with the next records at or above min_offset, as far as it has room; without columns it counts and checks them.

    Returns (records, problem, message with the problem). The state, at first all zeros, shows whether more records follow.
    """
    rows = np.int64(0)
    counts_only = table.shape[1] == 0
    room = np.int64(table.shape[1])
    first, resumed, previous, base = state[0], state[1], state[2] - 1, state[3]
    for message in range(first, messages.shape[1]):
        row = messages[:, message]
        is_set = row[COUNT] == 0
        magic, offset = row[MAGIC], row[BASE_OFFSET]
        start, end = row[PAYLOAD_START], row[PAYLOAD_END]
        if start < 0 or end < start or end > len(body):
            return rows, MESSAGE_CUT, message
        if resumed > 0:
            position = resumed
        else:
            position = start
            base = _base_of(body, start, end, offset) if is_set and magic == 1 else np.int64(0)
            if base < 0:
                return rows, BASE_BELOW_ZERO, message
        while position < end:
            if rows >= room and not counts_only:
                state[0], state[1], state[2], state[3] = message, position, previous + 1, base
                return rows, OK, np.int64(-1)
            after = _message_end(body, position, end)
            if after < 0:
                if counts_only:
                    state[CUT_SETS] += 1
                break
            if after - position < _SMALLEST[0]:
                return rows, MESSAGE_CUT, message
            if is_set:
                if body[position + LOG_OVERHEAD + 4] != magic:
                    return rows, OTHER_MAGIC, message
                if body[position + LOG_OVERHEAD + 5] & CODEC_BITS:
                    return rows, NESTED, message
                offset = big_endian(body, position, 8) + base
            if magic == 1 and after - position < _SMALLEST[1]:
                return rows, MESSAGE_CUT, message
            key_start, key_length, value_start, value_length, problem = _fields(body, position, after)
            if problem != OK:
                return rows, problem, message
            if offset <= previous or offset > (_MOST_OFFSET if row[BASE_OFFSET] == 0 else row[BASE_OFFSET]):
                return rows, OFFSET_ORDER, message
            previous = offset
            if counts_only and is_set:
                row[LAST_OFFSET] = max(row[LAST_OFFSET], offset)
                if crc32(body, position + _CRC_START, after) != big_endian(body, position + LOG_OVERHEAD, 4):
                    state[WRONG_INSIDE] += 1
            if offset >= min_offset:
                if not counts_only:
                    table[0, rows] = offset
                    if magic == 0:
                        table[1, rows] = table[2, rows] = _NO_TIME
                    elif row[ATTRIBUTES] & LOG_APPEND_TIME_BIT:
                        table[1, rows] = row[MAX_TIMESTAMP]
                        table[2, rows] = 1
                    else:
                        table[1, rows] = big_endian(body, position + LOG_OVERHEAD + 6, 8)
                        table[2, rows] = 0
                    table[3, rows] = key_start
                    table[4, rows] = key_length
                    table[5, rows] = value_start
                    table[6, rows] = value_length
                    table[7, rows] = table[8, rows] = table[9, rows] = 0
                rows += 1
            position = after
        resumed = np.int64(0)
    state[0] = messages.shape[1]
    return rows, OK, np.int64(-1)
