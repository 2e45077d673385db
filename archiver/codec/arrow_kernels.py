"""Kernels from a frame to the buffers of Arrow arrays."""

from numba import types

from archiver.codec.headers import read_header
from archiver.codec.jit import BYTES, LONGS, READ_ONLY_BYTES, TABLE, kernel
from archiver.codec.varint import copy_bytes, holds, inside
from archiver.frame import Bytes, Longs

_LENGTHS = types.Array(types.int64, 1, "A")  # a row of a table, or of a part of one


@kernel(types.boolean(READ_ONLY_BYTES, _LENGTHS, _LENGTHS, LONGS, BYTES, BYTES))
def gather(source: Bytes, starts: Longs, lengths: Longs, offsets: Longs, present: Bytes, target: Bytes) -> bool:
    """Lay values end to end: offsets[i]..offsets[i + 1] is value i, present[i] is 0 for a null. False: a range is broken."""
    used = 0
    if len(lengths) != len(starts) or len(offsets) != len(starts) + 1 or len(present) != len(starts):
        return False
    offsets[0] = 0
    for index in range(len(starts)):
        length = max(lengths[index], 0)
        if not holds(len(source), starts[index], lengths[index]) or length > len(target) - used:
            return False
        used = copy_bytes(target, used, source, starts[index], length)
        offsets[index + 1] = used
        present[index] = lengths[index] >= 0
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
