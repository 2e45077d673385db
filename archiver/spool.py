"""Local files that hold the blocks of open segments. They mean nothing after a crash: Kafka is the truth."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from archiver.errors import TemporaryError, UsageError

_PREFIX: Final = "archiver-spool-"
_SHARE: Final = 0.8  # of what is free: what is fetched already comes on top
_KEPT_SHARE: Final = 8  # of all that a spool may take, one part so large is for files that wait to be written over
_MOST_KEPT_BYTES: Final = 256 * 1024 * 1024
_KEPT_FROM_BYTES: Final = 1024 * 1024  # a smaller file is not worth it


class Spool:
    """The files of one process, in a folder of its own. Safe for many threads.

    Files that are done with are kept, as many as `keeps_bytes` allow, to be written over: finding new pages for each block
    takes the kernel up to a fourteenth of a backup's CPU (docs/decisions/0012).
    """

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = 2**63,
        keeps_bytes: int = 0,
        keeps_from_bytes: int = _KEPT_FROM_BYTES,
    ) -> None:
        self.most_bytes = most_bytes  # of what is held in files, for whoever fills them to keep to
        self._folder = folder
        self._keeps_bytes = keeps_bytes
        self._keeps_from_bytes = keeps_from_bytes
        self._lock = threading.Lock()
        self._kept: list[tuple[Path, int]] = []

    def new_file(self, name: str) -> Path:
        """Return a file to write to from its start; what it holds already means nothing."""
        with in_spool(self._folder):
            handle, made = tempfile.mkstemp(prefix=f"{name}-", suffix=".blocks", dir=self._folder)
            os.close(handle)
            with self._lock:
                kept = self._kept.pop()[0] if self._kept else None
            if kept is not None:
                with suppress(FileNotFoundError):  # someone swept the folder
                    kept.replace(made)
        return Path(made)

    def give_back(self, file: Path) -> None:
        """Take a file whose content nobody needs any more."""
        with suppress(FileNotFoundError):
            size = file.stat().st_size
            with self._lock:
                if size >= self._keeps_from_bytes and sum(kept for _, kept in self._kept) + size <= self._keeps_bytes:
                    place = file.with_name(f"kept-{file.name}")
                    file.replace(place)
                    self._kept.append((place, size))
                    return
        file.unlink(missing_ok=True)


@contextmanager
def open_spool(directory: Path | None, most_bytes: int) -> Iterator[Spool]:
    """Make a spool in a directory (default: the system's for temporary files), and delete it in the end."""
    folder = _make_folder(directory)
    try:
        room_bytes = min(most_bytes, int(shutil.disk_usage(folder).free * _SHARE))
        keeps_bytes = min(_MOST_KEPT_BYTES, room_bytes // _KEPT_SHARE)
        yield Spool(folder, most_bytes=room_bytes - keeps_bytes, keeps_bytes=keeps_bytes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def in_spool(path: Path) -> Iterator[None]:
    """Say of an error what it was about, and what to do."""
    try:
        yield
    except OSError as error:
        raise TemporaryError(
            f"{path}: {error.strerror or error}; make room, or name another directory in backup.spool.dir. Kafka still has"
            " the records"
        ) from error


def _make_folder(directory: Path | None) -> Path:
    """Make one for this process, and sweep those that crashed ones left."""
    parent = Path(directory or tempfile.gettempdir())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for stale in parent.glob(f"{_PREFIX}*"):
            owner = stale.name.removeprefix(_PREFIX).partition("-")[0]
            if owner.isdecimal() and not _is_alive(int(owner)):
                shutil.rmtree(stale, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise UsageError(
            f"backup.spool.dir {parent}: {error.strerror}; name a directory that can be written"
        ) from error


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
