"""Failpoints: named places between two effects where a test kills or stops the process. Unarmed, they cost nothing."""

import os
import signal

_armed: dict[str, tuple[int, signal.Signals]] = {}


def arm(text: str) -> None:
    """Choose the place: `name` or `name:count`: die by SIGKILL when it is reached for the count-th time. Empty: never.

    `name:count:stop`: stop there until SIGCONT.
    """
    _armed.clear()
    if text:
        name, _, rest = text.partition(":")
        count, _, how = rest.partition(":")
        _armed[name] = int(count or 1), signal.SIGSTOP if how == "stop" else signal.SIGKILL


def reach(name: str) -> None:
    """Mark a place: the process dies or stops here, if the place is armed."""
    if name not in _armed:
        return
    left, number = _armed[name]
    _armed[name] = left - 1, number
    if left == 1:
        os.kill(os.getpid(), number)
