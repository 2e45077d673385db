"""The restore as a Spark job: create, fill one partition a task, verify, finish."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from archiver.config import StorageConfig
from archiver.errors import KafkaError, NotWholeError, TemporaryError
from archiver.kafka.admin import KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicDescription
from archiver.kafka.configs import topic_configs
from archiver.kafka.settings import KafkaSettings
from archiver.layout import Layout
from archiver.restore import RETENTION_KEYS, RestorePlan, TopicPlan
from archiver.spark.claim import Claim, ClaimStream, FinishedStream
from archiver.spark.session import open_context
from archiver.spark.task import RestoreTask, TaskReport, run_task
from archiver.store import open_store

_SLICES_PER_CORE = 16


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
    plan: RestorePlan,
    *,
    restore_id: str,
    storage: StorageConfig,
    kafka: KafkaSettings,
    notice: Callable[[str], None] = lambda _: None,
) -> tuple[list[TopicReport], float]:
    """Carry out a plan; run again with the same id, it goes on where the target ends.

    Returns a report for each topic, and the seconds that filling and reading back took.
    """
    return _Restore(plan, restore_id, storage, kafka, notice).run()


class _Restore:
    def __init__(
        self,
        plan: RestorePlan,
        restore_id: str,
        storage: StorageConfig,
        kafka: KafkaSettings,
        notice: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._restore_id = restore_id
        self._storage = storage
        self._kafka = kafka
        self._notice = notice
        self._admin = KafkaAdmin(kafka)
        self._store, prefix = open_store(storage)
        self._layout = Layout(prefix)
        self._topic_ids: dict[str, str] = {}  # of the targets

    def run(self) -> tuple[list[TopicReport], float]:
        self._notice("looking at the target")
        asyncio.run(self._check())  # 1. refuse what cannot go well, before anything is changed
        self._notice("starting Spark")
        with open_context(f"archiver restore {self._restore_id}") as spark:
            tasks = asyncio.run(self._prepare())  # 2. create the topics, or take them up again
            self._notice(f"filling {len(tasks)} partitions")
            started_s = time.monotonic()
            reports = run_on_spark(spark, tasks)  # 3. fill and verify, one partition a task
            filling_s = time.monotonic() - started_s
        return asyncio.run(self._finish(reports)), filling_s  # 4. only then the archived configs

    async def _check(self) -> None:
        async with KafkaClient(self._kafka) as client:
            found = await client.describe_topics([topic.target for topic in self._plan.topics])
            for topic in self._plan.topics:
                if topic.target in found:
                    await self._check_target(client, topic, found[topic.target])

    async def _check_target(self, client: KafkaClient, topic: TopicPlan, described: TopicDescription) -> None:
        if len(described.partitions) != len(topic.partitions):
            raise KafkaError(
                f"target topic {topic.target} has {len(described.partitions)} partitions, the archive"
                f" {len(topic.partitions)}; restore under another name with --rename {topic.source}=NEW"
            )
        used = await _partitions_with_records(client, topic)
        # In this order: who writes records has put its claim before.
        if used and not any(self._claims(topic, described)):
            raise KafkaError(
                f"target topic {topic.target} is not empty (partition {', '.join(map(str, used[:5]))});"
                f" restore under another name with --rename {topic.source}=NEW, or delete it if nobody needs it"
            )

    async def _prepare(self) -> list[RestoreTask]:
        async with KafkaClient(self._kafka) as client:
            cluster_id = await client.cluster_id()
            tasks: list[RestoreTask] = []
            for topic in self._plan.topics:
                described = (await client.describe_topics([topic.target])).get(topic.target)
                if described is None:
                    described = await self._create(client, topic)
                self._topic_ids[topic.target] = described.topic_id
                await self._check_target(client, topic, described)
                if not all(claim is not None and claim.verified for claim in self._claims(topic, described)):
                    await self._set_fill_configs(client, topic)
                tasks.extend(self._tasks(topic, described, cluster_id))
            return tasks

    async def _set_fill_configs(self, client: KafkaClient, topic: TopicPlan) -> None:
        known = (await topic_configs(client, topic.target)).effective
        fill = {name: value for name, value in topic.fill_configs.items() if name in known}
        await self._admin.alter_topic_configs(topic.target, set_to=fill)

    async def _create(self, client: KafkaClient, topic: TopicPlan) -> TopicDescription:
        """Create a target; when another run of this restore does the same right now, theirs is as good."""
        # Names that this broker may not have come later, once it has told which it has.
        first = {name: topic.fill_configs[name] for name in ("cleanup.policy", *RETENTION_KEYS)}
        try:
            await self._admin.create_topic(topic.target, partitions=len(topic.partitions), configs=first)
        except KafkaError:
            described = (await client.describe_topics([topic.target])).get(topic.target)
            if described is None:
                raise
            return described
        return (await client.describe_topics([topic.target]))[topic.target]

    def _claims(self, topic: TopicPlan, described: TopicDescription) -> list[Claim | None]:
        """Read what earlier runs of this very restore have claimed of this very topic."""
        return [
            ClaimStream(self._store, self._layout, self._restore_id, topic.target, partition.partition).latest(
                described.topic_id
            )
            for partition in topic.partitions
        ]

    def _tasks(self, topic: TopicPlan, described: TopicDescription, cluster_id: str) -> list[RestoreTask]:
        return [
            RestoreTask(
                restore_id=self._restore_id,
                storage=self._storage,
                kafka=self._kafka,
                source_topic=topic.source,
                target_topic=topic.target,
                target_topic_id=described.topic_id,
                target_cluster_id=cluster_id,
                partition=partition.partition,
                parts=partition.parts,
                selection_digest=partition.selection_digest,
            )
            for partition in topic.partitions
            if not partition.problem
        ]

    async def _finish(self, reports: Sequence[TaskReport]) -> list[TopicReport]:
        topics: list[TopicReport] = []
        for topic in self._plan.topics:
            mine = (*(report for report in reports if report.target_topic == topic.target), *_refused(topic))
            whole = not any(report.error for report in mine)
            left_out = await self._finish_topic(topic) if whole else ()
            topics.append(
                TopicReport(
                    source=topic.source,
                    target=topic.target,
                    partitions=mine,
                    retention_command=self._retention_command(topic) if whole else "",
                    is_finished=whole,
                    left_out_configs=left_out,
                )
            )
        return topics

    async def _finish_topic(self, topic: TopicPlan) -> tuple[str, ...]:
        """Set the archived configs, once: what was changed after that is the user's. Returns those that were left out."""
        finished = FinishedStream(self._store, self._layout, self._restore_id, topic.target)
        if finished.holds(self._topic_ids[topic.target]):
            return ()
        left_out = await self._set_final_configs(topic)
        finished.note(self._topic_ids[topic.target])
        return left_out

    async def _set_final_configs(self, topic: TopicPlan) -> tuple[str, ...]:
        """Set what was archived, and take back what only the fill needed; retention stays unlimited."""
        async with KafkaClient(self._kafka) as client:
            known = (await topic_configs(client, topic.target)).effective
        final = {name: value for name, value in topic.final_configs.items() if name in known}
        taken_back = [
            name for name in topic.fill_configs if name in known and name not in final and name not in RETENTION_KEYS
        ]
        await self._admin.alter_topic_configs(topic.target, set_to=final, delete=taken_back)
        return tuple(sorted(topic.final_configs.keys() - final.keys()))

    def _retention_command(self, topic: TopicPlan) -> str:
        if not topic.archived_retention:
            return ""
        configs = ",".join(f"{name}={value}" for name, value in sorted(topic.archived_retention.items()))
        return (
            f"kafka-configs.sh --bootstrap-server {self._kafka.bootstrap_servers} --entity-type topics"
            f" --entity-name {topic.target} --alter --add-config {configs}"
        )


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


async def _partitions_with_records(client: KafkaClient, topic: TopicPlan) -> list[int]:
    offsets = await client.offsets([(topic.target, partition.partition) for partition in topic.partitions])
    return sorted(number for (_, number), found in offsets.items() if found.high_watermark > 0)


def run_on_spark(spark: SparkContext, tasks: Sequence[RestoreTask]) -> list[TaskReport]:
    """Run the tasks, the largest first, so that no long one starts last."""
    if not tasks:
        return []

    def run_all(part: Iterable[Sequence[RestoreTask]]) -> Iterable[TaskReport]:
        return [run_task(task) for tasks in part for task in tasks]

    ordered = sorted(tasks, key=lambda task: len(task.parts), reverse=True)
    # Many small partitions share a Spark task, of which each has a price; dealt out in turn, so that large ones do not.
    slices = min(len(ordered), _SLICES_PER_CORE * spark.defaultParallelism)
    dealt = [ordered[start::slices] for start in range(slices)]
    try:
        reports: list[TaskReport] = spark.parallelize(dealt, slices).mapPartitions(run_all).collect()
    except Py4JJavaError as error:
        reason = str(error.java_exception).strip().partition("\n")[0]
        raise TemporaryError(f"Spark lost its workers: {reason}; run the same command again, it goes on") from error
    return sorted(reports, key=lambda report: (report.target_topic, report.partition))
