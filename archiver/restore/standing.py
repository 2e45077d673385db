"""Whether what earlier runs have noted of a target still stands there."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets
from archiver.kafka.epochs import end_of_epoch
from archiver.kafka.log_reader import LogRange, batch_at, producer_at
from archiver.restore.claims import PartitionClaim, TopicClaim


def cut_short(
    claims: Mapping[int, PartitionClaim], joint: TopicClaim | None, ends: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Return the partitions that end before they ended when they were read back: where they do, and where they did."""
    verified = {number: one.verified_end for number, one in claims.items()} if joint is None else joint.verified_ends
    return {number: (ends.get(number, 0), end) for number, end in verified.items() if ends.get(number, 0) < end}


async def still_stands(
    client: KafkaClient, verified: LogRange, log_start: int, producer_ids: Collection[int], leader_epoch: int
) -> bool:
    """Tell whether a range is what was read back, by its last record: a log is cut at its end, and can have grown again.

    `leader_epoch` is the record's, -1 when nobody noted it. False: it cannot be told without reading all of it.
    """
    if verified.end <= max(verified.start, log_start):  # there is nothing, or nothing any more
        return True
    last = replace(verified, start=verified.end - 1)
    found = await batch_at(client, last)
    if found is not None and found.base_offset <= last.start:
        return found.producer_id in producer_ids
    # Compaction took it. The epoch says less: leaders before 4.0 that are killed may lead on in the same one.
    epoch = await end_of_epoch(client, last.topic, last.partition, leader_epoch) if leader_epoch >= 0 else None
    return epoch is not None and epoch.leader_epoch == leader_epoch and epoch.end_offset >= last.end


def lost_problems(short: Mapping[str, Mapping[int, tuple[int, int]]], finished: Collection[str]) -> list[str]:
    """Leave a topic alone that lives again, and of which the brokers have lost something: it is not for us to fill up."""
    return [
        f"target topic {name} was restored and finished, with partition {number} up to offset {end}, and ends at {now}"
        " now: the brokers have lost records since; restore under another name with --rename and another --id, or delete"
        " the topic and restore again"
        for name in sorted(short.keys() & finished)
        for number, (now, end) in list(short[name].items())[:1]
    ]


class Writers(NamedTuple):
    """Who writes a partition for a restore, from where on."""

    start_offset: int
    producer_ids: frozenset[int]


async def stranger_problems(
    client: KafkaClient,
    topics: Iterable[str],
    claims: Mapping[str, Mapping[int, PartitionClaim]],
    topic_claims: Mapping[str, TopicClaim],
    offsets: Mapping[str, Mapping[int, PartitionOffsets]],
) -> list[str]:
    """Tell of which topics the first records that should be a restore's are somebody else's. What has expired tells nothing.

    Without topic ids, a topic of the name may be another one than an earlier run has begun to fill.
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


def _writers_of(claims: Mapping[int, PartitionClaim], joint: TopicClaim | None) -> dict[int, Writers]:
    """Return by partition who has claimed it."""
    if joint is None:
        return {
            number: Writers(claim.start_offset, frozenset({claim.identity.producer_id}))
            for number, claim in claims.items()
        }
    ids = frozenset(one.producer_id for one in joint.identities.values())
    return {number: Writers(start_offset, ids) for number, start_offset in enumerate(joint.start_offsets)}


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
