"""Values that describe a cluster: topics, partition offsets, open transactions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from archiver.errors import KafkaError, KafkaTemporaryError

TopicPartition = tuple[str, int]
Refusal = KafkaError | KafkaTemporaryError

# Topics that brokers create when they need them, with configs of their own. Of existing ones brokers say so themselves.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Replicas(NamedTuple):
    """The number of a partition's replicas, and of those in sync."""

    in_sync: int
    assigned: int
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic. `topic_id` is empty if the broker has none; a partition without a leader is not in `leaders`."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    leaders: Mapping[int, int]
    is_internal: bool
    fewest: Replicas  # of the partition with the fewest replicas in sync
    replicas: tuple[int, ...]  # how many each partition has, in the order of partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The begin and end of a partition: log_start <= last_stable <= high_watermark."""

    log_start: int
    high_watermark: int
    last_stable: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that holds back the last stable offset; `transactional_id` is empty if brokers do not return it."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str = ""

    def __str__(self) -> str:
        name = f" ({self.transactional_id})" if self.transactional_id else ""
        return f"producer id {self.producer_id}{name}, begun at offset {self.start_offset}"


class NodeRefusedError(KafkaTemporaryError):
    """One broker does not let us in. Others may, and may become leaders of its partitions."""


class AbsentError(KafkaTemporaryError):
    """The topic or partition does not exist, or is too new for some broker to know it."""
