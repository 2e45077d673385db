"""Kernels that encode and decode the runs of an offset map as OffsetRun v1.0 (docs/format.md §10)."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.jit import BYTES, LONG, LONGS, READ_ONLY_BYTES, TABLE, kernel
from archiver.codec.kernels.varint import BROKEN, MAX_VARINT_BYTES, read_varint, write_varint

MAX_RUN_BYTES = 2 * MAX_VARINT_BYTES

# The state of a map, from one call of `collect_runs` to the next: the next source offset, how many offsets are absent before
# the open run, how many records that run has, and how many closed runs have not been taken.
SOURCE_NEXT, OPEN_ABSENT, OPEN_RECORDS, CLOSED = range(4)
RUN_STATE_SIZE = 4


@kernel(LONG(TABLE, LONG, TABLE, LONGS))
def collect_runs(table: Longs, start: int, closed: Longs, state: Longs) -> int:
    """Follow the offsets of a frame's rows from `start` on; fill columns of (absent, records) with the runs that end there.

    Returns the row without room for a run, or the number of rows, or BROKEN if offsets do not rise.
    """
    if start < 0 or state[CLOSED] < 0:
        return np.int64(BROKEN)
    row = np.int64(start)
    while row < table.shape[1]:
        step = table[0, row] - state[SOURCE_NEXT]
        if table[0, row] < state[SOURCE_NEXT]:
            return np.int64(BROKEN)
        if step > 0:
            if state[OPEN_RECORDS] > 0:
                if state[CLOSED] >= closed.shape[1]:
                    return row
                closed[0, state[CLOSED]] = state[OPEN_ABSENT]
                closed[1, state[CLOSED]] = state[OPEN_RECORDS]
                state[CLOSED] += 1
            state[OPEN_ABSENT] = step
            state[OPEN_RECORDS] = 0
        state[OPEN_RECORDS] += 1
        state[SOURCE_NEXT] = table[0, row] + 1
        row += 1
    return row


@kernel(LONG(TABLE, LONG, BYTES))
def encode_runs(runs: Longs, count: int, target: Bytes) -> int:
    """Write the first `count` columns of (source, target). Returns the bytes written, or BROKEN without enough room."""
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
