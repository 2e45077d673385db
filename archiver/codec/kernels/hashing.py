"""Kernel for XXH64 by its specification (tested against the reference implementation)."""

import numpy as np

from archiver.codec.frame import Bytes
from archiver.codec.kernels.jit import inner, read_word

PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)
PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)


@inner
def rotate(value: int, bits: int) -> int:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inner
def round_lane(lane: int, word: int) -> int:
    return rotate(lane + word * PRIME_2, 31) * PRIME_1


@inner
def merge(state: int, lane: int) -> int:
    return (state ^ round_lane(np.uint64(0), lane)) * PRIME_1 + PRIME_4


@inner
def avalanche(state: int) -> int:
    state = (state ^ (state >> np.uint64(33))) * PRIME_2
    state = (state ^ (state >> np.uint64(29))) * PRIME_3
    return state ^ (state >> np.uint64(32))


@inner
def _half_word(source: Bytes, position: int) -> int:
    return (
        np.uint64(source[position])
        | (np.uint64(source[position + 1]) << np.uint64(8))
        | (np.uint64(source[position + 2]) << np.uint64(16))
        | (np.uint64(source[position + 3]) << np.uint64(24))
    )


@inner
def hash_bytes(source: Bytes, start: int, length: int, seed: int) -> int:
    """Return the XXH64 of a range, which the caller has checked."""
    position = start
    end = start + length
    if length >= 32:
        lane_1 = seed + PRIME_1 + PRIME_2
        lane_2 = seed + PRIME_2
        lane_3 = seed + np.uint64(0)
        lane_4 = seed - PRIME_1
        while position <= end - 32:
            lane_1 = round_lane(lane_1, read_word(source, position))
            lane_2 = round_lane(lane_2, read_word(source, position + 8))
            lane_3 = round_lane(lane_3, read_word(source, position + 16))
            lane_4 = round_lane(lane_4, read_word(source, position + 24))
            position += 32
        state = rotate(lane_1, 1) + rotate(lane_2, 7) + rotate(lane_3, 12) + rotate(lane_4, 18)
        state = merge(state, lane_1)
        state = merge(state, lane_2)
        state = merge(state, lane_3)
        state = merge(state, lane_4)
    else:
        state = seed + PRIME_5
    state += np.uint64(length)
    while position <= end - 8:
        state = rotate(state ^ round_lane(np.uint64(0), read_word(source, position)), 27) * PRIME_1 + PRIME_4
        position += 8
    if position <= end - 4:
        state = rotate(state ^ (_half_word(source, position) * PRIME_1), 23) * PRIME_2 + PRIME_3
        position += 4
    while position < end:
        state = rotate(state ^ (np.uint64(source[position]) * PRIME_5), 11) * PRIME_1
        position += 1
    return avalanche(state)
