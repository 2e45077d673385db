"""Tracks failures of the store, Kafka and the spool. Logs each one at its begin, once an hour, and at its end."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from archiver.errors import (
    ArchiverError,
    KafkaTemporaryError,
    NotLetInError,
    SpoolFullError,
    StoreError,
    StoreLacksError,
    StoreNameError,
    StoreTemporaryError,
)

log = logging.getLogger(__name__)

HELD_BACK: Final = "rule W"  # cause of a put that waits for a role log entry, not for the store
UNREADY_S: Final = 30.0  # after that a process that cannot put reports that it is not ready
_SAID_AGAIN_S: Final = 3600.0


class Dependency(StrEnum):
    """A dependency of all work in a process."""

    STORE = "the store"
    KAFKA = "Kafka"
    SPOOL = "the spool"


@dataclass(slots=True)
class _Trouble:
    since_s: float
    said_s: float | None = None  # when it was logged last
    error: str = ""
    whose: dict[Hashable, bool] = field(default_factory=dict)  # and whether its failure keeps something from being put


class Troubles:
    """Thread-safe. Failing work is named by its partition, or by a word for its kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[tuple[Dependency, str], _Trouble] = {}
        self._worked_s: dict[Dependency, float] = {}

    def note(
        self,
        error: ArchiverError,
        line: str,
        *whose: Hashable,
        level: int = logging.WARNING,
        is_quiet: bool = False,
        stops_puts: bool = True,
    ) -> None:
        """Note a failure, and log the line if it is new. `is_quiet`: it may be over in a moment, and is not logged yet."""
        of = _of(error)
        if of is None:
            if not is_quiet:
                log.log(level, "%s", line)
            return
        with self._lock:
            now_s = self._clock()
            trouble = self._open.setdefault(of, _Trouble(now_s))
            trouble.whose |= dict.fromkeys(whose, stops_puts)
            trouble.error = str(error)
            said_s = trouble.said_s
            if is_quiet or (said_s is not None and now_s - said_s < _SAID_AGAIN_S):
                return
            trouble.said_s = now_s
        lasts = "" if said_s is None else f"; {of[0]} has failed for {_spell(now_s - trouble.since_s)} now"
        log.log(level, "%s%s", line, lasts)

    def note_works(self, who: Hashable, *on: Dependency) -> None:
        """Note that the work of `who` succeeded, so these dependencies work. With none given: nothing is left to do."""
        with self._lock:
            now_s = self._clock()
            self._worked_s |= dict.fromkeys(on, now_s)
            over = self._take(who, on)
        for of, trouble in over:
            if trouble.said_s is not None:
                log.warning("%s works again, after %s", of, _spell(now_s - trouble.since_s))

    def forget(self, who: Hashable) -> None:
        """Drop the failures of `who`, because this process no longer works on it. Logs no recovery."""
        with self._lock:
            self._take(who, ())

    def _take(self, who: Hashable, on: tuple[Dependency, ...]) -> list[tuple[Dependency, _Trouble]]:
        over: list[tuple[Dependency, _Trouble]] = []
        for of, trouble in list(self._open.items()):
            if who in trouble.whose and (not on or of[0] in on):
                del trouble.whose[who]
                if not trouble.whose:
                    over.append((of[0], self._open.pop(of)))
        return over

    @property
    def is_any(self) -> bool:
        return bool(self._open)

    def why_nothing_is_put(self) -> str | None:
        """Return why puts have failed for a while; None: they work, or fail only for a moment."""
        with self._lock:
            now_s = self._clock()
            for (on, _), trouble in self._open.items():
                failed_s = now_s - max(trouble.since_s, self._worked_s.get(on, trouble.since_s))
                if on is not Dependency.KAFKA and failed_s >= UNREADY_S and any(trouble.whose.values()):
                    return f"nothing was put for {_spell(failed_s)}, because {on} fails: {trouble.error}"
        return None


def cause_of_failure(error: ArchiverError) -> str:
    """Return the cause of a failure as a word for metrics."""
    return error.cause if isinstance(error, SpoolFullError) else type(error).__name__


def _of(error: ArchiverError) -> tuple[Dependency, str] | None:
    match error:
        case SpoolFullError():
            return Dependency.SPOOL, ""
        case StoreNameError() | StoreLacksError():
            return None
        case StoreTemporaryError() if error.cause == HELD_BACK:
            return None
        case StoreError() | StoreTemporaryError():
            return Dependency.STORE, ""
        case KafkaTemporaryError() | NotLetInError():  # a wrong password fails every partition alike
            return Dependency.KAFKA, error.cause
        case _:
            return None


def _spell(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
