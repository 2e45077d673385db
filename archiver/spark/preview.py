"""Runs `restore --dry-run`: plans a restore and checks its targets. Changes nothing."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.reading.catalog import topic_names
from archiver.config.model import StorageConfig, TargetConfig
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.progress import make_reporter
from archiver.restore.plan.estimate import effort_of
from archiver.restore.plan.planner import Planner
from archiver.restore.plan.request import RestoreRequest, check_restore_id
from archiver.restore.plan.restore_plan import check_partitions, with_mended
from archiver.restore.report.preview import NOT_TRIED, RestorePreview, copies_archived_again, with_missing
from archiver.spark.session.background_start import spark_in_background

if TYPE_CHECKING:
    from archiver.restore.purge.purge import Purge


def preview_restore(
    storage: StorageConfig,
    target: TargetConfig,
    request: RestoreRequest,
    *,
    restore_id: str | None,
    select_topics: Callable[[Iterable[str]], Sequence[str]] = lambda _: (),
    notice: Callable[[str], None] = lambda _: None,
) -> RestorePreview:
    """Plan a restore and check its targets. Needs Spark for a predicate, and for the objects that a purge reads first.

    `select_topics` chooses the names that a backup with the present configuration archives.
    """
    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    if restore_id is not None:
        check_restore_id(restore_id)
    archive = open_archive(storage)
    dry_run = _DryRun(
        storage=storage,
        archive=archive,
        request=request,
        wave=request.targets(topic_names(archive)),
        select_topics=select_topics,
        notice=notice,
    )
    if request.where:
        _check_predicate(request.where, notice)
    preview, purge = asyncio.run(dry_run.review_targets(kafka, restore_id))
    if preview.refused or request.purges_unread or not purge.topic_ids:
        return preview
    return _read_before_purge(storage, request, preview, purge, notice)


def _check_predicate(where: str, notice: Callable[[str], None]) -> None:
    with spark_in_background("restore --dry-run --where", notice) as start_spark:
        from archiver.spark.record_choice import check_predicate  # noqa: PLC0415 - an extra that a backup does not need

        check_predicate(start_spark(), where)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DryRun:
    """Plans one restore, and asks its target cluster."""

    storage: StorageConfig
    archive: Archive
    request: RestoreRequest
    wave: Mapping[str, str]  # all targets, by source
    select_topics: Callable[[Iterable[str]], Sequence[str]]
    notice: Callable[[str], None]

    async def review_targets(self, kafka: KafkaSettings, restore_id: str | None) -> "tuple[RestorePreview, Purge]":
        from archiver.restore.plan.restore_notes import RestoreNotes  # noqa: PLC0415 - of a restore alone, as below
        from archiver.restore.purge.archived_logs import ArchivedLogs  # noqa: PLC0415
        from archiver.restore.targets.targets import Targets  # noqa: PLC0415

        request = self.request
        async with KafkaClient(kafka) as client:
            cluster_id = await client.cluster_id()
            name = restore_id or request.default_id(self.storage.url, cluster_id)
            notes = RestoreNotes(self.archive, name, cluster_id)
            targets = Targets(kafka, notes, request, ArchivedLogs(self.archive, cluster_id))
            noted, unplanned = await targets.planned(client, self.wave)
            planner = Planner(self.archive, request, self.storage.index, self.notice)
            begun = targets.check_noted(noted, planner.plan)
            topics = with_mended(begun.plans, [*planner.plan(unplanned).topics, *begun.fresh])
            check_partitions(topics, request)
            review = await targets.review(client, topics)
            records = {one.source: one.records for one in topics}
            preview = RestorePreview(
                restore_id=name,
                topics=sorted(topics, key=lambda topic: topic.source),
                begun={topic.target for topic in begun.plans},
                existing=(await client.describe_topics(self.wave.values())).keys(),
                policy=request.existing,
                is_partial=request.is_partial,
                refused=review.problems,
                damage=(),
                notes=[*self._notes(), *planner.notes, *begun.notes, *review.losses, *review.notes],
                doubts=review.doubts,
                effort=effort_of(topics, request, os.cpu_count() or 1, review.limits),
                told=planner.problems(records),
            )
            return preview, review.purge

    def _notes(self) -> list[str]:
        return [
            *self.request.notes(self.wave),
            *copies_archived_again(self.select_topics, self.wave),
            *([NOT_TRIED] if self.request.where else []),
        ]


def _read_before_purge(
    storage: StorageConfig,
    request: RestoreRequest,
    preview: RestorePreview,
    purge: "Purge",
    notice: Callable[[str], None],
) -> RestorePreview:
    """Read the replacements of purged topics, as the restore does before it deletes these."""
    from archiver.restore.purge.purge import damage_problems  # noqa: PLC0415 - of a restore alone

    topics = [topic for topic in preview.topics if topic.target in purge.topic_ids]
    with spark_in_background("restore --dry-run --purge-target", notice) as start_spark:
        from archiver.spark.purge_proof import read_whole  # noqa: PLC0415 - an extra that a backup does not need

        spark = start_spark()
        report_progress = make_reporter("reading whole what is to be in the place of what is purged", notice)
        reading = read_whole(spark, storage, topics, purge, report_progress)
    problems = damage_problems(topics, reading, purge, skips_damage=request.skips_damage)
    if problems:
        return replace(preview, damage=problems)
    found: dict[tuple[str, int], list[str]] = {}
    for one in reading.damage:
        found.setdefault((one.target, one.partition), []).append(one.message)
    return replace(preview, topics=[with_missing(topic, found) for topic in preview.topics])
