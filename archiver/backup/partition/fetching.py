"""Fetches partitions from brokers: decides from which broker and when; one fetch at a time per broker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Final, Protocol

import numpy as np

from archiver.backup.partition.diagnosis import Diagnosis, PassOver, Retry, Skip, Take, Way, judge, judge_silence
from archiver.backup.partition.feed import LASTING_FAILURE_S, NO_END_OFFSET, Feed, FetchState
from archiver.backup.partition.fetched_batches import Fetch, epoch_of
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.partition.unreadable import judge_broken
from archiver.backup.reports.troubles import Dependency
from archiver.codec.batch import in_place, position_after, whole_batches
from archiver.codec.kernels.batches import START
from archiver.errors import (
    ArchiverError,
    CorruptBatchError,
    KafkaError,
    KafkaTemporaryError,
    MisplacedBatchError,
    TopicGoneError,
)
from archiver.kafka.brokers.broker_requests import Lane
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import AbsentError, TopicPartition
from archiver.kafka.records.fetch import Fetched, fetch
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count
from archiver.process.running.backoff import Backoff
from archiver.process.running.budget import ByteBudget

log = logging.getLogger(__name__)

# About 4 MB a partition is the best measured size; larger answers were slower.
PARTITION_BYTES: Final = 4 * 1024 * 1024
ANSWER_BYTES: Final = 16 * 1024 * 1024
_LEAST_ANSWER_BYTES = (
    64 * 1024
)  # a smaller answer is not worth its request: with a rate, with many brokers, or of a broker that had little the last time
_FETCHED_SHARE: Final = 8  # divisor of the memory: this part is for requested and untaken fetches
_MOST_OF_AN_ANSWER: Final = (
    4  # a slice keeps its whole answer in memory: a slice that is a smaller part than this is copied
)
_LONGEST_WAIT_MS = 500
# A silent partition is fetched alone, with a longer wait each time: a broker may have to read from remote storage.
_FIRST_ALONE_MS = 2_000
_LONGEST_ALONE_MS = 15_000
_LEADERS_ASKED_EVERY_S = 5.0  # leaders are asked where logs end that are read from followers
# A request names all its partitions, at 3.5 us of CPU each. A trickle over a thousand partitions must not cost a request a record.
_SMALL_ANSWER_BYTES = 64 * 1024
_PAUSE_PER_PARTITION_S = 0.00025
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 3.0
_RATE_SLACK_S = 1.0  # for this long, later fetches may catch up with the rate that a late one did not use
_ABSENT_S = 3.0  # a topic may be so new that not every broker knows it
FETCH_PATIENCE_S = 300.0  # a partition without progress for this long is given up


class Work(Protocol):
    """Other work on feeds; at most one step at a time per feed. Implemented by the pump, which imports this module."""

    def advance(self, feed: Feed) -> None:
        """Begin the next step of a partition, unless other work on the partition is under way."""

    def spawn(self, feed: Feed, work: Callable[[Feed], Coroutine[None, None, None]]) -> None:
        """Run work on a partition that nothing else works on."""

    def begin_loop(self, work: Coroutine[None, None, None]) -> None:
        """Run a loop that never ends by itself, until the whole backup ends."""


class Fetching:
    """Fetches the batches that feeds want, and passes them to `work`. Fetched bytes count as held until `release`."""

    def __init__(
        self,
        client: KafkaClient,
        feeds: Mapping[TopicPartition, Feed],
        work: Work,
        sink: SegmentSink,
        *,
        memory_bytes: int,
        rate_bytes: int,
    ) -> None:
        self._client = client
        self._feeds = feeds
        self._work = work
        self._clock = sink.clock
        self._ledger = sink.ledger
        self._troubles = sink.troubles
        # The rest of the memory is for processed fetches: decompressed, in tables, and encoded.
        self._memory = ByteBudget(memory_bytes // _FETCHED_SHARE)
        self._granted = 0
        self._is_suspended = False
        self._rate_bytes = rate_bytes
        self._fetch_again_at_s = 0.0  # by the rate, no fetch before that time
        self._changed = asyncio.Event()
        self._lead_moved = asyncio.Event()
        self._served: set[tuple[int, bool]] = (
            set()
        )  # brokers that have a fetcher, and whether it is the one for partitions that are asked for alone
        self._quiet: set[int] = set()  # brokers that had little the last time
        self._leaders_only_until_s = 0.0

    def stir(self) -> None:
        """Wake the fetchers: a partition may want more than before."""
        self._changed.set()

    def refresh_leaders(self) -> None:
        """Let `lead` assign partitions to brokers again: another fetcher may have to wake, or to begin."""
        self._lead_moved.set()
        self.stir()

    def suspend(self, is_suspended: bool) -> None:
        """Stop fetching while `is_suspended`. The next `refresh_leaders` wakes the fetchers again."""
        self._is_suspended = is_suspended

    def release(self, taken_bytes: int) -> None:
        """Count fetched bytes as freed: they were archived, or dropped."""
        self._memory.free(taken_bytes)

    def is_stuck(self) -> bool:
        """Return whether a fetcher waits for memory, and none was freed since the last call."""
        granted, self._granted = self._granted, self._memory.granted
        return self._memory.is_short and granted == self._granted

    # --- leaders

    async def lead(self) -> None:
        """Give each broker that leads a partition a fetcher, and find unknown leaders."""
        if self._client.settings.client_rack:
            self._work.begin_loop(self._watch_followers())
        backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            self._see_to_fetchers()
            leaderless = [feed for feed in self._feeds.values() if feed.wants_more and self._node_of(feed) is None]
            if leaderless and not await self._find_leaders(leaderless):
                await asyncio.sleep(backoff.next_s())
            elif not leaderless:
                backoff.reset()
                self._lead_moved.clear()
                await self._lead_moved.wait()

    def _see_to_fetchers(self) -> None:
        wanted = {(self._node_of(feed), feed.fetches.alone_ms > 0) for feed in self._feeds.values()}
        for node, is_alone in wanted - self._served:
            if node is not None:
                self._served.add((node, is_alone))
                self._work.begin_loop(self._serve(node, alone=is_alone))

    async def _find_leaders(self, feeds: Sequence[Feed]) -> bool:
        """Ask who leads these partitions. Returns whether any leader was found."""
        try:
            refused = await self._client.learn_leaders([feed.key for feed in feeds])
        except KafkaTemporaryError as error:
            self._note_failures([(feed, error) for feed in feeds], "leader")
            return False
        told = [(feed, why) for feed in feeds if (why := refused.get(feed.key)) is not None]
        self._note_failures([(feed, why) for feed, why in told if isinstance(why, KafkaTemporaryError)], "leader")
        for feed, why in told:
            if not isinstance(why, KafkaTemporaryError):
                self._fail(feed, why)
        self.stir()
        return len(refused) < len(feeds)

    def _node_of(self, feed: Feed) -> int | None:
        return self._client.known_leader(*feed.key) if feed.fetches.replica is None else feed.fetches.replica

    async def _watch_followers(self) -> None:
        """Ask leaders for the ends of logs that are read from followers; stop using a follower when its lease is over.

        A follower that has lost its leader answers without an error, but with stale ends.
        """
        while True:
            await asyncio.sleep(_LEADERS_ASKED_EVERY_S)
            followed = {key: feed for key, feed in self._feeds.items() if feed.fetches.replica is not None}
            ends, _ = await self._client.offsets_each(followed) if followed else ({}, {})
            now_s = self._clock()
            for key, feed in followed.items():
                if feed.fetches.replica_until_s <= now_s:
                    feed.fetches.replica = None
                elif feed.fetches.replica is not None and key in ends:
                    feed.note_ends(ends[key].high_watermark, ends[key].last_stable, now_s)
            self.refresh_leaders()

    # --- fetch

    async def _serve(self, node: int, *, alone: bool) -> None:
        """Fetch from one broker while it has partitions to fetch: all in one request; or alone, one partition at a time."""
        starving = FetchState.STARVING  # members of enums are looked up slowly in Python 3.11
        for turn in count():
            if not self._hungry(node, alone=alone):
                self._changed.clear()
                await self._changed.wait()
                continue
            if self._rate_bytes:
                await asyncio.sleep(max(0.0, self._fetch_again_at_s - self._clock()))
            answer_bytes = _LEAST_ANSWER_BYTES if node in self._quiet and not alone else self._share
            async with self._memory.reserved(answer_bytes):
                feeds = self._hungry(node, alone=alone)  # after the wait for memory, some may want nothing any more
                start = turn % (len(feeds) or 1)
                feeds = feeds[start:] + feeds[:start]
                # Those that got nothing last time come first, or a large batch behind a busy partition would starve.
                feeds = feeds[:1] if alone else sorted(feeds, key=lambda feed: feed.fetches.state is not starving)
                fetched_bytes = await self._fetch(node, feeds, answer_bytes, alone=alone)
            if not alone and fetched_bytes < _SMALL_ANSWER_BYTES:
                self._quiet.add(node)
                await asyncio.sleep(min(len(feeds) * _PAUSE_PER_PARTITION_S, _LONGEST_WAIT_MS / 1000))
            elif not alone:
                self._quiet.discard(node)

    @property
    def _share(self) -> int:
        """Return how many bytes to request: all brokers may answer at once, while as much again is processed."""
        share = self._memory.most_bytes // (1 + len(self._served))
        return max(_LEAST_ANSWER_BYTES, min(ANSWER_BYTES, share, self._rate_bytes or ANSWER_BYTES))

    def _hungry(self, node: int, *, alone: bool) -> list[Feed]:
        if self._is_suspended:
            return []
        now_s = self._clock()
        return [
            feed
            for feed in self._feeds.values()
            if feed.wants_more
            and (feed.fetches.alone_ms > 0) == alone
            and feed.fetches.not_before_s <= now_s
            and self._node_of(feed) == node
        ]

    async def _fetch(self, node: int, feeds: Sequence[Feed], answer_bytes: int, *, alone: bool) -> int:
        """Send one request for all of these partitions; alone, on a separate connection. Returns how many bytes came."""
        if not feeds:
            return 0
        targets = [feed.fetches.target for feed in feeds]
        begun_s = self._clock()
        try:
            answers = await fetch(
                self._client,
                node,
                targets,
                max_bytes=answer_bytes,
                partition_bytes=min(PARTITION_BYTES, answer_bytes),
                max_wait_ms=feeds[0].fetches.alone_ms if alone else _LONGEST_WAIT_MS,
                min_bytes=1,
                rack="" if alone or begun_s < self._leaders_only_until_s else self._client.settings.client_rack,
                lane=Lane.FETCH_ALONE if alone else Lane.FETCH,
            )
        except KafkaTemporaryError as error:
            for feed in feeds:
                self._leave_broker(feed)
            self._note_failures([(feed, error) for feed in feeds], "fetch")
            return 0
        except KafkaError as error:
            for feed in feeds:
                self._fail(feed, error)
            return 0
        except Exception as error:  # noqa: BLE001 - a defect of ours stops one partition only
            self._part(feeds, error)
            return 0
        for place, (feed, target, answer) in enumerate(zip(feeds, targets, answers, strict=True)):
            if feed.fetches.offset == target.offset and feed.wants_more:
                try:
                    self._accept(feed, answer, first=place == 0, asked_s=begun_s)
                except Exception as error:  # noqa: BLE001 - as above
                    self._fail(feed, as_ours(error, feed.source))
        return sum(len(answer.records) for answer in answers)

    def _part(self, feeds: Sequence[Feed], error: Exception) -> None:
        """Handle a request for several partitions that failed by a defect of ours: fetch each partition alone, and end the one whose own request fails, too."""
        for feed in feeds:
            if len(feeds) > 1:
                feed.fetches.alone_ms = feed.fetches.alone_ms or 1
            else:
                self._fail(feed, as_ours(error, feed.source))
        self.refresh_leaders()

    def _accept(self, feed: Feed, answer: Fetched, *, first: bool, asked_s: float) -> None:
        now_s = self._clock()
        if feed.note_answer(answer, now_s):
            self._troubles.note_works(feed.key, Dependency.KAFKA)
        if answer.error is not None:
            self._investigate(feed, lambda: judge(self._client, feed, answer))
        elif len(answer.records):
            feed.fetches.state = FetchState.WANTED
            if now_s - asked_s < _LONGEST_WAIT_MS / 1000:
                self._ask_with_others(feed)
            self._enqueue(feed, answer)
        elif answer.preferred_replica >= 0:
            feed.fetches.replica = answer.preferred_replica
            feed.fetches.replica_until_s = now_s + self._client.settings.metadata_max_age_ms / 1000
            self.refresh_leaders()  # the follower may have no fetcher yet
        else:
            self._note_emptiness(feed, first=first)
        if feed.watch is not None:
            feed.watch.note_answer(feed, answer, asked_s)

    def _note_emptiness(self, feed: Feed, *, first: bool) -> None:
        if not feed.is_behind:
            feed.fetches.state = FetchState.WANTED
            self._ask_with_others(feed)
            return
        if first and feed.fetches.state is FetchState.STARVING:
            self._investigate(feed, lambda: judge_silence(self._client, feed, feed.fetches.stalled_s(self._clock())))
        feed.fetches.state = FetchState.STARVING

    def _ask_with_others(self, feed: Feed) -> None:
        if feed.fetches.alone_ms:
            feed.fetches.alone_ms = 0
            self.refresh_leaders()  # its broker may have no other fetcher

    def _enqueue(self, feed: Feed, answer: Fetched) -> None:
        position = feed.fetches.offset
        try:
            batches, whole = whole_batches(answer.records, position)
        except CorruptBatchError as error:
            feed.fetches.note_broken(error)
            self._work.advance(feed)
            return
        stable_end = None if answer.last_stable_offset < 0 else answer.last_stable_offset
        placed = in_place(batches, position, NO_END_OFFSET if stable_end is None else stable_end)
        if placed.start == placed.stop:
            # A broker notes the end of the log before it reads. A batch appended in between is beyond that end, once.
            if feed.fetches.doubt():
                feed.fetches.note_broken(MisplacedBatchError(f"offset {position}: a batch that is not where it can be"))
            self._work.advance(feed)
            return
        starts, batches = np.append(batches[START], len(whole)), batches[:, placed]
        records = answer.records[starts[placed.start] : starts[placed.stop]]
        if len(records) * _MOST_OF_AN_ANSWER < memoryview(answer.records.obj).nbytes:
            records = memoryview(bytes(records))
        item = Fetch(position=position, records=records, aborted=answer.aborted, stable_end=stable_end)
        feed.enqueue(item, position_after(batches, position), epoch_of(batches))
        self._memory.add(len(records))
        self._ledger.fetched(feed.key[0], len(records))
        if self._rate_bytes:
            begin_s = max(self._fetch_again_at_s, self._clock() - _RATE_SLACK_S)
            self._fetch_again_at_s = begin_s + len(records) / self._rate_bytes
        self._work.advance(feed)

    # --- faults of a partition

    def _investigate(self, feed: Feed, judging: Callable[[], Coroutine[None, None, Diagnosis]]) -> None:
        """Investigate a partition. If other work on it is under way, skip this: the next fetch finds the same."""

        async def obey(feed: Feed) -> None:
            try:
                diagnosis = await judging()
            except KafkaTemporaryError as temporary:
                diagnosis = Retry(temporary)
            except KafkaError as final:
                diagnosis = final
            match diagnosis:
                case Retry(error, way):
                    self._go_another_way(feed, way, error)
                    self._note_failures([(feed, error)], "fetch")
                case Skip() as skip:
                    self._skip(feed, skip)
                case PassOver(next_offset, stable_end):
                    feed.writer.pass_over(next_offset, stable_end)
                    feed.follow_writer()
                case Take(answer):
                    self._enqueue(feed, answer)
                case ArchiverError() as error:
                    feed.ending.fail(error)

        if feed.is_busy:
            self._wait_a_little(feed)
        else:
            self._work.spawn(feed, obey)

    def investigate_broken(self, feed: Feed, broken: CorruptBatchError) -> None:
        """Judge whether the batch at the writer's position is broken for good."""

        async def judging() -> Diagnosis:
            try:
                return await judge_broken(self._client, feed, broken)
            finally:
                feed.fetches.leave(FetchState.BROKEN)

        self._investigate(feed, judging)

    def _skip(self, feed: Feed, skip: Skip) -> None:
        """Continue behind expired or unreadable records."""
        if feed.watch is not None:
            feed.watch.note_skip(feed, skip.cause)
        feed.writer.skip(skip.next_offset, skip.cause, why=skip.why)
        feed.follow_writer()

    def _go_another_way(self, feed: Feed, way: Way, why: KafkaTemporaryError) -> None:
        if way is Way.ALONE:
            feed.fetches.alone_ms = min(max(2 * feed.fetches.alone_ms, _FIRST_ALONE_MS), _LONGEST_ALONE_MS)
            self.refresh_leaders()  # its broker may have no fetcher for that
        elif way is not Way.SAME:
            self._leave_broker(feed)
        if way is Way.FROM_LEADER and self._clock() >= self._leaders_only_until_s:
            lease_s = self._client.settings.metadata_max_age_ms / 1000
            self._leaders_only_until_s = self._clock() + lease_s
            log.warning("%s; no follower is asked for %.0f s", why, lease_s)

    def _leave_broker(self, feed: Feed) -> None:
        if feed.fetches.replica is None:
            self._client.forget_leaders(feed.key[0])
        feed.fetches.replica = None
        self.refresh_leaders()

    def _note_failures(self, failed: Sequence[tuple[Feed, KafkaTemporaryError]], effect: str) -> None:
        """Count and note temporary errors. Lasting failures are logged in one line for all partitions."""
        lasting: list[tuple[Feed, KafkaTemporaryError]] = []
        for cause in {error.cause for _, error in failed}:
            self._ledger.retried(effect, cause)
        for feed, error in failed:
            lasted_s = feed.fetches.note_failure(error, self._clock())
            if lasted_s > LASTING_FAILURE_S:
                lasting.append((feed, error))
            if isinstance(error, AbsentError) and lasted_s > _ABSENT_S:
                self._fail(feed, TopicGoneError(str(error)))
            elif lasted_s > FETCH_PATIENCE_S:
                self._fail(feed, error)
            else:
                self._wait_a_little(feed)
        if lasting:
            (feed, error), *others = lasting
            more = f" and {spell_count(len(others), 'more partition')}" if others else ""
            line = f"{feed.source}{more}: {error}; tried again for {LASTING_FAILURE_S:.0f} s now"
            self._troubles.note(error, line, *(one.key for one, _ in lasting))

    def _wait_a_little(self, feed: Feed) -> None:
        """Pause the fetches of one partition: the longer they have failed, the longer. Other partitions continue."""
        now_s = self._clock()
        pause_s = min(max(_PAUSE_S, feed.fetches.stalled_s(now_s) / 4), _LONGEST_PAUSE_S)
        feed.fetches.not_before_s = now_s + pause_s
        asyncio.get_running_loop().call_later(pause_s + 0.001, self.stir)

    def _fail(self, feed: Feed, error: ArchiverError) -> None:
        feed.ending.fail(error)
        self._work.advance(feed)
