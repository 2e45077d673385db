"""Checks whether brokers have lost records of a target since they were read back: verified records must still exist."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.epochs import end_of_epoch
from archiver.kafka.records.log_reader import LogRange, batch_at


async def still_stands(
    client: KafkaClient, verified: LogRange, log_start: int, producer_ids: Collection[int], leader_epoch: int
) -> bool:
    """Return whether a range still has the verified records, by its last one: a log is cut at its end, and can have grown again.

    `leader_epoch`: of the last record; -1: not noted. False: only reading the whole range would show it.
    """
    if verified.end <= max(verified.start, log_start):  # no record, or all expired
        return True
    last = replace(verified, start=verified.end - 1)
    found = await batch_at(client, last)
    if found is not None and found.base_offset <= last.start:
        return found.producer_id in producer_ids
    # Compaction took the record. Its epoch proves less: killed leaders before 4.0 may lead on in the same epoch.
    epoch = await end_of_epoch(client, last.topic, last.partition, leader_epoch) if leader_epoch >= 0 else None
    return epoch is not None and epoch.leader_epoch == leader_epoch and epoch.end_offset >= last.end


def lost_problems(short: Mapping[str, Mapping[int, tuple[int, int]]], finished: Collection[str]) -> list[str]:
    """Return why topics in use whose brokers have lost records are left alone: only their owner may fill them."""
    return [
        f"target topic {name} was restored and finished, with partition {number} up to offset {end}, and ends at {now}"
        " now: the brokers have lost records since; restore under another name with --rename and another --id, or delete"
        " the topic and restore again"
        for name in sorted(short.keys() & finished)
        for number, (now, end) in list(short[name].items())[:1]
    ]
