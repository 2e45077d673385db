"""What is seen of a run: logs, the names of their fields, and progress."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, Protocol

from archiver.process.defects import call_for_report, write_down
from archiver.process.text import printable, printable_json

if TYPE_CHECKING:
    from rich.status import Status

LogFormat = Literal["text", "json"]

PROGRESS_EVERY_S: Final = 5.0
progress_log: Final = logging.getLogger("archiver.progress")


class LogField(StrEnum):
    """Names for `extra=` in log calls; both formats show these and no other."""

    ACTIVITY = "activity"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    OBJECT_KEY = "object_key"
    SECONDS = "seconds"


def set_up_logs(log_format: LogFormat = "text", *, verbose: bool = False, quiet: bool = False) -> None:
    """All logs go to stderr. Ours of level INFO only when verbose; progress unless quiet. A second call replaces the first."""
    handler = _StderrHandler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _StderrHandler)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("archiver").setLevel(logging.INFO if verbose else logging.WARNING)
    progress_log.setLevel(logging.WARNING if quiet else logging.INFO)


def writes_json() -> bool:
    """Tell whether logs are JSON lines: then a program reads standard error, and every line there must be one."""
    return any(isinstance(handler.formatter, _JsonFormatter) for handler in logging.getLogger().handlers)


@cache
def warn_once(text: str) -> None:
    """Warn of what holds for a whole run, however many parts come across it."""
    logging.getLogger("archiver").warning("%s", text)


class _StderrHandler(logging.Handler):
    """Writes to the stderr of the moment: while a progress line stands there, rich puts its own in between."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except OSError:  # it cannot be written; the run goes on
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
    """Write it to a file, and tell where: a traceback is for who mends the program, not for who runs it."""
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else write_down(error)


class Progress:
    """How far a long activity is: a line that changes on a terminal, a log line every few seconds elsewhere.

    `tell` may be called as often as one likes, from one thread. Elsewhere than on a terminal, what is told before a long silence
    is logged when it is due. `close` also shows the last line that was told.
    """

    def __init__(
        self,
        activity: str,
        *,
        quiet: bool = False,
        every_s: float = PROGRESS_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._activity = activity
        self._quiet = quiet
        self._every_s = every_s
        self._clock = clock
        self._started = self._logged = clock()
        self._untold = ""
        self._due: threading.Timer | None = None
        self._logging = threading.Lock()
        self._status: Status | None = None
        self._on_terminal = not quiet and sys.stderr.isatty()

    def tell(self, text: str) -> None:
        """`text` is how far it is now; it replaces what was told before."""
        if self._quiet:
            return
        if self._on_terminal:
            self._show(text)
            return
        with self._logging:
            self._untold = text
            left_s = self._every_s - (self._clock() - self._logged)
            if left_s <= 0:
                self._log()
            elif self._due is None:
                self._due = threading.Timer(left_s, self._log_rest)
                self._due.daemon = True
                self._due.start()

    def say(self, text: str) -> None:
        """Tell once what does not change: a line at once, on a terminal, too. Elsewhere it tells when the next one comes."""
        if self._quiet:
            return
        left_s = max(0.0, self._every_s - (self._clock() - self._logged))
        soon = "" if self._on_terminal else f"; the next line comes in {spell_seconds(left_s)}"
        progress_log.info("%s%s", text, soon, extra=self._fields())

    def close(self) -> None:
        """May be repeated."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._log_rest()

    def _log_rest(self) -> None:
        with self._logging:
            if self._untold:
                self._log()

    def _show(self, text: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - 50 ms, and on terminals only

        line = Text(printable(f"{self._activity} {self._seconds():.0f} s: {text}"))
        if self._status is not None:
            self._status.update(line)
            return
        from rich.console import Console  # noqa: PLC0415

        console = Console(stderr=True)
        if console.is_dumb_terminal:  # rich shows nothing there
            self._on_terminal = False
            self.tell(text)
            return
        self._status = console.status(line)
        self._status.start()

    def _log(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        progress_log.info("%s", self._untold, extra=self._fields())
        self._logged, self._untold = self._clock(), ""

    def _fields(self) -> dict[str, object]:
        return {LogField.ACTIVITY: self._activity, LogField.SECONDS: round(self._seconds(), 1)}

    def _seconds(self) -> float:
        return self._clock() - self._started


class Pace:
    """How fast something goes, and how long it still takes at that.

    `unit` is of what, as in `records`; of what has none for a reader, no rate is told.
    """

    def __init__(self, unit: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._unit = unit
        self._clock = clock
        self._begun: tuple[float, int] | None = None  # when, and how much was done by then

    def tell(self, done: int, total: int) -> str:
        """Tell of `done` things of `total`; what was done before the first call is not its work."""
        now_s = self._clock()
        begun_s, before = self._begun = self._begun or (now_s, done)
        taken_s, made = now_s - begun_s, done - before
        share = f"{100 * done // total}%" if 0 < total >= done else ""
        if taken_s < 1 or made <= 0:
            return share
        rate = made / taken_s
        left = f"{spell_seconds((total - done) / rate)} left" if done < total else ""
        speed = f"{rate:,.0f} {self._unit}/s" if self._unit and rate >= 10 else ""
        return ", ".join(part for part in (share, speed, left) if part)


def spell_seconds(seconds: float) -> str:
    """Write a time so that it can be read at a glance."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Ledger(Protocol):
    """What a backup tells while it works, from any thread; archiver.backup.metrics keeps it, beyond the life of a writer.

    Causes are words of a small set (of an error class, a code), never free text: each makes a time series for good.
    """

    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None:
        """A segment became durable by us."""

    def hole(self, topic: str, partition: int, *, cause: str, offsets: int) -> None:
        """Offsets could not be had."""

    def fetched(self, topic: str, fetched_bytes: int) -> None:
        """Bytes came from a broker."""

    def retried(self, effect: str, cause: str) -> None:
        """An effect (put, fetch, open, ...) did not work, and is tried again."""

    def failed(self, topic: str, cause: str) -> None:
        """A partition stopped on something that another try may not heal."""

    def branched(self, topic: str) -> None:
        """A log was cut back: an alarm."""


class _NoLedger:
    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None: ...
    def hole(self, topic: str, partition: int, *, cause: str, offsets: int) -> None: ...
    def fetched(self, topic: str, fetched_bytes: int) -> None: ...
    def retried(self, effect: str, cause: str) -> None: ...
    def failed(self, topic: str, cause: str) -> None: ...
    def branched(self, topic: str) -> None: ...


NO_LEDGER: Final[Ledger] = _NoLedger()
