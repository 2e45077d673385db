"""Which objects beyond the end of a log are reported, and where the archive continues."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topics import Branch, LifeRange
from archiver.backup.opening.cut_back import Archived, find_branch
from archiver.kafka.brokers.calls import EpochEnd, OffsetForLeaderEpochCall
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.process.running.workers import Workers
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LOG_EPOCH, LOG_END, FIRST_ENDS = 3, 100, 70


class Leader:
    """A log of two epochs: 0 up to offset 70, and 3 up to its end."""

    async def ask_leaders(self, partitions: Iterable[TopicPartition], ask: Callable[..., Any]) -> Any:  # noqa: ANN401 - as it is
        wanted = list(partitions)
        return await ask(1, wanted) if wanted else ({}, {})

    async def send(self, _: int, call: OffsetForLeaderEpochCall) -> list[EpochEnd]:
        ((topic, number), epoch), *_ = cast("Any", call)._epochs.items()
        found = (-1, -1) if epoch > LOG_EPOCH else (LOG_EPOCH, LOG_END) if epoch == LOG_EPOCH else (0, FIRST_ENDS)
        return [EpochEnd(topic=topic, partition=number, error_code=0, leader_epoch=found[0], end_offset=found[1])]


def branch_behind(
    end: int, epoch: int, log_epoch: int = LOG_EPOCH, *, is_damaged: bool = False
) -> tuple[Branch, list[int]]:
    """Put an object from offset 50 to an end in an epoch; return the branch, and where doubted objects end."""
    archive, doubted = Archive(MemoryStore(), Layout("p")), list[Archived]()
    for base, until, of in ((0, 50, 0), (50, end, epoch)):
        key = archive.layout.segment_key(SegmentKey(topic="t", life=0, partition=0, base=base))
        facts = replace(facts_of(base, until), leader_epoch=of)
        metadata = {} if is_damaged and base else facts.to_metadata()
        assert archive.store.put_if_absent(key, b"", metadata, kind=ObjectKind.SEGMENT)
    branch = find_branch(
        cast("Any", Leader()),
        archive,
        pool=Workers(1, "test"),
        topic="t",
        partition=0,
        lineage=[LifeRange(0, 0, None)],
        log_start=0,
        log_end=LOG_END,
        log_epoch=log_epoch,
        doubt=doubted.append,
    )
    return asyncio.run(branch), [one.next for one in doubted]


def test_a_damaged_object_proves_nothing() -> None:
    assert branch_behind(LOG_END, LOG_EPOCH, is_damaged=True)[0].offset == 50


@pytest.mark.parametrize("epoch", [-1, LOG_EPOCH, LOG_EPOCH + 1, 999])
def test_an_object_beyond_the_log_is_reported_unless_an_earlier_epoch_explains_it(epoch: int) -> None:
    assert branch_behind(5000, epoch) == (Branch(offset=50, leader_epoch=0), [5000])


@pytest.mark.parametrize(
    ("end", "epoch", "log_epoch", "offset"),
    [
        (5000, 0, LOG_EPOCH, FIRST_ENDS),  # an unclean election: the epoch ended below
        (5000, LOG_EPOCH - 1, LOG_EPOCH, 50),  # the new leader never had the epoch
        (LOG_END, -1, LOG_EPOCH, 50),  # not beyond the end
        (LOG_END, LOG_EPOCH, LOG_EPOCH, LOG_END),
        (5000, -1, -1, 50),  # a log without epochs
    ],
)
def test_what_an_election_explains_is_not_reported(end: int, epoch: int, log_epoch: int, offset: int) -> None:
    branch, doubted = branch_behind(end, epoch, log_epoch)
    assert (branch.offset, doubted) == (offset, [])
