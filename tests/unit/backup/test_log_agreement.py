"""Which logs of which nothing is to be fetched are asked about, and what the answers mean."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from archiver.archive.index.archived_end import ArchivedEnd
from archiver.backup.partition.feed import Feed
from archiver.backup.partition.log_agreement import CutLogCheck, find_parted
from archiver.errors import CutBackError, KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.calls import EpochEnd, OffsetForLeaderEpochCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicPartition
from tests.support.feeds import feed_of
from tests.support.segments import SOURCE

AT_END = PartitionOffsets(log_start=0, last_stable=100, high_watermark=100, leader_epoch=7)
EPOCH = 5
DENIED, NOT_LEADER = 29, 6


@dataclass
class Leader:
    """Answers (error, epoch, end) for each partition; what has no answer is left out."""

    answers: Mapping[int, tuple[int, int, int]]
    asked: list[dict[TopicPartition, int]] = field(default_factory=list)

    async def ask_leaders(self, partitions: Iterable[TopicPartition], ask: Callable[..., Any]) -> Any:  # noqa: ANN401 - as it is
        wanted = list(partitions)
        return await ask(1, wanted) if wanted else ({}, {})

    async def send(self, _: int, call: OffsetForLeaderEpochCall) -> list[EpochEnd]:
        self.asked.append(dict(cast("Any", call)._epochs))
        return [
            EpochEnd(topic=topic, partition=number, error_code=code, leader_epoch=epoch, end_offset=end)
            for topic, number in self.asked[-1]
            if number in self.answers
            for code, epoch, end in [self.answers[number]]
        ]


def feed_at(number: int, position: int = 100, epoch: int = EPOCH, end: int = 100) -> Feed:
    return feed_of(replace(SOURCE, partition=number), position=position, leader_epoch=epoch, end_offset=end)


def parted(leader: Leader, feeds: Mapping[int, Feed], offsets: PartitionOffsets = AT_END) -> set[int]:
    found = find_parted(cast("KafkaClient", leader), list(feeds.values()), {one.key: offsets for one in feeds.values()})
    return {feed.key[1] for feed in asyncio.run(found)}


def test_a_log_was_cut_where_the_epoch_is_missing_or_ends_below() -> None:
    answers = {
        0: (0, EPOCH, 100),  # just where the archive ends
        1: (0, EPOCH, 130),
        2: (0, EPOCH, 99),
        3: (0, EPOCH - 1, 100),  # the log never had the epoch
        4: (0, EPOCH, 0),  # it begins later: all was lost
        5: (0, -1, -1),  # nothing is told, and its leader has a later epoch
    }
    leader = Leader(answers)
    assert parted(leader, {number: feed_at(number) for number in answers}) == {2, 3, 4}
    assert len(leader.asked) == 1


@pytest.mark.parametrize(("leads_in", "is_cut"), [(EPOCH - 1, True), (EPOCH, False), (-1, False)])
def test_an_epoch_that_is_not_known_tells_by_that_of_the_leader(leads_in: int, is_cut: bool) -> None:
    found = parted(Leader({0: (0, -1, -1)}), {0: feed_at(0)}, replace(AT_END, leader_epoch=leads_in))
    assert found == ({0} if is_cut else set())


def test_nothing_is_asked_that_needs_no_answer() -> None:
    leader = Leader({})
    feeds = {
        0: feed_at(0, position=90),  # a fetch will tell
        1: feed_at(1, epoch=-1),
        2: feed_at(2, position=101),  # above the end of the log
    }
    assert parted(leader, feeds) == {2}
    emptied = replace(AT_END, log_start=100)  # whatever was below is not the log's any more
    assert parted(leader, {0: feed_at(0)}, emptied) == set()
    assert leader.asked == []


def test_a_transaction_that_holds_the_end_back_hides_no_cut() -> None:
    held = replace(AT_END, last_stable=60)
    assert parted(Leader({0: (0, EPOCH, 60)}), {0: feed_at(0, end=60)}, held) == {0}


@pytest.mark.parametrize("code", [DENIED, NOT_LEADER, None])
def test_what_is_refused_is_told_and_proves_nothing(code: int | None, caplog: pytest.LogCaptureFixture) -> None:
    answers = {0: (code, -1, -1)} if code else {}
    with caplog.at_level(logging.WARNING):
        assert parted(Leader({**answers, 1: (0, EPOCH, 50)}), {0: feed_at(0), 1: feed_at(1)}) == {1}
    (warned,) = caplog.records
    assert "t-0: whether the log was cut back" in warned.getMessage().replace(SOURCE.topic, "t")
    assert "offset 100" in warned.getMessage()


def test_a_log_that_was_cut_back_is_refused_and_a_cluster_that_does_not_tell_is_asked_for_a_while_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else a right that is missing, or a broker that knows no such request, would keep each copy from taking its place."""
    given = [ArchivedEnd(next=100, leader_epoch=EPOCH, key="k")]
    leader = Leader({SOURCE.partition: (DENIED, -1, -1)})
    times_s = iter([0.0, 59.0, 60.0, 70.0])
    check = CutLogCheck(cast("KafkaClient", leader), SOURCE, clock=times_s.__next__, patience_s=60.0)
    for _ in range(2):
        with pytest.raises(KafkaError):
            asyncio.run(check.refuse_cut_log(given))
    asyncio.run(check.refuse_cut_log(given))
    assert "was not told for 60 s" in caplog.text
    leader.answers = {SOURCE.partition: (0, EPOCH, 100)}
    asyncio.run(check.refuse_cut_log(given))
    leader.answers = {SOURCE.partition: (NOT_LEADER, -1, -1)}
    with pytest.raises(KafkaTemporaryError):
        asyncio.run(check.refuse_cut_log(given))
    leader.answers = {SOURCE.partition: (0, EPOCH, 99)}
    with pytest.raises(CutBackError):
        asyncio.run(check.refuse_cut_log(given))
