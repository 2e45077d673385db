"""Frame -> Arrow."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from archiver.codec import arrow, arrow_kernels
from archiver.codec.arrow import SCHEMA, frame_to_arrow
from archiver.codec.batch import decode_batches
from archiver.frame import Column, Frame
from tests.support.frames import frame_of
from tests.support.records import Rec, generate, record_lists
from tests.support.reference_batch import batch_of, encode

RECORD = Rec(5, 7, 0, b"k", b"v", ((b"h", b"1"), (b"\xff", None)))


def rows(records: list[Rec]) -> list[dict[str, Any]]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": record.timestamp_type,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in records
    ]


def read(frame: Frame) -> list[dict[str, Any]]:
    batch = frame_to_arrow(frame)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def test_two_thousand_records_of_every_class(seed: int) -> None:
    records = [*generate(seed, 2000), *generate(seed, 9, first_offset=2000, timestamp_type=-1)]
    assert read(frame_of(records)) == rows(records)
    assert read(decode_batches(encode(batch_of(records[:2000])), 0).frame) == rows(records[:2000])


@settings(max_examples=20)
@given(record_lists(extreme=True, most=5))
def test_any_records(records: list[Rec]) -> None:
    assert read(frame_of(records)) == rows(records)


def test_a_part_of_a_frame(seed: int) -> None:
    records = generate(seed, 100)
    assert read(frame_of(records).rows(30, 37)) == rows(records[30:37])
    assert read(frame_of(records).rows(30, 30)) == []


def test_nothing_is_null_and_everything_is_null() -> None:
    for record in (replace(RECORD, key=b"", value=b""), replace(RECORD, key=None, value=None)):
        assert read(frame_of([record] * 9)) == rows([record] * 9)


def test_more_than_arrow_holds_is_refused_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_MOST_ARROW_BYTES", 3)
    assert read(frame_of([replace(RECORD, value=b"abc")])) != []
    with pytest.raises(ValueError, match="4 bytes do not fit"):
        frame_to_arrow(frame_of([replace(RECORD, value=b"abcd")]))


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
            frame_to_arrow(frame)


@pytest.mark.parametrize("column", [Column.KEY_LENGTH, Column.VALUE_LENGTH])
def test_lengths_whose_sum_wraps(column: Column) -> None:
    frame = frame_of([RECORD] * 4)
    frame.table[column] = 2**62
    with pytest.raises(ValueError, match="points outside"):
        frame_to_arrow(frame)


@pytest.mark.parametrize("room", range(12))
def test_nothing_is_written_behind_the_target(room: int) -> None:
    source = np.frombuffer(b"0123456789", np.uint8)
    starts, lengths = np.array([0, 99, 3], np.int64), np.array([4, -1, 7], np.int64)
    offsets, present = np.empty(4, np.int64), np.empty(3, np.uint8)
    buffer = np.full(60, 0xA5, np.uint8)
    assert arrow_kernels.gather(source, starts, lengths, offsets, present, buffer[20 : 20 + room]) == (room == 11)
    assert set(buffer[:20].tolist() + buffer[20 + room :].tolist()) == {0xA5}
    assert not arrow_kernels.gather(source, starts, lengths, offsets[:3], present, buffer)
    assert not arrow_kernels.gather(source, starts, lengths, offsets, present[:2], buffer)
    assert not arrow_kernels.gather(source, starts, lengths[:2], offsets, present, buffer)


def test_buffers_live_as_long_as_the_batch(seed: int) -> None:
    records = generate(seed, 300)
    batches = [frame_to_arrow(frame_of(records)) for _ in range(5)]
    assert pa.Table.from_batches(batches).to_pylist() == rows(records) * 5
