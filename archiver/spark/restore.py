"""`restore`, from a configuration to its end: plans the topics while Spark starts, then fills them."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from archiver.archive.archived_topic import ArchivedTopic
from archiver.archive.catalog import read_archive, topic_names
from archiver.archive.copied_topic import Pins
from archiver.archive.handle import open_archive
from archiver.archive.learned_facts import share_learned
from archiver.config.model import StorageConfig, TargetConfig
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings
from archiver.process.progress import make_asking_reporter
from archiver.process.text import spell_count
from archiver.restore.group_restore import GroupRequest
from archiver.restore.plan import (
    RestorePlan,
    check_partitions,
    plan_restore,
    told_beside,
    told_of_no_record,
    unreadable_notes,
    with_objects,
)
from archiver.restore.report import RestoreResult
from archiver.restore.request import RestoreRequest, check_restore_id
from archiver.spark.background_start import spark_in_background

log = logging.getLogger(__name__)


def run_restore_job(
    storage: StorageConfig,
    target: TargetConfig,
    request: RestoreRequest,
    *,
    restore_id: str | None,
    notice: Callable[[str], None],
    begin: Callable[[str], None] = lambda _: None,
    groups: GroupRequest | None = None,
) -> RestoreResult:
    """Plan a restore from what the archive holds now, and carry it out. `begin` is told its id as soon as that is known.

    `groups` are set when all topics are whole.
    """
    started_s = time.monotonic()
    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    if restore_id is not None:
        check_restore_id(restore_id)
    archive = open_archive(storage)
    told: dict[str, None] = {}
    with_any: set[str] = set()  # topics that have objects

    def plan(wave: Mapping[str, str], life: int | None, pinned: Pins) -> RestorePlan:
        """Plan in a life; None: in that which was asked for."""
        notice(f"reading the archive of {spell_count(len(wave), 'topic')}")
        archived = read_archive(
            archive,
            life=request.life if life is None else life,
            wanted=wave.__contains__,
            choice=request.copy_choice(pinned),
            use=storage.index,
            reads=request.wanted.of,
            report_progress=make_asking_reporter(notice),
            share=share_learned,
        )
        _warn_of(archived, request)
        with_any.update(with_objects(archived))
        planned = plan_restore(archived, wave, request)
        told.update(dict.fromkeys(told_beside(archived, planned, request)))
        if wave.keys() == targets.keys():  # else a topic that an earlier run has planned may have them
            check_partitions(planned.topics, request)
        return planned

    # Refuse before Spark takes seconds to start.
    targets = request.targets(topic_names(archive))
    for note in request.notes(targets):
        log.warning("%s", note)
    with spark_in_background("restore", notice) as start_spark:
        # Extras that a backup does not need.
        from archiver.spark.group_restore import GroupJob  # noqa: PLC0415
        from archiver.spark.restore_job import RestoreJob, run_restore  # noqa: PLC0415

        group_job = None if groups is None else GroupJob(archive=archive, kafka=kafka, asked=groups)
        if group_job is not None:
            group_job.read(notice)
        notice("looking at the target")
        cluster_id, existing = asyncio.run(_describe_target(kafka, targets.values()))
        job = RestoreJob(
            restore_id=restore_id or request.default_id(storage.url, cluster_id),
            request=request,
            storage=storage,
            kafka=kafka,
            cluster_id=cluster_id,
            existing=existing,
        )
        begin(job.restore_id)
        outcome = run_restore(job, targets, plan, start_spark, notice)
        restored_groups, failure = None, outcome.failure
        if group_job is not None:
            restored_groups, failure = group_job.run_after(outcome, job.restore_id, notice)
    seconds = time.monotonic() - started_s
    if outcome.is_whole:
        records = {one.source: one.records for one in outcome.topics}
        told.update(dict.fromkeys(told_of_no_record(records, with_any, request)))
    result = RestoreResult.of_outcome(job.restore_id, seconds, outcome, restored_groups, failure)
    return replace(result, problems=tuple(told))


def _warn_of(archived: Sequence[ArchivedTopic], request: RestoreRequest) -> None:
    """Warn of other lives, and of what no archive can give back."""
    for topic in archived:
        if topic.other_lives and request.life is None:
            others = ", ".join(map(str, topic.other_lives))
            log.warning(
                "%s: this is its life %d; the archive also has life %s (--life)", topic.topic, topic.life, others
            )
    for note in (*(note for topic in archived for note in topic.notes), *unreadable_notes(archived, request)):
        log.warning("%s", note)


async def _describe_target(kafka: KafkaSettings, topics: Iterable[str]) -> tuple[str, Collection[str]]:
    """Return the cluster's id, and which of the topics it has."""
    async with KafkaClient(kafka) as client:
        return await client.cluster_id(), await client.describe_topics(topics)
