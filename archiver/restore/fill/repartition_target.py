"""The Spark tasks for one target partition of a repartition: count each source's records there, and compare them with the sent ones.

Needs no Spark; the input of a task is plain and picklable.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.tally import Tally
from archiver.errors import ArchiverError, KafkaTemporaryError, NotWholeError, StrangerError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.log_reader import LogRange, LogStartError, count_records, read_log_and_writers
from archiver.process.output.text import spell_count
from archiver.restore.fill.strangers import changed_since, deleted_since
from archiver.restore.plan.claims import Contents
from archiver.restore.plan.task import TaskReport, failed


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTask:
    """A target partition, from the first offset of the restore on."""

    kafka: KafkaSettings
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    advice: str  # on a target that someone else wrote to
    source_topic: str
    producer_ids: Mapping[int, int]  # by source partition
    shares: Mapping[int, Contents]  # by source partition, without those that could not be dealt out whole
    noted: Contents | None = None  # the contents that an earlier run read back; later records are not ours

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"

    def up_to(self, end_offset: int) -> LogRange:
        return LogRange(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            start=self.start_offset,
            end=end_offset,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCount:
    """How many records each producer has in a target partition."""

    task: TargetTask
    records: Mapping[int, int]
    failure: TaskReport | None = None


def run_count(task: TargetTask) -> TargetCount:
    """Count how many records each producer has in a target partition, by the headers of batches: brokers may have forgotten producers."""
    try:
        return TargetCount(task=task, records=asyncio.run(_count(task)))
    except Exception as error:  # noqa: BLE001 - also a defect: the other partitions continue
        return TargetCount(task=task, records={}, failure=failed(task.topic, task.partition, error, task.where))


def run_read_back(task: TargetTask) -> TaskReport:
    """Compare a target partition with its expected records. Errors are returned as a report."""
    try:
        return asyncio.run(_read_back(task))
    except Exception as error:  # noqa: BLE001 - also a defect: the other partitions continue
        return failed(task.topic, task.partition, error, task.where)


async def _count(task: TargetTask) -> dict[int, int]:
    async with KafkaClient(task.kafka) as client:
        end_offset = await _end(client, task)
        counts = await count_records(client, task.up_to(end_offset))
        if counts.keys() - set(task.producer_ids.values()):
            # Before more is appended: reading finds the foreign record, and raises.
            def refuse(frame: Frame, writers: Longs) -> None:
                _each(frame, writers, task)

            await read_log_and_writers(client, task.up_to(end_offset), refuse)
    return counts


async def _end(client: KafkaClient, task: TargetTask) -> int:
    offsets = (await client.offsets([(task.topic, task.partition)]))[task.topic, task.partition]
    if offsets.high_watermark < task.start_offset:
        raise StrangerError(
            f"the target ends at {offsets.high_watermark}, before this restore began, at {task.start_offset}; {task.advice}"
        )
    return offsets.high_watermark


async def _read_back(task: TargetTask) -> TaskReport:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    whole = Tally()
    found = {producer_id: Tally() for producer_id in task.producer_ids.values()}

    def take(frame: Frame, writers: Longs) -> None:
        for producer_id, start, stop in _each(frame, writers, task):
            found[producer_id].add(frame, start, stop)
        whole.add(frame)

    async with KafkaClient(task.kafka) as client:
        end_offset = await _end(client, task) if task.noted is None else task.start_offset + task.noted.records
        restored = task.up_to(end_offset)
        try:
            leader_epoch = await read_log_and_writers(client, restored, take)
        except LogStartError as error:
            raise await deleted_since(client, restored, "" if task.noted is not None else task.advice) from error
    _compare(found, task)
    held = f"offsets {task.start_offset}-{end_offset - 1} hold {spell_count(whole.records, 'record')}"
    if task.noted is not None and (whole.records, whole.digest) != (task.noted.records, task.noted.digest):
        raise changed_since(f"{held} of digest {whole.digest:016x}", task.noted.records, task.noted.digest)
    if whole.records != end_offset - task.start_offset:
        raise StrangerError(f"{held}: someone else ended a transaction there, or deleted some; {task.advice}")
    return TaskReport(
        target_topic=task.topic,
        partition=task.partition,
        records=whole.records,
        already_there=0 if task.noted is None else whole.records,
        bytes=whole.payload_bytes,
        digest=whole.digest,
        leader_epoch=leader_epoch,
        verify_seconds=loop.time() - started_s,
    )


def _each(frame: Frame, writers: Longs, task: TargetTask) -> list[tuple[int, int, int]]:
    """Return runs of a frame's rows as (producer, first row, end row). Raises StrangerError for a stranger's rows."""
    ours = set(task.producer_ids.values())
    stops = np.searchsorted(frame.column(Column.OFFSET), writers[0], side="right").tolist()
    runs, start = list[tuple[int, int, int]](), 0
    for stop, producer_id in zip(stops, writers[1].tolist(), strict=True):
        if stop > start and producer_id not in ours:
            raise StrangerError(_stranger(int(frame.table[Column.OFFSET, start]), producer_id, task))
        runs += [(producer_id, start, stop)] if stop > start else []
        start = stop
    return runs


def _stranger(offset: int, producer_id: int, task: TargetTask) -> str:
    who = "a producer without an id" if producer_id < 0 else f"producer {producer_id}"
    return f"someone else wrote to the target: the record at offset {offset} is of {who}; {task.advice}"


def _compare(found: Mapping[int, Tally], task: TargetTask) -> None:
    found_of = {number: found[task.producer_ids[number]] for number in task.shares}
    differences = (_difference(found_of[number], share, number, task) for number, share in task.shares.items())
    errors = [error for error in differences if error is not None]
    if errors:
        # Errors that a rerun cannot fix come first.
        raise max(errors, key=lambda error: isinstance(error, NotWholeError))


def _difference(found: Tally, share: Contents, number: int, task: TargetTask) -> ArchiverError | None:
    if (found.records, found.digest) == (share.records, share.digest):
        return None
    source = f"{task.source_topic}-{number}"
    if found.records < share.records:
        return KafkaTemporaryError(
            f"the target holds {found.records:,} of the {spell_count(share.records, 'record')} of {source}: did a leader change lose some?"
            " Run the same command again, it goes on"
        )
    return NotWholeError(
        f"the target holds {spell_count(found.records, 'record')} of {source}, of digest {found.digest:016x}, the archive"
        f" {share.records} of {share.digest:016x}; {task.advice}"
    )
