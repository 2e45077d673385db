"""Executors of a cluster on this machine: their JVMs, and the Python below them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import command_of, descendants, folder_of, parent_of, state_of
from tests.support.restore_kills import DAEMON

_BACKEND = "CoarseGrainedExecutorBackend"
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Executor:
    """A JVM, its daemon, and the worker that this has forked for its one core."""

    jvm: int
    daemon: int
    worker: int

    @property
    def stands(self) -> bool:
        return state_of(self.worker) == "T"

    @property
    def is_gone(self) -> bool:
        return state_of(self.worker) in {"", "Z"}

    def lose(self) -> None:
        """Let Spark lose it, while its worker lives on: as on a machine that nobody reaches any more, it only stands still.

        Its daemon would end the worker when the JVM is gone, so it stands still, too.
        """
        for pid in (self.worker, self.daemon):
            os.kill(pid, signal.SIGSTOP)
        end_s = time.monotonic() + _STOP_S
        while not self.stands:
            assert time.monotonic() < end_s, f"worker {self.worker} does not stop"
            time.sleep(0.01)
        os.kill(self.jvm, signal.SIGKILL)

    def wake(self) -> None:
        os.kill(self.worker, signal.SIGCONT)

    def end(self) -> None:
        """Nothing of it stays behind."""
        for pid in (self.worker, self.daemon, self.jvm):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def executors_in(folder: Path) -> Iterator[Executor]:
    """Those of this process's clusters that work in a folder, run `python_that_stops_once`, and have a worker."""
    for jvm in descendants(os.getpid()):
        if _BACKEND not in command_of(jvm) or not folder_of(jvm).startswith(str(folder)):
            continue
        for pid in descendants(jvm):
            daemon = parent_of(pid)
            if DAEMON in command_of(daemon) and DAEMON in command_of(parent_of(daemon)):
                yield Executor(jvm, daemon, pid)


def python_that_stops_once(path: Path, python: str, failpoint: str) -> Path:
    """An interpreter for executors: the workers of the first one that is started, and no other's, stand still at a failpoint.

    Its shell stays the daemon's parent: a process group that becomes orphaned while some of it stands still is sent
    SIGHUP and SIGCONT by Linux, and the worker would end with its JVM.
    """
    path.write_text(
        "#!/bin/sh\n"
        f"if mkdir '{path}.taken' 2>/dev/null; then export ARCHIVER_FAILPOINT={failpoint}:stop; fi\n"
        f"'{python}' \"$@\"\n"
    )
    path.chmod(0o755)
    return path
