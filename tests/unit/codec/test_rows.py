"""Frame -> plain values."""

import pytest
from hypothesis import given, settings

from archiver.codec.frame import Column, Frame
from archiver.codec.rows import plain_records_of
from tests.support.frames import frame_of
from tests.support.records import Rec, generate, record_lists

RECORD = Rec(5, 7, 0, b"k", b"v", ((b"h", b"1"), (b"\xff", None)))


def read(frame: Frame) -> list[Rec]:
    return [
        Rec(row.offset, row.timestamp, row.timestamp_type, row.key, row.value, tuple(row.headers))
        for row in plain_records_of(frame)
    ]


@settings(max_examples=20)
@given(record_lists(extreme=True, most=5))
def test_any_records(records: list[Rec]) -> None:
    assert read(frame_of(records)) == records


def test_a_part_of_a_frame(seed: int) -> None:
    records = generate(seed, 100)
    assert read(frame_of(records).rows(30, 37)) == records[30:37]
    assert read(frame_of(records).rows(30, 30)) == []


WRONG_COLUMNS = [
    (Column.KEY_START, -1), (Column.KEY_START, 2**63 - 1), (Column.KEY_LENGTH, 10**6), (Column.VALUE_START, -1),
    (Column.VALUE_START, 10**6), (Column.VALUE_LENGTH, 10**6), (Column.HEADER_START, -1), (Column.HEADER_START, 10**6),
    (Column.HEADER_LENGTH, -1), (Column.HEADER_LENGTH, 0), (Column.HEADER_LENGTH, 2**63 - 1), (Column.HEADER_LENGTH, 4),
    (Column.HEADER_COUNT, -1), (Column.HEADER_COUNT, 1), (Column.HEADER_COUNT, 3), (Column.HEADER_COUNT, 2**62),
]  # fmt: skip


@pytest.mark.parametrize(("column", "wrong"), WRONG_COLUMNS)
def test_rows_that_point_outside_are_refused(column: Column, wrong: int) -> None:
    for row in (0, 1):
        frame = frame_of([RECORD, RECORD])
        frame.table[column, row] = wrong
        with pytest.raises(ValueError, match=r"frame (points|counts)|of the frame point"):
            read(frame)
