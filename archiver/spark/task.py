"""One partition's restore, as one Spark task runs it. Needs no Spark; what it is given is plain and picklable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from archiver.codec.batch import (
    SEQUENCES,
    BatchEncoder,
    EncodedBatch,
)
from archiver.codec.compression import BatchCodec
from archiver.config import StorageConfig
from archiver.defects import as_ours
from archiver.errors import (
    ArchiverError,
    KafkaError,
    KafkaTemporaryError,
    NotWholeError,
    StoreTemporaryError,
    StrangerError,
)
from archiver.frame import Column
from archiver.kafka.client import KafkaClient
from archiver.kafka.produce import Outcome, ProducerIdentity, init_producer_id, produce
from archiver.kafka.settings import KafkaSettings
from archiver.layout import Layout
from archiver.log_reader import LogRange, read_log
from archiver.reader import ObjectPart, read_parts
from archiver.spark.claim import Claim, ClaimStream, Verified
from archiver.spark.stores import store_of
from archiver.store import ObjectStore
from archiver.tally import Tally

log = logging.getLogger(__name__)

Value = TypeVar("Value")

BATCH_BYTES = 1_000_000  # uncompressed: below Kafka's default max.message.bytes whatever the data
_PRODUCE_TIMEOUT_MS = 30_000
_ATTEMPTS = 60
_PAUSE_S = 0.5
CREATE_TIME = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTask:
    """All that a task needs."""

    restore_id: str
    storage: StorageConfig
    kafka: KafkaSettings
    source_topic: str
    target_topic: str
    target_topic_id: str
    target_cluster_id: str
    partition: int
    parts: tuple[ObjectPart, ...]
    selection_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a task did; `error` is empty when the partition is whole on the target."""

    target_topic: str
    partition: int
    records: int = 0
    already_there: int = 0
    digest: int = 0
    seconds: float = 0.0
    verify_seconds: float = 0.0
    error: str = ""
    exit_code: int = 0


class _Behind(Exception):  # noqa: N818 - a turn of the loop, not an error
    """Someone with our identity is ahead of us: read the log end again."""


def run_task(task: RestoreTask) -> TaskReport:
    """Restore one partition. Errors of ours come back as a report, so that the other partitions go on."""
    try:
        return asyncio.run(_restore(task))
    except ArchiverError as error:
        return TaskReport(
            target_topic=task.target_topic,
            partition=task.partition,
            error=f"{task.target_topic}-{task.partition}: {error}",
            exit_code=error.exit_code,
        )
    except Exception as error:  # noqa: BLE001 - a defect; the partitions beside this one go on all the same
        return TaskReport(
            target_topic=task.target_topic,
            partition=task.partition,
            error=str(as_ours(error, f"{task.target_topic}-{task.partition}")),
            exit_code=ArchiverError.exit_code,
        )


async def _restore(task: RestoreTask) -> TaskReport:
    store, prefix = store_of(task.storage)
    stream = ClaimStream(store, Layout(prefix), task.restore_id, task.target_topic, task.partition)
    async with KafkaClient(task.kafka) as client:
        claim = await _claim(client, stream, task)
        if claim.verified is None:
            try:
                return await _fill_and_verify(client, store, stream, claim, task)
            except ArchiverError:
                # Another run of this restore may have finished meanwhile, and the target gone on living.
                claim = await _claim(client, stream, task)
                if claim.verified is None:
                    raise
    return TaskReport(
        target_topic=task.target_topic,
        partition=task.partition,
        records=claim.verified.records,
        already_there=claim.verified.records,
        digest=claim.verified.digest,
    )


async def _fill_and_verify(
    client: KafkaClient, store: ObjectStore, stream: ClaimStream, claim: Claim, task: RestoreTask
) -> TaskReport:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    report = await _fill(client, store, claim, task)
    filled_s = loop.time()
    await _verify(client, claim, report, task)
    stream.note_verified(claim, Verified(records=report.records, digest=report.digest))
    return replace(report, seconds=filled_s - started_s, verify_seconds=loop.time() - filled_s)


async def _claim(client: KafkaClient, stream: ClaimStream, task: RestoreTask) -> Claim:
    """Take the partition's claim, or put one if nobody has; whoever is second uses the first one's."""
    claim = stream.latest(task.target_topic_id)
    if claim is None:
        identity = await _patiently(lambda: init_producer_id(client))
        offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
        if offsets.high_watermark:
            raise StrangerError(
                f"someone else wrote {offsets.high_watermark} records to the target before this restore did;"
                " delete the topic and restore again"
            )
        claim = stream.put(
            Claim(
                target_cluster_id=task.target_cluster_id,
                target_topic_id=task.target_topic_id,
                start_offset=offsets.high_watermark,
                selection_digest=task.selection_digest,
                identity=identity,
            )
        )
    if claim.selection_digest != task.selection_digest:
        raise NotWholeError(
            f"restore {task.restore_id} was begun from another state of the archive; start anew with another --id"
            " and an empty target"
        )
    return claim


async def _patiently(attempt: Callable[[], Awaitable[Value]]) -> Value:
    """Repeat what has no effect until a broker does it: a cluster that has just started has no coordinator yet."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await attempt()
        except KafkaTemporaryError:
            await asyncio.sleep(_PAUSE_S)
    return await attempt()


async def _fill(client: KafkaClient, store: ObjectStore, claim: Claim, task: RestoreTask) -> TaskReport:
    for _ in range(_ATTEMPTS):
        offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
        already_there = offsets.high_watermark - claim.start_offset
        if already_there < 0:
            raise StrangerError(f"the target ends at {offsets.high_watermark}, before this restore began")
        try:
            return await _send_from(already_there, client, store, claim, task)
        except _Behind:
            await _refuse_strangers(already_there, client, claim, task)
            await asyncio.sleep(_PAUSE_S)
        except StoreTemporaryError:
            await asyncio.sleep(_PAUSE_S)
    raise KafkaTemporaryError(f"another run of restore {task.restore_id} keeps getting ahead; let it finish")


async def _refuse_strangers(already_there: int, client: KafkaClient, claim: Claim, task: RestoreTask) -> None:
    """Tell a log that holds more than this restore wrote from one that another run of it fills right now.

    The log end was read first, so the broker may remember more of ours than that, never less.
    """
    last = await client.last_sequence(task.target_topic, task.partition, claim.identity.producer_id)
    if last is not None and (already_there - last - 1) % SEQUENCES in range(1, SEQUENCES // 2):
        raise StrangerError(
            f"the target holds {already_there} records where this restore has written up to number {last}: someone else"
            " wrote to the target during the restore; delete the topic and restore again"
        )


async def _send_from(
    index: int, client: KafkaClient, store: ObjectStore, claim: Claim, task: RestoreTask
) -> TaskReport:
    loop = asyncio.get_running_loop()
    totals = Tally()
    already_there = index
    batches = _encode(store, task, claim.identity, index, totals)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode") as pool:
        ahead = loop.run_in_executor(pool, next, batches, None)
        while (batch := await ahead) is not None:
            ahead = loop.run_in_executor(pool, next, batches, None)
            try:
                await _send(client, task, batch, claim.start_offset + index)
            except BaseException:
                await asyncio.wait([ahead])
                raise
            index += batch.records
    return TaskReport(
        target_topic=task.target_topic,
        partition=task.partition,
        records=totals.records,
        already_there=min(already_there, totals.records),
        digest=totals.digest,
    )


def _encode(
    store: ObjectStore, task: RestoreTask, identity: ProducerIdentity, first_index: int, totals: Tally
) -> Iterator[EncodedBatch]:
    """Make batches of all records from `first_index` on; the sequence number of a record is its index."""
    encoder = BatchEncoder(
        codec=BatchCodec.LZ4,
        level=0,
        batch_bytes=BATCH_BYTES,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        sequence=first_index,
    )
    for frame in read_parts(store, task.source_topic, task.partition, task.parts):
        # A topic that a producer fills has CreateTime, whatever type the timestamps had.
        frame.table[Column.TIMESTAMP_TYPE] = CREATE_TIME
        row = max(0, first_index - totals.records)
        totals.add(frame)
        while row < len(frame):
            row = encoder.append(frame, row)
            if row < len(frame):
                yield encoder.flush()
    if encoder.rows:
        yield encoder.flush()


async def _send(client: KafkaClient, task: RestoreTask, batch: EncodedBatch, expected_offset: int) -> None:
    """Send until the broker answers: repeating a batch is safe, it has a producer id and a sequence number."""
    for _ in range(_ATTEMPTS):
        try:
            answer = await produce(client, task.target_topic, task.partition, batch.content, _PRODUCE_TIMEOUT_MS)
        except KafkaTemporaryError:
            await asyncio.sleep(_PAUSE_S)
            continue
        match answer.outcome:
            case Outcome.DONE if answer.base_offset == expected_offset:
                return
            case Outcome.DONE:
                raise StrangerError(
                    f"records landed at offset {answer.base_offset} instead of {expected_offset}: someone else wrote to"
                    " the target during the restore; delete the topic and restore again"
                )
            case Outcome.OUT_OF_SEQUENCE | Outcome.DUPLICATE:
                raise _Behind
            case Outcome.FATAL:
                raise KafkaError(f"the broker refuses records from offset {expected_offset} on: {answer.message}")
            case Outcome.TEMPORARY:
                await asyncio.sleep(_PAUSE_S)
    raise KafkaTemporaryError(f"no broker took the batch for offset {expected_offset}; run the same command again")


async def _verify(client: KafkaClient, claim: Claim, report: TaskReport, task: RestoreTask) -> None:
    """Read the target back: as many records, the same digest, in this order."""
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    end = claim.start_offset + report.records
    if offsets.high_watermark != end:
        raise StrangerError(
            f"the target ends at offset {offsets.high_watermark}, not at {end}: someone else wrote to it"
        )
    found = Tally()
    log_range = LogRange(
        topic=task.target_topic,
        topic_id=task.target_topic_id,
        partition=task.partition,
        start=claim.start_offset,
        end=end,
    )
    await read_log(client, log_range, found.add)
    if (found.records, found.digest) != (report.records, report.digest):
        raise NotWholeError(
            f"the target holds {found.records} records of digest {found.digest:016x}, the archive {report.records} of"
            f" {report.digest:016x}; delete the topic and restore again"
        )
