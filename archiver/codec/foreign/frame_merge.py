"""Merges the files of a partition in the order of offsets. Offsets that several files have must have the same record in each.

Used by imports of formats whose files may overlap, or be missing.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from archiver.codec.foreign.damage import NO_OFFSETS, DamagedInput
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.kernels.foreign.foreign_avro import count_same_rows

UNKNOWN_END: Final = 2**63 - 1  # above all offsets


class Missing(NamedTuple):
    """Offsets from `first` on and before `until` that have no record, unless a file has one. `is_damage`: they had one once."""

    first: int
    until: int
    is_damage: bool
    why: str


class MergedFile(NamedTuple):
    """A file with records: no offset is below `first`, nor at or above `until`. `read` may also yield what it finds to be missing, and more files."""

    path: Path
    first: int
    until: int
    read: "Callable[[], Iterator[Frame | DamagedInput | Missing | MergedFile]]"
    is_confirmed: bool = True  # False: where another file has other records, that one is believed


class MissingOffsets(NamedTuple):
    """Offsets that no file has, up to `until`, which is exclusive; NO_OFFSETS: the damage is only reported."""

    until: int
    is_damage: bool
    why: str


_NO_RECORDS: Final = Frame(
    body=np.empty(0, np.uint8), header_body=np.empty(0, np.uint8), table=np.empty((len(Column), 0), np.int64)
)


class _Open:
    """A file being read: its frame, and the next row of it."""

    def __init__(self, file: MergedFile, missing: list[Missing], add: Callable[[MergedFile], None]) -> None:
        self.path = file.path
        self.is_confirmed = file.is_confirmed
        self.frame = _NO_RECORDS
        self.row = 0
        self._file = file
        self._steps = file.read()
        self._next = file.first  # no offset is below
        self._missing = missing
        self._add = add
        self._broken: list[DamagedInput] = []  # whose last offset is not known yet
        self._load()

    @property
    def head(self) -> int:
        return int(self.offsets[self.row])

    @property
    def offsets(self) -> Longs:
        return self.frame.column(Column.OFFSET)

    def take(self, until: int) -> Frame:
        """Return the rows before a row, and step behind them."""
        taken = self.frame if (self.row, until) == (0, len(self.frame)) else self.frame.rows(self.row, until)
        self.row = until
        return taken

    def refill(self) -> bool:
        """Load the next frame if this one is used up. Returns whether there is a record."""
        if self.row and self.row == len(self.frame):
            self._next = int(self.offsets[-1]) + 1
            self._load()
        return self.row < len(self.frame)

    def _load(self) -> None:
        self.frame, self.row = _NO_RECORDS, 0
        for step in self._steps:
            if isinstance(step, DamagedInput):
                self._broken.append(step)
            elif isinstance(step, Missing):
                heappush(self._missing, step)
            elif isinstance(step, MergedFile):
                self._add(step)
            elif len(step):
                offsets = step.column(Column.OFFSET)
                if offsets[0] < self._next or offsets[-1] >= self._file.until or (offsets[1:] <= offsets[:-1]).any():
                    self._broken.append(
                        DamagedInput(0, 0, f"its offsets do not rise, or are not those of its name, near {offsets[0]}")
                    )
                    break
                self.frame = step
                self._report(int(offsets[0]))
                return
        self._report(self._file.until)

    def _report(self, until: int) -> None:
        """Report damages before an offset."""
        for one in self._broken:
            place = f"bytes {one.start} to {one.end} of {self.path}" if one.end else str(self.path)
            heappush(self._missing, Missing(self._next, until, True, f"{place}: {one.reason}"))
        self._broken.clear()


class FileMerge:
    """One walk over the files of a partition. `missing`: what is known before."""

    def __init__(self, files: Sequence[MergedFile], missing: Sequence[Missing] = ()) -> None:
        self._waiting = [*files]
        self._sort()
        self._missing = list(missing)
        heapify(self._missing)
        self._open: list[_Open] = []
        self._position = 0

    def steps(self) -> Iterator[Frame | MissingOffsets]:
        """Yield all records, and gaps where offsets are missing for a known reason."""
        while self._fill():
            lead = min(self._open, key=lambda one: one.head)
            same = [one for one in self._open if one is not lead and one.head == lead.head]
            yield from self._gaps(lead.head)
            limit = min(
                [one.head for one in self._open if one.head > lead.head]
                + [one.first for one in self._waiting[-1:]]
                + [UNKNOWN_END]
            )
            stop = self._before_gap(lead, int(np.searchsorted(lead.offsets, limit)))
            rows = min([stop - lead.row, *(_same_rows(lead, one, stop - lead.row) for one in same)])
            if not rows:
                yield from self._contradiction(lead, same)
                continue
            for one in same:
                one.take(one.row + rows)
            taken = lead.take(lead.row + rows)
            self._position = int(taken.column(Column.OFFSET)[-1]) + 1
            yield taken
        yield from self._gaps(UNKNOWN_END)

    def _sort(self) -> None:
        self._waiting.sort(key=lambda one: (one.first, one.path), reverse=True)

    def _add(self, file: MergedFile) -> None:
        self._waiting.append(file)
        self._sort()

    def _fill(self) -> bool:
        """Open the files that may have the next offset. Returns whether there is a record."""
        self._open = [one for one in self._open if one.refill()]
        while self._waiting and (not self._open or self._waiting[-1].first <= min(one.head for one in self._open)):
            opened = _Open(self._waiting.pop(), self._missing, self._add)
            if opened.refill():
                self._open.append(opened)
        return bool(self._open)

    def _contradiction(self, lead: _Open, same: Sequence[_Open]) -> Iterator[MissingOffsets]:
        head = lead.head
        doubtful = [one for one in (lead, *same) if not one.is_confirmed]
        if 0 < len(doubtful) <= len(same):
            for one in doubtful:
                one.take(one.row + 1)
            why = f"an unconfirmed record at offset {head} of {doubtful[0].path} is not the confirmed one, which is imported"
            yield MissingOffsets(NO_OFFSETS, True, why)
            return
        names = ", ".join(str(one.path) for one in same)
        for one in (lead, *same):
            one.take(one.row + 1)
        self._position = head + 1
        yield MissingOffsets(head + 1, True, f"offset {head} has other records in {lead.path} and {names}")

    def _before_gap(self, lead: _Open, stop: int) -> int:
        """Return the row before `stop` at which offsets jump over what is known to be missing; else `stop`."""
        if not self._missing or self._missing[0].first > lead.offsets[stop - 1]:
            return stop
        row = max(lead.row + 1, int(np.searchsorted(lead.offsets, self._missing[0].first)))
        jumps = np.flatnonzero(lead.offsets[row:stop] > lead.offsets[row - 1 : stop - 1] + 1)
        return row + int(jumps[0]) if len(jumps) else stop

    def _gaps(self, head: int) -> Iterator[MissingOffsets]:
        """Yield what is missing between the position and the next record; then nothing is missing below."""
        while self._missing and self._missing[0].first < head:
            one = heappop(self._missing)
            until = min(one.until, head)
            if until == UNKNOWN_END or until <= self._position:
                # No record follows, or other files have these records: what is missing is unknown.
                if one.is_damage:
                    yield MissingOffsets(NO_OFFSETS, one.is_damage, one.why)
                continue
            self._position = until
            yield MissingOffsets(until, one.is_damage, one.why)
            if head < one.until < UNKNOWN_END:
                heappush(self._missing, one._replace(first=head))


def _same_rows(lead: _Open, other: _Open, most: int) -> int:
    mine, theirs = ((one.frame.body, one.frame.header_body, one.frame.table, one.row) for one in (lead, other))
    return int(count_same_rows(*mine, *theirs, most))
