"""Sets up the logs of a run: formats, field names, and the logger of progress."""

import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Final, Literal

from archiver.process.output.defects import call_for_report, write_down
from archiver.process.output.text import printable, printable_json

LogFormat = Literal["text", "json"]

progress_log: Final = logging.getLogger("archiver.progress")


class LogField(StrEnum):
    """Names for `extra=` in log calls; both formats show only these."""

    ACTIVITY = "activity"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    OBJECT_KEY = "object_key"
    SECONDS = "seconds"


def set_up_logs(log_format: LogFormat = "text", *, verbose: bool = False, quiet: bool = False) -> None:
    """Send all logs to stderr: our own of level INFO only when verbose, progress unless quiet. A second call replaces the first."""
    handler = _StderrHandler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _StderrHandler)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("archiver").setLevel(logging.INFO if verbose else logging.WARNING)
    progress_log.setLevel(logging.WARNING if quiet else logging.INFO)


def writes_json() -> bool:
    """Return whether logs are JSON lines: a program reads standard error then, so each line must be JSON."""
    return any(isinstance(handler.formatter, _JsonFormatter) for handler in logging.getLogger().handlers)


@cache
def warn_once(text: str) -> None:
    """Warn once in a run, whatever the number of calls."""
    logging.getLogger("archiver").warning("%s", text)


class _StderrHandler(logging.Handler):
    """Writes to the current sys.stderr, which rich replaces while it shows progress."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except OSError:  # stderr is closed; the run continues
            return
        except Exception as error:  # noqa: BLE001 - nor can it be spelled, which is a defect of ours
            with suppress(OSError):
                sys.stderr.write(f"archiver: a line of the log could not be spelled; {call_for_report(error)}\n")


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        traceback = _traceback(record)
        fields += f" traceback={traceback}" if traceback else ""
        return printable(f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {"time": _moment(record), "level": record.levelname.lower(), "logger": record.name}
        traceback = _traceback(record)
        entry |= {"message": record.getMessage()} | ({"traceback": traceback} if traceback else {})
        return printable_json(json.dumps(entry | _fields(record), default=str, ensure_ascii=False))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {str(name): record.__dict__[name] for name in LogField if name in record.__dict__}


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str:
    """Write the traceback to a file, and log its path: tracebacks are for developers, not for users."""
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else write_down(error)
