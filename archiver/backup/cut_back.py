"""Where the archive of a partition and the broker's log part, after the log was cut back.

Why it may be asked so, and what the answers mean: docs/decisions/0007-a-life-for-a-log-that-was-cut-back.md
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from archiver.archive.handle import Archive
from archiver.archive.segment_facts import SegmentFacts, facts_from_metadata
from archiver.archive.topics import Branch, Stretch
from archiver.errors import NotWholeError
from archiver.kafka.client import KafkaClient
from archiver.kafka.epochs import end_of_epoch
from archiver.process.workers import Workers
from archiver.store.port import ObjectStore


@dataclass(frozen=True, slots=True)
class Archived:
    """An object, which holds the log up to `next`: there another life goes on, or the object ends."""

    key: str
    size: int
    facts: SegmentFacts
    next: int


async def find_branch(
    client: KafkaClient,
    archive: Archive,
    *,
    pool: Workers,
    topic: str,
    partition: int,
    lineage: Sequence[Stretch],
    log_start: int,
) -> Branch:
    """Find the offset below which archive and log agree, as far as the broker can tell. Mostly one HEAD and one request.

    `lineage` is that of the life in which the partition was archived so far. The branch may lie below where this life
    began, and never above the end of the log. The caller must know that the topic id is still the same.
    """
    our_end = 0
    highest_known: int | None = None  # of the epochs that we have asked about or below
    async for archived in newest_first(pool, archive, topic, partition, lineage):
        our_end = max(our_end, archived.next)
        epoch = archived.facts.leader_epoch
        if epoch < 0 or (highest_known is not None and epoch > highest_known):
            continue
        answer = await end_of_epoch(client, topic, partition, epoch)
        if answer.leader_epoch == epoch:
            agreed = Branch(offset=min(answer.end_offset, archived.next), leader_epoch=epoch)
            return _not_below_log_start(agreed, log_start, our_end)
        # The broker has no epoch between its answer and what was asked; an undefined answer rules out the asked one only.
        highest_known = answer.leader_epoch if answer.leader_epoch >= 0 else epoch - 1
    return _not_below_log_start(Branch(offset=0), log_start, our_end)


def _not_below_log_start(branch: Branch, log_start: int, our_end: int) -> Branch:
    """What the log no longer has, nobody can archive again: there the archive's own records hold."""
    lowest = min(log_start, our_end)
    return branch if branch.offset >= lowest else Branch(offset=lowest)


async def newest_first(
    pool: Workers, archive: Archive, topic: str, partition: int, lineage: Sequence[Stretch]
) -> AsyncIterator[Archived]:
    """Walk back through the segments of a partition, one HEAD at a time. Damaged ones tell nothing and are passed over."""
    for stretch in reversed(lineage):
        until = stretch.until_offset
        for key in await pool.call(_keys_newest_first, archive, topic, partition, stretch):
            found = await pool.call(_head_segment, archive.store, key)
            if found is not None:
                size, facts = found
                yield Archived(key, size, facts, facts.next if until is None else min(facts.next, until))


async def first_reaching(
    pool: Workers,
    archive: Archive,
    topic: str,
    partition: int,
    lineage: Sequence[Stretch],
    offset: int,
) -> Archived | None:
    """Find the first object that reaches beyond an offset."""
    for stretch in lineage:
        until = stretch.until_offset
        if until is not None and until <= offset:
            continue
        for key in await pool.call(_keys_reaching, archive, topic, partition, stretch, offset):
            found = await pool.call(_head_segment, archive.store, key)
            if found is not None and found[1].next > offset:
                size, facts = found
                return Archived(key, size, facts, facts.next if until is None else min(facts.next, until))
    return None


def _keys_reaching(archive: Archive, topic: str, partition: int, stretch: Stretch, offset: int) -> list[str]:
    """List, oldest first, what may reach beyond an offset: a plain object ends at the latest where the next one begins."""
    keys = _keys_newest_first(archive, topic, partition, stretch)
    for count, name in enumerate(keys, 1):
        key = archive.layout.parse_segment(name)
        if key is not None and key.base <= offset:
            return keys[:count][::-1]
    return keys[::-1]


def _keys_newest_first(archive: Archive, topic: str, partition: int, stretch: Stretch) -> list[str]:
    found: list[tuple[int, str]] = []
    for item in archive.store.list(archive.layout.partition_prefix(topic, stretch.life, partition)):
        key = archive.layout.parse_segment(item.key)
        if key is not None and (stretch.until_offset is None or key.base < stretch.until_offset):
            # A merged segment reaches up to its next; a plain one goes beyond its base, how far is not in its name.
            found.append((key.base if key.next is None else key.next - 1, item.key))
    return [key for _, key in sorted(found, reverse=True)]


def _head_segment(store: ObjectStore, key: str) -> tuple[int, SegmentFacts] | None:
    info = store.head(key)
    if info is None:
        return None
    try:
        facts = facts_from_metadata(info.metadata, key)
    except NotWholeError:
        return None
    return None if facts is None else (info.size, facts)
