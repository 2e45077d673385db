"""The Spark task for one source partition of a repartition: reads it once for all targets, and deals it out by key to all target partitions.

Needs no Spark; the input of a task is plain and picklable.
"""

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from archiver.archive.format.handle import Archive, patient_archive_of
from archiver.archive.reading.reader import SkipDamaged
from archiver.archive.segments.parts import ObjectPart
from archiver.codec.batch_encoder import SEQUENCES, BatchEncoder, EncodedBatch
from archiver.codec.compression import BatchCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels.murmur2 import Partitioner
from archiver.codec.tally import Tally
from archiver.errors import KafkaTemporaryError, NotWholeError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProducerIdentity
from archiver.process.running.silence import SilenceCounter
from archiver.restore.fill.sending import ATTEMPT_PAUSE_S, ATTEMPTS, Behind, RateLimit, send
from archiver.restore.plan.claim_stream import ClaimStream, topic_claims
from archiver.restore.plan.claims import Contents, TopicClaim, TopicContents
from archiver.restore.plan.estimate import dealt_batch_bytes
from archiver.restore.plan.task import CREATE_TIME, RestoreTask, TaskReport, failed, left_out, read_wanted

_SENDS_AT_ONCE = 4
_SILENT_S = 60.0  # then another attempt may have continued, and brokers may have forgotten our producer
_QUESTIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTask:
    """The input of a task that deals out one source partition: `source.partition` is the archive's."""

    source: RestoreTask
    identity: ProducerIdentity
    already_there: tuple[int, ...]  # records of this source in each target partition, at least

    @property
    def batch_bytes(self) -> int:
        return dealt_batch_bytes(self.source.limits.batch_bytes, len(self.already_there))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """The result of a source partition's task, and its share of each target partition; no shares after a failure."""

    report: TaskReport
    shares: tuple[Contents, ...] = ()


def run_source(task: SourceTask) -> SourceReport:
    """Distribute one source partition. Errors are returned as a report, so that the other partitions continue."""
    source = task.source
    try:
        return asyncio.run(_deal(task))
    except Exception as error:  # noqa: BLE001 - also a defect: the other partitions continue
        where = f"{source.origin.topic}-{source.partition} into {source.target_topic}"
        return SourceReport(report=failed(source.target_topic, source.partition, error, where))


async def _deal(task: SourceTask) -> SourceReport:
    source = task.source
    archive = patient_archive_of(source.storage)
    there = list(task.already_there)
    async with KafkaClient(source.kafka) as client:
        for attempt in range(ATTEMPTS):
            if attempt:  # asking for all targets takes as long as sending little to each: at first, wait for a refusal
                await _ask_targets(client, task, there)
            skipped = _skipped(archive, source)
            try:
                return await _deal_from(there, skipped, client, archive, task)
            except Behind:
                await asyncio.sleep(ATTEMPT_PAUSE_S)
            except _ForgottenError as error:
                raise KafkaTemporaryError(str(error)) from error
    raise KafkaTemporaryError(f"another run of restore {source.restore_id} keeps getting ahead; let it finish")


def stream_of(archive: Archive, task: RestoreTask) -> ClaimStream[TopicClaim, TopicContents]:
    """Return the stream of the claim on the task's target topic."""
    return topic_claims(archive, task.restore_id, task.target_cluster_id, task.target_topic)


def _skipped(archive: Archive, task: RestoreTask) -> tuple[str, ...]:
    claim = stream_of(archive, task).latest(task.target_topic_id) if task.mode.skips_damage else None
    return () if claim is None else claim.skipped


# --- records on the target


async def _ask_targets(client: KafkaClient, task: SourceTask, there: list[int]) -> None:
    """Raise the counts to those that brokers remember of our producer id, in each target partition.

    If brokers remember nothing, the counts stay: a batch that was sent and then forgotten is not repeated (_refuse_forgotten).
    """
    turn = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def ask_target(target: int) -> None:
        async with turn:
            last = await client.last_sequence(task.source.target_topic, target, task.identity.producer_id)
        if last is not None:
            there[target] = _count_after(there[target], last)

    await asyncio.gather(*map(ask_target, range(len(there))))


def _count_after(at_least: int, last_sequence: int) -> int:
    """Return the number of records of a producer. Sequence numbers wrap around; a new leader may lag for a moment."""
    ahead = (last_sequence + 1 - at_least) % SEQUENCES
    return at_least + ahead if ahead < SEQUENCES // 2 else at_least


class _ForgottenError(Exception):
    """The brokers have forgotten our producer: only a new run, which counts the log, can find our records."""


async def _refuse_forgotten(client: KafkaClient, task: SourceTask, target: int) -> None:
    """Refuse to repeat a batch that brokers would take for a new one: they forget senders of old records (archiver.restore.fill.sending.send)."""
    name = task.source.target_topic
    if await client.last_sequence(name, target, task.identity.producer_id) is None:
        raise _ForgottenError(
            f"{name}-{target}: the broker does not know any more what was sent of {task.source.origin.topic}-{task.source.partition};"
            " run the same command again, it counts what is there"
        )


# --- missing records


async def _deal_from(
    there: list[int], skipped: Sequence[str], client: KafkaClient, archive: Archive, task: SourceTask
) -> SourceReport:
    """Read the source from the beginning, and send missing records. `there` is raised as brokers accept records."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    source = task.source
    already_there = tuple(there)
    total, shares = Tally(), [Tally() for _ in there]
    missing = left_out(source, skipped)

    def skip(part: ObjectPart, error: NotWholeError) -> None:
        stream_of(archive, source).note_skipped(source.target_topic_id, part.object_key)
        missing.append(part.describe_damage(error))

    frames = _read_dealt(archive, source, skipped, skip if source.mode.skips_damage else None, total)
    batches = _encode(frames, task, already_there, shares)
    rate_limit = RateLimit(source.limits.rate_bytes)
    sends = _Sends(_SENDS_AT_ONCE)
    silence_counter, noted = SilenceCounter(_SILENT_S), 0

    async def deliver(target: int, batch: EncodedBatch) -> None:
        nonlocal noted
        was_silent = silence_counter.silences > noted and there[target] > 0
        known = partial(_refuse_forgotten, client, task, target)
        await send(
            client, source.target_topic, target, batch, f"records for partition {target}", known, asks_first=was_silent
        )
        noted = silence_counter.silences
        there[target] += batch.records

    # Closed here, as in archiver.restore.fill.partition_restore.
    with closing(frames), closing(batches), ThreadPoolExecutor(1, thread_name_prefix="encode") as pool:
        ahead = loop.run_in_executor(pool, next, batches, None)
        try:
            while (encoded := await ahead) is not None:
                target, batch = encoded
                ahead = loop.run_in_executor(pool, next, batches, None)
                await rate_limit.wait_for(len(batch.content))
                await sends.wait_for(target)
                sends.begin(target, deliver(target, batch))
            await sends.finish()
        except BaseException:
            await asyncio.wait([ahead])
            with suppress(Exception):
                ahead.result()  # seen
            await sends.abandon()
            raise
    report = TaskReport(
        target_topic=source.target_topic,
        partition=source.partition,
        records=total.records,
        already_there=min(sum(already_there), total.records),
        bytes=total.payload_bytes,
        digest=total.digest,
        seconds=loop.time() - started_s,
        missing=tuple(missing),
    )
    return SourceReport(report=report, shares=tuple(Contents(one.records, one.digest) for one in shares))


def _read_dealt(
    archive: Archive, task: RestoreTask, skipped: Sequence[str], skip: SkipDamaged | None, total: Tally
) -> Generator[Frame, None, None]:
    """Read all restored records of a source partition, from the first one on."""
    for frame in read_wanted(archive, task, skipped, skip):
        # A topic that a producer fills has CreateTime, whatever type the timestamps had.
        frame.table[Column.TIMESTAMP_TYPE] = CREATE_TIME
        total.add(frame)
        yield frame


def _encode(
    frames: Iterable[Frame], task: SourceTask, already_there: Sequence[int], shares: Sequence[Tally]
) -> Generator[tuple[int, EncodedBatch], None, None]:
    """Make batches of missing records; a record's sequence number is its index among those of its target partition."""
    encoders = [
        BatchEncoder(
            codec=BatchCodec.LZ4,
            batch_bytes=task.batch_bytes,
            most_bytes=task.source.limits.sent_bytes,
            producer_id=task.identity.producer_id,
            producer_epoch=task.identity.epoch,
            sequence=count,
        )
        for count in already_there
    ]
    partitioner = Partitioner(len(encoders), task.source.partition)
    for frame in frames:
        for target, share in partitioner.deal(frame):
            row = max(0, already_there[target] - shares[target].records)
            shares[target].add(share)
            while row < len(share):
                row = encoders[target].append(share, row)
                # Not with the next row: each of a thousand encoders would keep a record of megabytes until then.
                if row < len(share) or encoders[target].is_full:
                    yield target, encoders[target].flush()
    for target, encoder in enumerate(encoders):
        if encoder.rows:
            yield target, encoder.flush()


class _Sends:
    """Batches in flight: one at most for each target partition, so that they arrive in order, and few in all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[int, asyncio.Task[None]] = {}

    async def wait_for(self, target: int) -> None:
        """Wait until another batch may be sent to a partition. Raises the error of an earlier batch."""
        while target in self._open or len(self._open) >= self._most:
            await self._await_one()

    def begin(self, target: int, delivery: Coroutine[None, None, None]) -> None:
        self._open[target] = asyncio.create_task(delivery)

    async def finish(self) -> None:
        while self._open:
            await self._await_one()

    async def abandon(self) -> None:
        """Cancel the batches in flight. They may arrive or not: the next attempt asks the target."""
        for one in self._open.values():
            one.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _await_one(self) -> None:
        await asyncio.wait(self._open.values(), return_when=asyncio.FIRST_COMPLETED)
        for target in [target for target, one in self._open.items() if one.done()]:
            self._open[target].result()
            del self._open[target]
