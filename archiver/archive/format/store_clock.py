"""Bounds the store's clock by the Last-Modified of objects that this process has put.

All processes note and compare times by the store's clock, so the clocks of their machines need not agree.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from archiver.config.quantities import spell_time
from archiver.errors import StoreError
from archiver.store.port import ObjectStore

WHOLE_SECOND_MS: Final = 1000  # Last-Modified has whole seconds, rounded down
_MOST_APART_MS: Final = 15 * 60 * 1000  # the largest difference of the store's and a machine's clock for deletions
_DRIFT: Final = 0.001  # a gradually corrected clock drifts by at most half of this


def since_boot_s() -> float:
    """Return a monotonic time in seconds. If the system has such a clock, it also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def epoch_ms(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def from_epoch_ms(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment_ms)


def machine_now_ms() -> int:
    return time.time_ns() // 1_000_000


def agreed_now_ms(store: ObjectStore) -> int:
    """Return the store's time. Raises StoreError if this machine's clock is far from it: one of both is wrong."""
    before_ms = machine_now_ms()
    told_ms = epoch_ms(store.now())
    after_ms = machine_now_ms()
    if not before_ms - _MOST_APART_MS <= told_ms <= after_ms + _MOST_APART_MS:
        raise StoreError(
            f"the store's clock says {spell_time(told_ms)}, and this machine's {spell_time(after_ms)}: they differ by more than"
            " 15 minutes, so nothing is deleted by age; set the wrong one right, or that of a proxy in front of the store"
        )
    return told_ms


class _Bound(NamedTuple):
    """A lower or upper bound of the store's clock at an instant of ours."""

    at_s: float
    ms: float

    def reached(self, at_s: float, drift: float) -> float:
        passed_s = at_s - self.at_s
        return self.ms + 1000 * (passed_s + abs(passed_s) * drift)


class StoreClock:
    """Bounds of the store's clock. `mono_s`: a monotonic clock of this machine."""

    def __init__(self, mono_s: Callable[[], float] = since_boot_s) -> None:
        self._mono_s = mono_s
        self._earliest: _Bound | None = None
        self._latest: _Bound | None = None
        self.set_back_ms = 0  # the upper bound of all steps back of the store's clock

    @property
    def is_known(self) -> bool:
        """Return whether an object was already put: before the first put, the store's clock is unknown."""
        return self._earliest is not None

    def note(self, put_started_mono_s: float, put_ended_mono_s: float, last_modified: datetime) -> None:
        """Note the put time of an object by both clocks. Valid only if this very put has made the object."""
        told_ms = epoch_ms(last_modified)
        earliest = _Bound(put_ended_mono_s, told_ms)
        latest = _Bound(put_started_mono_s, told_ms + WHOLE_SECOND_MS)
        if self._contradicts(earliest, latest, put_ended_mono_s):  # the store's clock was set, or ours stopped
            self._note_set_back(earliest, put_ended_mono_s)
            self._earliest, self._latest = earliest, latest
            return
        self._earliest = _closer(max, -_DRIFT, put_ended_mono_s, self._earliest, earliest)
        self._latest = _closer(min, _DRIFT, put_ended_mono_s, self._latest, latest)

    def _note_set_back(self, earliest: _Bound, at_s: float) -> None:
        if self._latest is not None:
            passed_ms = self._latest.reached(at_s, _DRIFT) - earliest.reached(at_s, -_DRIFT)
            self.set_back_ms += max(0, int(passed_ms) + 1)

    def earliest_now_ms(self) -> int:
        """Return a time that the store's clock has surely reached. Raises LookupError before the first put."""
        return self.earliest_ms(self._mono_s())

    def latest_now_ms(self) -> int:
        """Return a time that the store's clock has surely not passed. Raises LookupError before the first put."""
        return self.latest_ms(self._mono_s())

    def earliest_ms(self, at_mono_s: float) -> int:
        """Return a time that the store's clock had surely reached at an instant of ours."""
        return int(_known(self._earliest).reached(at_mono_s, -_DRIFT))

    def latest_ms(self, at_mono_s: float) -> int:
        """Return a time that the store's clock had surely not passed at an instant of ours."""
        return int(_known(self._latest).reached(at_mono_s, _DRIFT)) + 1

    def _contradicts(self, earliest: _Bound, latest: _Bound, at_s: float) -> bool:
        if self._earliest is None or self._latest is None:
            return True
        is_later = earliest.reached(at_s, -_DRIFT) > self._latest.reached(at_s, _DRIFT)
        return is_later or latest.reached(at_s, _DRIFT) < self._earliest.reached(at_s, -_DRIFT)


def _closer(
    choose: Callable[[float, float], float], drift: float, at_s: float, known: _Bound | None, told: _Bound
) -> _Bound:
    """Return the closer bound of the store's clock."""
    if known is None:
        return told
    return _Bound(at_s, choose(known.reached(at_s, drift), told.reached(at_s, drift)))


def _known(bound: _Bound | None) -> _Bound:
    if bound is None:
        raise LookupError("nothing is known of the store's clock before an object was put")
    return bound
