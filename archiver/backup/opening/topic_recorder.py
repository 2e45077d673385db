"""Records topics in the archive when they change in the cluster, and checks that a topic is still the archived one."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import EFFECTIVE, TOMBSTONES_KEPT, PartitionSource, SeenTopicId, TopicFact
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.errors import ArchiverError, LostTopicIdError, StrangerError, TopicGoneError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicDescription
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.topics.configs import TopicConfigs, topic_configs_each
from archiver.process.running.failpoints import reach
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LearnedConfigs:
    """Configs of topics, and the refusals for unreadable ones."""

    found: Mapping[str, TopicConfigs]
    refused: Mapping[str, Refusal]

    def own(self, topic: str) -> Mapping[str, str] | None:
        """Return the configs set on the topic itself; None if unknown.

        The retention of removals in `__consumer_offsets` decides which positions are known later: it is noted whatever its source.
        """
        if topic not in self.found:
            return None
        found = self.found[topic]
        kept = (
            {TOMBSTONES_KEPT: found.effective[TOMBSTONES_KEPT]}
            if TOMBSTONES_KEPT in found.effective and topic == OFFSETS_TOPIC
            else {}
        )
        return {**kept, **found.own}

    def effective(self, topic: str) -> Mapping[str, str] | None:
        """Return the effective configs for the topic's fact; None if unknown."""
        found = self.found[topic].effective if topic in self.found else {}
        return {name: found[name] for name in EFFECTIVE if name in found} or None

    def of(self, topic: str) -> "_Noted":
        return _Noted(self.own(topic), self.effective(topic))


class _Noted(NamedTuple):
    """Configs of one topic, as in its fact; None: unknown."""

    own: Mapping[str, str] | None = None
    effective: Mapping[str, str] | None = None


class TopicRecorder:
    """Notes changes of topics, and checks that a topic is still the one whose life is continued."""

    def __init__(
        self,
        client: KafkaClient,
        *,
        sink: SegmentSink,
        pool: Workers,
        cluster_id: str,
        clock_ms: Callable[[], int] = machine_now_ms,
    ) -> None:
        self._client = client
        self._sink = sink
        self._pool = pool
        self._cluster_id = cluster_id
        self._clock_ms = clock_ms
        self._shapes: dict[str, object] = {}  # by topic, at its recording
        self._sights: dict[str, SeenTopicId] = {}  # by topic: the last recorded description
        self._recordings: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by topic

    async def learn_configs(self, topics: Iterable[TopicDescription]) -> LearnedConfigs:
        """Ask the brokers for the configs of topics, all at once."""
        return LearnedConfigs(*await topic_configs_each(self._client, [topic.name for topic in topics]))

    async def record(self, topic: TopicDescription, configs: LearnedConfigs) -> TopicFact:
        """Note changes of a topic. Raises StrangerError if the archive is another cluster's."""
        noted = configs.of(topic.name)
        if topic.name in configs.refused:
            log.warning("%s; the configs that the archive has of it stay as they are", configs.refused[topic.name])
        async with self._recordings[topic.name]:  # or a recreated topic would be reported twice
            begun_ms = self._clock_ms()
            fact = await self._pool.call(self._record_topic, topic, noted)
            self._report(topic, fact, begun_ms)
            if noted.own is not None:
                self._shapes[topic.name] = _shape(topic, noted)
            self._sights[topic.name] = SeenTopicId(topic.topic_id, self._clock_ms())
        reach("topic.recorded")
        return fact

    async def try_to_record(self, topic: TopicDescription, configs: LearnedConfigs) -> TopicFact | ArchiverError:
        """Record a topic as `record` does, but return an error that concerns only this topic."""
        try:
            return await self.record(topic, configs)
        except StrangerError:
            raise
        except ArchiverError as error:
            return error

    def has_changed(self, topic: TopicDescription, configs: LearnedConfigs) -> bool:
        """Return whether a topic differs from its last recording by this process. Does not read the archive."""
        sight = self._sights.get(topic.name)
        if sight is not None and sight.topic_id == topic.topic_id:
            self._sights[topic.name] = SeenTopicId(topic.topic_id, self._clock_ms())
        return self._shapes.get(topic.name) != _shape(topic, configs.of(topic.name))

    def _report(self, topic: TopicDescription, fact: TopicFact, begun_ms: int) -> None:
        """Log that a topic was recreated since its last recording by this process."""
        life, sight = fact.current, self._sights.get(topic.name)
        is_begun_now = life.life > 0 and life.parent is None and (life.seen_ms or 0) >= begun_ms
        if is_begun_now if sight is None else topic.topic_id != sight.topic_id:
            log.warning(
                "topic %s was created again: its records are not those that are archived. It goes on as life %d, and what is"
                " archived is kept",
                topic.name,
                life.life,
            )

    def _record_topic(self, topic: TopicDescription, noted: _Noted) -> TopicFact:
        return record_topic(
            self._sink.archive,
            topic=topic.name,
            topic_id=topic.topic_id,
            cluster_id=self._cluster_id,
            partitions=len(topic.partitions),
            configs=noted.own,
            effective=noted.effective,
            seen_ms=self._clock_ms(),
            earlier=self._sights.get(topic.name),
        )

    # --- recreated topics

    async def refuse_recreated(self, source: PartitionSource) -> None:
        """Raise TopicGoneError if the topic of this name is no longer the source's, LostTopicIdError if its id is missing."""
        found = (await self._client.describe_topics([source.topic])).get(source.topic)
        if found is not None and not found.topic_id:
            raise LostTopicIdError(source.topic)
        if found is None or found.topic_id != source.topic_id:
            raise TopicGoneError(
                f"{source}: the topic was deleted, or created again; what was held of it is dropped, what is archived is kept"
            )


def _shape(topic: TopicDescription, noted: _Noted) -> object:
    return topic.topic_id, topic.partitions, noted
