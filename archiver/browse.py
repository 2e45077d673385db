"""The archive's topics, and their records as plain values (`cat`)."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from archiver.codec.arrow import frame_to_arrow
from archiver.control import TopicFact, read_topic
from archiver.errors import UsageError
from archiver.frame import Frame
from archiver.inventory import Inventory, PartitionInventory, read_inventory
from archiver.layout import Layout
from archiver.reader import ObjectPart, read_parts
from archiver.restore import ArchivedTopic
from archiver.store import ObjectStore


def read_archive(store: ObjectStore, layout: Layout) -> list[ArchivedTopic]:
    """Read all topics in their current lives, each with what is known of it."""
    inventory = read_inventory(store, layout)
    names = sorted({topic for topic, _ in inventory.partitions} | {damage.key.topic for damage in inventory.damaged})
    return [_archived(store, layout, inventory, name) for name in names]


def _archived(store: ObjectStore, layout: Layout, inventory: Inventory, topic: str) -> ArchivedTopic:
    fact = read_topic(store, layout, topic)
    life = _current_life(inventory, topic, fact)
    partitions = inventory.partitions.get((topic, life), {})
    damaged = {
        damage.key.partition: damage.message
        for damage in inventory.damaged
        if (damage.key.topic, damage.key.life) == (topic, life)
    }
    return ArchivedTopic(topic=topic, life=life, fact=fact, partitions=partitions, damaged=damaged)


def _current_life(inventory: Inventory, topic: str, fact: TopicFact | None) -> int:
    if fact is not None:
        return fact.current.life
    return max((life for name, life in inventory.partitions if name == topic), default=0)


def find_topic(store: ObjectStore, layout: Layout, name: str) -> ArchivedTopic:
    """Read one topic in its current life."""
    inventory = read_inventory(store, layout, lambda topic, _life: topic == name)
    if not any(topic == name for topic, _ in inventory.partitions):
        raise UsageError(f"topic {name} is not in the archive; `archiver ls` shows what is")
    return _archived(store, layout, inventory, name)


def read_records(
    store: ObjectStore, topic: ArchivedTopic, *, partition: int | None, from_offset: int
) -> Iterator[dict[str, Any]]:
    """Read records as plain values, partition by partition, in offset order."""
    if partition is not None and partition not in topic.partitions:
        have = ", ".join(map(str, topic.partitions))
        raise UsageError(f"{topic.topic} has no partition {partition} in the archive; it has {have}")
    for number, inventory in topic.partitions.items():
        if partition in {None, number}:
            for frame in read_parts(store, topic.topic, number, _parts_from(inventory, from_offset)):
                yield from frame_to_values(frame, number)


def _parts_from(inventory: PartitionInventory, from_offset: int) -> list[ObjectPart]:
    return [
        ObjectPart(object_key=reading.segment.object_key, from_offset=max(reading.from_offset, from_offset))
        for reading in inventory.readable
        if reading.segment.facts.next > from_offset
    ]


def frame_to_values(frame: Frame, partition: int) -> Iterator[dict[str, Any]]:
    """Turn a frame into plain values that JSON can hold."""
    for row in frame_to_arrow(frame).to_pylist():
        yield {
            "partition": partition,
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "timestampType": row["timestampType"],
            "key": tell_bytes(row["key"]),
            "value": tell_bytes(row["value"]),
            "headers": [[tell_bytes(header["key"]), tell_bytes(header["value"])] for header in row["headers"]],
        }


def tell_bytes(value: bytes | None) -> Mapping[str, str] | None:
    """Tell bytes without loss: null, text when it is UTF-8, else base64."""
    if value is None:
        return None
    try:
        return {"utf8": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
