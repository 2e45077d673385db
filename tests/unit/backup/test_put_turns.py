"""Whose put is next: no topic has all the threads, one that fails has few, and at the end there are more."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from archiver.backup.partition.feed import EndState, Feed
from archiver.backup.partition.partition_writer import PutLaterError
from archiver.backup.partition.put_turns import MOST_PUTS, SLOW_S, PutTurns
from archiver.backup.reports.troubles import Troubles
from archiver.errors import StoreTemporaryError
from tests.support.feeds import feed_of
from tests.support.segments import SOURCE

ERROR = PutLaterError(StoreTemporaryError("the store is slow", cause="503"), 4.0)
AT_ONCE = 4


def feed_of_topic(topic: str, number: int) -> Feed:
    return feed_of(replace(SOURCE, topic=topic, partition=number))


class World:
    """Feeds that wait, and time."""

    def __init__(self) -> None:
        self.turns = PutTurns(AT_ONCE, Troubles())
        self.now_s = 0.0

    def wait(self, topic: str, count: int, *, closing: bool = False) -> list[Feed]:
        feeds = [feed_of_topic(topic, number) for number in range(count)]
        for feed in feeds:
            if closing:
                feed.ending.go_to(EndState.CLOSING)
            self.turns.wait(feed, self.now_s)
        return feeds

    def take(self, seconds: float = 0.0) -> list[Feed]:
        """Those whose turn comes within that time, while all that runs goes on."""
        until_s = self.now_s + seconds
        taken = list(self.turns.take(self.now_s))
        while self.now_s < until_s:
            self.now_s += SLOW_S
            taken += self.turns.take(self.now_s)
        return taken

    def end(self, feeds: Sequence[Feed], *, works: bool) -> None:
        for feed in feeds:
            self.turns.end(feed, has_worked=works)


def topics_of(feeds: Sequence[Feed]) -> dict[str, int]:
    return {topic: sum(feed.key[0] == topic for feed in feeds) for topic in sorted({feed.key[0] for feed in feeds})}


def test_quick_puts_are_few_at_once_and_topics_take_turns() -> None:
    world = World()
    world.wait("a", 9)
    world.wait("b", 9)
    first = world.take()
    assert [str(feed.source) for feed in first] == ["a-0", "b-0", "a-1", "b-1"]
    assert world.take() == []
    world.end(first[:1], works=True)
    assert [str(feed.source) for feed in world.take()] == ["a-2"]


def test_a_topic_that_hangs_leaves_threads_to_all_others() -> None:
    world = World()
    world.wait("hangs", 200)
    assert topics_of(world.take(60.0)) == {"hangs": 8}
    for number in range(20):
        healthy = world.wait(f"healthy-{number}", 3)
        assert world.take() == healthy
        world.end(healthy, works=True)


def test_many_topics_that_hang_leave_threads_once_they_are_known() -> None:
    world = World()
    for number in range(40):
        world.wait(f"hangs-{number}", 5)
    running = world.take(60.0)
    assert len(running) == MOST_PUTS
    world.end(running, works=False)
    for feed in running:
        world.turns.wait(feed, world.now_s)
    again = world.take(60.0)
    assert len(again) == 16
    assert max(topics_of(again).values()) <= 2
    healthy = world.wait("healthy", 3)
    assert world.take() == healthy


def test_a_topic_that_fails_has_two_at_a_time_until_one_works() -> None:
    world = World()
    world.wait("a", 30)
    failed = world.take()
    assert len(failed) == AT_ONCE
    world.end(failed, works=False)
    two = world.take(5.0)
    assert len(two) == 2
    world.end(two[:1], works=True)
    assert len(world.take(5.0)) == 3  # the fourth still runs
    world.end(two[1:], works=False)
    assert world.take(5.0) == []


def test_a_waiting_put_keeps_its_place() -> None:
    world = World()
    feeds = world.wait("a", 5)
    for _ in range(3):
        world.turns.wait(feeds[0], world.now_s)
    assert world.take(2.0) == feeds


def test_a_partition_that_has_ended_is_passed_over() -> None:
    world = World()
    feeds = world.wait("a", 3)
    assert feeds[1].end()
    assert world.take() == [feeds[0], feeds[2]]


def test_at_the_end_nobody_waits_behind_those_that_go_on() -> None:
    world = World()
    world.wait("a", 30)
    world.end(world.take(), works=False)
    assert len(world.take(5.0)) == 2
    waiting = world.wait("a", 100)
    for feed in waiting[50:]:
        feed.ending.go_to(EndState.CLOSING)
        world.turns.wait(feed, world.now_s)
    taken = world.take(60.0)
    assert len(taken) == 30  # with the two that run
    assert taken == waiting[50:80]


def test_at_the_end_topics_that_hang_leave_threads_to_others() -> None:
    world = World()
    for topic, count in (("hangs", 40), ("hangs, too", 40), ("healthy", 300)):
        world.wait(topic, count, closing=True)
    done = 0
    for _ in range(200):
        healthy = [feed for feed in world.take(SLOW_S) if feed.key[0] == "healthy"]
        world.end(healthy, works=True)
        done += len(healthy)
    assert done == 300


def test_at_the_end_pauses_are_short() -> None:
    feed = feed_of_topic("a", 0)
    turns = PutTurns(AT_ONCE, Troubles())
    assert turns.note(feed, ERROR, 100.0) == 4.0
    feed.ending.go_to(EndState.CLOSING)
    assert turns.note(feed, ERROR, 100.0) == 1.0
    assert feed.puts.again_at_s == 101.0


def test_one_line_tells_of_all(caplog: pytest.LogCaptureFixture) -> None:
    turns = PutTurns(AT_ONCE, Troubles())
    feeds = [feed_of_topic("orders", number) for number in range(3)]
    for feed in feeds:
        turns.note(feed, ERROR, 100.0)
    with caplog.at_level(logging.WARNING):
        for now_s in range(100, 240):
            turns.warn_of_waiting(feeds, now_s)
    assert [record.getMessage() for record in caplog.records] == [
        "orders-0 and 2 more partitions: puts do not work, for 16 s now, and are tried again: the store is slow"
    ]
