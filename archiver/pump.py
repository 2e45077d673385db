"""The loop of a backup: one fetch at a time per broker, one task at a time per partition, bounded bytes between them."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from archiver.codec.batch import position_after, whole_batches
from archiver.errors import ArchiverError, CorruptBatchError, KafkaError, KafkaTemporaryError, NotWholeError
from archiver.kafka.client import KafkaClient, OpenTransaction, PartitionOffsets
from archiver.kafka.fetch import UNKNOWN_EPOCH, Divergence, Fetched, FetchProblem, FetchTarget, fetch
from archiver.segment import PartitionSource
from archiver.writer import Fetch, PartitionWriter, Written, epoch_of

log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]

# About 4 MB a partition is the best measured size; larger answers were slower.
PARTITION_BYTES = 4 * 1024 * 1024
ANSWER_BYTES = 16 * 1024 * 1024
_FETCHES_AHEAD = 2  # of one partition: one being archived, one waiting
_LONGEST_WAIT_MS = 500
_PAUSE_S = 0.2
_TELL_EVERY_S = 0.2
PATIENCE_S = 300.0  # without any progress of a partition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What became of one partition."""

    source: PartitionSource
    from_offset: int
    position: int
    end_offset: int
    written: Written
    open_transactions: tuple[OpenTransaction, ...]
    error: ArchiverError | None


@dataclass(slots=True)
class Feed:
    """One partition between fetch and writer."""

    writer: PartitionWriter
    end_offset: int
    topic_id: str
    from_offset: int
    fetch_offset: int
    fetched_epoch: int = UNKNOWN_EPOCH  # of the last batch before fetch_offset
    open_transactions: tuple[OpenTransaction, ...] = ()
    queue: deque[Fetch] = field(default_factory=deque)
    working: bool = False
    starving: bool = False  # an empty answer although its end is ahead: next time it goes first
    finished: bool = False
    trouble_since_s: float | None = None
    error: ArchiverError | None = None

    @property
    def key(self) -> TopicPartition:
        return self.writer.source.topic, self.writer.source.partition

    @property
    def wants_more(self) -> bool:
        return self.error is None and self.fetch_offset < self.end_offset and len(self.queue) < _FETCHES_AHEAD

    def go_on_where_the_writer_is(self) -> None:
        self.fetch_offset, self.fetched_epoch = self.writer.position, self.writer.leader_epoch

    def report(self) -> PartitionReport:
        return PartitionReport(
            source=self.writer.source,
            from_offset=self.from_offset,
            position=self.writer.position,
            end_offset=self.end_offset,
            written=self.writer.written,
            open_transactions=self.open_transactions,
            error=self.error,
        )


def cut_back(source: PartitionSource, position: int, offsets: PartitionOffsets) -> NotWholeError:
    return NotWholeError(
        f"{source}: the archive reaches offset {position}, the log ends at {offsets.high_watermark}: the log was cut back,"
        " or the topic was created again. What is archived is kept; archive this topic under a new prefix"
    )


def parted(source: PartitionSource, position: int, epoch: int, diverging: Divergence | None) -> NotWholeError:
    since = f", and since offset {diverging.end_offset} it is another" if diverging else ""
    return NotWholeError(
        f"{source}: the archive reaches offset {position} with leader epoch {epoch}; the log there is not the one that was"
        f" archived{since}: the log was cut back. What is archived is kept; archive this topic under a new prefix"
    )


class Pump:
    """The loop: one fetch at a time per broker, one task at a time per partition, a bounded number of bytes between them."""

    def __init__(
        self,
        client: KafkaClient,
        feeds: Sequence[Feed],
        *,
        pool: ThreadPoolExecutor,
        memory_bytes: int,
        clock: Callable[[], float],
        notice: Callable[[Sequence[PartitionReport]], None],
    ) -> None:
        self._client = client
        self._feeds = {feed.key: feed for feed in feeds}
        self._clock = clock
        self._pool = pool
        self._notice = notice
        # Decompressed and encoded, a fetch takes about four times its size.
        self._most_held_bytes = max(memory_bytes // 4, ANSWER_BYTES)
        self._held_bytes = 0
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._told_at_s = clock()

    async def run(self) -> None:
        try:
            while not all(feed.finished for feed in self._feeds.values()):
                self._start_work()
                await self._start_fetches()
                running = [*self._fetches.values(), *self._work]
                if running:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(_PAUSE_S)
                self._collect()
                self._tell()
        finally:
            for task in self._fetches.values():
                task.cancel()
            await asyncio.gather(*self._fetches.values(), *self._work, return_exceptions=True)
            for feed in self._feeds.values():
                feed.writer.discard()

    def _tell(self) -> None:
        if self._clock() - self._told_at_s >= _TELL_EVERY_S:
            self._told_at_s = self._clock()
            self._notice([feed.report() for feed in self._feeds.values()])

    def _collect(self) -> None:
        for node, task in list(self._fetches.items()):
            if task.done():
                del self._fetches[node]
                task.result()
        for work in [task for task in self._work if task.done()]:
            self._work.discard(work)
            work.result()

    # --- fetch

    async def _start_fetches(self) -> None:
        if self._held_bytes >= self._most_held_bytes:
            return
        waiting = [feed for feed in self._feeds.values() if feed.wants_more]
        by_node: dict[int, list[Feed]] = {}
        for feed, node in await self._led(waiting):
            by_node.setdefault(node, []).append(feed)
        for node, feeds in by_node.items():
            if node not in self._fetches:
                self._fetches[node] = asyncio.create_task(self._fetch(node, self._in_turn(feeds)))

    async def _led(self, waiting: Sequence[Feed]) -> list[tuple[Feed, int]]:
        """Find leaders for all at once; when that fails, topic by topic, so that a topic in trouble stops only itself."""
        try:
            return await self._led_together(waiting)
        except (KafkaError, KafkaTemporaryError):
            by_topic: dict[str, list[Feed]] = {}
            for feed in waiting:
                by_topic.setdefault(feed.key[0], []).append(feed)
            found = await asyncio.gather(*(self._led_if_well(feeds) for feeds in by_topic.values()))
            return [row for rows in found for row in rows]

    async def _led_together(self, feeds: Sequence[Feed]) -> list[tuple[Feed, int]]:
        leaders = await self._client.leaders([feed.key for feed in feeds]) if feeds else {}
        return [(feed, leaders[feed.key]) for feed in feeds]

    async def _led_if_well(self, feeds: Sequence[Feed]) -> list[tuple[Feed, int]]:
        try:
            return await self._led_together(feeds)
        except KafkaTemporaryError as error:  # the client has paused and asked again before it gave up
            self._note_trouble(feeds, error)
        except KafkaError as error:
            for feed in feeds:
                feed.error = error
        return []

    def _in_turn(self, feeds: list[Feed]) -> list[Feed]:
        """Rotate, and put first who got nothing last time: a large batch behind a busy partition would starve."""
        self._turn += 1
        start = self._turn % len(feeds)
        return sorted(feeds[start:] + feeds[:start], key=lambda feed: not feed.starving)

    async def _fetch(self, node: int, feeds: list[Feed]) -> None:
        targets = [
            FetchTarget(
                topic=feed.key[0],
                topic_id=feed.topic_id,
                partition=feed.key[1],
                offset=feed.fetch_offset,
                last_fetched_epoch=feed.fetched_epoch,
            )
            for feed in feeds
        ]
        try:
            answers = await fetch(
                self._client,
                node,
                targets,
                max_bytes=ANSWER_BYTES,
                partition_bytes=PARTITION_BYTES,
                max_wait_ms=_LONGEST_WAIT_MS,
                min_bytes=1,
            )
        except KafkaTemporaryError as error:
            for feed in feeds:
                self._client.forget_leaders(feed.key[0])
            self._note_trouble(feeds, error)
            await asyncio.sleep(_PAUSE_S)
            return
        except KafkaError as error:
            for feed in feeds:
                feed.error = error
            return
        for place, (feed, target, answer) in enumerate(zip(feeds, targets, answers, strict=True)):
            if feed.fetch_offset == target.offset:
                await self._accept(feed, answer, first=place == 0)

    async def _accept(self, feed: Feed, answer: Fetched, *, first: bool) -> None:
        if answer.error is not None:
            await self._face(feed, answer)
        elif len(answer.records):
            feed.starving = False
            feed.trouble_since_s = None
            self._enqueue(feed, answer)
        elif first and answer.last_stable_offset >= feed.end_offset:
            # Served first and still nothing: compaction left no batch between here and the end.
            feed.fetch_offset, feed.fetched_epoch = feed.end_offset, UNKNOWN_EPOCH
        else:
            if first and feed.starving:
                await self._look_for_the_end(feed, answer)
            feed.starving = True

    async def _look_for_the_end(self, feed: Feed, answer: Fetched) -> None:
        """Served first, twice, and nothing came although the end is ahead: it may have gone away under us."""
        source = feed.writer.source
        what = f"{source}: nothing comes at offset {feed.fetch_offset}, though the end was {feed.end_offset}; look at its leader"
        self._note_trouble([feed], KafkaTemporaryError(what))
        if answer.high_watermark >= feed.end_offset:
            return
        # A new leader may know less of the end at first; asked for offsets, it says so.
        offsets = await self._offsets(feed)
        if offsets is not None and offsets.high_watermark < feed.end_offset:
            feed.error = NotWholeError(
                f"{source}: its end was offset {feed.end_offset} when this backup began, and the log ends at"
                f" {offsets.high_watermark}: the log was cut back. What is archived is kept; archive this topic under a new"
                " prefix"
            )

    def _enqueue(self, feed: Feed, answer: Fetched) -> None:
        position = feed.fetch_offset
        try:
            batches, whole = whole_batches(answer.records, position)
        except CorruptBatchError as error:
            feed.error = CorruptBatchError(f"{feed.writer.source}: {error}")
            return
        feed.fetch_offset, feed.fetched_epoch = position_after(batches, position), epoch_of(batches)
        feed.queue.append(Fetch(position=position, records=answer.records[: len(whole)], aborted=answer.aborted))
        self._held_bytes += len(whole)

    async def _face(self, feed: Feed, answer: Fetched) -> None:
        source = feed.writer.source
        match answer.error:
            case FetchProblem.NOT_LEADER | FetchProblem.TEMPORARY:
                self._client.forget_leaders(source.topic)
                self._note_trouble([feed], KafkaTemporaryError(f"{source}: broker error {answer.error_code}"))
                await asyncio.sleep(_PAUSE_S)
            case FetchProblem.THROTTLED:
                # The client waits before it sends the next one. A batch larger than the quota's window never comes.
                error = KafkaTemporaryError(
                    f"{source}: nothing but throttled answers; raise this client's consumer_byte_rate"
                )
                self._note_trouble([feed], error)
            case FetchProblem.OFFSET_OUT_OF_RANGE:
                await self._leave_the_gap(feed)
            case FetchProblem.DIVERGING_EPOCH:
                feed.error = parted(source, feed.fetch_offset, feed.fetched_epoch, answer.diverging)
            case FetchProblem.UNKNOWN_TOPIC_ID | FetchProblem.UNKNOWN_TOPIC_OR_PARTITION:
                feed.error = KafkaError(f"{source}: the topic was deleted during the backup; what is archived is kept")
            case FetchProblem.DENIED:
                feed.error = KafkaError(f"{source}: may not be read; grant READ on the topic")
            case _:
                feed.error = KafkaError(
                    f"{source}: fetch at offset {feed.fetch_offset}: broker error {answer.error_code}"
                )

    async def _leave_the_gap(self, feed: Feed) -> None:
        """Kafka no longer has our position: below the log start it is a hole, above the end the log was cut back."""
        offsets = await self._offsets(feed)
        if offsets is None or feed.working or feed.queue:
            return  # what is under way comes first; the next fetch asks again
        if feed.fetch_offset > offsets.high_watermark:
            feed.error = cut_back(feed.writer.source, feed.fetch_offset, offsets)
        elif feed.fetch_offset >= offsets.log_start and offsets.leader_epoch < feed.fetched_epoch:
            # In range and refused: the log has never heard of the epoch that we have read.
            feed.error = parted(feed.writer.source, feed.fetch_offset, feed.fetched_epoch, None)
        elif feed.fetch_offset < offsets.log_start:
            feed.writer.skip(offsets.log_start)
            feed.go_on_where_the_writer_is()

    async def _offsets(self, feed: Feed) -> PartitionOffsets | None:
        try:
            return (await self._client.offsets([feed.key]))[feed.key]
        except KafkaTemporaryError as error:
            self._note_trouble([feed], error)
        except KafkaError as error:
            feed.error = error
        return None

    def _note_trouble(self, feeds: Iterable[Feed], error: ArchiverError) -> None:
        now_s = self._clock()
        for feed in feeds:
            feed.trouble_since_s = now_s if feed.trouble_since_s is None else feed.trouble_since_s
            if now_s - feed.trouble_since_s > PATIENCE_S:
                feed.error = error

    # --- archive

    def _start_work(self) -> None:
        for feed in self._feeds.values():
            if feed.working or feed.finished:
                continue
            if feed.queue:
                self._spawn(feed, self._take(feed, feed.queue.popleft()))
            elif feed.error is not None or feed.fetch_offset >= feed.end_offset:
                self._spawn(feed, self._finish(feed))

    def _spawn(self, feed: Feed, work: Coroutine[None, None, None]) -> None:
        feed.working = True
        self._work.add(asyncio.create_task(work))

    async def _take(self, feed: Feed, item: Fetch) -> None:
        try:
            await self._in_thread(feed, lambda: feed.writer.take(item))
        finally:
            self._held_bytes -= len(item.records)
            feed.working = False
        if feed.writer.position < item.position or (not feed.queue and feed.writer.position != feed.fetch_offset):
            self._restart(feed)

    def _restart(self, feed: Feed) -> None:
        """Another writer was there first: fetch again from where it ended."""
        feed.go_on_where_the_writer_is()

    async def _finish(self, feed: Feed) -> None:
        """Put what is held; before that, take over the position where compaction left nothing up to the end."""

        def flush() -> None:
            if feed.error is None:
                feed.writer.pass_over(feed.fetch_offset)
            feed.writer.flush()

        await self._in_thread(feed, flush)
        feed.working = False
        if feed.error is None and feed.writer.position < feed.end_offset:
            self._restart(feed)
        else:
            feed.finished = True

    async def _in_thread(self, feed: Feed, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except Exception as error:
            if not isinstance(error, ArchiverError):
                log.debug("%s: unexpected", feed.writer.source, exc_info=error)
                what = f"{feed.writer.source}: unexpected {type(error).__name__}: {error}; please report it, with --verbose"
                error = ArchiverError(what)
            feed.error = error
            self._held_bytes -= sum(len(item.records) for item in feed.queue)
            feed.queue.clear()
            feed.writer.discard()
