"""Keeps other users of this machine out of a local Spark: connections need a secret, and files are private."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

# Without a secret, strangers could get tasks with passwords from a driver, and run code. With a local master Spark draws
# the secret itself, which is then in no setting, file or process argument.
AUTHENTICATED: Final = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
UMASK: Final = 0o077  # of the JVM and of its workers
_PREFIX: Final = "archiver-jvm-"
_LONGEST_SOCKET_PATH: Final = 103  # in bytes: 107 for Linux
_SOCKET: Final = "/.00000000-0000-0000-0000-000000000000.sock"  # as Spark names them


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder for all temporary files of a JVM. It is deleted when the block fails; else the JVM deletes it (see leave_to)."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        yield folder
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise


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
