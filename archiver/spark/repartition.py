"""Restores into another number of partitions, by key: the steps for each topic (docs/decisions/0016-repartition.md)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pyspark import SparkContext

from archiver.archive.format.handle import patient_archive_of
from archiver.errors import StrangerError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProducerIdentity, init_producer_id
from archiver.process.output.text import spell_count
from archiver.process.running.workers import workers
from archiver.restore.fill.repartition_source import SourceReport, SourceTask, run_source, stream_of
from archiver.restore.fill.repartition_target import TargetTask, run_count, run_read_back
from archiver.restore.fill.sending import patiently
from archiver.restore.fill.strangers import advice_for
from archiver.restore.plan.claim_check import check_topic_claim
from archiver.restore.plan.claims import Contents, TopicClaim, TopicContents
from archiver.restore.plan.task import RestoreTask, TaskReport, failed, left_out
from archiver.restore.targets.lost_records import still_stands
from archiver.spark.session.tasks import run_on_spark

_TOPICS_AT_ONCE = 4
_IDS_AT_ONCE = 16
_PARTITIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Repartitioned:
    """The result for repartitioned topics: a report for each source partition, and for each target partition read back."""

    sources: list[TaskReport] = field(default_factory=list)
    targets: list[TaskReport] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Topic:
    tasks: Sequence[RestoreTask]  # one for each source partition
    claim: TopicClaim
    is_ours: bool  # no earlier run has written to it
    log_starts: Sequence[int] = ()  # of each target partition; empty: one has lost what an earlier run read back
    stands: bool = False  # the records read back then still exist

    @property
    def verified(self) -> TopicContents | None:
        """The records that an earlier run read back, if the target partitions still end there or later."""
        return self.claim.verified if self.log_starts else None

    @property
    def name(self) -> str:
        return self.tasks[0].target_topic

    def log_tasks(self, shares: Mapping[int, Sequence[Contents]]) -> list[TargetTask]:
        """Return a task for each target partition; `shares`: the records that each source partition dealt to them."""
        task, claim = self.tasks[0], self.claim
        noted = None if self.verified is None else self.verified.targets
        return [
            TargetTask(
                kafka=task.kafka,
                topic=task.target_topic,
                topic_id=task.target_topic_id,
                partition=target,
                start_offset=start_offset,
                advice=advice_for(task),
                source_topic=task.origin.topic,
                producer_ids={number: identity.producer_id for number, identity in claim.identities.items()},
                shares={number: some[target] for number, some in shares.items()},
                noted=None if noted is None else noted[target],
            )
            for target, start_offset in enumerate(claim.start_offsets)
        ]


def repartition(
    spark: SparkContext,
    tasks: Iterable[RestoreTask],
    partitions: int,
    is_first: Callable[[str], bool],
    most_at_once: int | None,
) -> Repartitioned:
    """Fill and read back topics that are not verified yet. Tasks are of source partitions, those of a topic together.

    `is_first`: whether a source is sent before the others; `most_at_once`: how many tasks send at once at most.
    """
    topics = [list(some) for _, some in groupby(tasks, lambda task: task.target_topic)]
    topics.sort(key=lambda some: not is_first(some[0].origin.topic))
    # Several jobs at once would have more senders than share the rate.
    with workers(1 if most_at_once else _TOPICS_AT_ONCE, "topics") as pool:
        found = list(pool.map(lambda some: _repartition(spark, some, partitions, most_at_once), topics))
    return Repartitioned(
        [one for some in found for one in some.sources], [one for some in found for one in some.targets]
    )


def _repartition(
    spark: SparkContext, tasks: Sequence[RestoreTask], partitions: int, most_at_once: int | None
) -> Repartitioned:
    """Fill and read back one topic. An error is this topic's: the others continue."""
    read_back: list[TaskReport] = []
    try:
        topic = asyncio.run(_claimed(tasks, partitions))  # 1. who writes
        if topic.verified is not None:
            return _report_verified(spark, topic, topic.verified)
        counts: list[Mapping[int, int]] = [{} for _ in topic.claim.start_offsets]
        if not topic.is_ours:  # 2. records of earlier runs on the target
            counted = run_on_spark(spark, topic.log_tasks({}), run_count, lambda _: 1)
            if failures := [one.failure for one in counted if one.failure is not None]:
                return Repartitioned(targets=failures)
            counts = [one.records for one in sorted(counted, key=lambda one: one.task.partition)]
        dealt = _deal(spark, topic, counts, most_at_once)  # 3. the rest
        shares = {number: one.shares for number, one in dealt.items() if not one.report.error}
        read_back = _read_back(spark, topic, shares)  # 4.
        sources = [dealt[number].report for number in sorted(dealt)]
        if any(report.error for report in (*sources, *read_back)):
            # Another run of this restore may have finished meanwhile, and the target be in use again.
            others = asyncio.run(_claimed(tasks, partitions))
            if others.verified is not None:
                return _report_verified(spark, others, others.verified)
        else:
            _note_verified(topic, sources, read_back)  # 5. from now on a rerun leaves it alone
    except Exception as error:  # noqa: BLE001 - also a defect
        sources = [failed(task.target_topic, task.partition, error, task.target_topic) for task in tasks]
    return Repartitioned(sources, read_back)


# --- 1. who writes


async def _claimed(tasks: Sequence[RestoreTask], partitions: int) -> _Topic:
    async with KafkaClient(tasks[0].kafka) as client:
        return await _claim(client, tasks, partitions)


async def _claim(client: KafkaClient, tasks: Sequence[RestoreTask], partitions: int) -> _Topic:
    """Take the claim of a topic, or put one; the second of two concurrent runs uses the first one's claim."""
    task = tasks[0]
    stream = stream_of(patient_archive_of(task.storage), task)
    claim = stream.latest(task.target_topic_id)
    if claim is not None:
        check_topic_claim(claim, tasks, partitions)
        found = await _taken_up(client, tasks, claim)
        is_lost = claim.verified is not None and found.verified is None
        return replace(found, claim=stream.forget_verified(claim)) if is_lost else found
    identities = await _identities(client, [one.partition for one in tasks])
    wanted = [(task.target_topic, number) for number in range(partitions)]
    offsets = await client.offsets(wanted)
    start_offsets = tuple(offsets[which].high_watermark for which in wanted)
    # Another run of this restore has put its claim before its first record: then the records are ours, and that claim holds.
    if any(start_offsets) and not task.mode.appends and stream.latest(task.target_topic_id) is None:
        raise StrangerError(
            f"someone else wrote {spell_count(sum(start_offsets), 'record')} to the target before this restore did; {advice_for(task)}"
        )
    ours = TopicClaim(
        target_cluster_id=task.target_cluster_id,
        target_topic_id=task.target_topic_id,
        start_offsets=start_offsets,
        identities=identities,
    )
    claim = stream.put(ours)
    check_topic_claim(claim, tasks, partitions)
    return _Topic(tasks, claim, is_ours=claim is ours)


async def _log_starts(client: KafkaClient, claim: TopicClaim, topic: str) -> Sequence[int]:
    """Return the log start of each target partition; empty if no run has read them back, or one has lost records since then."""
    ends = claim.verified_ends
    offsets = await client.offsets([(topic, number) for number in ends])
    found = [(offsets[topic, number], end) for number, end in ends.items()]
    return [] if any(one.high_watermark < end for one, end in found) else [one.log_start for one, _ in found]


async def _taken_up(client: KafkaClient, tasks: Sequence[RestoreTask], claim: TopicClaim) -> _Topic:
    """Return a topic that an earlier run has claimed, with the state of its target partitions, as far as known unread."""
    log_starts = await _log_starts(client, claim, tasks[0].target_topic)
    found = _Topic(tasks, claim, is_ours=False, log_starts=log_starts)
    return replace(found, stands=await _stands(client, found))


async def _stands(client: KafkaClient, topic: _Topic) -> bool:
    """Return whether the target partitions still have an earlier run's verified records. Reads only the last record of each."""
    if topic.verified is None:
        return False
    turn = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
    producer_ids = {one.producer_id for one in topic.claim.identities.values()}

    async def ask(task: TargetTask, share: Contents) -> bool:
        where = task.up_to(task.start_offset + share.records)
        async with turn:
            return await still_stands(client, where, topic.log_starts[task.partition], producer_ids, share.leader_epoch)

    asked = zip(topic.log_tasks({}), topic.verified.targets, strict=True)
    return all(await asyncio.gather(*(ask(task, share) for task, share in asked)))


async def _identities(client: KafkaClient, numbers: Sequence[int]) -> dict[int, ProducerIdentity]:
    turn = asyncio.Semaphore(_IDS_AT_ONCE)

    async def ask() -> ProducerIdentity:
        async with turn:
            return await patiently(lambda: init_producer_id(client))

    return dict(zip(numbers, await asyncio.gather(*(ask() for _ in numbers)), strict=True))


def _report_verified(spark: SparkContext, topic: _Topic, outcome: TopicContents) -> Repartitioned:
    """Report a topic as a run noted it when it was whole: its target may have grown since. It is read again if that is in doubt."""
    claim, reads_again = topic.claim, topic.tasks[0].mode.reads_again
    sources = [
        TaskReport(
            target_topic=topic.name,
            partition=task.partition,
            records=share.records,
            already_there=share.records,
            bytes=share.bytes,
            digest=share.digest,
            missing=tuple(left_out(task, claim.skipped)),
        )
        for task in topic.tasks
        for share in [outcome.sources[task.partition]]
    ]
    # Without a topic id the target may be another topic by now.
    if reads_again or not claim.target_topic_id or not topic.stands:
        return Repartitioned(sources, _read_back(spark, topic, {}))
    ends = claim.verified_ends
    targets = [
        TaskReport(
            target_topic=topic.name,
            partition=number,
            records=share.records,
            already_there=share.records,
            expired=max(0, min(topic.log_starts[number], ends[number]) - claim.start_offsets[number]),
            bytes=share.bytes,
            digest=share.digest,
        )
        for number, share in enumerate(outcome.targets)
    ]
    return Repartitioned(sources, targets)


# --- 3. the rest


def _deal(
    spark: SparkContext, topic: _Topic, counts: Sequence[Mapping[int, int]], most_at_once: int | None
) -> dict[int, SourceReport]:
    tasks = [
        SourceTask(
            source=task,
            identity=identity,
            already_there=tuple(records.get(identity.producer_id, 0) for records in counts),
        )
        for task in topic.tasks
        for identity in [topic.claim.identities[task.partition]]
    ]
    dealt = run_on_spark(
        spark, tasks, run_source, lambda task: len(task.source.parts), None, lambda _: False, most_at_once
    )
    return {one.report.partition: one for one in dealt}


# --- 4. read back


def _read_back(spark: SparkContext, topic: _Topic, shares: Mapping[int, Sequence[Contents]]) -> list[TaskReport]:
    reports = run_on_spark(spark, topic.log_tasks(shares), run_read_back, _records_of)
    return sorted(reports, key=lambda one: one.partition)


def _records_of(task: TargetTask) -> int:
    return sum(share.records for share in task.shares.values())


# --- 5. the result


def _note_verified(topic: _Topic, sources: Sequence[TaskReport], read_back: Sequence[TaskReport]) -> None:
    task = topic.tasks[0]
    outcome = TopicContents(
        sources={one.partition: Contents(one.records, one.digest, one.bytes) for one in sources},
        targets=tuple(Contents(one.records, one.digest, one.bytes, one.leader_epoch) for one in read_back),
    )
    stream_of(patient_archive_of(task.storage), task).note_verified(topic.claim.target_topic_id, outcome)
