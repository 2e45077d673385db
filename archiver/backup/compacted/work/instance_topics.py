"""Lists the topics that an instance copies (included, compacted, recorded in the archive), and reads their configs."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from archiver.archive.copies.history_doubts import tombstones_kept_ms
from archiver.archive.copies.role_logs import list_copied_topics
from archiver.archive.notes.cluster_topics import COORDINATION_TOPIC, find_cluster_topics, refuse_without_ids
from archiver.archive.notes.topics import (
    POLICY,
    TopicFact,
    is_compacted,
    list_known_topics,
    says_compact,
)
from archiver.backup.compacted.work.turn_inputs import Terms
from archiver.backup.opening.topic_recorder import LearnedConfigs, TopicRecorder
from archiver.backup.partition.feed import LASTING_FAILURE_S
from archiver.backup.reports.gone_topics import GoneTopics
from archiver.backup.service.request import BackupRequest
from archiver.errors import ArchiverError, LostTopicIdError, StrangerError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicDescription
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

RETENTION: Final = "retention.ms"
_NOTES_OF_TOPICS: Final = "notes of topics"
_LEFT_OUT: Final = frozenset({OFFSETS_TOPIC, COORDINATION_TOPIC})


@dataclass(slots=True, kw_only=True)
class InstanceTopics:
    """Topics of the last `refresh`. A topic that was compacted once stays until its history is current again."""

    request: BackupRequest
    client: KafkaClient
    recorder: TopicRecorder
    pool: Workers
    margin_ms: int | None  # compacted.margin
    gone: GoneTopics
    described: Mapping[str, TopicDescription] = field(default_factory=dict)
    facts: dict[str, TopicFact] = field(default_factory=dict)
    terms: dict[str, Terms] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # topics without copies, with the reported reason
    _without_since_s: dict[str, float] = field(default_factory=dict)  # topics with missing ids
    _has_failed: bool = False  # a topic could not be recorded in the last refresh

    async def refresh(self) -> None:
        """List the included topics, record changes, and take compacted ones. Raises StrangerError."""
        topics, archive = self.request.topics, self.request.sink.archive
        known = await self.pool.call(list_known_topics, archive)
        seen = await find_cluster_topics(self.client, topics, topics.select(known))
        seen = await self.pool.call(refuse_without_ids, archive, seen)
        await self.gone.look(topics.select(known), seen)
        names = set(topics.select(seen.found)) - _LEFT_OUT
        without = self._tell_refused({name: seen.refused[name] for name in topics.select(seen.refused)})
        configs = await self.recorder.learn_configs([seen.found[name] for name in names])
        copied = self.described.keys() | await self.pool.call(list_copied_topics, archive)
        # Whether a topic is the same is unknown without its id: its turns wait, and none begins.
        taken = {name: self.described[name] for name in without & self.described.keys()}
        self._has_failed = False
        for name in sorted(names):
            topic = await self._take(seen.found[name], configs, was_copied=name in copied)
            if topic is not None:
                taken[name] = topic
        if not self._has_failed:
            self.request.sink.troubles.note_works(_NOTES_OF_TOPICS)
        for name in sorted(taken.keys() ^ self.described.keys()):
            log.info("topic %s %s", name, "is taken by the instances" if name in taken else "is gone, or left out now")
        self.described = taken

    async def _take(
        self, topic: TopicDescription, configs: LearnedConfigs, *, was_copied: bool
    ) -> TopicDescription | None:
        """Return the description of a topic to copy, and note its configs. None: it is left out."""
        effective = configs.found[topic.name].effective if topic.name in configs.found else {}
        if not was_copied and not says_compact(effective.get(POLICY, "")):
            if POLICY not in effective and (refused := configs.refused.get(topic.name)) is not None:
                self._tell(topic.name, f"{refused}; no copies of it are made: it may not be compacted")
            return None
        fact = await self.recorder.try_to_record(topic, configs)
        if isinstance(fact, StrangerError):
            raise fact
        if isinstance(fact, ArchiverError):
            self.request.sink.troubles.note(fact, str(fact), _NOTES_OF_TOPICS, stops_puts=False)
            self._has_failed = True
            before = self.described.get(topic.name)
            return before if before is not None and before.topic_id == topic.topic_id else None
        self.facts[topic.name] = fact
        self.terms[topic.name] = self._terms_of(fact, effective)
        return topic

    def _terms_of(self, fact: TopicFact, effective: Mapping[str, str]) -> Terms:
        """Return the present terms. Unknown configs count as archived; a topic with copies counts as compacted."""
        known = effective if POLICY in effective else fact.effective or {}
        is_now = says_compact(known[POLICY]) if POLICY in known else is_compacted(fact) is not False
        retention_ms = _retention_ms(known.get(POLICY, ""), known)
        return Terms(is_compacted=is_now, kept_ms=self._kept_ms(known), retention_ms=retention_ms)

    def _tell_refused(self, refused: Mapping[str, Refusal]) -> set[str]:
        """Report why no copies of topics are made. Returns topics whose brokers report no id any more: reported when that lasts."""
        without = {name for name, error in refused.items() if isinstance(error, LostTopicIdError)}
        now_s = self.request.sink.clock()
        self._without_since_s = {name: self._without_since_s.get(name, now_s) for name in without}
        for name, error in refused.items():
            if now_s - self._without_since_s.get(name, -math.inf) >= LASTING_FAILURE_S:
                self._tell(name, f"{error}; no copies of it are made")
        return without

    def _tell(self, topic: str, why: str) -> None:
        if self.left_out.get(topic) != why:
            self.left_out[topic] = why
            log.warning("%s", why)

    def _kept_ms(self, effective: Mapping[str, str]) -> int:
        """Return the longest reading time: the retention of tombstones, less the margin."""
        kept_ms = tombstones_kept_ms(effective) or 0
        return max(0, kept_ms - (kept_ms // 10 if self.margin_ms is None else self.margin_ms))


def _retention_ms(policy: str, effective: Mapping[str, str]) -> int | None:
    """Return the retention of unreplaced records; None: unlimited, or unknown."""
    told = effective.get(RETENTION, "-1")
    return int(told) if "delete" in policy and told.isascii() and told.isdigit() else None
