"""Runs `restore` and its dry run: the one place with all steps of both, in the order of their effects.

1. Read the archive's topics and the notes of earlier runs, plan, survey the targets, and refuse what cannot succeed.
2. Choose records, and prove that the archive can replace purged topics. Then survey again.
3. For each portion of topics: purge and create them, note the plan (`Targets.prepare`); claim, fill and read back (`Filling`).
4. Set the final configs and note the end (`Targets.finish`), then the consumer groups.

A dry run is steps 1 and the proof of step 2. Nothing is changed before step 3, except that lists of chosen records are stored.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.reading.catalog import topic_names
from archiver.config.model import StorageConfig, TargetConfig
from archiver.errors import NotWholeError, UsageError
from archiver.groups.positions.archived_position import ArchivedPosition
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.process.output.progress import make_reporter
from archiver.process.output.text import spell_count
from archiver.restore.groups.group_preview import GroupPreview, preview_groups
from archiver.restore.groups.group_restore import GroupRequest, read_positions, restore_groups, unmatched_problem
from archiver.restore.groups.removed_positions import with_lost_positions
from archiver.restore.plan.estimate import effort_of
from archiver.restore.plan.planner import Planner
from archiver.restore.plan.request import RestoreRequest, check_restore_id
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan, check_partitions, with_mended
from archiver.restore.purge.archived_logs import ArchivedLogs
from archiver.restore.purge.purge_checks import damage_problems
from archiver.restore.report.preview import NOT_TRIED, RestorePreview, copies_archived_again, with_missing
from archiver.restore.report.restore_report import RestoreResult
from archiver.restore.targets.target_survey import refuse
from archiver.restore.targets.targets import TargetReview, Targets
from archiver.spark.session.background_start import spark_in_background
from archiver.store.patient import PatientStore

if TYPE_CHECKING:
    from pyspark import SparkContext

    from archiver.restore.purge.purge_checks import ArchiveReading

StartSpark = Callable[[], "SparkContext"]
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

    `groups` are set when all topics are whole. An error is raised if nothing was filled before it. Otherwise it is in the
    result, and the filled topics are finished. Run again with the same id, a restore continues where the target ends.
    """
    started_s = time.monotonic()
    steps = _Steps(storage, target, request, restore_id, notice)
    for note in request.notes(steps.wave):
        log.warning("%s", note)
    with spark_in_background("restore", notice) as start_spark, ClientThread(steps.kafka) as brokers:
        group_problems = list[str]()
        positions = () if groups is None else _read_positions(steps.archive, groups, group_problems, notice)
        notice("looking at the target")
        begin(steps.connect(brokers))
        notice("reading the archive")
        topics = steps.plan()
        lives = steps.planner.lives if request.life is None else ()
        review = steps.survey(topics)
        for note in review.notes:
            log.info("%s", note)
        for told in (*lives, *steps.notes, *review.losses):
            log.warning("%s", told)
        refuse(review.problems)
        topics = steps.choose(topics, start_spark)
        if steps.replacements(topics):
            reading = steps.read(topics, start_spark)
            if problems := damage_problems(topics, reading, review.purge, skips_damage=request.skips_damage):
                raise NotWholeError("\n".join(problems)).in_lines()
            for one in reading.damage:
                log.warning("%s-%d: will not be whole: %s", one.target, one.partition, one.message)
        if steps.is_late:  # reading may have taken hours: others may have changed the targets
            refuse(steps.survey(topics).problems)
        result = steps.fill(topics, start_spark())
        records = {one.source: one.records for one in result.topics} if result.is_whole else {}
        if groups is not None and result.is_whole:
            notice("finding where groups are to stand")
            try:
                found = restore_groups(
                    steps.archive, steps.kafka, result.restore_id, groups, positions, group_problems, notice
                )
                result = replace(result, groups=found)
            except Exception as error:  # noqa: BLE001 - also a defect: the topics are whole, and that is told all the same
                result = replace(result, failure=as_ours(error))
    seconds = round(time.monotonic() - started_s, 3)
    return replace(result, seconds=seconds, problems=steps.planner.problems(records))


def _read_positions(
    archive: Archive, groups: GroupRequest, problems: list[str], notice: Callable[[str], None]
) -> Sequence[ArchivedPosition]:
    """Read the positions of the groups before any topic is changed. Raises UsageError if no positions are archived."""
    notice("reading where groups stood")
    positions = read_positions(archive, groups, problems.append)
    if not positions:
        log.warning("no group that --groups matches has an archived position: none is set when the topics are whole")
    return positions


def preview_restore(
    storage: StorageConfig,
    target: TargetConfig,
    request: RestoreRequest,
    *,
    restore_id: str | None,
    select_topics: Callable[[Iterable[str]], Sequence[str]] = lambda _: (),
    notice: Callable[[str], None] = lambda _: None,
    groups: GroupRequest | None = None,
) -> RestorePreview:
    """Plan a restore and check its targets. Needs Spark for a predicate, and for the objects that a purge reads first.

    `select_topics` chooses the names that a backup with the present configuration archives.
    """
    steps = _Steps(storage, target, request, restore_id, notice)
    told: list[str] = []
    positions = () if groups is None else read_positions(steps.archive, groups, told.append)  # refusals come first
    if request.where:
        with spark_in_background("restore --dry-run --where", notice) as start_spark:
            from archiver.spark.record_choice import check_predicate  # noqa: PLC0415 - an extra

            check_predicate(start_spark(), request.where)
    with ClientThread(steps.kafka) as brokers:
        name = steps.connect(brokers)
        topics = steps.plan()
        review = steps.survey(topics)
        damage: list[str] = []
        if not review.problems and steps.replacements(topics):
            with spark_in_background("restore --dry-run --purge-target", notice) as start_spark:
                reading = steps.read(topics, start_spark)
            damage = damage_problems(topics, reading, review.purge, skips_damage=request.skips_damage)
            topics = topics if damage else [with_missing(topic, reading.damage) for topic in topics]
    settable = None if groups is None else steps.preview_groups(groups, positions, topics, told.append)
    return RestorePreview(
        restore_id=name,
        topics=sorted(topics, key=lambda topic: topic.source),
        begun=steps.begun,
        existing=steps.targets.existing,
        policy=request.existing,
        is_partial=request.is_partial,
        refused=review.problems,
        damage=tuple(damage),
        notes=[
            *request.notes(steps.wave),
            *copies_archived_again(select_topics, steps.wave),
            *([NOT_TRIED] if request.where else []),
            *steps.notes,
            *review.losses,
            *review.notes,
        ],
        doubts=review.doubts,
        effort=effort_of(topics, request, os.cpu_count() or 1, review.limits),
        told=[*steps.planner.problems({one.source: one.records for one in topics}), *told],
        groups=settable,
        skips_nameless=any(not one.group for one in positions),
    )


class _Steps:
    """The steps of one restore, in the order of their use."""

    def __init__(
        self,
        storage: StorageConfig,
        target: TargetConfig,
        request: RestoreRequest,
        restore_id: str | None,
        notice: Callable[[str], None],
    ) -> None:
        self._restore_id = "" if restore_id is None else check_restore_id(restore_id)
        self.kafka = KafkaSettings.of(target)
        self.archive = open_archive(storage)
        self.wave = request.targets(topic_names(self.archive))  # {source: target}; refuses before Spark takes seconds
        self.planner = Planner(self.archive, request, storage.index, notice)
        self._held: Sequence[TopicPlan] = ()  # plans of earlier runs
        self._new: Sequence[TopicPlan] = ()  # plans of this run, also of partitions that those could not plan
        self.begun: set[str] = set()  # targets with a plan of an earlier run
        self.notes: list[str] = []  # on copies, unreadable records, and objects that noted plans leave out
        self.is_late = False  # records were read since the last survey
        self._storage = storage
        self._request = request
        self._notice = notice
        self._has_tried = False

    def connect(self, brokers: ClientThread) -> str:
        """Find the target cluster. Returns the id of this restore."""
        self._brokers = brokers
        self._cluster_id = brokers.ask(KafkaClient.cluster_id)
        self._restore_id = self._restore_id or self._request.default_id(self._storage.url, self._cluster_id)
        # Notes are put between the deletion of a topic and its creation: a short failure of the store must not end a run then.
        patient = self.archive._replace(store=PatientStore(self.archive.store))
        notes = RestoreNotes(patient, self._restore_id, self._cluster_id)
        self.targets = Targets(self.kafka, notes, self._request, ArchivedLogs(patient, self._cluster_id))
        return self._restore_id

    def plan(self) -> list[TopicPlan]:
        """Take the plans of earlier runs, compared with the present archive, and plan the other topics."""
        noted, unplanned = self._brokers.ask(lambda client: self.targets.planned(client, self.wave))
        found = self.targets.check_noted(noted, self.planner.plan)
        self._held, self._new = found.plans, [*self.planner.plan(unplanned), *found.fresh]
        topics = with_mended(self._held, self._new)
        if not topics:
            raise UsageError(
                "the archive has neither records nor facts of these topics; `archiver ls` shows what it has"
            )
        check_partitions(topics, self._request)
        self.begun = {topic.target for topic in found.plans}
        self.notes = [*self.planner.notes, *found.notes]
        return topics

    def survey(self, topics: Sequence[TopicPlan]) -> TargetReview:
        """Find why targets cannot be filled as planned."""
        self.is_late = False
        return self._brokers.ask(lambda client: self.targets.review(client, topics))

    def choose(self, topics: list[TopicPlan], start_spark: StartSpark) -> list[TopicPlan]:
        """Choose the records of topics, if only some are wanted. Plans of earlier runs have them already."""
        request = self._request
        chosen = [topic for topic in self._new if request.chooses(is_copied=topic.is_copied)]
        if not chosen:
            return topics
        from archiver.spark.record_choice import choose_records  # noqa: PLC0415 - Spark SQL, which takes seconds

        spark = self._tried(start_spark(), topics)
        self._notice(f"choosing among at most {spell_count(sum(topic.records for topic in chosen), 'record')}")
        self.is_late = True
        found = {topic.target: topic for topic in self._new}
        for is_latest in (True, False):
            some = [topic for topic in chosen if request.takes_latest(is_copied=topic.is_copied) is is_latest]
            if some:
                narrowed = choose_records(
                    spark,
                    some,
                    replace(request, is_latest_per_key=is_latest),
                    storage=self._storage,
                    layout=self.archive.layout,
                    restore_id=self._restore_id,
                )
                found |= {topic.target: topic for topic in narrowed}
        return with_mended(self._held, list(found.values()))

    def replacements(self, topics: Iterable[TopicPlan]) -> list[TopicPlan]:
        """Return the topics whose targets are purged, and whose objects must be read whole before."""
        return [] if self._request.purges_unread else self.targets.purged_among(topics)

    def read(self, topics: Sequence[TopicPlan], start_spark: StartSpark) -> "ArchiveReading":
        """Read the replacements of purged topics whole."""
        from archiver.spark.purge_proof import read_whole  # noqa: PLC0415 - an extra that a backup does not need

        spark = self._tried(start_spark(), topics)
        wanted = self.replacements(topics)
        self.is_late = True
        objects = sum(topic.objects for topic in wanted)
        report_progress = make_reporter(
            f"reading {spell_count(objects, 'object')} whole, before anything is purged", self._notice
        )
        return read_whole(spark, self._storage, wanted, self.targets.purge, report_progress)

    def preview_groups(
        self,
        asked: GroupRequest,
        positions: Sequence[ArchivedPosition],
        topics: Sequence[TopicPlan],
        report: Callable[[str], None],
    ) -> list[GroupPreview]:
        """Count the positions of groups that would be set. `report` receives problems."""
        lives = {(topic.source, topic.life) for topic in topics}
        positions = with_lost_positions(self.archive, asked.wanted, self._storage.index, positions, lives, report)
        found = asyncio.run(preview_groups(self.archive, self.kafka, asked, positions, topics))
        if not found and (problem := unmatched_problem(self.archive, asked, {topic.source for topic in topics})):
            report(problem)
        return found

    def fill(self, topics: Sequence[TopicPlan], spark: "SparkContext") -> RestoreResult:
        """Purge, create and fill the topics, then finish those that are whole."""
        from archiver.spark.restore_job import Filling, RestoreJob  # noqa: PLC0415 - an extra that a backup does not need

        job = RestoreJob(
            restore_id=self._restore_id,
            request=self._request,
            storage=self._storage,
            kafka=self.kafka,
            cluster_id=self._cluster_id,
        )
        filling = Filling(job, self._tried(spark, topics), self.targets, self._brokers, self._notice)
        return filling.run(topics, self.wave.values())

    def _tried(self, spark: "SparkContext", topics: Sequence[TopicPlan]) -> "SparkContext":
        """Let executors try their connections, once, before any change: the driver's access proves nothing about theirs."""
        from archiver.spark.session.executors import Destination, try_executors  # noqa: PLC0415 - an extra
        from archiver.spark.session.spark_submit import is_local  # noqa: PLC0415

        if not self._has_tried and not is_local(spark.master):
            parts = (part for topic in topics for partition in topic.partitions for part in partition.parts)
            destination = Destination(
                storage=self._storage,
                object_key=next((part.object_key for part in parts), ""),
                kafka=self.kafka,
                cluster_id=self._cluster_id,
            )
            self._notice("trying what executors reach")
            try_executors(spark, destination)
        self._has_tried = True
        return spark
