"""Puts that did not work and are tried again: when, how many at a time, and what is told of them."""

import logging
from collections.abc import Iterable
from typing import Final

from archiver.feed import TROUBLE_S, Feed
from archiver.spelling import spell_count
from archiver.writer import PutLaterError

log = logging.getLogger(__name__)

_PAUSE_AT_END_S: Final = 1.0
_LEAST_AT_ONCE, _MOST_AT_ONCE = 2, 16
_TELL_EVERY_S: Final = 60.0


class LatePuts:
    """Few at a time while trying does not help: puts that hang must not take all workers again and again."""

    def __init__(self) -> None:
        self._running = 0
        self._at_once = _LEAST_AT_ONCE
        self._tell_again_at_s = 0.0
        self._error: PutLaterError | None = None

    def note(self, feed: Feed, error: PutLaterError, now_s: float) -> float:
        """A put did not work. Return the pause after which it is tried again."""
        pause_s = min(error.pause_s, _PAUSE_AT_END_S) if feed.closing else error.pause_s
        self._error = error
        feed.put_again_at_s = now_s + pause_s
        if feed.put_fails_since_s is None:
            feed.put_fails_since_s = now_s
        return pause_s

    def is_due(self, feed: Feed, now_s: float) -> bool:
        """Tell whether a waiting put may be tried now."""
        is_time = feed.put_again_at_s is not None and now_s >= feed.put_again_at_s
        return is_time and (feed.closing or self._running < self._at_once)

    def begin(self) -> None:
        """One is being tried."""
        self._running += 1

    def end(self, feed: Feed) -> None:
        """It was."""
        self._running -= 1
        has_worked = feed.put_again_at_s is None and feed.error is None
        self._at_once = min(2 * self._at_once, _MOST_AT_ONCE) if has_worked else _LEAST_AT_ONCE

    def tell(self, feeds: Iterable[Feed], now_s: float) -> None:
        """Log one line a minute, however many partitions wait for the store."""
        waiting = [(feed.put_fails_since_s, feed) for feed in feeds if feed.put_fails_since_s is not None]
        if now_s < self._tell_again_at_s or not waiting:
            return
        since_s, feed = min(waiting, key=lambda one: one[0])
        if now_s - since_s > TROUBLE_S:
            self._tell_again_at_s = now_s + _TELL_EVERY_S
            more = f" and {spell_count(len(waiting) - 1, 'more partition')}" if len(waiting) > 1 else ""
            what = "%s%s: puts do not work, for %.0f s now, and are tried again: %s"
            log.warning(what, feed.source, more, now_s - since_s, self._error)
