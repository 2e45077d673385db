"""Puts a note each minute about how far a service is, and calls `backup.heartbeat.url` once all known records are durable."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import wait
from dataclasses import replace
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.run_notes import EVERY_S, MOST_NAMED, Outcome, RunKind, RunNote, as_problems, put_run_note
from archiver.backup.reports.metrics import PartitionState
from archiver.backup.service.vitals import WorkerVitals
from archiver.config.model import ArchiverConfig
from archiver.config.quantities import spell_exact_duration, spell_exact_size
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_some
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_FIRST_S: Final = 10.0  # a group assigns partitions within a few seconds
_UNSEEN_MS: Final = 5_000  # the age of a record that brokers have not reported yet
_CALL_LIMIT_S: Final = 10.0
_END_LIMIT_S: Final = 2.0
_MOST_NAMED: Final = 20  # failing partitions


class Heartbeats:
    """The heartbeats of one process. `instance`: its name, if it copies compacted topics."""

    def __init__(
        self,
        config: ArchiverConfig,
        kind: RunKind,
        vitals: WorkerVitals,  # type: ignore[type-arg] # of either worker
        *,
        instance: str = "",
        next_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._kind = kind
        self._vitals = vitals
        self._url = config.backup.heartbeat.url
        self._limits = {**limits_of(config), **({"instance": instance} if instance else {})}
        self._next_ms = next_ms
        self._name = secrets.token_hex(8)
        self._began_s = time.monotonic()
        self._goal: dict[TopicPartition, int] | None = None
        self._last: tuple[Archive, RunNote] | None = None
        self._reported = {"note": "", "call": ""}

    async def run(self, archive: Archive) -> None:
        """Put a note every minute, until cancelled. Failures are logged, and stop nothing."""
        pool = Workers(1, "heartbeat")  # a store that hangs must not hold up other work
        try:
            await asyncio.sleep(_FIRST_S)
            while True:
                await pool.call(self._beat, archive)
                await asyncio.sleep(EVERY_S)
        finally:
            pool.shutdown(wait=False)

    def end(self) -> None:
        """Put the last note again as that of an orderly end. A store that does not answer in two seconds gets none."""
        if self._last is not None:
            archive, last = self._last
            note = replace(last, outcome=Outcome.DONE, took_ms=self._took_ms(), problems=(), next_ms=None)
            wait([Workers(1, "heartbeat").submit(put_run_note, archive, note)], _END_LIMIT_S)

    def _beat(self, archive: Archive) -> None:
        try:
            note = self._note(epoch_ms(archive.store.now()))
            self._last = archive, note
            self._report("note", put_run_note(archive, note))
            self._report("call", self._call_if_durable())
        except Exception as error:  # noqa: BLE001 - no service stops because of its notes
            self._report("note", str(as_ours(error, "heartbeat")))

    def _note(self, store_ms: int) -> RunNote:
        states = list(self._vitals.states())
        behind_ms = behind_ms_of(states, self._vitals.clock_ms())
        return RunNote(
            kind=self._kind,
            name=self._name,
            outcome=Outcome.RUNNING,
            took_ms=self._took_ms(),
            durable_through_ms=None if behind_ms is None else max(0, store_ms - behind_ms),
            partitions=len(states),
            problems=as_problems(filter(None, (self._vitals.why_not_ready(), _failing(states)))),
            limits=self._limits,
            gone=tuple(sorted(self._vitals.gone_topics())[:MOST_NAMED]),
            next_ms=self._next_ms(),
        )

    def _took_ms(self) -> int:
        return round(1000 * (time.monotonic() - self._began_s))

    def _report(self, what: str, problem: str) -> None:
        """Log a problem once, until it changes; none while the service is not ready, as it has logged the reason."""
        if problem and self._vitals.why_not_ready() is not None:
            return
        if problem and problem != self._reported[what]:
            log.warning("%s", problem)
        self._reported[what] = problem

    def _call_if_durable(self) -> str:
        """Call the URL if everything known at the start of this round is durable. Returns the problem; empty: none."""
        if not self._url:
            return ""
        states = {(one.topic, one.partition): one for one in self._vitals.states() if not one.is_left}
        is_well = self._vitals.why_not_ready() is None and bool(states) and not any(map(_is_unknown, states.values()))
        ends = {which: one.high_watermark or 0 for which, one in states.items()} if is_well else None
        goal, self._goal = self._goal, ends
        if ends is None or goal is None or not goal.keys() <= ends.keys():
            return ""
        if all(states[which].position >= end for which, end in goal.items()):
            return call_heartbeat(self._url)
        self._goal = goal
        return ""


def _is_unknown(state: PartitionState) -> bool:
    """Return whether a partition may have records that this process has not seen."""
    is_silent = state.pending_since_s is not None and not state.lag_offsets
    return state.is_failing or state.is_opening or state.high_watermark is None or is_silent


def call_heartbeat(url: str) -> str:
    """Call a URL with GET. Returns the problem; empty: none."""
    from urllib.request import urlopen  # noqa: PLC0415 - most services have no URL

    try:
        with urlopen(url, timeout=_CALL_LIMIT_S):  # noqa: S310 - the configuration takes http and https alone
            return ""
    except (OSError, ValueError) as error:  # without the URL: it is often a secret
        return f"backup.heartbeat.url: the call failed: {error}"


def behind_ms_of(states: Collection[PartitionState], now_ms: int) -> int | None:
    """Return the largest age of a record that is not archived yet; None: unknown, or no partition is assigned."""
    own = [one for one in states if not one.is_left]
    if not own or any(one.high_watermark is None and one.pending_since_s is None for one in own):
        return None
    ages_s = [max(one.pending_age_s(now_ms) or 0, one.pending_since_s or 0) for one in own]
    return max(_UNSEEN_MS, round(1000 * max(ages_s)))


def _failing(states: Sequence[PartitionState]) -> str:
    failing = [f"{one.topic}-{one.partition}" for one in states if one.is_failing]
    return f"failing: {spell_some(failing, _MOST_NAMED)}" if failing else ""


def limits_of(config: ArchiverConfig) -> dict[str, str]:
    """Return the settings that limit the lag and the memory of a backup."""
    backup = config.backup
    return {
        "backup.segment.age": spell_exact_duration(backup.segment.age_ms),
        "backup.memory": spell_exact_size(backup.memory_bytes),
        "backup.unreadable": str(backup.unreadable),
    }
