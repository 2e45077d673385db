"""Kernels for record batches v2: scan batch headers, index and encode records; owns the batch table's columns."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.headers import skip_headers
from archiver.codec.kernels.jit import BYTES, LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import copy_bytes, holds, inside, read_varint, varint_size, write_varint

# Columns of the batch table, which describes the batches of one fetch.
(
    START,  # of the batch in the fetched bytes
    SIZE,  # of the whole batch
    BASE_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    COUNT,
    PAYLOAD_START,  # begin of the records in the body; filled after decompression
    PAYLOAD_END,
) = range(14)
BATCH_COLUMNS = 14

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length come before the bytes that the length counts
CRC_END = 21  # the CRC covers everything after it
LOG_APPEND_TIME_BIT = 0x08
SMALLEST_RECORD = 7  # seven fields of one byte each

# Reasons for a refusal of index_records; the text is in codec.batch.
OK, RECORD_CUT, RECORD_LENGTH, HEADER_BROKEN, OFFSET_ORDER, PAYLOAD_REST, BATCH_OUTSIDE = range(7)


@inner
def big_endian(source: Bytes, position: int, size: int) -> int:
    value = np.int64(0)
    for index in range(size):
        value = (value << 8) | np.int64(source[position + index])
    return value


@kernel(types.UniTuple(LONG, 2)(READ_ONLY_BYTES, TABLE))
def scan_batches(source: Bytes, batches: Longs) -> tuple[int, int]:
    """Describe each whole batch, without trusting it. Returns (batches, bytes that they take).

    Stops before a batch that is cut (a fetch may end inside one), has an impossible length, or when the table is full.
    Of a batch with another magic only the first fields are known: it counts as one offset without a record.
    """
    position = np.int64(0)
    found = np.int64(0)
    end = np.int64(len(source))
    while found < batches.shape[1] and end - position >= LOG_OVERHEAD + 5:
        length = big_endian(source, position + 8, 4)
        if length > 0x7FFF_FFFF or length < 5 or length > end - position - LOG_OVERHEAD:
            break
        row = batches[:, found]
        row[START] = position
        row[SIZE] = length + LOG_OVERHEAD
        row[BASE_OFFSET] = big_endian(source, position, 8)
        row[MAGIC] = source[position + 16]
        if row[MAGIC] == 2:
            if row[SIZE] < HEADER_SIZE:
                break
            row[LEADER_EPOCH] = np.int64(np.int32(big_endian(source, position + 12, 4)))
            row[CRC] = big_endian(source, position + 17, 4)
            row[ATTRIBUTES] = big_endian(source, position + 21, 2)
            row[LAST_OFFSET] = row[BASE_OFFSET] + np.int64(np.int32(big_endian(source, position + 23, 4)))
            row[BASE_TIMESTAMP] = big_endian(source, position + 27, 8)
            row[MAX_TIMESTAMP] = big_endian(source, position + 35, 8)
            row[PRODUCER_ID] = big_endian(source, position + 43, 8)
            row[COUNT] = np.int64(np.int32(big_endian(source, position + 57, 4)))
        else:
            row[LEADER_EPOCH] = row[PRODUCER_ID] = -1
            row[CRC] = row[ATTRIBUTES] = row[BASE_TIMESTAMP] = row[MAX_TIMESTAMP] = row[COUNT] = 0
            row[LAST_OFFSET] = row[BASE_OFFSET]
        row[PAYLOAD_START] = row[PAYLOAD_END] = 0
        position += row[SIZE]
        found += 1
    return found, position


# State of index_records between calls: the batch, how many of its records are done, where the next record
# begins, and the lowest offset that it may have.
INDEX_STATE_SIZE = 4


@kernel(types.UniTuple(LONG, 3)(READ_ONLY_BYTES, TABLE, LONG, TABLE, LONGS))
def index_records(body: Bytes, batches: Longs, min_offset: int, table: Longs, state: Longs) -> tuple[int, int, int]:
    """Fill the table with the next records at or above min_offset, as far as it has room.

    Returns (records, problem, batch with the problem). The state, at first all zeros, shows whether more records follow.
    """
    rows = np.int64(0)
    room = np.int64(table.shape[1])
    first, done, resumed, previous = state[0], state[1], state[2], state[3] - 1
    for batch in range(first, batches.shape[1]):
        position = resumed if done > 0 else batches[PAYLOAD_START, batch]
        end = batches[PAYLOAD_END, batch]
        append_time = batches[ATTRIBUTES, batch] & LOG_APPEND_TIME_BIT
        count = batches[COUNT, batch]
        if not inside(position, end - position, len(body)) or count < 0:
            return rows, BATCH_OUTSIDE, batch
        for record in range(done, count):
            if rows >= room:
                state[0], state[1], state[2], state[3] = batch, record, position, previous + 1
                return rows, OK, np.int64(-1)
            length, position = read_varint(body, position, end)
            if position < 0:
                return rows, RECORD_CUT, batch
            if length < SMALLEST_RECORD - 1 or length > end - position:
                return rows, RECORD_LENGTH, batch
            record_end = position + length
            position += 1  # record attributes: unused
            timestamp_delta, position = read_varint(body, position, record_end)
            if position < 0:
                return rows, RECORD_CUT, batch
            offset_delta, position = read_varint(body, position, record_end)
            if position < 0:
                return rows, RECORD_CUT, batch
            key_length, key_start = read_varint(body, position, record_end)
            if key_start < 0 or key_length > record_end - key_start:
                return rows, RECORD_CUT, batch
            value_length, value_start = read_varint(body, key_start + max(key_length, 0), record_end)
            if value_start < 0 or value_length > record_end - value_start:
                return rows, RECORD_CUT, batch
            header_count, header_start = read_varint(body, value_start + max(value_length, 0), record_end)
            if header_start < 0:
                return rows, RECORD_CUT, batch
            position = skip_headers(body, header_start, record_end, header_count)
            if position != record_end:
                return rows, HEADER_BROKEN, batch
            offset = batches[BASE_OFFSET, batch] + offset_delta
            if offset <= previous or offset_delta < 0 or offset > batches[LAST_OFFSET, batch]:
                return rows, OFFSET_ORDER, batch
            previous = offset
            if offset < min_offset:
                continue
            table[0, rows] = offset
            if append_time:
                table[1, rows] = batches[MAX_TIMESTAMP, batch]
                table[2, rows] = 1
            else:
                table[1, rows] = batches[BASE_TIMESTAMP, batch] + timestamp_delta
                table[2, rows] = 0
            table[3, rows] = key_start
            table[4, rows] = max(key_length, -1)
            table[5, rows] = value_start
            table[6, rows] = max(value_length, -1)
            table[7, rows] = header_start
            table[8, rows] = record_end - header_start
            table[9, rows] = header_count
            rows += 1
        if position != end:
            return rows, PAYLOAD_REST, batch
        done = np.int64(0)
    state[0] = batches.shape[1]
    return rows, OK, np.int64(-1)


# Reasons for the end of encode_records before the last row.
ALL_WRITTEN, PIECE_FULL, BATCH_FULL, NEEDS_ROOM, ROW_OUTSIDE = range(5)
# State of a batch between calls: rows, bytes of the piece, the first timestamp, and the largest.
BATCH_STATE_SIZE = 4


@kernel(types.UniTuple(LONG, 3)(READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, LONG, LONG, LONG, LONG, BYTES, LONGS))
def encode_records(
    body: Bytes,
    header_body: Bytes,
    table: Longs,
    start: int,
    stop: int,
    enough: int,
    limit: int,
    target: Bytes,
    state: Longs,
) -> tuple[int, int, int]:
    """Encode rows start..stop of a table into `target`, behind the earlier rows of the same batch. Offset deltas count from 0 without gaps.

    Ends behind the row that reaches `enough` bytes, if another row follows, and before the row that would pass `limit`,
    but a batch takes at least one. Returns (next row, its room, reason for the end); the room only with NEEDS_ROOM.
    """
    if start < 0 or start >= stop or stop > table.shape[1]:
        return np.int64(start), np.int64(0), ROW_OUTSIDE
    # Read before the loop: the compiler cannot know that the state is not in the target.
    rows, used, first_timestamp, largest_timestamp = state[0], state[1], state[2], state[3]
    if rows == 0:
        first_timestamp = largest_timestamp = table[1, start]
    row = np.int64(start)
    room = np.int64(0)
    why = ALL_WRITTEN
    while row < stop:
        if used > 0 and used >= enough:
            why = PIECE_FULL
            break
        key_length = max(table[4, row], -1)
        value_length = max(table[6, row], -1)
        header_length = table[8, row]
        if (
            not holds(len(body), table[3, row], key_length)
            or not holds(len(body), table[5, row], value_length)
            or not inside(table[7, row], header_length, len(header_body))
            or skip_headers(header_body, table[7, row], table[7, row] + header_length, table[9, row])
            != table[7, row] + header_length
        ):
            why = ROW_OUTSIDE
            break
        timestamp_delta = table[1, row] - first_timestamp
        length = (
            1
            + varint_size(timestamp_delta)
            + varint_size(rows)
            + varint_size(key_length)
            + max(key_length, 0)
            + varint_size(value_length)
            + max(value_length, 0)
            + varint_size(table[9, row])
            + header_length
        )
        size = varint_size(length) + length
        if rows > 0 and used + size > limit:
            why = BATCH_FULL
            break
        if used + size > len(target):
            room = size
            why = NEEDS_ROOM
            break
        used = write_varint(target, used, length)
        target[used] = 0
        used = write_varint(target, used + 1, timestamp_delta)
        used = write_varint(target, used, rows)
        used = write_varint(target, used, key_length)
        used = copy_bytes(target, used, body, table[3, row], max(key_length, 0))
        used = write_varint(target, used, value_length)
        used = copy_bytes(target, used, body, table[5, row], max(value_length, 0))
        used = write_varint(target, used, table[9, row])
        used = copy_bytes(target, used, header_body, table[7, row], header_length)
        largest_timestamp = max(largest_timestamp, table[1, row])
        rows += 1
        row += 1
    state[0], state[1], state[2], state[3] = rows, used, first_timestamp, largest_timestamp
    return row, room, why
