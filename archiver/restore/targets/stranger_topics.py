"""Checks that a topic without an id is the target that an earlier run began to fill, by the producers of its first records."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets
from archiver.kafka.records.log_reader import LogRange, producer_at
from archiver.restore.plan.claims import PartitionClaim, TopicClaim


class _Writers(NamedTuple):
    """The producers of a partition for a restore, and its first offset."""

    start_offset: int
    producer_ids: frozenset[int]


async def stranger_problems(
    client: KafkaClient,
    topics: Iterable[str],
    claims: Mapping[str, Mapping[int, PartitionClaim]],
    topic_claims: Mapping[str, TopicClaim],
    offsets: Mapping[str, Mapping[int, PartitionOffsets]],
) -> list[str]:
    """Return the topics with foreign records where this restore's first ones should be. Expired records prove nothing.

    Without topic ids, a topic of that name may not be the one that an earlier run began to fill.
    """
    problems: list[str] = []
    for topic in topics:
        strange = [
            number
            for number, one in _writers_of(claims[topic], topic_claims.get(topic)).items()
            if number in offsets[topic]
            and offsets[topic][number].log_start <= one.start_offset < offsets[topic][number].high_watermark
            and await _writer_at(client, topic, number, one.start_offset) not in one.producer_ids
        ]
        problems += [_problem(topic, strange)] if strange else []
    return problems


def _writers_of(claims: Mapping[int, PartitionClaim], joint: TopicClaim | None) -> dict[int, _Writers]:
    """Return the possible producers of each partition for this restore, by its claims."""
    if joint is None:
        return {
            number: _Writers(claim.start_offset, frozenset({claim.identity.producer_id}))
            for number, claim in claims.items()
        }
    ids = frozenset(one.producer_id for one in joint.identities.values())
    return {number: _Writers(start_offset, ids) for number, start_offset in enumerate(joint.start_offsets)}


async def _writer_at(client: KafkaClient, topic: str, number: int, offset: int) -> int:
    where = LogRange(topic=topic, topic_id="", partition=number, start=offset, end=offset + 1)
    return await producer_at(client, where)


def _problem(topic: str, strange: Iterable[int]) -> str:
    numbers = ", ".join(map(str, strange))
    return (
        f"target topic {topic} has no topic id, and is not the one that this restore has begun to fill: the records in"
        f" partition {numbers} are somebody else's; delete the topic and restore again, or restore under another name with"
        " --rename and another --id"
    )
