"""The restore as a Spark job: create, fill one partition a task, verify, finish."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from pyspark import SparkContext

from archiver.config import StorageConfig
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings
from archiver.layout import Layout
from archiver.observe import Pace
from archiver.restore import RestorePlan, TopicPlan
from archiver.spark.claim import RestoreNotes
from archiver.spark.targets import Targets
from archiver.spark.task import RestoreTask, TaskReport, run_task
from archiver.spark.tasks import run_on_spark
from archiver.store import open_store
from archiver.workers import workers

Value = TypeVar("Value")

_WAVES_AT_ONCE = 2
_TOLD_EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """What became of one topic."""

    source: str
    target: str
    partitions: tuple[TaskReport, ...]
    retention_command: str  # empty when the archive knows no retention of its own
    is_finished: bool  # False: its configs are still those of the filling
    left_out_configs: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def errors(self) -> tuple[TaskReport, ...]:
        return tuple(partition for partition in self.partitions if partition.error)


def run_restore(
    plans: Iterable[RestorePlan],
    start_spark: Callable[[], SparkContext],
    *,
    restore_id: str,
    storage: StorageConfig,
    kafka: KafkaSettings,
    notice: Callable[[str], None] = lambda _: None,
) -> tuple[list[TopicReport], float]:
    """Carry out plans; run again with the same id, it goes on where the target ends.

    Each plan is asked for when the one before it is being filled. Returns a report for each topic, and the seconds that
    creating, filling and reading back took.
    """
    return _Restore(restore_id, storage, kafka, notice).run(plans, start_spark)


class _Restore:
    def __init__(
        self, restore_id: str, storage: StorageConfig, kafka: KafkaSettings, notice: Callable[[str], None]
    ) -> None:
        self._restore_id = restore_id
        self._storage = storage
        self._kafka = kafka
        self._notice = notice
        store, prefix = open_store(storage)
        self._targets = Targets(kafka, RestoreNotes(store, Layout(prefix), restore_id))
        self._topics: list[TopicPlan] = []  # the largest of each wave first
        self._topic_ids: dict[str, str] = {}  # of the targets
        self._pace = Pace()

    def run(
        self, plans: Iterable[RestorePlan], start_spark: Callable[[], SparkContext]
    ) -> tuple[list[TopicReport], float]:
        # 1. refuse what cannot go well, before anything is changed for it
        waves = filter(None, map(self._check, plans))
        first = next(waves, None)
        if first is None:
            raise UsageError(
                "the archive has neither records nor facts of these topics; `archiver ls` shows what it has"
            )
        self._notice("starting Spark")
        spark = start_spark()
        started_s = time.monotonic()
        reports = self._fill(spark, chain([first], waves))  # 2. create the topics, fill and verify them
        filling_s = time.monotonic() - started_s
        self._notice("finishing the target")
        return self._ask(lambda client: self._finish(client, reports)), filling_s  # 3. only then the archived configs

    def _ask(self, step: Callable[[KafkaClient], Awaitable[Value]]) -> Value:
        async def run() -> Value:
            async with KafkaClient(self._kafka) as client:
                return await step(client)

        return asyncio.run(run())

    def _check(self, plan: RestorePlan) -> list[TopicPlan]:
        self._ask(lambda client: self._targets.check(client, plan.topics))
        return sorted(plan.topics, key=_objects, reverse=True)

    def _fill(self, spark: SparkContext, waves: Iterable[Sequence[TopicPlan]]) -> list[TaskReport]:
        """Fill a wave while the next one is planned and created: of a thousand topics that takes long."""
        running: list[Future[list[TaskReport]]] = []
        with workers(_WAVES_AT_ONCE, "fill") as pool:
            try:
                for topics in waves:
                    self._notice(f"preparing {len(topics)} topics of the target")
                    tasks = self._ask(partial(self._prepare, topics=topics))
                    self._notice(f"filling {len(tasks)} partitions")
                    running.append(pool.submit(run_on_spark, spark, tasks, run_task, _weight))
            except ArchiverError:
                wait(running)  # what is being filled is whole then, and the same command goes on behind it
                raise
            while wait(running, _TOLD_EVERY_S).not_done:
                self._tell()
            return sorted(chain(*(one.result() for one in running)), key=lambda one: (one.target_topic, one.partition))

    def _tell(self) -> None:
        """Tell how far it is: what the target's logs hold, whoever wrote it, is the truth."""
        numbers = {topic.target: range(len(topic.partitions)) for topic in self._topics}
        wanted = [(name, number) for name, some in numbers.items() for number in some]
        with suppress(ArchiverError):  # whoever fills will say what is wrong
            ends, _ = self._ask(lambda client: client.offsets_known(wanted))
            done = sum(end.high_watermark for end in ends.values())
            total = sum(topic.records for topic in self._topics)
            self._notice(f"{done:,} of {total:,} records on the target, {self._pace.tell(done, total)}")

    async def _prepare(self, client: KafkaClient, topics: Sequence[TopicPlan]) -> list[RestoreTask]:
        cluster_id = await client.cluster_id()
        self._topics += topics
        self._topic_ids |= await self._targets.prepare(client, [topic.target for topic in topics])
        return [task for topic in topics for task in self._tasks(topic, cluster_id)]

    def _tasks(self, topic: TopicPlan, cluster_id: str) -> list[RestoreTask]:
        return [
            RestoreTask(
                restore_id=self._restore_id,
                storage=self._storage,
                kafka=self._kafka,
                source_topic=topic.source,
                target_topic=topic.target,
                target_topic_id=self._topic_ids[topic.target],
                target_cluster_id=cluster_id,
                partition=partition.partition,
                parts=partition.parts,
                selection_digest=partition.selection_digest,
            )
            for partition in topic.partitions
            if not partition.problem
        ]

    async def _finish(self, client: KafkaClient, reports: Sequence[TaskReport]) -> list[TopicReport]:
        topics = sorted(self._topics, key=lambda topic: topic.source)
        by_target: dict[str, list[TaskReport]] = {topic.target: [] for topic in topics}
        for report in reports:
            by_target[report.target_topic].append(report)
        for topic in topics:
            by_target[topic.target] += _refused(topic)
        whole = {name for name, mine in by_target.items() if not any(report.error for report in mine)}
        left_out = await self._targets.finish(client, {name: self._topic_ids[name] for name in sorted(whole)})
        return [
            TopicReport(
                source=topic.source,
                target=topic.target,
                partitions=tuple(by_target[topic.target]),
                retention_command=self._retention_command(topic) if topic.target in whole else "",
                is_finished=topic.target in whole,
                left_out_configs=left_out.get(topic.target, ()),
            )
            for topic in topics
        ]

    def _retention_command(self, topic: TopicPlan) -> str:
        if not topic.archived_retention:
            return ""
        configs = ",".join(f"{name}={value}" for name, value in sorted(topic.archived_retention.items()))
        return (
            f"kafka-configs.sh --bootstrap-server {self._kafka.bootstrap_servers} --entity-type topics"
            f" --entity-name {topic.target} --alter --add-config {configs}"
        )


def _weight(task: RestoreTask) -> int:
    return len(task.parts)


def _objects(topic: TopicPlan) -> int:
    return sum(len(partition.parts) for partition in topic.partitions)


def _refused(topic: TopicPlan) -> list[TaskReport]:
    return [
        TaskReport(
            target_topic=topic.target,
            partition=partition.partition,
            error=partition.problem,
            exit_code=NotWholeError.exit_code,
        )
        for partition in topic.partitions
        if partition.problem
    ]
