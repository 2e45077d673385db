"""Runs a backup up to the log ends at its start: topics -> positions and ends -> pump -> a report per partition."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace

from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.cluster_topics import (
    explain_unmatched,
    find_cluster_topics,
    refuse_without_ids,
)
from archiver.archive.notes.topics import PartitionSource, list_known_topics
from archiver.backup.opening.opener import OPENERS, Opener
from archiver.backup.opening.role_watch import place_of
from archiver.backup.partition.feed import Feed, PartitionReport
from archiver.backup.partition.log_agreement import find_parted
from archiver.backup.partition.open_transactions import learn_open_transactions
from archiver.backup.partition.partition_writer import Written
from archiver.backup.partition.pump import Pump
from archiver.backup.reports.gone_topics import GoneTopics
from archiver.backup.service.cluster_notes import note_cluster
from archiver.backup.service.request import STOP_S, BackupRequest, indexer_of, keeper_of, opener_of, pump_of
from archiver.errors import (
    ArchiverError,
    CutBackError,
    KafkaError,
    KafkaTemporaryError,
    StoppedError,
    StoreError,
    StoreTemporaryError,
    UsageError,
)
from archiver.groups.positions.keeper import PositionKeeper
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription, TopicPartition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.signals import unless_stopped
from archiver.process.running.workers import Workers, workers

log = logging.getLogger(__name__)

_NOTICE_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """The result of each partition, and other errors."""

    partitions: Sequence[PartitionReport]
    problems: Sequence[ArchiverError]
    left: Sequence[TopicPartition] = ()  # to the instances that keep copies
    begun_ms: int | None = None  # by the store's clock, before the log ends were read

    @property
    def errors(self) -> Sequence[ArchiverError]:
        return [*self.problems, *(one.error for one in self.partitions if one.error is not None)]


Notice = Callable[[Sequence[PartitionReport]], None]
# Receives the running partitions; returns other work for the loop.
Attend = Callable[[KafkaClient, Mapping[TopicPartition, Feed]], Sequence[Coroutine[None, None, None]]]


async def back_up_until_end(
    request: BackupRequest, pool: Workers, stop: asyncio.Event, notice: Notice, attend: Attend
) -> BackupReport:
    """Archive every partition of the selected topics up to the records committed at the start.

    A failure of one partition does not stop the others; it is in the report, as is a stop after work had begun. `notice` is
    called regularly with reports of all partitions.
    """
    with workers(OPENERS, "opener") as openers:
        async with KafkaClient(request.kafka) as client:
            cluster_id = await client.cluster_id()
            opener = opener_of(request, client, openers, cluster_id)
            await unless_stopped(stop, opener.take_possession())
            keeper = keeper_of(request, client, openers, cluster_id)
            topics, problems = await unless_stopped(stop, _selected(client, request, keeper, openers))
            if keeper.takes_snapshots:  # before the log ends are read: so the archive reaches every position
                try:
                    await unless_stopped(stop, keeper.take_snapshot())
                except (KafkaError, KafkaTemporaryError, StoreError, StoreTemporaryError) as error:
                    problems.append(error)
            await unless_stopped(stop, note_cluster(client, request.sink.archive, openers))
            begun_ms = epoch_ms(await pool.call(request.sink.archive.store.now))
            run = _Run(client, opener, request, pool)
            await unless_stopped(stop, run.open(topics))
            try:
                async with indexer_of(request).attend(stop):
                    await run.until_end(stop, notice, attend)
                    await unless_stopped(stop, opener.roles.take_back(run.durable()))
            except StoppedError as error:
                problems.append(error)
            problems += opener.findings.values()
            return BackupReport(partitions=run.reports(), problems=problems, left=sorted(run.left), begun_ms=begun_ms)


async def _selected(
    client: KafkaClient, request: BackupRequest, keeper: PositionKeeper, pool: Workers
) -> tuple[list[TopicDescription], list[ArchiverError]]:
    """Return the topics to archive, and the refusals of other included topics."""
    sink, topics = request.sink, request.topics
    known = await pool.call(list_known_topics, sink.archive)
    seen = await find_cluster_topics(client, topics, topics.select(known))
    seen = await pool.call(refuse_without_ids, sink.archive, seen)
    await GoneTopics(sink.archive, pool).look(topics.select(known), seen)
    unmatched = list(explain_unmatched(topics, seen.unmatched(topics), request.place_of_include))
    names = set(topics.select(seen.found))
    refused: list[ArchiverError] = [seen.refused[name] for name in topics.select(seen.refused)]
    if not names and not refused:
        nothing = f"no topic of the cluster's {len(seen.found)} matches topics.include; nothing to archive"
        raise UsageError("\n".join([*unmatched, nothing]))
    for line in unmatched:
        log.warning("%s", line)
    if await keeper.decide_way(seen.found):
        names.add(OFFSETS_TOPIC)
    return [seen.found[name] for name in sorted(names)], refused


class _Run:
    """The partitions of one backup: running ones, and reports of ended ones."""

    def __init__(self, client: KafkaClient, opener: Opener, request: BackupRequest, pool: Workers) -> None:
        self._client = client
        self._opener = opener
        self._request = request
        self._pool = pool
        self._opened: list[Feed] = []
        self._running: dict[TopicPartition, Feed] = {}
        self._reports: dict[TopicPartition, PartitionReport] = {}
        self._ended: list[Feed] = []
        self.left: list[TopicPartition] = []

    # --- begin

    async def open(self, topics: Sequence[TopicDescription]) -> None:
        described = {topic.name: topic for topic in topics}
        feeds: list[Feed] = []

        def refuse(keys: Collection[TopicPartition], error: ArchiverError) -> None:
            for topic, number in keys:
                self._report_unopened(described[topic], number, error)

        # The ends first: the backup reaches up to the records committed now.
        offsets, refused = await self._client.offsets_each(
            [(topic.name, number) for topic in topics for number in topic.partitions]
        )
        for key, error in refused.items():
            refuse([key], error)
        await self._opener.open_all(
            list(offsets),
            feeds.append,
            refuse,
            self.left.extend,
            described=described,
            log_ends={key: one.high_watermark for key, one in offsets.items()},
        )
        for feed in feeds:
            feed.end_offset = offsets[feed.key].last_stable
        parted = await find_parted(self._client, feeds, offsets)
        await asyncio.gather(*map(self._branch_off, parted))
        await asyncio.gather(*(self._begin(feed, offsets[feed.key]) for feed in feeds if feed not in parted))

    async def _begin(self, feed: Feed, offsets: PartitionOffsets) -> None:
        """Begin at the end of a partition's archive, or at the start of its log."""
        if feed.writer.position < offsets.log_start:
            feed.writer.skip(offsets.log_start)
            feed.follow_writer()
        if offsets.last_stable < offsets.high_watermark:
            await self._name_open_transactions(feed, offsets.last_stable)
        self._opened.append(feed)

    def _report_unopened(self, topic: TopicDescription, number: int, error: ArchiverError) -> None:
        source = PartitionSource(topic=topic.name, partition=number, life=0, topic_id=topic.topic_id, cluster_id="")
        self._reports[topic.name, number] = PartitionReport(
            source=source,
            from_offset=0,
            position=0,
            end_offset=0,
            written=Written(),
            open_transactions=(),
            error=error,
            dropped_records=0,
        )

    async def _name_open_transactions(self, feed: Feed, last_stable: int) -> None:
        await learn_open_transactions(self._client, feed)
        for transaction in feed.open_transactions:
            what = "%s: an open transaction holds the end back at offset %d: %s"
            log.warning(what, feed.source, last_stable, transaction)

    async def _branch_off(self, feed: Feed) -> None:
        """Continue in a child life, up to the records committed by then: the log was truncated below the archive, or during this run."""
        try:
            branched = await self._opener.branch_off(feed)
            branched.end_offset = (await self._client.offsets([feed.key]))[feed.key].last_stable
        except ArchiverError as error:
            self._reports[feed.key] = replace(feed.report(), error=error)
        else:
            self._opened.append(branched)

    # --- continue

    def reports(self) -> list[PartitionReport]:
        return [self._reports[key] for key in sorted(self._reports)]

    def durable(self) -> dict[RolePlace, int]:
        """Return the archived ends of partitions that have ended without an error."""
        whole = [report for report in self._reports.values() if report.error is None]
        return {place_of(report.source): report.position for report in whole}

    async def until_end(self, stop: asyncio.Event, notice: Notice, attend: Attend) -> None:
        """Work until all partitions have ended. Raises StoppedError when `stop` comes first; then, too, each has a report."""
        async with pump_of(self._request, self._client, self._pool) as pump:
            beside = [self._report_progress(pump, notice), *attend(self._client, pump.feeds)]
            tasks = [asyncio.create_task(one) for one in beside]
            try:
                await unless_stopped(stop, self._run_all(pump))
            except StoppedError:
                # Flush held records; unwritten ones are dropped after a while, because the archive is the checkpoint.
                await pump.close(list(pump.feeds.values()), STOP_S)
                left = [*self._opened, *self._running.values()]
                self._reports |= {feed.key: feed.report() for feed in left}
                raise
            finally:
                for task in tasks:
                    task.cancel()
                notice(self.reports())

    async def _run_all(self, pump: Pump) -> None:
        while self._opened or self._running:
            while self._opened:
                feed = self._opened.pop()
                self._running[feed.key] = feed
                pump.add(feed)
            await self._take_ended(await pump.next_ended())
        try:
            await self._opener.offsets_log_ends.settle(self._ended)
        except ArchiverError as error:  # readers report that these partitions may lag, and are wrong
            log.warning("%s", error)

    async def _take_ended(self, feed: Feed) -> None:
        if isinstance(feed.ending.error, CutBackError):
            await self._branch_off(feed)
        else:
            self._ended.append(feed)
            self._reports[feed.key] = feed.report()
        del self._running[feed.key]

    async def _report_progress(self, pump: Pump, notice: Notice) -> None:
        while True:
            notice([*self._reports.values(), *(feed.report() for feed in pump.feeds.values())])
            await asyncio.sleep(_NOTICE_EVERY_S)
