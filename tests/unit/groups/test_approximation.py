"""Positions in a partition that several sources were dealt into, against lists of records."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.groups.approximation import DealtLog, DealtPosition, approximate

SOURCES = 4


@dataclass(frozen=True)
class Case:
    """`batches` are (source, records); `read[group][source]` is how many a group had read; what lies below `log_start` is gone."""

    start: int
    batches: list[tuple[int, int]]
    read: list[list[int]]
    log_start: int

    def records(self) -> list[tuple[int, int, int]]:
        """Every record as (offset, source, its number in the source), one by one."""
        numbers, found = [0] * SOURCES, list[tuple[int, int, int]]()
        for source, size in self.batches:
            for _ in range(size):
                found.append((self.start + len(found), source, numbers[source]))
                numbers[source] += 1
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batches = draw(st.lists(st.tuples(st.integers(0, SOURCES - 1), st.integers(1, 5)), max_size=14))
    totals = [sum(size for source, size in batches if source == one) for one in range(SOURCES)]
    read = draw(st.lists(st.tuples(*(st.integers(0, total) for total in totals)).map(list), max_size=4))
    start = draw(st.sampled_from([0, 7, 2**40]))
    log_start = draw(st.one_of(st.just(start), st.integers(max(0, start - 3), start + sum(totals) + 3)))
    return Case(start, batches, read, log_start)


def expected(case: Case, read: list[int]) -> DealtPosition:
    records = case.records()
    there = [one for one in records if one[0] >= case.log_start]
    unread = [offset for offset, source, number in there if number >= read[source]]
    position = min(unread, default=max(case.start + len(records), case.log_start))
    again = sum(offset >= position and number < read[source] for offset, source, number in there)
    deleted = sum(offset < case.log_start and number >= read[source] for offset, source, number in records)
    return DealtPosition(position, again, deleted)


def log_of(case: Case) -> DealtLog:
    """What headers tell from the batch on in which the log begins."""
    kept, end = list[tuple[int, int, int]](), case.start
    for source, size in case.batches:
        end += size
        kept += [(end, source, size)] if end > case.log_start else []
    return DealtLog(
        start=kept[0][0] - kept[0][2] if kept else end,
        end=end,
        ends=np.array([one[0] for one in kept], np.int64),
        sources=np.array([one[1] for one in kept], np.int64),
    )


def found(case: Case) -> list[DealtPosition]:
    totals = [sum(size for source, size in case.batches if source == one) for one in range(SOURCES)]
    read = np.array(case.read, np.int64).reshape(len(case.read), SOURCES)
    positions = approximate(log_of(case), case.log_start, np.array(totals, np.int64), read)
    return [positions.position(group) for group in range(len(case.read))]


@given(cases())
def test_no_record_is_missed_and_what_is_read_again_is_told(case: Case) -> None:
    assert found(case) == [expected(case, read) for read in case.read]


def test_more_records_of_one_source_than_sequence_numbers() -> None:
    """Sequence numbers begin again; what is counted here does not."""
    batches = [(0, 2**30), (1, 10), (0, 2**30), (0, 2**30), (2, 1), (0, 2**30)]
    case = Case(5, batches, [[2**31 + 3, 10, 0, 0], [2**32 - 1, 10, 1, 0], [2**32, 10, 1, 0]], 5)
    at = 5 + 2**31 + 10 + 3
    third = 5 + 3 * 2**30 + 10
    assert found(case) == [
        DealtPosition(at, 0, 0),
        DealtPosition(third + 2**30, 0, 0),
        DealtPosition(third + 2**30 + 1, 0, 0),
    ]
    (early,) = found(replace(case, read=[[2**32, 9, 0, 0]]))
    assert early == DealtPosition(5 + 2**30 + 9, 3 * 2**30, 0)


def test_counts_that_cannot_be() -> None:
    log = DealtLog(start=0, end=2, ends=np.array([1, 2]), sources=np.array([0, 1]))
    one = np.array([1, 1])
    with pytest.raises(ValueError, match="more of a source than was dealt"):
        approximate(log, 0, np.array([1, 0]), np.zeros((1, 2), np.int64))
    with pytest.raises(ValueError, match="read more of a source"):
        approximate(log, 0, one, np.array([[2, 0]]))
