"""State of one partition between fetch and put: its position, queue, held records and failures."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter, Written
from archiver.errors import ArchiverError, CorruptBatchError, DroppedError, KafkaTemporaryError
from archiver.kafka.brokers.cluster import OpenTransaction, TopicPartition
from archiver.kafka.records.fetch import Fetched, FetchTarget
from archiver.process.output.text import spell_count

NO_END_OFFSET: Final = 2**63 - 1  # the end of a feed that runs until stopped
LASTING_FAILURE_S: Final = 15.0  # a failure that lasts longer is logged: an election is over by then
_SILENT_S: Final = 5.0  # a partition without an answer for longer may have unknown records
_FETCHES_AHEAD = 2  # fetches of one partition in memory: one being archived, one waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """The progress of a backup in one partition, or its result."""

    source: PartitionSource
    from_offset: int
    position: int
    end_offset: int
    written: Written
    open_transactions: tuple[OpenTransaction, ...]
    error: ArchiverError | None
    dropped_records: int  # records that were held at the end, and are not known to be in the archive


class FeedWatch(Protocol):
    """An observer of the brokers' answers for a partition."""

    def note_answer(self, feed: "Feed", answer: Fetched, asked_s: float) -> None:
        """An answer was taken in. Its request was sent at this time of the feed's clock."""

    def note_skip(self, feed: "Feed", cause: HoleCause) -> None:
        """The writer is about to continue behind a hole."""

    def note_set_back(self, feed: "Feed") -> None:
        """Fetched data is dropped, and will be fetched again."""


@dataclass(slots=True, kw_only=True, eq=False)
class Feed:
    """One partition on its way into the archive. Only the event loop uses it, but one worker at a time uses its writer."""

    writer: PartitionWriter
    end_offset: int = NO_END_OFFSET
    from_offset: int = field(init=False)
    fetch_offset: int = field(default=0, init=False)
    fetched_epoch: int = field(init=False)  # of the last batch before fetch_offset
    queue: deque[Fetch] = field(default_factory=deque)
    working: bool = False
    starving: bool = (
        False  # an answer was empty although records are ahead: next time this partition is first in the request
    )
    alone_ms: int = 0  # the wait of its separate requests; 0: it is fetched with all others of its broker
    closing: bool = False  # flush held records, drop waiting ones, end
    is_dropped: bool = False  # held records are not put any more
    put_due_since_s: float | None = None  # since when a segment waits for its put, or is being put
    put_line: object = None  # its queue of waiting puts
    is_paused: bool = False  # its observer wants no fetches for now
    watch: FeedWatch | None = None
    is_set_aside: bool = False  # its put takes long and memory is short: nothing is fetched meanwhile
    put_again_at_s: float | None = None  # a put failed: nothing else is done until it succeeds
    put_fails_since_s: float | None = None
    put_error: ArchiverError | None = None  # of the last failed put
    reported_base: int | None = field(init=False)  # base of the newest segment that was reported as durable
    replica: int | None = None  # the follower that the leader has named
    replica_until_s: float = 0.0  # from then on the leader is asked again
    not_before_s: float = 0.0  # no fetch before that time: the last one was refused
    fetch_failure: type[KafkaTemporaryError] | None = None
    fetch_fails_since_s: float | None = None
    is_fetch_failure_logged: bool = False
    answered_s: float | None = None  # when an answer came last that was no error
    high_watermark: int | None = None
    last_stable: int | None = None
    pending_since_s: float | None = None  # time since which Kafka is known to have unwritten records
    pending_from: int = field(init=False)  # the durable position at that time
    held_back_since_s: float | None = None  # since when the last stable offset does not move and is below the end
    open_transactions: tuple[OpenTransaction, ...] = ()
    broken: CorruptBatchError | None = (
        None  # the fault of the batch at the writer's position: nothing is fetched until it is judged
    )
    doubted: int = -1  # at this position an answer had a misplaced batch
    error: ArchiverError | None = None
    dropped: DroppedError | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _target: FetchTarget | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.from_offset = self.writer.position
        self.reported_base = self.writer.newest_base
        self.pending_from = self.writer.durable_position
        self.go_on_where_the_writer_is()

    @property
    def source(self) -> PartitionSource:
        return self.writer.source

    @property
    def key(self) -> TopicPartition:
        return self.source.topic, self.source.partition

    @property
    def wants_more(self) -> bool:
        return (
            self.error is None
            and self.broken is None
            and not self.closing
            and self.put_again_at_s is None
            and not self.is_set_aside
            and not self.is_paused
            and self.fetch_offset < self.end_offset
            and len(self.queue) < _FETCHES_AHEAD
        )

    @property
    def has_end(self) -> bool:
        return self.end_offset != NO_END_OFFSET

    @property
    def is_at_end(self) -> bool:
        return self.fetch_offset >= self.end_offset

    @property
    def target(self) -> FetchTarget:
        """The fetch request. It is cached, because requests for a quiet partition do not change."""
        last = self._target
        if last is None or last.offset != self.fetch_offset or last.last_fetched_epoch != self.fetched_epoch:
            last = self._target = FetchTarget(
                topic=self.source.topic,
                topic_id=self.source.topic_id,
                partition=self.source.partition,
                offset=self.fetch_offset,
                last_fetched_epoch=self.fetched_epoch,
            )
        return last

    @property
    def is_busy(self) -> bool:
        """Whether work on this partition is under way, or waits."""
        return self.working or bool(self.queue) or self.put_line is not None

    @property
    def is_ending(self) -> bool:
        """Whether nothing will be fetched after the queue."""
        return self.closing or self.error is not None or self.is_at_end

    # --- fetches

    def follow(self, replica: int, until_s: float) -> None:
        """Fetch the partition from a follower that the leader named; ask the leader again later."""
        self.replica, self.replica_until_s = replica, until_s

    def leave_follower(self) -> None:
        """Have the partition fetched from its leader."""
        self.replica = None

    def fetch_alone(self, wait_ms: int) -> None:
        """Fetch the partition in separate requests with this wait."""
        self.alone_ms = wait_ms

    def fetch_with_others(self) -> bool:
        """Fetch the partition with all others of its broker. Returns whether that is a change."""
        was_alone, self.alone_ms = self.alone_ms > 0, 0
        return was_alone

    def pause_fetches(self, until_s: float) -> None:
        self.not_before_s = until_s

    def enqueue(self, item: Fetch, next_offset: int, epoch: int) -> None:
        """Queue fetched batches for the writer, and continue fetching behind them."""
        self.queue.append(item)
        self.fetch_offset, self.fetched_epoch = next_offset, epoch

    def note_records(self) -> None:
        """Note that an answer had records: the partition waits like all others."""
        self.starving = False

    def note_emptiness(self) -> None:
        """Note that an answer was empty. If records are ahead, the partition is first in the next request."""
        self.starving = self.is_behind

    def doubt(self) -> bool:
        """Note that the answer had a misplaced batch. Returns whether an earlier answer had one at this position, too."""
        is_again, self.doubted = self.doubted == self.fetch_offset, self.fetch_offset
        return is_again

    def note_broken(self, error: CorruptBatchError) -> None:
        """Note a fault of the batch at the writer's position: nothing is fetched until it is judged."""
        self.broken = error

    def forget_broken(self) -> None:
        """Have the broken batch fetched again; the next answer may show the same fault."""
        self.broken = None

    def note_fetch_failure(self, error: KafkaTemporaryError, now_s: float) -> float:
        """Note a temporary error. Returns for how long errors of this kind have blocked fetches."""
        if self.fetch_fails_since_s is None or self.fetch_failure is not type(error):
            self.fetch_failure, self.fetch_fails_since_s, self.is_fetch_failure_logged = type(error), now_s, False
        return now_s - self.fetch_fails_since_s

    def note_lasting_failure(self, lasted_s: float) -> bool:
        """Note for how long fetches have failed. Returns whether to log it: once, when a failure lasts."""
        if lasted_s <= LASTING_FAILURE_S or self.is_fetch_failure_logged:
            return False
        self.is_fetch_failure_logged = True
        return True

    def stalled_s(self, now_s: float) -> float:
        """Return for how long fetches have failed, without progress."""
        return 0.0 if self.fetch_fails_since_s is None else now_s - self.fetch_fails_since_s

    def drop_queue(self) -> int:
        """Drop queued data; it is fetched again, now or by the next run. Returns the number of bytes."""
        dropped_bytes = sum(len(item.records) for item in self.queue)
        self.queue.clear()
        self.go_on_where_the_writer_is()
        return dropped_bytes

    def go_on_where_the_writer_is(self) -> None:
        is_set_back = self.fetch_offset > self.writer.position
        self.fetch_offset, self.fetched_epoch = self.writer.position, self.writer.leader_epoch
        if is_set_back and self.watch is not None:
            self.watch.note_set_back(self)

    # --- work and its end

    def begin_work(self) -> None:
        self.working = True

    def end_work(self) -> None:
        self.working = False

    def fail(self, error: ArchiverError) -> None:
        """End the feed with an error, once everything fetched before is archived."""
        self.error = error

    def abandon(self, error: ArchiverError) -> int:
        """End the feed with an error of its writer, and drop held records. Returns the number of dropped bytes."""
        self.error = error
        self.note_dropped()
        self.writer.discard()
        self.put_again_at_s = None
        return self.drop_queue()

    def close(self, now_s: float) -> None:
        """Begin to end the feed: held records are flushed. A failed put is retried at once."""
        self.closing = True
        if self.put_again_at_s is not None:
            self.put_again_at_s = now_s

    def let_go(self) -> None:
        """Begin to end the feed, without a waiting caller. Held records are not put."""
        self.closing = self.is_dropped = True

    def drop(self) -> None:
        """Drop held records, and remove the feed from its queue: nothing of it is put."""
        self.writer.discard()
        self.put_line = self.put_again_at_s = None

    # --- puts

    def wait_for_put(self, line: object, now_s: float) -> bool:
        """Wait for a put in a line. Returns whether the feed is new in this line."""
        if self.put_due_since_s is None:
            self.put_due_since_s = now_s
        was_in, self.put_line = self.put_line, line
        return was_in is not line

    def begin_put(self) -> None:
        self.put_line = None

    def note_put_failure(self, error: ArchiverError, now_s: float, again_at_s: float) -> None:
        """Note a failed put. Nothing else is done until a put succeeds."""
        self.put_error, self.put_again_at_s = error, again_at_s
        if self.put_fails_since_s is None:
            self.put_fails_since_s = now_s

    def end_put(self, *, has_worked: bool) -> None:
        self.is_set_aside = False
        if has_worked:
            self.put_due_since_s = self.put_again_at_s = self.put_fails_since_s = self.put_error = None

    def set_aside(self) -> int:
        """Fetch nothing until the put has ended, and drop fetched data. Returns the number of dropped bytes."""
        self.is_set_aside = True
        return self.drop_queue()

    def note_newest_segment(self) -> bool:
        """Note the newest durable segment. Returns whether it is new, and must be reported."""
        last, self.reported_base = self.reported_base, self.writer.newest_base
        return last != self.reported_base

    # --- the end of the log

    @property
    def known_end(self) -> int:
        """The known end of fetchable offsets."""
        return self.end_offset if self.has_end else self.last_stable or 0

    @property
    def is_behind(self) -> bool:
        """Whether records are ahead. If so, an empty answer is not the end of the log."""
        return self.fetch_offset < self.known_end

    def note_answer(self, answer: Fetched, now_s: float) -> bool:
        """Note the end of the log in an answer. Returns whether a logged fetch failure is over."""
        if answer.high_watermark >= 0:
            high_watermark, last_stable = answer.high_watermark, answer.last_stable_offset
            if self.replica is not None:  # a follower may know less than its leader has reported
                high_watermark = max(high_watermark, self.high_watermark or 0)
                last_stable = max(last_stable, self.last_stable or 0)
            self.note_ends(high_watermark, last_stable, now_s)
        if answer.error is None:
            self.answered_s = now_s
        if answer.error is not None or not (len(answer.records) or not self.is_behind):
            return False
        was_logged, self.is_fetch_failure_logged, self.fetch_fails_since_s = self.is_fetch_failure_logged, False, None
        return was_logged

    def report_answer(self, answer: Fetched, asked_s: float) -> None:
        """Report an answer to the observer."""
        if self.watch is not None:
            self.watch.note_answer(self, answer, asked_s)

    def report_skip(self, cause: HoleCause) -> None:
        """Report a hole to the watcher, before the writer takes it."""
        if self.watch is not None:
            self.watch.note_skip(self, cause)

    def note_ends(self, high_watermark: int, last_stable: int, now_s: float) -> None:
        """Note the log end that the leader returned."""
        if last_stable == high_watermark:
            self.held_back_since_s = None
            self.open_transactions = ()
        elif self.held_back_since_s is None or last_stable != self.last_stable:
            self.held_back_since_s = now_s
        self.high_watermark, self.last_stable = high_watermark, last_stable
        self.note_pending(now_s)

    def note_open_transactions(self, found: Iterable[OpenTransaction]) -> None:
        self.open_transactions = tuple(found)

    @property
    def is_caught_up(self) -> bool:
        """Whether Kafka is known to have no unwritten records."""
        return self.high_watermark is not None and self.pending_since_s is None and self.put_fails_since_s is None

    def unsaved_since_s(self, now_s: float) -> float | None:
        """Return since when Kafka may have unwritten records, also if it has not answered for a while; None: it has none."""
        if self.pending_since_s is not None:
            return self.pending_since_s
        return self.answered_s if self.answered_s is not None and now_s - self.answered_s > _SILENT_S else None

    def note_pending(self, now_s: float) -> None:
        """Note since when the durable position has not moved and is below the log's end."""
        position = self.writer.durable_position
        if self.high_watermark is None:
            return
        if position >= self.high_watermark:
            self.pending_since_s = None
        elif self.pending_since_s is None or position != self.pending_from:
            self.pending_since_s = now_s
        self.pending_from = position

    def inherit_pending(self, since_s: float | None) -> None:
        """Take over the pending time from before the partition had a feed."""
        self.pending_since_s = since_s

    def note_dropped(self) -> None:
        """Note that the held records are dropped: no put of them is pending."""
        records = self.writer.held_records
        if not records:
            return
        why = self.error or self.put_error or "the store has not answered"
        self.dropped = DroppedError(
            f"{self.source}: {spell_count(records, 'record')} from offset {self.writer.durable_position} on, held at the end,"
            f" {'is' if records == 1 else 'are'} not known to be in the archive: {why}; Kafka still has them, for the next run",
            records=records,
        )

    def report(self) -> PartitionReport:
        return PartitionReport(
            source=self.source,
            from_offset=self.from_offset,
            position=self.writer.position if self.dropped is None else self.writer.durable_position,
            end_offset=self.end_offset,
            written=self.writer.written,
            open_transactions=self.open_transactions,
            error=self.dropped if self.closing and self.dropped is not None else self.error,
            dropped_records=0 if self.dropped is None else self.dropped.records,
        )
