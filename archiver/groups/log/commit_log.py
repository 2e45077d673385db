"""Reduces one partition of `__consumer_offsets` while reading it: keeps only the relevant records of each key. Readers and folds use it.

1. `add` keeps for each key of a frame the last value before each tombstone, that tombstone, and the last value: up to the
requested time, and, as another history, after it. Earlier commits that may count only after the time, by the marker of
their transaction, are all kept, as rows after it.
2. The remaining rows are copied together, and reduced again when they have doubled.
3. `finish` parses keys and values into columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels import commits as kernels
from archiver.codec.selection import LAST_LONG

_FEW_ROWS: Final = 1 << 16
_PENDING: Final = Column.HEADER_COUNT  # whether a kept row is pending; kept rows have no headers
Flags = npt.NDArray[np.bool_]
_NOTHING: Final = Frame(
    body=np.empty(0, np.uint8), header_body=np.empty(0, np.uint8), table=np.empty((len(Column), 0), np.int64)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRows:
    """The reduced log of a partition: records in order, and their parsed values."""

    frame: Frame
    fields: Longs  # rows of archiver.codec.kernels.commits
    keys: Longs  # a number for each distinct key, the same for a position under both types
    until_ms: int  # rows after this time are another history
    others: int  # records of other kinds, which were skipped
    # Offsets of commits before the time that may count only after it.
    pending: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    late: Sequence[tuple[int, int]] = ()  # ordered ranges of offsets whose commits may count later than at their time

    def __len__(self) -> int:
        return len(self.frame)


class CommitLog:
    """Takes the frames of one partition, in order."""

    def __init__(self, until_ms: int = LAST_LONG) -> None:
        self._until_ms = until_ms
        self._waiting: list[Frame] = []
        self._late: list[tuple[int, int]] = []
        self._waiting_rows = 0
        self._reduced_rows = 0
        self._others = 0

    def add(self, frame: Frame, counts_ms: Longs | None = None) -> None:
        """Add a frame. `counts_ms`: the latest time from which each record counts; None: from its timestamp on."""
        times = frame.column(Column.TIMESTAMP)
        counts_ms = times if counts_ms is None else counts_ms
        if len(late := np.flatnonzero(counts_ms > times)):
            self._late.append((int(frame.table[Column.OFFSET, late[0]]), int(frame.table[Column.OFFSET, late[-1]])))
        self._others += self._keep(frame, (times <= self._until_ms) & (counts_ms > self._until_ms))
        if self._waiting_rows > 2 * self._reduced_rows + _FEW_ROWS:
            self._reduce()

    def finish(self) -> CommitRows:
        self._reduce()
        (frame,) = self._waiting or [_NOTHING]
        pending = frame.column(Column.OFFSET)[frame.column(_PENDING) != 0]
        frame.column(_PENDING)[:] = 0
        fields = np.empty((kernels.COLUMNS, len(frame)), np.int64)
        kernels.decode_commits(frame.body, frame.table, fields)
        return CommitRows(
            frame=frame,
            fields=fields,
            keys=_number_keys(frame, fields[kernels.KIND]),
            until_ms=self._until_ms,
            others=self._others,
            pending=pending,
            late=self._late,
        )

    def _keep(self, frame: Frame, pending: Flags) -> int:
        """Copy the relevant rows of a frame; returns the number of rows of other kinds."""
        kept, slots = np.empty(len(frame), np.uint8), np.zeros((3, _slot_count(len(frame))), np.int64)
        others = kernels.mark_telling(frame.body, frame.table, pending.astype(np.uint8), self._until_ms, slots, kept)
        if others < 0:
            raise ValueError("a key or a value of the frame lies outside its buffer")
        lengths = frame.table[[Column.KEY_LENGTH, Column.VALUE_LENGTH]][:, kept.astype(bool)]
        body = np.empty(int(np.maximum(lengths, 0).sum()), np.uint8)
        table = np.empty((len(Column), lengths.shape[1]), np.int64)
        used = kernels.copy_marked(frame.body, frame.table, kept, body, table)
        self._waiting.append(Frame(body=body[:used].copy(), header_body=_NOTHING.body, table=table))
        self._waiting_rows += len(self._waiting[-1])
        return int(others)

    def _reduce(self) -> None:
        whole = _joined(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        self._keep(whole, whole.column(_PENDING) != 0)
        self._reduced_rows = self._waiting_rows


def _joined(frames: list[Frame]) -> Frame:
    """Concatenate frames."""
    if not frames:
        return _NOTHING
    table = np.concatenate([frame.table for frame in frames], axis=1)
    begins = np.cumsum([0, *(len(frame.body) for frame in frames[:-1])])
    shift = np.repeat(begins, [len(frame) for frame in frames])
    table[Column.KEY_START] += shift
    table[Column.VALUE_START] += shift
    return Frame(body=np.concatenate([frame.body for frame in frames]), header_body=_NOTHING.body, table=table)


def _number_keys(frame: Frame, kinds: Longs) -> Longs:
    """Number positions and groups; a position has the same number under both types of key."""
    starts, lengths = frame.column(Column.KEY_START) + 2, frame.column(Column.KEY_LENGTH) - 2
    alike = number_texts(frame.body, starts, lengths)  # a group may have used two protocols
    found: Longs = np.unique(alike * (kernels.STREAMS + 1) + kinds, return_inverse=True)[1]
    return found


def number_texts(body: Bytes, starts: Longs, lengths: Longs) -> Longs:
    """Number equal values, from 0."""
    numbers = np.empty(len(starts), np.int64)
    slots = np.zeros(_slot_count(len(starts)), np.int64)
    kernels.number_texts(body, np.ascontiguousarray(starts), np.ascontiguousarray(lengths), slots, numbers)
    return numbers


def _slot_count(rows: int) -> int:
    """Return a power of two, more than half of it empty."""
    return 1 << (2 * rows).bit_length()
