"""Where groups go on in one target partition that several sources were dealt into: by the headers of its batches.

Needs no Spark; what a task is given is plain and picklable.
"""

import asyncio
from dataclasses import dataclass

import numpy as np

from archiver.codec.frame import Longs
from archiver.codec.kernels import batches as batch_kernels
from archiver.errors import KafkaTemporaryError, NotWholeError
from archiver.groups.approximation import Approximation, DealtLog, approximate
from archiver.kafka.client import KafkaClient
from archiver.kafka.log_reader import LogRange, LogStartError, read_heads
from archiver.kafka.settings import KafkaSettings
from archiver.process.columns import Numbers
from archiver.process.text import spell_count
from archiver.restore.task import TaskReport, failed

_ADVICE = (
    "nobody can tell from it where groups stood: for positions in what was restored, restore under another name with"
    " --rename and another --id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtLogTask:
    """A target partition, who wrote it, and what groups had read of each source."""

    kafka: KafkaSettings
    topic: str
    topic_id: str
    partition: int
    start: int  # of what was restored
    end: int  # behind it; what came later is of others
    source_topic: str
    sources: tuple[int, ...]  # partitions of the source
    producer_ids: tuple[int, ...]  # of each of them
    dealt: Numbers  # by source: records that it has here
    read: Numbers  # [group, source]: how many of those each group had read

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"

    def refusal(self, what: str) -> NotWholeError:
        """Make the error for a partition that does not hold any more what was dealt to it."""
        return NotWholeError(f"the target is not what was verified: {what}. So {_ADVICE}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtLogReport:
    """Where each group goes on in a target partition; None when that could not be found out."""

    topic: str
    partition: int
    positions: Approximation | None
    failure: TaskReport | None = None


def run_dealt_log(task: DealtLogTask) -> DealtLogReport:
    """Find where groups go on in a target partition. Errors come back as a report."""
    try:
        positions = asyncio.run(_locate(task))
    except Exception as error:  # noqa: BLE001 - also a defect: the partitions beside this one go on all the same
        failure = failed(task.topic, task.partition, error, task.where)
        return DealtLogReport(topic=task.topic, partition=task.partition, positions=None, failure=failure)
    return DealtLogReport(topic=task.topic, partition=task.partition, positions=positions)


async def _locate(task: DealtLogTask) -> Approximation:
    if task.dealt.sum() != task.end - task.start:
        dealt = spell_count(int(task.dealt.sum()), "record")
        raise task.refusal(f"the archive deals {dealt} to it, and offsets {task.start}-{task.end - 1} were verified")
    which = task.topic, task.partition
    async with KafkaClient(task.kafka) as client:
        bounds = (await client.offsets([which]))[which]
        if bounds.high_watermark < task.end:
            raise task.refusal(f"it ends at offset {bounds.high_watermark}, and was verified up to {task.end}")
        batches = LogBatches(task, bounds.log_start)
        try:
            await read_heads(client, batches.wanted, batches.add)
        except LogStartError as error:
            raise KafkaTemporaryError(
                f"the brokers delete records while they are read ({error}); run the same command again"
            ) from error
    return approximate(batches.log(), bounds.log_start, task.dealt.astype(np.int64), task.read.astype(np.int64))


class LogBatches:
    """The batches of what was restored to a partition. Nothing of their headers is believed that the others, or the claim, do not bear out."""

    def __init__(self, task: DealtLogTask, log_start: int) -> None:
        self._task = task
        self._is_whole = log_start <= task.start
        self._first = self._next = min(max(log_start, task.start), task.end)
        self._ids = np.sort(np.array(task.producer_ids, np.int64))
        self._places = np.argsort(np.array(task.producer_ids, np.int64))
        self._ends: list[Longs] = []
        self._sources: list[Longs] = []

    @property
    def wanted(self) -> LogRange:
        task = self._task
        return LogRange(
            topic=task.topic, topic_id=task.topic_id, partition=task.partition, start=self._first, end=task.end
        )

    def add(self, batches: Longs) -> None:
        """Take the next batches: all of them ours, one behind the other, and with a record for each offset."""
        if not batches.shape[1]:
            return
        columns = (batch_kernels.BASE_OFFSET, batch_kernels.LAST_OFFSET, batch_kernels.COUNT, batch_kernels.PRODUCER_ID)
        bases, lasts, counts, producers = (batches[column].copy() for column in columns)
        if not self._ends and self._task.start <= bases[0] <= self._first:
            self._first = self._next = int(bases[0])  # brokers may delete a part of a batch, and send all of it
        expected = np.append(self._next, lasts[:-1] + 1)
        fits = (bases == expected) & (counts > 0) & (lasts - bases + 1 == counts) & (lasts < self._task.end)
        if not fits.all():
            raise self._task.refusal(f"records are missing at offset {int(expected[np.argmin(fits)])}")
        places = np.minimum(np.searchsorted(self._ids, producers), len(self._ids) - 1)
        ours = self._ids[places] == producers
        if not ours.all():
            first = int(np.argmin(ours))
            raise self._task.refusal(f"the record at offset {bases[first]} is of producer {producers[first]}")
        self._next = int(lasts[-1]) + 1
        self._ends.append(lasts + 1)
        self._sources.append(self._places[places].astype(np.int32))

    def log(self) -> DealtLog:
        """Return all batches, when they have what was dealt to this partition, but for what brokers have deleted at its start."""
        task = self._task
        if self._next != task.end:
            raise task.refusal(f"records are missing at offset {self._next}")
        nothing = [np.empty(0, np.int64)]
        found = DealtLog(
            start=self._first,
            end=task.end,
            ends=np.concatenate(self._ends or nothing),
            sources=np.concatenate(self._sources or nothing),
        )
        for source, has, dealt in zip(
            task.sources, found.counts(len(task.sources)).tolist(), task.dealt.tolist(), strict=True
        ):
            if has > dealt or (has < dealt and self._is_whole):
                held = f"it holds {spell_count(has, 'record')} of {task.source_topic}-{source}"
                raise task.refusal(f"{held}, and {dealt:,} were dealt to it")
        return found
