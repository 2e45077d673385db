"""One partition's restore, as one Spark task runs it. Needs no Spark; what it is given is plain and picklable."""

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from archiver.archive.handle import Archive
from archiver.archive.layout import Layout, OffsetMapKey
from archiver.archive.offset_map import OffsetMapFacts, OffsetMapWriter, put_offset_map
from archiver.archive.parts import ObjectPart
from archiver.archive.reader import Skip, read_parts, spare_rooms
from archiver.codec.batch_encoder import SEQUENCES, BatchEncoder, EncodedBatch
from archiver.codec.compression import BatchCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.selection import Selection
from archiver.codec.tally import Tally
from archiver.config.model import StorageConfig
from archiver.errors import (
    ArchiverError,
    KafkaTemporaryError,
    NotWholeError,
    StrangerError,
)
from archiver.kafka.client import KafkaClient
from archiver.kafka.log_reader import LogRange, LogStartError, producer_at, read_log
from archiver.kafka.produce import ProducerIdentity, init_producer_id
from archiver.kafka.settings import KafkaSettings
from archiver.process.defects import as_ours
from archiver.process.failpoints import reach
from archiver.process.silence import SilenceCounter
from archiver.process.text import spell_count
from archiver.restore.claim_check import check_claim
from archiver.restore.claims import Claim, ClaimStream, Verified
from archiver.restore.sending import ATTEMPTS, PAUSE_S, Behind, RateLimit, patiently, send
from archiver.restore.standing import still_stands
from archiver.restore.target_limits import Count
from archiver.store.port import ObjectStore
from archiver.store.shared import patient_store_of

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_SILENT_S = 5.0  # after which another attempt may have gone on, and brokers may have forgotten us
CREATE_TIME = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTask:
    """All that a task needs."""

    restore_id: str
    storage: StorageConfig
    kafka: KafkaSettings
    source_topic: str
    source_life: int
    target_topic: str
    target_topic_id: str
    target_cluster_id: str
    partition: int
    parts: Sequence[ObjectPart]
    selection: Selection
    selection_digest: str
    wanted: Count  # records, as far as facts of objects tell
    skips_damage: bool
    reads_again: bool  # also what an earlier run has read back
    appends: bool  # behind records of others
    batch_bytes: int  # of its records
    sent_bytes: int  # of a batch as it is sent
    rate_bytes: int  # a second; 0: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a task did; `error` is empty when the partition is whole on the target."""

    target_topic: str
    partition: int
    records: int = 0
    already_there: int = 0
    bytes: int | None = None  # of keys and values; None: not counted
    expired: int = 0  # offsets of it that the brokers have deleted since an earlier run had read it back
    digest: int = 0  # of what the archive has, in order
    target_digest: int | None = None  # of what was read back; None: it was not, by this run
    leader_epoch: int = -1  # of the last batch of a target partition that was read back
    offset_map: str = ""  # the key of the object that tells which offset became which
    seconds: float = 0.0
    verify_seconds: float = 0.0
    missing: tuple[str, ...] = ()  # what was damaged, and skipped
    error: str = ""
    exit_code: int = 0


def run_task(task: RestoreTask) -> TaskReport:
    """Restore one partition. Errors of ours come back as a report, so that the other partitions go on."""
    try:
        return asyncio.run(_restore(task))
    except Exception as error:  # noqa: BLE001 - also a defect: the partitions beside this one go on all the same
        return failed(task.target_topic, task.partition, error, f"{task.target_topic}-{task.partition}")


def failed(target_topic: str, partition: int, error: Exception, where: str) -> TaskReport:
    """Report what kept a partition from being restored."""
    ours = as_ours(error, where)
    text = str(ours)
    if ours is error and not text.startswith((f"{where}: ", f"{where} ")):  # some begin with it
        text = f"{where}: {text}"
    return TaskReport(target_topic=target_topic, partition=partition, error=text, exit_code=ours.exit_code)


async def _restore(task: RestoreTask) -> TaskReport:
    store = patient_store_of(task.storage)
    stream = _stream_of(store, task)
    async with KafkaClient(task.kafka) as client:
        claim = await _claim(client, stream, task)
        report = await _report_again(client, store, claim, task)
        if report is not None:
            return report
        if claim.verified is not None:
            claim = stream.forget_verified(claim)
        try:
            return await _fill_and_verify(client, store, stream, claim, task)
        except ArchiverError:
            # Another run of this restore may have finished meanwhile, and the target gone on living.
            report = await _report_again(client, store, await _claim(client, stream, task), task)
            if report is None:
                raise
            return report


async def _report_again(client: KafkaClient, store: ObjectStore, claim: Claim, task: RestoreTask) -> TaskReport | None:
    """Tell of a partition that an earlier run has restored, if it still ends where it ended then, or behind that.

    Without being asked, it is not read as long as the last record of it stands: it may have moved on since. Without a topic
    id it is: it may be another topic.
    """
    restored = claim.verified
    if restored is None:
        return None
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    if offsets.high_watermark < claim.verified_end:
        return None
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    is_read = (
        task.reads_again
        or not task.target_topic_id
        or not await still_stands(
            client,
            _range_of(claim, restored, task),
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
        offset_map=_keep_map(store, claim, task, restored.records),
        missing=tuple(left_out(task, claim.skipped)),
    )


def _stream_of(store: ObjectStore, task: RestoreTask) -> ClaimStream:
    layout = Layout(task.storage.prefix)
    return ClaimStream(
        Archive(store, layout), task.restore_id, task.target_cluster_id, task.target_topic, task.partition
    )


async def _fill_and_verify(
    client: KafkaClient, store: ObjectStore, stream: ClaimStream, claim: Claim, task: RestoreTask
) -> TaskReport:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    report, offsets = await _fill(client, store, claim, task)  # 1. what is not there yet
    filled_s = loop.time()
    restored = Verified(records=report.records, digest=report.digest, bytes=report.bytes)
    await _refuse_more(client, claim, restored, task)
    target_digest, leader_epoch = await _read_back(client, claim, restored, task)  # 2.
    reach("target.read")
    offset_map = _put_map(store, offsets, task)  # 3. before the note: a partition that has it is not read again
    stream.note_verified(claim, replace(restored, leader_epoch=leader_epoch))  # 4.
    return replace(
        report,
        target_digest=target_digest,
        offset_map=offset_map,
        seconds=filled_s - started_s,
        verify_seconds=loop.time() - filled_s,
    )


def _put_map(store: ObjectStore, offsets: OffsetMapWriter, task: RestoreTask) -> str:
    """Put the map of the partition, if it is not there. Returns its key."""
    key = _map_key(task)
    facts = OffsetMapFacts(
        restore_id=task.restore_id,
        source_topic=task.source_topic,
        source_life=task.source_life,
        source_partition=task.partition,
        source_next=max(offsets.source_next, *(part.end_offset or 0 for part in task.parts), 0),
        target_cluster_id=task.target_cluster_id,
        target_topic=task.target_topic,
        target_topic_id=task.target_topic_id,
        target_partition=task.partition,
        target_next=offsets.target_next,
        records=offsets.records,
        runs=offsets.runs,
    )
    put_offset_map(store, key, offsets, facts)
    reach("map.put")
    return key


def _keep_map(store: ObjectStore, claim: Claim, task: RestoreTask, records: int) -> str:
    """Return the key of a verified partition's map; one that is gone is made again, of the archive alone."""
    key = _map_key(task)
    if store.head(key) is None:
        offsets = OffsetMapWriter(claim.start_offset)
        for _ in _frames(store, claim, task, offsets):
            pass
        if offsets.records != records:
            raise NotWholeError(
                f"{key}: is gone, and of the {spell_count(records, 'record')} the archive has {offsets.records} now"
            )
        _put_map(store, offsets, task)
    return key


def _map_key(task: RestoreTask) -> str:
    found = OffsetMapKey(
        restore_id=task.restore_id,
        topic=task.target_topic,
        partition=task.partition,
        topic_id=task.target_topic_id or task.target_cluster_id,
    )
    return Layout(task.storage.prefix).offset_map_key(found)


async def _claim(client: KafkaClient, stream: ClaimStream, task: RestoreTask) -> Claim:
    """Take the partition's claim, or put one if nobody has; whoever is second uses the first one's."""
    claim = stream.latest(task.target_topic_id)
    if claim is None:
        identity = await patiently(lambda: init_producer_id(client))
        reach("producer.given")
        offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
        # A run beside this one has put its claim before its first record: then they are no stranger's, and that claim holds.
        if offsets.high_watermark and not task.appends and stream.latest(task.target_topic_id) is None:
            raise StrangerError(
                f"someone else wrote {spell_count(offsets.high_watermark, 'record')} to the target before this restore did; {anew(task)}"
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
    check_claim(claim, task)
    if claim.selection_digest != task.selection_digest:
        raise NotWholeError(
            f"restore {task.restore_id} was begun from another state of the archive; start again with another --id"
            " and an empty target"
        )
    return claim


async def _fill(
    client: KafkaClient, store: ObjectStore, claim: Claim, task: RestoreTask
) -> tuple[TaskReport, OffsetMapWriter]:
    is_ours = False
    for _ in range(ATTEMPTS):
        offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
        if task.skips_damage:
            claim = _stream_of(store, task).latest(task.target_topic_id) or claim  # what was skipped meanwhile
        already_there = offsets.high_watermark - claim.start_offset
        if already_there < 0:
            raise StrangerError(f"the target ends at {offsets.high_watermark}, before this restore began")
        if already_there and not is_ours:
            await _refuse_stranger_at_start(client, claim, task)
            is_ours = True
        try:
            return await _send_from(already_there, client, store, claim, task)
        except Behind:
            await _refuse_strangers(already_there, client, claim, task)
            await asyncio.sleep(PAUSE_S)
    raise KafkaTemporaryError(f"another run of restore {task.restore_id} keeps getting ahead; let it finish")


async def _refuse_stranger_at_start(client: KafkaClient, claim: Claim, task: RestoreTask) -> None:
    """See that the first batch behind the claim is ours: another one's would be taken for records that need not be sent again."""
    where = LogRange(
        topic=task.target_topic,
        topic_id=task.target_topic_id,
        partition=task.partition,
        start=claim.start_offset,
        end=claim.start_offset + 1,
    )
    writer = await producer_at(client, where)
    if writer != claim.identity.producer_id:
        raise StrangerError(
            f"someone else wrote to the target at offset {claim.start_offset}, before this restore did; {anew(task)}"
        )


def anew(task: RestoreTask) -> str:
    """Tell what to do about a target that someone else wrote to."""
    if not task.appends:
        return "delete the topic and restore again"
    return (
        "the records that are there stay. Stop whoever writes to it, and restore with another --id behind them, or into"
        f" another topic with --rename {task.source_topic}=NEW"
    )


async def _refuse_another_record(
    client: KafkaClient, claim: Claim, index: int, restored: Tally, task: RestoreTask
) -> None:
    """See before anything is sent that the last record there is the one that stands there when we have written it.

    What was noted may be forged; and who names the producers of a live topic's records as ours has not their records.
    """
    if not restored.records:
        return
    found, offset = Tally(), claim.start_offset + index
    where = LogRange(
        topic=task.target_topic,
        topic_id=task.target_topic_id,
        partition=task.partition,
        start=offset,
        end=offset + 1,
    )
    with suppress(LogStartError):  # the brokers have deleted it; reading back tells
        await read_log(client, where, found.add)
    if found.records and found.digest != restored.digest:
        raise StrangerError(
            f"the record at offset {offset} is not the one of the archive that this restore puts there: it has not filled the"
            f" target, whatever was noted; {anew(task)}"
        )


async def _refuse_strangers(already_there: int, client: KafkaClient, claim: Claim, task: RestoreTask) -> None:
    """Tell a log that holds more than this restore wrote from one that another run of it fills right now.

    The log end was read first, so the broker may remember more of ours than that, never less.
    """
    last = await client.last_sequence(task.target_topic, task.partition, claim.identity.producer_id)
    if last is not None and (already_there - last - 1) % SEQUENCES in range(1, SEQUENCES // 2):
        raise StrangerError(
            f"the target holds {spell_count(already_there, 'record')} where this restore has written up to number {last}: someone else"
            f" wrote to the target during the restore; {anew(task)}"
        )


async def _send_from(
    index: int, client: KafkaClient, store: ObjectStore, claim: Claim, task: RestoreTask
) -> tuple[TaskReport, OffsetMapWriter]:
    loop = asyncio.get_running_loop()
    totals, offsets = Tally(), OffsetMapWriter(claim.start_offset)
    already_there = index
    missing = left_out(task, claim.skipped)

    def skip(part: ObjectPart, error: NotWholeError) -> None:
        _stream_of(store, task).note_skipped(claim, part.object_key)
        missing.append(part.tell(error))

    frames = _frames(store, claim, task, offsets, skip if task.skips_damage else None)
    last_there = Tally()
    batches = _encode(frames, claim.identity, index, totals, last_there, task)
    pace = RateLimit(task.rate_bytes)
    silence_counter, noted = SilenceCounter(_SILENT_S), 0
    # Closed here: a reader that garbage collection ends may be ended by its own thread, which cannot wait for itself.
    with closing(frames), closing(batches), ThreadPoolExecutor(1, thread_name_prefix="encode") as pool:
        ahead = loop.run_in_executor(pool, next, batches, None)
        while (batch := await ahead) is not None:
            if index == already_there:
                await _refuse_another_record(client, claim, index - 1, last_there, task)
            ahead = loop.run_in_executor(pool, next, batches, None)
            try:
                await pace.wait_for(len(batch.content))
                was_silent = silence_counter.silences > noted
                await _send(client, task, batch, claim.identity, claim.start_offset + index, looks_first=was_silent)
                noted = silence_counter.silences
            except BaseException:
                await asyncio.wait([ahead])
                with suppress(Exception):
                    ahead.result()  # seen: else asyncio tells of it, with a traceback
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
    store: ObjectStore, claim: Claim, task: RestoreTask, offsets: OffsetMapWriter, skip: Skip | None = None
) -> Generator[Frame, None, None]:
    """Read all that is restored, from the beginning, and note where it goes."""
    for frame in read_wanted(store, task, claim.skipped, skip):
        offsets.add(frame)
        yield frame


def read_wanted(store: ObjectStore, task: RestoreTask, skipped: Collection[str], skip: Skip | None) -> Iterator[Frame]:
    """Read all that is restored of a source partition, from the beginning, but for what was left out before."""
    parts = [part for part in task.parts if part.object_key not in skipped]
    with spare_rooms() as rooms:  # frames are encoded, or counted, one by one
        yield from read_parts(
            store, task.source_topic, task.partition, parts, selection=task.selection, skip=skip, rooms=rooms
        )


def left_out(task: RestoreTask, skipped: Collection[str]) -> list[str]:
    """Tell what an attempt before this one has left out, and this one therefore must leave out, too."""
    return [f"{part}: was damaged, and was skipped" for part in task.parts if part.object_key in skipped]


def _encode(
    frames: Iterable[Frame],
    identity: ProducerIdentity,
    first_index: int,
    totals: Tally,
    last_there: Tally,
    task: RestoreTask,
) -> Generator[EncodedBatch, None, None]:
    """Make batches of all records from `first_index` on, and give `last_there` the one before; the sequence number of a record is its index."""
    encoder = BatchEncoder(
        codec=BatchCodec.LZ4,
        batch_bytes=task.batch_bytes,
        most_bytes=task.sent_bytes,
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
    looks_first: bool,
) -> None:
    standing = partial(_standing, client, task, batch, identity, expected_offset)
    what = f"records from offset {expected_offset} on"
    offset = await send(client, task.target_topic, task.partition, batch, what, standing, looks_first=looks_first)
    if offset != expected_offset:
        raise StrangerError(
            f"records landed at offset {offset} instead of {expected_offset}: someone else wrote to the target during the"
            f" restore; {anew(task)}"
        )


async def _standing(
    client: KafkaClient, task: RestoreTask, batch: EncodedBatch, identity: ProducerIdentity, offset: int
) -> int | None:
    """Return the offset of a batch of which no answer came, if it is the last in the log. Raises Behind when more is there."""
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    if offsets.high_watermark <= offset:
        return None
    where = LogRange(
        topic=task.target_topic, topic_id=task.target_topic_id, partition=task.partition, start=offset, end=offset + 1
    )
    if offsets.high_watermark != offset + batch.records or await producer_at(client, where) != identity.producer_id:
        raise Behind
    return offset


async def _refuse_more(client: KafkaClient, claim: Claim, restored: Verified, task: RestoreTask) -> None:
    """Refuse a target that goes on behind what was restored."""
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    end = claim.start_offset + restored.records
    if offsets.high_watermark != end:
        raise StrangerError(
            f"the target ends at offset {offsets.high_watermark}, not at {end}: someone else wrote to it; {anew(task)}"
        )


def _range_of(claim: Claim, restored: Verified, task: RestoreTask) -> LogRange:
    return LogRange(
        topic=task.target_topic,
        topic_id=task.target_topic_id,
        partition=task.partition,
        start=claim.start_offset,
        end=claim.start_offset + restored.records,
    )


async def _read_back(client: KafkaClient, claim: Claim, restored: Verified, task: RestoreTask) -> tuple[int, int]:
    """Read the target: as many records, the same digest, in this order. Returns the digest, and the last batch's leader epoch."""
    found, log_range = Tally(), _range_of(claim, restored, task)
    try:
        leader_epoch = await read_log(client, log_range, found.add)
    except LogStartError as error:
        raise await deleted_since(client, log_range, "" if claim.verified is not None else anew(task)) from error
    if (found.records, found.digest) == (restored.records, restored.digest):
        return found.digest, leader_epoch
    stands = f"the target holds {spell_count(found.records, 'record')} of digest {found.digest:016x}"
    if claim.verified is not None:  # by an earlier run, and then its configs were set
        raise changed_since(stands, restored.records, restored.digest)
    raise NotWholeError(f"{stands}, the archive {restored.records} of {restored.digest:016x}; {anew(task)}")


def changed_since(stands: str, records: int, digest: int) -> NotWholeError:
    """Tell of what was restored, and read back then, that it is not the same any more."""
    return NotWholeError(
        f"{stands}, and had {records} of {digest:016x} when they were restored: it was compacted since, or someone else"
        " wrote to it. For what was restored, restore under another name with --rename and another --id"
    )


async def deleted_since(client: KafkaClient, restored: LogRange, advice: str) -> NotWholeError:
    """Tell how much of what was restored the brokers have deleted. `advice`: what to do when that was too soon."""
    which = restored.topic, restored.partition
    log_start = min((await client.offsets([which]))[which].log_start, restored.end)
    return NotWholeError(
        f"of offsets {restored.start}-{restored.end - 1}, which were restored, the brokers have deleted those below"
        f" {log_start}: for the topic's retention, or because they were told to"
        + (f"; see to it that they leave the records alone. {advice}" if advice else "")
    )
