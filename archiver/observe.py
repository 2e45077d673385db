"""Logs and progress: how the archiver tells what it does, beside its results."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Literal

LogFormat = Literal["text", "json"]
_PROGRESS_EVERY_S = 5.0
# Libraries that report at ERROR what is retried here and reported once it fails.
_NOISY = ("aiokafka", "botocore", "urllib3", "py4j", "werkzeug", "numba")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def set_up_logs(log_format: LogFormat, *, verbose: bool) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if log_format == "json" else plain)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class Progress:
    """Says now and then how far long work is: one line that is rewritten on a terminal, plain lines elsewhere."""

    def __init__(self, what: str, *, clock: Callable[[], float] = time.monotonic, quiet: bool = False) -> None:
        self._what = what
        self._clock = clock
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._started_s = clock()
        self._last_s = self._started_s
        self._drawn = False

    def tell(self, done: str) -> None:
        """Show the state, if the last time was long enough ago."""
        now_s = self._clock()
        if self._quiet or now_s - self._last_s < (0.2 if self._terminal else _PROGRESS_EVERY_S):
            return
        self._last_s = now_s
        line = f"{self._what}: {done} ({now_s - self._started_s:.0f} s)"
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            self._drawn = True
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
