"""The archive's topics, and their records as plain values (`cat`)."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from archiver.codec.arrow import frame_to_arrow
from archiver.control import TOPICS, TopicFact, facts, topic_stream
from archiver.errors import UsageError
from archiver.frame import Frame
from archiver.inventory import Inventory, PartitionInventory, read_inventory
from archiver.layout import Layout
from archiver.reader import ObjectPart, read_parts
from archiver.restore import ArchivedTopic
from archiver.store import ObjectStore


def read_archive(store: ObjectStore, layout: Layout, life: int | None = None) -> list[ArchivedTopic]:
    """Read all topics, also those without a record, each in one life: the given one, or the newest that has records."""
    inventory = read_inventory(store, layout)
    names = {topic for topic, _ in inventory.partitions} | {damage.key.topic for damage in inventory.damaged}
    names.update(store.list_directories(layout.control_prefix(TOPICS)))
    return [_archived(store, layout, inventory, name, life) for name in sorted(names)]


def find_topic(store: ObjectStore, layout: Layout, name: str, life: int | None = None) -> ArchivedTopic:
    """Read one topic in one life: the given one, or the newest that has records."""
    inventory = read_inventory(store, layout, lambda topic, _life: topic == name)
    topic = _archived(store, layout, inventory, name, life)
    if topic.fact is None and not topic.partitions and not topic.damaged:
        raise UsageError(f"topic {name} is not in the archive; `archiver ls` shows what is")
    return topic


def _archived(
    store: ObjectStore, layout: Layout, inventory: Inventory, topic: str, wanted_life: int | None
) -> ArchivedTopic:
    history = [TopicFact.from_fact(fact) for fact in facts(store, layout, topic_stream(topic))]
    with_records = {life for name, life in inventory.partitions if name == topic}
    with_records |= {damage.key.life for damage in inventory.damaged if damage.key.topic == topic}
    known = with_records | {life.life for fact in history for life in fact.lives}
    life = max(with_records or known, default=0) if wanted_life is None else wanted_life
    if wanted_life is not None and wanted_life not in known:
        raise UsageError(
            f"{topic} has no life {wanted_life} in the archive; it has {', '.join(map(str, sorted(known)))}"
        )
    damaged = {
        damage.key.partition: damage.message
        for damage in inventory.damaged
        if (damage.key.topic, damage.key.life) == (topic, life)
    }
    return ArchivedTopic(
        topic=topic,
        life=life,
        # What the topic was in that life, not what became of its name later.
        fact=next((fact for fact in reversed(history) if fact.current.life == life), None),
        partitions=inventory.partitions.get((topic, life), {}),
        damaged=damaged,
        other_lives=tuple(sorted(with_records - {life})),
    )


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
