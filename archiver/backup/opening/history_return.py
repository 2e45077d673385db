"""Makes `topics/` current again when a topic is no longer compacted and the backup has caught up with its copy."""

import logging
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.copy_proof import settled_offset
from archiver.archive.copies.roles import (
    HISTORY,
    CompleteCopy,
    RoleLog,
    RolePlace,
    put_entry,
    read_newest_entry,
)
from archiver.archive.format.handle import Archive
from archiver.archive.index.inventory import Inventory, PartitionInventory, arrange_all, tell_swept
from archiver.archive.index.loaded_index import Index
from archiver.archive.index.lookup import find_facts
from archiver.archive.notes.topics import TopicFact, is_compacted, read_topic
from archiver.archive.segments.listing import ListedSegments, list_directory
from archiver.archive.segments.partition_segments import blocks_of
from archiver.config.model import IndexUse
from archiver.process.running.failpoints import reach

log = logging.getLogger(__name__)

# The instance name in entries of a plain backup: no instance can have it.
PLAIN: Final = HISTORY


class History(NamedTuple):
    """State of a partition under `topics/`: its end without a gap, and whether objects are missing or damaged."""

    position: int
    is_whole: bool
    settled: int  # below this offset it has each record, or a later one that replaced it


class ReturnOutcome(Enum):
    """The outcome of an attempt to make `topics/` current again."""

    DONE = "done"  # it is read
    NOT_YET = "not yet"  # it is behind, no copy is read, or the topic may be compacted
    GAP = "gap"  # objects of it are missing or damaged: the copy stays current


def take_back(archive: Archive, place: RolePlace, durable: int) -> ReturnOutcome:
    """Make `topics/` current again, if it has caught up with the copy. `durable`: its end, as far as this backup knows.

    The newest entry decides, and a listing made after it was read. An unknown policy changes nothing. Offsets that compaction
    or retention removed before the backup read them count as covered: the log lacks them, too.
    """
    fact = read_topic(archive, place.topic)
    newest = read_newest_entry(archive, place)
    if fact is None or newest is None or not isinstance(newest.entry.holder, CompleteCopy):
        return ReturnOutcome.NOT_YET
    readers_end = CopyCatalog(archive).end_for_readers(place, newest.entry).offset
    if is_compacted(fact) is not False or durable < readers_end:  # no object needs to be read
        return ReturnOutcome.NOT_YET
    history = _read_history(archive, fact, place)
    if history.position < readers_end and not history.is_whole:
        log.warning(
            "%s: topics/ cannot be read again, because from offset %d on objects of it are missing or damaged; the copy of"
            " instance %s is read. Bring them back from the bucket's versions, and start the backup again",
            place.stream,
            history.position,
            newest.entry.holder.generation.instance,
        )
        return ReturnOutcome.GAP
    if history.position < readers_end or history.settled < history.position:
        return ReturnOutcome.NOT_YET
    return _put(archive, place, newest, newest.entry.holder)


def _put(archive: Archive, place: RolePlace, before: RoleLog, copy: CompleteCopy) -> ReturnOutcome:
    """Put the entry. A later survey shows whether it counts; otherwise the next attempt decides again."""
    number = before.number + 1
    reach("history.decided")
    put_entry(archive, place, number, entries.history(before.entry, number, PLAIN))
    reach("history.put")
    now = read_newest_entry(archive, place)
    if now is None or now.entry.holder != HISTORY:
        log.info("%s: another entry was put first; whether topics/ may be read again is decided anew", place.stream)
        return ReturnOutcome.NOT_YET
    log.warning(
        "%s: topics/ is read again, by entry %d, since the topic is compacted no longer. What Kafka had removed of the log"
        " before that was archived there is only in the copy that was read until now, which stays: %s. A key that was deleted"
        " meanwhile may have an older value under topics/",
        place.stream,
        now.number,
        archive.layout.copy_prefix(place.copy_key(copy.generation)),
    )
    return ReturnOutcome.DONE


def _read_history(archive: Archive, fact: TopicFact, place: RolePlace) -> History:
    """Read the state of a partition under `topics/`, in its life and the lives that it continues. Reads the facts of each object."""
    lineage = fact.lineage(place.life, place.partition)
    listed = {
        where: found
        for stretch in lineage
        for where, found in list_directory(archive, place.topic, stretch.life, place.partition).partitions.items()
    }
    found = find_facts(archive.store, ListedSegments(listed, ()), Index(), use=IndexUse.IGNORE)
    partitions = arrange_all(found.segments)
    tell_swept(archive, partitions)
    inventory = Inventory(partitions=partitions, strangers=(), damaged=found.damaged)
    joined, damaged = inventory.join(place.topic, place.partition, lineage)
    is_whole = not (joined.gaps or damaged or joined.overlaps)
    return History(position=joined.position, is_whole=is_whole, settled=settled_offset(_ends_of(joined)))


def _ends_of(found: PartitionInventory) -> Iterator[tuple[int, int]]:
    """Yield each object's end, and the offset below which the replacements of its missing records are; 0: none known."""
    for block in blocks_of(found.below(found.position).readable):
        lacks = np.where(block.segments.numbers("unserved") != 0, block.segments.numbers("stable_end"), 0)
        yield from zip(block.next.tolist(), lacks.tolist(), strict=True)
