"""A generation that this process fills: its feed, and its freshness by rule W. Used by the partition's turn."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from archiver.archive.copies.moments import Moment
from archiver.archive.segments.segment_facts import HoleCause
from archiver.archive.segments.segment_writer import FinishedSegment
from archiver.backup.compacted.turn.freshness import Answer, Freshness, note_answer, note_durable, note_limit, set_back
from archiver.backup.compacted.turn.turn_decisions import Broke, Event, FetchEvent, Put
from archiver.backup.partition.feed import NO_END_OFFSET, Feed
from archiver.backup.reports.troubles import HELD_BACK
from archiver.errors import StoreTemporaryError
from archiver.kafka.records import fetch

log = logging.getLogger(__name__)


class Clock(Protocol):
    """The store's clock, as two bounds."""

    set_back_ms: int  # the total by which it was set back

    def earliest_ms(self, at_s: float) -> int:
        """Return a time that the store's clock had surely reached at a time of this process's clock."""

    def latest_ms(self, at_s: float) -> int:
        """Return a time that the store's clock had surely not passed."""


class HeldBackError(StoreTemporaryError):
    """The current copy may have missed tombstones: nothing is put before its role log has noted that."""


@dataclass(slots=True, kw_only=True, eq=False)
class CopyFeedWatch:
    """Watches the feed of a generation. `tell` passes events to the turn."""

    generation: int
    clock: Clock
    now_s: Callable[[], float]
    limit_ms: Callable[[], int]  # the present retention of tombstones, less the margin
    tell: Callable[[Event], object]
    wake: Callable[[], None]  # survey the partition soon
    wants_end: Callable[[], bool]  # whether to stop as soon as it is complete
    may_put: Callable[[], bool]
    fresh: Freshness
    is_unsure: bool
    set_back_ms: int = 0  # the part of the clock's set-back that is taken in
    try_again_s: float = 0.0  # time of the next stop for a switch
    feed: Feed = field(init=False)

    def watch(self, feed: Feed) -> None:
        self.feed = feed
        feed.watch = self

    # --- events of the feed

    def note_answer(self, feed: Feed, answer: fetch.Fetched, asked_s: float) -> None:
        """Take in a broker's answer. Brokers with topic ids (3.1) keep tombstones long enough."""
        if answer.error is not None:
            return
        is_of_leader = feed.fetches.replica is None
        self._keep_to_clock()
        if is_of_leader and not self.is_unsure:
            now_s = self.now_s()
            self.fresh = note_answer(
                self.fresh,
                Answer(
                    asked_ms=self.clock.earliest_ms(asked_s),
                    received_ms=self.clock.latest_ms(now_s),
                    last_stable=answer.last_stable_offset,
                    position=feed.writer.position,
                    limit_ms=self.limit_ms(),
                ),
            )
            if self.fresh.is_broken or not answer.by_topic_id:
                self._break()
        self.tell(FetchEvent(self.generation, feed.fetches.offset, answer.last_stable_offset, is_of_leader))
        is_complete = is_of_leader and feed.fetches.offset >= answer.last_stable_offset
        if is_complete and self.wants_end() and self.now_s() >= self.try_again_s:
            feed.fetches.pause()
            self.wake()

    def note_skip(self, feed: Feed, cause: HoleCause) -> None:
        """Become unsure if records expired behind the read ones: they may have replaced or deleted some of these."""
        has_records = feed.writer.newest_base is not None or feed.writer.holds_records
        if cause is HoleCause.EXPIRED and has_records and not self.is_unsure:
            log.warning(
                "%s: generation %d is unsure from now on: records expired before they were read",
                feed.source,
                self.generation,
            )
            self._break()

    def _break(self) -> None:
        """Become unsure, and notify the turn at once: a current copy puts nothing before its role log has noted that."""
        self.is_unsure = True
        self.tell(Broke(self.generation))
        self.wake()

    def note_set_back(self, feed: Feed) -> None:
        self.tell(FetchEvent(self.generation, feed.fetches.offset, NO_END_OFFSET, is_of_leader=False))

    # --- called by the turn

    def report_durable(self) -> None:
        """Report the end in storage to the turn."""
        writer = self.feed.writer
        self.tell(Put(self.generation, writer.durable_position, writer.objects_end))

    def moment(self) -> Moment | None:
        """Return the newest moment that is completely in storage; None once the rule was broken."""
        if self.is_unsure:
            return None
        self._keep_to_clock()
        self.fresh = note_durable(self.fresh, self.feed.writer.durable_position)
        return self.fresh.durable

    def check_time(self) -> bool:
        """Check the elapsed time. Returns whether it breaks the rule just now."""
        if self.is_unsure:
            return False
        self._keep_to_clock()
        self.fresh = note_limit(self.fresh, self.clock.latest_ms(self.now_s()), self.limit_ms())
        self.is_unsure = self.fresh.is_broken
        return self.is_unsure

    def _keep_to_clock(self) -> None:
        told_ms = self.clock.set_back_ms
        if told_ms > self.set_back_ms:
            self.fresh, self.set_back_ms = set_back(self.fresh, told_ms - self.set_back_ms), told_ms

    def refuse_put(self, held: FinishedSegment) -> None:
        """Raise HeldBackError if a current copy may lack a tombstone that its role log has not noted. Called in the writer's thread."""
        limit_ms = self.fresh.limit_ms
        set_back_ms = self.clock.set_back_ms - self.set_back_ms
        passed_ms = self.clock.latest_ms(self.now_s()) - self.fresh.reached.at_ms + set_back_ms
        is_late = limit_ms is not None and passed_ms >= limit_ms
        if (is_late and not self.is_unsure) or not self.may_put():
            self.wake()
            raise HeldBackError(
                f"{self.feed.source}: offsets {held.facts.base} to {held.facts.next - 1} wait for an entry of the role log: tombstones"
                " may have been missed",
                cause=HELD_BACK,
            )
