"""Reports the progress of long activities, and their remaining time."""

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from archiver.process.output.text import printable

if TYPE_CHECKING:
    from rich.status import Status
from archiver.process.output.logs import LogField, progress_log
from archiver.process.output.text import spell_count

PROGRESS_EVERY_S: Final = 5.0


class Progress:
    """Shows the progress of an activity: a changing line on a terminal, a log line every few seconds elsewhere.

    `report` may be called at any rate, from one thread. Without a terminal, an early report
    is logged when a line is due, unless a newer one replaced it. `close` logs the last report.
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
        self._still_unchanged = ""
        self._due: threading.Timer | None = None
        self._logging = threading.Lock()
        self._status: Status | None = None
        self._on_terminal = not quiet and sys.stderr.isatty()

    def report(self, text: str) -> None:
        """Report the present progress; this replaces the report before."""
        if self._quiet:
            return
        if self._on_terminal:
            self._show(text)
            return
        with self._logging:
            self._still_unchanged = text
            left_s = self._every_s - (self._clock() - self._logged)
            if left_s <= 0:
                self._log()
            elif self._due is None:
                self._due = threading.Timer(left_s, self._log_rest)
                self._due.daemon = True
                self._due.start()

    def announce(self, text: str) -> None:
        """Log a separate line at once, also on a terminal. Without a terminal the line also gives the interval to the next one."""
        if self._quiet:
            return
        left_s = max(0.0, self._every_s - (self._clock() - self._logged))
        soon = "" if self._on_terminal else f"; the next line comes in {spell_seconds(left_s)}"
        progress_log.info("%s%s", text, soon, extra=self._fields())

    def close(self) -> None:
        """Log the last report, and take the line off the terminal. May be repeated."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._log_rest()

    def _log_rest(self) -> None:
        with self._logging:
            if self._still_unchanged:
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
            self.report(text)
            return
        self._status = console.status(line)
        self._status.start()

    def _log(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        progress_log.info("%s", self._still_unchanged, extra=self._fields())
        self._logged, self._still_unchanged = self._clock(), ""

    def _fields(self) -> dict[str, object]:
        return {LogField.ACTIVITY: self._activity, LogField.SECONDS: round(self._seconds(), 1)}

    def _seconds(self) -> float:
        return self._clock() - self._started


class Eta:
    """The progress of an activity: amount done, rate, and estimated time left.

    `unit` names the counted items, such as `records`; without a unit no rate is shown.
    """

    def __init__(self, unit: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._unit = unit
        self._clock = clock
        self._begun: tuple[float, int] | None = None  # time of the first call, and the amount done by then

    def spell(self, done: int, total: int) -> str:
        """Spell the progress `done` of `total`; the speed counts from the first call on."""
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
    """Spell a time for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def make_reporter(what: str, notice: Callable[[str], None], unit: str = "") -> Callable[[int, int], None]:
    """Announce an activity, and return a function that reports its progress as share, speed and time left.

    No `unit`: it counts tasks of Spark, and their number means nothing to a user.
    """
    notice(what)
    eta = Eta(unit)

    def report_progress(done: int, total: int) -> None:
        notice(f"{what}: {eta.spell(done, total)}")

    return report_progress


def make_asking_reporter(notice: Callable[[str], None]) -> Callable[[int, int], None]:
    """Return a function that reports the number of read facts. That can take long, so the text names storage.index,
    which saves it in archives without other writers.
    """
    report: Callable[[int, int], None] | None = None

    def report_asked(done: int, total: int) -> None:
        nonlocal report
        report = report or make_reporter(
            f"asking {spell_count(total, 'object')} for the facts that decide what is read (storage.index)", notice
        )
        report(done, total)

    return report_asked
