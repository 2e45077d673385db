"""Kernels for Kafka's headers: varint key length, key, varint value length (negative: null), value; back to back."""

import numpy as np

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.hashing import hash_bytes
from archiver.codec.kernels.jit import inner
from archiver.codec.kernels.varint import BROKEN, copy_bytes, read_varint, write_varint

# Up to here a pair-by-pair comparison is cheaper than a hash table.
_FEW_HEADERS = 16
_MOST_PROBES = 64
_REPLACEMENT = (0xEF, 0xBF, 0xBD)  # U+FFFD
READABLE_TIMES = len(_REPLACEMENT)  # largest growth of a key in its readable form


@inner
def read_header(source: Bytes, position: int, end: int) -> tuple[int, int, int, int, int]:
    """Return (key start, key length, value start, value length or -1, position after it)."""
    broken = np.int64(BROKEN)
    key_length, key_start = read_varint(source, position, end)
    if key_start < 0 or key_length < 0 or key_length > end - key_start:
        return broken, broken, broken, broken, broken
    value_length, value_start = read_varint(source, key_start + key_length, end)
    if value_start < 0 or value_length > end - value_start:
        return broken, broken, broken, broken, broken
    value_length = max(value_length, -1)
    return key_start, key_length, value_start, value_length, value_start + max(value_length, 0)


@inner
def write_header(
    target: Bytes, used: int, keys: Bytes, key_start: int, key_length: int, values: Bytes, start: int, length: int
) -> int:
    """Write a header; a length below 0 is a null value. Returns the bytes used; the caller has checked the ranges and the room."""
    used = write_varint(target, used, key_length)
    used = copy_bytes(target, used, keys, key_start, key_length)
    used = write_varint(target, used, length)
    return copy_bytes(target, used, values, start, max(length, 0))


@inner
def skip_headers(source: Bytes, position: int, end: int, count: int) -> int:
    """Return the position after `count` headers; BROKEN if they do not fit."""
    if count < 0 or count > (end - position) // 2:
        return np.int64(BROKEN)
    for _ in range(count):
        _, _, _, _, position = read_header(source, position, end)
        if position < 0:
            return np.int64(BROKEN)
    return position


@inner
def index_headers(source: Bytes, position: int, end: int, count: int, parts: Longs) -> int:
    """Fill parts[:, i] with (key start, key length, value start, value length). BROKEN if they do not end at `end`."""
    if count < 0 or count > parts.shape[1]:
        return np.int64(BROKEN)
    for index in range(count):
        parts[0, index], parts[1, index], parts[2, index], parts[3, index], position = read_header(
            source, position, end
        )
        if position < 0:
            return np.int64(BROKEN)
    return position if position == end else np.int64(BROKEN)


@inner
def is_utf8(source: Bytes, start: int, length: int) -> bool:
    """Return whether the bytes are UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF."""
    position = start
    end = start + length
    while position < end:
        lead = np.int64(source[position])
        position += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        trail = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
        if trail > end - position:
            return False
        low = np.int64(0x80)
        high = np.int64(0xBF)
        if lead == 0xE0:
            low = np.int64(0xA0)
        elif lead == 0xED:
            high = np.int64(0x9F)
        elif lead == 0xF0:
            low = np.int64(0x90)
        elif lead == 0xF4:
            high = np.int64(0x8F)
        for _ in range(trail):
            byte = np.int64(source[position])
            if byte < low or byte > high:
                return False
            low = np.int64(0x80)
            high = np.int64(0xBF)
            position += 1
    return True


@inner
def readable_size(source: Bytes, start: int, length: int) -> int:
    """Return the number of bytes that `write_readable` writes."""
    size = length
    for index in range(length):
        if source[start + index] >= 0x80:
            size += len(_REPLACEMENT) - 1
    return size


@inner
def write_readable(target: Bytes, used: int, source: Bytes, start: int, length: int) -> int:
    """Write a reading aid for bytes that are not UTF-8: U+FFFD for each byte outside ASCII. Returns the bytes used."""
    for index in range(length):
        byte = source[start + index]
        if byte < 0x80:
            target[used] = byte
            used += 1
        else:
            target[used] = _REPLACEMENT[0]
            target[used + 1] = _REPLACEMENT[1]
            target[used + 2] = _REPLACEMENT[2]
            used += 3
    return used


@inner
def keys_are_unique(source: Bytes, parts: Longs, count: int) -> bool:
    """Return whether all headers have different keys; also false if the check takes too long."""
    if count <= _FEW_HEADERS:
        for one in range(1, count):
            for other in range(one):
                if _same_key(source, parts, one, other):
                    return False
        return True
    size = np.int64(32)
    while size < 2 * count:
        size *= 2
    slots = np.full(size, -1, dtype=np.int64)
    for one in range(count):
        slot = np.int64(hash_bytes(source, parts[0, one], parts[1, one], np.uint64(0)) >> np.uint64(8)) & (size - 1)
        probes = 0
        while slots[slot] >= 0:
            probes += 1
            if probes > _MOST_PROBES or _same_key(source, parts, one, slots[slot]):
                return False
            slot = (slot + 1) & (size - 1)
        slots[slot] = one
    return True


@inner
def _same_key(source: Bytes, parts: Longs, one: int, other: int) -> bool:
    if parts[1, one] != parts[1, other]:
        return False
    for index in range(parts[1, one]):  # noqa: SIM110 - numba has no all() over a generator
        if source[parts[0, one] + index] != source[parts[0, other] + index]:
            return False
    return True
