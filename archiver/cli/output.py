"""Prints results to standard output, and complaints to standard error. The only module that prints."""

import json
import logging
import os
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from archiver.errors import ArchiverError
from archiver.interrupt import INTERRUPTED
from archiver.process.output.text import printable

_PRINTED_AT_ONCE: Final = 1 << 16
_complaints: Final = deque[str](maxlen=20)


def complain(problem: object) -> None:
    from archiver.process.output.logs import writes_json

    _complaints.append(str(problem))
    if writes_json():
        logging.getLogger("archiver").error("%s", problem)
        return
    with suppress(OSError):  # stderr is closed, or its disk is full; the exit code remains
        print(f"archiver: {printable(str(problem))}", file=sys.stderr)


def is_one_terminal() -> bool:
    """Return whether results and complaints both go to a terminal, where a line in both would be read twice."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def last_complaints() -> list[str]:
    """Return what this process has complained of last."""
    return list(_complaints)


def forget_complaints() -> None:
    _complaints.clear()


def complain_of(error: BaseException) -> None:
    """Print the error that ended a command: one line, or several if the error marks its line breaks as its own."""
    if isinstance(error, KeyboardInterrupt):
        complain(INTERRUPTED)
        return
    for line in error.lines if isinstance(error, ArchiverError) else [error]:
        complain(line)


def print_line(line: str) -> bool:
    """Print one line, escaped: names of objects and topics may have any character."""
    return write(printable(line))


def write(text: str, *, end: str = "\n", flush: bool = False) -> bool:
    """Print a text unescaped. Returns False when the reader has closed the pipe (`| head`): later output is lost,
    and the exit code does not change.
    """
    try:
        print(text, end=end, flush=flush)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    except OSError as error:
        raise cannot_be_written(error) from error
    return True


def cannot_be_written(error: OSError) -> ArchiverError:
    return ArchiverError(f"the output could not be written: {error.strerror}; what is in the archive is whole")


def write_file(path: Path, text: str) -> None:
    """Replace the file at once: a web server or another job may be reading the former one."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise ArchiverError(f"{path}: cannot be written: {error.strerror}; give another FILE") from error


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        if not print_line(line):
            return


def print_json(value: object) -> None:
    """Print a value piece by piece: a hundred thousand rows are 300 MB of pieces."""
    pieces, length = list[str](), 0
    for piece in json.JSONEncoder(indent=1).iterencode(value):  # in ASCII: every other character is escaped
        pieces.append(piece)
        length += len(piece)
        if length > _PRINTED_AT_ONCE:
            if not write("".join(pieces), end=""):
                return
            pieces, length = [], 0
    write("".join(pieces))
