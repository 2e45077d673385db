"""Handles unexpected exceptions: writes the traceback to a file, and reports the file name to the user."""

import os
import tempfile
import traceback
from pathlib import Path
from typing import Final

from archiver.errors import ArchiverError
from archiver.process.output.text import printable

_PREFIX, _SUFFIX = "archiver-defect-", ".txt"
_HEAD: Final = (
    "Look through this file before you send it to anybody: the text of an error may quote parts of records, names and"
    " addresses.\n\n"
)
_written: Final[
    dict[tuple[str, str, int], str]
] = {}  # by place in the code: a place that fails every minute makes one file


def as_ours(error: BaseException, where: object = "") -> ArchiverError:
    """Return an ArchiverError unchanged, and wrap any other exception in an error that asks for a bug report."""
    if isinstance(error, ArchiverError):
        return error
    place = f"{where}: " if str(where) else ""
    return ArchiverError(
        f"{place}unexpected {type(error).__name__}: {error}; this is a defect of the archiver: {call_for_report(error)}"
    )


def call_for_report(error: BaseException) -> str:
    """Write a traceback to a file. Returns a sentence that asks to report it."""
    return f"please report it, with {write_down(error)} (look through it first: parts of records may be in it)"


def write_down(error: BaseException) -> str:
    """Write a traceback to a file of its own. Returns the file's path."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = (type(error).__name__, last.filename if last else "", (last.lineno or 0) if last else 0)
    if place not in _written or not Path(_written[place]).exists():
        try:
            handle, path = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX)  # mode 0600
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                text = _HEAD + "".join(traceback.format_exception(error))
                file.writelines(f"{printable(line)}\n" for line in text.removesuffix("\n").split("\n"))
        except OSError as reason:
            return f"its traceback, which could not be written to {tempfile.gettempdir()} ({reason.strerror})"
        _written[place] = path
    return _written[place]
