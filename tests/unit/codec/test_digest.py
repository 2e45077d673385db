"""The record digest against docs/format.md §5 in plain Python with the reference XXH64."""

import numpy as np
import pytest
from hypothesis import given, settings

from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels import digest as digest_kernel
from tests.support.frames import digest_of, frame_of
from tests.support.records import Rec, generate, record_lists


def survey(frame: Frame, start: int = 0, stop: int | None = None, found: Longs | None = None) -> dict[str, int]:
    found = empty_survey() if found is None else found
    assert digest_kernel.add_rows(
        frame.body, frame.header_body, frame.table, start, len(frame) if stop is None else stop, found
    )
    names = ("tombstones", "min", "max", "types", "bytes", "largest", "digest")
    return dict(zip(names, found.tolist(), strict=True))


def empty_survey() -> Longs:
    found = np.zeros(digest_kernel.SURVEY_SIZE, np.int64)
    found[digest_kernel.MIN_TIMESTAMP], found[digest_kernel.MAX_TIMESTAMP] = 2**63 - 1, -(2**63)
    return found


def expected(records: list[Rec]) -> dict[str, int]:
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    types = {record.timestamp_type for record in records}
    return {
        "tombstones": sum(record.value is None for record in records),
        "min": min((record.timestamp for record in records), default=2**63 - 1),
        "max": max((record.timestamp for record in records), default=-(2**63)),
        "types": sum(1 << (kind + 1) for kind in types),
        "bytes": sum(sizes),
        "largest": max(sizes, default=0),
        "digest": digest_of(records),
    }


@settings(max_examples=20)
@given(record_lists(extreme=True, largest_gap=2, most=10))
def test_facts_of_any_records(records: list[Rec]) -> None:
    assert survey(frame_of(records)) == expected(records)


@pytest.mark.parametrize("length", [*range(70), 127, 128, 1000])
def test_xxh64_of_every_length(length: int) -> None:
    """31 and 32, and each rest behind stripes, words and half words, take different branches."""
    content = bytes((7 * index + length) % 256 for index in range(length))
    record = Rec(0, 0, 0, content, None, ((content, content),))
    assert survey(frame_of([record]))["digest"] == digest_of([record])


def test_a_known_value() -> None:
    """Computed once from §5: a change of the digest is a change of the format."""
    records = [Rec(0, 1, 0, b"k", b"v", ((b"h", None),)), Rec(9, 2, 1, None, b"")]
    assert survey(frame_of(records))["digest"] == digest_of(records) == 292_114_974_345_265_029


@settings(max_examples=10)
@given(record_lists(most=6), record_lists(most=6))
def test_digests_compose(one: list[Rec], other: list[Rec]) -> None:
    joined = digest_kernel.join_digests(survey(frame_of(one))["digest"], survey(frame_of(other))["digest"], len(other))
    assert joined == digest_of(one + other)


def test_a_run_in_parts_is_the_run(seed: int) -> None:
    records = generate(seed, 300)
    frame, found = frame_of(records), empty_survey()
    for start, stop in ((0, 0), (0, 1), (1, 120), (120, 300)):
        survey(frame, start, stop, found)
    assert survey(frame) == survey(frame, 300, 300, found) == expected(records)


@settings(max_examples=10)
@given(record_lists(least=1, most=3))
def test_offsets_do_not_enter_and_everything_else_does(records: list[Rec]) -> None:
    assert digest_of(records) == digest_of([record.without_offset() for record in records])
    first, *rest = records
    others = [
        Rec(0, first.timestamp ^ 1, 0, first.key, first.value, first.headers),
        Rec(0, first.timestamp, 1, first.key, first.value, first.headers),
        Rec(0, first.timestamp, 0, b"" if first.key is None else None, first.value, first.headers),
        Rec(0, first.timestamp, 0, first.key, b"" if first.value is None else None, first.headers),
        Rec(0, first.timestamp, 0, first.key, first.value, (*first.headers, (b"", None))),
        Rec(0, first.timestamp, 0, first.key, first.value, (*first.headers, (b"", b""))),
    ]
    digests = {survey(frame_of([other, *rest]))["digest"] for other in [first, *others]}
    assert len(digests) == len(others) + 1


@pytest.mark.parametrize("count", [1, 2, 5000])
def test_powers_of_long_runs_stay_below_the_modulus(count: int) -> None:
    records = [Rec(index, 2**63 - 1, 0, b"\xff" * 8, None) for index in range(count)]
    assert survey(frame_of(records))["digest"] == digest_of(records) < digest_kernel.DIGEST_MODULUS


BROKEN_ROWS = {
    Column.TIMESTAMP_TYPE: (-2, 2, 2**62, -(2**63)),
    Column.KEY_START: (-1, 10**6, 2**63 - 1),
    Column.KEY_LENGTH: (10**6, 2**63 - 1),
    Column.VALUE_START: (-1, 10**6, 2**63 - 1),
    Column.VALUE_LENGTH: (10**6, 2**63 - 1),
    Column.HEADER_START: (-1, 10**6, 2**63 - 1),
    Column.HEADER_LENGTH: (-1, 0, 3, 10**6, 2**63 - 1),
    Column.HEADER_COUNT: (-1, 0, 1, 3, 2**62),
}


@pytest.mark.parametrize("column", BROKEN_ROWS, ids=lambda column: column.name)
def test_rows_that_point_outside_are_refused(column: Column) -> None:
    for wrong in BROKEN_ROWS[column]:
        frame = frame_of([Rec(0, 0, 0, b"key", b"value", ((b"a", b"b"), (b"c", None)))])
        frame.table[column, 0] = wrong
        assert not digest_kernel.add_rows(frame.body, frame.header_body, frame.table, 0, 1, empty_survey()), wrong


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 3), (0, 2**62)])
def test_rows_that_are_not_in_the_table_are_refused(start: int, stop: int) -> None:
    nothing: Bytes = np.empty(0, np.uint8)
    table = np.zeros((len(Column), 2), np.int64)
    assert not digest_kernel.add_rows(nothing, nothing, table, start, stop, empty_survey())
