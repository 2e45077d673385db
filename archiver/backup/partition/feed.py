"""State of one partition between fetch and put, in three parts: its fetches, its puts and its end (docs/architecture.md)."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
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


class FetchState(Enum):
    """Whether a partition is in the requests to its broker. It is in the first two states."""

    WANTED = auto()
    STARVING = auto()  # the last answer was empty although records are ahead: it is first in the next request
    PAUSED = auto()  # its observer wants no fetches for now
    SET_ASIDE = auto()  # its put takes long and memory is short: until that put has ended
    BROKEN = auto()  # a batch cannot be read: until it is judged


class PutState(Enum):
    """What is done with the writer of a partition: one step at a time."""

    IDLE = auto()
    WORKING = auto()  # it takes a fetch, or a fault of the partition is judged
    WAITING = auto()  # for a put, in the queue of partitions that go on
    WAITING_AT_END = auto()  # for a put, in the queue of closing partitions
    RUNNING = auto()  # a segment is closed and put
    FAILED = auto()  # a put failed for now: until its retry, nothing else is done


class EndState(IntEnum):
    """How far a partition is on its way to the end. It never goes back."""

    OPEN = auto()
    FAILING = auto()  # it has an error; what was fetched before is archived first
    CLOSING = auto()  # waiting fetches are dropped, and held records are put
    DROPPED = auto()  # held records are not put any more
    ENDED = auto()


# Members of enums are looked up slowly in Python 3.11, and each request asks all its partitions whether they want more.
_WANTED, _STARVING, _OPEN = FetchState.WANTED, FetchState.STARVING, EndState.OPEN


@dataclass(slots=True, kw_only=True, eq=False)
class FeedFetches:
    """The next request of a partition, what was fetched already, and why fetches fail."""

    target: FetchTarget
    state: FetchState = FetchState.WANTED
    queue: deque[Fetch] = field(default_factory=deque)
    alone_ms: int = 0  # the wait of its separate requests; 0: it is fetched with all others of its broker
    replica: int | None = None  # the follower that the leader has named
    replica_until_s: float = 0.0  # from then on the leader is asked again
    not_before_s: float = 0.0  # no fetch before that time: the last one was refused
    failure: type[KafkaTemporaryError] | None = None  # the kind of the last error
    failing_since_s: float | None = None
    broken: CorruptBatchError | None = None  # the fault of the batch at `offset`, while the state is BROKEN
    doubted: int = -1  # at this position an answer had a misplaced batch

    @property
    def offset(self) -> int:
        return self.target.offset

    @property
    def epoch(self) -> int:
        """The epoch of the last batch before `offset`."""
        return self.target.last_fetched_epoch

    def move(self, offset: int, epoch: int) -> None:
        """Continue at another position. The target is replaced only then: requests for quiet partitions do not change."""
        last = self.target
        if (last.offset, last.last_fetched_epoch) != (offset, epoch):
            self.target = FetchTarget(
                topic=last.topic,
                topic_id=last.topic_id,
                partition=last.partition,
                offset=offset,
                last_fetched_epoch=epoch,
            )

    def note_broken(self, error: CorruptBatchError) -> None:
        self.state, self.broken = FetchState.BROKEN, error

    def pause(self) -> None:
        """Fetch nothing until the observer has the state left. A broken batch is judged before."""
        if self.state is not FetchState.BROKEN:
            self.state = FetchState.PAUSED

    def leave(self, state: FetchState) -> None:
        """Fetch again, if the partition is in this state. A broken batch is fetched again, too, and shows its fault again."""
        if self.state is state:
            self.state, self.broken = FetchState.WANTED, None

    def doubt(self) -> bool:
        """Note that the answer had a misplaced batch. Returns whether an earlier answer had one at this position, too."""
        is_again, self.doubted = self.doubted == self.offset, self.offset
        return is_again

    def note_failure(self, error: KafkaTemporaryError, now_s: float) -> float:
        """Note a temporary error. Returns for how long errors of this kind have blocked fetches."""
        if self.failing_since_s is None or self.failure is not type(error):
            self.failure, self.failing_since_s = type(error), now_s
        return now_s - self.failing_since_s

    def stalled_s(self, now_s: float) -> float:
        """Return for how long fetches have failed, without progress."""
        return 0.0 if self.failing_since_s is None else now_s - self.failing_since_s


@dataclass(slots=True, kw_only=True, eq=False)
class FeedPuts:
    """The put of a partition that is due, and its failures."""

    state: PutState = PutState.IDLE
    due_since_s: float | None = None  # since when a segment waits for its put, or is being put
    failing_since_s: float | None = None
    again_at_s: float = 0.0  # the retry of a failed put
    error: ArchiverError | None = None  # of the last failed put

    @property
    def is_working(self) -> bool:
        """Whether a step is under way, which may use the writer in a thread."""
        return self.state in (PutState.WORKING, PutState.RUNNING)

    def wait(self, line: PutState, now_s: float) -> bool:
        """Wait for a put in a queue. Returns whether the partition is new there."""
        if self.due_since_s is None:
            self.due_since_s = now_s
        was, self.state = self.state, line
        return was is not line

    def fail(self, error: ArchiverError, now_s: float, again_at_s: float) -> None:
        self.state, self.error, self.again_at_s = PutState.FAILED, error, again_at_s
        if self.failing_since_s is None:
            self.failing_since_s = now_s

    def succeed(self) -> None:
        self.due_since_s = self.failing_since_s = self.error = None

    def begin_work(self) -> None:
        """Begin a step, if it is not the put that was begun in its turn."""
        if self.state is not PutState.RUNNING:
            self.state = PutState.WORKING

    def end_work(self) -> None:
        if self.state is not PutState.FAILED:
            self.state = PutState.IDLE


@dataclass(slots=True, kw_only=True, eq=False)
class FeedEnding:
    """Whether and why a partition ends."""

    state: EndState = EndState.OPEN
    error: ArchiverError | None = None
    dropped: DroppedError | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_closing(self) -> bool:
        """Whether the end was asked for."""
        return self.state >= EndState.CLOSING

    def go_to(self, state: EndState) -> None:
        self.state = max(self.state, state)

    def fail(self, error: ArchiverError) -> None:
        """End with an error, once everything fetched before is archived."""
        self.error = error
        self.go_to(EndState.FAILING)

    def end(self) -> None:
        self.go_to(EndState.ENDED)
        self.ended.set()


@dataclass(slots=True, kw_only=True, eq=False)
class Feed:
    """One partition on its way into the archive. Only the event loop uses it, but one worker at a time uses its writer."""

    writer: PartitionWriter
    end_offset: int = NO_END_OFFSET
    watch: FeedWatch | None = None
    from_offset: int = field(init=False)
    fetches: FeedFetches = field(init=False)
    puts: FeedPuts = field(default_factory=FeedPuts)
    ending: FeedEnding = field(default_factory=FeedEnding)
    reported_base: int | None = field(init=False)  # base of the newest segment that was reported as durable
    answered_s: float | None = None  # when an answer came last that was no error
    high_watermark: int | None = None
    last_stable: int | None = None
    pending_since_s: float | None = None  # time since which Kafka is known to have unwritten records
    pending_from: int = field(init=False)  # the durable position at that time
    held_back_since_s: float | None = None  # since when the last stable offset does not move and is below the end
    open_transactions: tuple[OpenTransaction, ...] = ()

    def __post_init__(self) -> None:
        writer, source = self.writer, self.writer.source
        self.from_offset = writer.position
        self.reported_base = writer.newest_base
        self.pending_from = writer.durable_position
        self.fetches = FeedFetches(
            target=FetchTarget(
                topic=source.topic,
                topic_id=source.topic_id,
                partition=source.partition,
                offset=writer.position,
                last_fetched_epoch=writer.leader_epoch,
            )
        )

    @property
    def source(self) -> PartitionSource:
        return self.writer.source

    @property
    def key(self) -> TopicPartition:
        return self.source.topic, self.source.partition

    @property
    def wants_more(self) -> bool:
        fetches = self.fetches
        return (
            self.ending.state is _OPEN
            and (fetches.state is _WANTED or fetches.state is _STARVING)
            and self.puts.failing_since_s is None
            and fetches.target.offset < self.end_offset
            and len(fetches.queue) < _FETCHES_AHEAD
        )

    @property
    def has_end(self) -> bool:
        return self.end_offset != NO_END_OFFSET

    @property
    def is_at_end(self) -> bool:
        return self.fetches.offset >= self.end_offset

    @property
    def is_busy(self) -> bool:
        """Whether work on this partition is under way, or waits."""
        return self.puts.state is not PutState.IDLE or bool(self.fetches.queue)

    # --- fetches

    def enqueue(self, item: Fetch, next_offset: int, epoch: int) -> None:
        """Queue fetched batches for the writer, and continue fetching behind them."""
        self.fetches.queue.append(item)
        self.fetches.move(next_offset, epoch)

    def drop_queue(self) -> int:
        """Drop queued data; it is fetched again, now or by the next run. Returns the number of bytes."""
        queue = self.fetches.queue
        dropped_bytes = sum(len(item.records) for item in queue)
        queue.clear()
        self.follow_writer()
        return dropped_bytes

    def follow_writer(self) -> None:
        """Continue fetching at the writer's position."""
        is_set_back = self.fetches.offset > self.writer.position
        self.fetches.move(self.writer.position, self.writer.leader_epoch)
        if is_set_back and self.watch is not None:
            self.watch.note_set_back(self)

    def set_aside(self) -> int:
        """Fetch nothing until the put has ended, and drop fetched data. Returns the number of dropped bytes."""
        dropped_bytes = self.drop_queue()
        if self.fetches.state in (_WANTED, _STARVING):
            self.fetches.state = FetchState.SET_ASIDE
        return dropped_bytes

    # --- the end

    def close(self, now_s: float) -> None:
        """Begin to end the feed: held records are put. A failed put is retried at once."""
        self.ending.go_to(EndState.CLOSING)
        self.puts.again_at_s = min(self.puts.again_at_s, now_s)

    def abandon(self, error: ArchiverError) -> int:
        """End the feed with an error of its writer, and drop held records. Returns the number of dropped bytes."""
        self.ending.fail(error)
        self.note_dropped()
        self.writer.discard()
        return self.drop_queue()

    def note_dropped(self) -> None:
        """Note that the held records are dropped: no put of them is pending. It is the error of a feed that was closed."""
        records, ending = self.writer.held_records, self.ending
        if not records:
            return
        why = ending.error or self.puts.error or "the store has not answered"
        ending.dropped = DroppedError(
            f"{self.source}: {spell_count(records, 'record')} from offset {self.writer.durable_position} on, held at the end,"
            f" {'is' if records == 1 else 'are'} not known to be in the archive: {why}; Kafka still has them, for the next run",
            records=records,
        )
        if ending.is_closing:
            ending.error = ending.dropped

    def end(self) -> bool:
        """End the feed, unless its writer holds records that must be put before. Returns whether it has ended."""
        if self.ending.state is EndState.DROPPED:
            self.writer.discard()
        if self.writer.holds_records:
            return False
        self.puts.state = PutState.IDLE
        self.ending.end()
        return True

    # --- the end of the log

    @property
    def known_end(self) -> int:
        """The known end of fetchable offsets."""
        return self.end_offset if self.has_end else self.last_stable or 0

    @property
    def is_behind(self) -> bool:
        """Whether records are ahead. If so, an empty answer is not the end of the log."""
        return self.fetches.offset < self.known_end

    def note_answer(self, answer: Fetched, now_s: float) -> bool:
        """Note the end of the log in an answer. Returns whether a failure of fetches is over."""
        if answer.high_watermark >= 0:
            high_watermark, last_stable = answer.high_watermark, answer.last_stable_offset
            if self.fetches.replica is not None:  # a follower may know less than its leader has reported
                high_watermark = max(high_watermark, self.high_watermark or 0)
                last_stable = max(last_stable, self.last_stable or 0)
            self.note_ends(high_watermark, last_stable, now_s)
        if answer.error is not None:
            return False
        self.answered_s = now_s
        if self.is_behind and not len(answer.records):
            return False
        was_failing, self.fetches.failing_since_s = self.fetches.failing_since_s is not None, None
        return was_failing

    def note_ends(self, high_watermark: int, last_stable: int, now_s: float) -> None:
        """Note the log end that the leader returned."""
        if last_stable == high_watermark:
            self.held_back_since_s = None
            self.open_transactions = ()
        elif self.held_back_since_s is None or last_stable != self.last_stable:
            self.held_back_since_s = now_s
        self.high_watermark, self.last_stable = high_watermark, last_stable
        self.note_pending(now_s)

    @property
    def is_caught_up(self) -> bool:
        """Whether Kafka is known to have no unwritten records."""
        is_known = self.high_watermark is not None and self.pending_since_s is None
        return is_known and self.puts.failing_since_s is None

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

    def report(self) -> PartitionReport:
        dropped = self.ending.dropped
        return PartitionReport(
            source=self.source,
            from_offset=self.from_offset,
            position=self.writer.position if dropped is None else self.writer.durable_position,
            end_offset=self.end_offset,
            written=self.writer.written,
            open_transactions=self.open_transactions,
            error=self.ending.error,
            dropped_records=0 if dropped is None else dropped.records,
        )
