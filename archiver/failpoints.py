"""Named places between two effects, at which a test may have the process killed. Without a name armed they cost nothing."""

import os
import signal

_armed: dict[str, int] = {}


def arm(text: str) -> None:
    """`name` or `name:count`: die by SIGKILL when the place is reached for the count-th time. Empty: never."""
    _armed.clear()
    if text:
        name, _, count = text.partition(":")
        _armed[name] = int(count or 1)


def reach(name: str) -> None:
    """Tell that the place is reached."""
    if name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
