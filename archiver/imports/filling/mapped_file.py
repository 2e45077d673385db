"""Maps files of an import's input into memory, so that only the bytes in use take any."""

import mmap
from pathlib import Path

import numpy as np

from archiver.codec.frame import Bytes
from archiver.errors import UsageError


class MappedFile:
    """The bytes of a file, perhaps none. `release` and `release_all` give back their memory; they can still be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as opened:
                size = opened.seek(0, 2)
                self._mapping = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) if size else None
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
        self.content: Bytes = np.frombuffer(self._mapping or b"", np.uint8)
        self._released = 0

    def release(self, end: int) -> None:
        """Give back the memory of the bytes before `end`, the first time that they are done."""
        whole = end - end % mmap.ALLOCATIONGRANULARITY
        if self._mapping is not None and whole > self._released:
            self._mapping.madvise(mmap.MADV_DONTNEED, self._released, whole - self._released)
            self._released = whole

    def release_all(self) -> None:
        """Give back the memory of all bytes, however often they are read."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)
