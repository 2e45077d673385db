"""Records of the archive as plain values (`cat`): those that are wanted, in order, and what keeps others from being read."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from archiver.browse import Tell, find_topic
from archiver.codec.rows import frame_rows
from archiver.errors import NotWholeError, UsageError
from archiver.frame import Frame
from archiver.inventory import EMPTY, Reading, problems_of
from archiver.layout import Layout
from archiver.reader import ObjectPart, read_parts
from archiver.restore import ArchivedTopic
from archiver.selection import EVERYTHING, LAST_LONG, Selection
from archiver.store import ObjectStore


def read_records(
    store: ObjectStore,
    topic: ArchivedTopic,
    *,
    tell: Tell,
    partition: int | None = None,
    selection: Selection = EVERYTHING,
    positions: Mapping[int, int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Read what can be read as plain values, partition by partition, in offset order; tell what cannot.

    `positions` are offsets of partitions below which nothing is wanted any more.
    """
    for number in _numbers(topic, partition):
        seen = Selection(first_offset=(positions or {}).get(number, 0))
        wanted = selection.within(seen)
        for problem in problems_within(topic, number, wanted):
            tell(problem)
        for reading in wanted_readings(topic.partitions.get(number, EMPTY).readable, wanted):
            try:
                for frame in read_parts(store, topic.topic, number, [_part(reading, wanted)]):
                    yield from (row for row in frame_to_values(frame, number) if wanted.has(row["timestamp"]))
            except NotWholeError as error:
                tell(f"{topic.topic}-{number}: {error}")


def follow_records(
    store: ObjectStore,
    layout: Layout,
    name: str,
    *,
    tell: Tell,
    pause: Callable[[], object],
    partition: int | None = None,
    selection: Selection = EVERYTHING,
) -> Iterator[dict[str, Any]]:
    """Read a topic, and for ever what is archived of it later. Each problem is told once."""
    told: set[str] = set()
    positions: dict[int, int] = {}
    topic_id, life = "", 0

    def tell_once(problem: str) -> None:
        if problem not in told:
            told.add(problem)
            tell(problem)

    while True:
        topic = find_topic(store, layout, name, tell=tell_once)
        if topic.fact is not None:
            current = topic.fact.current
            if current.topic_id != topic_id:
                positions.clear()  # it was created again: another log, from its beginning
            for later in (one for one in topic.fact.lives if one.topic_id == current.topic_id and one.life > life):
                for number, branch in later.branches.items():  # the log was cut back: other records stand there now
                    positions[number] = min(positions.get(number, 0), branch.offset)
            topic_id, life = current.topic_id, topic.life
        for row in read_records(
            store, topic, tell=tell_once, partition=partition, selection=selection, positions=positions
        ):
            positions[row["partition"]] = row["offset"] + 1
            yield row
        pause()


def _numbers(topic: ArchivedTopic, partition: int | None) -> Sequence[int]:
    shape = range(0 if topic.fact is None else topic.fact.partitions)
    have = sorted({*topic.partitions, *topic.damaged, *shape})
    if partition is not None and partition not in have:
        raise UsageError(
            f"{topic.topic} has no partition {partition} in the archive; it has {', '.join(map(str, have)) or 'none'}"
        )
    return have if partition is None else [partition]


def problems_within(topic: ArchivedTopic, number: int, selection: Selection) -> list[str]:
    """Tell what is missing of what is wanted. Where a damaged object lies is not known: it counts as wanted."""
    inventory = topic.partitions.get(number, EMPTY)
    gaps = tuple(
        gap
        for gap in inventory.gaps
        if gap.first_offset <= selection.last_offset and gap.last_offset >= selection.first_offset
    )
    return problems_of(topic.topic, number, replace(inventory, gaps=gaps), topic.damaged.get(number, ()))


def wanted_readings(readable: Sequence[Reading], selection: Selection) -> list[Reading]:
    """Leave out objects that cannot hold a selected record, by their facts."""
    return [reading for reading in readable if _may_hold(reading, selection)]


def _may_hold(reading: Reading, selection: Selection) -> bool:
    facts = reading.segment.facts
    last = facts.last if reading.until_offset is None else min(facts.last, reading.until_offset - 1)
    first = max(facts.first, reading.from_offset)
    return first <= last and selection.may_hold(
        first_offset=first, last_offset=last, min_timestamp=facts.min_timestamp, max_timestamp=facts.max_timestamp
    )


def _part(reading: Reading, selection: Selection) -> ObjectPart:
    part = ObjectPart.of(reading)
    wanted_end = None if selection.last_offset == LAST_LONG else selection.last_offset + 1
    ends = [end for end in (part.until_offset, wanted_end) if end is not None]
    first = max(part.from_offset, selection.first_offset)
    return replace(part, from_offset=first, until_offset=min(ends, default=None))


def frame_to_values(frame: Frame, partition: int) -> Iterator[dict[str, Any]]:
    """Turn a frame into plain values that JSON can hold."""
    for row in frame_rows(frame):
        yield {
            "partition": partition,
            "offset": row.offset,
            "timestamp": row.timestamp,
            "timestampType": row.timestamp_type,
            "key": tell_bytes(row.key),
            "value": tell_bytes(row.value),
            "headers": [[tell_bytes(key), tell_bytes(value)] for key, value in row.headers],
        }


def tell_bytes(value: bytes | None) -> Mapping[str, str] | None:
    """Tell bytes without loss: null, text when it is UTF-8, else base64."""
    if value is None:
        return None
    try:
        return {"utf8": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
