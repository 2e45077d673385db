"""One topic of the archive in one of its lives, with its wanted and missing offsets. Readers of records use it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from archiver.archive.copies.roles import HISTORY, Generation, RolePlace
from archiver.archive.format.layout import CopyKey
from archiver.archive.index.inventory import EMPTY_PARTITION, PartitionInventory, problems_of
from archiver.archive.notes.topics import TopicFact
from archiver.archive.segments.partition_segments import Readings, SegmentSlice, blocks_of
from archiver.codec.selection import NO_TIMESTAMP, Selection
from archiver.process.values.columns import Chain, as_slice


class CopyRange(NamedTuple):
    """Offsets of a partition to read from the objects of this generation; None: from the objects under `topics/`."""

    generation: Generation | None
    life: int
    from_offset: int
    until_offset: int | None = None  # exclusive; None: to the end of the objects

    def __str__(self) -> str:
        return HISTORY if self.generation is None else str(self.generation)

    def copy_of(self, topic: str, partition: int) -> CopyKey | None:
        """Return the copy to read; None: the objects under `topics/`."""
        if self.generation is None:
            return None
        return RolePlace(topic=topic, life=self.life, partition=partition).copy_key(self.generation)

    @property
    def whose(self) -> str:
        """The source of the objects: an instance, or the history under `topics/`."""
        return HISTORY if self.generation is None else self.generation.instance


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReading:
    """The objects of a partition that are read according to its role log, as stretches."""

    stretches: tuple[CopyRange, ...]
    is_sure: bool = True  # no: values may be left whose tombstones expired before they were read
    reach: int = field(
        default=0, compare=False
    )  # these objects are the whole log below this offset; the log held no record behind the last object
    needs: str = field(default="", compare=False)  # why records of the former copy are needed and also read

    @property
    def is_copy(self) -> bool:
        """Whether any object of a copy may be read. A role log can also name `topics/` alone."""
        return any(stretch.generation is not None for stretch in self.stretches)

    def __str__(self) -> str:
        return " + ".join(dict.fromkeys(map(str, self.stretches)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic in one life, joined with the lives that it continues. `fact` None: the topic's shape is unknown."""

    topic: str
    life: int
    fact: TopicFact | None
    partitions: Mapping[int, PartitionInventory]
    damaged: Mapping[int, Sequence[str]]  # partition -> problems of its objects
    other_lives: tuple[int, ...]  # lives with records that are not joined here
    copies: Mapping[int, CopyReading] = field(default_factory=dict)  # of partitions that have a role log
    notes: tuple[str, ...] = ()  # unexpected facts about the reading, a line each
    ignored: tuple[str, ...] = ()  # role logs that are ignored because they should not exist

    @property
    def is_copied(self) -> bool:
        """Whether any partition is read from a copy: then the topic is compacted."""
        return any(reading.is_copy for reading in self.copies.values())


def problems_within(topic: ArchivedTopic, number: int, selection: Selection) -> list[str]:
    """Return the wanted offsets that are missing. A damaged object counts as wanted, since its offsets are unknown."""
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


def wanted_readings(readable: Sequence[SegmentSlice], selection: Selection) -> Sequence[SegmentSlice]:
    """Leave out objects that cannot hold a selected record: by the offsets that they cover, and by their times."""
    return Chain(_wanted(block, selection) for block in blocks_of(readable))


def _wanted(readings: Readings, selection: Selection) -> Readings:
    """Leave out the same objects, by columns. An object of v1.0 stays, because its times are unknown.

    Covered offsets are trusted, because names of objects confirm them. The offsets of the first and the last record are not
    trusted: no reader would detect a false index entry of an unread object.
    """
    segments = readings.segments
    kept = (readings.next > selection.first_offset) & (readings.from_offset <= selection.last_offset)
    if selection.has_times:
        earliest, latest = segments.numbers("min_timestamp"), segments.numbers("max_timestamp")
        are_within = (earliest <= selection.until_ms) & (latest >= selection.from_ms)
        kept &= ~segments.has_facts | (are_within & ~((earliest == NO_TIMESTAMP) & (latest == NO_TIMESTAMP)))
    return readings if kept.all() else readings.only(as_slice(np.flatnonzero(kept)))
