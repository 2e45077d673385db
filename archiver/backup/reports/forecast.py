"""Forecasts a backup (`backup --dry-run`): the records and bytes that Kafka has and the archive lacks, by topic. Changes nothing."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import CopyChoice
from archiver.archive.format.handle import open_archive
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.notes.cluster_topics import ArchivingState, survey_topics
from archiver.archive.notes.topics import another_cluster, read_cluster
from archiver.archive.reading.catalog import read_archive
from archiver.config.model import ArchiverConfig
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription, TopicPartition
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.log_dirs import LogSizes, log_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForecast:
    """Offsets of a topic that are not archived yet: at most so many records. `bytes`: about their size in Kafka."""

    topic: str
    partitions: int
    behind: int  # partitions with offsets to archive
    offsets: int
    bytes: int
    is_new: bool  # the archive has nothing of this topic


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupForecast:
    """The topics that a backup would archive. `errors`: refused topics and partitions."""

    topics: Sequence[TopicForecast]
    notes: Sequence[str]
    errors: Sequence[str]


def forecast_backup(config: ArchiverConfig, *, has_storage: bool) -> BackupForecast:
    """Compare the ends of the included topics with the archive's. Without a storage nothing is archived yet."""
    survey = survey_topics(config, has_storage=has_storage)
    if survey.unread is not None:
        raise survey.unread
    names = [one.topic for one in survey.rows if one.standing is ArchivingState.ARCHIVED]
    archive = open_archive(config.storage) if has_storage else None
    owner, archived = None, list[ArchivedTopic]()
    if archive is not None:
        owner, choice = read_cluster(archive), CopyChoice(is_history=True)
        archived = read_archive(archive, wanted=set(names).__contains__, choice=choice)
    known = {one.topic: one for one in archived}
    found = asyncio.run(_forecast(config, owner, names, known))
    unmatched = [one.unmatched for one in survey.unmatched]
    refused = [one.why for one in survey.rows if one.standing is ArchivingState.REFUSED]
    return BackupForecast(topics=found.topics, notes=[*unmatched, *found.notes], errors=[*refused, *found.errors])


async def _forecast(
    config: ArchiverConfig, owner: str | None, names: Collection[str], archived: Mapping[str, ArchivedTopic]
) -> BackupForecast:
    async with KafkaClient(KafkaSettings.of(config)) as client:
        cluster_id = await client.cluster_id()
        if owner not in {None, cluster_id}:
            raise another_cluster(config.storage.url, owner, cluster_id)
        topics = await client.describe_topics(names)
        places = [(name, number) for name, one in topics.items() for number in one.partitions]
        offsets, refused = await client.offsets_each(places)
        sizes = await log_sizes(client, topics)
    unknown = next((one.unknown for one in sizes.values() if one.unknown), "")
    return BackupForecast(
        topics=[_topic(config, one, archived.get(name), offsets, sizes[name]) for name, one in sorted(topics.items())],
        notes=[f"bytes are not all known, and those count as 0: {unknown}"] if unknown else [],
        errors=list(map(str, refused.values())),
    )


def _topic(
    config: ArchiverConfig,
    described: TopicDescription,
    archived: ArchivedTopic | None,
    offsets: Mapping[TopicPartition, PartitionOffsets],
    sizes: LogSizes,
) -> TopicForecast:
    """Forecast a topic. A topic that was created again is read from its beginning."""
    fact = None if archived is None else archived.fact
    is_new = archived is None or (fact is not None and fact.current.topic_id != described.topic_id)
    behind, missing, size = 0, 0, 0.0
    for number in described.partitions:
        at = offsets.get((described.name, number))
        if at is None:
            continue
        held = EMPTY_PARTITION if is_new or archived is None else archived.partitions.get(number, EMPTY_PARTITION)
        begin = at.high_watermark if is_new and config.backup.start == "latest" else at.log_start
        end = held.readable[-1].next if held.readable else begin
        if (left := at.last_stable - max(end, at.log_start)) > 0:
            behind, missing = behind + 1, missing + left
            size += sizes.bytes.get(number, 0) * left / (at.high_watermark - at.log_start)
    return TopicForecast(
        topic=described.name,
        partitions=len(described.partitions),
        behind=behind,
        offsets=missing,
        bytes=round(size),
        is_new=is_new,
    )
