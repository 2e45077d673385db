"""Defects of ours, and of libraries: the traceback goes to a file, of which the user is told the name."""

import os
import tempfile
import traceback
from typing import Final

from archiver.errors import ArchiverError

_written: Final[dict[tuple[str, str, int], str]] = {}  # a place that fails every minute makes one file


def as_ours(error: BaseException, where: object = "") -> ArchiverError:
    """Return an error as it is, or a defect as an error that asks for a report."""
    if isinstance(error, ArchiverError):
        return error
    place = f"{where}: " if str(where) else ""
    return ArchiverError(
        f"{place}unexpected {type(error).__name__}: {error}; this is a defect of the archiver: please report it, with"
        f" {write_down(error)}"
    )


def write_down(error: BaseException) -> str:
    """Write a traceback to a file of its own. Returns the file's path."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = (type(error).__name__, last.filename if last else "", (last.lineno or 0) if last else 0)
    if place not in _written:
        try:
            handle, path = tempfile.mkstemp(prefix="archiver-defect-", suffix=".txt")
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                file.writelines(traceback.format_exception(error))
        except OSError as reason:
            return f"its traceback, which could not be written to {tempfile.gettempdir()} ({reason.strerror})"
        _written[place] = path
    return _written[place]
