"""Where partitions begin that have no archive yet, when a backup was told not to begin at their beginning."""

import time
from collections.abc import Callable
from typing import Final, Literal

from archiver.control import FORMAT, TOPICS, Fact, append_fact, latest_fact
from archiver.failpoints import reach
from archiver.kafka.client import KafkaClient
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.segment import PartitionSource
from archiver.workers import Workers
from archiver.writer import Archive

Start = Literal["earliest", "latest"] | int  # or milliseconds since the epoch
EARLIEST: Final = "earliest"
_PRESENT: Final = "present"  # the stream of one fact


class Starts:
    """Tells each partition's first offset, the same one for ever: it is written down before anything is fetched.

    A late start is for what is old. So the topics that are there when an archive is first told to begin late, and that it
    does not know, are written down too, once. All others, whoever sees them first, begin at their beginning.
    """

    def __init__(
        self,
        client: KafkaClient,
        archive: Archive,
        pool: Workers,
        start: Start,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = client
        self._archive = archive
        self._pool = pool
        self._start = start
        self._clock_ms = clock_ms
        self._present: Fact = {}

    async def note_present(self) -> None:
        """Write down which topics are there, if nobody did. Before any topic is settled."""
        if self._start == EARLIEST:
            return
        known = await self._pool.call(self._latest, _PRESENT)
        if known is None:
            known = await self._pool.call(self._settle, _PRESENT, await self._look())
        self._present = known["topics"]

    async def _look(self) -> Fact:
        described = await self._client.describe_topics(None)
        known = await self._pool.call(self._known_topics)
        topics = {
            name: {"topic_id": topic.topic_id, "partitions": len(topic.partitions)}
            for name, topic in sorted(described.items())
            if name not in known
        }
        return {"format": FORMAT, "at_ms": self._clock_ms(), "topics": topics}

    async def first_offset(self, source: PartitionSource) -> int:
        """Return where a partition begins that has no archive. Not for one in a child life."""
        if not self._is_late(source):
            return 0
        stream = f"starts/{source.topic}/{source.partition}"
        known = await self._pool.call(self._latest, stream)
        if known is None:
            noted = {"format": FORMAT, "topic_id": source.topic_id, "offset": await self._ask(source)}
            known = await self._pool.call(self._settle, stream, noted)
            reach("start.noted")
        return int(known["offset"])

    def _is_late(self, source: PartitionSource) -> bool:
        # Of groups that rest, the newest positions may be the oldest records of the topic of positions.
        if self._start == EARLIEST or source.topic == OFFSETS_TOPIC:
            return False
        present = self._present.get(source.topic)
        return (
            present is not None
            and present["topic_id"] == source.topic_id
            and source.partition < int(present["partitions"])
        )

    async def _ask(self, source: PartitionSource) -> int:
        which = source.topic, source.partition
        if isinstance(self._start, int):
            return await self._client.offset_at(*which, self._start)
        return (await self._client.offsets([which]))[which].last_stable

    def _known_topics(self) -> frozenset[str]:
        archive = self._archive
        return frozenset(archive.store.list_directories(archive.layout.control_prefix(TOPICS)))

    def _latest(self, stream: str) -> Fact | None:
        return latest_fact(self._archive.store, self._archive.layout, stream)

    def _settle(self, stream: str, wanted: Fact) -> Fact:
        """The first fact of a stream holds for ever."""
        archive = self._archive
        return (
            append_fact(archive.store, archive.layout, stream, lambda latest: wanted if latest is None else None)
            or wanted
        )
