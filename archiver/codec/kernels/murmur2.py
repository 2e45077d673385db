"""Kernels that choose a record's partition by its key, as Kafka's Java client does; deals records out for restores."""

from collections.abc import Iterator

import numpy as np
from numba import types

from archiver.codec.frame import Bytes, Frame, Longs
from archiver.codec.kernels.jit import LONG, LONGS, READ_ONLY_BYTES, TABLE, inner, kernel
from archiver.codec.kernels.varint import inside

# org.apache.kafka.common.utils.Utils.murmur2. In 64 bits: products of two 32-bit numbers fit, whether compiled or not.
_SEED = np.uint64(0x9747B28C)
_FACTOR = np.uint64(0x5BD1E995)
_LOW_32 = np.uint64(0xFFFF_FFFF)
_POSITIVE = np.uint64(0x7FFF_FFFF)


@inner
def _byte(source: Bytes, position: int, shift: int) -> np.uint64:
    return np.uint64(source[position]) << np.uint64(shift)


@inner
def murmur2(source: Bytes, start: int, length: int) -> np.uint64:
    """Return the hash of a range, which the caller has checked."""
    state = (_SEED ^ np.uint64(length)) & _LOW_32
    position = start
    end = start + length
    while position <= end - 4:
        word = (
            _byte(source, position, 0)
            | _byte(source, position + 1, 8)
            | _byte(source, position + 2, 16)
            | _byte(source, position + 3, 24)
        )
        word = (word * _FACTOR) & _LOW_32
        word ^= word >> np.uint64(24)
        word = (word * _FACTOR) & _LOW_32
        state = ((state * _FACTOR) & _LOW_32) ^ word
        position += 4
    if position < end:
        for index in range(end - position):
            state ^= _byte(source, position + index, 8 * index)
        state = (state * _FACTOR) & _LOW_32
    state ^= state >> np.uint64(13)
    state = (state * _FACTOR) & _LOW_32
    return state ^ (state >> np.uint64(15))


@kernel(types.int64(READ_ONLY_BYTES, TABLE, LONG, LONG, LONGS))
def choose_partitions(body: Bytes, table: Longs, partitions: int, next_null: int, chosen: Longs) -> int:
    """Fill `chosen` with the partition of each row; the first without a key gets `next_null`, and so on in turn.

    Returns the partition of the next one without a key; -1 if a key is outside the body.
    """
    for row in range(table.shape[1]):
        length = table[4, row]
        if length < 0:
            chosen[row] = next_null
            next_null = (next_null + 1) % partitions
        elif not inside(table[3, row], length, len(body)):
            return -1
        else:
            chosen[row] = np.int64(murmur2(body, table[3, row], length) & _POSITIVE) % partitions
    return next_null


class Partitioner:
    """Deals out the records of one source, frame by frame. Each attempt deals the same records to the same partitions."""

    def __init__(self, partitions: int, source: int) -> None:
        self._partitions = partitions
        self._next_null = source % partitions  # so that sources with few such records do not all begin at one partition

    def deal(self, frame: Frame) -> Iterator[tuple[int, Frame]]:
        """Yield (partition, its records in their order) of the next frame, over the same buffers. Raises ValueError for a key outside them."""
        chosen = np.empty(len(frame), np.int64)
        self._next_null = choose_partitions(frame.body, frame.table, self._partitions, self._next_null, chosen)
        if self._next_null < 0:
            raise ValueError("a key of the frame lies outside its buffer")
        order = np.argsort(chosen, kind="stable")  # one pass, however many partitions
        ends = np.cumsum(np.bincount(chosen, minlength=self._partitions))
        sorted_table = np.take(frame.table, order, axis=1)
        grouped = Frame(body=frame.body, header_body=frame.header_body, table=np.ascontiguousarray(sorted_table))
        start = 0
        for partition, end in enumerate(ends.tolist()):
            if end > start:
                yield partition, grouped.rows(start, end)
            start = end
