"""The work of a backup: one task at a time per partition, which archives what was fetched of it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Self

from archiver.defects import as_ours
from archiver.feed import Feed
from archiver.fetching import Fetching
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicPartition
from archiver.late_puts import LatePuts
from archiver.observe import Ledger
from archiver.workers import Workers
from archiver.writer import PutLaterError

log = logging.getLogger(__name__)

_TICK_S = 0.5
_TICK_PER_PARTITION_S = 0.0005  # a look at each of a thousand partitions takes milliseconds


class Pump:
    """Takes feeds at any time, and gives each one back when it has ended: `async with`, `add`, `next_ended`, `close`."""

    def __init__(
        self,
        client: KafkaClient,
        *,
        pool: Workers,
        memory_bytes: int,
        spool_bytes: int = 2**63,
        rate_bytes: int = 0,
        clock: Callable[[], float],
        ledger: Ledger,
        on_tick: Callable[[], None] = lambda: None,
        on_durable: Callable[[Feed], None] = lambda _: None,
    ) -> None:
        self.feeds: dict[TopicPartition, Feed] = {}
        self._fetching = Fetching(
            client, self.feeds, self, memory_bytes=memory_bytes, rate_bytes=rate_bytes, clock=clock, ledger=ledger
        )
        self._clock = clock
        self._pool = pool
        self._on_tick = on_tick
        self._on_durable = on_durable
        self._most_spooled_bytes = spool_bytes
        self._ended: asyncio.Queue[Feed | None] = asyncio.Queue()
        self._broken: list[asyncio.Task[None]] = []
        self._work: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._late_puts = LatePuts()

    async def __aenter__(self) -> Self:
        self.begin_loop(self._tick())
        self.begin_loop(self._fetching.lead())
        return self

    def begin_loop(self, work: Coroutine[None, None, None]) -> None:
        """Run what never ends by itself: if it does, who waits for feeds is told the defect."""

        def note_end(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                self._broken.append(task)
                self._ended.put_nowait(None)

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
        for feed in self.feeds.values():
            if not feed.working:
                feed.writer.discard()

    # --- feeds come and go

    def add(self, feed: Feed) -> None:
        self.feeds[feed.key] = feed
        self.advance(feed)
        self._fetching.look_for_leaders()

    async def next_ended(self) -> Feed:
        """Wait for a feed that has come to its end, or to an error; it is no longer among `feeds`. Closed ones are not told."""
        feed = await self._ended.get()
        if feed is None:
            await asyncio.gather(*(task for task in self._broken))
            raise RuntimeError("a loop of the pump ended")
        return feed

    async def close(self, feeds: Iterable[Feed], timeout_s: float | None = None) -> None:
        """Flush what is held, drop what is not archived yet, end. What is not done in time is abandoned: Kafka still has it."""
        closing = list(feeds)
        for feed in closing:
            feed.closing = True
            if feed.put_again_at_s is not None:
                feed.put_again_at_s = self._clock()
            self.advance(feed)
        waits = [asyncio.create_task(feed.ended.wait()) for feed in closing]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for task in late:
                task.cancel()
        for feed in closing:
            self._forget(feed)
            if not feed.ended.is_set():
                log.warning("%s: what was held at the end is not known to be durable; Kafka has it", feed.source)

    def let_go(self, feed: Feed) -> None:
        """Somebody else may have the partition: what is held is put all the same, which does no harm; nobody waits."""
        feed.closing = True
        self._forget(feed)
        self.advance(feed)

    def _forget(self, feed: Feed) -> None:
        if self.feeds.get(feed.key) is feed:
            del self.feeds[feed.key]

    def _end(self, feed: Feed) -> None:
        self._forget(feed)
        feed.ended.set()
        if not feed.closing:
            self._ended.put_nowait(feed)
        self._fetching.stir()

    # --- the loops

    async def _tick(self) -> None:
        while True:
            now_s = self._clock()
            for feed in list(self.feeds.values()):
                if feed.writer.is_due or feed.put_again_at_s is not None:
                    self.advance(feed)
                feed.note_pending(now_s)
            self._make_room()
            self._late_puts.tell(self.feeds.values(), now_s)
            self._fetching.look_for_leaders()  # whoever asked the client about a topic may have made it forget
            self._on_tick()
            await asyncio.sleep(max(_TICK_S, _TICK_PER_PARTITION_S * len(self.feeds)))

    def _make_room(self) -> None:
        """While the spool is full nothing is fetched, and the oldest segments are closed before their time."""
        over_bytes = sum(feed.writer.spooled_bytes for feed in self.feeds.values()) - self._most_spooled_bytes
        self._fetching.suspend(over_bytes > 0)
        opened = [(at_s, feed) for feed in self.feeds.values() if (at_s := feed.writer.opened_at_s) is not None]
        for _, feed in sorted(opened, key=lambda one: one[0]):
            if over_bytes <= 0:
                break
            over_bytes -= feed.writer.spooled_bytes
            feed.writer.close_early()
            self.advance(feed)

    # --- archive

    def advance(self, feed: Feed) -> None:
        """Begin what is next for a partition; one thing at a time. What was fetched before an error is archived."""
        if feed.working or feed.ended.is_set():
            return
        if feed.closing:
            self._drop_queue(feed)
        if feed.put_again_at_s is not None:
            if self._late_puts.is_due(feed, self._clock()):
                self.spawn(feed, self._put_again)
            return
        if feed.queue:
            self.spawn(feed, self._take)
        elif feed.closing or feed.error is not None or feed.is_at_end:
            self.spawn(feed, self._finish)
        elif feed.writer.is_due:
            self.spawn(feed, self._flush)
        else:
            self._fetching.stir()

    def spawn(self, feed: Feed, work: Callable[[Feed], Coroutine[None, None, None]]) -> None:
        async def run() -> None:
            try:
                await work(feed)
            finally:
                feed.working = False
            self._tell_durable(feed)
            self.advance(feed)

        feed.working = True
        task = asyncio.create_task(run())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _tell_durable(self, feed: Feed) -> None:
        if feed.writer.newest_base != feed.told_base:
            feed.told_base = feed.writer.newest_base
            self._on_durable(feed)

    async def _take(self, feed: Feed) -> None:
        item = feed.queue.popleft()
        try:
            await self._in_thread(feed, lambda: feed.writer.take(item))
        finally:
            self._fetching.release(item)
        self._follow(feed)

    async def _flush(self, feed: Feed) -> None:
        await self._in_thread(feed, feed.writer.flush)
        self._follow(feed)

    async def _put_again(self, feed: Feed) -> None:
        self._late_puts.begin()
        try:
            await self._flush(feed)
        finally:
            self._late_puts.end(feed)

    def _follow(self, feed: Feed) -> None:
        """Go on where the writer is, when another one was there first."""
        if not feed.queue and feed.writer.position != feed.fetch_offset:
            feed.go_on_where_the_writer_is()

    async def _finish(self, feed: Feed) -> None:
        """Put what is held."""
        await self._in_thread(feed, feed.writer.flush)
        self._tell_durable(feed)
        if feed.put_again_at_s is not None:
            return
        if not feed.closing and feed.error is None and feed.writer.position < feed.end_offset:
            feed.go_on_where_the_writer_is()
        else:
            self._end(feed)

    async def _in_thread(self, feed: Feed, work: Callable[[], None]) -> None:
        try:
            await self._pool.call(work)
        except PutLaterError as error:
            self._put_later(feed, error)
        except Exception as error:  # noqa: BLE001 - a defect of ours stops this partition only
            feed.error = as_ours(error, feed.source)
            self._drop_queue(feed)
            feed.writer.discard()
            feed.put_again_at_s = None
        else:
            feed.put_again_at_s = feed.put_fails_since_s = None

    def _put_later(self, feed: Feed, error: PutLaterError) -> None:
        """The segment waits beside the workers: they are for the partitions that get on."""
        self._drop_queue(feed)
        pause_s = self._late_puts.note(feed, error, self._clock())
        asyncio.get_running_loop().call_later(pause_s + 0.005, self.advance, feed)

    def _drop_queue(self, feed: Feed) -> None:
        """What was fetched and not taken is fetched again, or by the next run: it must not count as seen."""
        while feed.queue:
            self._fetching.release(feed.queue.popleft())
        feed.go_on_where_the_writer_is()
