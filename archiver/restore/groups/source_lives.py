"""Finds where the logs of restored topics were cut back, and where their archive ends: these decide on commits above a branch."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from archiver.archive.copies.archived_topic import CopyReading
from archiver.archive.copies.copied_topic import BY_ROLES, find_copied_topics
from archiver.archive.copies.partition_copies import ReadPartition
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import EMPTY_PARTITION, PartitionInventory, read_inventory
from archiver.archive.notes.topics import Life, TopicFact, read_newest_topic_facts
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.errors import NotWholeError
from archiver.groups.target.translation import Fork

_NO_COPY: Final = ReadPartition(EMPTY_PARTITION, (), CopyReading(stretches=()), 0)


class SourcePartition(NamedTuple):
    """`held_life`: the life that held the partition's end when it was restored."""

    held_life: int
    end: int
    forks: tuple[Fork, ...]


class SourceLives:
    """The archive's lives and logs of the topics that a restore has read."""

    def __init__(self, archive: Archive, topics: Collection[str], use: IndexUse) -> None:
        self._inventory = read_inventory(archive, topics.__contains__, use=use)
        self._facts = read_newest_topic_facts(archive, topics.__contains__)
        copied, _ = find_copied_topics(archive, self._inventory, topics.__contains__)
        self._copied = {one.topic: one for one in copied}
        self._copies: dict[tuple[str, int], Mapping[int, ReadPartition]] = {}

    def root_of(self, topic: str, life: int) -> int:
        """Return the root of a life. Raises NotWholeError if the archive has no such life."""
        fact = self._fact_of(topic)
        copied = self._copied.get(topic)
        known = (
            self._inventory.lives().get(topic, set())
            | set(copied.lives() if copied else ())
            | ({one.life for one in fact.lives} if fact else set())
        )
        if life not in known:
            raise NotWholeError(f"a plan of this restore is of life {life} of {topic}, which the archive does not have")
        if fact is not None and life >= len(fact.lives):
            raise NotWholeError(f"{topic} has objects of life {life}, and its control fact does not have that life")
        return life if fact is None else fact.root(life)

    def _fact_of(self, topic: str) -> TopicFact | None:
        fact = self._facts.get(topic)
        if isinstance(fact, NotWholeError):
            raise fact
        return fact

    def partition(self, topic: str, life: int, number: int, last_life: int | None, source_next: int) -> SourcePartition:
        """Return the state of a partition when it was restored. `last_life`: the life of the last planned object; None: no object.

        A life may have gained the partition since, also when its log was cut back. Raises NotWholeError for an object of
        a life that does not belong to the restored one.
        """
        fact = self._fact_of(topic)
        chain = [] if fact is None else chain_of(fact, life, number)
        lives = [one for one in chain if one.life <= life]
        if last_life is not None and last_life not in ([one.life for one in lives] or [life]):
            raise NotWholeError(
                f"{topic}-{number}: what was planned of it is of life {last_life}, and not of life {life}"
            )
        held = life
        for one in lives:
            if last_life is None or one.life <= last_life or one.branches[number].offset >= source_next:
                held = one.life
            else:
                break
        lineage = [(held, 0, None)] if fact is None else fact.lineage(held, number)
        end = _end_of(self._inventory.join(topic, number, lineage)[0])
        if topic in self._copied:
            end = _end_of(self._copied[topic].read(held, BY_ROLES).partitions.get(number, EMPTY_PARTITION))
        forks = (self._fork(topic, number, parent, child) for parent, child in pairwise(chain))
        return SourcePartition(held, end, tuple(forks))

    def _fork(self, topic: str, number: int, parent: Life, child: Life) -> Fork:
        before, behind = (
            self._inventory.partitions.get((topic, one.life), {}).get(number, EMPTY_PARTITION)
            for one in (parent, child)
        )
        copy = self._copy_of(topic, parent.life, number)
        branch, is_damaged = child.branches[number], number in self._inventory.damage_of(topic, parent.life)
        start = parent.branches[number].offset if number in parent.branches else 0
        if behind.readable:
            child_epoch, child_first = _epoch_of(behind, 0), behind.readable[0].segment.facts.first
        else:
            child_epoch, child_first = _begin_in_copy(self._copy_of(topic, child.life, number), branch.offset)
        return Fork(
            life=child.life,
            offset=branch.offset,
            seen_ms=branch.seen_ms,
            child_epoch=child_epoch,
            child_first=child_first,
            parent_epoch=max(branch.leader_epoch, _epoch_of(before, -1), _epoch_of(copy.inventory, -1)),
            parent_next=None if is_damaged or copy.damaged else max(start, _end_of(before), copy.reach),
        )

    def _copy_of(self, topic: str, life: int, number: int) -> ReadPartition:
        """Return the reading of a partition in the copies of one life."""
        if (topic, life) not in self._copies:
            copied = self._copied.get(topic)
            self._copies[topic, life] = {} if copied is None else copied.copies_in(life)
        return self._copies[topic, life].get(number, _NO_COPY)


def chain_of(fact: TopicFact, life: int, partition: int) -> list[Life]:
    """Return all lives that held a partition of the topic of a life, one after the other."""
    root = fact.root(life)
    return [one for one in fact.lives if fact.root(one.life) == root and one.holds(partition)]


def _end_of(found: PartitionInventory) -> int:
    """Return the end of the archive, also if only the index remembers it."""
    return max((found.end, *(gap.last_offset + 1 for gap in found.gaps)))


def _begin_in_copy(copy: ReadPartition, branch: int) -> tuple[int, int]:
    """Return the leader epoch and the first record of a child's copy at or above its branch: it has the parent's records, too.

    If one object has records on both sides, the first one above is unknown: the last one is no lower.
    """
    for reading in copy.inventory.readable:
        facts = reading.segment.facts
        if isinstance(facts, SegmentFacts) and facts.last >= branch:
            return facts.leader_epoch, facts.first if facts.first >= branch else facts.last
    return -1, LAST_LONG


def _epoch_of(found: PartitionInventory, place: int) -> int:
    facts = found.readable[place].segment.facts if found.readable else None
    return facts.leader_epoch if isinstance(facts, SegmentFacts) else -1
