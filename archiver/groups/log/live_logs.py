"""Queries the cluster for the ends of `__consumer_offsets`, and for open transactions that hold these back. `groups show` uses it.

Commits behind an open transaction are archived only after it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from archiver.errors import KafkaError, KafkaTemporaryError, StrangerError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import OpenTransaction
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.login.settings import KafkaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLog:
    """A partition of the offsets topic, as its leader has it now."""

    partition: int
    end: int
    last_stable: int  # the end for all readers
    transactions: Sequence[OpenTransaction] = ()  # the transactions that hold it back, the oldest first
    problem: str = ""  # why the transactions are unknown


async def survey_live_logs(settings: KafkaSettings, archived_of: str | None) -> list[LiveLog]:
    """Query the cluster. `archived_of`: the id of the archived cluster. Raises KafkaError, KafkaTemporaryError and StrangerError."""
    async with KafkaClient(settings) as client:
        cluster_id = await client.cluster_id()
        if archived_of not in {None, cluster_id}:
            raise StrangerError(
                f"kafka.bootstrap.servers leads to cluster {cluster_id}, and this archive belongs to {archived_of}"
            )
        described = (await client.describe_topics([OFFSETS_TOPIC])).get(OFFSETS_TOPIC)
        numbers = () if described is None else described.partitions
        found = await client.offsets((OFFSETS_TOPIC, number) for number in numbers)
        logs = [
            LiveLog(partition=number, end=offsets.high_watermark, last_stable=offsets.last_stable)
            for (_, number), offsets in sorted(found.items())
        ]
        return [await _with_transactions(client, log) if log.last_stable < log.end else log for log in logs]


async def _with_transactions(client: KafkaClient, log: LiveLog) -> LiveLog:
    try:
        return replace(log, transactions=await client.open_transactions(OFFSETS_TOPIC, log.partition))
    except (KafkaError, KafkaTemporaryError) as error:
        return replace(log, problem=str(error))
