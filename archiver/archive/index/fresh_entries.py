"""Holds what a backup knows and the index does not yet: entries of its newest objects, and where partitions ended before its first put."""

import threading
from collections import deque
from collections.abc import Iterable

from archiver.archive.index.index_file import Directory
from archiver.archive.segments.entries import IndexEntry

_MOST_FRESH = 5_000  # they take 4 MB; a forgotten entry costs each reader a HEAD


class FreshEntries:
    """Index entries of objects that this process has put and not yet written to a file, and the earlier ends of partitions. Thread-safe."""

    def __init__(self) -> None:
        self._entries: deque[IndexEntry] = deque(maxlen=_MOST_FRESH)
        self._found: dict[Directory, dict[int, int]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, entry: IndexEntry) -> None:
        with self._lock:
            self._entries.append(entry)

    def take(self) -> list[IndexEntry]:
        with self._lock:
            taken = list(self._entries)
            self._entries.clear()
        return taken

    def give_back(self, entries: Iterable[IndexEntry]) -> None:
        with self._lock:
            newer = list(self._entries)
            self._entries.clear()
            self._entries.extend([*entries, *newer])

    def note_found(self, directory: Directory, partition: int, end: int) -> None:
        """Note the end of a partition before this process's first put: the index should have everything below."""
        with self._lock:
            self._found.setdefault(directory, {})[partition] = end

    def take_found(self) -> dict[Directory, dict[int, int]]:
        with self._lock:
            taken, self._found = self._found, {}
        return taken
