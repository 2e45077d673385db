"""What of a live topic the archive does not have: records that are gone for good when the topic is deleted."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from archiver.branch import end_of_epoch
from archiver.browse import join_lives
from archiver.control import TopicFact, read_topic
from archiver.facts import SegmentFacts
from archiver.inventory import EMPTY, PartitionInventory, read_inventory
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets
from archiver.layout import Layout
from archiver.segments import blocks_of
from archiver.store import ObjectStore

_QUESTIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """What the archive has of a topic that some cluster has now, partition by partition: of its life, and those it goes on from."""

    topic: str
    partitions: Mapping[int, PartitionInventory]

    async def count_unarchived(self, client: KafkaClient, offsets: Mapping[int, PartitionOffsets]) -> int:
        """Count the offsets of the topic, partitions that the archive does not know among them, that are in no object.

        Not each of them need be a record: markers of transactions have offsets, too, and what was compacted away had.
        """
        turn = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

        async def count(number: int, one: PartitionOffsets) -> int:
            async with turn:
                return await self._count(client, number, one)

        return sum(await asyncio.gather(*(count(number, one) for number, one in offsets.items())))

    async def _count(self, client: KafkaClient, number: int, offsets: PartitionOffsets) -> int:
        archived = self.partitions.get(number, EMPTY)
        start, end = offsets.log_start, offsets.high_watermark
        if start >= end:
            return 0
        agreed = min(end, await self._agreed_end(client, number, archived, start))
        return end - start - sum(block.covered(start, agreed) for block in blocks_of(archived.readable))

    async def _agreed_end(self, client: KafkaClient, number: int, archived: PartitionInventory, log_start: int) -> int:
        """Return up to where archive and log can be of the same records: behind a cut, the log has got others since."""
        if not archived.readable:
            return 0
        last = archived.readable[-1]
        facts = last.segment.facts
        if last.next <= log_start or not isinstance(facts, SegmentFacts) or facts.leader_epoch < 0:
            return last.next
        answer = await end_of_epoch(client, self.topic, number, facts.leader_epoch)
        return min(last.next, answer.end_offset)  # -1: the log has no such epoch


class ArchivedLogs:
    """Of topics that a cluster has: which of them are in the archive, by their topic ids. Each is looked up once."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._found: dict[tuple[str, str], ArchivedLog | None] = {}

    def find(self, topics: Mapping[str, str]) -> dict[str, ArchivedLog]:
        """Return what the archive has of these very topics, given as {topic: topic id}; the others are not in it."""
        unknown = {which: self._life_of(*which) for which in topics.items() if which not in self._found}
        lives = {which: life for which, life in unknown.items() if life is not None}
        self._found |= dict.fromkeys(unknown)
        if lives:
            names = {topic for topic, _ in lives}
            inventory = read_inventory(self._store, self._layout, names.__contains__)
            for which, (fact, life) in lives.items():
                partitions, _ = join_lives(inventory, which[0], life, fact)
                self._found[which] = ArchivedLog(which[0], partitions)
        found = {topic: self._found[topic, topic_id] for topic, topic_id in topics.items()}
        return {topic: log for topic, log in found.items() if log is not None}

    def _life_of(self, topic: str, topic_id: str) -> tuple[TopicFact, int] | None:
        """Return the newest life of a topic with this id; without an id nobody knows."""
        fact = read_topic(self._store, self._layout, topic) if topic_id else None
        lives = [one.life for one in fact.lives if one.topic_id == topic_id] if fact is not None else []
        return (fact, lives[-1]) if fact is not None and lives else None
