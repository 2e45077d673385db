"""Keeps other users of this machine out of a local Spark: connections need a secret, and files are private."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from archiver.archive.segments.spool import lock_folder

# Without a secret, strangers could get tasks with passwords from a driver, and run code. With a local master Spark draws
# the secret itself, which is then in no setting, file or process argument.
AUTHENTICATED: Final = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
UMASK: Final = 0o077  # of the JVM and of its workers
_PREFIX: Final = "archiver-jvm-"  # not `archiver-spark-`, the former name: earlier programs do not lock theirs
_MOST_SWEPT: Final = 20  # folders that one start deletes
_LONGEST_SOCKET_PATH: Final = 103  # in bytes: 107 for Linux
_locks: dict[Path, int | None] = {}  # of the folders of this process; None: the file system has no locks
_SOCKET: Final = "/.00000000-0000-0000-0000-000000000000.sock"  # as Spark names them


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder for all temporary files of a JVM. It is deleted when the block fails; else the JVM deletes it (see leave_to)."""
    folder = _make_folder()
    try:
        yield folder
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is deleted at the end of the block."""
    folder = _make_folder()
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _make_folder() -> Path:
    """Make a folder, locked for as long as this process lives, and delete those of processes that were killed."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(BlockingIOError, FileNotFoundError):
            _locks[folder] = lock_folder(folder)
            _sweep_left(folder.parent)
            if folder in _locks:  # else another start has deleted it before it was locked
                return folder


def _sweep_left(parent: Path) -> None:
    """Delete folders of this user without a lock: a signal ended their processes and their JVMs."""
    for gone in [folder for folder in list(_locks) if not folder.exists()]:
        _unlock(_locks.pop(gone, None))
    deleted = 0
    for folder in parent.glob(f"{_PREFIX}*"):
        deleted += folder not in _locks and _delete_left(folder)
        if deleted == _MOST_SWEPT:
            return


def _delete_left(folder: Path) -> bool:
    """Delete a folder if it is this user's, and in use by no process."""
    try:
        lock = lock_folder(folder) if folder.lstat().st_uid == os.geteuid() else None
    except OSError:
        return False
    if lock is not None:
        rmtree(folder, ignore_errors=True)
    _unlock(lock)
    return lock is not None


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def leave_to(jvm: Any, folder: Path) -> None:  # noqa: ANN401 - py4j's
    """Have a JVM delete the folder as it ends, also when this process was killed."""
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def settings_of(folder: Path) -> dict[str, str]:
    """Return settings for Spark to connect to its Python workers by sockets in this folder, if their names fit.

    Else the sockets are TCP with a secret: but Spark's daemon forks a worker for each connection before it asks for that.
    """
    if len(os.fsencode(folder)) + len(_SOCKET) > _LONGEST_SOCKET_PATH:
        return AUTHENTICATED
    return {
        **AUTHENTICATED,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }
