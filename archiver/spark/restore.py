"""Runs `restore`, from the configuration to the result: plans the topics while Spark starts, then fills them."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.reading.catalog import topic_names
from archiver.config.model import StorageConfig, TargetConfig
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.restore.groups.group_restore import GroupRequest, read_positions, restore_groups
from archiver.restore.plan.planner import Planner
from archiver.restore.plan.request import RestoreRequest, check_restore_id
from archiver.restore.report.restore_report import RestoreResult
from archiver.spark.session.background_start import spark_in_background

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
    """Plan a restore from the archive's present content, and carry it out. `begin` receives its id, once known.

    `groups` are set when all topics are whole.
    """
    started_s = time.monotonic()
    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    if restore_id is not None:
        check_restore_id(restore_id)
    archive = open_archive(storage)
    # Refuse before Spark takes seconds to start.
    targets = request.targets(topic_names(archive))
    for note in request.notes(targets):
        log.warning("%s", note)
    with spark_in_background("restore", notice) as start_spark, ClientThread(kafka) as brokers:
        # Extras that a backup does not need.
        from archiver.spark.restore_job import RestoreJob, run_restore  # noqa: PLC0415

        group_problems = list[str]()
        positions = () if groups is None else _read_positions(archive, groups, group_problems, notice)
        notice("looking at the target")
        cluster_id, existing = brokers.ask(partial(_describe_target, topics=targets.values()))
        job = RestoreJob(
            restore_id=restore_id or request.default_id(storage.url, cluster_id),
            request=request,
            storage=storage,
            kafka=kafka,
            cluster_id=cluster_id,
            existing=existing,
        )
        begin(job.restore_id)
        planner = Planner(archive, request, storage.index, notice)
        result = run_restore(job, targets, planner, brokers, start_spark, notice)
        records = {one.source: one.records for one in result.topics} if result.is_whole else {}
        if groups is not None and result.is_whole:
            notice("finding where groups are to stand")
            try:
                found = restore_groups(archive, kafka, job.restore_id, groups, positions, group_problems, notice)
                result = replace(result, groups=found)
            except Exception as error:  # noqa: BLE001 - also a defect: the topics are whole, and that is told all the same
                result = replace(result, failure=as_ours(error))
    return replace(result, seconds=round(time.monotonic() - started_s, 3), problems=planner.problems(records))


def _read_positions(
    archive: Archive, groups: GroupRequest, problems: list[str], notice: Callable[[str], None]
) -> Sequence[ArchivedPosition]:
    """Read the positions of the groups before any topic is changed. Raises UsageError if no positions are archived."""
    notice("reading where groups stood")
    positions = read_positions(archive, groups, problems.append)
    if not positions:
        log.warning("no group that --groups matches has an archived position: none is set when the topics are whole")
    return positions


async def _describe_target(client: KafkaClient, topics: Iterable[str]) -> tuple[str, Collection[str]]:
    """Return the cluster's id, and which of the topics it has."""
    return await client.cluster_id(), await client.describe_topics(topics)
