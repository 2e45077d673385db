"""Counts unarchived records of live topics that are archived themselves: a purge would lose these. Used by its checks."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from archiver.archive.copies.copied_topic import BY_ROLES, CopiedTopic, find_copied_topics
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import EMPTY_PARTITION, Inventory, PartitionInventory, read_inventory
from archiver.archive.notes.topics import TopicFact, read_topic
from archiver.archive.reading.catalog import join_lives
from archiver.archive.segments.partition_segments import blocks_of
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.config.model import IndexUse
from archiver.errors import CorruptBatchError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets
from archiver.kafka.records.epochs import end_of_epoch
from archiver.kafka.records.log_reader import LogRange, first_record_offset

_QUESTIONS_AT_ONCE = 16
_MOST_READ = 64  # ranges of a partition that are searched for records: with more, their offsets are reported


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """The archived objects of a live topic, by partition: of its life, and of the lives that it continues."""

    topic: str
    topic_id: str
    partitions: Mapping[int, PartitionInventory]

    async def count_unarchived(self, client: KafkaClient, offsets: Mapping[int, PartitionOffsets]) -> int:
        """Count the topic's offsets that are in no object, also in partitions that the archive does not have.

        Not every one of these offsets is a record. Ranges without a record, such as an aborted transaction at the end, do not
        count.
        """
        turn = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

        async def count(number: int, one: PartitionOffsets) -> int:
            async with turn:
                return await self._count(client, number, one)

        return sum(await asyncio.gather(*(count(number, one) for number, one in offsets.items())))

    async def _count(self, client: KafkaClient, number: int, offsets: PartitionOffsets) -> int:
        archived = self.partitions.get(number, EMPTY_PARTITION)
        start, end = offsets.log_start, offsets.high_watermark
        if start >= end:
            return 0
        agreed = min(end, await self._agreed_end(client, number, archived, start))
        ranges = list(_uncovered(archived, start, agreed, end))
        if len(ranges) <= _MOST_READ:
            ranges = [one for one in ranges if await self._may_hold(client, number, one, offsets.last_stable)]
        return sum(after - first for first, after in ranges)

    async def _may_hold(self, client: KafkaClient, number: int, where: tuple[int, int], last_stable: int) -> bool:
        """Return whether a range may have a record: the end of an open transaction, and a corrupt batch, are unknown."""
        first, after = where
        if after > last_stable:
            return True
        wanted = LogRange(topic=self.topic, topic_id=self.topic_id, partition=number, start=first, end=after)
        try:
            return await first_record_offset(client, wanted) is not None
        except CorruptBatchError:
            return True

    async def _agreed_end(self, client: KafkaClient, number: int, archived: PartitionInventory, log_start: int) -> int:
        """Return the offset up to which archive and log can have the same records: a log that was cut back has others since."""
        if not archived.readable:
            return 0
        last = archived.readable[-1]
        facts = last.segment.facts
        if last.next <= log_start or not isinstance(facts, SegmentFacts) or facts.leader_epoch < 0:
            return last.next
        answer = await end_of_epoch(client, self.topic, number, facts.leader_epoch)
        return min(last.next, answer.end_offset)  # -1: the log has no such epoch


def _uncovered(archived: PartitionInventory, start: int, agreed: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the ranges that no object has. From `agreed` on, log and archive differ, so that range counts whole."""
    position = max(start, agreed)
    for block in reversed(blocks_of(archived.readable)):
        first = min(max(start, int(block.from_offset[0])), position)
        yield from block.uncovered(first, position)
        position = first
    yield from ((start, position),) if start < position else ()
    yield from ((max(start, agreed), end),) if max(start, agreed) < end else ()


class ArchivedLogs:
    """Finds the topics of a cluster that are in the archive, by their topic ids. Each topic is looked up once."""

    def __init__(self, archive: Archive, cluster_id: str) -> None:
        self._archive = archive
        self._cluster_id = cluster_id
        self._found: dict[tuple[str, str], ArchivedLog | None] = {}
        self._unknown: set[tuple[str, str]] = set()

    def find(self, topics: Mapping[str, str]) -> tuple[dict[str, ArchivedLog], list[str]]:
        """Return the archived ones of these topics, given as {topic: topic id}, and those that may be archived."""
        new = {which for which in topics.items() if which not in self._found}
        facts = {topic: read_topic(self._archive, topic) for topic, _ in new}
        lives = {which: _life_of(facts[which[0]], which[1]) for which in new}
        self._found |= dict.fromkeys(new)
        self._unknown |= {(topic, of) for topic, of in new if self._may_be_nameless(facts[topic], of)}
        read = {topic for topic, of in new if lives[topic, of] is not None or facts[topic] is None}
        if read:
            # Topics are deleted because of this, so each object's facts are read; the index is not trusted.
            inventory = read_inventory(self._archive, read.__contains__, use=IndexUse.IGNORE)
            copied = {one.topic: one for one in find_copied_topics(self._archive, inventory, read.__contains__)[0]}
            self._unknown |= {which for which in new if facts[which[0]] is None and self._has(inventory, which[0])}
            for (topic, topic_id), found in lives.items():
                if found is not None:
                    self._found[topic, topic_id] = ArchivedLog(
                        topic, topic_id, _partitions(copied.get(topic), inventory, topic, *found)
                    )
        logs = {topic: log for topic, topic_id in topics.items() if (log := self._found[topic, topic_id]) is not None}
        return logs, [topic for topic, topic_id in topics.items() if (topic, topic_id) in self._unknown]

    def _may_be_nameless(self, fact: TopicFact | None, topic_id: str) -> bool:
        """Return whether a topic may be one that was archived when its cluster gave topics no ids."""
        if fact is None or fact.current.topic_id or any(life.topic_id == topic_id for life in fact.lives if topic_id):
            return False
        return fact.cluster_id in {"", self._cluster_id}

    def _has(self, inventory: Inventory, topic: str) -> bool:
        """Return whether objects without a control fact may be of a topic: none of them names another cluster."""
        lives = inventory.lives().get(topic, set())
        if any(inventory.damage_of(topic, life) for life in lives):
            return True
        found = [
            block.segments
            for life in lives
            for partition in inventory.partitions.get((topic, life), {}).values()
            for block in blocks_of(partition.readable)
        ]
        clusters = {cluster_id for segments in found for _, cluster_id in segments.origins()}
        return bool(clusters & {"", self._cluster_id}) or not all(segments.has_facts.all() for segments in found)


def _partitions(
    copied: CopiedTopic | None, inventory: Inventory, topic: str, fact: TopicFact, life: int
) -> Mapping[int, PartitionInventory]:
    if copied is not None:
        return copied.read(life, BY_ROLES).partitions
    return join_lives(inventory, topic, life, fact)[0]


def _life_of(fact: TopicFact | None, topic_id: str) -> tuple[TopicFact, int] | None:
    """Return the newest life of a topic with this id; without an id it is unknown."""
    lives = [one.life for one in fact.lives if one.topic_id == topic_id] if fact is not None and topic_id else []
    return (fact, lives[-1]) if fact is not None and lives else None
