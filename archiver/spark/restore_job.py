"""The restore as a Spark job: create, fill one partition a task, verify, finish."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pyspark import SparkContext

from archiver.archive.format.handle import open_archive
from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, TargetError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.process.output.progress import Eta
from archiver.process.output.text import spell_count
from archiver.process.running.workers import workers
from archiver.restore.fill.partition_restore import run_task
from archiver.restore.plan.planner import Planner
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan, check_partitions, with_mended
from archiver.restore.plan.target_limits import wanted_records
from archiver.restore.plan.task import RestoreTask, TaskReport
from archiver.restore.purge.archived_logs import ArchivedLogs
from archiver.restore.report.restore_report import RestoreResult, TopicReport
from archiver.restore.report.topic_reports import filled_topics, report_topic
from archiver.restore.targets.target_configs import Finish
from archiver.restore.targets.targets import Target, Targets
from archiver.spark.purge_proof import read_whole
from archiver.spark.repartition import repartition
from archiver.spark.session.executors import Destination, try_executors
from archiver.spark.session.spark_submit import is_local
from archiver.spark.session.tasks import run_on_spark
from archiver.store.patient import PatientStore

Value = TypeVar("Value")

log = logging.getLogger(__name__)

_PORTIONS_AT_ONCE = 2
_TOLD_EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreJob:
    """One run of a restore."""

    restore_id: str
    request: RestoreRequest
    storage: StorageConfig
    kafka: KafkaSettings
    cluster_id: str  # of the target
    existing: Collection[str]  # targets that were there when it began


def run_restore(
    job: RestoreJob,
    targets: Mapping[str, str],
    planner: Planner,
    brokers: ClientThread,
    start_spark: Callable[[], SparkContext],
    notice: Callable[[str], None] = lambda _: None,
) -> RestoreResult:
    """Restore topics into targets, given by source; run again with the same id, it continues where the target ends.

    An error is raised if nothing was filled before it. Otherwise it is in the result, and the filled topics are finished.
    """
    return _Restore(job, planner, brokers, notice).run(targets, start_spark)


class _Restore:
    def __init__(self, job: RestoreJob, planner: Planner, brokers: ClientThread, notice: Callable[[str], None]) -> None:
        self._job = job
        self._has_one_portion = True
        self._planner = planner
        self._brokers = brokers  # of the target
        self._notice = notice
        self._archive = open_archive(job.storage)
        # Notes are put between the deletion of a topic and its creation: a short failure of the store must not end a run then.
        patient = self._archive._replace(store=PatientStore(self._archive.store))
        notes = RestoreNotes(patient, job.restore_id, job.cluster_id)
        archived = ArchivedLogs(patient, job.cluster_id)
        self._targets = Targets(job.kafka, notes, job.request, archived, existing=job.existing)
        self._filling: list[Target] = []  # the largest of each portion first
        self._read_back: list[TaskReport] = []  # of target partitions, where those are not the archive's
        self._eta = Eta("records")
        self._has_tried = False
        self._failure: ArchiverError | None = None

    def run(self, targets: Mapping[str, str], start_spark: Callable[[], SparkContext]) -> RestoreResult:
        planned = self._planned(targets, start_spark)  # 1. refuse a restore that cannot succeed, before any change
        if not planned:
            raise UsageError(
                "the archive has neither records nor facts of these topics; `archiver ls` shows what it has"
            )
        spark = start_spark()
        self._try_executors(spark, planned)
        started_s = time.monotonic()
        portions = self._targets.portions(planned)
        self._has_one_portion = len(portions) == 1
        reports = self._fill(spark, portions)  # 2. create the topics, fill and verify them
        filling_s = time.monotonic() - started_s
        self._notice("finishing the target")
        topics = self._finish(reports)  # 3. only then the archived configs
        whole = sum(not report.error for report in reports)
        self._notice(f"{whole:,} of {spell_count(len(reports), 'partition')} filled and read back")
        begun = {topic.target for topic in topics}
        return RestoreResult(
            restore_id=self._job.restore_id,
            filling_seconds=round(filling_s, 3),
            topics=topics,
            failure=self._failure,
            not_begun=[name for name in targets.values() if name not in begun],
        )

    def _try_executors(self, spark: SparkContext, topics: Sequence[TopicPlan]) -> None:
        """Let executors try their connections, once, before any change: the driver's access proves nothing about theirs."""
        if self._has_tried or is_local(spark.master):
            return
        parts = (part for topic in topics for partition in topic.partitions for part in partition.parts)
        destination = Destination(
            storage=self._job.storage,
            object_key=next((part.object_key for part in parts), ""),
            kafka=self._job.kafka,
            cluster_id=self._job.cluster_id,
        )
        self._notice("trying what executors reach")
        try_executors(spark, destination)
        self._has_tried = True

    def _planned(self, targets: Mapping[str, str], start_spark: Callable[[], SparkContext]) -> list[TopicPlan]:
        """Plan topics that no earlier run has planned, and check all of them."""
        noted, unplanned = self._brokers.ask(lambda client: self._targets.planned(client, targets))
        begun = self._targets.check_noted(noted, self._planner.plan)
        self._notice(f"reading the archive of {spell_count(len(unplanned), 'topic')}")
        new = [*self._planner.plan(unplanned).topics, *begun.fresh]
        check_partitions(with_mended(begun.plans, new), self._job.request)
        lives = self._planner.lives if self._job.request.life is None else ()
        for told in (*lives, *self._planner.notes, *begun.notes):
            log.warning("%s", told)
        topics = with_mended(begun.plans, self._with_chosen(new, start_spark))
        self._brokers.ask(lambda client: self._targets.check(client, topics))
        self._prove(topics, start_spark)
        first = self._job.request.is_first
        return sorted(topics, key=lambda topic: (first(topic.source), _objects(topic)), reverse=True)

    def _prove(self, topics: Sequence[TopicPlan], start_spark: Callable[[], SparkContext]) -> None:
        """Prove that the archive can replace purged topics: all of the replacements are read whole."""
        wanted = self._targets.purged_among(topics)
        if not wanted or self._job.request.purges_unread:
            return
        spark = start_spark()
        self._try_executors(spark, topics)
        objects = spell_count(sum(map(_objects, wanted)), "object")
        self._notice(f"reading {objects} whole, before anything is purged")
        self._targets.provide_for(wanted, read_whole(spark, self._job.storage, wanted, self._targets.purge))
        self._brokers.ask(lambda client: self._targets.check_again(client, topics))

    def _with_chosen(self, topics: Sequence[TopicPlan], start_spark: Callable[[], SparkContext]) -> Sequence[TopicPlan]:
        """Choose the records of topics, if only some are wanted."""
        job = self._job
        if not any(job.request.chooses(is_copied=topic.is_copied) for topic in topics):
            return topics
        self._brokers.ask(lambda client: self._targets.check(client, topics))  # before all records are read
        spark = start_spark()
        self._try_executors(spark, topics)
        chosen = [topic for topic in topics if job.request.chooses(is_copied=topic.is_copied)]
        self._notice(f"choosing among at most {spell_count(sum(topic.records for topic in chosen), 'record')}")
        latest = [topic for topic in chosen if job.request.takes_latest(is_copied=topic.is_copied)]
        others = [topic for topic in chosen if topic not in latest]
        found = {topic.target: topic for topic in topics}
        for some, is_latest in ((latest, True), (others, False)):
            found |= {topic.target: topic for topic in self._chosen(spark, some, is_latest=is_latest)}
        return list(found.values())

    def _chosen(self, spark: SparkContext, topics: Sequence[TopicPlan], *, is_latest: bool) -> Sequence[TopicPlan]:
        if not topics:
            return ()
        from archiver.spark.record_choice import choose_records  # noqa: PLC0415 - Spark SQL, which takes seconds

        return choose_records(
            spark,
            topics,
            replace(self._job.request, is_latest_per_key=is_latest),
            storage=self._job.storage,
            layout=self._archive.layout,
            restore_id=self._job.restore_id,
        )

    def _fill(self, spark: SparkContext, portions: Iterable[Sequence[TopicPlan]]) -> list[TaskReport]:
        """Fill some topics while the next ones are created: of a thousand topics that takes long.

        Few of the purged topics are deleted, or not refilled, at any time; none is deleted after another could not be filled.
        """
        running: dict[Future[list[TaskReport]], Sequence[RestoreTask]] = {}
        with workers(_PORTIONS_AT_ONCE, "fill") as pool:
            try:
                for topics in portions:
                    self._wait_for(running, _PORTIONS_AT_ONCE - 1)
                    if self._targets.purged_among(topics):
                        self._stop_after_failure(running)
                    self._notice(f"preparing {spell_count(len(topics), 'topic')} of the target")
                    at_once, senders = self._senders(spark)
                    check_others = partial(self._stop_after_failure, running)
                    prepare = partial(self._prepare, topics=topics, senders=senders, check_others=check_others)
                    tasks = self._brokers.ask(prepare)
                    self._notice(f"filling {spell_count(len(tasks), 'partition')}")
                    running[pool.submit(self._run, spark, tasks, at_once)] = tasks
            except Exception as error:  # a defect, too: running portions still become whole, and are reported
                if not running:
                    raise
                self._failure = as_ours(error)
            self._wait_for(running, 0)
            failures = [error for error in (one.exception() for one in running) if error is not None]
            if len(failures) == len(running) or not all(isinstance(error, Exception) for error in failures):
                raise failures[0]
            reports = [report for one, tasks in running.items() for report in self._reports_of(one, tasks)]
            return sorted(reports, key=lambda one: (one.target_topic, one.partition))

    def _wait_for(self, running: Iterable[Future[list[TaskReport]]], most: int) -> None:
        """Wait until at most so many portions are still being filled."""
        left = {one for one in running if not one.done()}
        while len(left) > most:
            left = wait(left, _TOLD_EVERY_S, FIRST_COMPLETED).not_done
            if len(left) > most:
                self._report_progress()

    def _stop_after_failure(self, running: Iterable[Future[list[TaskReport]]]) -> None:
        """Raise TargetError when a partition was not filled: the same cause would stop the next topics, which are not purged yet."""
        done = [one for one in running if one.done()]
        if any(one.exception() is not None or any(report.error for report in one.result()) for one in done):
            raise TargetError(
                "the topics that are left are not purged, for others could not be filled; mend that, and run the same command"
                " again"
            )

    def _reports_of(self, filling: Future[list[TaskReport]], tasks: Sequence[RestoreTask]) -> list[TaskReport]:
        """Return the result of a portion. If its Spark job failed, the state of its partitions is unknown."""
        error = filling.exception()
        if error is None:
            return filling.result()
        self._failure = self._failure or as_ours(error)
        text, exit_code = str(self._failure), self._failure.exit_code
        return [
            TaskReport(target_topic=task.target_topic, partition=task.partition, error=text, exit_code=exit_code)
            for task in tasks
        ]

    def _senders(self, spark: SparkContext) -> tuple[int | None, int]:
        """Return how many tasks of a portion may run at once (None: any number), and how many in all share the rate.

        On this machine both are its cores. A cluster may get more cores at any time, and fills two portions at once.
        """
        cores = spark.defaultParallelism
        if not self._job.request.rate_bytes or is_local(spark.master):
            return None, cores
        portions = 1 if self._has_one_portion else _PORTIONS_AT_ONCE
        at_once = max(1, cores // portions)
        return at_once, at_once * portions

    def _run(self, spark: SparkContext, tasks: Sequence[RestoreTask], at_once: int | None) -> list[TaskReport]:
        request = self._job.request
        if request.repartition is None:
            return run_on_spark(
                spark, tasks, run_task, _weight, None, lambda task: request.is_first(task.source_topic), at_once
            )
        done = repartition(spark, tasks, request.repartition, request.is_first, at_once)
        self._read_back += done.targets
        return done.sources

    def _report_progress(self) -> None:
        """Report the number of records on the target, by the ends of its logs."""
        topics = [target.plan for target in self._filling]
        numbers = {topic.target: range(topic.target_partitions) for topic in topics}
        wanted = [(name, number) for name, some in numbers.items() for number in some]
        with suppress(ArchiverError):  # the fill will report it
            ends, _ = self._brokers.ask(lambda client: client.offsets_each(wanted))
            before = sum(sum(target.first_offsets.values()) for target in self._filling)
            done = sum(end.high_watermark for end in ends.values()) - before
            total = sum(topic.records for topic in topics)
            self._notice(f"{done:,} of {spell_count(total, 'record')} on the target, {self._eta.spell(done, total)}")

    async def _prepare(
        self, client: KafkaClient, topics: Sequence[TopicPlan], senders: int, check_others: Callable[[], None]
    ) -> list[RestoreTask]:
        targets = await self._targets.prepare(client, [topic.target for topic in topics], check_others)
        self._filling += targets
        if self._has_one_portion:  # then fewer tasks share the rate, if only fewer run
            filled = sum(bool(one.parts) for target in targets for one in target.plan.partitions)
            senders = max(1, min(senders, filled))
        return [task for target in targets for task in self._tasks(target, senders)]

    def _tasks(self, target: Target, senders: int) -> list[RestoreTask]:
        job, request = self._job, self._job.request
        return [
            RestoreTask(
                restore_id=job.restore_id,
                storage=job.storage,
                kafka=job.kafka,
                source_topic=target.plan.source,
                source_life=target.plan.life,
                target_topic=target.plan.target,
                target_topic_id=target.topic_id,
                target_cluster_id=job.cluster_id,
                partition=partition.partition,
                parts=partition.planned_parts,
                selection=partition.selection,
                selection_digest=partition.selection_digest,
                wanted=wanted_records(partition),
                skips_damage=request.skips_damage,
                reads_again=request.reads_again,
                appends=target.plan.appends,
                first_offset=target.first_offsets.get(partition.partition, 0),
                batch_bytes=target.limits.records,
                sent_bytes=target.limits.sent,
                rate_bytes=request.rate_bytes and max(1, request.rate_bytes // senders),
            )
            for partition in target.plan.partitions
            if not partition.problem
        ]

    def _finish(self, reports: Sequence[TaskReport]) -> list[TopicReport]:
        """Set the archived configs of topics that are whole, and report all topics, also when the configs cannot be set now."""
        topics = sorted((target.plan for target in self._filling), key=lambda topic: topic.source)
        topic_ids = {target.plan.target: target.topic_id for target in self._filling}
        filled = filled_topics(topics, reports, self._read_back)
        whole = {name for name, one in filled.items() if one.is_whole}
        try:
            finishes = self._brokers.ask(
                lambda client: self._targets.finish(client, {name: topic_ids[name] for name in sorted(whole)})
            )
            finished = set(self._targets.finished(topic_ids))
        except ArchiverError as error:
            finishes, finished = dict.fromkeys(whole, Finish(is_done=False, refusal=error)), set()
        return [
            report_topic(
                filled[topic.target],
                finishes.get(topic.target, Finish()),
                self._job.request,
                cluster=self._job.kafka.for_tools(),
                is_finished=topic.target in finished,
                left_out_filling=self._targets.left_out(topic.target),
            )
            for topic in topics
        ]


def _weight(task: RestoreTask) -> int:
    return len(task.parts)


def _objects(topic: TopicPlan) -> int:
    return sum(len(partition.parts) for partition in topic.partitions)
