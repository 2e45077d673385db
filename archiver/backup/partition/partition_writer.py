"""Builds segments from the fetched batches of one partition, and puts them. Order of effects (`_put`): close, put, continue."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from archiver.archive.index.archived_end import ArchivedEnd
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import Hole, HoleCause, SegmentFacts, facts_from_metadata
from archiver.archive.segments.segment_writer import Coverage, FinishedSegment, OpenSegment
from archiver.backup.partition.fetched_batches import (
    Fetch,
    decode_for_archive,
    epoch_before,
    report_oddities,
    without_frames,
)
from archiver.backup.partition.segment_home import HistoryHome, SegmentHome
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.partition.transaction_times import TransactionTimes
from archiver.codec.batch import (
    DecodedBatches,
    first_batch_bytes,
    first_batch_offset,
    first_step,
)
from archiver.codec.frame import Column, Frame
from archiver.errors import CorruptBatchError, CorruptSegmentError, StoreTemporaryError, StrangerError
from archiver.process.running.backoff import Backoff
from archiver.process.running.failpoints import reach
from archiver.store.port import ObjectKind

log = logging.getLogger(__name__)

# A put is retried for this long before the partition fails; Kafka keeps the records meanwhile.
PUT_PATIENCE_S = 300.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_LEVELS = {
    HoleCause.BEFORE_START: logging.INFO,
    HoleCause.UNREADABLE: logging.ERROR,
}


@dataclass(slots=True, kw_only=True)
class Written:
    """Totals of durable segments, records and holes of the writers of one partition."""

    records: int = 0
    payload_bytes: int = 0
    stored_bytes: int = 0
    segments: int = 0
    put_retries: int = 0
    holes: list[Hole] = field(default_factory=list)


class PutLaterError(StoreTemporaryError):
    """A put failed, and its outcome is unknown. The closed segment waits, and `flush` puts it again."""

    def __init__(self, error: StoreTemporaryError, pause_s: float) -> None:
        super().__init__(str(error), cause=error.cause)
        self.pause_s = pause_s


def refuse_stranger(source: PartitionSource, key: str, *, topic_id: str, cluster_id: str) -> None:
    """Raise StrangerError if a segment's topic id or cluster id differs from the source's."""
    if topic_id != source.topic_id or cluster_id != source.cluster_id:
        raise StrangerError(
            f"{key}: belongs to topic id {topic_id} of cluster {cluster_id}, not to topic id {source.topic_id} of"
            f" cluster {source.cluster_id}; give each cluster its own prefix"
        )


class PartitionWriter:
    """Builds segments from fetches in order. Only one thread at a time may use it.

    `position` is the offset of the next fetch; another writer that got ahead moves it (docs/format.md F1).
    `confirm` is called before each put, and raises when the segment may not be put now.
    """

    def __init__(
        self,
        source: PartitionSource,
        end: ArchivedEnd,
        sink: SegmentSink,
        *,
        silences: int,
        written: Written | None = None,
        confirm: Callable[[FinishedSegment], None] | None = None,
        home: SegmentHome | None = None,
    ) -> None:
        """`silences`: their number before `end` was read. `home`: the place of the segments, if not under `topics/`."""
        self.source = source
        self.position = end.next
        self.leader_epoch = end.leader_epoch  # of the last batch before the position; -1: not known
        self.written = written or Written()
        self.oldest_held_ms: int | None = None  # timestamp of the first unwritten record
        self.newest_base = end.base
        self.sink = sink
        self._home = home or HistoryHome(sink.archive, source, sink.fresh)
        self._confirm = confirm
        self._silences = silences
        self._open: OpenSegment | None = None
        self._opened_at_s = 0.0
        self._closed: FinishedSegment | None = None  # the closed segment that waits for its put
        self._closed_at_s = 0.0
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._base = end.next
        self._coverage = Coverage(base=end.next, next=end.next)  # of the open segment, or of the next one
        self._transactions = TransactionTimes(source.topic)

    @property
    def durable_position(self) -> int:
        """Every offset below this one is archived, or has nothing to archive."""
        return self._base if self.holds_records else self.position

    @property
    def objects_end(self) -> int:
        """End of the newest object that this writer knows; 0: it knows none."""
        return 0 if self.newest_base is None else self._base

    @property
    def holds_records(self) -> bool:
        return self._open is not None or self._closed is not None

    @property
    def held_records(self) -> int:
        """Number of records in segments that are not known to be durable."""
        opened, closed = self._open, self._closed
        return (0 if opened is None else opened.records) + (0 if closed is None else closed.facts.records)

    @property
    def spooled_bytes(self) -> int:
        """Number of spool bytes that the held segments take."""
        opened, closed = self._open, self._closed
        return (0 if opened is None else opened.spooled_bytes) + (0 if closed is None else closed.size)

    @property
    def opened_at_s(self) -> float | None:
        return None if self._open is None else self._opened_at_s

    def close_early(self) -> None:
        """Let the open segment count as old, so that it is due."""
        self._opened_at_s = -math.inf

    @property
    def putting_since_s(self) -> float | None:
        """Time since which a closed segment waits for its put, or is being put."""
        return None if self._closed is None else self._closed_at_s

    @property
    def is_due(self) -> bool:
        """Whether a segment must be put before anything else: it is full, or old enough, or closed already."""
        opened = self._open
        return self._closed is not None or (opened is not None and (opened.is_full or self._is_old()))

    def take(self, fetch: Fetch) -> Fetch | None:
        """Take one fetch, until a segment is due; return the rest, to be taken after the segment's put.

        A fetch that does not begin at the position is ignored: it was asked for before the position moved. Raises
        CorruptBatchError when the batch at the position cannot be read; batches before it were taken.
        """
        if fetch.position != self.position or self._closed is not None:
            return None
        rest = fetch
        try:
            while len(rest.records) and not self.is_due:
                self._refuse_older(rest)
                rest = self._take_step(rest)
        except CorruptBatchError as error:
            raise without_frames(error) from None
        return replace(rest, position=self.position) if len(rest.records) else None

    def _refuse_older(self, rest: Fetch) -> None:
        """Refuse a batch that is behind the previous step. Within a step the decoder refuses such batches."""
        if rest.follows and not rest.charged_bytes and first_batch_offset(rest.records) < self.position:
            raise CorruptBatchError(
                f"offset {first_batch_offset(rest.records)}: a batch behind one that ends at {self.position - 1}"
            )

    def _take_step(self, rest: Fetch) -> Fetch:
        """Take as many batches as a thread decodes at once, or a single larger one. Returns the rest."""
        batches = first_step(rest.records)
        *sizes, largest = self.sink.decoding.sizes(self.sink.most_batch_bytes)
        for most_bytes in sizes:
            try:
                return self._take_within(most_bytes, batches, rest)
            except CorruptBatchError as error:  # broken or too large: only decoding with more memory shows which
                good_bytes = error.good_bytes
            if good_bytes:
                return self._take_within(most_bytes, batches[:good_bytes], rest)
            batches = batches[: first_batch_bytes(batches)]
        return self._take_within(largest, batches, rest)

    def _take_within(self, most_bytes: int, batches: memoryview, rest: Fetch) -> Fetch:
        with self.sink.decoding.lend(most_bytes) as scratch:
            decoded = decode_for_archive(batches, self.position, rest.aborted, most_bytes, scratch)
            self._transactions.note(decoded.transactional)
            report_oddities(self.source, self.position, decoded)
            charged_bytes = self._append(decoded, batches, rest)
        if (
            charged_bytes < decoded.source_bytes
        ):  # a segment became due in the midst of the batches: they are decoded again after its put
            return replace(rest, charged_bytes=charged_bytes)
        left = rest.records[decoded.source_bytes :]
        return Fetch(
            position=self.position, records=left, aborted=decoded.aborted, follows=True, stable_end=rest.stable_end
        )

    def _append(self, decoded: DecodedBatches, batches: memoryview, rest: Fetch) -> int:
        """Append records until a segment is due. Returns how many bytes of the batches were charged to segments, up to all."""
        left_bytes, left_rows = decoded.source_bytes - rest.charged_bytes, decoded.records
        for frame in decoded.frames():
            row = 0
            while row < len(frame):
                segment = self._segment(frame, row)
                after = segment.append(frame, row)
                share = left_bytes * (after - row) // left_rows
                left_bytes, left_rows, row = left_bytes - share, left_rows - (after - row), after
                start = self.position
                if not left_rows:
                    self.position, self.leader_epoch = decoded.next_offset, decoded.leader_epoch
                else:
                    self.position, self.leader_epoch = segment.next, epoch_before(batches, segment.next)
                self._coverage.cover(
                    self.position,
                    leader_epoch=self.leader_epoch,
                    source_bytes=share,
                    left_out=decoded.left_out_within(start, self.position),
                    stable_end=rest.stable_end,
                )
                if left_rows and self.is_due:
                    return decoded.source_bytes - left_bytes
        left_out = decoded.left_out_within(self.position, decoded.next_offset)
        self.position, self.leader_epoch = decoded.next_offset, decoded.leader_epoch
        self._coverage.cover(
            self.position,
            leader_epoch=decoded.leader_epoch,
            source_bytes=left_bytes,
            left_out=left_out,
            stable_end=rest.stable_end,
        )
        return decoded.source_bytes

    def take_frame(self, frame: Frame, row: int) -> int:
        """Take rows that no broker sent, from `row` on, until a segment is due. Returns the first row not taken."""
        while row < len(frame) and not self.is_due:
            segment = self._segment(frame, row)
            after = segment.append(frame, row)
            columns = frame.table[[Column.KEY_LENGTH, Column.VALUE_LENGTH, Column.HEADER_LENGTH], row:after]
            row = after
            self.position, self.leader_epoch = segment.next, -1
            self._coverage.cover(self.position, leader_epoch=-1, source_bytes=int(columns.clip(0).sum()))
        return row

    def skip(
        self, first_kept_offset: int, cause: HoleCause = HoleCause.EXPIRED, *, why: str = "", is_news: bool = True
    ) -> None:
        """Continue behind expired or unreadable offsets. They become a hole in the next segment; a new hole is logged and counted now."""
        hole = Hole(first_offset=self.position, last_offset=first_kept_offset - 1, cause=cause)
        if is_news:
            self._report_hole(hole, why)
        self.position, self.leader_epoch = first_kept_offset, -1
        self._coverage.note_hole(hole, has_records=self._open is not None)
        self._coverage.leader_epoch = -1  # another epoch may have begun there

    def _report_hole(self, hole: Hole, why: str) -> None:
        first, last, cause = hole.first_offset, hole.last_offset, hole.cause
        told = f"{cause}; {why}" if why else cause
        level = _LEVELS.get(cause, logging.WARNING)
        log.log(level, "%s: offsets %d to %d are not archived: %s", self.source, first, last, told)
        self.sink.ledger.hole(self.source.topic, self.source.partition, cause=cause, offsets=last - first + 1)

    def pass_over(self, next_offset: int, stable_end: int | None = None) -> None:
        """Continue behind offsets that compaction has emptied; they are no hole. `stable_end`: the last stable offset then."""
        if next_offset <= self.position:
            return
        # Epochs may have begun and ended among the missing offsets: the epoch of the last batch would seem to diverge here.
        self.position, self.leader_epoch = next_offset, -1
        self._coverage.leader_epoch = -1
        self._coverage.cover(self.position, leader_epoch=-1, source_bytes=0, stable_end=stable_end)

    def close(self) -> None:
        """Close the open segment, so that `flush` only has to put it."""
        if self._open is not None:
            transactions = self._transactions.take(self._base, self._open.next)
            self._closed, self._open = self._open.finish(transactions), None
            self._closed_at_s = self.sink.clock()
            self._backoff.reset()

    def flush(self) -> None:
        """Close the open segment, and put the closed one. Raises PutLaterError if that failed for now."""
        self.close()
        if self._closed is not None:
            self._put(self._closed)

    def discard(self) -> None:
        """Drop the held records: the next run fetches them again, from the end of the archive."""
        if self._open is not None:
            self._open.discard()
        if self._closed is not None:
            self._closed.discard()
        self._open = self._closed = self.oldest_held_ms = None
        self._transactions = TransactionTimes(self.source.topic)
        self._coverage = Coverage(base=self._base, next=self._base)
        self.position, self.leader_epoch = self._base, -1

    def _segment(self, frame: Frame, row: int) -> OpenSegment:
        """Return the open segment, or open one that will begin with this row."""
        if self._open is None:
            sink = self.sink
            self._open = OpenSegment(self.source, self._base, sink.limits, sink.spool, sink.blocks, self._coverage)
            self._opened_at_s = sink.clock()
            self.oldest_held_ms = int(frame.column(Column.TIMESTAMP)[row])
        return self._open

    def _is_old(self) -> bool:
        return self.sink.clock() - self._opened_at_s >= self.sink.age_s

    def _put(self, closed: FinishedSegment) -> None:
        """Put the segment, and continue at its end, or at the end of another writer's archive that was first."""
        # 1. It is closed: the body and its facts are whole.
        reach("segment.closed")
        try:
            end = self._taken_over(closed) or self._put_or_find_winner(closed)  # 2. put: from here on it is durable
        except StoreTemporaryError as error:
            raise self._later(error) from error
        closed.recycle()
        reach("segment.put")
        ours = end.next == closed.facts.next
        self._base = end.next  # 3. only now the position counts
        self.newest_base = end.base
        if not ours:
            self.position, self.leader_epoch = end.next, end.leader_epoch
            self._transactions = TransactionTimes(self.source.topic)
        self._coverage = Coverage(base=end.next, next=end.next)
        self._closed = self.oldest_held_ms = None  # last: the loop reads these meanwhile
        reach("position.counted")

    def _later(self, error: StoreTemporaryError) -> StoreTemporaryError:
        """Return the error of a failed put: a retry, which shows the outcome; after a long time, a final error of this feed."""
        self.written.put_retries += 1
        self.sink.ledger.retried("put", error.cause)
        if self.sink.clock() - self._closed_at_s > PUT_PATIENCE_S:
            return error
        return PutLaterError(error, self._backoff.next_s())

    def _taken_over(self, closed: FinishedSegment) -> ArchivedEnd | None:
        """After a silence of this process, read the archive before the put: others may have continued it, or swept the key."""
        if self._confirm is not None:
            self._confirm(closed)
        silences = self.sink.silence_counter.silences
        if silences == self._silences:
            return None
        end = self._end_of_home()
        self._silences = silences
        return end if end.next > self._base else None

    def _end_of_home(self, newest_base: int | None = None) -> ArchivedEnd:
        """Return the archive's present end. Raises CorruptSegmentError if offsets behind our base would be skipped.

        A sweep may have left only the newest object; the opener checks the swept ranges.
        """
        end = self._home.end(newest_base)
        if end.gap is not None and end.gap.first_offset > 0 and self._base <= end.gap.last_offset:
            raise CorruptSegmentError(f"{self.source}: {end.spell_gap(end.gap)}")
        return end

    def _put_or_find_winner(self, closed: FinishedSegment) -> ArchivedEnd:
        """Put the segment. Returns the end of the archive afterwards: another writer's if that one was first."""
        sink, key = self.sink, self._home.key(closed.facts.base)
        with closed.open_body() as body:
            etag = sink.archive.store.put_if_absent(key, body, closed.facts.to_metadata(), kind=ObjectKind.SEGMENT)
        if etag is not None:
            self._home.note(closed, etag)
        facts = closed.facts if etag is not None else self._winner(closed)
        if facts.sha256 == closed.facts.sha256:  # ours: also when the answer to an earlier try was lost
            self._count(closed, sink.clock() - self._closed_at_s)
            return ArchivedEnd.of(facts, key)
        sink.ledger.retried("put", "overtaken")
        # The writer that was first may be far ahead by now.
        return self._end_of_home(facts.base)

    def _winner(self, finished: FinishedSegment) -> SegmentFacts:
        key = self._home.key(finished.facts.base)
        found = self.sink.archive.store.head(key)
        facts = facts_from_metadata(found.metadata, key) if found is not None else None
        if facts is None:
            raise CorruptSegmentError(
                f"{key}: something without our facts stands where {self.source} must go on; move it away"
            )
        refuse_stranger(self.source, key, topic_id=facts.topic_id, cluster_id=facts.cluster_id)
        return facts

    def _count(self, finished: FinishedSegment, seconds: float) -> None:
        written, facts, ledger = self.written, finished.facts, self.sink.ledger
        written.records += facts.records
        written.payload_bytes += facts.bytes
        written.stored_bytes += finished.size
        written.segments += 1
        written.holes.extend(facts.holes)
        ledger.put(
            self.source.topic,
            records=facts.records,
            payload_bytes=facts.bytes,
            stored_bytes=finished.size,
            seconds=seconds,
        )
