"""Keeps other users of this machine out of a local Spark: connections need a secret, and files are private."""

import os
import signal
import tempfile
import time
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
_PREFIX: Final = "archiver-spark-"
_YOUNG_S: Final = 60.0  # a folder may not be locked yet
_LONGEST_SOCKET_PATH: Final = 103  # in bytes: 107 for Linux
_SOCKET: Final = "/.00000000-0000-0000-0000-000000000000.sock"  # as Spark names them


_unowned: Final[set[Path]] = set()  # folders that no JVM deletes yet


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder for all temporary files of a JVM. It is deleted when the block fails; else the JVM deletes it (see leave_to).

    It is locked while this process lives. Those of processes that were killed before the JVM had theirs are deleted here.
    """
    _remove_left(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    _unowned.add(folder)
    lock_folder(folder)
    try:
        yield folder
    except BaseException:
        remove_unowned()
        raise


def own(folder: Path) -> None:
    """Have `remove_unowned` delete a folder, too."""
    _unowned.add(folder)


def leave_to(jvm: Any, folder: Path) -> None:  # noqa: ANN401 - py4j's
    """Have a JVM delete the folder as it ends, also when this process was killed."""
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))
    _unowned.discard(folder)


def remove_unowned() -> None:
    """Delete folders whose JVM is still starting, which is killed, or did not start. Call this before the process ends at once."""
    while _unowned:
        folder = _unowned.pop()
        _kill_children(str(folder).encode())  # a JVM would make its folder again
        rmtree(folder, ignore_errors=True)


def _kill_children(named: bytes) -> None:
    """Kill the children of this process whose command line has a text."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread, or its child, has ended
            for child in listed.read_text().split():
                if named in Path("/proc", child, "cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
                    os.waitpid(int(child), 0)


def _remove_left(parent: Path) -> None:
    """Delete our folders that no process has locked."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            is_young = time.time() - found.st_mtime < _YOUNG_S  # noqa: TID251 - the clock of files
            if found.st_uid == os.getuid() and not is_young and (lock := lock_folder(folder)) is not None:
                rmtree(folder, ignore_errors=True)
                os.close(lock)


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
