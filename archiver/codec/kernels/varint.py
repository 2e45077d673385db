"""Kernels for zigzag varints, which Kafka and Avro spell alike, copies, and range checks.

A kernel returns BROKEN as position if its input ends too early or is impossible.
"""

import numpy as np

from archiver.codec.frame import Bytes
from archiver.codec.kernels.jit import inner, move_memory

BROKEN = -1
MAX_VARINT_BYTES = 10
_LOW_63_BITS = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@inner
def read_varint(source: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return (value, position after it)."""
    raw = np.int64(0)
    shift = np.int64(0)
    while True:
        if position >= end or shift > 63:
            return np.int64(0), np.int64(BROKEN)
        byte = np.int64(
            source[np.uint64(position)]
        )  # unsigned, so that numba leaves out its check for negative indices
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return ((raw >> 1) & _LOW_63_BITS) ^ -(raw & 1), position


@inner
def write_varint(target: Bytes, position: int, value: int) -> int:
    """Return the position after it; the caller has made sure of MAX_VARINT_BYTES of room."""
    raw = (np.int64(value) << 1) ^ (np.int64(value) >> 63)
    while raw & ~np.int64(0x7F):
        target[position] = np.uint8((raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
        position += 1
    target[position] = np.uint8(raw)
    return position + 1


@inner
def varint_size(value: int) -> int:
    raw = (np.int64(value) << 1) ^ (np.int64(value) >> 63)
    size = 1
    while raw & ~np.int64(0x7F):
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@inner
def copy_bytes(target: Bytes, position: int, source: Bytes, start: int, length: int) -> int:
    """Return the position after the copy; the caller has checked both ranges."""
    move_memory(target, position, source, start, length)
    return position + length


@inner
def same_bytes(one: Bytes, start: int, other: Bytes, other_start: int, length: int) -> bool:
    """Return whether two ranges hold the same bytes; the caller has checked both."""
    for index in range(length):  # noqa: SIM110 - numba has no all() over a generator
        if one[start + index] != other[other_start + index]:
            return False
    return True


@inner
def inside(start: int, length: int, size: int) -> bool:
    """Return whether a range is inside a buffer of that size; no sum can overflow."""
    return start >= 0 and length >= 0 and start <= size and length <= size - start


@inner
def holds(size: int, start: int, length: int) -> bool:
    """Return whether a buffer of that size holds a key or value; the start of a null means nothing."""
    return length < 0 or inside(start, length, size)


# --- in plain Python, for the two numbers of a block: an `inner` function would be compiled in each process that calls it from here


def read_long(source: memoryview, position: int) -> tuple[int, int]:
    """Return (value, position after it), as read_varint."""
    raw = shift = 0
    while position < len(source) and shift <= 63:
        byte = source[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFF_FFFF_FFFF_FFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    return 0, BROKEN


def encode_long(value: int) -> bytes:
    """Encode one Avro long."""
    return encode_unsigned((value << 1) ^ (value >> 63))


def encode_unsigned(value: int) -> bytes:
    """Encode a number in seven bits a byte, lowest first, without zigzag."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
