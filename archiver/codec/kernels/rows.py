"""Kernels over a frame's rows: check that offsets rise, hash keys, and locate each header's key and value."""

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.hashing import hash_bytes
from archiver.codec.kernels.headers import read_header
from archiver.codec.kernels.jit import LONG, LONGS, READ_ONLY_BYTES, TABLE, kernel
from archiver.codec.kernels.varint import inside


@kernel(types.boolean(TABLE, LONG))
def offsets_rise(table: Longs, previous: int) -> bool:
    """Return whether each offset is above the one before; the first one above `previous`."""
    for row in range(table.shape[1]):
        if table[0, row] <= previous:
            return False
        previous = table[0, row]
    return True


@kernel(types.boolean(READ_ONLY_BYTES, TABLE, LONGS))
def hash_keys(body: Bytes, table: Longs, hashes: Longs) -> bool:
    """Fill `hashes` with the XXH64 of each row's key; 0 for a null. Returns False if a key is outside the body."""
    for row in range(table.shape[1]):
        length = table[4, row]
        if length < 0:
            hashes[row] = 0
        elif not inside(table[3, row], length, len(body)):
            return False
        else:
            hashes[row] = np.int64(hash_bytes(body, table[3, row], length, np.uint64(0)))
    return True


@kernel(types.boolean(READ_ONLY_BYTES, TABLE, TABLE))
def flatten_headers(source: Bytes, table: Longs, parts: Longs) -> bool:
    """Fill parts[:, i] with (key start, key length, value start, value length) of header i, over all rows."""
    flat = 0
    for row in range(table.shape[1]):
        position = table[7, row]
        if not inside(position, table[8, row], len(source)) or table[9, row] < 0:
            return False
        end = position + table[8, row]
        for _ in range(table[9, row]):
            if flat >= parts.shape[1]:
                return False
            parts[0, flat], parts[1, flat], parts[2, flat], parts[3, flat], position = read_header(
                source, position, end
            )
            if position < 0:
                return False
            flat += 1
        if position != end:
            return False
    return flat == parts.shape[1]
