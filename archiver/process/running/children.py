"""Starts child processes of the demo, which end with this process even if it is killed."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

# The background shell reads a pipe that only the parent writes to: a line sends it home, end of file means that the parent
# is gone, and then it kills the child's group. `exec` keeps the shell's pid, which is therefore the child's.
_WATCHED: Final = '(read -r _ <"/dev/fd/$0" || kill -KILL -$$) >/dev/null 2>&1 & exec "$@"'


def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:  # noqa: ANN401 - those of Popen
    """Start a process as Popen does, in a session of its own: a Ctrl-C at the terminal reaches this process alone.

    Its stdin is empty unless `options` name one. Poll it or wait for it: only then its watcher ends, too.
    """
    return _Child(command, **{"stdin": subprocess.DEVNULL, **options})


class _Child(subprocess.Popen[Any]):
    def __init__(self, command: Sequence[str], **options: Any) -> None:  # noqa: ANN401
        watched, self._lifeline = os.pipe()
        shell = ["/bin/sh", "-c", _WATCHED, str(watched)]
        try:
            super().__init__([*shell, *command], pass_fds=(watched,), start_new_session=True, **options)
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(watched)

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None:
            self._let_go()
        return code

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self._let_go()
        return code

    def _let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline < 0:
            return
        with suppress(OSError):  # the watcher was killed with the child's group
            os.write(lifeline, b"\n")
        os.close(lifeline)
