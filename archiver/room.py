"""Memory that all open segments share: the more of them, the earlier each one lets its records go to the spool."""

import threading
from typing import Final

from archiver.codec.avro import BLOCK_BYTES

_MOST_BYTES: Final = 32 * 1024 * 1024
_LEAST_BLOCK_BYTES: Final = 8 * 1024  # smaller ones would hardly compress


class BlockRoom:
    """Counts the open segments of a process. Safe for many threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._open = 0

    def enter(self) -> None:
        """Tell that a segment has been opened."""
        with self._lock:
            self._open += 1

    def leave(self) -> None:
        """Tell that one no longer holds records in memory."""
        with self._lock:
            self._open -= 1

    @property
    def block_bytes(self) -> int:
        """How many bytes of records a segment may hold before it compresses them."""
        return max(_LEAST_BLOCK_BYTES, min(BLOCK_BYTES, self._most_bytes // max(self._open, 1)))
