"""Fills the topics of a restore by a Spark job: creates them in portions, fills one partition a task, and finishes them."""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark import SparkContext

from archiver.config.model import StorageConfig
from archiver.errors import ArchiverError, TargetError
from archiver.kafka.brokers.client_thread import ClientThread
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.process.output.progress import Eta
from archiver.process.output.text import spell_count
from archiver.process.running.workers import workers
from archiver.restore.fill.partition_restore import run_task
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import wanted_records
from archiver.restore.plan.task import FillMode, Origin, RestoreTask, SendLimits, TaskReport
from archiver.restore.report.restore_report import RestoreResult, TopicReport
from archiver.restore.report.topic_reports import report_filled, retention_command
from archiver.restore.targets.target_configs import Finish
from archiver.restore.targets.targets import Target, Targets
from archiver.spark.repartition import repartition
from archiver.spark.session.spark_submit import is_local
from archiver.spark.session.tasks import run_on_spark

_TOLD_EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreJob:
    """One run of a restore."""

    restore_id: str
    request: RestoreRequest
    storage: StorageConfig
    kafka: KafkaSettings
    cluster_id: str  # of the target


class Filling:
    """Fills the targets of a restore, portion by portion, and finishes those that are whole."""

    def __init__(
        self,
        job: RestoreJob,
        spark: SparkContext,
        targets: Targets,
        brokers: ClientThread,
        notice: Callable[[str], None],
    ) -> None:
        self._job = job
        self._spark = spark
        self._targets = targets
        self._brokers = brokers  # of the target
        self._notice = notice
        self._filling: list[Target] = []
        self._running: list[RestoreTask] = []  # of the last portion
        self._read_back: list[TaskReport] = []  # of target partitions, where those are not the archive's
        self._eta = Eta("records")
        self._failure: ArchiverError | None = None

    def run(self, topics: Sequence[TopicPlan], names: Collection[str]) -> RestoreResult:
        """Fill and finish topics; `names`: all targets. An error is raised if nothing was filled before it."""
        started_s = time.monotonic()
        reports: list[TaskReport] = []
        for number, portion in enumerate(self._targets.portions(topics)):
            if any(report.error for report in (*reports, *self._read_back)):
                self._failure = TargetError(
                    "the topics that are left are not purged, for others could not be filled; mend that, and run the same"
                    " command again"
                )
                break
            try:
                reports += self._fill(portion)
            except Exception as error:  # a defect, too: what was filled before is finished, and reported
                if not number:
                    raise
                self._failure = as_ours(error)
                reports += self._unknown(self._failure)
                break
        filling_s = time.monotonic() - started_s
        self._notice("finishing the target")
        finished = self._finish(reports)  # only then the archived configs
        whole = sum(not report.error for report in reports)
        self._notice(f"{whole:,} of {spell_count(len(reports), 'partition')} filled and read back")
        begun = {topic.target for topic in finished}
        return RestoreResult(
            restore_id=self._job.restore_id,
            filling_seconds=round(filling_s, 3),
            topics=finished,
            failure=self._failure,
            not_begun=[name for name in names if name not in begun],
        )

    def _fill(self, topics: Sequence[TopicPlan]) -> list[TaskReport]:
        """Purge and create the topics of a portion, then fill them and read them back."""
        self._notice(f"preparing {spell_count(len(topics), 'topic')} of the target")
        self._running = []
        targets = self._brokers.ask(lambda client: self._targets.prepare(client, [one.target for one in topics]))
        self._filling += targets
        self._running = self._tasks(targets)
        self._notice(f"filling {spell_count(len(self._running), 'partition')}")
        with workers(1, "fill") as pool:
            filling = pool.submit(self._run, self._running)
            while wait([filling], _TOLD_EVERY_S).not_done:
                self._report_progress()
            return filling.result()

    def _unknown(self, failure: ArchiverError) -> list[TaskReport]:
        """Report the partitions that were being filled when the Spark job failed: their state is unknown."""
        return [
            TaskReport(
                target_topic=task.target_topic,
                partition=task.partition,
                error=str(failure),
                exit_code=failure.exit_code,
            )
            for task in self._running
        ]

    def _tasks(self, targets: Sequence[Target]) -> list[RestoreTask]:
        job, request = self._job, self._job.request
        filled = sum(bool(one.parts) for target in targets for one in target.plan.partitions)
        senders = max(1, min(self._spark.defaultParallelism, filled))  # share the rate
        return [
            RestoreTask(
                restore_id=job.restore_id,
                storage=job.storage,
                kafka=job.kafka,
                origin=Origin(target.plan.source, target.plan.life),
                target_topic=target.plan.target,
                target_topic_id=target.topic_id,
                target_cluster_id=job.cluster_id,
                partition=partition.partition,
                parts=partition.planned_parts,
                selection=partition.selection,
                selection_digest=partition.selection_digest,
                wanted=wanted_records(partition),
                mode=FillMode(
                    skips_damage=request.skips_damage,
                    reads_again=request.reads_again,
                    appends=target.plan.appends,
                ),
                first_offset=target.first_offsets.get(partition.partition, 0),
                limits=SendLimits(
                    batch_bytes=target.limits.records,
                    sent_bytes=target.limits.sent,
                    rate_bytes=request.rate_bytes and max(1, request.rate_bytes // senders),
                ),
            )
            for target in targets
            for partition in target.plan.partitions
            if not partition.problem
        ]

    def _run(self, tasks: Sequence[RestoreTask]) -> list[TaskReport]:
        request, spark = self._job.request, self._spark
        # A cluster may get more cores at any time, and the rate is shared by those that it had.
        at_once = spark.defaultParallelism if request.rate_bytes and not is_local(spark.master) else None
        if request.repartition is None:
            return run_on_spark(
                spark, tasks, run_task, _weight, None, lambda task: request.is_first(task.origin.topic), at_once
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

    def _finish(self, reports: Sequence[TaskReport]) -> list[TopicReport]:
        """Set the archived configs of topics that are whole, and report all topics, also when the configs cannot be set now."""
        plans = {target.plan.target: target.plan for target in self._filling}
        topic_ids = {target.plan.target: target.topic_id for target in self._filling}
        request, cluster = self._job.request, self._job.kafka.for_tools()
        topics = report_filled(plans.values(), reports, self._read_back, request)
        whole = {topic.target: topic_ids[topic.target] for topic in topics if not topic.errors}
        try:
            finishes = self._brokers.ask(lambda client: self._targets.finish(client, dict(sorted(whole.items()))))
            finished = set(self._targets.finished(topic_ids))
        except ArchiverError as error:
            finishes, finished = dict.fromkeys(whole, Finish(is_done=False, refusal=error)), set()
        found = []
        for topic in sorted(topics, key=lambda topic: topic.source):
            name, is_finished = topic.target, topic.target in finished
            command = (
                retention_command(plans[name], request.retention, cluster) if is_finished and name in whole else ""
            )
            told = replace(topic, is_finished=is_finished, retention_command=command)
            finish = finishes.get(name, told.finish)
            found.append(replace(told, finish=finish, left_out_filling=self._targets.left_out(name)))
        return found


def _weight(task: RestoreTask) -> int:
    return len(task.parts)
