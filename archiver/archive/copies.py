"""Copies of compacted topics: each is what one instance has read of a log, from the log's beginning to its end (docs/format.md §11)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as short_repr
from typing import Annotated, Final

from pydantic import Field, Strict

from archiver.archive.archived_topic import ArchivedTopic
from archiver.archive.catalog import ReportProblem
from archiver.archive.control import Fact, newest_numbers, read_fact
from archiver.archive.fact_model import FactModel, Number
from archiver.archive.handle import Archive
from archiver.archive.index import Index
from archiver.archive.inventory import EMPTY_PARTITION, arrange_all
from archiver.archive.layout import MOST_OFFSET, CopyKey, is_partition_number
from archiver.archive.listing import ListedPartition, ListedSegments, Partition
from archiver.archive.lookup import find_facts
from archiver.archive.topics import TopicFact, read_topic_history, shape_in
from archiver.errors import CorruptSegmentError, NotWholeError, UsageError
from archiver.process.workers import side_by_side
from archiver.store.port import ListedObject

COPIES = "copies"
_LISTINGS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCopy:
    """The newest complete copy of a partition: it holds the whole log up to `next`, and perhaps some of what came later."""

    key: CopyKey
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complete:
    """What a copy's fact says about the copy, besides the place where the copy lies."""

    generation: Number
    next: Annotated[int, Strict(), Field(ge=0, le=MOST_OFFSET)]


_COMPLETE_FACT: Final = FactModel(_Complete)


def copy_stream(instance: str, topic: str, life: int, partition: int) -> str:
    return f"{COPIES}/{instance}/{topic}/{life}/{partition}"


def find_copy(
    archive: Archive,
    instance: str,
    name: str,
    life: int | None = None,
    *,
    report_problem: ReportProblem = lambda _: None,
) -> ArchivedTopic:
    """Read what an instance has copied of a topic in one life: the newest complete copy of each partition.

    That is the given life, or the newest one with a complete copy. A partition without one counts as damaged.
    """
    streams = _streams_of(archive, instance, name)
    if not streams:
        raise UsageError(f"instance {instance} has no complete copy of topic {name}; {_who_has(archive, name)}")
    life = max(streams) if life is None else life
    if life not in streams:
        raise UsageError(
            f"instance {instance} has no complete copy of life {life} of {name}; it has one of"
            f" {', '.join(map(str, sorted(streams)))}"
        )
    fact = _shape(archive, name, life, report_problem)
    copies, damaged = _newest_copies(archive, instance, name, life, streams[life])
    for number in range(fact.partitions if fact else 0):
        if number not in streams[life]:
            damaged[number].append(f"{name}-{number}: instance {instance} has no complete copy of this partition")
    found = find_facts(archive.store, ListedSegments(_list_copies(archive, copies), ()), Index())
    for one in found.damaged:
        damaged[one.key.partition].append(one.message)
    partitions = arrange_all(found.segments).get((name, life), {})
    for copy in copies:
        number = copy.key.partition
        if number not in damaged:  # where a damaged copy ends is not known
            partitions[number] = partitions.get(number, EMPTY_PARTITION).reaching(copy.next)
    return ArchivedTopic(
        topic=name,
        life=life,
        fact=fact,
        partitions=partitions,
        damaged=damaged,
        other_lives=tuple(sorted(streams.keys() - {life})),
    )


def _streams_of(archive: Archive, instance: str, name: str) -> dict[int, dict[int, int]]:
    """List which fact about copies of a topic is the newest, in one listing: life -> partition -> number of the fact."""
    found: dict[int, dict[int, int]] = {}
    for stream, number in newest_numbers(archive, f"{COPIES}/{instance}/{name}").items():
        life, _, partition = stream.removeprefix(f"{COPIES}/{instance}/{name}/").partition("/")
        if is_partition_number(life) and is_partition_number(partition):
            found.setdefault(int(life), {})[int(partition)] = number
    return found


def _who_has(archive: Archive, name: str) -> str:
    instances = sorted(archive.store.list_directories(archive.layout.control_prefix(COPIES)))
    having = [instance for instance in instances if _streams_of(archive, instance, name)]
    return f"these instances have: {', '.join(having)}" if having else "no instance has, and this version writes none"


def _shape(archive: Archive, name: str, life: int, report_problem: ReportProblem) -> TopicFact | None:
    """Return what the topic was in a life; a damaged control fact is reported."""
    try:
        history = read_topic_history(archive, name)
    except NotWholeError as error:
        report_problem(str(error))
        return None
    return shape_in(history, life)


def _newest_copies(
    archive: Archive, instance: str, topic: str, life: int, numbers: Mapping[int, int]
) -> tuple[list[CompleteCopy], defaultdict[int, list[str]]]:
    """Read the newest fact of each partition. Returns the copies, and why other facts cannot be read."""

    def read(numbered: tuple[int, int]) -> CompleteCopy | str:
        partition, number = numbered
        stream = copy_stream(instance, topic, life, partition)
        where = archive.layout.fact_key(stream, number)
        try:
            key = CopyKey(instance=instance, topic=topic, life=life, partition=partition, generation=0)
            return _complete_copy(read_fact(archive, stream, number), key, where)
        except NotWholeError as error:
            return str(error)

    copies: list[CompleteCopy] = []
    unreadable: defaultdict[int, list[str]] = defaultdict(list)
    all_found = side_by_side(_LISTINGS_AT_ONCE, read, numbers.items(), "copy")
    for partition, found in zip(numbers, all_found, strict=True):
        if isinstance(found, CompleteCopy):
            copies.append(found)
        else:
            unreadable[partition].append(found)
    return copies, unreadable


def _complete_copy(said: Fact, place: CopyKey, where: str) -> CompleteCopy:
    """Turn a fact into a copy, if it speaks of the partition under whose key it was found. Raises CorruptSegmentError."""
    told = (said.get("instance"), said.get("topic"), said.get("life"), said.get("partition"))
    if told != (place.instance, place.topic, place.life, place.partition):
        raise CorruptSegmentError(
            f"{where}: tells of {short_repr(told)}, and not of what its key names; bring its older version back"
        )
    complete = _COMPLETE_FACT.read(
        said,
        lambda why: CorruptSegmentError(
            f"{where}: does not tell which copy is complete: {why}; bring its older version back"
        ),
    )
    return CompleteCopy(key=replace(place, generation=complete.generation), next=complete.next)


def _list_copies(archive: Archive, copies: Sequence[CompleteCopy]) -> dict[Partition, ListedPartition]:
    def listing(copy: CompleteCopy) -> list[tuple[int, int, ListedObject]]:
        items = archive.store.list(archive.layout.copy_prefix(copy.key))
        parsed = ((archive.layout.parse_copied_segment(copy.key, item.key), item) for item in items)
        return [(key.base, key.next or 0, item) for key, item in parsed if key is not None]

    found = zip(copies, side_by_side(_LISTINGS_AT_ONCE, listing, copies, "copy"), strict=True)
    places = (((copy.key.topic, copy.key.life, copy.key.partition), rows) for copy, rows in found)
    return {place: ListedPartition.of(place, rows) for place, rows in places if rows}
