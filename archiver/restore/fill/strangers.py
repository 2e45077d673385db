"""Checks that a target partition has only this restore's records, while its task fills it and reads it back."""

from contextlib import suppress

from archiver.codec.batch_encoder import SEQUENCES
from archiver.codec.tally import Tally
from archiver.errors import NotWholeError, StrangerError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.log_reader import LogRange, LogStartError, producer_at, read_log
from archiver.process.output.text import spell_count
from archiver.restore.plan.claims import Contents, PartitionClaim
from archiver.restore.plan.task import RestoreTask


def target_range(task: RestoreTask, start: int, end: int) -> LogRange:
    """Return a range of the task's target partition, without `end`."""
    return LogRange(
        topic=task.target_topic, topic_id=task.target_topic_id, partition=task.partition, start=start, end=end
    )


async def refuse_stranger_at_start(client: KafkaClient, claim: PartitionClaim, task: RestoreTask) -> None:
    """Refuse a target whose first batch after the claim is not ours: its records would count as ours, and ours not be sent."""
    where = target_range(task, claim.start_offset, claim.start_offset + 1)
    writer = await producer_at(client, where)
    if writer != claim.identity.producer_id:
        raise StrangerError(
            f"someone else wrote to the target at offset {claim.start_offset}, before this restore did; {advice_for(task)}"
        )


def advice_for(task: RestoreTask) -> str:
    """Return the advice on a target that someone else wrote to."""
    if not task.mode.appends:
        return "delete the topic and restore again"
    # Another --id is refused: this restore has begun the topic.
    return f"the records that are there stay. Restore into another topic with --rename {task.origin.topic}=NEW"


async def refuse_another_record(
    client: KafkaClient, claim: PartitionClaim, index: int, restored: Tally, task: RestoreTask
) -> None:
    """Refuse, before anything is sent, a target whose last record is not the one that this restore sends there.

    A claim may be forged, and name the producers of a live topic as ours: then the records still differ.
    """
    if not restored.records:
        return
    found, offset = Tally(), claim.start_offset + index
    where = target_range(task, offset, offset + 1)
    with suppress(LogStartError):  # the brokers have deleted it; the read-back decides
        await read_log(client, where, found.add)
    if found.records and found.digest != restored.digest:
        raise StrangerError(
            f"the record at offset {offset} is not the one of the archive that this restore puts there: it has not filled the"
            f" target, whatever was noted; {advice_for(task)}"
        )


async def refuse_strangers(already_there: int, client: KafkaClient, claim: PartitionClaim, task: RestoreTask) -> None:
    """Refuse a log with more records than this restore sent, unless another run of the restore fills it right now.

    The log end was read first: so the broker may remember more of our records than the log had then, never less.
    """
    last = await client.last_sequence(task.target_topic, task.partition, claim.identity.producer_id)
    if last is not None and (already_there - last - 1) % SEQUENCES in range(1, SEQUENCES // 2):
        raise StrangerError(
            f"the target holds {spell_count(already_there, 'record')} where this restore has written up to number {last}: someone else"
            f" wrote to the target during the restore; {advice_for(task)}"
        )


async def refuse_more(client: KafkaClient, claim: PartitionClaim, restored: Contents, task: RestoreTask) -> None:
    """Refuse a target with records after the restored ones."""
    offsets = (await client.offsets([(task.target_topic, task.partition)]))[task.target_topic, task.partition]
    end = claim.start_offset + restored.records
    if offsets.high_watermark != end:
        raise StrangerError(
            f"the target ends at offset {offsets.high_watermark}, not at {end}: someone else wrote to it; {advice_for(task)}"
        )


def restored_range(claim: PartitionClaim, restored: Contents, task: RestoreTask) -> LogRange:
    return target_range(task, claim.start_offset, claim.start_offset + restored.records)


def changed_since(stands: str, records: int, digest: int) -> NotWholeError:
    """Return the error for verified records that have changed since."""
    return NotWholeError(
        f"{stands}, and had {records} of {digest:016x} when they were restored: it was compacted since, or someone else"
        " wrote to it. For what was restored, restore under another name with --rename and another --id"
    )


async def deleted_since(client: KafkaClient, restored: LogRange, advice: str) -> NotWholeError:
    """Return the error for restored records that the brokers have deleted. `advice`: for deletes that were too early."""
    which = restored.topic, restored.partition
    log_start = min((await client.offsets([which]))[which].log_start, restored.end)
    return NotWholeError(
        f"of offsets {restored.start}-{restored.end - 1}, which were restored, the brokers have deleted those below"
        f" {log_start}: for the topic's retention, or because they were told to"
        + (f"; see to it that they leave the records alone. {advice}" if advice else "")
    )
