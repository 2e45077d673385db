"""Ctrl-C and SIGTERM, which end a command alike. Where none runs yet, or any more: one line and exit code 4.

This stands before all other imports, and is there before anybody can press it: so it has next to none of its own.
"""

import _signal  # type: ignore[import-not-found]  # what the module signal wraps, without the enums that take it 3 ms
import os

INTERRUPTED = "interrupted; what is in the archive is whole, run the same command again"
EXIT_CODE = 4


def leave(_number: int, _frame: object) -> None:
    """Handle either signal where there is nothing to put away."""
    os.write(2, f"archiver: {INTERRUPTED}\n".encode())
    os._exit(EXIT_CODE)


def leave_when_interrupted() -> None:
    """For a program, at its very beginning. Who ignores one of them (as shells have it for what runs with `&`) goes on doing so."""
    for number in ENDING:
        if _signal.getsignal(number) in {_signal.SIG_DFL, _signal.default_int_handler}:
            _signal.signal(number, leave)


def terminate(_number: int, _frame: object) -> None:
    """Handle SIGTERM as Ctrl-C is handled, once: `timeout` and service managers send it to the group as well."""
    _signal.signal(_signal.SIGTERM, overlook_repeats)
    raise KeyboardInterrupt


def overlook_repeats(_number: int, _frame: object) -> None:
    """Handle each further SIGTERM: what is being put away, and told, comes to its end."""


ENDING = {_signal.SIGINT: _signal.default_int_handler, _signal.SIGTERM: terminate}  # and how, while a command runs
