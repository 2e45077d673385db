"""Encodes and decodes the copies that a restore's plan reads, as a member of the plan's fact (docs/format.md §8, `copies`)."""

from collections.abc import Sequence

from archiver.archive.copies.archived_topic import CopyRange
from archiver.archive.copies.roles import Generation
from archiver.archive.format.control import Fact
from archiver.archive.format.layout import MOST_PARTITION, CopyKey, is_instance
from archiver.process.values.json_values import as_list, as_number, as_object, as_text


def copies_to_fact(copies: Sequence[CopyRange]) -> Fact:
    """Return the member of a partition's plan; none where the topic has no role logs."""
    return {"copies": list(map(_row_of, copies))} if copies else {}


def copies_from_fact(partition: Fact) -> tuple[CopyRange, ...]:
    """Read the member of a partition's plan. Raises TypeError or ValueError for anything else."""
    return tuple(_stretch_of(*as_list(row)) for row in as_list(partition.get("copies", [])))


def planned_copies(plan: Fact) -> frozenset[CopyKey]:
    """Return the copies that a noted plan reads; it reads no object of another copy. Raises KeyError, TypeError or ValueError."""
    topic = as_text(plan["source"])
    found = (
        stretch.copy_of(topic, as_number(partition["partition"], 0, MOST_PARTITION))
        for partition in map(as_object, as_list(plan["partitions"]))
        for stretch in copies_from_fact(partition)
    )
    return frozenset(copy for copy in found if copy is not None)


def _row_of(stretch: CopyRange) -> Sequence[object]:
    generation = stretch.generation
    return [
        None if generation is None else generation.instance,
        None if generation is None else generation.number,
        stretch.life,
        stretch.from_offset,
        stretch.until_offset,
    ]


def _stretch_of(instance: object, number: object, life: object, from_offset: object, until_offset: object) -> CopyRange:
    generation = None
    if instance is not None:
        generation = Generation(instance=as_text(instance), number=as_number(number, 0, MOST_PARTITION))
        if not is_instance(generation.instance):
            raise ValueError(f"{generation.instance!r:.300} is not the name of an instance")
    return CopyRange(
        generation,
        as_number(life, 0, MOST_PARTITION),
        as_number(from_offset),
        None if until_offset is None else as_number(until_offset),
    )
