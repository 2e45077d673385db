"""Finds reasons not to purge a topic: it is deleted, by `targets`, only if the archive can replace it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription
from archiver.process.output.text import spell_count
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.purge.archived_logs import ArchivedLog

Offsets = Mapping[str, Mapping[int, PartitionOffsets]]  # topic -> partition


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that cannot be read whole, and the target partition that its records were for."""

    target: str
    partition: int
    message: str


@dataclass(frozen=True, slots=True)
class ArchiveReading:
    """The result of reading the objects that replace purged topics, and the archived objects of the purged topics."""

    damage: Sequence[Damage] = ()
    filled: Collection[str] = ()  # targets with at least one read record


@dataclass(frozen=True, slots=True)
class Purge:
    """Topics that are deleted first, all of them together."""

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)  # of those topics, when they were surveyed
    archived: Mapping[str, ArchivedLog] = field(default_factory=dict)  # their archived logs, if any
    replicas: Mapping[str, int] = field(default_factory=dict)  # of topics that keep their number


def purge_problems(
    topic: TopicPlan, described: TopicDescription, offsets: Mapping[int, PartitionOffsets], request: RestoreRequest
) -> Iterator[str]:
    """Return why a topic is not purged, as far as known without reading the archive."""
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


def choice_doubts(topic: TopicPlan, request: RestoreRequest) -> Iterator[str]:
    """Return the conditions of a purge that are checked only when records are chosen: a dry run does not choose."""
    if request.chooses(is_copied=topic.is_copied) and not topic.is_chosen and topic.records:
        yield (
            f"target topic {topic.target} is purged only if a record of {topic.source} is chosen; where none is, nothing would"
            " be in its place, and the restore is refused"
        )


async def unarchived_problems(client: KafkaClient, purge: Purge, offsets: Offsets) -> list[str]:
    """Return problems of archived topics with unarchived records: these would be lost. No option allows that."""
    counts = {name: await one.count_unarchived(client, offsets[name]) for name, one in sorted(purge.archived.items())}
    return [
        f"target topic {name} is not purged: it is itself the topic that was archived, and up to"
        f" {spell_count(count, 'record')} of it {'is' if count == 1 else 'are'} not in the archive; stop its producers, run"
        " `archiver backup --until-end`, and restore again, or restore under another name with --rename SOURCE=NEW"
        for name, count in counts.items()
        if count
    ]


def unknown_problems(names: Iterable[str]) -> list[str]:
    """Return problems of topics that may be archived, so that their unarchived records are unknown."""
    return [
        f"target topic {name} is not purged: the archive has a topic of this name without a topic id, and it may be this very"
        " one; run `archiver backup --until-end`, which finds that out, and restore again; or delete the topic yourself, or"
        " restore under another name with --rename SOURCE=NEW"
        for name in sorted(names)
    ]


def late_problem(name: str, *, is_successor: bool) -> str:
    """Return why a topic that was created after the restore began is not purged: no user can have meant it, and nothing was read for it."""
    if is_successor:
        return (
            f"target topic {name} is not purged: it stands in the place of one that this restore has deleted, and has records"
            " that are not of it; stop whoever writes to it, and delete it yourself, or restore with another --id"
        )
    return (
        f"target topic {name} is not purged: it was not there when the restore began; run the same command again if it is to"
        " be deleted, or restore under another name with --rename SOURCE=NEW"
    )


def grown_problems(before: Offsets, now: Offsets) -> list[str]:
    """Return problems of topics that are still written to: no user chose to delete the new records."""
    grown = {
        name: sum(
            max(
                0,
                one.high_watermark - (before[name][number].high_watermark if number in before[name] else one.log_start),
            )
            for number, one in partitions.items()  # a log that was truncated does not outweigh the growth of another one
        )
        for name, partitions in now.items()
        if name in before
    }
    return [
        f"target topic {name} is not purged: {spell_count(count, 'record')} came since it was looked at; stop its producers,"
        " and run the same command again"
        for name, count in sorted(grown.items())
        if count
    ]


def damage_problems(
    topics: Sequence[TopicPlan], reading: ArchiveReading, purge: Purge, *, skips_damage: bool
) -> list[str]:
    """Return the purged topics that the archive cannot replace. Objects left out by --skip-damaged may exist only on the target."""
    purged = (topic for topic in topics if topic.target in purge.topic_ids)
    return [problem for topic in purged if (problem := _damage_problem(topic, reading, purge, skips_damage))]


def _damage_problem(topic: TopicPlan, reading: ArchiveReading, purge: Purge, skips_damage: bool) -> str:
    refused = f"target topic {topic.target} is not purged: "
    mine = [one for one in reading.damage if one.target == topic.target]
    also = f", and {spell_count(len(mine) - 1, 'more object')}" if len(mine) > 1 else ""
    named = f"{mine[0].message}{also}" if mine else ""
    if mine and topic.target in purge.archived:
        return (
            f"{refused}it is itself the topic that was archived, and may have the only whole copy of what is damaged,"
            f" {named}; mend that, or restore under another name with --rename {topic.source}=NEW"
        )
    if mine and not skips_damage:
        return (
            f"{refused}the archive cannot replace it, {named}; mend that, or take what can be read with --skip-damaged"
        )
    if topic.records and topic.target not in reading.filled:
        why = f"{named}; mend that" if mine else "no record of the archive is among what is asked for"
        return f"{refused}nothing would be in its place, {why}"
    return ""
