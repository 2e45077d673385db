"""Which batches of a target partition are believed to be what was dealt there."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from archiver.codec.frame import Longs
from archiver.codec.kernels import batches as batch_kernels
from archiver.errors import NotWholeError
from archiver.kafka.settings import KafkaSettings
from archiver.restore.dealt_log import DealtLogTask, LogBatches

IDS = {0: 900, 2: 17}  # of the producers, by source partition


class Head(NamedTuple):
    base: int
    last: int
    producer_id: int
    records: int


def head(base: int, last: int, producer_id: int = IDS[0], count: int | None = None) -> Head:
    return Head(base, last, producer_id, last - base + 1 if count is None else count)


WHOLE = [head(10, 12), head(13, 13, IDS[2]), head(14, 15), head(16, 19, IDS[2])]


def task() -> DealtLogTask:
    return DealtLogTask(
        kafka=KafkaSettings.parse({"bootstrap.servers": "127.0.0.1:1"}),
        topic="back",
        topic_id="id",
        partition=1,
        start=10,
        end=20,
        source_topic="orders",
        sources=tuple(IDS),
        producer_ids=tuple(IDS.values()),
        dealt=np.array([5, 5]),
        read=np.zeros((1, 2), np.int64),
    )


def table_of(heads: Sequence[Head]) -> Longs:
    table = np.zeros((batch_kernels.BATCH_COLUMNS, len(heads)), np.int64)
    rows = (batch_kernels.BASE_OFFSET, batch_kernels.LAST_OFFSET, batch_kernels.PRODUCER_ID, batch_kernels.COUNT)
    for row, column in zip(rows, zip(*heads, strict=True), strict=False):
        table[row] = column
    return table


def taken(answers: Sequence[Sequence[Head]], log_start: int = 0) -> LogBatches:
    batches = LogBatches(task(), log_start)
    for heads in answers:
        batches.add(table_of(heads))
    return batches


@pytest.mark.parametrize("cut", range(len(WHOLE) + 1))
def test_batches_of_several_answers(cut: int) -> None:
    log = taken([WHOLE[:cut], [], WHOLE[cut:]]).log()
    assert (log.start, log.end) == (10, 20)
    assert log.ends.tolist() == [13, 14, 16, 20]
    assert log.sources.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("log_start", "kept", "start"), [(11, WHOLE, 10), (13, WHOLE[1:], 13), (15, WHOLE[2:], 14), (20, [], 20)]
)
def test_a_log_that_begins_later_now(log_start: int, kept: list[Head], start: int) -> None:
    """Brokers delete a part of a batch, too, and send all of it."""
    log = taken([kept], log_start).log()
    assert (log.start, log.counts(2).sum()) == (start, 20 - start)


@pytest.mark.parametrize(
    ("heads", "told"),
    [
        ([], "records are missing at offset 10"),
        (WHOLE[1:], "records are missing at offset 10"),
        (WHOLE[:-1], "records are missing at offset 16"),
        ([*WHOLE[:2], *WHOLE[3:]], "records are missing at offset 14"),
        ([head(10, 12, count=2), *WHOLE[1:]], "records are missing at offset 10"),  # compacted
        ([head(10, 12, count=0), *WHOLE[1:]], "records are missing at offset 10"),
        ([head(9, 12), *WHOLE[1:]], "records are missing at offset 10"),
        ([*WHOLE[:3], head(16, 20, IDS[2])], "records are missing at offset 16"),
        ([*WHOLE[:3], head(16, 15, IDS[2], 0), head(16, 19, IDS[2])], "records are missing at offset 16"),
        ([head(10, 12), head(10, 12), *WHOLE[1:]], "records are missing at offset 13"),
        ([Head(2**63 - 1, 1 - 2**63, IDS[0], 3), *WHOLE[1:]], "records are missing at offset 10"),
        ([*WHOLE[:2], head(14, 15, 901), WHOLE[3]], "the record at offset 14 is of producer 901"),
        ([*WHOLE[:2], head(14, 15, -1), WHOLE[3]], "the record at offset 14 is of producer -1"),
        ([head(10, 12, IDS[2]), *WHOLE[1:]], "it holds 2 records of orders-0, and 5 were dealt to it"),
    ],
)
def test_what_was_not_verified_is_refused(heads: list[Head], told: str) -> None:
    with pytest.raises(NotWholeError, match=f"the target is not what was verified: {re.escape(told)}"):
        taken([heads]).log()


def test_more_than_was_dealt_is_refused_behind_deleted_records() -> None:
    heads = [head(16, 19)]
    assert taken([heads], 16).log().counts(2).tolist() == [4, 0]
    with pytest.raises(NotWholeError, match="it holds 6 records of orders-0, and 5 were dealt to it"):
        taken([[head(14, 19)]], 14).log()
