"""Schedules puts: topics alternate. A topic whose puts hang or fail gets few threads, so that others always find one."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from archiver.backup.partition.feed import LASTING_FAILURE_S, Feed, FetchState, PutState
from archiver.backup.partition.partition_writer import PutLaterError
from archiver.backup.reports.troubles import Troubles
from archiver.process.output.text import spell_count

MOST_PUTS: Final = 64  # concurrent puts of all topics: each one that hangs takes a thread
SLOW_S: Final = 0.25  # a put that takes longer waits for the store, and takes no CPU from others
_SHARE, _LARGEST_SHARE = 8, 16  # concurrent puts of one topic
_FAILING_SHARE, _MOST_FAILING = 2, 16  # concurrent puts while puts fail: of one such topic, and of all together
_QUICK_AT_END, _SHARE_AT_END = 16, 32
_PAUSE_AT_END_S: Final = 1.0


class PutLine:
    """Queue of feeds in one state. Topics alternate; feeds of one topic keep their order."""

    def __init__(self, state: PutState) -> None:
        self.state = state
        self._feeds: dict[str, deque[Feed]] = {}  # by topic, the next one first

    def add(self, feed: Feed) -> None:
        self._feeds.setdefault(feed.key[0], deque()).append(feed)

    def pop(self, may: Callable[[str], bool]) -> Feed | None:
        """Return the first feed of the next topic that may put."""
        topic = next((topic for topic in self._feeds if may(topic)), None)
        if topic is None:
            return None
        feeds = self._feeds.pop(topic)
        feed = feeds.popleft()
        if feeds:
            self._feeds[topic] = feeds  # behind all others
        return feed


class PutTurns:
    """Schedule of waiting and running puts. At most `at_once` quick puts run, besides slow ones."""

    def __init__(self, at_once: int, troubles: Troubles) -> None:
        self._at_once = at_once
        self._troubles = troubles
        self._line, self._line_at_end = PutLine(PutState.WAITING), PutLine(PutState.WAITING_AT_END)
        self._running: dict[Feed, float] = {}  # since when
        self._running_of: Counter[str] = Counter()
        self._shares: dict[str, int] = {}

    def wait(self, feed: Feed, now_s: float) -> None:
        """Queue a feed, unless it waits already. A feed that has begun to close moves to the queue of closing feeds."""
        line = self._line_at_end if feed.ending.is_closing else self._line
        if feed.puts.wait(line.state, now_s):
            line.add(feed)

    def take(self, now_s: float) -> Iterator[Feed]:
        """Yield each feed that may put now; its put counts as running until `end`."""
        while (feed := self._next(now_s)) is not None:
            feed.puts.state = PutState.RUNNING
            self._running[feed] = now_s
            self._running_of[feed.key[0]] += 1
            yield feed

    def _next(self, now_s: float) -> Feed | None:
        if len(self._running) >= MOST_PUTS:
            return None
        slow = {feed.key[0] for feed, begun_s in self._running.items() if now_s - begun_s >= SLOW_S}
        quick = sum(now_s - begun_s < SLOW_S for begun_s in self._running.values())

        def may_at_end(topic: str) -> bool:
            is_crowded = len(self._running) >= MOST_PUTS - _QUICK_AT_END
            return self._running_of[topic] < _SHARE_AT_END and not (is_crowded and topic in slow)

        lines = ((self._line_at_end, _QUICK_AT_END, may_at_end), (self._line, self._at_once, self._may))
        for line, most_quick, may in lines:
            while quick < most_quick and (feed := line.pop(may)) is not None:
                if feed.puts.state is line.state:  # it may have moved to the other queue, or have ended
                    return feed
        return None

    def _may(self, topic: str) -> bool:
        share = self._shares.get(topic, _SHARE)
        is_crowded = share == _FAILING_SHARE and self._count_failing() >= _MOST_FAILING
        return self._running_of[topic] < share and not is_crowded

    def _count_failing(self) -> int:
        return sum(count for topic, count in self._running_of.items() if self._shares.get(topic) == _FAILING_SHARE)

    def end(self, feed: Feed, *, has_worked: bool) -> None:
        """Count a finished put, and let the feed continue."""
        topic = feed.key[0]
        del self._running[feed]
        self._running_of -= Counter([topic])  # drops zero counts
        feed.fetches.leave(FetchState.SET_ASIDE)
        if has_worked:
            feed.puts.succeed()
            self._shares[topic] = min(2 * self._shares.get(topic, _SHARE), _LARGEST_SHARE)
        else:
            self._shares[topic] = _FAILING_SHARE

    def note(self, feed: Feed, error: PutLaterError, now_s: float) -> float:
        """Note a failed put. Returns the pause before its retry."""
        pause_s = min(error.pause_s, _PAUSE_AT_END_S) if feed.ending.is_closing else error.pause_s
        feed.puts.fail(error, now_s, now_s + pause_s)
        self._troubles.note(error, "", feed.key, is_quiet=True)
        return pause_s

    def warn_of_waiting(self, feeds: Iterable[Feed], now_s: float) -> None:
        """Report that puts have failed for a while, in one line, however many partitions wait for the store."""
        waiting = [(feed.puts.failing_since_s, feed) for feed in feeds if feed.puts.failing_since_s is not None]
        if not waiting:
            return
        since_s, feed = min(waiting, key=lambda one: one[0])
        if now_s - since_s > LASTING_FAILURE_S and feed.puts.error is not None:
            more = f" and {spell_count(len(waiting) - 1, 'more partition')}" if len(waiting) > 1 else ""
            line = f"{feed.source}{more}: puts do not work, for {now_s - since_s:.0f} s now, and are tried again: {feed.puts.error}"
            self._troubles.note(feed.puts.error, line, feed.key)
