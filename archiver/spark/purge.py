"""What stands in the way of a purge: a topic is deleted only when the archive can give back what is to be in its place."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import PartitionOffsets, TopicDescription
from archiver.restore import TopicPlan
from archiver.restore_request import RestoreRequest
from archiver.spelling import spell_count
from archiver.unarchived import ArchivedLogs

Offsets = Mapping[str, Mapping[int, PartitionOffsets]]  # topic -> partition


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that cannot be read whole, and what was to come of it."""

    target: str
    partition: int
    message: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Topics that go first, all of them together."""

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    archived: Collection[str] = ()  # those of them that are themselves what was archived


def purge_problems(
    topic: TopicPlan, described: TopicDescription, offsets: Mapping[int, PartitionOffsets], request: RestoreRequest
) -> Iterator[str]:
    """Tell why a topic is not purged, by what is known without reading the archive."""
    name = topic.target
    has_records = any(one.high_watermark > one.log_start for one in offsets.values())
    damaged = [one for one in topic.partitions if one.problem]
    if described.is_internal:
        yield f"target topic {name} is Kafka's own, and is not purged"
    if not described.topic_id:
        yield f"target topic {name} has no topic id, and is not purged; delete it, and restore again"
    if damaged:
        yield (
            f"target topic {name} is not purged: the archive cannot replace it, {damaged[0].problem}; mend"
            " that, or take what can be read with --skip-damaged"
        )
    elif not topic.records and request.is_partial:
        yield (
            f"target topic {name} is not purged: nothing of what the archive has of {topic.source} is asked for"
            " (partitions, offsets, times, --where), and nothing would be in its place"
        )
    elif not topic.records and has_records:
        yield (
            f"target topic {name} is not purged: it has records, the archive has none of {topic.source}, and nothing"
            " would be in its place; leave the topic out with --topics, or delete it yourself"
        )


async def unarchived_problems(client: KafkaClient, logs: ArchivedLogs, purge: Purge, offsets: Offsets) -> list[str]:
    """Tell what would be lost of topics that are themselves in the archive, but not all of them. No option changes that."""
    found = logs.find({name: purge.topic_ids[name] for name in purge.archived})
    counts = {name: await log.count_unarchived(client, offsets[name]) for name, log in sorted(found.items())}
    return [
        f"target topic {name} is not purged: it is itself the topic that was archived, and up to"
        f" {spell_count(count, 'record')} of it {'is' if count == 1 else 'are'} not in the archive; stop its producers, run"
        " `archiver backup --until-end`, and restore again, or restore under another name with --rename"
        f" {name}=NEW"
        for name, count in counts.items()
        if count
    ]


def unread_problems(unread: Iterable[str]) -> list[str]:
    """Tell of topics that came when nothing had been read for their sake."""
    return [
        f"target topic {name} is not purged: it was not there when the targets were looked at; run the same command again"
        for name in sorted(unread)
    ]


def damage_problems(
    topics: Sequence[TopicPlan], damage: Sequence[Damage], purge: Purge, *, skips_damage: bool
) -> list[str]:
    """Tell which topics the archive cannot replace, as it was read. What --skip-damaged leaves out must not be on the target alone."""
    return [problem for topic in topics if (problem := _damage_problem(topic, damage, purge, skips_damage))]


def _damage_problem(topic: TopicPlan, damage: Sequence[Damage], purge: Purge, skips_damage: bool) -> str:
    mine = [one for one in damage if one.target == topic.target]
    if not mine:
        return ""
    refused = f"target topic {topic.target} is not purged: "
    also = f", and {spell_count(len(mine) - 1, 'more object')}" if len(mine) > 1 else ""
    named = f"{mine[0].message}{also}"
    if not skips_damage:
        return (
            f"{refused}the archive cannot replace it, {named}; mend that, or take what can be read with --skip-damaged"
        )
    if topic.target in purge.archived:
        return (
            f"{refused}it is itself the topic that was archived, and may have the only whole copy of what is damaged,"
            f" {named}; mend that, or restore under another name with --rename {topic.source}=NEW"
        )
    if len(mine) == sum(len(one.parts) for one in topic.partitions):
        return f"{refused}nothing would be in its place, {named}; mend that"
    return ""
