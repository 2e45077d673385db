"""What the archive holds, summed up (`ls`): from facts alone, without a body or a kernel."""

from collections.abc import Sequence
from dataclasses import dataclass

from archiver.inventory import Inventory, PartitionInventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Totals of a partition, or of a topic (`partition` None)."""

    topic: str
    life: int
    partition: int | None
    partitions: int
    segments: int
    records: int
    payload_bytes: int
    stored_bytes: int
    first_offset: int
    next_offset: int
    min_timestamp: int
    max_timestamp: int
    holes: int
    gaps: int
    shadowed: int


def list_topics(inventory: Inventory) -> list[Holding]:
    """Sum up each life of each topic."""
    return [
        _sum_up(topic, life, None, list(partitions.values()))
        for (topic, life), partitions in inventory.partitions.items()
    ]


def list_partitions(inventory: Inventory, topic: str) -> list[Holding]:
    """Sum up each partition of a topic, in all its lives."""
    return [
        _sum_up(name, life, number, [partition])
        for (name, life), partitions in inventory.partitions.items()
        if name == topic
        for number, partition in partitions.items()
    ]


def _sum_up(topic: str, life: int, number: int | None, partitions: Sequence[PartitionInventory]) -> Holding:
    segments = [segment for partition in partitions for segment in partition.segments]
    facts = [segment.facts for segment in segments]
    return Holding(
        topic=topic,
        life=life,
        partition=number,
        partitions=len(partitions),
        segments=len(segments),
        records=sum(one.records for one in facts),
        payload_bytes=sum(one.bytes for one in facts),
        stored_bytes=sum(segment.size for segment in segments),
        first_offset=min(one.first for one in facts),
        next_offset=max(one.next for one in facts),
        min_timestamp=min(one.min_timestamp for one in facts),
        max_timestamp=max(one.max_timestamp for one in facts),
        holes=sum(len(one.holes) for one in facts),
        gaps=sum(len(partition.gaps) for partition in partitions),
        shadowed=sum(len(partition.shadowed) for partition in partitions),
    )
