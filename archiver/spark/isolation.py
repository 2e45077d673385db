"""What keeps other users of this machine out of a Spark that runs on it: connections need a secret, and files are ours alone."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

# A stranger who may ask can have anything of a driver: tasks with passwords, and code run. With a local master Spark draws
# the secret itself, which is then in no setting, file or process argument.
AUTHENTICATED: Final = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
UMASK: Final = 0o077  # of the JVM and of its workers
_PREFIX: Final = "archiver-spark-"
_STALE_S: Final = 3600  # no start of a JVM takes so long, and from then on its folder is not empty
_LONGEST_SOCKET_PATH: Final = 103  # in bytes: 107 for Linux
_SOCKET: Final = "/.00000000-0000-0000-0000-000000000000.sock"  # as Spark names them


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder for all temporary files of a JVM. It is deleted when the block fails; else the JVM deletes it (see leave_to)."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        _sweep_stale(folder)
        yield folder
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise


def _sweep_stale(folder: Path) -> None:
    """Delete folders of processes that a signal ended while their JVM started: these are empty, for no JVM had them yet."""
    oldest_s = folder.stat().st_mtime - _STALE_S
    for left in folder.parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # the folder is somebody else's, or a JVM's, and then not empty
            if left.lstat().st_mtime < oldest_s:
                left.rmdir()


def leave_to(jvm: Any, folder: Path) -> None:  # noqa: ANN401 - py4j's
    """Have a JVM delete the folder as it ends, which it does also when this process was killed."""
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def settings_of(folder: Path) -> dict[str, str]:
    """Return what makes a new Spark talk to its Python workers by sockets in this folder, where their names fit.

    Else the sockets are TCP with a secret: but Spark's daemon forks a worker for each connection before it asks for that.
    """
    if len(os.fsencode(folder)) + len(_SOCKET) > _LONGEST_SOCKET_PATH:
        return AUTHENTICATED
    return {
        **AUTHENTICATED,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }
