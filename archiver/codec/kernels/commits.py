"""Kernels that select the records of `__consumer_offsets` that decide group positions, and decode their keys and values."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.hashing import hash_bytes
from archiver.codec.kernels.jit import BYTES, LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel, move_memory
from archiver.codec.kernels.varint import inside

# Kinds of keys. A position may have been committed under two types of key, and is the same under both.
POSITION, CLASSIC, CONSUMER, STREAMS = 0, 2, 3, 17
OTHER = -1  # of another kind, or of a later version of Kafka

# Columns of `decode_commits`. Starts point into the body.
(
    KIND,
    GROUP_START,
    GROUP_LENGTH,
    TOPIC_START,
    TOPIC_LENGTH,
    PARTITION,
    OFFSET,
    LEADER_EPOCH,
    METADATA_START,
    METADATA_LENGTH,
    COMMIT_MS,
    TOPIC_ID_START,  # -1: none
    IS_READABLE,  # 0: the key, or the value, is not one that this program reads, or the offset is negative
) = range(13)
COLUMNS = 13

BROKEN = -1
# Slots of the table of keys: the last row of a key up to the time that is asked for, the last one after that, and any row.
FIRST = 2  # marks the first value since a tombstone
PENDING = 3  # marks a value of before the time that may count only after it
_COMPACT_VERSION = 4
_MOST_TEXT = 0x7FFF  # bytes that Kafka writes, and reads, of a text
_MOST_VERSION = 4


@inner
def _number(body: Bytes, start: int, size: int) -> int:
    """Read a signed number, the highest byte first."""
    value = np.int64(0)
    for index in range(size):
        value = (value << 8) | np.int64(body[start + index])
    bits = np.int64(64 - 8 * size)
    return (value << bits) >> bits


@inner
def _type(body: Bytes, start: int) -> int:
    """Read the type of a key, without a check of the rest; both types of positions are one."""
    kind = (np.int64(body[start]) << 8) | np.int64(body[start + 1])
    return np.int64(POSITION) if kind <= 1 else kind


@inner
def _kind(body: Bytes, start: int, length: int) -> int:
    """Return the kind of a key; OTHER if it is not in Kafka's form."""
    if length < 4:
        return np.int64(OTHER)
    kind = _type(body, start)
    if kind not in (POSITION, CLASSIC, CONSUMER, STREAMS):
        return np.int64(OTHER)
    size = _number(body, start + 2, 2)
    end = 4 + size
    if size < 0 or end > length:
        return np.int64(OTHER)
    if kind != POSITION:
        return kind if end == length else np.int64(OTHER)
    if end + 2 > length:
        return np.int64(OTHER)
    size = _number(body, start + end, 2)
    end += 2 + size
    if size < 0 or end + 4 != length or _number(body, start + end, 4) < 0:
        return np.int64(OTHER)
    return kind


@inner
def _same_bytes(body: Bytes, start: int, begin: int, length: int) -> bool:
    index = np.int64(0)
    while index < length and body[start + index] == body[begin + index]:
        index += 1
    return index == length


@inner
def _same_key(body: Bytes, table: Longs, row: int, other: int) -> bool:
    length = table[4, row]
    if length != table[4, other]:
        return False
    start, begin = table[3, row], table[3, other]
    if _type(body, start) != _type(body, begin):
        return False
    return _same_bytes(body, start + 2, begin + 2, length - 2)


@kernel(LONG(READ_ONLY_BYTES, TABLE, BYTES, LONG, TABLE, BYTES))
def mark_telling(body: Bytes, table: Longs, pending: Bytes, until_ms: int, slots: Longs, kept: Bytes) -> int:
    """Mark the effective rows: of each key the first and the last value before each tombstone, that tombstone,
    and the first and the last value behind the last one; of a group no first values.

    Rows up to a time, and those after it, are two histories. All commits of positions among the `pending` rows are marked as such,
    and are in neither. `slots`: three columns of zeros, as long as a power of two that is
    above the row count. Returns the number of rows of other kinds, which stay unmarked; BROKEN if a row leaves the body.
    """
    mask = np.int64(slots.shape[1] - 1)
    others = np.int64(0)
    for row in range(table.shape[1]):
        kept[row] = 0
        start, length = table[3, row], table[4, row]
        if length < 0:
            others += 1
            continue
        if not inside(start, length, len(body)) or (
            table[6, row] >= 0 and not inside(table[5, row], table[6, row], len(body))
        ):
            return np.int64(BROKEN)
        kind = _kind(body, start, length)
        if kind == OTHER:
            others += 1
            continue
        slot = np.int64(hash_bytes(body, start + 2, length - 2, np.uint64(kind)) & np.uint64(mask))
        while slots[2, slot] > 0 and not _same_key(body, table, row, slots[2, slot] - 1):
            slot = (slot + 1) & mask
        before = slots[2, slot] - 1
        slots[2, slot] = row + 1
        if pending[row] != 0 and kind == POSITION and table[6, row] >= 0:
            kept[row] = PENDING
            continue
        phase = 0 if table[1, row] <= until_ms else 1
        last = slots[phase, slot] - 1
        is_tombstone = table[6, row] < 0
        is_first = last < 0 or table[6, last] < 0
        if is_tombstone and last >= 0 and is_first and table[6, before] < 0:
            continue  # it was removed already
        if not is_tombstone and not is_first and kept[last] != FIRST:
            kept[last] = 0
        kept[row] = FIRST if is_first and not is_tombstone and kind == POSITION else 1
        slots[phase, slot] = row + 1
    return others


@kernel(LONG(READ_ONLY_BYTES, TABLE, BYTES, BYTES, TABLE))
def copy_marked(body: Bytes, table: Longs, kept: Bytes, target: Bytes, copied: Longs) -> int:
    """Copy keys and values of marked rows one behind the other. A group's value is unused, and copied as empty. Column 9
    marks pending rows.

    The rows have passed `mark_telling`, and all have room. Returns the bytes used.
    """
    used = np.int64(0)
    place = np.int64(0)
    for row in range(table.shape[1]):
        if kept[row] == 0:
            continue
        copied[0, place] = table[0, row]
        copied[1, place] = table[1, row]
        copied[2, place] = table[2, row]
        length = table[4, row]
        move_memory(target, used, body, table[3, row], length)
        copied[3, place] = used
        copied[4, place] = length
        used += length
        is_position = _kind(body, table[3, row], length) == POSITION
        length = table[6, row] if is_position else min(table[6, row], 0)
        if length > 0:
            move_memory(target, used, body, table[5, row], length)
        copied[5, place] = used
        copied[6, place] = length
        used += max(length, 0)
        for column in range(7, copied.shape[0]):
            copied[column, place] = 0
        copied[9, place] = 1 if kept[row] == PENDING else 0
        place += 1
    return used


@inner
def _uvarint(body: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read seven bits a byte, the lowest first: the number, and where it ends; BROKEN when it does not."""
    value = np.int64(0)
    for index in range(5):
        if position >= end:
            break
        byte = np.int64(body[position])
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position
    return np.int64(0), np.int64(BROKEN)


@inner
def _decode_key(body: Bytes, start: int, length: int, row: int, out: Longs) -> bool:
    kind = _kind(body, start, length)
    out[KIND, row] = kind
    if kind == OTHER:
        return False
    size = _number(body, start + 2, 2)
    out[GROUP_START, row] = start + 4
    out[GROUP_LENGTH, row] = size
    if kind == POSITION:
        position = start + 4 + size
        size = _number(body, position, 2)
        out[TOPIC_START, row] = position + 2
        out[TOPIC_LENGTH, row] = size
        out[PARTITION, row] = _number(body, position + 2 + size, 4)
    return True


@inner
def _decode_commit(body: Bytes, start: int, length: int, row: int, out: Longs) -> bool:
    end = start + length
    if length < 2:
        return False
    version = _number(body, start, 2)
    position = start + 2
    fixed = 12 if version >= 3 else 8
    if version < 0 or version > _MOST_VERSION or position + fixed > end:
        return False
    out[OFFSET, row] = _number(body, position, 8)
    if out[OFFSET, row] < 0:
        return False
    if version >= 3:
        out[LEADER_EPOCH, row] = _number(body, position + 8, 4)
    position += fixed
    if version >= _COMPACT_VERSION:
        size, position = _uvarint(body, position, end)
        size -= 1
        if position < 0:
            return False
    else:
        if position + 2 > end:
            return False
        size = _number(body, position, 2)
        position += 2
    behind = 16 if version == 1 else 8
    if size < 0 or size > _MOST_TEXT or position + size + behind > end:
        return False
    out[METADATA_START, row] = position
    out[METADATA_LENGTH, row] = size
    out[COMMIT_MS, row] = _number(body, position + size, 8)
    position += size + behind
    if version < _COMPACT_VERSION:
        return position == end
    tags, position = _uvarint(body, position, end)
    if position < 0:
        return False
    for _ in range(tags):
        tag, position = _uvarint(body, position, end)
        if position < 0:
            return False
        size, position = _uvarint(body, position, end)
        if position < 0 or position + size > end:
            return False
        if tag == 0:
            if size != 16:
                return False
            out[TOPIC_ID_START, row] = position
        position += size
    return position == end


@kernel(types.void(READ_ONLY_BYTES, TABLE, TABLE))
def decode_commits(body: Bytes, table: Longs, out: Longs) -> None:
    """Take keys and values of rows apart that `copy_marked` has made."""
    for row in range(table.shape[1]):
        for column in range(out.shape[0]):
            out[column, row] = 0
        out[LEADER_EPOCH, row] = -1
        out[TOPIC_ID_START, row] = -1
        is_readable = _decode_key(body, table[3, row], table[4, row], row, out)
        if is_readable and table[6, row] >= 0 and out[KIND, row] == POSITION:
            is_readable = _decode_commit(body, table[5, row], table[6, row], row, out)
        out[IS_READABLE, row] = 1 if is_readable else 0


@kernel(LONG(READ_ONLY_BYTES, LONGS, LONGS, LONGS, LONGS))
def number_texts(body: Bytes, starts: Longs, lengths: Longs, slots: Longs, numbers: Longs) -> int:
    """Number distinct texts from 0, in the order of their first rows. `slots`: as many zeros as in `mark_telling`.

    Returns their count.
    """
    mask = np.int64(len(slots) - 1)
    count = np.int64(0)
    for row in range(len(starts)):
        start, length = starts[row], lengths[row]
        slot = np.int64(hash_bytes(body, start, length, np.uint64(0)) & np.uint64(mask))
        while slots[slot] > 0:
            other = slots[slot] - 1
            if lengths[other] == length and _same_bytes(body, start, starts[other], length):
                break
            slot = (slot + 1) & mask
        if slots[slot] == 0:
            slots[slot] = row + 1
            numbers[row] = count
            count += 1
        else:
            numbers[row] = numbers[slots[slot] - 1]
    return count
