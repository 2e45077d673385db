"""What the archive has of a topic in one of its lives, and what of that is wanted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from archiver.control import TopicFact
from archiver.facts import SegmentFacts
from archiver.inventory import EMPTY, PartitionInventory, Reading, problems_of
from archiver.reader import ObjectPart
from archiver.selection import FIRST_LONG, LAST_LONG, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """What the archive has of a topic in one life, joined with those that it goes on from; `fact` None: its shape is not known."""

    topic: str
    life: int
    fact: TopicFact | None
    partitions: Mapping[int, PartitionInventory]
    damaged: Mapping[int, Sequence[str]]  # partition -> what is wrong with its objects
    other_lives: tuple[int, ...]  # that have records, and of which nothing is joined here


def problems_within(topic: ArchivedTopic, number: int, selection: Selection) -> list[str]:
    """Tell what is missing of what is wanted. Where a damaged object lies is not known: it counts as wanted."""
    inventory = topic.partitions.get(number, EMPTY)
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


def wanted_readings(readable: Sequence[Reading], selection: Selection) -> list[Reading]:
    """Leave out objects that cannot hold a selected record, by their facts."""
    return [reading for reading in readable if _may_hold(reading, selection)]


def _may_hold(reading: Reading, selection: Selection) -> bool:
    facts = reading.segment.facts
    last = facts.last if reading.until_offset is None else min(facts.last, reading.until_offset - 1)
    first = max(facts.first, reading.from_offset)
    earliest, latest = FIRST_LONG, LAST_LONG  # of a v1.0 object nobody knows
    if isinstance(facts, SegmentFacts):
        earliest, latest = facts.min_timestamp, facts.max_timestamp
    return first <= last and selection.may_hold(
        first_offset=first, last_offset=last, min_timestamp=earliest, max_timestamp=latest
    )


def part_within(reading: Reading, selection: Selection) -> ObjectPart:
    """What is read of an object: as far as offsets go; its times are looked at record by record."""
    part = ObjectPart.of(reading)
    wanted_end = None if selection.last_offset == LAST_LONG else selection.last_offset + 1
    ends = [end for end in (part.until_offset, wanted_end) if end is not None]
    first = max(part.from_offset, selection.first_offset)
    return replace(part, from_offset=first, until_offset=min(ends, default=None))
