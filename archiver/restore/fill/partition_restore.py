"""One partition's restore, as one Spark task runs it. Needs no Spark.

1. Take the partition's claim, or put one: it has the first offset and the producer of this restore.
2. Send the missing records, batch by batch, numbered from the claim's start.
3. Read all of it back: as many records, with the same digest.
4. Put the offset map, and only then note that the partition is whole.
"""

import asyncio
import logging
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from archiver.archive.format.handle import Archive, patient_archive_of
from archiver.archive.reading.reader import SkipDamaged
from archiver.archive.restores.offset_map import OffsetMapWriter
from archiver.archive.segments.parts import ObjectPart
from archiver.codec.batch_encoder import BatchEncoder, EncodedBatch
from archiver.codec.compression import BatchCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.tally import Tally
from archiver.errors import (
    ArchiverError,
    KafkaTemporaryError,
    NotWholeError,
    StrangerError,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.log_reader import LogStartError, producer_at, read_log
from archiver.kafka.records.produce import ProducerIdentity, init_producer_id
from archiver.process.output.text import spell_count
from archiver.process.running.failpoints import reach
from archiver.process.running.silence import SilenceCounter
from archiver.restore.fill.partition_map import keep_map, put_map
from archiver.restore.fill.sending import ATTEMPT_PAUSE_S, ATTEMPTS, Behind, RateLimit, patiently, send
from archiver.restore.fill.strangers import (
    advice_for,
    changed_since,
    deleted_since,
    refuse_another_record,
    refuse_more,
    refuse_stranger_at_start,
    refuse_strangers,
    restored_range,
    target_range,
)
from archiver.restore.plan.claim_check import check_claim
from archiver.restore.plan.claim_stream import ClaimStream, partition_claims
from archiver.restore.plan.claims import Contents, PartitionClaim
from archiver.restore.plan.task import CREATE_TIME, RestoreTask, TaskReport, failed, left_out, read_wanted
from archiver.restore.targets.lost_records import still_stands

log = logging.getLogger(__name__)

Value = TypeVar("Value")
_ClaimStream = ClaimStream[PartitionClaim, Contents]

_SILENT_S = 5.0  # then another attempt may have continued, and brokers may have forgotten our producer


def run_task(task: RestoreTask) -> TaskReport:
    """Restore one partition. Our errors are returned as a report, so that the other partitions continue."""
    try:
        return asyncio.run(_restore(task))
    except Exception as error:  # noqa: BLE001 - also a defect: the other partitions continue
        return failed(task.target_topic, task.partition, error, f"{task.target_topic}-{task.partition}")


async def _restore(task: RestoreTask) -> TaskReport:
    archive = patient_archive_of(task.storage)
    stream = _stream_of(archive, task)
    async with KafkaClient(task.kafka) as client:
        claim = await _claim(client, stream, task)
        report = await _report_again(client, archive, claim, task)
        if report is not None:
            return report
        if claim.verified is not None:
            claim = stream.forget_verified(claim)
        try:
            return await _fill_and_verify(client, archive, stream, claim, task)
        except ArchiverError:
            # Another run of this restore may have finished meanwhile, and the target be in use again.
            report = await _report_again(client, archive, await _claim(client, stream, task), task)
            if report is None:
                raise
            return report


async def _report_again(
    client: KafkaClient, archive: Archive, claim: PartitionClaim, task: RestoreTask
) -> TaskReport | None:
    """Report a partition that an earlier run has restored, if it still ends there or later.

    While its last record exists, the partition is not read again unless requested: its owner may have written
    to it since. Without a topic id it is read: it may be of another topic.
    """
    restored = claim.verified
    if restored is None:
        return None
    if not restored.records and task.wanted:  # the target cannot prove zero records; reading again can
        return None
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    if offsets.high_watermark < claim.verified_end:
        return None
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    is_read = (
        task.mode.reads_again
        or not task.target_topic_id
        or not await still_stands(
            client,
            restored_range(claim, restored, task),
            offsets.log_start,
            {claim.identity.producer_id},
            restored.leader_epoch,
        )
    )
    target_digest = (await _read_back(client, claim, restored, task))[0] if is_read else None
    return TaskReport(
        target_topic=task.target_topic,
        partition=task.partition,
        records=restored.records,
        already_there=restored.records,
        expired=max(0, min(offsets.log_start, claim.verified_end) - claim.start_offset),
        bytes=restored.bytes,
        digest=restored.digest,
        target_digest=target_digest,
        verify_seconds=loop.time() - started_s,
        offset_map=keep_map(archive, claim, task, restored.records),
        missing=tuple(left_out(task, claim.skipped)),
    )


def _stream_of(archive: Archive, task: RestoreTask) -> _ClaimStream:
    return partition_claims(archive, task.restore_id, task.target_cluster_id, task.target_topic, task.partition)


async def _fill_and_verify(
    client: KafkaClient, archive: Archive, stream: _ClaimStream, claim: PartitionClaim, task: RestoreTask
) -> TaskReport:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    report, offsets = await _fill(client, archive, claim, task)  # 1. the missing records
    filled_s = loop.time()
    restored = Contents(records=report.records, digest=report.digest, bytes=report.bytes)
    await refuse_more(client, claim, restored, task)
    target_digest, leader_epoch = await _read_back(client, claim, restored, task)  # 2.
    reach("target.read")
    offset_map = put_map(archive, offsets, task)  # 3. before the note: a partition that has it is not read again
    stream.note_verified(task.target_topic_id, replace(restored, leader_epoch=leader_epoch))  # 4.
    return replace(
        report,
        target_digest=target_digest,
        offset_map=offset_map,
        seconds=filled_s - started_s,
        verify_seconds=loop.time() - filled_s,
    )


async def _claim(client: KafkaClient, stream: _ClaimStream, task: RestoreTask) -> PartitionClaim:
    """Take the partition's claim, or put one; the second of two concurrent runs uses the first one's claim."""
    claim = stream.latest(task.target_topic_id)
    if claim is None:
        identity = await patiently(lambda: init_producer_id(client))
        reach("producer.given")
        offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
        # Another run of this restore has put its claim before its first record: the records are ours, and that claim is valid.
        if offsets.high_watermark and not task.mode.appends and stream.latest(task.target_topic_id) is None:
            raise StrangerError(
                f"someone else wrote {spell_count(offsets.high_watermark, 'record')} to the target before this restore did; {advice_for(task)}"
            )
        claim = stream.put(
            PartitionClaim(
                target_cluster_id=task.target_cluster_id,
                target_topic_id=task.target_topic_id,
                start_offset=offsets.high_watermark,
                selection_digest=task.selection_digest,
                identity=identity,
            )
        )
    check_claim(claim, task)
    if claim.selection_digest != task.selection_digest:
        raise NotWholeError(
            f"restore {task.restore_id} was begun from another state of the archive; start again with another --id"
            " and an empty target"
        )
    return claim


async def _fill(
    client: KafkaClient, archive: Archive, claim: PartitionClaim, task: RestoreTask
) -> tuple[TaskReport, OffsetMapWriter]:
    is_ours = False
    for _ in range(ATTEMPTS):
        offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
        if task.mode.skips_damage:
            claim = _stream_of(archive, task).latest(task.target_topic_id) or claim  # with objects skipped meanwhile
        already_there = offsets.high_watermark - claim.start_offset
        if already_there < 0:
            raise StrangerError(f"the target ends at {offsets.high_watermark}, before this restore began")
        if already_there and not is_ours:
            await refuse_stranger_at_start(client, claim, task)
            is_ours = True
        try:
            return await _send_from(already_there, client, archive, claim, task)
        except Behind:
            await refuse_strangers(already_there, client, claim, task)
            await asyncio.sleep(ATTEMPT_PAUSE_S)
    raise KafkaTemporaryError(f"another run of restore {task.restore_id} keeps getting ahead; let it finish")


async def _send_from(
    index: int, client: KafkaClient, archive: Archive, claim: PartitionClaim, task: RestoreTask
) -> tuple[TaskReport, OffsetMapWriter]:
    loop = asyncio.get_running_loop()
    totals, offsets = Tally(), OffsetMapWriter(claim.start_offset)
    already_there = index
    missing = left_out(task, claim.skipped)

    def skip(part: ObjectPart, error: NotWholeError) -> None:
        _stream_of(archive, task).note_skipped(task.target_topic_id, part.object_key)
        missing.append(part.describe_damage(error))

    frames = _frames(archive, claim, task, offsets, skip if task.mode.skips_damage else None)
    last_there = Tally()
    batches = _encode(frames, claim.identity, index, totals, last_there, task)
    rate_limit = RateLimit(task.limits.rate_bytes)
    silence_counter, noted = SilenceCounter(_SILENT_S), 0
    # Closed here: a reader that garbage collection ends may be ended by its own thread, which cannot wait for itself.
    with closing(frames), closing(batches), ThreadPoolExecutor(1, thread_name_prefix="encode") as pool:
        ahead = loop.run_in_executor(pool, next, batches, None)
        while (batch := await ahead) is not None:
            if index == already_there:
                await refuse_another_record(client, claim, index - 1, last_there, task)
            ahead = loop.run_in_executor(pool, next, batches, None)
            try:
                await rate_limit.wait_for(len(batch.content))
                was_silent = silence_counter.silences > noted
                await _send(client, task, batch, claim.identity, claim.start_offset + index, asks_first=was_silent)
                noted = silence_counter.silences
            except BaseException:
                await asyncio.wait([ahead])
                with suppress(Exception):
                    ahead.result()  # otherwise asyncio logs it with a traceback
                raise
            index += batch.records
    report = TaskReport(
        target_topic=task.target_topic,
        partition=task.partition,
        records=totals.records,
        already_there=min(already_there, totals.records),
        bytes=totals.payload_bytes,
        digest=totals.digest,
        missing=tuple(missing),
    )
    return report, offsets


def _frames(
    archive: Archive, claim: PartitionClaim, task: RestoreTask, offsets: OffsetMapWriter, skip: SkipDamaged | None
) -> Generator[Frame, None, None]:
    """Read all restored records from the first one on, and note their target offsets for the offset map."""
    for frame in read_wanted(archive, task, claim.skipped, skip):
        offsets.add(frame)
        yield frame


def _encode(
    frames: Iterable[Frame],
    identity: ProducerIdentity,
    first_index: int,
    totals: Tally,
    last_there: Tally,
    task: RestoreTask,
) -> Generator[EncodedBatch, None, None]:
    """Make batches of all records from `first_index` on, and add the record before it to `last_there`.

    The sequence number of a record is its index.
    """
    encoder = BatchEncoder(
        codec=BatchCodec.LZ4,
        batch_bytes=task.limits.batch_bytes,
        most_bytes=task.limits.sent_bytes,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        sequence=first_index,
    )
    for frame in frames:
        # A topic that a producer fills has CreateTime, whatever type the timestamps had.
        frame.table[Column.TIMESTAMP_TYPE] = CREATE_TIME
        row = max(0, first_index - totals.records)
        if 0 < first_index - totals.records <= len(frame):
            last_there.add(frame, row - 1, row)
        totals.add(frame)
        while row < len(frame):
            row = encoder.append(frame, row)
            if row < len(frame):
                yield encoder.flush()
    if encoder.rows:
        yield encoder.flush()


async def _send(
    client: KafkaClient,
    task: RestoreTask,
    batch: EncodedBatch,
    identity: ProducerIdentity,
    expected_offset: int,
    *,
    asks_first: bool,
) -> None:
    find_sent = partial(_find_sent, client, task, batch, identity, expected_offset)
    what = f"records from offset {expected_offset} on"
    offset = await send(client, task.target_topic, task.partition, batch, what, find_sent, asks_first=asks_first)
    if offset != expected_offset:
        raise StrangerError(
            f"records landed at offset {offset} instead of {expected_offset}: someone else wrote to the target during the"
            f" restore; {advice_for(task)}"
        )


async def _find_sent(
    client: KafkaClient, task: RestoreTask, batch: EncodedBatch, identity: ProducerIdentity, offset: int
) -> int | None:
    """Return the offset of an unanswered batch, if it is the last in the log. Raises Behind if the log has more."""
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    if offsets.high_watermark <= offset:
        return None
    where = target_range(task, offset, offset + 1)
    if offsets.high_watermark != offset + batch.records or await producer_at(client, where) != identity.producer_id:
        raise Behind
    return offset


async def _read_back(
    client: KafkaClient, claim: PartitionClaim, restored: Contents, task: RestoreTask
) -> tuple[int, int]:
    """Read the target: as many records, the same digest, in this order. Returns the digest, and the last batch's leader epoch."""
    found, log_range = Tally(), restored_range(claim, restored, task)
    try:
        leader_epoch = await read_log(client, log_range, found.add)
    except LogStartError as error:
        raise await deleted_since(client, log_range, "" if claim.verified is not None else advice_for(task)) from error
    if (found.records, found.digest) == (restored.records, restored.digest):
        return found.digest, leader_epoch
    stands = f"the target holds {spell_count(found.records, 'record')} of digest {found.digest:016x}"
    if claim.verified is not None:  # by an earlier run, which then set the configs
        raise changed_since(stands, restored.records, restored.digest)
    raise NotWholeError(f"{stands}, the archive {restored.records} of {restored.digest:016x}; {advice_for(task)}")
