"""What a user reads: results on standard output, complaints on standard error. The only module that prints."""

import json
import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

from archiver.errors import ArchiverError
from archiver.interrupt import INTERRUPTED
from archiver.process.text import printable


def complain(problem: object) -> None:
    from archiver.process.logs import writes_json

    if writes_json():
        logging.getLogger("archiver").error("%s", problem)
        return
    with suppress(OSError):  # nobody hears it, or the disk is full; the exit code says it, too
        print(f"archiver: {printable(str(problem))}", file=sys.stderr)


def complain_of(error: BaseException) -> None:
    """Complain of what ended a command: a line for each that is meant."""
    if isinstance(error, KeyboardInterrupt):
        complain(INTERRUPTED)
        return
    has_lines = isinstance(error, ArchiverError) and error.has_lines
    for line in str(error).split("\n") if has_lines else [error]:
        complain(line)


def print_line(line: str) -> bool:
    """Print one line, whatever is in it: names of objects and topics come from elsewhere."""
    return write(printable(line))


def write(text: str, *, end: str = "\n", flush: bool = False) -> bool:
    """Print as it is. False when nobody reads any more (`| head`): what is printed from then on is lost, and the exit code stays what it is."""
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


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        if not print_line(line):
            return


def print_json(value: object) -> None:
    write(json.dumps(value, indent=1))  # in ASCII, where all that acts is escaped
