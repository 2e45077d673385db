"""What a backup notes of transactions of offsets: which commits may have waited for their marker, and for how long."""

import random

import numpy as np

from archiver.archive.segments.segment_facts import MOST_TRANSACTIONS, TransactionRange
from archiver.backup.partition.transaction_times import TransactionTimes
from archiver.codec.frame import Longs
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC

NOW_MS = 10_000_000
Row = tuple[int, int, int, int, int]  # first, last, producer, time, 1 for a marker


def batches(*rows: Row) -> Longs:
    return np.array(rows, np.int64).reshape(-1, 5).T


def times() -> TransactionTimes:
    return TransactionTimes(OFFSETS_TOPIC, lambda: NOW_MS)


def test_a_commit_waits_for_the_marker_of_its_own_producer() -> None:
    found = times()
    found.note(batches((3, 4, 7, 1000, 0), (5, 5, 8, 1100, 0), (6, 6, 7, 1300, 1)))
    found.note(batches((5, 5, 8, 1100, 0), (6, 6, 7, 1300, 1), (9, 9, 8, 4100, 1)))  # decoded again, and the rest
    assert found.take(0, 10) == (TransactionRange(3, 4, 300), TransactionRange(5, 5, 3000))
    assert found.take(10, 20) == ()


def test_where_the_segment_ends_first_the_marker_came_before_now() -> None:
    found = times()
    found.note(batches((3, 4, 7, 1000, 0), (8, 9, 7, 1200, 0)))
    assert found.take(0, 5) == (TransactionRange(3, 4, NOW_MS + 60_000 - 1000),)
    found.note(batches((11, 11, 7, 1500, 1)))
    assert found.take(5, 12) == (TransactionRange(8, 9, 300),)


def test_other_topics_have_none() -> None:
    found = TransactionTimes("orders")
    found.note(batches((3, 4, 7, 1000, 0), (5, 5, 7, 1300, 1)))
    assert found.take(0, 10) == ()


def test_of_many_transactions_the_slow_ones_stay_alone() -> None:
    drawn, found, slow = random.Random(1), times(), dict[int, int]()
    for number in range(5_000):
        late_ms = 900_000 if number in {700, 701, 3_000} else drawn.randrange(100)
        if late_ms > 100:
            slow[3 * number] = late_ms
        found.note(
            batches((3 * number, 3 * number, 1, 1000, 0), (3 * number + 1, 3 * number + 1, 1, 1000 + late_ms, 1))
        )
    told = found.take(0, 15_000)
    assert len(told) <= MOST_TRANSACTIONS
    assert sum(one.last_offset - one.first_offset + 1 for one in told if one.within_ms > 100) <= 4
    for offset in range(0, 15_000, 3):
        within = max(one.within_ms for one in told if one.first_offset <= offset <= one.last_offset)
        assert within >= slow.get(offset, 0)
