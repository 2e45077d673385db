"""A partition's way into a backup: settle its topic, read where its archive ends, make a feed of it."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from archiver.archive.inventory import ArchivedEnd, end_at, position_of
from archiver.archive.layout import SegmentKey
from archiver.archive.listing import NOTHING, Newest, list_newest
from archiver.archive.segment_facts import HoleCause
from archiver.archive.segment_writer import FinishedSegment
from archiver.archive.topics import (
    Branch,
    Judged,
    Life,
    PartitionSource,
    TopicFact,
    UnprovenError,
    read_topic,
    settle_branch,
    settle_cluster,
    settle_topic,
)
from archiver.backup.cut_back import find_branch
from archiver.backup.feed import NO_END, Feed
from archiver.backup.identity import Identity, Place
from archiver.backup.partition_writer import PartitionWriter, SegmentSink, Written, refuse_stranger
from archiver.backup.start_offsets import EARLIEST, First, Start, Starts
from archiver.config.model import UnprovenPolicy
from archiver.errors import (
    ArchiverError,
    CorruptSegmentError,
    KafkaTemporaryError,
    StoreNameError,
    StrangerError,
    TopicGoneError,
)
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import Refusal, TopicDescription, TopicPartition
from archiver.kafka.configs import TopicConfigs, topic_configs_each
from archiver.process.failpoints import reach
from archiver.process.text import spell_count
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

_CONFIRM_S = 60.0
_ROUNDS = 5  # of instances that all see a topic created again
# What opens waits for the store, one request after the other: with 30 ms for each, 2,000 partitions need some at once.
OPENERS = 8
_LOOK_UP_S = 20.0
_TAKEN_BY_ALL = 255  # bytes between two slashes: what file systems take, and stores that keep objects as files
_MANY = 32  # partitions that are found sooner by one listing of their topics
_KEYS_A_LISTING = 100  # a page of 1,000 keys takes as long as ten listings that find nothing


@dataclass(frozen=True, slots=True)
class LearnedConfigs:
    """Configs of topics, and why others do not tell theirs."""

    found: Mapping[str, TopicConfigs]
    refused: Mapping[str, Refusal]

    def own(self, topic: str) -> Mapping[str, str] | None:
        """Return what is set on the topic itself; None when that is not known."""
        return self.found[topic].own if topic in self.found else None


@dataclass(frozen=True, slots=True)
class Ends:
    """What a listing of whole topics had: by topic, life and partition. A silence since then makes it worthless."""

    topics: Collection[str]
    newest: Mapping[tuple[str, int, int], Newest]
    silences: int


class Opener:
    """Opens partitions. Safe to use again for a partition at any time: everything is read from archive and cluster."""

    def __init__(
        self,
        client: KafkaClient,
        *,
        sink: SegmentSink,
        pool: Workers,
        cluster_id: str,
        start: Start = EARLIEST,
        unproven: UnprovenPolicy = UnprovenPolicy.REFUSE,
    ) -> None:
        self._client = client
        self._identity = Identity(client, sink, pool, unproven)
        self._starts = Starts(client, sink, pool, start)
        self._sink = sink
        self._pool = pool
        self._cluster_id = cluster_id
        self._shapes: dict[str, object] = {}
        self._told: set[tuple[PartitionSource, First]] = set()  # late beginnings

    async def take_possession(self) -> None:
        """Make the archive this cluster's, before anything else. Raises StrangerError when it is another's."""
        await self._pool.call(settle_cluster, self._sink.archive, self._cluster_id)
        await self._starts.note_present()

    async def learn_configs(self, topics: Iterable[TopicDescription]) -> LearnedConfigs:
        """Ask the brokers for the configs of topics, all at once."""
        return LearnedConfigs(*await topic_configs_each(self._client, [topic.name for topic in topics]))

    async def settle(self, topic: TopicDescription, configs: LearnedConfigs) -> TopicFact:
        """Write down what has changed about a topic. Raises StrangerError when the archive is another cluster's."""
        own = configs.own(topic.name)
        if topic.name in configs.refused:
            log.warning("%s; the configs that the archive has of it stay as they are", configs.refused[topic.name])
        fact = await self._settle_judged(topic, own)
        if own is not None:
            self._shapes[topic.name] = _shape(topic, own)
        reach("topic.settled")
        return fact

    async def _settle_judged(self, topic: TopicDescription, own: Mapping[str, str] | None) -> TopicFact:
        """Settle by the topic id; where none tells, by what the topic's records are to those that are archived."""
        judged: Judged | None = None
        sights = {} if topic.topic_id else await self._identity.look_ahead(topic)
        for _ in range(_ROUNDS):
            try:
                fact = await self._pool.call(self._settle_topic, topic, own, judged)
            except UnprovenError as error:  # not judged yet, or another instance has just begun a life
                judged = await self._identity.judge(topic, error.known)
                continue
            self._identity.keep(topic.name, fact.root(fact.current.life), sights)
            if judged is not None and not judged.is_same:
                log.warning(
                    "topic %s was created again: its records are not those that are archived. It goes on as life %d",
                    topic.name,
                    fact.current.life,
                )
            return fact
        raise KafkaTemporaryError(f"topic {topic.name} is created again and again; look who does, and try again")

    async def try_to_settle(self, topic: TopicDescription, configs: LearnedConfigs) -> TopicFact | ArchiverError:
        """The same; what keeps this topic alone from being settled is returned."""
        try:
            return await self.settle(topic, configs)
        except StrangerError:
            raise
        except ArchiverError as error:
            return error

    def has_changed(self, topic: TopicDescription, configs: LearnedConfigs) -> bool:
        """Tell whether a topic is not as it was when it was settled here before. The archive is not asked."""
        return self._shapes.get(topic.name) != _shape(topic, configs.own(topic.name))

    def _settle_topic(
        self, topic: TopicDescription, configs: Mapping[str, str] | None, judged: Judged | None
    ) -> TopicFact:
        return settle_topic(
            self._sink.archive,
            topic=topic.name,
            topic_id=topic.topic_id,
            cluster_id=self._cluster_id,
            partitions=len(topic.partitions),
            configs=configs,
            judged=judged,
        )

    async def look_up(
        self, partitions: Collection[TopicPartition], hinted: Collection[TopicPartition] = ()
    ) -> Ends | None:
        """List where the archives of partitions end, when they are many; `open` then need not list each.

        Behind a hint there is little to list: for such partitions alone, long topics are not gone through.
        """
        if len(partitions) < _MANY:
            return None
        unknown = set(partitions).difference(hinted)
        are_many_unknown = len(unknown) >= _MANY
        topics = {topic for topic, _ in (unknown if are_many_unknown else partitions)}
        most_keys = math.inf if are_many_unknown else _KEYS_A_LISTING * len(partitions)
        sink, silences = self._sink, self._sink.silence_counter.silences
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                newest = await self._pool.call(list_newest, sink.archive, topics, most_keys)
        except (ArchiverError, TimeoutError) as error:
            log.debug("%r; each partition is listed on its own", error)
            return None
        return None if newest is None else Ends(topics, newest, silences)

    async def open(
        self,
        fact: TopicFact,
        topic_id: str,
        partition: int,
        *,
        end_offset: int = NO_END,
        newest_base: int | None = None,
        ends: Ends | None = None,
        written: Written | None = None,
    ) -> Feed:
        """Read where the archive of a partition ends; `newest_base` is a hint, `ends` what was just listed."""
        life = fact.life_of_partition(topic_id, partition)
        source = PartitionSource(
            topic=fact.topic, partition=partition, life=life.life, topic_id=topic_id, cluster_id=self._cluster_id
        )
        listed = None
        if ends is not None and source.topic in ends.topics and ends.silences == self._sink.silence_counter.silences:
            listed = ends.newest.get((source.topic, source.life, partition), NOTHING)
        end = await self._pool.call(self._end_of, source, life, newest_base, listed)
        if end.key:
            self._sink.fresh.note_found((source.topic, source.life), partition, end.next)
        confirm = None if topic_id else self._confirmation(source, fact, asyncio.get_running_loop())
        writer = PartitionWriter(source, end, self._sink, written=written, confirm=confirm)
        if not end.key and life.parent is None:
            self._begin_late(writer, await self._starts.first(source))
        feed = Feed(writer=writer, end_offset=end_offset)
        if not topic_id:
            await self._go_on_without_id(feed, fact)
        reach("position.read")
        return feed

    async def _go_on_without_id(self, feed: Feed, fact: TopicFact) -> None:
        """Begin where the log begins: once a fetch finds that it begins later, it is asked again which topic it is."""
        source = feed.source
        lineage = fact.lineage(source.life, source.partition)
        place = Place(source.topic, "", source.partition, fact.root(source.life), lineage)
        feed.goes_on = lambda: self._identity.goes_on(place)
        log_start = (await self._client.offsets([feed.key]))[feed.key].log_start
        if feed.writer.position < log_start:
            feed.writer.skip(log_start)
            feed.go_on_where_the_writer_is()

    def _begin_late(self, writer: PartitionWriter, first: First) -> None:
        if first.offset > 0:
            writer.skip(first.offset, HoleCause.BEFORE_START, is_news=(writer.source, first) not in self._told)
            writer.leader_epoch = first.leader_epoch
            self._told.add((writer.source, first))

    def _end_of(
        self, source: PartitionSource, life: Life, newest_base: int | None = None, listed: Newest | None = None
    ) -> ArchivedEnd:
        sink = self._sink
        if listed is None:
            end = position_of(sink.archive, source.topic, source.life, source.partition, newest_base)
            if newest_base is not None and end.next <= newest_base and life.parent is None:
                log.warning(
                    "%s: the group has committed an object from offset %d on, which is not in this archive, where it ends at"
                    " %d. Does another archive use the same backup.group? Then each has only a share of the partitions",
                    source,
                    newest_base,
                    end.next,
                )
        else:
            end = end_at(sink.archive.store, listed)
        if end.key:
            refuse_stranger(source, end.key, topic_id=end.topic_id, cluster_id=end.cluster_id)
            return end
        self._refuse_long_name(source)
        branch = life.branches.get(source.partition)
        return end if branch is None else ArchivedEnd(next=branch.offset, leader_epoch=branch.leader_epoch)

    def _refuse_long_name(self, source: PartitionSource) -> None:
        """Ask the store, before anything is fetched, whether it would take an object of a long name."""
        layout = self._sink.archive.layout
        key = layout.segment_key(SegmentKey(topic=source.topic, life=source.life, partition=source.partition, base=0))
        length = len(key.rpartition("/")[2])
        if length <= _TAKEN_BY_ALL:
            return
        try:
            self._sink.archive.store.get_range(key, 0, 1)  # a HEAD is not told why
        except StoreNameError as error:
            raise StoreNameError(
                f"{source}: the store takes no objects with names of {length} bytes, as this partition's would have; leave the"
                f" topic out (topics.exclude), or archive it into a store that takes them ({error})"
            ) from error

    # --- a log that was cut back

    async def branch_off(self, feed: Feed) -> Feed:
        """Go on behind a log that was cut back: in a child life, from where the archive and the log part.

        When they do not, because only what was not archived yet was cut, the life goes on.
        """
        source, sink = feed.source, self._sink
        fact = await self._pool.call(self._read_topic, source)
        log_start = (await self._client.offsets([feed.key]))[feed.key].log_start
        branch = await find_branch(
            self._client,
            sink.archive,
            pool=self._pool,
            topic=source.topic,
            partition=source.partition,
            lineage=fact.lineage(source.life, source.partition),
            log_start=log_start,
        )
        # All that was asked goes by name: a topic that was created again has a shorter log, too.
        await self._refuse_recreated(source)
        life = fact.life_of_partition(source.topic_id, source.partition)
        end = await self._pool.call(self._end_of, source, life)
        goes_on = branch.offset >= end.next
        begins_late = not end.key and life.parent is None
        if begins_late:
            await self._starts.cut_back(source)
        if not goes_on:
            fact = await self._pool.call(self._begin_life, source, branch)
        opened = await self.open(
            fact, source.topic_id, source.partition, end_offset=feed.end_offset, written=feed.writer.written
        )
        if goes_on and not begins_late:  # with the epoch that the log knows, or it parts again
            opened.writer.leader_epoch = branch.leader_epoch
            opened.go_on_where_the_writer_is()
        return opened

    def _begin_life(self, source: PartitionSource, branch: Branch) -> TopicFact:
        sink = self._sink
        life, settled = settle_branch(
            sink.archive,
            topic=source.topic,
            partition=source.partition,
            parent=source.life,
            branch=branch,
        )
        log.error(
            "%s: the log was cut back: the archive goes on at offset %d as life %d, and keeps all that it has, as life %d."
            " Look for an unclean election or a lost disk",
            source,
            settled.offset,
            life,
            source.life,
        )
        reach("branch.settled")
        sink.ledger.branched(source.topic)
        return self._read_topic(source)

    def _read_topic(self, source: PartitionSource) -> TopicFact:
        fact = read_topic(self._sink.archive, source.topic)
        if fact is None:
            raise CorruptSegmentError(f"{source.topic}: its control facts are gone; they are never deleted")
        return fact

    # --- inside

    def _confirmation(
        self, source: PartitionSource, fact: TopicFact, loop: asyncio.AbstractEventLoop
    ) -> Callable[[FinishedSegment], None]:
        """A check for the writer's thread: that a topic without an id still is the one that the source is."""

        def confirm(held: FinishedSegment) -> None:
            asyncio.run_coroutine_threadsafe(self._refuse_another(source, fact, held), loop).result(_CONFIRM_S)

        return confirm

    async def _refuse_another(self, source: PartitionSource, fact: TopicFact, held: FinishedSegment) -> None:
        """Raise TopicGoneError when the topic of this name no longer is the one that the source is."""
        found = await self._described(source)
        place = Place.of(found, source.partition, fact, source.life)
        if not await self._identity.still_has(found, fact, place, held):
            log.warning(
                "%s: %s from offset %d on, which were held, are dropped: without a topic id, nothing proves that they are of"
                " the topic that is archived. What is archived is kept",
                source,
                spell_count(held.facts.records, "record"),
                held.facts.first,
            )
            raise _gone(source)

    async def _refuse_recreated(self, source: PartitionSource) -> None:
        """The same, before anything is held; the whole topic is asked where its id does not tell."""
        found = await self._described(source)
        if not found.topic_id or not source.topic_id:
            fact = await self._settle_judged(found, None)
            if fact.root(source.life) != fact.root(fact.current.life):
                raise _gone(source)

    async def _described(self, source: PartitionSource) -> TopicDescription:
        """The topic as the brokers tell it now. Raises TopicGoneError when its id tells that it is another one."""
        found = (await self._client.describe_topics([source.topic])).get(source.topic)
        if found is None or len({found.topic_id, source.topic_id} - {""}) > 1:
            raise _gone(source)
        return found


def _gone(source: PartitionSource) -> TopicGoneError:
    return TopicGoneError(
        f"{source}: the topic was deleted, or created again; what was held of it is dropped, what is archived is kept"
    )


def _shape(topic: TopicDescription, configs: Mapping[str, str] | None) -> object:
    return topic.topic_id, topic.partitions, configs
