"""Opens partitions for a backup: records their topics, reads the ends of their archives, and makes their feeds."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.index.archived_end import ArchivedEnd, end_at, position_of
from archiver.archive.index.inventory import Gap
from archiver.archive.notes.swept import SweptPlace, read_swept_place
from archiver.archive.notes.topic_changes import record_branch
from archiver.archive.notes.topics import Branch, Life, PartitionSource, TopicFact, read_topic, record_cluster
from archiver.archive.segments.listing import NO_SEGMENTS, Newest, list_newest
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.opening.cut_back import Archived, find_branch
from archiver.backup.opening.offsets_log_ends import OffsetsLogEnds
from archiver.backup.opening.role_watch import RoleWatch
from archiver.backup.opening.start_offsets import START_EARLIEST, StartOffset, StartOffsets
from archiver.backup.opening.topic_recorder import LearnedConfigs, TopicRecorder
from archiver.backup.partition.feed import NO_END_OFFSET, Feed
from archiver.backup.partition.partition_writer import PartitionWriter, Written, refuse_stranger
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.config.section import StartPoint
from archiver.errors import (
    ArchiverError,
    CorruptSegmentError,
    LostTopicIdError,
    NotWholeError,
    StrangerError,
    TopicGoneError,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicDescription, TopicPartition
from archiver.kafka.groups.group import Hint
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.output.defects import as_ours
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

# To open a partition takes several requests to the store, one after the other: at 30 ms each, 2,000 partitions need some threads.
# Some of them may hang in a store, and others must still be opened.
OPENERS = 32
_FIND_ENDS_S = 20.0
_MANY = 32  # from this number of partitions on, one listing of their topics is faster
_KEYS_A_LISTING = 100  # a page of 1,000 keys takes as long as ten listings that find nothing


@dataclass(frozen=True, slots=True)
class ArchivedEnds:
    """Archived ends of partitions, by one listing of whole topics. Stale after a silence of this process: others may have written."""

    topics: Collection[str]
    newest: Mapping[tuple[str, int, int], Newest]
    silences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """Answers about many partitions at once, before each of them is opened."""

    hints: Mapping[TopicPartition, Hint]
    found: Mapping[str, TopicDescription]
    refused: Mapping[str, Refusal]
    configs: LearnedConfigs
    ends: ArchivedEnds | None
    copied: Collection[str] | None  # topics that have a role log; None: not known
    log_ends: Mapping[TopicPartition, int] | None  # None: not asked for


class Opener:
    """Opens partitions. A partition may be opened again at any time: all state is read from archive and cluster."""

    def __init__(
        self,
        client: KafkaClient,
        *,
        sink: SegmentSink,
        pool: Workers,
        cluster_id: str,
        start: StartPoint = START_EARLIEST,
        leaves_copied: bool = False,
    ) -> None:
        self._client = client
        self.topics = TopicRecorder(client, sink=sink, pool=pool, cluster_id=cluster_id)
        self.offsets_log_ends = OffsetsLogEnds(client, sink.archive, pool, machine_now_ms)
        self.roles = RoleWatch(sink.archive, pool, is_enabled=leaves_copied)
        self._start_offsets = StartOffsets(client, sink, pool, start)
        self._sink = sink
        self._pool = pool
        self._cluster_id = cluster_id
        self._begun_late: set[tuple[PartitionSource, StartOffset]] = set()  # late beginnings that were logged already
        self.findings: dict[str, NotWholeError] = {}  # objects that contradict their predecessors or the log, by key

    async def take_possession(self) -> None:
        """Claim the archive for this cluster, before anything else. Raises StrangerError if it is another cluster's."""
        await self._pool.call(record_cluster, self._sink.archive, self._cluster_id)
        await self._start_offsets.note_present()

    async def open_all(
        self,
        wanted: Collection[TopicPartition],
        take: Callable[[Feed], None],
        refuse: Callable[[Collection[TopicPartition], ArchiverError], None],
        leave: Callable[[Collection[TopicPartition]], None],
        *,
        described: Mapping[str, TopicDescription] | None = None,
        hints: Mapping[TopicPartition, Hint] = MappingProxyType({}),
        log_ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Open partitions. Shared questions are asked at once; then no topic waits for another.

        Only topics with a reported id: if brokers report none now, that is a temporary error.

        Passes each feed to `take`, and each refusal to `refuse`, as soon as it is known. `leave` is
        called with those that are left to the instances that keep copies. `described`: their topics, if the caller knows them; all are recorded, also those without a wanted partition.
        `log_ends`: their log ends, if the caller knows them.
        Raises errors that block all of them: StrangerError, or the failure to reach any broker.
        """
        learned = await self._learn(wanted, hints, described, log_ends)
        by_topic: dict[str, list[TopicPartition]] = {name: [] for name in learned.found}
        for key in wanted:
            by_topic.setdefault(key[0], []).append(key)
        await asyncio.gather(
            *(self._open_topic(topic, keys, learned, take, refuse, leave) for topic, keys in by_topic.items())
        )

    async def _learn(
        self,
        wanted: Collection[TopicPartition],
        hints: Mapping[TopicPartition, Hint],
        described: Mapping[str, TopicDescription] | None,
        log_ends: Mapping[TopicPartition, int] | None,
    ) -> _Learned:
        refused: dict[str, Refusal] = {}
        if described is None:
            found, refused = await self._client.describe_each({topic for topic, _ in wanted})
            described = {name: topic for name, topic in found.items() if topic.topic_id}
            refused |= {name: LostTopicIdError(name) for name in found.keys() - described.keys()}
        return _Learned(
            hints=hints,
            found=described,
            refused=refused,
            configs=await self.topics.learn_configs(described.values()),
            ends=await self.find_archived_ends(wanted, hints),
            copied=await self.roles.list_topics(),
            log_ends=log_ends,
        )

    async def _open_topic(
        self,
        topic: str,
        keys: Collection[TopicPartition],
        learned: _Learned,
        take: Callable[[Feed], None],
        refuse: Callable[[Collection[TopicPartition], ArchiverError], None],
        leave: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        async def open_one(key: TopicPartition) -> None:
            hint = learned.hints.get(key)
            base = None if hint is None else hint.base
            topic_id = learned.found[topic].topic_id
            try:
                take(await self.open(fact, topic_id, key[1], newest_base=base, ends=learned.ends))
            except Exception as error:  # noqa: BLE001 - a defect in one partition must not stop another
                refuse([key], as_ours(error, f"{key[0]}-{key[1]}"))

        if topic not in learned.found:
            gone = TopicGoneError(f"topic {topic} was deleted; what is archived is kept")
            refuse(keys, learned.refused.get(topic) or gone)
            return
        try:
            fact = await self.topics.record(learned.found[topic], learned.configs)
            left = await self._find_left(fact, keys, learned)
        except StrangerError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            refuse(keys, as_ours(error, topic))
            return
        leave(left)
        if topic != OFFSETS_TOPIC:
            await asyncio.gather(*(open_one(key) for key in keys if key not in left))
            return
        take_noted, opened = take, list[Feed]()
        take = opened.append
        await asyncio.gather(*(open_one(key) for key in keys if key not in left))
        try:
            await self.offsets_log_ends.note_opened(opened, learned.log_ends)
        except Exception as error:  # noqa: BLE001 - as above
            refuse([feed.key for feed in opened], as_ours(error, topic))
            return
        for feed in opened:
            take_noted(feed)

    async def _find_left(
        self, fact: TopicFact, keys: Collection[TopicPartition], learned: _Learned
    ) -> frozenset[TopicPartition]:
        if learned.copied is not None and fact.topic not in learned.copied:
            return frozenset()
        topic_id = learned.found[fact.topic].topic_id
        left = await self.roles.find_left(fact, topic_id, [number for _, number in keys])
        return frozenset((fact.topic, number) for number in left)

    async def find_archived_ends(
        self, partitions: Collection[TopicPartition], hinted: Collection[TopicPartition] = ()
    ) -> ArchivedEnds | None:
        """List the archived ends of many partitions, so that `open` need not list each. None if that does not pay.

        A partition with a hint has little to list: for hinted partitions alone, long topics are not listed.
        """
        if len(partitions) < _MANY:
            return None
        unknown = set(partitions).difference(hinted)
        are_many_unknown = len(unknown) >= _MANY
        topics = {topic for topic, _ in (unknown if are_many_unknown else partitions)}
        most_keys = math.inf if are_many_unknown else _KEYS_A_LISTING * len(partitions)
        sink, silences = self._sink, self._sink.silence_counter.silences
        try:
            async with asyncio.timeout(_FIND_ENDS_S):
                newest = await self._pool.call(list_newest, sink.archive, topics, most_keys)
        except (ArchiverError, TimeoutError) as error:
            log.debug("%s; each partition is listed on its own", error)
            return None
        return None if newest is None else ArchivedEnds(topics, newest, silences)

    async def open(
        self,
        fact: TopicFact,
        topic_id: str,
        partition: int,
        *,
        end_offset: int = NO_END_OFFSET,
        newest_base: int | None = None,
        ends: ArchivedEnds | None = None,
        written: Written | None = None,
    ) -> Feed:
        """Read the end of a partition's archive, and make a feed that continues there. `newest_base` is a hint; `ends` was just listed."""
        life = fact.life_of_partition(topic_id, partition)
        source = PartitionSource(
            topic=fact.topic, partition=partition, life=life.life, topic_id=topic_id, cluster_id=self._cluster_id
        )
        listed, silences = None, self._sink.silence_counter.silences  # a silence during the read must show at the put
        if ends is not None and source.topic in ends.topics and ends.silences == silences:
            listed = ends.newest.get((source.topic, source.life, partition), NO_SEGMENTS)
        end = await self._pool.call(self._end_of, source, life, newest_base, listed)
        if end.gap is not None:
            await self._face_gap(source, end, end.gap)
        if end.key:
            self._sink.fresh.note_found((source.topic, source.life), partition, end.next)
        writer = PartitionWriter(source, end, self._sink, silences=silences, written=written)
        if not end.key and life.parent is None:
            self._begin_late(writer, await self._start_offsets.first(source))
        feed = Feed(writer=writer, end_offset=end_offset)
        reach("position.read")
        return feed

    def _begin_late(self, writer: PartitionWriter, first: StartOffset) -> None:
        if first.offset > 0:
            writer.skip(first.offset, HoleCause.BEFORE_START, is_news=(writer.source, first) not in self._begun_late)
            writer.leader_epoch = first.leader_epoch
            self._begun_late.add((writer.source, first))

    def _end_of(
        self, source: PartitionSource, life: Life, newest_base: int | None = None, listed: Newest | None = None
    ) -> ArchivedEnd:
        sink = self._sink
        if listed is None:
            end = position_of(sink.archive, source.topic, source.life, source.partition, newest_base)
        else:
            end = end_at(sink.archive.store, listed)
        if end.key:
            refuse_stranger(source, end.key, topic_id=end.topic_id, cluster_id=end.cluster_id)
            return end if end.gap is None else replace(end, gap=self._lost_of(source, life, end.gap))
        branch = life.branches.get(source.partition)
        return end if branch is None else ArchivedEnd(next=branch.offset, leader_epoch=branch.leader_epoch)

    # --- a newest object that does not join the one before it

    def _lost_of(self, source: PartitionSource, life: Life, gap: Gap) -> Gap | None:
        """Return a gap from its first lost offset on: neither in another life nor swept. Mostly two requests."""
        branch = life.branches.get(source.partition)
        begin = max(gap.first_offset, 0 if branch is None else branch.offset)
        end = gap.last_offset + 1
        if begin >= end:
            return None
        swept = read_swept_place(self._sink.archive, SweptPlace(source.topic, source.life, source.partition))
        lost = next((start for start, stop in swept.outside(begin, end) if start < stop), None)
        return None if lost is None else replace(gap, first_offset=lost)

    async def _face_gap(self, source: PartitionSource, end: ArchivedEnd, gap: Gap) -> None:
        """Raise CorruptSegmentError if Kafka still has records of a gap; otherwise note the gap as a finding."""
        key = (source.topic, source.partition)
        log_start = (await self._client.offsets([key]))[key].log_start
        what = f"{source}: {end.spell_gap(gap)}"
        if log_start <= gap.last_offset:
            raise CorruptSegmentError(
                f"{what}, and Kafka still has records from offset {log_start} on. Nothing more of this partition is archived"
                " until the objects between are back from the bucket's versions, or, if there are none, until the newest"
                " object is moved away: then the archive goes on before it"
            )
        self._find(source, end.key, f"{what}, and Kafka has them no longer: the archive goes on behind them")

    def _find(self, source: PartitionSource, key: str, message: str) -> None:
        """Note a problem of the archive, log and count it once: the partition continues."""
        if key not in self.findings:
            log.error("%s", message)
            self._sink.ledger.failed(source.topic, NotWholeError.__name__)
            self.findings[key] = NotWholeError(message)

    # --- a log that was cut back

    async def branch_off(self, feed: Feed) -> Feed:
        """Continue after a truncation: in a child life, from the offset up to which archive and log agree.

        If only unwritten records were cut off, archive and log agree, and the life continues.
        """
        source = feed.source
        fact = await self._pool.call(self._read_topic, source)
        branch = await self._find_branch(source, fact)
        life = fact.life_of_partition(source.topic_id, source.partition)
        end = await self._pool.call(self._end_of, source, life)
        goes_on = branch.offset >= end.next
        begins_late = not end.key and life.parent is None
        if begins_late:
            await self._start_offsets.cut_back(source)
        if not goes_on:
            fact = await self._pool.call(self._begin_life, source, branch)
        opened = await self.open(
            fact, source.topic_id, source.partition, end_offset=feed.end_offset, written=feed.writer.written
        )
        if goes_on and not begins_late:  # with an epoch that the log knows; otherwise it would look cut back again
            opened.writer.leader_epoch = branch.leader_epoch
            opened.follow_writer()
        return opened

    async def record_cut(self, source: PartitionSource) -> TopicFact:
        """Record that the log of a partition was truncated below its read end. Returns the resulting note."""
        fact = await self._pool.call(self._read_topic, source)
        branch = await self._find_branch(source, fact)
        return await self._pool.call(self._begin_life, source, branch)

    async def _find_branch(self, source: PartitionSource, fact: TopicFact) -> Branch:
        key = (source.topic, source.partition)
        log_ends = (await self._client.offsets([key]))[key]

        doubted: list[Archived] = []
        branch = await find_branch(
            self._client,
            self._sink.archive,
            pool=self._pool,
            topic=source.topic,
            partition=source.partition,
            lineage=fact.lineage(source.life, source.partition),
            log_start=log_ends.log_start,
            log_end=log_ends.high_watermark,
            log_epoch=log_ends.leader_epoch,
            doubt=doubted.append,
        )
        # So far the broker was asked by topic name: a recreated topic has a shorter log, too.
        await self.topics.refuse_recreated(source)
        for archived in doubted:
            epoch = archived.facts.leader_epoch
            self._find(
                source,
                archived.key,
                f"{source}: {archived.key} reaches offset {archived.facts.next}, and the log ends at {log_ends.high_watermark},"
                f" in the leader epoch {log_ends.leader_epoch}. The object names {'no leader epoch' if epoch < 0 else f'epoch {epoch}'},"
                " and no election explains that. What the log has from the object before it on is archived again, in a new"
                " life. If the object is not of this archive, find out who put it; else look for a lost disk",
            )
        return branch

    def _begin_life(self, source: PartitionSource, branch: Branch) -> TopicFact:
        sink = self._sink
        ours = replace(branch, seen_ms=machine_now_ms())
        life, recorded = record_branch(
            sink.archive, topic=source.topic, partition=source.partition, parent=source.life, branch=ours
        )
        if recorded == ours:  # otherwise its writer has reported it
            log.error(
                "%s: the log was cut back: the archive goes on at offset %d as life %d, and keeps all that it has, as life %d."
                " Look for an unclean election or a lost disk",
                source,
                recorded.offset,
                life,
                source.life,
            )
            reach("branch.recorded")
            sink.ledger.branched(source.topic)
        return self._read_topic(source)

    def _read_topic(self, source: PartitionSource) -> TopicFact:
        fact = read_topic(self._sink.archive, source.topic)
        if fact is None:
            raise CorruptSegmentError(f"{source.topic}: its control facts are gone; they are never deleted")
        return fact
