"""Base of the backup and instance services: a group member that works on its assigned partitions until stopped."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import TimeoutError as WaitError
from contextlib import AsyncExitStack
from typing import Final, TypeVar

from archiver.archive.format.handle import Archive
from archiver.backup.opening.opener import OPENERS
from archiver.backup.reports.gone_topics import GoneTopics
from archiver.backup.reports.ledger import Ledger
from archiver.backup.reports.troubles import Troubles
from archiver.backup.service.request import BackupRequest, opener_of
from archiver.errors import ArchiverError, StrangerError, TemporaryError, with_text
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group import GroupSettings, Hint
from archiver.kafka.groups.membership import Membership
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.backoff import Backoff
from archiver.process.running.signals import unless_stopped
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

Value = TypeVar("Value")

# Flushing revoked partitions delays the whole group's rebalance; the poll interval would allow 5 min.
RELEASE_S: Final = 20.0
_LEAVE_S: Final = 3.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_TOPICS: Final = "topics"


class GroupWorker(ABC):
    """`run` returns when stopped; every held record is durable or dropped by then. Create it on the loop.

    The group calls `gained`, `revoked` and `lost` in a thread of its own; the work on partitions is done on the loop.
    """

    held: Collection[TopicPartition]  # the assigned partitions

    def __init__(self, request: BackupRequest, group: GroupSettings, pool: Workers) -> None:
        self._backup = request
        self._sink = request.sink
        self._group = group
        self._pool = pool
        self._openers = Workers(OPENERS, "opener")  # opening must not wait behind puts that hang
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.gone = GoneTopics(request.sink.archive, self._openers)
        self.membership = Membership(request.kafka, group, self)
        self.is_ready = False

    # --- the work of a subclass

    @property
    @abstractmethod
    def topic_names(self) -> Collection[str]:
        """Return the topics that are archived, as they were listed last."""

    @property
    @abstractmethod
    def why_no_topics(self) -> str:
        """Return the reason why no topic is archived."""

    @abstractmethod
    async def _prepare(self, stop: asyncio.Event, stack: AsyncExitStack) -> None:
        """Make the parts that work on partitions, before topics are listed. Client and opener exist already."""

    @abstractmethod
    def _loops(self) -> Sequence[Awaitable[None]]:
        """Return the work that runs besides the group's."""

    @abstractmethod
    async def _refresh_topics(self) -> None:
        """List the topics of the cluster, and note which of them are archived."""

    @abstractmethod
    async def _follow_topics(self) -> None:
        """Adapt the work on assigned partitions to the topics just listed."""

    @abstractmethod
    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin work on newly assigned partitions."""

    @abstractmethod
    async def release(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        """Put held records of revoked partitions within RELEASE_S; return the hints to commit first."""

    @abstractmethod
    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop lost partitions without a put: another instance may have them already."""

    @abstractmethod
    async def _leave(self) -> None:
        """Put held records, and leave the group."""

    # --- callbacks of the group, in its thread

    def gained(self, partitions: Sequence[TopicPartition]) -> None:
        self._loop.call_soon_threadsafe(self.gain, partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        async def release() -> Sequence[Hint]:
            return await self.release(partitions)

        try:
            return asyncio.run_coroutine_threadsafe(release(), self._loop).result(RELEASE_S + 5)
        except WaitError:
            return []

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._loop.call_soon_threadsafe(self.lose, partitions)

    # --- the life of a worker

    @property
    def archive(self) -> Archive:
        return self._sink.archive

    @property
    def troubles(self) -> Troubles:
        return self._sink.troubles

    async def run(
        self, stop: asyncio.Event, watch: Callable[[KafkaClient], Sequence[Awaitable[None]]] = lambda _: ()
    ) -> None:
        """Work until `stop`. `watch` returns other work for the loop, which ends with the worker."""
        async with AsyncExitStack() as stack:
            self.client = client = await self._connect(stop, stack)
            self._cluster_id = await unless_stopped(stop, self._persist("the cluster", client.cluster_id))
            client.belong_to(self._cluster_id)
            self._opener = opener_of(self._backup, client, self._openers, self._cluster_id)
            await unless_stopped(stop, self._persist("archive", self._opener.take_possession))
            await self._prepare(stop, stack)
            await unless_stopped(stop, self._persist(_TOPICS, self._refresh_topics))
            self.membership.start(sorted(self.topic_names))
            loops = [client.refuse_another_cluster(), self._keep_topics_fresh(), *self._loops(), *watch(client)]
            try:
                self.is_ready = True
                await unless_stopped(stop, _all(loops))
            finally:
                self.is_ready = False
                await self._leave()

    def _kafka(self) -> KafkaSettings:
        """Return the settings of the clients that fetch."""
        return self._backup.kafka

    async def _connect(self, stop: asyncio.Event, stack: AsyncExitStack) -> KafkaClient:
        async def connect() -> KafkaClient:
            return await stack.enter_async_context(KafkaClient(self._kafka()))

        return await unless_stopped(stop, self._persist("the cluster", connect))

    async def _persist(self, what: str, work: Callable[[], Awaitable[Value]]) -> Value:
        return await persist(what, work, self._sink.ledger)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_topics_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._group.refresh_ms / 1000)
            try:
                await self._refresh_topics()
                self.membership.subscribe(sorted(self.topic_names))
                await self._follow_topics()
                self.troubles.note_works(_TOPICS)
            except StrangerError:
                raise
            except (ArchiverError, TimeoutError) as error:
                failed = with_text(error)
                line = f"{failed}; topics are looked for again in {self._group.refresh_ms / 1000:.0f} s"
                self.troubles.note(failed, line, _TOPICS, stops_puts=False)
                self._sink.ledger.retried(_TOPICS, type(error).__name__)

    async def _leave_group(self, hints: Sequence[Hint]) -> None:
        """Commit, and leave the group; give up after a while."""
        if not await Workers(1, "leave").call(self.membership.close, hints, _LEAVE_S):
            log.info("the group was not left in time; it will miss this process after the session timeout")


async def persist(what: str, work: Callable[[], Awaitable[Value]], ledger: Ledger) -> Value:
    """Retry work until it succeeds, or fails with an error that is not temporary. Failures are counted under `what`."""
    backoff, troubles = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), Troubles()
    while True:
        try:
            done = await work()
        except TemporaryError as error:
            pause_s = backoff.next_s()
            troubles.note(error, f"{error}; trying again in {pause_s:.0f} s", what)
            ledger.retried(what, error.cause)
        else:
            troubles.note_works(what)
            return done
        await asyncio.sleep(pause_s)


async def _all(loops: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*loops)
