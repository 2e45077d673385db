"""Adds up a run of records: their number, first and last offset, times, bytes, and digest."""

from typing import TypedDict

import numpy as np

from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.digest import (
    DIGEST,
    LARGEST_RECORD,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    PAYLOAD_BYTES,
    SURVEY_SIZE,
    TOMBSTONES,
    TYPES_SEEN,
    add_rows,
)

_TIMESTAMP_TYPES = (-1, 0, 1)


class RecordFacts(TypedDict):
    """The facts of a segment that follow from its records alone, with their names in docs/format.md §4."""

    first: int
    last: int
    records: int
    tombstones: int
    min_timestamp: int
    max_timestamp: int
    timestamp_types: tuple[int, ...]
    bytes: int
    largest_record: int
    digest: int


class Tally:
    """Adds up rows of frames, in order."""

    def __init__(self) -> None:
        self.records = 0
        self.first = self.last = -1
        self._found = np.zeros(SURVEY_SIZE, np.int64)
        self._found[MIN_TIMESTAMP] = np.iinfo(np.int64).max
        self._found[MAX_TIMESTAMP] = np.iinfo(np.int64).min

    @property
    def payload_bytes(self) -> int:
        """The bytes of keys and values."""
        return int(self._found[PAYLOAD_BYTES])

    @property
    def digest(self) -> int:
        return int(self._found[DIGEST])

    def add(self, frame: Frame, start: int = 0, stop: int | None = None) -> None:
        """Add rows of a frame. Raises ValueError for a row that is not in the frame, or points outside its buffers."""
        end = len(frame) if stop is None else stop
        if start >= end:
            return
        if not add_rows(frame.body, frame.header_body, frame.table, start, end, self._found):
            raise ValueError(f"a row of rows {start}..{end} points outside its buffers")
        offsets = frame.column(Column.OFFSET)
        if not self.records:
            self.first = int(offsets[start])
        self.last = int(offsets[end - 1])
        self.records += end - start

    def facts(self) -> RecordFacts:
        """Return the facts. At least one record must have been added."""
        found = self._found.tolist()
        return RecordFacts(
            first=self.first,
            last=self.last,
            records=self.records,
            tombstones=found[TOMBSTONES],
            min_timestamp=found[MIN_TIMESTAMP],
            max_timestamp=found[MAX_TIMESTAMP],
            timestamp_types=tuple(kind for kind in _TIMESTAMP_TYPES if found[TYPES_SEEN] & (1 << (kind + 1))),
            bytes=found[PAYLOAD_BYTES],
            largest_record=found[LARGEST_RECORD],
            digest=found[DIGEST],
        )
