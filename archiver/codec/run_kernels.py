"""The kernels between runs of an offset map and the bytes of OffsetRun v1.0 (docs/format.md §10)."""

import numpy as np
from numba import types

from archiver.codec.jit import BYTES, LONG, READ_ONLY_BYTES, TABLE, kernel
from archiver.codec.varint import BROKEN, MAX_VARINT_BYTES, read_varint, write_varint
from archiver.frame import Bytes, Longs

MAX_RUN_BYTES = 2 * MAX_VARINT_BYTES


@kernel(LONG(TABLE, LONG, BYTES))
def encode_runs(runs: Longs, count: int, target: Bytes) -> int:
    """Write the first `count` columns of (source, target). Returns the bytes written, or BROKEN when there is no room for them."""
    if count < 0 or count > runs.shape[1] or count > len(target) // MAX_RUN_BYTES:
        return np.int64(BROKEN)
    used = np.int64(0)
    for run in range(count):
        used = write_varint(target, used, runs[0, run])
        used = write_varint(target, used, runs[1, run])
    return used


@kernel(types.boolean(READ_ONLY_BYTES, TABLE))
def decode_runs(body: Bytes, runs: Longs) -> bool:
    """Fill all columns of (source, target). False when the body does not hold exactly that many."""
    position = np.int64(0)
    end = np.int64(len(body))
    for run in range(runs.shape[1]):
        runs[0, run], position = read_varint(body, position, end)
        if position < 0:
            return False
        runs[1, run], position = read_varint(body, position, end)
        if position < 0:
            return False
    return position == end
