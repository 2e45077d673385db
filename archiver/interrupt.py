"""Ctrl-C where no command runs yet, or any more: one line and exit code 4.

This stands before all other imports, and is there before anybody can press it: so it has next to none of its own.
"""

import _signal  # type: ignore[import-not-found]  # what the module signal wraps, without the enums that take it 3 ms
import os

INTERRUPTED = "interrupted; what is in the archive is whole, run the same command again"
EXIT_CODE = 4


def leave(_number: int, _frame: object) -> None:
    """Handle SIGINT."""
    os.write(2, f"archiver: {INTERRUPTED}\n".encode())
    os._exit(EXIT_CODE)


def leave_when_interrupted() -> None:
    """For a program, at its very beginning. Who ignores Ctrl-C (nohup) goes on doing so."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)
