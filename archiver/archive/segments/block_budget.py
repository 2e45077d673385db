"""Memory budgets: one for all open segments, one for all threads that decode fetched data."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from archiver.codec.avro import BLOCK_BYTES
from archiver.codec.batch import Scratch

_MOST_BYTES: Final = 32 * 1024 * 1024
_LEAST_BLOCK_BYTES: Final = 8 * 1024  # smaller ones would hardly compress


# The memory of a thread besides its decoded payloads: the table of MOST_FETCHED_ROWS, and a segment's current block before
# and after compression.
_OVERHEAD_BYTES: Final = 10 * 1024 * 1024
_LEAST_STEP_BYTES: Final = 1024 * 1024
_STEP_SHARE: Final = 16  # a usual step takes one part in so many of the budget
_GROWTH: Final = 4  # from one try to the next: all tries together take a third more time than the last


class BlockBudget:
    """Counts the open segments of a process: the more are open, the earlier each one compresses its records. Thread-safe."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._open = 0

    def enter(self) -> None:
        """Count a segment that was opened."""
        with self._lock:
            self._open += 1

    def leave(self) -> None:
        """Stop counting a segment as open: it holds no more records in memory."""
        with self._lock:
            self._open -= 1

    @property
    def block_bytes(self) -> int:
        """Return how many bytes of records a segment may hold before it compresses them."""
        return max(_LEAST_BLOCK_BYTES, min(BLOCK_BYTES, self._most_bytes // max(self._open, 1)))


class DecodingBudget:
    """Lends memory for decoding. A request above the whole budget waits until all other memory is returned. Thread-safe.

    The size of payloads is unknown before decompression: `sizes` are the sizes to try, one after the other.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._usual_bytes = max(_LEAST_STEP_BYTES, most_bytes // _STEP_SHARE)
        self._used_bytes = 0
        self._spare: list[Scratch] = []  # of the smallest size
        self._first_in_line = threading.Lock()
        self._changed = threading.Condition()

    def sizes(self, largest_bytes: int) -> tuple[int, ...]:
        """Return the sizes to try, in rising order, up to the largest."""
        return _sizes(min(self._usual_bytes, largest_bytes), largest_bytes)

    @contextmanager
    def lend(self, size: int) -> Iterator[Scratch]:
        """Wait until so many bytes are free, or all other memory is returned. Decoded data must not outlive the block."""
        scratch = self._take(size + _OVERHEAD_BYTES, is_usual=size <= self._usual_bytes)
        try:
            yield scratch
        finally:
            scratch.trim(self._usual_bytes)
            with self._changed:
                self._used_bytes -= size + _OVERHEAD_BYTES
                self._spare.append(scratch)
                self._changed.notify()

    def _take(self, size: int, *, is_usual: bool) -> Scratch:
        with self._first_in_line, self._changed:
            self._changed.wait_for(lambda: not self._used_bytes or self._used_bytes + size <= self._most_bytes)
            self._used_bytes += size
            if not is_usual:
                self._spare.clear()  # spare buffers would add to the budget
            return self._spare.pop() if self._spare else Scratch()


def _sizes(least: int, most: int) -> tuple[int, ...]:
    return (least, *_sizes(least * _GROWTH, most)) if least < most else (most,)
