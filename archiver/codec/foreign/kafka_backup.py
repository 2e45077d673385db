"""Decodes segment files of itadventurer/kafka-backup to frames. `archiver import kafka-backup` uses it.

A segment is a file of records, and an index with an entry for each record that the tool has confirmed. After a kill, records
without an entry may stand behind the last confirmed one, whole or cut. They should come again behind them, or in the next
file: they are yielded apart, so that the caller can compare them, and take those that never came again.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from archiver.codec.batch import MOST_FETCHED_ROWS
from archiver.codec.foreign.damage import NO_OFFSETS
from archiver.codec.frame import Bytes, Column, Frame, Longs
from archiver.codec.kernels.foreign import kafka_backup as kernels

UNKNOWN_END: Final = -1
_MOST_LEFTOVERS: Final = 16  # of one place: one for each kill
_NO_INDEX: Final = np.empty(0, np.uint8)


class DamagedSpan(NamedTuple):
    """Bytes of a segment file that are not imported, and why."""

    start: int
    end: int
    until: int  # offsets below are missing; UNKNOWN_END: up to the next file; NO_OFFSETS: none
    why: str
    is_confirmed: bool = True  # False: the tool had confirmed no record there


class Leftovers(NamedTuple):
    """Bytes of a segment file with records that the tool has not confirmed. Their offsets rise."""

    start: int
    end: int
    first: int
    last: int  # offset


Found = Frame | DamagedSpan | Leftovers


class StoredSegments:
    """Decodes the segment files of a partition, in their order.

    `last` is the highest offset that was read. The caller raises it where damage leaves offsets out: no record below is read then.
    """

    def __init__(self) -> None:
        self.last = -1
        self.end = 0  # of the bytes that are decoded of the present file
        self.problem = kernels.OK  # why reading ended before the end
        self._promised = -1  # the last offset in the index of the present file; -1: it has none that could be believed
        self._trusts_index = False
        self._table = np.empty((len(Column), MOST_FETCHED_ROWS), np.int64)
        self._headers = np.empty(kernels.FRAME_BYTES // 4, np.uint8)

    def read(self, content: Bytes, index: Bytes, below: int = kernels.MOST_OFFSET + 1) -> Iterator[Found]:
        """Yield the records and damages of a file, both with their first byte. A frame is valid until the next one is asked for.

        `below`: the first offset of the next file.
        """
        state = np.zeros(kernels.STATE_SIZE, np.int64)
        state[kernels.POSITION], state[kernels.END] = 1, len(content)
        state[kernels.ENTRIES] = max(len(index) - 1, 0) // kernels.ENTRY_SIZE
        state[kernels.INDEXED], state[kernels.CEILING] = -1, below
        self._promised, self._trusts_index = (
            _last_offset(index, int(state[kernels.ENTRIES])),
            bool(state[kernels.ENTRIES]),
        )
        state[kernels.STOPS] = self._trusts_index
        while True:
            yield from self.records(content, index, state)
            entry, entries, position = state[[kernels.ENTRY, kernels.ENTRIES, kernels.POSITION]].tolist()
            if entry == entries:
                break
            if self.problem == kernels.LEFTOVERS:
                yield from self._leftovers(content, state, _entry(index, entry)[1])
            elif self.problem == kernels.BAD_ENTRY:
                offset, begin, _ = _entry(index, entry)
                is_cut = begin == position and offset > self.last  # the file of records, perhaps
                self._leave_index(state, self._promised if is_cut else -1)
            else:
                yield from self._behind_broken(content, index, state)
        if self.last < self._promised:
            yield DamagedSpan(
                position, len(content), self._promised + 1, "records of the index are missing at the end of the file"
            )
        elif self._trusts_index:
            yield from self._leftovers(content, state, len(content))
        elif self.problem != kernels.OK:
            yield DamagedSpan(position, len(content), UNKNOWN_END, "no whole record")

    def records(self, content: Bytes, index: Bytes, state: Longs) -> Iterator[Frame]:
        """Yield records up to a problem, which is kept."""
        while True:
            state[kernels.FLOOR] = self.last
            rows, problem = kernels.index_stored(content, index, self._table, self._headers, state)
            self.end = int(state[kernels.POSITION])
            if rows:
                self.last = int(self._table[Column.OFFSET, rows - 1])
                table = np.ascontiguousarray(self._table[:, :rows])
                yield Frame(body=content, header_body=self._headers, table=table)
            if problem == kernels.NEEDS_ROOM:
                self._headers = np.empty(int(state[kernels.NEEDED]), np.uint8)
            elif problem != kernels.OK or not rows:
                self.problem = int(problem)
                return

    def _leftovers(self, content: Bytes, state: Longs, end: int) -> Iterator[Found]:
        """Yield where unconfirmed records are before `end`, and step over them. Where their offsets fall, others begin."""
        inside, reader = _without_index(int(state[kernels.POSITION]), end), StoredSegments()
        state[kernels.POSITION] = end
        for _ in range(_MOST_LEFTOVERS):
            start, reader.last = int(inside[kernels.POSITION]), self.last
            firsts = [int(frame.column(Column.OFFSET)[0]) for frame in reader.records(content, _NO_INDEX, inside)]
            if firsts:
                yield Leftovers(start, reader.end, firsts[0], reader.last)
            if reader.problem != kernels.NOT_RISING or not firsts:
                break
        falls = reader.problem == kernels.NOT_RISING
        if reader.end < end and (falls or end == len(content)):
            why = "offsets of unconfirmed records fall" if falls else "no whole record"
            yield DamagedSpan(reader.end, end, NO_OFFSETS, why, is_confirmed=falls)

    def _behind_broken(self, content: Bytes, index: Bytes, state: Longs) -> Iterator[Found]:
        """Continue behind an index entry whose record is not where it says."""
        entry, start = state[[kernels.ENTRY, kernels.POSITION]].tolist()
        offset, begin, length = _entry(index, entry)
        found = int(kernels.find_record(content, start + 1, begin + length, offset))
        if found >= 0:  # the entry for the first record after a kill may cover leftovers before it
            yield from self._leftovers(content, state, found)
            state[kernels.PASSED] = found - begin
            return
        good, is_good = kernels.next_entry(content, index, entry, int(state[kernels.ENTRIES]), self.last)
        if not is_good and good < state[kernels.ENTRIES]:
            self._leave_index(state, -1)
            return
        before, *place = _entry(index, good - 1)
        before = min(before, int(state[kernels.CEILING]) - 1)
        end = _entry(index, good)[1] if is_good else sum(place)
        yield DamagedSpan(start, end, before + 1, "not the records of the index")
        state[kernels.ENTRY], state[kernels.POSITION] = good, end
        state[kernels.INDEXED], state[kernels.PASSED] = before, 0

    def _leave_index(self, state: Longs, promised: int) -> None:
        """Read on without the index, but for its last offset."""
        state[kernels.ENTRIES], self._promised, self._trusts_index = state[kernels.ENTRY], promised, False
        state[kernels.STOPS] = 0


def read_leftovers(content: Bytes, found: Leftovers) -> Iterator[Frame]:
    """Yield the records of leftovers. A frame is valid until the next one is asked for."""
    yield from StoredSegments().records(content, _NO_INDEX, _without_index(found.start, found.end))


def _without_index(start: int, end: int) -> Longs:
    """Return the state of a kernel that reads records one behind the other."""
    state = np.zeros(kernels.STATE_SIZE, np.int64)
    state[kernels.POSITION], state[kernels.END] = start, end
    state[kernels.INDEXED], state[kernels.CEILING] = -1, kernels.MOST_OFFSET + 1
    return state


def _entry(index: Bytes, entry: int) -> list[int]:
    """Return offset, position and length in an index entry."""
    at = 1 + kernels.ENTRY_SIZE * entry
    found: list[int] = np.frombuffer(index[at : at + kernels.ENTRY_SIZE].tobytes(), ">i8").tolist()
    return found


def _last_offset(index: Bytes, entries: int) -> int:
    """Return the offset of the last index entry; -1 if there is none, or if it cannot be one."""
    offset = _entry(index, entries - 1)[0] if entries else -1
    return offset if offset <= kernels.MOST_OFFSET else -1
