"""Compares the records of an object with the facts of the objects that it covers, for `verify` and sweeps."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from archiver.codec.frame import Column, Frame
from archiver.codec.tally import Tally


class Covered(NamedTuple):
    """An object whose offsets another one covers: its coverage, number of records, and digest."""

    key: str
    base: int
    next: int
    records: int
    digest: int


class CoveredRanges:
    """Counts and digests the records of one object, in order, for each object that it covers."""

    def __init__(self, covered: Iterable[Covered]) -> None:
        self._waiting = sorted(covered, key=lambda one: one.base)
        self._open: list[tuple[Covered, Tally]] = []
        self._done: list[tuple[Covered, Tally]] = []

    def add(self, frame: Frame) -> None:
        """Add the next records of the object that covers the others."""
        offsets = frame.column(Column.OFFSET)
        self._begin(int(offsets[-1]))
        for one, tally in self._open:
            start, stop = np.searchsorted(offsets, (one.base, one.next)).tolist()
            tally.add(frame, start, stop)
        passed = int(offsets[-1])
        self._done += [pair for pair in self._open if pair[0].next <= passed]
        self._open = [pair for pair in self._open if pair[0].next > passed]

    def difference(self) -> str:
        """Return the covered objects with other records; empty: none. All records must have been added."""
        self._begin(None)
        for one, tally in [*self._done, *self._open]:
            if (tally.records, tally.digest) != (one.records, one.digest):
                what = f"{tally.records} records" if tally.records != one.records else "other records"
                return f"has {what} at offsets {one.base}-{one.next - 1}, where {one.key} has {one.records}"
        return ""

    def _begin(self, last_offset: int | None) -> None:
        """Begin the covered objects that start at or below an offset; None: all that are left."""
        count = (
            len(self._waiting)
            if last_offset is None
            else bisect_right(self._waiting, last_offset, key=lambda one: one.base)
        )
        self._open += [(one, Tally()) for one in self._waiting[:count]]
        del self._waiting[:count]
