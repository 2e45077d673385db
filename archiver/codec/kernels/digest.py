"""Kernel that updates a record run's digest (docs/format.md §5), tombstone count, timestamp range and byte totals."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.hashing import PRIME_1, PRIME_2, PRIME_4, avalanche, hash_bytes, merge, rotate, round_lane
from archiver.codec.kernels.headers import read_header
from archiver.codec.kernels.jit import LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import holds, inside

DIGEST_MODULUS = (1 << 61) - 1
DIGEST_BASE = 0x1D8E4E27C47D124F % DIGEST_MODULUS
_MODULUS = np.uint64(DIGEST_MODULUS)
_BASE = np.uint64(DIGEST_BASE)
_LOW_32 = np.uint64(0xFFFF_FFFF)
_RECORD_SEED = np.uint64(1)
_HEADER_SEED = np.uint64(2)


def join_digests(one: int, other: int, other_records: int) -> int:
    """Return the digest of two runs of records, one behind the other."""
    return (one * pow(DIGEST_BASE, other_records, DIGEST_MODULUS) + other) % DIGEST_MODULUS


@inner
def _hash_word(state: int, word: int) -> int:
    return rotate(state ^ round_lane(np.uint64(0), np.uint64(word)), 27) * PRIME_1 + PRIME_4


@inner
def _hash_blob(source: Bytes, start: int, length: int) -> int:
    return hash_bytes(source, start, length, np.uint64(0)) if length >= 0 else np.uint64(0)


@inner
def _hash_header(previous: int, key_length: int, key: int, value_length: int, value: int) -> int:
    # XXH64 of five words: 40 bytes, so one stripe of four lanes and a rest of one word.
    lane_1 = round_lane(_HEADER_SEED + PRIME_1 + PRIME_2, np.uint64(previous))
    lane_2 = round_lane(_HEADER_SEED + PRIME_2, np.uint64(key_length))
    lane_3 = round_lane(_HEADER_SEED, np.uint64(key))
    lane_4 = round_lane(_HEADER_SEED - PRIME_1, np.uint64(np.int64(value_length)))
    state = rotate(lane_1, 1) + rotate(lane_2, 7) + rotate(lane_3, 12) + rotate(lane_4, 18)
    state = merge(merge(merge(merge(state, lane_1), lane_2), lane_3), lane_4) + np.uint64(40)
    return avalanche(_hash_word(state, value))


@inner
def _hash_record(
    timestamp: int, timestamp_type: int, key_length: int, key: int, value_length: int, value: int, headers: int
) -> int:
    # XXH64 of seven words: 56 bytes.
    lane_1 = round_lane(_RECORD_SEED + PRIME_1 + PRIME_2, np.uint64(timestamp))
    lane_2 = round_lane(_RECORD_SEED + PRIME_2, np.uint64(timestamp_type))
    lane_3 = round_lane(_RECORD_SEED, np.uint64(np.int64(key_length)))
    lane_4 = round_lane(_RECORD_SEED - PRIME_1, np.uint64(key))
    state = rotate(lane_1, 1) + rotate(lane_2, 7) + rotate(lane_3, 12) + rotate(lane_4, 18)
    state = merge(merge(merge(merge(state, lane_1), lane_2), lane_3), lane_4) + np.uint64(56)
    return avalanche(_hash_word(_hash_word(_hash_word(state, np.int64(value_length)), value), headers))


@inner
def _reduce(value: int) -> int:
    folded = (value & _MODULUS) + (value >> np.uint64(61))
    return folded - _MODULUS if folded >= _MODULUS else folded


@inner
def _times(one: int, other: int) -> int:
    # 61 x 61 bits by 32-bit halves; 2^64 = 8 and 2^61 = 1 under the modulus.
    low_one = one & _LOW_32
    high_one = one >> np.uint64(32)
    low_other = other & _LOW_32
    high_other = other >> np.uint64(32)
    middle = low_one * high_other + high_one * low_other  # below 2^62
    low = low_one * low_other
    high = high_one * high_other  # below 2^58
    folded = (
        _reduce(low)
        + _reduce((middle & np.uint64(0x1FFF_FFFF)) << np.uint64(32))
        + (middle >> np.uint64(29))
        + (high << np.uint64(3))
    )
    return _reduce(folded)


@inner
def _hash_headers(source: Bytes, start: int, length: int, count: int) -> tuple[int, bool]:
    state = np.uint64(count)
    position = start
    for _ in range(count):
        key_start, key_length, value_start, value_length, position = read_header(source, position, start + length)
        if position < 0:
            return state, False
        state = _hash_header(
            state,
            key_length,
            hash_bytes(source, key_start, key_length, np.uint64(0)),
            value_length,
            _hash_blob(source, value_start, value_length),
        )
    return state, position == start + length


# The running facts that `add_rows` updates, by index.
TOMBSTONES, MIN_TIMESTAMP, MAX_TIMESTAMP, TYPES_SEEN, PAYLOAD_BYTES, LARGEST_RECORD, DIGEST = range(7)
SURVEY_SIZE = 7


@kernel(types.boolean(READ_ONLY_BYTES, READ_ONLY_BYTES, TABLE, LONG, LONG, LONGS))
def add_rows(body: Bytes, header_body: Bytes, table: Longs, start: int, stop: int, found: Longs) -> bool:
    """Add rows start..stop to the running facts in `found`. Returns False when a row points outside its buffer, or is impossible."""
    if start < 0 or stop > table.shape[1]:
        return False
    digest = np.uint64(found[DIGEST])
    for row in range(start, stop):
        key_length = max(table[4, row], -1)
        value_length = max(table[6, row], -1)
        if (
            not holds(len(body), table[3, row], key_length)
            or not holds(len(body), table[5, row], value_length)
            or not inside(table[7, row], table[8, row], len(header_body))
            or table[9, row] < 0
            or table[2, row] < -1
            or table[2, row] > 1
        ):
            return False
        headers = np.uint64(0)
        if table[9, row] > 0 or table[8, row] > 0:
            headers, whole = _hash_headers(header_body, table[7, row], table[8, row], table[9, row])
            if not whole:
                return False
        record = _hash_record(
            table[1, row],
            table[2, row],
            key_length,
            _hash_blob(body, table[3, row], key_length),
            value_length,
            _hash_blob(body, table[5, row], value_length),
            headers,
        )
        digest = _reduce(_times(digest, _BASE) + _reduce(record) + np.uint64(1))
        size = max(key_length, 0) + max(value_length, 0)
        found[TOMBSTONES] += value_length < 0
        found[MIN_TIMESTAMP] = min(found[MIN_TIMESTAMP], table[1, row])
        found[MAX_TIMESTAMP] = max(found[MAX_TIMESTAMP], table[1, row])
        found[TYPES_SEEN] |= np.int64(1) << (table[2, row] + 1)
        found[PAYLOAD_BYTES] += size
        found[LARGEST_RECORD] = max(found[LARGEST_RECORD], size)
    found[DIGEST] = np.int64(digest)
    return True
