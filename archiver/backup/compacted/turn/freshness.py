"""Rule W: decides whether a generation was read fast enough to see all tombstones; Kafka keeps them `delete.retention.ms`.

A moment is (t, L): at t, or later, the leader's last stable offset was L. A reader of all records below L has every
tombstone of before t. Later tombstones can be gone at t + delete.retention.ms at the earliest: that is the longest time to
reach the next moment.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from archiver.archive.copies.moments import Moment


class Answer(NamedTuple):
    """A fetch that the leader answered."""

    asked_ms: int
    received_ms: int
    last_stable: int
    position: int  # all records below were read, with this answer
    limit_ms: int  # delete.retention.ms, less the margin, as the topic has it now


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The state of one generation."""

    reached: Moment  # the newest one read in time
    durable: Moment  # the newest of these that is completely in storage
    limit_ms: int | None = None  # the smallest since `reached`; None: none was seen yet
    ahead: Moment | None = None  # the next to be reached
    ahead_limit_ms: int | None = None  # the smallest since `ahead`
    flushing: Moment | None = None  # reached, and not all in storage yet
    is_broken: bool = False


def begun(moment: Moment) -> Freshness:
    """Begin, or continue after a restart, with the newest stored moment."""
    return Freshness(reached=moment, durable=moment)


def set_back(fresh: Freshness, by_ms: int) -> Freshness:
    """Note that the clock was set back: moves all moments back by that."""

    def earlier(moment: Moment) -> Moment:
        return moment._replace(at_ms=max(0, moment.at_ms - by_ms))

    return replace(
        fresh,
        reached=earlier(fresh.reached),
        durable=earlier(fresh.durable),
        ahead=fresh.ahead and earlier(fresh.ahead),
        flushing=fresh.flushing and earlier(fresh.flushing),
    )


def note_limit(fresh: Freshness, now_ms: int, limit_ms: int) -> Freshness:
    """Note how long tombstones are kept now, and check the elapsed time against it."""
    least_ms = limit_ms if fresh.limit_ms is None else min(limit_ms, fresh.limit_ms)
    ahead_ms = limit_ms if fresh.ahead_limit_ms is None else min(limit_ms, fresh.ahead_limit_ms)
    is_broken = fresh.is_broken or now_ms - fresh.reached.at_ms >= least_ms
    return replace(fresh, limit_ms=least_ms, ahead_limit_ms=ahead_ms, is_broken=is_broken)


def note_answer(fresh: Freshness, answer: Answer) -> Freshness:
    """Take in the answer of a fetch. A broken state is final."""
    fresh = note_limit(fresh, answer.received_ms, answer.limit_ms)
    if fresh.is_broken:
        return fresh
    if fresh.ahead is None:
        fresh = replace(fresh, ahead=Moment(answer.asked_ms, answer.last_stable), ahead_limit_ms=answer.limit_ms)
    if fresh.ahead is not None and answer.position >= fresh.ahead.last_stable:
        fresh = replace(
            fresh,
            reached=fresh.ahead,
            limit_ms=fresh.ahead_limit_ms,
            flushing=fresh.flushing or fresh.ahead,
            ahead=None,
        )
    return fresh


def note_durable(fresh: Freshness, durable: int) -> Freshness:
    """Note that all records below an offset are in storage."""
    if fresh.flushing is None or durable < fresh.flushing.last_stable:
        return fresh
    return replace(fresh, durable=fresh.flushing, flushing=None)
