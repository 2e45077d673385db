"""Finds safe folders for compiled code, which makes later starts quick: beside our own code, or in the user's cache.

Cached code runs with our rights, so no other user may be able to change it (docs/decisions/0035-code-that-is-kept-is-ours.md).
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from archiver.process.machine.tampering import exposure

_FOR_THE_USER: Final = 0o700
_NOT_FOR_OTHERS_TO_WRITE: Final = 0o755
_LOCK: Final = "lock"
_LONGEST_WAIT_S: Final = 60.0  # for one kernel; the slowest compiles in a few seconds
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlace:
    """A folder or file of the cache, which may exist or not."""

    path: Path
    mode: int  # of folders; files get the same rights, but for the right to enter
    trusted: frozenset[int] = frozenset()  # users whose code we run anyway, besides ourselves and root

    def exposure(self, within: Sequence[Path] = ()) -> str:
        """Return the other user who could change this folder or these files in it; empty if none."""
        return exposure(self.path, *within, trusted=self.trusted)

    def make(self, folder: Path) -> bool:
        """Create a missing folder of the cache. Returns whether only this user can change files in it."""
        if exposure(folder, trusted=self.trusted):
            return False
        try:
            for missing in [one for one in reversed((folder, *folder.parents)) if not one.exists()]:
                missing.mkdir(exist_ok=True)
                missing.chmod(self.mode)
            with tempfile.TemporaryFile(dir=folder):
                return not exposure(folder, trusted=self.trusted)
        except OSError:
            return False

    @contextmanager
    def making_files(self) -> Iterator[None]:
        """Give files that are created within the block the rights of the folder. That holds for all threads of the process."""
        before = os.umask(0o777 & ~self.mode)
        try:
            yield
        finally:
            os.umask(before)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one process at a time make files here: others wait, and find them. No promise: a stuck process is not waited for."""
        try:
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self.mode & 0o666)
        except OSError:  # read-only
            yield
            return
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)  # which unlocks it


def _lock(handle: int) -> None:
    end_s = time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < end_s:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Event().wait(_POLL_S)
        except OSError:  # a file system without locks
            return
        else:
            return


def cache_places(code: Path, name: str) -> list[CachePlace]:
    """Return the two places of that name for compiled code of a folder, whether they exist or not.

    The place beside the code is for all users who may read the code: an image fills it as another user. The owner of the
    code, or of a folder above it, can run code as us anyway.
    """
    beside = CachePlace(
        path=code / "__pycache__" / name,
        mode=code.stat().st_mode & _NOT_FOR_OTHERS_TO_WRITE | _FOR_THE_USER,
        trusted=frozenset(one.stat().st_uid for one in (code, *code.parents)),
    )
    try:
        return [beside, CachePlace(path=home_cache() / name, mode=_FOR_THE_USER)]
    except RuntimeError:  # a user without a home
        return [beside]


def home_cache() -> Path:
    """Return the user's cache. Raises RuntimeError for a user without a home."""
    return Path.home() / ".cache" / "kafka-archiver"
