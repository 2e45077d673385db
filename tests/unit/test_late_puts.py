"""Puts that did not work: few at a time while trying does not help, more when it does, all of them at the end."""

import logging
from typing import cast

import pytest

from archiver.errors import StoreTemporaryError
from archiver.feed import Feed
from archiver.late_puts import LatePuts
from archiver.writer import PutLaterError

ERROR = PutLaterError(StoreTemporaryError("the store is slow", cause="503"), 4.0)


class FakeFeed:
    """What of a feed matters here."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.closing = False
        self.error = None
        self.put_again_at_s: float | None = None
        self.put_fails_since_s: float | None = None


def waiting(late: LatePuts, count: int) -> list[Feed]:
    feeds = [cast("Feed", FakeFeed(f"orders-{number}")) for number in range(count)]
    for feed in feeds:
        assert late.note(feed, ERROR, 100.0) == 4.0
    return feeds


def test_few_are_tried_at_a_time_until_one_works() -> None:
    late = LatePuts()
    feeds = waiting(late, 9)
    assert not late.is_due(feeds[0], 103.9)
    assert late.is_due(feeds[0], 104.0)
    late.begin()
    late.begin()
    assert not late.is_due(feeds[2], 104.0)
    late.note(feeds[0], ERROR, 104.0)
    late.end(feeds[0])
    assert late.is_due(feeds[2], 104.0)
    feeds[1].put_again_at_s = None  # that one worked: now four
    late.end(feeds[1])
    for feed in feeds[2:6]:
        assert late.is_due(feed, 104.0)
        late.begin()
    assert not late.is_due(feeds[6], 104.0)


def test_at_the_end_nobody_waits_for_others() -> None:
    late = LatePuts()
    feeds = waiting(late, 9)
    for feed in feeds:
        feed.closing = True
        assert late.note(feed, ERROR, 100.0) == 1.0
        assert late.is_due(feed, 101.0)
        late.begin()


def test_one_line_a_minute_tells_of_all(caplog: pytest.LogCaptureFixture) -> None:
    late = LatePuts()
    feeds = waiting(late, 3)
    with caplog.at_level(logging.WARNING):
        for now_s in range(100, 240):
            late.tell(feeds, now_s)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"orders-0 and 2 more partitions: puts do not work, for {after} s now, and are tried again: the store is slow"
        for after in (16, 76, 136)
    ]
