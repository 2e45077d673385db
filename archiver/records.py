"""Records of the archive as plain values (`cat`): those that are wanted, in order, and what keeps others from being read."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from archiver.archived import ArchivedTopic, problems_within, wanted_readings
from archiver.browse import Tell, find_topic
from archiver.codec.rows import frame_rows
from archiver.config import IndexUse
from archiver.errors import NotWholeError, UsageError
from archiver.frame import Frame
from archiver.inventory import EMPTY
from archiver.layout import Layout
from archiver.parts import FactsOfParts, parts_within, with_planned
from archiver.reader import read_parts
from archiver.selection import EVERYTHING, Selection, Wanted
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
    reads = wanted_of(partition, selection, positions)
    for number in _numbers(topic, partition):
        wanted = reads(number) or selection
        for problem in problems_within(topic, number, wanted):
            tell(problem)
        readings = wanted_readings(topic.partitions.get(number, EMPTY).readable, wanted)
        parts = parts_within(readings, wanted)
        for part in with_planned(parts, FactsOfParts.of_parts(parts, readings)):
            try:
                for frame in read_parts(store, topic.topic, number, [part], selection=wanted):
                    yield from frame_to_values(frame, number)
            except NotWholeError as error:
                tell(f"{topic.topic}-{number}: {error}")


def wanted_of(partition: int | None, selection: Selection, positions: Mapping[int, int] | None = None) -> Wanted:
    """Return what is wanted of each partition; `positions` as in read_records."""

    def wanted(number: int) -> Selection | None:
        seen = Selection(first_offset=(positions or {}).get(number, 0))
        return selection.within(seen) if partition in {None, number} else None

    return wanted


def follow_records(
    store: ObjectStore,
    layout: Layout,
    name: str,
    *,
    tell: Tell,
    pause: Callable[[], object],
    partition: int | None = None,
    selection: Selection = EVERYTHING,
    use: IndexUse = IndexUse.CHECK,
) -> Iterator[dict[str, Any]]:
    """Read a topic, and for ever what is archived of it later. Each problem is told once."""
    told: set[str] = set()
    positions: dict[int, int] = {}
    root, life = 0, 0

    def tell_once(problem: str) -> None:
        if problem not in told:
            told.add(problem)
            tell(problem)

    while True:
        topic = find_topic(
            store, layout, name, use=use, reads=wanted_of(partition, selection, positions), tell=tell_once
        )
        if topic.fact is not None:
            fact, root_before = topic.fact, root
            root = fact.root(topic.life)
            if root != root_before:
                positions.clear()  # it was created again: another log, from its beginning
            for later in (one for one in fact.lives if fact.root(one.life) == root and one.life > life):
                for number, branch in later.branches.items():  # the log was cut back: other records stand there now
                    positions[number] = min(positions.get(number, 0), branch.offset)
            life = topic.life
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
