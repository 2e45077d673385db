"""Tells when this process was silent for so long that others may have taken its partitions over."""

import threading
import time
from collections.abc import Callable


def steady_s() -> float:
    """Seconds that go on while the process is stopped, and where the system tells it while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class SilenceCounter:
    """Counts silences: spans between two beats longer than the limit. Who noted another count must ask the archive again.

    A process that was stopped wakes up anywhere: whoever asks first, before the next beat, notices the silence too.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = steady_s) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._beat_at_s = clock()
        self._silences = 0

    def beat(self) -> None:
        """Tell that the process is alive, now and then."""
        with self._lock:
            self._look()

    @property
    def silences(self) -> int:
        """How many silences there were, the one that ends now included."""
        with self._lock:
            self._look()
            return self._silences

    def _look(self) -> None:
        now_s = self._clock()
        self._silences += now_s - self._beat_at_s > self._limit_s
        self._beat_at_s = now_s
