"""Handles Ctrl-C and SIGTERM alike. Before and after a command's run, they end the process with one line and exit code 4.

This module is imported before all others, so that Ctrl-C is handled from the start: it imports almost nothing.
"""

import _signal  # type: ignore[import-not-found]  # what the module signal wraps, without the enums that take it 3 ms
import os

INTERRUPTED = "interrupted; what is in the archive is whole, run the same command again"
EXIT_CODE = 4


def leave(_number: int, _frame: object) -> None:
    """End the process at once: it has nothing to clean up."""
    os.write(2, f"archiver: {INTERRUPTED}\n".encode())
    os._exit(EXIT_CODE)


def leave_when_interrupted() -> None:
    """Call this first. A signal that this process ignores (as shells set it for commands with `&`) stays ignored."""
    for number in ENDING:
        if _signal.getsignal(number) in {_signal.SIG_DFL, _signal.default_int_handler}:
            _signal.signal(number, leave)


def terminate(_number: int, _frame: object) -> None:
    """Handle the first SIGTERM as Ctrl-C is handled: `timeout` and service managers send SIGTERM to the whole group."""
    _signal.signal(_signal.SIGTERM, overlook_repeats)
    raise KeyboardInterrupt


def overlook_repeats(_number: int, _frame: object) -> None:
    """Ignore each further SIGTERM, so that the first one's cleanup can finish."""


ENDING = {
    _signal.SIGINT: _signal.default_int_handler,
    _signal.SIGTERM: terminate,
}  # the signals that end a command, and their handlers while one runs
