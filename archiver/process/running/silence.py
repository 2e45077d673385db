"""Counts silences of this process that are long enough for others to have taken over its partitions."""

import threading
import time
from collections.abc import Callable


def steady_s() -> float:
    """Return seconds of a clock that runs while the process is stopped and, if the system has one, while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class SilenceCounter:
    """Counts silences: spans between two beats that are longer than the limit.

    A writer notes the count. When the count has changed, others may have written meanwhile: it must read the archive again.
    A stopped process may wake up anywhere: reading the count ends a silence as a beat does.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = steady_s) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._beat_at_s = clock()
        self._silences = 0

    def beat(self) -> None:
        """Note that the process is alive. Call this more often than the limit."""
        with self._lock:
            self._end_span()

    @property
    def silences(self) -> int:
        """The number of silences, including one that this call ends."""
        with self._lock:
            self._end_span()
            return self._silences

    def _end_span(self) -> None:
        now_s = self._clock()
        self._silences += now_s - self._beat_at_s > self._limit_s
        self._beat_at_s = now_s
