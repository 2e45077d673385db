"""What is seen of a run: logs, the names of their fields, and progress."""

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from archiver.defects import write_down

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


def set_up_logs(log_format: LogFormat = "text", *, verbose: bool = False) -> None:
    """All logs go to stderr. Ours of level INFO only when verbose; progress always. A second call replaces the first."""
    handler = _StderrHandler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _StderrHandler)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("archiver").setLevel(logging.INFO if verbose else logging.WARNING)
    progress_log.setLevel(logging.INFO)
    # It tells each failed connection, many a second; what matters of them comes back to us as an exception.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def writes_json() -> bool:
    """Tell whether logs are JSON lines: then a program reads standard error, and every line there must be one."""
    return any(isinstance(handler.formatter, _JsonFormatter) for handler in logging.getLogger().handlers)


class _StderrHandler(logging.Handler):
    """Writes to the stderr of the moment: while a progress line stands there, rich puts its own in between."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - a log line that cannot be written must not end the run
            self.handleError(record)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        traceback = _traceback(record)
        fields += f" traceback={traceback}" if traceback else ""
        return f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {"time": _moment(record), "level": record.levelname.lower(), "logger": record.name}
        traceback = _traceback(record)
        entry |= {"message": record.getMessage()} | ({"traceback": traceback} if traceback else {})
        return json.dumps(entry | _fields(record), default=str, ensure_ascii=False)


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

    `tell` may be called as often as one likes, from one thread. `close` also shows the last line that was told.
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
        self._status: Status | None = None
        self._on_terminal = not quiet and sys.stderr.isatty()

    def tell(self, text: str) -> None:
        """`text` is how far it is now; it replaces what was told before."""
        if self._quiet:
            return
        if self._on_terminal:
            self._show(text)
            return
        self._untold = text
        if self._clock() - self._logged >= self._every_s:
            self._log()

    def close(self) -> None:
        """May be repeated."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._untold:
            self._log()

    def _show(self, text: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - 50 ms, and on terminals only

        line = Text(f"{self._activity} {self._seconds():.0f} s: {text}")
        if self._status is not None:
            self._status.update(line)
            return
        from rich.console import Console  # noqa: PLC0415

        self._status = Console(stderr=True).status(line)
        self._status.start()

    def _log(self) -> None:
        fields: dict[str, object] = {LogField.ACTIVITY: self._activity, LogField.SECONDS: round(self._seconds(), 1)}
        progress_log.info("%s", self._untold, extra=fields)
        self._logged, self._untold = self._clock(), ""

    def _seconds(self) -> float:
        return self._clock() - self._started


class Pace:
    """How fast something goes, and how long it still takes at that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
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
        left_s = max(0, total - done) / rate
        speed = f"{rate:,.0f}/s" if rate >= 10 else ""
        return ", ".join(part for part in (share, speed, f"{spell_seconds(left_s)} left") if part)


def spell_seconds(seconds: float) -> str:
    """Write a time so that it can be read at a glance."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Ledger(Protocol):
    """What a backup tells while it works, from any thread; archiver.metrics keeps it, beyond the life of a writer.

    Causes are words of a small set (of an error class, a code), never free text: each makes a time series for good.
    """

    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None:
        """A segment became durable by us."""

    def hole(self, topic: str, *, cause: str, offsets: int) -> None:
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
    def hole(self, topic: str, *, cause: str, offsets: int) -> None: ...
    def fetched(self, topic: str, fetched_bytes: int) -> None: ...
    def retried(self, effect: str, cause: str) -> None: ...
    def failed(self, topic: str, cause: str) -> None: ...
    def branched(self, topic: str) -> None: ...


NO_LEDGER: Final[Ledger] = _NoLedger()
