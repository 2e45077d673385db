"""`restore --dry-run`: a restore is planned, and its targets are checked. Changes nothing."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from archiver.archive.catalog import read_archive, topic_names
from archiver.archive.handle import open_archive
from archiver.config.model import StorageConfig, TargetConfig
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings
from archiver.process.progress import make_asking_reporter, make_reporter
from archiver.restore.estimate import effort_of
from archiver.restore.plan import RestorePlan, check_partitions, plan_restore, tell_unreadable, with_mended
from archiver.restore.preview import NOT_TRIED, RestorePreview, copies_archived_again, with_missing
from archiver.restore.request import RestoreRequest, check_restore_id
from archiver.spark.optional import spark_beside

if TYPE_CHECKING:
    from archiver.restore.purge import Purge


def preview_restore(
    storage: StorageConfig,
    target: TargetConfig,
    request: RestoreRequest,
    *,
    restore_id: str | None,
    select_topics: Callable[[Iterable[str]], Sequence[str]] = lambda _: (),
    notice: Callable[[str], None] = lambda _: None,
) -> RestorePreview:
    """Plan a restore and check its targets. Changes nothing, and needs Spark for a predicate, and for what a purge reads before.

    `select_topics` chooses the names that the configuration at hand has a backup archive.
    """
    from archiver.restore.notes import RestoreNotes  # noqa: PLC0415 - of a restore alone, as below
    from archiver.restore.targets import Targets  # noqa: PLC0415
    from archiver.restore.unarchived import ArchivedLogs  # noqa: PLC0415

    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    if restore_id is not None:
        check_restore_id(restore_id)
    archive = open_archive(storage)
    wave = request.targets(topic_names(archive))
    if request.where:
        with spark_beside("restore --dry-run --where", notice) as start_spark:
            from archiver.spark.choose import check_predicate  # noqa: PLC0415 - an extra that a backup does not need

            check_predicate(start_spark(), request.where)

    unreadable: list[str] = []

    def plan(some: Mapping[str, str], life: int | None) -> RestorePlan:
        archived = read_archive(
            archive,
            life=life,
            wanted=some.__contains__,
            use=storage.index,
            reads=request.wanted.of,
            tell_asked=make_asking_reporter(notice),
        )
        unreadable.extend(tell_unreadable(archived, request))
        return plan_restore(archived, some, request)

    async def look() -> "tuple[RestorePreview, Purge]":
        async with KafkaClient(kafka) as client:
            cluster_id = await client.cluster_id()
            name = restore_id or request.default_id(storage.url, cluster_id)
            notes = RestoreNotes(archive, name, cluster_id)
            targets = Targets(kafka, notes, request, ArchivedLogs(archive, cluster_id))
            noted, unplanned = await targets.planned(client, wave)
            begun = targets.believed(noted, plan)
            topics = with_mended(begun.plans, [*plan(unplanned, request.life).topics, *begun.fresh])
            check_partitions(topics, request)
            verdict = await targets.judge(client, topics)
            preview = RestorePreview(
                restore_id=name,
                topics=sorted(topics, key=lambda topic: topic.source),
                begun={topic.target for topic in begun.plans},
                existing=(await client.describe_topics(wave.values())).keys(),
                policy=request.existing,
                is_partial=request.is_partial,
                refused=verdict.problems,
                damage=(),
                notes=[
                    *request.notes(wave),
                    *copies_archived_again(select_topics, wave),
                    *([NOT_TRIED] if request.where else []),
                    *dict.fromkeys(unreadable),
                    *begun.notes,
                    *verdict.losses,
                    *verdict.notes,
                ],
                doubts=verdict.doubts,
                effort=effort_of(topics, request, os.cpu_count() or 1, verdict.limits),
            )
            return preview, verdict.purge

    preview, purge = asyncio.run(look())
    if preview.refused or request.purges_unread or not purge.topic_ids:
        return preview
    return _read_before_purge(storage, request, preview, purge, notice)


def _read_before_purge(
    storage: StorageConfig,
    request: RestoreRequest,
    preview: RestorePreview,
    purge: "Purge",
    notice: Callable[[str], None],
) -> RestorePreview:
    """Read what is to be in the place of purged topics, as the restore does before it deletes them."""
    from archiver.restore.purge import damage_problems  # noqa: PLC0415 - of a restore alone

    topics = [topic for topic in preview.topics if topic.target in purge.topic_ids]
    with spark_beside("restore --dry-run --purge-target", notice) as start_spark:
        from archiver.spark.proof import read_whole  # noqa: PLC0415 - an extra that a backup does not need

        spark = start_spark()
        tell = make_reporter("reading whole what is to be in the place of what is purged", notice)
        reading = read_whole(spark, storage, topics, purge, tell)
    problems = damage_problems(topics, reading, purge, skips_damage=request.skips_damage)
    if problems:
        return replace(preview, damage=problems)
    found: dict[tuple[str, int], list[str]] = {}
    for one in reading.damage:
        found.setdefault((one.target, one.partition), []).append(one.message)
    return replace(preview, topics=[with_missing(topic, found) for topic in preview.topics])
