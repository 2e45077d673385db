"""Files merged in the order of offsets: where what is known to be missing shows."""

from pathlib import Path

import pytest

from archiver.codec.foreign.frame_merge import FileMerge, MergedFile, Missing, MissingOffsets
from archiver.codec.frame import Frame
from tests.support.frames import frame_of, records_of
from tests.support.records import Rec


def frame(*offsets: int) -> Frame:
    return frame_of([Rec(offset, 1, 0, None, b"v") for offset in offsets])


def merged(rows: list[tuple[int, ...]], *missing: tuple[int, int], is_damage: bool = False) -> list[int | str]:
    """Return the offsets of records, and of each gap its end, as text."""
    files = [
        MergedFile(Path(str(number)), one[0], one[-1] + 1, lambda one=one: iter([frame(*one)]))  # type: ignore[misc]
        for number, one in enumerate(rows)
    ]
    found: list[int | str] = []
    for step in FileMerge(files, [Missing(*one, is_damage, "why") for one in missing]).steps():
        if isinstance(step, MissingOffsets):
            found.append(f"until {step.until}")
        else:
            found += [one.offset for one in records_of(step)]
    return found


@pytest.mark.parametrize("is_damage", [False, True])
def test_what_is_missing_within_a_file_is_a_hole(*, is_damage: bool) -> None:
    right = [0, 1, 2, "until 8", 8, 9]
    assert merged([(0, 1, 2, 8, 9)], (3, 8), is_damage=is_damage) == right
    assert merged([(0, 1, 2, 8, 9), (1, 2, 8)], (3, 8), is_damage=is_damage) == right


def test_several_gaps_within_a_file_are_holes_each() -> None:
    found = merged([(0, 2, 3, 7, 9, 20)], (4, 6), (8, 9), (10, 15), (25, 30))
    assert found == [0, 2, 3, "until 6", 7, "until 9", 9, "until 15", 20, "until 30"]


def test_records_within_a_gap_divide_it() -> None:
    assert merged([(0, 4, 5, 7, 12)], (2, 9)) == [0, "until 4", 4, 5, "until 7", 7, "until 9", 12]
    assert merged([(0, 1, 2, 3, 9)], (1, 3)) == [0, 1, 2, 3, 9]
