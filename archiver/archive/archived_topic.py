"""One topic of the archive as one of its lives has it, and which of its offsets are wanted or missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from archiver.archive.inventory import EMPTY_PARTITION, PartitionInventory, problems_of
from archiver.archive.layout import CopyKey
from archiver.archive.roles import HISTORY, Generation, RolePlace
from archiver.archive.segments import Readings, SegmentSlice, blocks_of
from archiver.archive.topics import TopicFact
from archiver.codec.selection import NO_TIMESTAMP, Selection
from archiver.process.columns import Chain, as_slice


class CopyStretch(NamedTuple):
    """Offsets of a partition that are read from the objects of this generation; None: from those under `topics/`."""

    generation: Generation | None
    life: int
    from_offset: int
    until_offset: int | None = None  # exclusive; None: to the end of the objects

    def __str__(self) -> str:
        return HISTORY if self.generation is None else str(self.generation)

    def copy_of(self, topic: str, partition: int) -> CopyKey | None:
        """Return the copy whose objects are read; None: those under `topics/`."""
        if self.generation is None:
            return None
        return RolePlace(topic=topic, life=self.life, partition=partition).copy_key(self.generation)

    @property
    def whose(self) -> str:
        """Whose objects are read: an instance's, or those under `topics/`."""
        return HISTORY if self.generation is None else self.generation.instance


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReading:
    """Whose objects of a partition are read, by its role log."""

    stretches: tuple[CopyStretch, ...]
    is_sure: bool = True  # no: there may be values whose tombstones were gone before they were read
    reach: int = field(
        default=0, compare=False
    )  # up to where that is all of the log: behind the last object it held no record
    needs: str = field(default="", compare=False)  # why records of the copy before are needed, and read, too

    @property
    def is_copy(self) -> bool:
        """Whether any object of a copy may be read; by its role log, a partition can be read under `topics/` alone, too."""
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
    notes: tuple[str, ...] = ()  # what may surprise about that, a line each
    ignored: tuple[str, ...] = ()  # role logs that are not read, and should not be there

    @property
    def is_copied(self) -> bool:
        """Whether a copy is read of any partition: then the topic is compacted."""
        return any(reading.is_copy for reading in self.copies.values())


def problems_within(topic: ArchivedTopic, number: int, selection: Selection) -> list[str]:
    """Return the missing ones of the wanted offsets. A damaged object counts as wanted, since its offsets are unknown."""
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
