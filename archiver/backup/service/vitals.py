"""Reads the state of a running backup for metrics and health checks: progress and problems by partition."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from archiver.archive.format.store_clock import machine_now_ms
from archiver.backup.partition.feed import LASTING_FAILURE_S, Feed
from archiver.backup.partition.open_transactions import watch_transactions
from archiver.backup.reports.backlog import Backlog, find_backlogs
from archiver.backup.reports.metrics import PartitionState
from archiver.backup.service.backup_service import Service
from archiver.backup.service.group_worker import GroupWorker
from archiver.errors import ArchiverError, KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.topics.configs import topic_configs_each

log = logging.getLogger(__name__)

Worker = TypeVar("Worker", bound=GroupWorker)

_RETENTION_EVERY_S: Final = 300.0
_UNTIL_TOPICS_S: Final = 2.0
_BACKLOGS_EVERY_S: Final = 5.0
_BEAT_EVERY_S: Final = 1.0
_STUCK_S: Final = 60.0


class Heartbeat:
    """Checks that the event loop runs: `beat` runs on the loop; `why_not_healthy` may be called from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._beat_at_s = clock()

    async def beat(self) -> None:
        while True:
            self._beat_at_s = self._clock()
            await asyncio.sleep(_BEAT_EVERY_S)

    def why_not_healthy(self) -> str | None:
        silent_s = self._clock() - self._beat_at_s
        return f"the event loop has not run for {silent_s:.0f} s" if silent_s > _STUCK_S else None


class WorkerVitals(ABC, Generic[Worker]):
    """Reads the state of a started group worker; may be called from any thread."""

    def __init__(self, clock: Callable[[], float], clock_ms: Callable[[], int] = machine_now_ms) -> None:
        self.clock_ms = clock_ms
        self._clock = clock
        self._service: Worker | None = None
        self.heart = Heartbeat(time.monotonic)

    def attend(self, service: Worker) -> None:
        self._service = service

    @abstractmethod
    def states(self) -> Iterator[PartitionState]:
        """Yield the progress of each partition."""

    @abstractmethod
    def watch(self, client: KafkaClient) -> Sequence[Coroutine[None, None, None]]:
        """Return the coroutines that must run on the worker's loop."""

    def gone_topics(self) -> Collection[str]:
        return () if self._service is None else self._service.gone.names

    def rebalances(self) -> int:
        return 0 if self._service is None else self._service.membership.counters.rebalances

    def commit_failures(self) -> int:
        return 0 if self._service is None else self._service.membership.counters.commit_failures.total()

    def why_not_ready(self) -> str | None:
        service = self._service
        if service is None or not service.is_ready:
            return "not connected yet, or stopping"
        why = why_cut_off(service, self.clock_ms())
        if why is not None or service.membership.is_member:
            return why
        return "not in the group yet" if service.topic_names else service.why_no_topics


class Vitals(WorkerVitals[Service]):
    """Reads the state of a service, or of a run that ends (`--until-end`)."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        clock_ms: Callable[[], int] = machine_now_ms,
    ) -> None:
        super().__init__(clock, clock_ms)
        self._run: Mapping[TopicPartition, Feed] | None = None
        self._retention_ms: dict[str, int] = {}
        self._backlogs: Mapping[TopicPartition, Backlog] = {}

    def attend_run(
        self, client: KafkaClient, feeds: Mapping[TopicPartition, Feed]
    ) -> Sequence[Coroutine[None, None, None]]:
        """Read from now on the state of a run that ends. Returns coroutines that must run on the run's loop."""
        self._run = feeds
        return [
            self._learn_retention(client, lambda: feeds),
            watch_transactions(client, feeds, clock=self._clock, clock_ms=self.clock_ms),
        ]

    # --- called from the endpoint's threads

    def states(self) -> Iterator[PartitionState]:
        service, now_s = self._service, self._clock()
        feeds = dict((self._run or {}) if service is None else service.feeds)
        held = {} if service is None else dict(service.held)
        failing = {which for which, hold in held.items() if hold.failing_since_s is not None}
        for which, feed in feeds.items():
            state = state_of_feed(feed, now_s, self._retention_ms.get(which[0]))
            yield replace(state, is_failing=True) if which in failing else state
        if service is None:
            return
        for which in held.keys() - feeds.keys():
            hold = held[which]
            if hold.is_left:
                yield state_of_left(which, hold.archived_to)
            elif not hold.is_gone:
                is_failing = which in failing or now_s - hold.since_s >= LASTING_FAILURE_S  # else it is being opened
                state = self._state_without_feed(which, now_s - hold.unknown_since_s)
                yield replace(state, is_failing=is_failing, is_opening=not is_failing)
        nobodys = self._nobodys(service, now_s)
        for which in sorted(nobodys.keys() - feeds.keys() - held.keys()):
            yield self._state_without_feed(which, nobodys[which])

    def _nobodys(self, service: Service, now_s: float) -> Mapping[TopicPartition, float]:
        """Return partitions that this instance knows to be assigned to none, and for how long: those of topics that may
        not be described; and all, while the group refuses this instance.
        """
        found: dict[TopicPartition, float] = {}
        out_s = service.membership.shut_out_s
        if out_s >= LASTING_FAILURE_S:
            found = {(topic.name, number): out_s for topic in service.topics.values() for number in topic.partitions}
        for topic, refused in service.refused.topics.items():
            if refused.is_lasting(now_s):
                found |= {(topic, number): now_s - refused.since_s for number in refused.partitions}
        return found

    def _state_without_feed(self, which: TopicPartition, lasts_s: float) -> PartitionState:
        backlog = self._backlogs.get(which)
        is_empty = backlog is not None and backlog.position >= backlog.high_watermark
        return PartitionState(
            topic=which[0],
            partition=which[1],
            position=0 if backlog is None else backlog.position,
            high_watermark=None if backlog is None else backlog.high_watermark,
            oldest_pending_ms=None if backlog is None else backlog.oldest_ms,
            pending_since_s=None if is_empty else lasts_s,
            retention_ms=self._retention_ms.get(which[0]),
            is_failing=True,
        )

    def why_not_ready(self) -> str | None:
        return None if self._run is not None else super().why_not_ready()

    # --- on the loop

    def watch(self, client: KafkaClient) -> list[Coroutine[None, None, None]]:
        if self._service is None:
            raise RuntimeError("there is no service to watch")
        held = self._service.held
        return [
            self._learn_retention(client, lambda: held),
            self._learn_backlogs(self._service, client),
            watch_transactions(client, self._service.feeds, clock=self._clock, clock_ms=self.clock_ms),
        ]

    async def _learn_retention(self, client: KafkaClient, partitions: Callable[[], Collection[TopicPartition]]) -> None:
        """Read the retention of topics: at once for a topic that is new here, and again regularly."""
        asked: frozenset[str] = frozenset()
        asked_at_s = 0.0
        while True:
            await asyncio.sleep(_UNTIL_TOPICS_S)
            topics = frozenset(topic for topic, _ in partitions())
            if topics <= asked and self._clock() - asked_at_s < _RETENTION_EVERY_S:
                continue
            try:
                found, _ = await topic_configs_each(client, topics)
            except ArchiverError as error:
                log.info("retention is not known: %s", error)
                continue
            asked, asked_at_s = topics, self._clock()
            self._retention_ms = {
                topic: int(configs.effective["retention.ms"])
                for topic, configs in found.items()
                if "delete" in configs.effective.get("cleanup.policy", "delete")
                and int(configs.effective.get("retention.ms", "-1")) >= 0
            }

    async def _learn_backlogs(self, service: Service, client: KafkaClient) -> None:
        """Read the backlogs of partitions that cannot be opened: no feed shows the age of their records."""
        while True:
            await asyncio.sleep(_BACKLOGS_EVERY_S)
            failing = {key: hold for key, hold in service.held.items() if hold.failing_since_s is not None}
            closed = {key: hold.archived_to for key, hold in failing.items() if key not in service.feeds}
            try:
                self._backlogs = await find_backlogs(client, closed) if closed else {}
            except (KafkaError, KafkaTemporaryError) as error:
                log.info("what waits in partitions that are not open is not known: %s", error)


def state_of_feed(feed: Feed, now_s: float, retention_ms: int | None) -> PartitionState:
    topic, partition = feed.key
    oldest_ms, unsaved_since_s = feed.writer.oldest_held_ms, feed.unsaved_since_s(now_s)
    return PartitionState(
        topic=topic,
        partition=partition,
        position=feed.writer.durable_position,
        high_watermark=feed.high_watermark,
        oldest_pending_ms=oldest_ms if oldest_ms is not None and oldest_ms >= 0 else None,
        pending_since_s=None if unsaved_since_s is None else now_s - unsaved_since_s,
        retention_ms=retention_ms,
        is_failing=any(
            since_s is not None and now_s - since_s > LASTING_FAILURE_S
            for since_s in (feed.fetches.failing_since_s, feed.puts.failing_since_s, feed.writer.putting_since_s)
        ),
        open_transactions=[
            (one.producer_id, now_s - (feed.held_back_since_s or now_s)) for one in feed.open_transactions
        ],
    )


def why_cut_off(service: GroupWorker, now_ms: int) -> str | None:
    """Return what blocks a process: Kafka, its group, or the store; None: nothing does, or it was never in the group."""
    client, membership = service.client, service.membership
    silent_s = client.silent_s
    if silent_s is not None and (silent_s >= LASTING_FAILURE_S or not membership.is_member):
        since = datetime.fromtimestamp(now_ms / 1000 - silent_s, UTC)
        return f"cannot reach Kafka since {since:%Y-%m-%dT%H:%M:%SZ}"
    if membership.error is not None:
        return str(membership.error)
    return service.troubles.why_nothing_is_put() if membership.is_member else None


def state_of_left(which: TopicPartition, position: int) -> PartitionState:
    """Return the state of a partition that others archive: they report its lag."""
    return PartitionState(
        topic=which[0],
        partition=which[1],
        position=position,
        high_watermark=None,
        oldest_pending_ms=None,
        pending_since_s=None,
        retention_ms=None,
        is_failing=False,
        is_left=True,
    )
