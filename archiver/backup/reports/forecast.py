"""Forecasts a backup (`backup --dry-run`): topics, and how many records and bytes Kafka has that the archive has not. Changes nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import CopyChoice
from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.index.inventory import EMPTY_PARTITION
from archiver.archive.notes.cluster_topics import (
    ClusterTopics,
    explain_unmatched,
    find_cluster_topics,
    refuse_without_ids,
)
from archiver.archive.notes.topics import another_cluster, list_known_topics, read_cluster
from archiver.archive.reading.catalog import read_archive
from archiver.config.model import ArchiverConfig, PositionKeeping
from archiver.errors import ArchiverError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription, TopicPartition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.log_dirs import LogSizes, log_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForecast:
    """Offsets of a topic that are not archived yet: at most so many records. `bytes`: about their size in Kafka; None: unknown."""

    topic: str
    partitions: int
    behind: int  # partitions with offsets to archive
    offsets: int
    bytes: int | None
    is_new: bool  # the archive has nothing of this topic


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupForecast:
    """What a backup would archive; `notes`: what may make it less, or is odd; `errors`: refused topics and partitions."""

    topics: Sequence[TopicForecast]
    notes: Sequence[str]
    errors: Sequence[ArchiverError]


def forecast_backup(config: ArchiverConfig, *, has_storage: bool) -> BackupForecast:
    """Compare the ends of the included topics with the archive's. Without a storage nothing is archived yet."""
    archive = open_archive(config.storage) if has_storage else None
    return asyncio.run(_forecast(config, archive))


async def _forecast(config: ArchiverConfig, archive: Archive | None) -> BackupForecast:
    known = frozenset[str]() if archive is None else await asyncio.to_thread(list_known_topics, archive)
    async with KafkaClient(KafkaSettings.parse(config.kafka, config.place_of_kafka)) as client:
        cluster_id = await client.cluster_id()
        if archive is not None and (owner := read_cluster(archive)) not in {None, cluster_id}:
            raise another_cluster(config.storage.url, owner, cluster_id)
        seen = await find_cluster_topics(client, config.topics, config.topics.select(known))
        if archive is not None:
            seen = refuse_without_ids(archive, seen)
        wanted = {name: seen.found[name] for name in _names(config, seen)}
        offsets, refused = await client.offsets_each(
            [(name, number) for name, one in wanted.items() for number in one.partitions]
        )
        sizes = await log_sizes(client, wanted)
    archived = {} if archive is None else await asyncio.to_thread(_read, archive, wanted)
    unknown = next((one.unknown for one in sizes.values() if one.unknown), "")
    return BackupForecast(
        topics=[_topic(config, one, archived.get(name), offsets, sizes[name]) for name, one in wanted.items()],
        notes=[
            *explain_unmatched(config.topics, seen.unmatched(config.topics), config.place_of_include),
            *_notes(config),
            *([f"sizes are not all known: {unknown}"] if unknown else []),
        ],
        errors=[*(seen.refused[name] for name in config.topics.select(seen.refused)), *refused.values()],
    )


def _names(config: ArchiverConfig, seen: ClusterTopics) -> list[str]:
    names = set(config.topics.select(seen.found))
    if config.backup.groups in {PositionKeeping.AUTO, PositionKeeping.TOPIC} and OFFSETS_TOPIC in seen.found:
        names.add(OFFSETS_TOPIC)
    return sorted(names)


def _read(archive: Archive, wanted: Mapping[str, TopicDescription]) -> dict[str, ArchivedTopic]:
    found = read_archive(archive, wanted=wanted.__contains__, choice=CopyChoice(is_history=True))
    return {one.topic: one for one in found}


def _topic(
    config: ArchiverConfig,
    described: TopicDescription,
    archived: ArchivedTopic | None,
    offsets: Mapping[TopicPartition, PartitionOffsets],
    sizes: LogSizes,
) -> TopicForecast:
    """Forecast a topic. One that was created again begins anew."""
    fact = None if archived is None else archived.fact
    is_new = archived is None or (fact is not None and fact.current.topic_id != described.topic_id)
    behind, missing, size, is_sized = 0, 0, 0.0, True
    for number in described.partitions:
        at = offsets.get((described.name, number))
        if at is None:
            continue
        held = EMPTY_PARTITION if is_new or archived is None else archived.partitions.get(number, EMPTY_PARTITION)
        begin = at.high_watermark if is_new and config.backup.start == "latest" else at.log_start
        end = held.readable[-1].next if held.readable else begin
        left = max(0, at.last_stable - max(end, at.log_start))
        behind, missing = behind + (left > 0), missing + left
        if left:
            is_sized &= number in sizes.bytes
            size += sizes.bytes.get(number, 0) * left / (at.high_watermark - at.log_start)
    return TopicForecast(
        topic=described.name,
        partitions=len(described.partitions),
        behind=behind,
        offsets=missing,
        bytes=round(size) if is_sized else None,
        is_new=is_new,
    )


def _notes(config: ArchiverConfig) -> Sequence[str]:
    return [
        *(
            ["backup.start is a time: topics that are new to the archive begin there, and this counts all of them"]
            if isinstance(config.backup.start, int)
            else []
        ),
        *(
            ["compacted.enabled: compacted topics that instances copy are left to them, and are counted here"]
            if config.compacted.enabled
            else []
        ),
    ]
