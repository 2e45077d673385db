"""Reads one partition of `__consumer_offsets` from the archive: its reduced records, and the offsets where records may be missing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from archiver.archive.copies.archived_topic import ArchivedTopic, problems_within
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.reading.reader import fetch_parts, found_or_gone
from archiver.archive.segments.partition_segments import SegmentSlice
from archiver.archive.segments.parts import parts_within
from archiver.archive.segments.segment import open_segment
from archiver.archive.segments.segment_facts import SegmentFacts, TransactionRange
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.selection import ALL_RECORDS, LAST_LONG, Selection
from archiver.errors import FalseFactsError, NotWholeError
from archiver.groups.log.commit_log import CommitRows, Flags
from archiver.groups.log.doubts import Doubt, Doubts
from archiver.groups.log.folds import Folds, reaches_of
from archiver.groups.log.lives import CLOCKS_DIFFER_MS
from archiver.groups.log.log_beginning import LogBeginning, begin_log
from archiver.store.port import ObjectStore

ReportProblem = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLog:
    """One partition of the offsets topic, as the archive has it."""

    partition: int
    life: int = 0  # of the offsets topic
    rows: CommitRows
    doubts: Doubts
    cut: int  # records below it may be of the requested time or earlier
    next: int  # the end of the archive
    first_ms: int | None  # of the oldest record and of the newest; None: none has a time
    last_ms: int | None
    fold_next: int = 0  # everything below was read from folds
    # Some folds lack superseded commits: a removal does not show which other positions existed.
    is_filled_in: bool = False
    # A sweep deleted records that may be of the requested time or earlier. As of this time no such record is missing;
    # LAST_LONG: as of no time. None: it deleted no such record.
    kept_from_ms: int | None = None

    def missing_from(self, offsets: Longs, until: Longs, has_row: Flags) -> Longs:
        """Return for each position the last offset below `until` at which a record of it may be missing; -1: nowhere.

        `has_row`: it has a row behind an offset. Compaction removes only records with a later record, which may also be missing.
        """
        whole = max((one.last for one in self.doubts.doubts if not one.needs_later), default=-1)
        return self.doubts.reach(until, has_row | (offsets < whole))


def read_log(
    store: ObjectStore,
    topic: ArchivedTopic,
    number: int,
    until_ms: int,
    report_problem: ReportProblem,
    folds: Folds,
) -> OffsetsLog:
    """Read a whole partition, its beginning from folds if possible. Unreadable parts are reported, and count as doubts."""
    beginning = begin_log(folds, topic, number, until_ms)
    whole = topic.partitions.get(number, EMPTY_PARTITION)
    inventory = whole.from_offset(beginning.next)
    for problem in problems_within(topic, number, Selection(first_offset=beginning.next)):
        report_problem(problem)
    parts = parts_within(inventory.readable, ALL_RECORDS)
    log, times = beginning.log, LogTimes(until_ms, beginning.first_ms, beginning.last_ms)
    doubts = beginning.all_doubts(topic, number)
    if topic.damaged.get(number):  # an object with unknown coverage
        doubts.append(Doubt(beginning.next, LAST_LONG - 1, needs_later=False))
    for reading, part in zip(inventory.readable, parts, strict=True):
        try:
            for frame, counts_ms in whole_frames(store, topic.topic, number, [reading]):
                times.add(frame)
                log.add(frame, counts_ms)
        except NotWholeError as error:
            report_problem(f"{topic.topic}-{number}: {error}")
            doubts.append(Doubt(part.from_offset, (part.end_offset or LAST_LONG) - 1, needs_later=False))
    rows = log.finish()
    return OffsetsLog(
        partition=number,
        life=topic.life,
        rows=replace(rows, others=rows.others + beginning.others),
        doubts=Doubts(sorted(doubts)),
        cut=times.cut(max([inventory.end, beginning.next, *(gap.last_offset + 1 for gap in inventory.gaps)])),
        next=max(inventory.end, beginning.next),
        first_ms=times.first_ms,
        last_ms=times.last_ms,
        fold_next=beginning.next,
        is_filled_in=beginning.is_filled_in,
        kept_from_ms=_kept_from_ms(topic, number, beginning, folds),
    )


def _kept_from_ms(topic: ArchivedTopic, number: int, beginning: LogBeginning, folds: Folds) -> int | None:
    """Return the time as of which a fold has all swept records, if it is not the requested time."""
    start = 0 if beginning.whole is None else beginning.whole.facts.next
    swept = topic.partitions.get(number, EMPTY_PARTITION).from_offset(start).swept
    if not swept:
        return None
    covering = folds.smallest(reaches_of(topic, number), number, swept[-1].last_offset + 1)
    return LAST_LONG if covering is None else covering.facts.counts_ms


def whole_frames(
    store: ObjectStore, topic: str, number: int, readings: Sequence[SegmentSlice]
) -> Iterator[tuple[Frame, Longs]]:
    """Yield the records of objects, and the latest time from which each counts.

    Each object must have exactly the planned facts, since they show its missing records. Raises NotWholeError for damage, and FalseFactsError.
    """
    parts = parts_within(readings, ALL_RECORDS)
    for reading, (part, found) in zip(readings, fetch_parts(store, parts), strict=True):
        body = open_segment(*found_or_gone(store, part, found), part.object_key)
        noted = reading.segment.facts
        if isinstance(noted, SegmentFacts) if body.facts is None else not body.facts.is_noted_as(noted):
            raise FalseFactsError(
                f"{reading.segment.object_key}: has other facts than the index tells, which may hide what is missing; set"
                " storage.index to ignore, or delete control/index/, which is a cache, and run again"
            )
        transactions = () if body.facts is None else body.facts.transactions or ()
        for frame in body.frames(topic, number, part.from_offset, part.until_offset):
            yield frame, counting_ms(frame, transactions)


def counting_ms(frame: Frame, transactions: Sequence[TransactionRange]) -> Longs:
    """Return the latest time from which each record counts: a commit in a transaction counts from its end marker on."""
    times = frame.column(Column.TIMESTAMP)
    if not transactions:
        return times
    offsets, found = frame.column(Column.OFFSET), times.copy()
    for one in transactions:
        start, stop = np.searchsorted(offsets, [one.first_offset, one.last_offset + 1])
        timed = np.minimum(times[start:stop], LAST_LONG - one.within_ms) + one.within_ms
        found[start:stop] = np.maximum(found[start:stop], np.where(times[start:stop] >= 0, timed, -1))
    return found


class LogTimes:
    """The times of records, and the offset up to which records may be of a time or earlier: clocks of brokers differ a little."""

    def __init__(self, until_ms: int, first_ms: int | None = None, last_ms: int | None = None) -> None:
        self._until_ms = until_ms
        self._first_later: int | None = None
        self._last_earlier = -1
        self.first_ms = first_ms
        self.last_ms = last_ms

    def add(self, frame: Frame) -> None:
        times, offsets = frame.column(Column.TIMESTAMP), frame.column(Column.OFFSET)
        known = times[times >= 0]  # -1: of no known time
        if len(known):
            first, last = int(known.min()), int(known.max())
            self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
            self.last_ms = last if self.last_ms is None else max(self.last_ms, last)
        later = times > min(self._until_ms, LAST_LONG - CLOCKS_DIFFER_MS) + CLOCKS_DIFFER_MS
        if self._first_later is None and later.any():
            self._first_later = int(offsets[np.argmax(later)])
        earlier = offsets[(times >= 0) & (times <= self._until_ms)]
        if len(earlier):
            self._last_earlier = int(earlier[-1])

    def cut(self, end: int) -> int:
        """Return the exclusive end of the offsets where relevant records may be missing; `end`: the end of the archive."""
        return end if self._first_later is None else max(self._first_later, self._last_earlier + 1)
