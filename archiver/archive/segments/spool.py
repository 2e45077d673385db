"""Manages the local files with the blocks of open segments. They are worthless after a crash: Kafka still has the records."""

import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final, cast

from archiver.errors import SpoolFullError, TemporaryError, UsageError

# Not the former name `archiver-spool-`: its versions judge a folder by a PID, so they would delete ours, and do not lock theirs.
_PREFIX: Final = "archiver-blocks-"
_SHARE: Final = 0.8  # of the free space: fetched data needs more
_KEPT_SHARE: Final = 8  # one part in so many of a spool may be kept files
_MOST_KEPT_BYTES: Final = 256 * 1024 * 1024
_IN_MEMORY_BYTES: Final = 1024 * 1024
_KEPT_FROM_BYTES: Final = 1024 * 1024  # a smaller file is not worth keeping
# A full disk has room again with so much free space, or, if that is less, with one part in so many.
_LEAST_ROOM_BYTES: Final = 64 * 1024 * 1024
_LEAST_ROOM_SHARE: Final = 20


class Spool:
    """The files of one process, in its own folder. Thread-safe.

    Used files are kept, within `keeps_bytes`, and overwritten: new pages for each block would cost the kernel up to a
    fourteenth of a backup's CPU (docs/decisions/0012).
    """

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = 2**63,
        keeps_bytes: int = 0,
        keeps_from_bytes: int = _KEPT_FROM_BYTES,
        make_folder: Callable[[], Path] | None = None,
    ) -> None:
        """`make_folder` creates another folder if this one was deleted, as cleaners of temporary files do."""
        self.most_bytes = most_bytes  # bytes in files; writers must respect it
        self._folder = folder
        self._make_folder = make_folder
        self._keeps_bytes = keeps_bytes
        self._keeps_from_bytes = keeps_from_bytes
        self._lock = threading.Lock()
        self._kept: list[tuple[Path, int]] = []

    def new_file(self, name: str) -> Path:
        """Return a file to write from its start; its present content is meaningless."""
        with in_spool(self._folder):
            try:
                made = self._new_file(name)
            except FileNotFoundError:
                self._renew_folder()
                made = self._new_file(name)
            with self._lock:
                kept = self._kept.pop()[0] if self._kept else None
            if kept is not None:
                with suppress(FileNotFoundError):  # another process swept the folder
                    kept.replace(made)
        return made

    def overflow(self) -> IO[bytes]:
        """Return a temporary file without a name, which stays in memory while it is small."""
        return cast("IO[bytes]", tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(self._folder)))

    def _new_file(self, name: str) -> Path:
        handle, made = tempfile.mkstemp(prefix=f"{name}-", suffix=".blocks", dir=self._folder)
        os.close(handle)
        return Path(made)

    def _renew_folder(self) -> None:
        with self._lock:
            if self._make_folder is not None and not self._folder.exists():
                self._folder = self._make_folder()

    def has_room(self) -> bool:
        """Return whether a full disk has room again."""
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return True  # the next write shows it
        return disk.free >= min(_LEAST_ROOM_BYTES, disk.total // _LEAST_ROOM_SHARE)

    def give_back(self, file: Path) -> None:
        """Return a file whose content is no longer needed."""
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
    """Make a spool in a directory (default: the system's directory for temporary files), and delete it in the end."""
    parent = Path(directory or tempfile.gettempdir())
    with ExitStack() as stack:

        def make_folder() -> Path:
            return stack.enter_context(_own_folder(parent))

        try:
            folder = make_folder()
            _sweep(parent)
        except OSError as error:
            raise UsageError(
                f"backup.spool.dir {parent}: {error.strerror}; name a directory that can be written"
            ) from error
        room_bytes = min(most_bytes, int(shutil.disk_usage(folder).free * _SHARE))
        keeps_bytes = min(_MOST_KEPT_BYTES, room_bytes // _KEPT_SHARE)
        yield Spool(folder, most_bytes=room_bytes - keeps_bytes, keeps_bytes=keeps_bytes, make_folder=make_folder)


@contextmanager
def in_spool(path: Path) -> Iterator[None]:
    """Convert an error of a file into one with a next step."""
    try:
        yield
    except FileNotFoundError as error:
        raise TemporaryError(
            f"{path}: was deleted under us; keep cleaners of temporary files off it, or name another directory in"
            " backup.spool.dir. Kafka still has the records"
        ) from error
    except OSError as error:
        kind = SpoolFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else TemporaryError
        raise kind(
            f"{path}: {error.strerror or error}; make room, or name another directory in backup.spool.dir. Kafka still has"
            " the records"
        ) from error


@contextmanager
def _own_folder(parent: Path) -> Iterator[Path]:
    """Make a folder, and lock it while it is ours: a PID has no meaning in another container.

    systemd-tmpfiles also skips a locked folder.
    """
    folder, lock = None, None
    while folder is None:
        parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(BlockingIOError, FileNotFoundError):
            lock = lock_folder(made)
            if made.exists():
                folder = made
            elif lock is not None:  # it was swept before it was locked
                os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep(parent: Path) -> None:
    """Delete folders without a lock: their processes crashed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = lock_folder(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def lock_folder(folder: Path) -> int | None:
    """Lock a folder; None where the file system has no locks: no other process can lock and delete it there, either.

    Raises BlockingIOError when another process holds it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return handle
