"""Compares the records that Kafka still has of one partition with the archive's objects, by count and digest."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from archiver.archive.reading.reader import read_parts
from archiver.archive.segments.partition_segments import SegmentSlice
from archiver.archive.segments.parts import ObjectPart
from archiver.archive.segments.segment_facts import Bounds, SegmentFacts
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.tally import Tally
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count
from archiver.store.port import ObjectStore
from archiver.upkeep.lost_keys import KeyComparison

_NO_OFFSETS: Final = np.empty(0, np.int64)


class PartitionComparison:
    """Compares Kafka's records of a partition, taken in order, with the objects that cover their offsets.

    If Kafka still has every record of an object, at offsets without a gap, the object is not read: count and digest in its
    facts are compared. If Kafka has fewer, because it has compacted or deleted, the object must have those that are left. `keys`
    takes the records of a copy that Kafka lacks.
    """

    def __init__(
        self,
        store: ObjectStore,
        topic: str,
        partition: int,
        readings: Sequence[SegmentSlice],
        *,
        start: int = 0,
        end: int,
        keys: KeyComparison | None = None,
    ) -> None:
        self.records = 0  # of Kafka, taken so far
        self.problems: list[str] = []
        self._store = store
        self._topic = topic
        self._partition = partition
        self._left = list(reversed([one for one in readings if one.next > one.from_offset]))
        self._start = start
        self._end = end  # no offsets after it, or before the start, were fetched
        self._keys = keys  # of a copy; None: Kafka may lack archived records
        self._tally = Tally()
        self._offsets: list[Longs] = []

    def take(self, frame: Frame) -> None:
        """Take Kafka's next records."""
        if self._keys is not None:
            self._keys.take(frame)
        row = 0
        while row < len(frame):
            offsets = frame.column(Column.OFFSET)
            while self._left and self._left[-1].next <= offsets[row]:
                self._compare_object(self._left.pop())
            if not self._left or offsets[row] < self._left[-1].from_offset:
                until = self._left[-1].from_offset if self._left else self._end
                stop = int(np.searchsorted(offsets, until))
                self._miss(offsets[row:stop])
            else:
                stop = int(np.searchsorted(offsets, self._left[-1].next))
                self._tally.add(frame, row, stop)
                self._offsets.append(offsets[row:stop].copy())
            self.records += stop - row
            row = stop

    def finish(self) -> None:
        """Compare the remaining objects, after Kafka's last record."""
        while self._left:
            self._compare_object(self._left.pop())

    def _miss(self, offsets: Longs) -> None:
        self.problems.append(
            f"{self._name}: Kafka has {spell_count(len(offsets), 'record')} at offsets {offsets[0]}-{offsets[-1]} that no object covers"
        )

    def _compare_object(self, reading: SegmentSlice) -> None:
        """Compare one object with Kafka's records at its offsets."""
        found, offsets = self._tally, self._offsets
        self._tally, self._offsets = Tally(), []
        is_left_out = not found.records and (self._keys is None or reading.next <= self._start)
        if is_left_out or _is_all_of(reading.segment.facts, found):
            return
        try:
            self._compare_records(reading, found, np.concatenate([_NO_OFFSETS, *offsets]))
        except NotWholeError as error:
            self.problems.append(f"{self._name}: {error}")

    def _compare_records(self, reading: SegmentSlice, found: Tally, offsets: Longs) -> None:
        """Read the object's records at these rising offsets, and compare them with the sums of Kafka's."""
        archived = Tally()
        is_there = np.zeros(len(offsets), bool)
        for frame in read_parts(self._store, self._topic, self._partition, [ObjectPart.of(reading)]):
            ours = frame.column(Column.OFFSET)
            start, stop = (int(at) for at in np.searchsorted(offsets, (ours[0], ours[-1] + 1)))
            asked = offsets[start:stop]
            # The row of each offset among ours, or where it would be; none is above our last one.
            rows = np.searchsorted(ours, asked)
            met = ours[rows] == asked
            is_there[start:stop] = met
            if met.any():
                archived.add(_rows(frame, rows[met]))
            self._take_absent(frame, rows[met])
        absent = offsets[~is_there]
        if len(absent):
            raise NotWholeError(
                f"{reading.segment.object_key}: {spell_count(len(absent), 'record that Kafka has is', 'records that Kafka has are')} not in it, the first at offset"
                f" {absent[0]}"
            )
        # v1.0 has neither the types of timestamps nor the order of headers, and the digest covers both.
        if archived.digest != found.digest and isinstance(reading.segment.facts, SegmentFacts):
            raise NotWholeError(
                f"{reading.segment.object_key}: its records at offsets {offsets[0]}-{offsets[-1]} are not those that Kafka has"
                f" (digest {archived.digest:016x}, Kafka's {found.digest:016x})"
            )

    def _take_absent(self, frame: Frame, there: Longs) -> None:
        if self._keys is not None:
            ours = frame.column(Column.OFFSET)
            is_absent = (ours >= self._start) & (ours < self._end)
            is_absent[there] = False
            self._keys.take_absent(frame.only(is_absent))

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._partition}"


def _is_all_of(facts: SegmentFacts | Bounds, found: Tally) -> bool:
    if isinstance(facts, Bounds):
        return False
    # The digest does not cover offsets: first and last determine all of them only where none is absent.
    is_dense = facts.last - facts.first + 1 == facts.records
    ours = (facts.records, facts.first, facts.last, facts.digest)
    return is_dense and (found.records, found.first, found.last, found.digest) == ours


def _rows(frame: Frame, rows: Longs) -> Frame:
    """Return some rows of a frame, in order; the bytes stay where they are."""
    if len(rows) == len(frame):
        return frame
    table = np.ascontiguousarray(frame.table[:, rows])
    return Frame(body=frame.body, header_body=frame.header_body, table=table)
