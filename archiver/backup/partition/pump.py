"""Advances the feeds of a backup, each one step at a time: takes fetched batches, closes segments, schedules puts."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from archiver.backup.partition.feed import EndState, Feed
from archiver.backup.partition.fetching import Fetching
from archiver.backup.partition.partition_writer import PutLaterError
from archiver.backup.partition.put_turns import MOST_PUTS, SLOW_S, PutTurns
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.reports.troubles import Dependency
from archiver.errors import CorruptBatchError, DroppedError, SpoolFullError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.process.output.defects import as_ours
from archiver.process.running.workers import Workers

Value = TypeVar("Value")

_TICK_S = 0.5
_TICK_PER_PARTITION_S = 0.0005  # to check a thousand partitions takes milliseconds
_LONG_PUT_S = 1.0


class Pump:
    """Takes feeds at any time, and gives each one back when it has ended: `async with`, `add`, `next_ended`, `close`."""

    def __init__(
        self,
        client: KafkaClient,
        sink: SegmentSink,
        *,
        pool: Workers,
        memory_bytes: int,
        spool_bytes: int,
        rate_bytes: int,
        on_durable: Callable[[Feed], None],
    ) -> None:
        self._sink = sink
        self._is_spool_full = False
        self.feeds: dict[TopicPartition, Feed] = {}
        self._unended: set[Feed] = set()  # also feeds that are not in `feeds` any more
        self._fetching = Fetching(client, self.feeds, self, sink, memory_bytes=memory_bytes, rate_bytes=rate_bytes)
        self._clock = sink.clock
        self._troubles = sink.troubles
        self._pool = pool
        self._on_durable = on_durable
        self._most_spooled_bytes = spool_bytes
        self._ended: asyncio.Queue[Feed | BaseException] = asyncio.Queue()
        self._work: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._puts = PutTurns(pool.count, self._troubles)
        self._putters = Workers(MOST_PUTS, "putter")

    async def __aenter__(self) -> Self:
        self.begin_loop(self._tick())
        self.begin_loop(self._fetching.lead())
        return self

    def begin_loop(self, work: Coroutine[None, None, None]) -> None:
        """Run an endless loop. If it raises, `next_ended` raises that defect."""

        def note_end(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                self._ended.put_nowait(task.exception() or RuntimeError("a loop of the pump ended"))

        task = asyncio.create_task(work)
        task.add_done_callback(note_end)
        self._loops.append(task)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._loops, *self._work]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._putters.shutdown(wait=False, cancel_futures=True)
        for feed in self._unended:
            if not feed.puts.is_working:
                feed.writer.discard()

    # --- feeds

    def add(self, feed: Feed) -> None:
        self.feeds[feed.key] = feed
        self._unended.add(feed)
        self.advance(feed)
        self._fetching.refresh_leaders()

    async def next_ended(self) -> Feed:
        """Wait for a feed that ended or failed; it is no longer in `feeds`. Closed feeds are left out."""
        feed = await self._ended.get()
        if isinstance(feed, BaseException):
            raise feed
        return feed

    def ended_now(self) -> list[Feed]:
        """Return the feeds that `next_ended` would return at once."""
        ended = [self._ended.get_nowait() for _ in range(self._ended.qsize())]
        return [feed for feed in ended if isinstance(feed, Feed)]

    async def close(self, feeds: Iterable[Feed], timeout_s: float | None = None) -> list[DroppedError]:
        """Flush held records, drop queued fetches, and end the feeds. Returns an error for each feed whose records were not durable in time."""
        closing = list(feeds)
        for feed in closing:
            feed.close(self._clock())
            self.advance(feed)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for feed in closing:
                    await feed.ending.ended.wait()
        for feed in closing:
            self._forget(feed)
            if feed.ending.state is not EndState.ENDED:
                feed.note_dropped()
        return [feed.ending.dropped for feed in closing if feed.ending.dropped is not None]

    def drop(self, feed: Feed) -> None:
        """End a feed without another put. A running put is not stopped."""
        feed.ending.go_to(EndState.DROPPED)
        self._forget(feed)
        self.advance(feed)

    def _forget(self, feed: Feed) -> None:
        if self.feeds.get(feed.key) is feed:
            del self.feeds[feed.key]

    # --- the loops

    async def _tick(self) -> None:
        while True:
            now_s = self._clock()
            for feed in list(self.feeds.values()):
                if feed.writer.is_due:
                    self.advance(feed)
                feed.note_pending(now_s)
                if self._troubles.is_any and feed.is_caught_up and not feed.fetches.stalled_s(now_s):
                    self._troubles.note_works(feed.key)
            self._make_room()
            self._set_aside(now_s)
            self._puts.warn_of_waiting(self._unended, now_s)
            self._fetching.refresh_leaders()  # another request about a topic may have made the client forget its leaders
            self._sink.silence_counter.beat()
            await asyncio.sleep(max(_TICK_S, _TICK_PER_PARTITION_S * len(self.feeds)))

    def _make_room(self) -> None:
        """While the spool is full, fetch nothing, and close the oldest segments before their time."""
        over_bytes = sum(feed.writer.spooled_bytes for feed in self._unended) - self._most_spooled_bytes
        self._is_spool_full = self._is_spool_full and not self._sink.spool.has_room()
        if self._is_spool_full:
            over_bytes = max(over_bytes, 1)
        self._fetching.suspend(over_bytes > 0)
        opened = [(at_s, feed) for feed in self.feeds.values() if (at_s := feed.writer.opened_at_s) is not None]
        for _, feed in sorted(opened, key=lambda one: one[0]):
            if over_bytes <= 0:
                break
            over_bytes -= feed.writer.spooled_bytes
            feed.writer.close_early()
            self.advance(feed)

    def _set_aside(self, now_s: float) -> None:
        """If fetching waits for memory, drop the fetches of partitions with slow puts."""
        if not self._fetching.is_stuck():
            return
        for feed in self._unended:
            since_s = feed.puts.due_since_s
            if since_s is not None and now_s - since_s > _LONG_PUT_S:
                self._fetching.release(feed.set_aside())

    # --- archive

    def advance(self, feed: Feed) -> None:
        """Begin the next step of a partition, one at a time. Data fetched before an error is archived first."""
        ending = feed.ending
        if feed.puts.is_working or ending.state is EndState.ENDED:
            return
        if ending.is_closing:
            self._drop_queue(feed)
        if ending.state is EndState.DROPPED:
            self._finish(feed)
        elif feed.writer.is_due:
            if self._clock() >= feed.puts.again_at_s:
                self._wait_for_put(feed)
        elif feed.fetches.queue:
            self.spawn(feed, self._take)
        elif feed.fetches.broken is not None and not ending.is_closing:
            self._fetching.investigate_broken(feed, feed.fetches.broken)
        elif ending.state is not EndState.OPEN or feed.is_at_end:
            self._finish(feed)
        else:
            self._fetching.stir()

    def spawn(self, feed: Feed, work: Callable[[Feed], Coroutine[None, None, None]]) -> None:
        async def run() -> None:
            try:
                await work(feed)
            except Exception as error:  # noqa: BLE001 - a defect of ours stops this partition only
                feed.ending.fail(as_ours(error, feed.source))
            finally:
                feed.puts.end_work()
            if feed.reported_base != feed.writer.newest_base:
                feed.reported_base = feed.writer.newest_base
                self._troubles.note_works(feed.key, Dependency.STORE, Dependency.SPOOL)
                self._on_durable(feed)
            self.advance(feed)

        feed.puts.begin_work()
        task = asyncio.create_task(run())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _take(self, feed: Feed) -> None:
        item = feed.fetches.queue.popleft()
        rest = await self._in_thread(feed, self._pool, lambda: feed.writer.take(item))
        self._fetching.release(len(item.records) - (0 if rest is None else len(rest.records)))
        if rest is not None:
            feed.fetches.queue.appendleft(rest)
        self._follow(feed)

    def _follow(self, feed: Feed) -> None:
        """Fetch from the writer's position, when another writer of the partition got ahead and moved that position."""
        if not feed.fetches.queue and feed.writer.position != feed.fetches.offset:
            feed.follow_writer()

    def _finish(self, feed: Feed) -> None:
        """Put the held records, and end the feed; or continue fetching if its end is not reached."""
        was_open, was_closing = feed.ending.state is EndState.OPEN, feed.ending.is_closing
        if was_open and not feed.writer.holds_records and feed.writer.position < feed.end_offset:
            feed.follow_writer()
        elif feed.end():
            self._forget(feed)
            self._unended.discard(feed)
            if not was_closing:
                self._ended.put_nowait(feed)
        else:
            self._wait_for_put(feed)
            return
        self._fetching.stir()

    async def _in_thread(self, feed: Feed, pool: Workers, work: Callable[[], Value]) -> Value | None:
        """Do work on a feed in a thread, and note its error in the feed. Returns None after an error."""
        try:
            return await pool.call(work)
        except PutLaterError as error:
            self._drop_queue(feed)
            pause_s = self._puts.note(feed, error, self._clock())
            asyncio.get_running_loop().call_later(pause_s + 0.005, self.advance, feed)
        except CorruptBatchError as error:
            feed.fetches.note_broken(error)
            self._drop_queue(feed)
        except Exception as error:  # noqa: BLE001 - a defect of ours stops this partition only
            if isinstance(error, SpoolFullError):
                self._is_spool_full = True
                self._fetching.suspend(True)
            self._fetching.release(feed.abandon(as_ours(error, feed.source)))
        return None

    # --- put

    def _wait_for_put(self, feed: Feed) -> None:
        self._puts.wait(feed, self._clock())
        self._begin_puts()

    def _begin_puts(self) -> None:
        for feed in self._puts.take(self._clock()):
            self.spawn(feed, self._put)
            asyncio.get_running_loop().call_later(
                SLOW_S + 0.005, self._begin_puts
            )  # from then on it takes no other partition's place

    async def _put(self, feed: Feed) -> None:
        """Close the segment, and put it in a thread for puts: decoding threads are for partitions that advance."""
        error = feed.ending.error  # an error of its fetches: earlier data is archived
        await self._in_thread(
            feed, self._pool, feed.writer.close
        )  # closing compresses, which is work for decoding threads
        if feed.ending.state is not EndState.DROPPED:  # it may have been dropped meanwhile
            await self._in_thread(feed, self._putters, feed.writer.flush)
        has_worked = feed.ending.error is error and not feed.writer.holds_records
        self._puts.end(feed, has_worked=has_worked)
        self._follow(feed)
        self._begin_puts()

    def _drop_queue(self, feed: Feed) -> None:
        """Drop queued data: the feed continues at the writer's position."""
        self._fetching.release(feed.drop_queue())
