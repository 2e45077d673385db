"""One topic of the archive as one of its lives has it, and which of its offsets are wanted or missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from archiver.archive.inventory import EMPTY_PARTITION, PartitionInventory, problems_of
from archiver.archive.segments import Reading, Readings, blocks_of
from archiver.archive.topics import TopicFact
from archiver.codec.selection import NO_TIMESTAMP, Selection
from archiver.process.columns import Chain, as_slice


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """What the archive has of a topic in one life, and in the lives that this one goes on from. `fact` None: the topic's shape is not known."""

    topic: str
    life: int
    fact: TopicFact | None
    partitions: Mapping[int, PartitionInventory]
    damaged: Mapping[int, Sequence[str]]  # partition -> what is wrong with its objects
    other_lives: tuple[int, ...]  # lives that have records, and of which nothing is joined here


def problems_within(topic: ArchivedTopic, number: int, selection: Selection) -> list[str]:
    """Name what is missing of the wanted offsets. A damaged object counts as wanted: nobody knows which offsets it holds."""
    inventory = topic.partitions.get(number, EMPTY_PARTITION)
    gaps = tuple(
        gap
        for gap in inventory.gaps
        if gap.first_offset <= selection.last_offset and gap.last_offset >= selection.first_offset
    )
    overlaps = tuple(
        overlap
        for overlap in inventory.overlaps
        if overlap.first_offset <= selection.last_offset and overlap.last_offset >= selection.first_offset
    )
    concerned = replace(inventory, gaps=gaps, overlaps=overlaps)
    return problems_of(topic.topic, number, concerned, topic.damaged.get(number, ()))


def wanted_readings(readable: Sequence[Reading], selection: Selection) -> Sequence[Reading]:
    """Leave out objects that cannot hold a selected record: by the offsets that they cover, and by their times."""
    return Chain(_wanted(block, selection) for block in blocks_of(readable))


def _wanted(readings: Readings, selection: Selection) -> Readings:
    """Leave out the same objects, by columns. An object of v1.0 stays, because its times are not known.

    Covered offsets are believed, because names of objects confirm them. Where the first and the last record lie within is
    not: an index could say that falsely, and nobody would find out about an object that is not read.
    """
    segments = readings.segments
    kept = (readings.next > selection.first_offset) & (readings.from_offset <= selection.last_offset)
    if selection.has_times:
        earliest, latest = segments.numbers("min_timestamp"), segments.numbers("max_timestamp")
        are_within = (earliest <= selection.until_ms) & (latest >= selection.from_ms)
        kept &= ~segments.has_facts | (are_within & ~((earliest == NO_TIMESTAMP) & (latest == NO_TIMESTAMP)))
    return readings if kept.all() else readings.only(as_slice(np.flatnonzero(kept)))
