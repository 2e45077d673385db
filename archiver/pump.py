"""The loop of a backup: one fetch at a time per broker, one task at a time per partition, bounded bytes between them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from archiver.codec.batch import position_after, whole_batches
from archiver.defects import as_ours
from archiver.errors import ArchiverError, CorruptBatchError, KafkaError, KafkaTemporaryError, TopicGoneError
from archiver.feed import TROUBLE_S, Feed
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import AbsentError, TopicPartition
from archiver.kafka.fetch import Fetched, fetch
from archiver.late_puts import LatePuts
from archiver.observe import Ledger
from archiver.spelling import spell_count
from archiver.trouble import Retry, Skip, Verdict, judge, judge_silence
from archiver.workers import Workers
from archiver.writer import Fetch, PutLaterError, epoch_of

log = logging.getLogger(__name__)

# About 4 MB a partition is the best measured size; larger answers were slower.
PARTITION_BYTES: Final = 4 * 1024 * 1024
ANSWER_BYTES: Final = 16 * 1024 * 1024
_LEAST_ANSWER_BYTES = 64 * 1024  # with a rate: an answer of a second, but no crumbs
_LONGEST_WAIT_MS = 500
# A request names all its partitions, 3.5 us of CPU each: a trickle over a thousand of them must not ask for each record.
_SMALL_ANSWER_BYTES = 64 * 1024
_PAUSE_PER_PARTITION_S = 0.00025
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 3.0
_TICK_S = 0.5
_TICK_PER_PARTITION_S = 0.0005  # a look at each of a thousand partitions takes milliseconds
_RATE_SLACK_S = 1.0  # by which a fetch may come later than the rate lets it, and the next one makes up for it
_ABSENT_S = 3.0  # a topic may be so new that not every broker knows it
PATIENCE_S = 300.0  # without any progress of a partition


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
        self._client = client
        self._clock = clock
        self._pool = pool
        self._ledger = ledger
        self._on_tick = on_tick
        self._on_durable = on_durable
        # With what it becomes, decompressed and encoded, a fetch takes a multiple of its size.
        self._most_held_bytes = max(memory_bytes // 16, ANSWER_BYTES)
        self._held_bytes = 0
        self._most_spooled_bytes = spool_bytes
        self._is_spool_full = False
        self._rate_bytes = rate_bytes
        self._answer_bytes = min(ANSWER_BYTES, max(rate_bytes, _LEAST_ANSWER_BYTES)) if rate_bytes else ANSWER_BYTES
        self._fetch_again_at_s = 0.0  # by the rate
        self._changed = asyncio.Event()
        self._lead_moved = asyncio.Event()
        self._ended: asyncio.Queue[Feed | None] = asyncio.Queue()
        self._broken: list[asyncio.Task[None]] = []
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._turn = 0
        self._late_puts = LatePuts()

    async def __aenter__(self) -> Self:
        self._loops = [self._loop(self._tick()), self._loop(self._lead())]
        return self

    def _loop(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that never ends by itself: if it does, who waits for feeds is told the defect."""

        def note_end(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                self._broken.append(task)
                self._ended.put_nowait(None)

        task = asyncio.create_task(work)
        task.add_done_callback(note_end)
        return task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._loops, *self._fetchers.values(), *self._work]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for feed in self.feeds.values():
            if not feed.working:
                feed.writer.discard()

    # --- feeds come and go

    def add(self, feed: Feed) -> None:
        self.feeds[feed.key] = feed
        self._advance(feed)
        self._lead_moved.set()

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
            self._advance(feed)
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
        self._advance(feed)

    def _forget(self, feed: Feed) -> None:
        if self.feeds.get(feed.key) is feed:
            del self.feeds[feed.key]

    def _end(self, feed: Feed) -> None:
        self._forget(feed)
        feed.ended.set()
        if not feed.closing:
            self._ended.put_nowait(feed)
        self._stir()

    # --- the loops

    def _stir(self) -> None:
        """Wake the fetchers: a partition may want more than before."""
        self._changed.set()

    async def _tick(self) -> None:
        while True:
            now_s = self._clock()
            for feed in list(self.feeds.values()):
                if feed.writer.is_due or feed.put_again_at_s is not None:
                    self._advance(feed)
                feed.note_pending(now_s)
            self._make_room()
            self._late_puts.tell(self.feeds.values(), now_s)
            self._lead_moved.set()  # whoever asked the client about a topic may have made it forget
            self._on_tick()
            await asyncio.sleep(max(_TICK_S, _TICK_PER_PARTITION_S * len(self.feeds)))

    def _make_room(self) -> None:
        """While the spool is full nothing is fetched, and the oldest segments are closed before their time."""
        over_bytes = sum(feed.writer.spooled_bytes for feed in self.feeds.values()) - self._most_spooled_bytes
        was_full, self._is_spool_full = self._is_spool_full, over_bytes > 0
        if was_full and not self._is_spool_full:
            self._stir()
        opened = [(at_s, feed) for feed in self.feeds.values() if (at_s := feed.writer.opened_at_s) is not None]
        for _, feed in sorted(opened, key=lambda one: one[0]):
            if over_bytes <= 0:
                break
            over_bytes -= feed.writer.spooled_bytes
            feed.writer.close_early()
            self._advance(feed)

    async def _lead(self) -> None:
        """See that each broker which leads a feed has a fetcher, and look for the leaders that are not known."""
        pause_s = _PAUSE_S
        while True:
            for node in {node for feed in self.feeds.values() if (node := self._node_of(feed)) is not None}:
                if node not in self._fetchers:
                    self._fetchers[node] = self._loop(self._serve(node))
            leaderless = [feed for feed in self.feeds.values() if feed.wants_more and self._node_of(feed) is None]
            if leaderless and not await self._find_leaders(leaderless):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            elif not leaderless:
                pause_s = _PAUSE_S
                self._lead_moved.clear()
                await self._lead_moved.wait()

    async def _find_leaders(self, feeds: Sequence[Feed]) -> bool:
        """Whether any was found."""
        try:
            refused = await self._client.learn_leaders([feed.key for feed in feeds])
        except KafkaTemporaryError as error:
            self._note_trouble([(feed, error) for feed in feeds], "leader")
            return False
        told = [(feed, why) for feed in feeds if (why := refused.get(feed.key)) is not None]
        self._note_trouble([(feed, why) for feed, why in told if isinstance(why, KafkaTemporaryError)], "leader")
        for feed, why in told:
            if not isinstance(why, KafkaTemporaryError):
                self._fail(feed, why)
        self._stir()
        return len(refused) < len(feeds)

    def _node_of(self, feed: Feed) -> int | None:
        return self._client.known_leader(*feed.key) if feed.replica is None else feed.replica

    # --- fetch

    async def _serve(self, node: int) -> None:
        """Fetch from one broker, for as long as there is something to fetch."""
        while True:
            feeds = self._hungry(node)
            if feeds:
                await self._keep_to_the_rate()
                fetched_bytes = await self._fetch(node, self._in_turn(feeds))
                if fetched_bytes < _SMALL_ANSWER_BYTES:
                    await asyncio.sleep(min(len(feeds) * _PAUSE_PER_PARTITION_S, _LONGEST_WAIT_MS / 1000))
            else:
                self._changed.clear()
                await self._changed.wait()

    def _hungry(self, node: int) -> list[Feed]:
        if self._held_bytes >= self._most_held_bytes or self._is_spool_full:
            return []
        now_s = self._clock()
        return [
            feed
            for feed in self.feeds.values()
            if feed.wants_more and feed.not_before_s <= now_s and self._node_of(feed) == node
        ]

    async def _keep_to_the_rate(self) -> None:
        wait_s = self._fetch_again_at_s - self._clock()
        if self._rate_bytes and wait_s > 0:
            await asyncio.sleep(wait_s)

    def _in_turn(self, feeds: list[Feed]) -> list[Feed]:
        """Rotate, and put first who got nothing last time: a large batch behind a busy partition would starve."""
        self._turn += 1
        start = self._turn % len(feeds)
        return sorted(feeds[start:] + feeds[:start], key=lambda feed: not feed.starving)

    async def _fetch(self, node: int, feeds: list[Feed]) -> int:
        """Ask once for all of them. Returns how many bytes came."""
        targets = [feed.target for feed in feeds]
        try:
            answers = await fetch(
                self._client,
                node,
                targets,
                max_bytes=self._answer_bytes,
                partition_bytes=min(PARTITION_BYTES, self._answer_bytes),
                max_wait_ms=_LONGEST_WAIT_MS,
                min_bytes=1,
            )
        except KafkaTemporaryError as error:
            for feed in feeds:
                self._look_elsewhere(feed)
            self._note_trouble([(feed, error) for feed in feeds], "fetch")
            return 0
        except KafkaError as error:
            for feed in feeds:
                self._fail(feed, error)
            return 0
        for place, (feed, target, answer) in enumerate(zip(feeds, targets, answers, strict=True)):
            if feed.fetch_offset == target.offset and feed.wants_more:
                self._accept(feed, answer, first=place == 0)
        return sum(len(answer.records) for answer in answers)

    def _accept(self, feed: Feed, answer: Fetched, *, first: bool) -> None:
        feed.hear(answer, self._clock())
        if answer.error is not None:
            self._look_into(feed, lambda: judge(self._client, feed, answer))
        elif len(answer.records):
            feed.starving = False
            self._enqueue(feed, answer)
        elif answer.preferred_replica >= 0:
            feed.replica = answer.preferred_replica
            self._lead_moved.set()  # that one may have no fetcher yet
            self._stir()
        elif first and feed.starving and answer.last_stable_offset >= feed.end_offset:
            # Served first, twice, and still nothing: compaction left no batch between here and the end.
            feed.pass_over(feed.end_offset)
            self._advance(feed)
        else:
            self._note_emptiness(feed, answer, first=first)

    def _note_emptiness(self, feed: Feed, answer: Fetched, *, first: bool) -> None:
        if first and feed.starving and feed.has_end:
            self._look_into(feed, lambda: judge_silence(self._client, feed))
        feed.starving = feed.has_end or answer.last_stable_offset > feed.fetch_offset

    def _enqueue(self, feed: Feed, answer: Fetched) -> None:
        position = feed.fetch_offset
        try:
            batches, whole = whole_batches(answer.records, position)
        except CorruptBatchError as error:
            self._fail(feed, CorruptBatchError(f"{feed.source}: {error}"))
            return
        feed.fetch_offset, feed.fetched_epoch = position_after(batches, position), epoch_of(batches)
        records = answer.records[: len(whole)]
        feed.queue.append(
            Fetch(position=position, records=records, aborted=answer.aborted, by_topic_id=answer.by_topic_id)
        )
        self._held_bytes += len(whole)
        self._ledger.fetched(feed.key[0], len(whole))
        if self._rate_bytes:
            begin_s = max(self._fetch_again_at_s, self._clock() - _RATE_SLACK_S)
            self._fetch_again_at_s = begin_s + len(whole) / self._rate_bytes
        self._advance(feed)

    # --- what may be wrong with a partition

    def _look_into(self, feed: Feed, judging: Callable[[], Coroutine[None, None, Verdict]]) -> None:
        """Find out what is wrong, if nothing else is under way; else the next fetch meets the trouble again."""

        async def obey(feed: Feed) -> None:
            verdict = await judging()
            if isinstance(verdict, Retry):
                if verdict.elsewhere:
                    self._look_elsewhere(feed)
                self._note_trouble([(feed, verdict.error)], "fetch")
            elif isinstance(verdict, Skip):
                feed.writer.skip(verdict.log_start)
                feed.go_on_where_the_writer_is()
            else:
                feed.error = verdict

        if feed.working or feed.queue:
            self._wait_a_little(feed)
        else:
            self._spawn(feed, obey)

    def _look_elsewhere(self, feed: Feed) -> None:
        if feed.replica is None:
            self._client.forget_leaders(feed.key[0])
        feed.replica = None
        self._lead_moved.set()

    def _note_trouble(self, troubled: Sequence[tuple[Feed, KafkaTemporaryError]], effect: str) -> None:
        """Of troubles that last, one line is logged, however many partitions are in them."""
        lasting: list[tuple[Feed, KafkaTemporaryError]] = []
        for cause in {error.cause for _, error in troubled}:
            self._ledger.retried(effect, cause)
        for feed, error in troubled:
            lasted_s = feed.note_trouble(error, self._clock())
            if lasted_s > TROUBLE_S and not feed.trouble_told:
                feed.trouble_told = True
                lasting.append((feed, error))
            if isinstance(error, AbsentError) and lasted_s > _ABSENT_S:
                self._fail(feed, TopicGoneError(str(error)))
            elif lasted_s > PATIENCE_S:
                self._fail(feed, error)
            else:
                self._wait_a_little(feed)
        if lasting:
            (feed, error), *others = lasting
            more = f" and {spell_count(len(others), 'more partition')}" if others else ""
            log.warning("%s%s: %s; tried again for %.0f s now", feed.source, more, error, TROUBLE_S)

    def _wait_a_little(self, feed: Feed) -> None:
        """No fetch for this one meanwhile, longer while the trouble lasts; the others go on."""
        now_s = self._clock()
        lasted_s = 0.0 if feed.trouble_since_s is None else now_s - feed.trouble_since_s
        pause_s = min(max(_PAUSE_S, lasted_s / 4), _LONGEST_PAUSE_S)
        feed.not_before_s = now_s + pause_s
        asyncio.get_running_loop().call_later(pause_s + 0.001, self._stir)

    def _fail(self, feed: Feed, error: ArchiverError) -> None:
        feed.error = error
        self._advance(feed)

    # --- archive

    def _advance(self, feed: Feed) -> None:
        """Begin what is next for a partition; one thing at a time. What was fetched before an error is archived."""
        if feed.working or feed.ended.is_set():
            return
        if feed.closing:
            self._drop_queue(feed)
        if feed.put_again_at_s is not None:
            if self._late_puts.is_due(feed, self._clock()):
                self._spawn(feed, self._put_again)
            return
        if feed.queue:
            self._spawn(feed, self._take)
        elif feed.closing or feed.error is not None or feed.is_at_end:
            self._spawn(feed, self._finish)
        elif feed.writer.is_due:
            self._spawn(feed, self._flush)
        else:
            self._stir()

    def _spawn(self, feed: Feed, work: Callable[[Feed], Coroutine[None, None, None]]) -> None:
        async def run() -> None:
            try:
                await work(feed)
            finally:
                feed.working = False
            self._tell_durable(feed)
            self._advance(feed)

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
            self._held_bytes -= len(item.records)
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
        """Put what is held; before that, take over the position where compaction left nothing up to the end."""

        def flush() -> None:
            if feed.is_at_end and feed.error is None:
                feed.writer.pass_over(feed.fetch_offset)
            feed.writer.flush()

        await self._in_thread(feed, flush)
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
        asyncio.get_running_loop().call_later(pause_s + 0.005, self._advance, feed)

    def _drop_queue(self, feed: Feed) -> None:
        self._held_bytes -= sum(len(item.records) for item in feed.queue)
        feed.queue.clear()
