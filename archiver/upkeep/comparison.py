"""Does the archive hold what Kafka still has of a partition? Compared object by object, by count and digest."""

from collections.abc import Sequence

import numpy as np

from archiver.archive.parts import ObjectPart
from archiver.archive.reader import read_parts
from archiver.archive.segment_facts import Bounds, SegmentFacts
from archiver.archive.segments import Reading
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.tally import Tally
from archiver.errors import NotWholeError
from archiver.process.text import spell_count
from archiver.store.port import ObjectStore


class Comparison:
    """Takes Kafka's records of a partition in order, and holds them against the objects that cover their offsets.

    An object of which Kafka still has every record, at offsets without a gap, is not even read: its facts have the same
    count and digest. Where Kafka has fewer, because it has compacted or deleted, those that it has must be there.
    """

    def __init__(
        self, store: ObjectStore, topic: str, partition: int, readings: Sequence[Reading], *, end: int
    ) -> None:
        self.records = 0  # of Kafka's, seen so far
        self.problems: list[str] = []
        self._store = store
        self._topic = topic
        self._partition = partition
        self._left = list(reversed([one for one in readings if one.next > one.from_offset]))
        self._end = end  # what lies behind was not asked of Kafka
        self._tally = Tally()
        self._offsets: list[Longs] = []

    def take(self, frame: Frame) -> None:
        """Take the next records."""
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
        """Say that there is no more."""
        while self._left:
            self._compare_object(self._left.pop())

    def _miss(self, offsets: Longs) -> None:
        self.problems.append(
            f"{self._name}: Kafka has {spell_count(len(offsets), 'record')} at offsets {offsets[0]}-{offsets[-1]} that no object covers"
        )

    def _compare_object(self, reading: Reading) -> None:
        """Hold what Kafka had of one object against it."""
        found, offsets = self._tally, self._offsets
        self._tally, self._offsets = Tally(), []
        if not found.records or _is_all_of(reading.segment.facts, found):
            return
        try:
            self._compare_records(reading, found, np.concatenate(offsets))
        except NotWholeError as error:
            self.problems.append(f"{self._name}: {error}")

    def _compare_records(self, reading: Reading, found: Tally, offsets: Longs) -> None:
        """Hold the object's records at these offsets, which rise, against what they add up to in Kafka."""
        archived = Tally()
        is_there = np.zeros(len(offsets), bool)
        for frame in read_parts(self._store, self._topic, self._partition, [ObjectPart.of(reading)]):
            ours = frame.column(Column.OFFSET)
            start, stop = (int(at) for at in np.searchsorted(offsets, (ours[0], ours[-1] + 1)))
            asked = offsets[start:stop]
            # Where each of them stands among ours, or would: it is below the last one.
            rows = np.searchsorted(ours, asked)
            met = ours[rows] == asked
            is_there[start:stop] = met
            if met.any():
                archived.add(_rows(frame, rows[met]))
        absent = offsets[~is_there]
        if len(absent):
            raise NotWholeError(
                f"{reading.segment.object_key}: {spell_count(len(absent), 'record that Kafka has is', 'records that Kafka has are')} not in it, the first at offset"
                f" {absent[0]}"
            )
        # v1.0 holds neither the type of a timestamp nor the order of headers, and both are in the digest.
        if archived.digest != found.digest and isinstance(reading.segment.facts, SegmentFacts):
            raise NotWholeError(
                f"{reading.segment.object_key}: its records at offsets {offsets[0]}-{offsets[-1]} are not those that Kafka has"
                f" (digest {archived.digest:016x}, Kafka's {found.digest:016x})"
            )

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._partition}"


def _is_all_of(facts: SegmentFacts | Bounds, found: Tally) -> bool:
    if isinstance(facts, Bounds):
        return False
    # Offsets do not enter the digest: only where there is one for each record do first and last tell all of them.
    is_dense = facts.last - facts.first + 1 == facts.records
    ours = (facts.records, facts.first, facts.last, facts.digest)
    return is_dense and (found.records, found.first, found.last, found.digest) == ours


def _rows(frame: Frame, rows: Longs) -> Frame:
    """Return some rows of a frame, in order; the bytes stay where they are."""
    if len(rows) == len(frame):
        return frame
    table = np.ascontiguousarray(frame.table[:, rows])
    return Frame(body=frame.body, header_body=frame.header_body, table=table)
