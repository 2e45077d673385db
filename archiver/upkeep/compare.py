"""Plans the comparison of the archive with Kafka (`verify --against-kafka`), and runs it, a partition in each task."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.control import PRESENT, only_fact
from archiver.archive.format.handle import Archive, archive_of
from archiver.archive.format.layout import CopyKey, is_topic_name
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.notes.cluster_topics import ClusterTopics, explain_unmatched, find_cluster_topics
from archiver.archive.notes.swept import OffsetRanges
from archiver.archive.notes.topics import read_cluster, read_topic
from archiver.archive.segments.partition_segments import SegmentSlice, unreadable_within
from archiver.archive.segments.segment_facts import Bounds, HoleCause
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.errors import ArchiverError, KafkaError, KafkaTemporaryError, NotWholeError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription, TopicPartition
from archiver.kafka.groups.group import Hint, hint_of
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC, positions_of
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.log_reader import LogRange, LogStartError, read_log
from archiver.process.output.text import spell_count
from archiver.process.values.json_values import as_object
from archiver.store.address import archive_mark, group_of
from archiver.store.shared import patient_store_of
from archiver.upkeep.comparison import PartitionComparison
from archiver.upkeep.lost_keys import KeyComparison, LostKeys
from archiver.upkeep.object_check import Findings

_ATTEMPTS = 5  # starts, if the brokers have deleted records meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareTask:
    """One partition: its range in Kafka's log, and the archive's objects there."""

    storage: StorageConfig
    kafka: KafkaSettings
    log: LogRange
    readings: Sequence[SegmentSlice]
    swept: Sequence[tuple[int, int]] = ()  # swept ranges that Kafka may still have, the end not included
    copy: CopyKey | None = None  # of a compacted topic, whose keys Kafka must have, too


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePlan:
    """The partitions to compare; `problems` and `notes` are about the others, and about unarchived offsets."""

    tasks: Sequence[CompareTask]
    problems: Sequence[str]
    notes: Sequence[str]
    errors: Sequence[Findings]  # of topics and partitions that brokers refused to describe


async def plan_compare(
    config: ArchiverConfig,
    kafka: KafkaSettings,
    archived_topics: Iterable[ArchivedTopic],
    asked_for: Callable[[str], bool] | None,
) -> ComparePlan:
    """Plan the comparison of all included or archived topics, by the present starts and ends of their partitions.

    Records below the commits of the backup's group must be archived. `asked_for`: the topics to compare; None: all.
    """
    topics, wanted = config.topics, asked_for or (lambda _: True)
    archive = archive_of(config.storage)
    archived = {topic.topic: topic for topic in archived_topics}
    owner = read_cluster(archive)
    async with KafkaClient(kafka) as client:
        cluster_id = await client.cluster_id()
        if owner not in {None, cluster_id}:
            other = f"kafka.bootstrap.servers leads to cluster {cluster_id}, and this archive belongs to {owner}; nothing was compared"
            return ComparePlan(tasks=(), problems=[other], notes=(), errors=())
        seen = await find_cluster_topics(client, topics, archived.keys())
        there = {name: seen.found[name] for name in sorted(archived.keys() & seen.found.keys())}
        partitions = [(name, number) for name, one in there.items() for number in one.partitions]
        offsets, refused = await client.offsets_each(partitions)
        planner = _Planner(config, kafka, offsets)
        await planner.read_commits(client)
    concerned = archived.keys() | set(topics.select(filter(wanted, seen.refused)))
    denied = {name: error for name, error in seen.refused.items() if name in concerned}
    gone = sorted(archived.keys() - seen.found.keys() - denied.keys())
    lost = [name for name in topics.select(gone) if not _is_accepted_gone(archive, name)]
    if_meant = "is archived, and Kafka no longer has it; if it may be gone: archiver topics --accept-gone"
    planner.problems += [f"{name}: {if_meant} {name}" for name in sorted(lost)]
    nobodys = [name for name in topics.select(filter(wanted, seen.found)) if name not in archived]
    planner.problems += [f"{name}: is included, but no backup archives it" for name in nobodys]
    planner.notes += _unmatched(config, seen, archived, asked_for)
    planner.notes += [f"{name}: is not in the cluster any more" for name in gone if name not in lost]
    late = planner.begun_late(archive)
    for name, described in there.items():
        if _is_same(archived[name], described):
            planner.plan_topic(archived[name], described, begun_late=late is None or name in late)
        else:
            planner.note_recreated(archive, described)
    errors = [Findings(error=str(error), exit_code=error.exit_code) for error in (*denied.values(), *refused.values())]
    return ComparePlan(tasks=planner.tasks, problems=planner.problems, notes=planner.notes, errors=errors)


def _is_accepted_gone(archive: Archive, topic: str) -> bool:
    try:
        fact = read_topic(archive, topic)
    except NotWholeError:
        return False
    return fact is not None and fact.is_accepted_gone


def _unmatched(
    config: ArchiverConfig,
    seen: ClusterTopics,
    archived: Mapping[str, ArchivedTopic],
    asked_for: Callable[[str], bool] | None,
) -> Iterator[str]:
    """Yield a note for each entry of `topics.include` without a match: it may be meant for topics that are yet to come."""
    topics = config.topics
    unmatched = topics.unmatched([*seen.found, *seen.refused, *archived])
    if asked_for is not None:  # a pattern may match unwanted topics
        unmatched = [number for number in unmatched if is_topic_name(topics.include[number])]
        unmatched = [number for number in unmatched if asked_for(topics.include[number])]
    return explain_unmatched(topics, unmatched, config.place_of_include)


class _Planner:
    """Plans the partitions of topics that archive and cluster have; collects what is wrong with them, and what is to be told."""

    def __init__(
        self, config: ArchiverConfig, kafka: KafkaSettings, offsets: Mapping[TopicPartition, PartitionOffsets]
    ) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.tasks: list[CompareTask] = []
        self._config = config
        self._kafka = kafka
        self._offsets = offsets
        self._group = group_of(config)
        self._hints: Mapping[TopicPartition, Hint] = {}  # the group's commits that name an object of this archive

    async def read_commits(self, client: KafkaClient) -> None:
        mark = archive_mark(self._config.storage)
        try:
            positions = await positions_of(client, self._group)
        except (KafkaError, KafkaTemporaryError) as error:
            self.notes.append(f"{error}; so the ends of the archive are not held against what the backup has committed")
            return
        hints = {which: hint_of(*which, found.offset, found.metadata) for which, found in positions.items()}
        self._hints = {which: hint for which, hint in hints.items() if hint.base is not None and hint.archive == mark}

    def begun_late(self, archive: Archive) -> Collection[str] | None:
        """Return the topics with a late start by configuration; None if unreadable."""
        try:
            fact = only_fact(archive, PRESENT)
            return () if fact is None else as_object(fact.get("topics"))
        except (NotWholeError, ValueError) as error:
            self.problems.append(f"control/{PRESENT}: {error}")
            return None

    def note_recreated(self, archive: Archive, described: TopicDescription) -> None:
        """Note that a topic was created again, and whether a backup has met the new topic."""
        newest = read_topic(archive, described.name)
        if newest is None or newest.current.topic_id != described.topic_id:
            self.problems.append(f"{described.name}: was created again, and no backup archives the new one")
        else:
            self.notes.append(f"{described.name}: was created again, and nothing of the new one is archived yet")

    def plan_topic(self, topic: ArchivedTopic, described: TopicDescription, *, begun_late: bool) -> None:
        """Plan the partitions of a topic with known offsets; note their missing ends."""
        name = topic.topic
        for number in described.partitions:
            at = self._offsets.get((name, number))
            if at is None:
                continue
            # The group's commits are about `topics/`.
            hint = None if _is_copy(topic, number) else self._hints.get((name, number))
            lost = "" if hint is None else _lost_end(topic, hint, self._group)
            self.problems += [lost] if lost else []
            self._plan_partition(topic, described.topic_id, number, at, begun_late=begun_late)
            known_end = max(_reach_of(topic, number), at.log_start, 0 if hint is None else hint.offset)
            if at.last_stable > known_end:
                missing = spell_count(at.last_stable - known_end, "offset is", "offsets are")
                what = "in that copy" if _is_copy(topic, number) else "archived yet"
                self.notes.append(f"{name}-{number}: {missing} not {what}")

    def _plan_partition(
        self, topic: ArchivedTopic, topic_id: str, number: int, offsets: PartitionOffsets, *, begun_late: bool
    ) -> None:
        readings = topic.partitions.get(number, EMPTY_PARTITION).readable
        start = max(offsets.log_start, first_compared(readings, begun_late=begun_late))
        end = min(_reach_of(topic, number), offsets.last_stable)
        if start >= end:
            return
        log = LogRange(topic=topic.topic, topic_id=topic_id, partition=number, start=start, end=end)
        copy = topic.copies[number].stretches[0].copy_of(topic.topic, number) if _is_copy(topic, number) else None
        task = CompareTask(
            storage=self._config.storage,
            kafka=self._kafka,
            log=log,
            readings=readings,
            swept=_taken_early(topic, number),
            copy=copy,
        )
        self.tasks.append(task)


def _lost_end(topic: ArchivedTopic, hint: Hint, group: str) -> str:
    """Return a problem if the newest object committed by the group is missing, with all later ones: no listing shows that."""
    end = _end_of(topic, hint.partition)
    if hint.base is None or end > hint.base or _is_cut_below(topic, hint):
        return ""
    return (
        f"{topic.topic}-{hint.partition}: group {group} has committed that an object from offset {hint.base} on was put,"
        f" and the archive ends at {end}: its last objects are gone; bring them back from the bucket's versions"
        " (or the group backs up to another storage.url)"
    )


def _is_cut_below(topic: ArchivedTopic, hint: Hint) -> bool:
    """Return whether the log was truncated below the commit: then the committed object belongs to the parent life."""
    if topic.fact is None or hint.base is None:
        return False
    branch = topic.fact.life_of_partition(topic.fact.current.topic_id, hint.partition).branches.get(hint.partition)
    return branch is not None and branch.offset <= hint.base


def _end_of(topic: ArchivedTopic, number: int) -> int:
    readings = topic.partitions.get(number, EMPTY_PARTITION).readable
    return readings[-1].next if readings else 0


def _is_copy(topic: ArchivedTopic, number: int) -> bool:
    return number in topic.copies and topic.copies[number].is_copy


def _reach_of(topic: ArchivedTopic, number: int) -> int:
    """Return the end of the archived offsets of a partition. A copy was read beyond its last object."""
    end = _end_of(topic, number)
    return max(end, topic.copies[number].reach) if _is_copy(topic, number) else end


def _is_same(topic: ArchivedTopic, described: TopicDescription) -> bool:
    """Return whether the archived topic is the cluster's present one; also True without ids (old brokers)."""
    known = "" if topic.fact is None else topic.fact.current.topic_id
    return not known or not described.topic_id or known == described.topic_id


def _taken_early(topic: ArchivedTopic, number: int) -> Sequence[tuple[int, int]]:
    """Return swept ranges of the offsets topic: compaction in Kafka keeps some of these records forever. Folds have them."""
    if topic.topic != OFFSETS_TOPIC:
        return ()
    swept = topic.partitions.get(number, EMPTY_PARTITION).swept
    return [(gap.first_offset, gap.last_offset + 1) for gap in swept]


def first_compared(readings: Sequence[SegmentSlice], *, begun_late: bool) -> int:
    """Return the start of the comparison: the noted late start. No other hole explains missing records that Kafka still has."""
    if not readings:
        return 0
    facts = readings[0].segment.facts
    if isinstance(facts, Bounds):
        return facts.base  # everything below is unknown
    late = (hole for hole in facts.holes if hole.first_offset == facts.base and hole.cause is HoleCause.BEFORE_START)
    return next((hole.last_offset + 1 for hole in late), 0) if begun_late else 0


def _readable(log: LogRange, readings: Sequence[SegmentSlice], swept: Sequence[tuple[int, int]]) -> Iterator[LogRange]:
    """Yield the parts of a range without swept ranges, and without holes, which the backup noted for unreadable records."""
    left_out = OffsetRanges.of([*unreadable_within(readings, log.start, log.end), *swept])
    for first, after in left_out.outside(log.start, log.end):
        if first < after:
            yield replace(log, start=first, end=after)


def run_compare(task: CompareTask) -> Findings:
    """Compare one partition. An error is returned in the findings, so that other partitions continue."""
    try:
        return asyncio.run(_compare(task))
    except ArchiverError as error:
        return Findings(error=str(error), exit_code=error.exit_code)


async def _compare(task: CompareTask) -> Findings:
    store = patient_store_of(task.storage)
    log = task.log
    async with KafkaClient(task.kafka) as client:
        for _ in range(_ATTEMPTS):
            keys = KeyComparison() if task.copy is not None and not _has_unreadable(task.readings, log) else None
            comparison = PartitionComparison(
                store, log.topic, log.partition, task.readings, start=log.start, end=log.end, keys=keys
            )
            try:
                for stretch in _readable(log, task.readings, task.swept):
                    await read_log(client, stretch, comparison.take)
                await asyncio.to_thread(comparison.finish)
                lost = None if keys is None else await _find_lost_keys(client, log, keys)
            except LogStartError:  # retention deleted records meanwhile; they are not compared
                offsets = (await client.offsets([(log.topic, log.partition)]))[log.topic, log.partition]
                log = replace(log, start=max(log.start, offsets.log_start))
                continue
            if lost is None:
                return Findings(examined=comparison.records, problems=tuple(comparison.problems))
            problems = (*comparison.problems, _spell_lost(task, lost))
            return Findings(examined=comparison.records, problems=problems, outdated=task.copy)
    raise KafkaTemporaryError(
        f"{log.topic}-{log.partition}: the brokers delete faster than it can be read; run the same command again"
    )


async def _find_lost_keys(client: KafkaClient, log: LogRange, keys: KeyComparison) -> LostKeys | None:
    """Find the keys that Kafka no longer has. A record's successor may be new: so the log is read to its end, repeatedly."""
    position = log.end
    for _ in range(_ATTEMPTS):
        lost = await asyncio.to_thread(keys.lost)
        end = (await client.offsets([(log.topic, log.partition)]))[log.topic, log.partition].last_stable
        if lost is None or end <= position:
            return lost
        await read_log(client, replace(log, start=position, end=end), keys.take)
        position = end
    return await asyncio.to_thread(keys.lost)


def _has_unreadable(readings: Sequence[SegmentSlice], log: LogRange) -> bool:
    """Return whether Kafka has unreadable batches: they may contain the successor of a record."""
    return any(True for _ in unreadable_within(readings, log.start, log.end))


def _spell_lost(task: CompareTask, lost: LostKeys) -> str:
    copy, keys = task.copy, spell_count(lost.keys, "key", "keys")
    whose = "" if copy is None else f", generation {copy.instance}/{copy.generation},"
    return (
        f"{task.log.topic}-{task.log.partition}: the copy that is read{whose} has values of {keys} that Kafka no longer has, the"
        f" first at offset {lost.first_offset}: they were deleted, and the copy missed that, as when delete.retention.ms is lowered"
        " for a time"
    )
