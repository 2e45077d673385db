"""Kernels for message sets of Kafka 0.6 and 0.7, whose messages have neither offset nor key nor time."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.batches import big_endian
from archiver.codec.kernels.jit import BYTES, LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.messages import crc32
from archiver.codec.kernels.varint import MAX_VARINT_BYTES, copy_bytes, write_varint

CODEC_BITS = 0x03
_LENGTH = 4  # of the number before each message
_OVERHEAD = (5, 6)  # magic, attributes in magic 1, CRC; by magic
_UNKNOWN = -1  # the time, and its type
_MOST_CODEC = 2

# Columns of a table of messages in a file.
START, END, CODEC, PAYLOAD_START, BODY_START, BODY_END, COUNT, PROBLEM = range(8)

# Why a kernel stopped; the text of problems is in codec.foreign.messages_07.
ALL_READ, CUT, LENGTH_WRONG, MAGIC_UNKNOWN, CRC_WRONG, CODEC_UNKNOWN, NESTED, TABLE_FULL = range(8)

POSITION_NAME = np.frombuffer(b"kafka-0.7-position", np.uint8)
_MOST_DIGITS = 20
POSITION_BYTES = (
    len(POSITION_NAME) + 2 * MAX_VARINT_BYTES + _MOST_DIGITS
)  # the room that a header with a position needs


@inner
def _message(source: Bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """Return (end of the message, begin of its payload, codec, problem)."""
    nothing = np.int64(0)
    if end - position < _LENGTH:
        return nothing, nothing, nothing, np.int64(CUT)
    length = np.int64(np.int32(big_endian(source, position, _LENGTH)))
    if length < _OVERHEAD[0]:
        return nothing, nothing, nothing, np.int64(LENGTH_WRONG)
    if length > end - position - _LENGTH:
        return nothing, nothing, nothing, np.int64(CUT)
    after, magic = position + _LENGTH + length, np.int64(source[position + _LENGTH])
    if magic > 1:
        return after, nothing, nothing, np.int64(MAGIC_UNKNOWN)
    overhead = _OVERHEAD[1] if magic == 1 else _OVERHEAD[0]
    if length < overhead:
        return nothing, nothing, nothing, np.int64(LENGTH_WRONG)
    codec = np.int64(source[position + _LENGTH + 1] & CODEC_BITS) if magic == 1 else nothing
    return after, position + _LENGTH + overhead, codec, np.int64(ALL_READ)


@inner
def _is_crc_right(source: Bytes, payload_start: int, after: int) -> bool:
    return crc32(source, payload_start, after) == big_endian(source, payload_start - 4, 4)


@kernel(types.UniTuple(LONG, 3)(READ_ONLY_BYTES, LONG, TABLE))
def scan_messages(source: Bytes, start: int, messages: Longs) -> tuple[int, int, int]:
    """Describe the good messages from byte `start` on. Returns (messages, position behind them, why it stopped there)."""
    position, end = np.int64(start), np.int64(len(source))
    for index in range(messages.shape[1]):
        if position >= end:
            return np.int64(index), position, np.int64(ALL_READ)
        after, payload_start, codec, problem = _message(source, position, end)
        if problem == ALL_READ and not _is_crc_right(source, payload_start, after):
            problem = np.int64(CRC_WRONG)
        if problem == ALL_READ and codec > _MOST_CODEC:
            problem = np.int64(CODEC_UNKNOWN)
        if problem != ALL_READ:
            return np.int64(index), position, problem
        row = messages[:, index]
        row[START], row[END], row[CODEC], row[PAYLOAD_START] = position, after, codec, payload_start
        row[BODY_START], row[BODY_END], row[COUNT], row[PROBLEM] = position, after, 0, ALL_READ
        position = after
    return np.int64(messages.shape[1]), position, np.int64(TABLE_FULL)


@kernel(LONG(READ_ONLY_BYTES, LONG))
def end_of_broken(source: Bytes, position: int) -> int:
    """Return the end of a broken message if its length leads to a good one or to the end of the file; else the end of the file."""
    end = np.int64(len(source))
    if end - position < _LENGTH:
        return end
    length = np.int64(np.int32(big_endian(source, position, _LENGTH)))
    if length < _OVERHEAD[0] or length > end - position - _LENGTH:
        return end
    behind = position + _LENGTH + length
    if behind == end:
        return end
    after, payload_start, _, problem = _message(source, behind, end)
    return behind if problem == ALL_READ and _is_crc_right(source, payload_start, after) else end


@kernel(LONG(READ_ONLY_BYTES, TABLE, LONGS))
def count_messages(body: Bytes, messages: Longs, oddities: Longs) -> int:
    """Count the messages inside each message of the table, and note why one cannot be taken. Returns the sum.

    `oddities`: inner messages with a wrong CRC, and sets that end within a message.
    """
    total = np.int64(0)
    for index in range(messages.shape[1]):
        row = messages[:, index]
        if row[PROBLEM] != ALL_READ:
            continue
        if row[CODEC] == 0:
            row[COUNT] = 1
            total += 1
            continue
        position, end, count = row[BODY_START], row[BODY_END], np.int64(0)
        while position < end:
            after, payload_start, codec, problem = _message(body, position, end)
            if problem == CUT:
                oddities[1] += 1
                break
            if problem == ALL_READ and codec:
                problem = np.int64(NESTED)
            if problem != ALL_READ:
                row[PROBLEM] = problem
                break
            if not _is_crc_right(body, payload_start, after):
                oddities[0] += 1
            count += 1
            position = after
        row[COUNT] = count if row[PROBLEM] == ALL_READ else 0
        total += row[COUNT]
    return total


@inner
def _write_position(target: Bytes, used: int, position: int) -> int:
    used = write_varint(target, used, len(POSITION_NAME))
    used = copy_bytes(target, used, POSITION_NAME, 0, len(POSITION_NAME))
    digits, rest = np.int64(1), position // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    used = write_varint(target, used, digits)
    for index in range(digits):
        target[used + digits - 1 - index] = 0x30 + position % 10
        position //= 10
    return used + digits


@kernel(types.UniTuple(LONG, 2)(READ_ONLY_BYTES, TABLE, LONG, LONG, TABLE, BYTES, LONGS))
def index_messages(
    body: Bytes, messages: Longs, number: int, file_position: int, table: Longs, header_target: Bytes, state: Longs
) -> tuple[int, int]:
    """Fill the table with the next counted messages, numbered from `number` on, as far as it has room.

    With a header_target each record gets a header: the position in the log of its message, or of the compressed message around it.
    `state`, at first all zeros, is where to go on: message, and byte. Returns (rows, bytes of headers).
    """
    rows, used = np.int64(0), np.int64(0)
    keeps = len(header_target) > 0
    for index in range(state[0], messages.shape[1]):
        row = messages[:, index]
        position, end = (state[1] if state[1] > 0 else row[BODY_START]), row[BODY_END]
        state[0], state[1] = index, 0
        if row[PROBLEM] != ALL_READ:
            continue
        while position < end:
            if rows == table.shape[1] or (keeps and len(header_target) - used < POSITION_BYTES):
                state[1] = position
                return rows, used
            after, payload_start, _, problem = _message(body, position, end)
            if problem != ALL_READ:  # the set ends within a message
                break
            table[0, rows] = number + rows
            table[1, rows] = table[2, rows] = _UNKNOWN
            table[3, rows] = 0
            table[4, rows] = -1
            table[5, rows] = payload_start
            table[6, rows] = after - payload_start
            table[7, rows] = used
            if keeps:
                used = _write_position(header_target, used, file_position + row[START])
            table[8, rows] = used - table[7, rows]
            table[9, rows] = 1 if keeps else 0
            rows += 1
            position = after
    state[0] = messages.shape[1]
    return rows, used
