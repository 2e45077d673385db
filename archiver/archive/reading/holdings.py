"""Computes the totals of `ls`: records and bytes of each topic and partition, from facts alone. Reads no body, loads no kernel."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from itertools import chain, repeat
from typing import NamedTuple

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.copies.copied_topic import BY_ROLES, CopyChoice, find_copied_topics, in_copies, problems_of_copied
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import (
    EMPTY_PARTITION,
    Inventory,
    PartitionInventory,
    problems_of,
    read_inventory,
    swept_note,
)
from archiver.archive.index.loaded_index import Index
from archiver.archive.notes.topics import TopicFact, list_topic_facts, read_topic_facts, read_topic_history
from archiver.archive.segments.partition_segments import Segment, segment_blocks
from archiver.archive.segments.segment_facts import HoleCause
from archiver.errors import NotWholeError, UsageError
from archiver.process.values.columns import total


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Totals of a partition, or of a topic (`partition` None); timestamps need a segment.

    Segments of v1.0 are `uncounted`: only `segments` and `stored_bytes` include them.
    """

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
    min_timestamp: int | None
    max_timestamp: int | None
    last_put: datetime | None  # by the store's clock
    holes: int
    unreadable: int  # of the holes: Kafka had records there
    gaps: int
    shadowed: int
    damaged: int
    uncounted: int
    copy: str = ""  # the copy that is read; empty: the history under `topics/`

    @property
    def is_empty(self) -> bool:
        return not self.segments and not self.damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """One object of a partition; `is_shadowed`: other objects have its records, and it is not read."""

    segment: Segment
    is_shadowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    """The whole archive, or one topic with its objects; `problems` names damaged and missing ones."""

    holdings: Sequence[Holding]
    segments: Iterable[SegmentRow] = ()
    strangers: Sequence[str]
    problems: Sequence[str]
    notes: Sequence[str] = ()  # unexpected facts


def summarize(archive: Archive, topic: str | None, choice: CopyChoice = BY_ROLES) -> ArchiveSummary:
    """Sum up the archive by topic, or one topic by partition; `choice`: which copies."""
    if topic is not None:
        return _summarize_topic(archive, topic, choice)
    found = read_contents(archive)
    holdings = _with_shapes(archive, list_topics(found.inventory, found.fact_numbers), found.fact_numbers)
    return _with_copies(archive, found.inventory, _survey_of(found.inventory, holdings, found.unreadable), choice)


def _with_shapes(archive: Archive, holdings: Sequence[Holding], numbers: Mapping[str, Sequence[int]]) -> list[Holding]:
    """Count the partitions of empty topics by their notes: no object shows them."""
    asked = {one.topic: max(numbers[one.topic]) for one in holdings if one.is_empty and numbers.get(one.topic)}
    facts = read_topic_facts(archive, asked) if asked else {}
    shapes = {topic: fact.partitions for topic, fact in facts.items() if isinstance(fact, TopicFact)}
    return [replace(one, partitions=shapes.get(one.topic, one.partitions)) if one.is_empty else one for one in holdings]


class ArchiveContents(NamedTuple):
    """The archived objects and control facts of some topics."""

    inventory: Inventory
    fact_numbers: Mapping[str, Sequence[int]]  # of the control facts of each known topic
    facts: Mapping[str, TopicFact]  # the newest fact of each topic, if it was read
    unreadable: Sequence[str]  # why other control facts could not be read


def read_contents(
    archive: Archive,
    wanted: Callable[[str], bool] | None = None,
    *,
    asks_all: Index | None = None,
    report_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ArchiveContents:
    """Read the contents of the wanted topics: facts of objects by the index, control facts only where lives need them.

    `asks_all`, an index: reads every newest control fact, and the facts of each object itself. `report_progress`
    as in read_inventory.
    """
    inventory = read_inventory(archive, wanted, asks_all=asks_all, report_progress=report_progress)
    known = {name: found for name, found in list_topic_facts(archive).items() if not wanted or wanted(name)}
    # The first life always begins at offset 0: only topics with other lives need their control facts.
    with_lives = {name for name, life in inventory.partitions if life}
    asked = {name: max(found) for name, found in known.items() if asks_all is not None or name in with_lives}
    histories, unreadable = _newest_facts(archive, asked)
    newest = {topic: history[-1] for topic, history in histories.items()}
    return ArchiveContents(_begin_at_branches(inventory, histories), known, newest, unreadable)


def _summarize_topic(archive: Archive, topic: str, choice: CopyChoice) -> ArchiveSummary:
    inventory = read_inventory(archive, lambda name: name == topic)
    histories, unreadable = _history(archive, topic)
    inventory = _begin_at_branches(inventory, histories)
    holdings = list_partitions(inventory, topic, _shapes(histories.get(topic, ())))
    summary = replace(
        _survey_of(inventory, holdings, unreadable),
        segments=_rows_of(one.values() for one in inventory.partitions.values()),
    )
    summary = _with_copies(archive, inventory, summary, choice, topic)
    if not summary.holdings and not unreadable:
        raise UsageError(f"topic {topic} is not in the archive; `archiver ls` shows what is")
    return summary


def _with_copies(
    archive: Archive, inventory: Inventory, summary: ArchiveSummary, choice: CopyChoice, topic: str | None = None
) -> ArchiveSummary:
    """Add the readings of compacted topics by their role logs; of one topic, by partition."""
    if choice.is_history:
        return summary
    found, unreadable = find_copied_topics(archive, inventory, None if topic is None else topic.__eq__)
    read = [one.read(None, choice) for one in found if topic is not None or one.lives(choice)]
    holdings = [
        row for one in read for row in ([_copied(one)] if topic is None else map(_copied, repeat(one), one.copies))
    ]
    segments = _rows_of(list(in_copies(archive.layout, one).values()) for one in read)
    problems = [*unreadable, *(problem for one in read for problem in problems_of_copied(one))]
    copied = {(one.topic, one.partition) for one in holdings}
    others = [one for one in summary.holdings if not one.is_empty or (one.topic, one.partition) not in copied]
    return replace(
        summary,
        holdings=sorted([*others, *holdings], key=lambda one: (one.topic, one.life, one.partition or 0)),
        segments=chain(summary.segments, segments) if topic is not None else (),
        problems=list(dict.fromkeys([*summary.problems, *problems])),
        notes=[*summary.notes, *(note for one in read for note in one.notes)],
    )


def _copied(topic: ArchivedTopic, number: int | None = None) -> Holding:
    """Sum up the reading of a topic, or of one of its partitions, by its role logs."""
    copies = topic.copies if number is None else {number: topic.copies[number]}
    damaged = sum(len(topic.damaged.get(one, ())) for one in copies)
    whose = dict.fromkeys(
        stretch.whose if number is None else str(stretch) for one in copies.values() for stretch in one.stretches
    )
    summed = sum_up(topic.topic, topic.life, number, [topic.partitions[one] for one in copies], damaged)
    return replace(summed, copy=" + ".join(whose))


def _rows_of(partitions: Iterable[Iterable[PartitionInventory]]) -> Iterator[SegmentRow]:
    """Yield the objects of each partition in the order of their offsets."""
    for one in (one for some in partitions for one in some):
        read = (SegmentRow(segment=found, is_shadowed=False) for found in one.segments)
        shadowed = (SegmentRow(segment=found, is_shadowed=True) for found in one.shadowed)
        yield from merge(read, shadowed, key=lambda row: (row.segment.facts.base, row.segment.facts.next))


def _survey_of(inventory: Inventory, holdings: Sequence[Holding], unreadable: Sequence[str]) -> ArchiveSummary:
    return ArchiveSummary(
        holdings=holdings,
        strangers=inventory.strangers,
        problems=[*unreadable, *problems_in(inventory)],
        notes=swept_notes(inventory),
    )


def _newest_facts(archive: Archive, numbers: Mapping[str, int]) -> tuple[dict[str, list[TopicFact]], list[str]]:
    found = read_topic_facts(archive, numbers)
    readable = {topic: [fact] for topic, fact in found.items() if isinstance(fact, TopicFact)}
    return readable, [str(error) for error in found.values() if isinstance(error, NotWholeError)]


def _history(archive: Archive, topic: str) -> tuple[dict[str, list[TopicFact]], list[str]]:
    try:
        return {topic: read_topic_history(archive, topic)}, []
    except NotWholeError as error:
        return {}, [str(error)]


def _shapes(history: Sequence[TopicFact]) -> dict[int, Collection[int]]:
    return {fact.current.life: fact.current.branches or range(fact.partitions) for fact in history}


def _begin_at_branches(inventory: Inventory, histories: Mapping[str, Sequence[TopicFact]]) -> Inventory:
    """Let the partitions of a life that has a parent begin where they were cut back: nothing below that offset is missing."""
    partitions = dict(inventory.partitions)
    lives = [(topic, life) for topic, history in histories.items() for fact in history[-1:] for life in fact.lives]
    for topic, life in lives:
        found = dict(partitions.get((topic, life.life), {}))
        for number in life.branches.keys() & found.keys():
            found[number] = found[number].from_offset(life.branches[number].offset)
        if found:
            partitions[topic, life.life] = found
    return replace(inventory, partitions=partitions)


def problems_in(inventory: Inventory) -> list[str]:
    """List all unreadable and all missing offsets and objects."""
    problems: list[str] = []
    for topic, lives in sorted(inventory.lives().items()):
        for life in sorted(lives):
            name = f"{topic}@{life}" if life else topic
            partitions, damaged = inventory.partitions.get((topic, life), {}), inventory.damage_of(topic, life)
            for number in sorted(inventory.numbers_of(topic, [life])):
                problems += problems_of(name, number, partitions.get(number, EMPTY_PARTITION), damaged.get(number, ()))
    return problems


def swept_notes(inventory: Inventory) -> list[str]:
    """Describe for each partition the offsets that retention sweeps deleted."""
    return [
        swept_note(f"{topic}@{life}-{number}" if life else f"{topic}-{number}", found)
        for (topic, life), partitions in sorted(inventory.partitions.items())
        for number, found in sorted(partitions.items())
        if found.swept
    ]


def list_topics(inventory: Inventory, known: Iterable[str]) -> list[Holding]:
    """Sum up each life of each topic; `known`: topics that may have no segment at all."""
    lives = {topic: {0} for topic in known} | inventory.lives()
    return [
        sum_up(
            topic,
            life,
            None,
            list(inventory.partitions.get((topic, life), {}).values()),
            sum(map(len, inventory.damage_of(topic, life).values())),
        )
        for topic in sorted(lives)
        for life in sorted(lives[topic])
    ]


def list_partitions(inventory: Inventory, topic: str, shapes: Mapping[int, Collection[int]]) -> list[Holding]:
    """Sum up each partition of a topic in all its lives; `shapes` has the partitions of each life."""
    rows: list[Holding] = []
    for life in sorted(inventory.lives().get(topic, set()) | set(shapes)):
        partitions, damaged = inventory.partitions.get((topic, life), {}), inventory.damage_of(topic, life)
        for number in sorted({*partitions, *damaged, *shapes.get(life, ())}):
            found = partitions.get(number, EMPTY_PARTITION)
            rows.append(sum_up(topic, life, number, [found], len(damaged.get(number, ()))))
    return rows


def sum_up(
    topic: str, life: int, number: int | None, partitions: Sequence[PartitionInventory], damaged: int
) -> Holding:
    """Return the totals of some partitions of one life."""
    segments = [some for partition in partitions for some in segment_blocks(partition.segments)]
    known = [some.known for some in segments]
    causes = [hole.cause for some in known for facts in some.facts_with_holes() for hole in facts.holes]
    count, counted = sum(map(len, segments)), sum(map(len, known))
    return Holding(
        topic=topic,
        life=life,
        partition=number,
        partitions=len(partitions),
        segments=count,
        records=sum(total(some.numbers("records")) for some in known),
        payload_bytes=sum(total(some.numbers("bytes")) for some in known),
        stored_bytes=sum(total(some.numbers("size")) for some in segments),
        first_offset=min((int(some.numbers("first").min()) for some in segments), default=0),
        next_offset=max((int(some.numbers("next").max()) for some in segments), default=0),
        min_timestamp=min((int(some.numbers("min_timestamp").min()) for some in known if len(some)), default=None),
        max_timestamp=max((int(some.numbers("max_timestamp").max()) for some in known if len(some)), default=None),
        last_put=max((some.last_put for some in segments if some.last_put is not None), default=None),
        holes=len(causes),
        unreadable=causes.count(HoleCause.UNREADABLE),
        gaps=sum(len(partition.gaps) for partition in partitions),
        shadowed=sum(len(partition.shadowed) for partition in partitions),
        damaged=damaged,
        uncounted=count - counted,
    )
