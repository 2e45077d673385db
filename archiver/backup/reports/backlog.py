"""Measures the backlog of partitions that this instance cannot open: its size, and the age of its oldest record."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from archiver.codec.batch import first_timestamp_ms
from archiver.errors import KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.records.fetch import FetchTarget, fetch

_A_HEADER_BYTES = 1024
_AN_ANSWER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The offsets between the known end of a partition's archive and the end of its log."""

    position: int
    high_watermark: int
    oldest_ms: int | None = None  # None: nothing waits, or its timestamp cannot be read


async def find_backlogs(client: KafkaClient, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Backlog]:
    """Find the backlogs behind these positions, except of partitions whose leader does not answer."""
    described, _ = await client.describe_each({topic for topic, _ in positions})
    offsets, _ = await client.offsets_each([which for which in positions if which[0] in described])
    found: dict[TopicPartition, Backlog] = {}
    waiting: dict[int, list[FetchTarget]] = defaultdict(list)
    for which, ends in offsets.items():
        position = max(positions[which], ends.log_start)
        found[which] = Backlog(position=position, high_watermark=ends.high_watermark)
        leader = client.known_leader(*which)
        if position < ends.high_watermark and leader is not None:
            topic, partition = which
            target = FetchTarget(topic=topic, topic_id=described[topic].topic_id, partition=partition, offset=position)
            waiting[leader].append(target)
    for leader, targets in waiting.items():
        with suppress(KafkaTemporaryError):
            answers = await fetch(
                client,
                leader,
                targets,
                max_bytes=_AN_ANSWER_BYTES,
                partition_bytes=_A_HEADER_BYTES,
                max_wait_ms=0,
                min_bytes=0,
            )
            for answer in answers:
                which = answer.topic, answer.partition
                found[which] = replace(found[which], oldest_ms=first_timestamp_ms(answer.records))
    return found
