"""Since when something waits: what RPO is made of while no record's own time is known."""

from types import SimpleNamespace
from typing import Any

import pytest

from archiver.backup.partition.feed import Feed
from archiver.errors import KafkaTemporaryError
from archiver.kafka.records.fetch import Fetched, FetchProblem
from tests.support.feeds import feed_of


def answer(end: int, stable: int | None = None, error: FetchProblem | None = None, records: bytes = b"") -> Fetched:
    return Fetched(
        topic="t",
        partition=0,
        records=memoryview(records),
        aborted=(),
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        log_start_offset=0,
        by_topic_id=True,
        error=error,
    )


def pending(feed: Feed) -> float | None:
    return feed.pending_since_s


@pytest.fixture
def feed() -> Feed:
    return feed_of(position=10)


@pytest.fixture
def writer(feed: Feed) -> Any:  # noqa: ANN401
    return feed.writer


def test_pending_begins_when_the_end_is_ahead_and_ends_when_it_is_durable(feed: Feed, writer: SimpleNamespace) -> None:
    feed.note_answer(answer(10), 1.0)
    assert pending(feed) is None
    feed.note_answer(answer(15), 2.0)
    feed.note_answer(answer(16), 3.0)
    assert pending(feed) == 2.0
    writer.durable_position = 16
    feed.note_pending(4.0)
    assert pending(feed) is None


def test_under_steady_load_it_is_not_the_whole_uptime(feed: Feed, writer: SimpleNamespace) -> None:
    for second in range(100):
        feed.note_answer(answer(20 + second), float(second))
        writer.durable_position = 15 + second
        feed.note_pending(float(second))
    assert feed.pending_since_s == 99.0


def test_what_an_open_transaction_holds_back_is_pending(feed: Feed) -> None:
    feed.note_answer(answer(20, stable=10), 5.0)
    assert (feed.pending_since_s, feed.held_back_since_s) == (5.0, 5.0)
    feed.note_answer(answer(30, stable=10), 9.0)
    assert (feed.pending_since_s, feed.held_back_since_s) == (5.0, 5.0)
    feed.note_answer(answer(30, stable=25), 12.0)  # another one holds it back now
    assert feed.held_back_since_s == 12.0
    feed.note_answer(answer(30), 13.0)
    assert feed.held_back_since_s is None


def test_an_answer_without_an_error_ends_a_failure_unless_an_end_was_promised() -> None:
    for_ever, until_end = feed_of(position=10), feed_of(position=10, end_offset=50)
    for feed in (for_ever, until_end):
        feed.fetches.failing_since_s = 1.0
        feed.note_answer(answer(10), 2.0)
    assert (for_ever.fetches.failing_since_s, until_end.fetches.failing_since_s) == (None, 1.0)
    until_end.note_answer(answer(50, records=b"some"), 3.0)
    assert until_end.fetches.failing_since_s is None


def test_a_partition_that_nobody_answers_for_may_have_something(feed: Feed) -> None:
    feed.note_answer(answer(10), 100.0)
    assert feed.unsaved_since_s(104.0) is None
    assert feed.unsaved_since_s(106.0) == 100.0
    feed.note_answer(answer(10, error=FetchProblem.NOT_LEADER), 110.0)
    assert feed.unsaved_since_s(111.0) == 100.0
    feed.note_answer(answer(10), 120.0)
    assert feed.unsaved_since_s(121.0) is None


def test_what_was_pending_before_it_was_opened_stays_until_an_answer(feed: Feed) -> None:
    feed.pending_since_s = 50.0
    feed.note_pending(100.0)
    assert feed.unsaved_since_s(100.0) == 50.0
    assert not feed.is_caught_up
    feed.note_answer(answer(10), 101.0)
    assert feed.unsaved_since_s(101.0) is None
    assert feed.is_caught_up


def test_a_failure_of_fetches_is_over_once(feed: Feed) -> None:
    assert [feed.fetches.note_failure(KafkaTemporaryError("refused"), now_s) for now_s in (0.0, 20.0)] == [0.0, 20.0]
    assert feed.note_answer(answer(10), 21.0)
    assert not feed.note_answer(answer(10), 22.0)
