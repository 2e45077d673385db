"""Finds the offset up to which the archive of a partition and a truncated log agree. Used by the opener.

Reasons, and the meaning of brokers' answers: docs/decisions/0007-a-life-for-a-log-that-was-cut-back.md
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topics import Branch, LifeRange
from archiver.archive.segments.segment_facts import SegmentFacts, facts_from_metadata
from archiver.codec.selection import LAST_LONG
from archiver.errors import NotWholeError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.epochs import end_of_epoch
from archiver.process.running.workers import Workers
from archiver.store.port import ObjectStore


@dataclass(frozen=True, slots=True)
class Archived:
    """An archived object. It counts up to `next`: its end, or the begin of another life."""

    key: str
    facts: SegmentFacts
    next: int


async def find_branch(
    client: KafkaClient,
    archive: Archive,
    *,
    pool: Workers,
    topic: str,
    partition: int,
    lineage: Sequence[LifeRange],
    log_start: int,
    log_end: int = LAST_LONG,
    log_epoch: int = -1,
    doubt: Callable[[Archived], None] = lambda _: None,
) -> Branch:
    """Find the offset up to which archive and log agree, by the broker's epochs. Mostly one HEAD and one request.

    `log_epoch` is the newest epoch of the log; -1: not known. Within an epoch a log only grows: an object that reaches beyond
    the log's end in that epoch proves nothing. So does one beyond `log_end` with no epoch, or with one that the log has not reached.
    Such an object is passed to `doubt`, and the branch is at or below the end of an older one.
    `lineage` is that of the life in which the partition was archived so far. The branch may be below the begin of this
    life, but not above the end of the log. The caller must know that the topic id is still the same.
    """
    our_end = 0
    highest_known: int | None = (
        None  # the highest epoch that the broker knows, at or below one that we have asked about
    )
    async for archived in newest_first(pool, archive, topic, partition, lineage):
        our_end = max(our_end, archived.next)
        epoch = archived.facts.leader_epoch
        if archived.next > log_end and log_epoch >= 0 and not 0 <= epoch <= log_epoch:
            doubt(archived)
            continue
        if epoch < 0 or (highest_known is not None and epoch > highest_known):
            continue
        answer = await end_of_epoch(client, topic, partition, epoch)
        if answer.leader_epoch == epoch:
            if epoch == log_epoch and answer.end_offset < archived.next:
                doubt(archived)
                continue
            agreed = Branch(offset=min(answer.end_offset, archived.next), leader_epoch=epoch)
            return _not_below_log_start(agreed, log_start, our_end)
        # The broker has no epoch between the asked one and its answer; an undefined answer rules out only the asked one.
        highest_known = answer.leader_epoch if answer.leader_epoch >= 0 else epoch - 1
    return _not_below_log_start(Branch(offset=0), log_start, our_end)


def _not_below_log_start(branch: Branch, log_start: int, our_end: int) -> Branch:
    """Raise a branch to the log start: older records cannot be archived again, and the archive's are kept."""
    lowest = min(log_start, our_end)
    return branch if branch.offset >= lowest else Branch(offset=lowest)


async def newest_first(
    pool: Workers, archive: Archive, topic: str, partition: int, lineage: Sequence[LifeRange]
) -> AsyncIterator[Archived]:
    """Walk back through the segments of a partition, one HEAD at a time. Damaged segments are passed over."""
    for stretch in reversed(lineage):
        until = stretch.until_offset
        for key in await pool.call(_keys_newest_first, archive, topic, partition, stretch):
            facts = await pool.call(_head_segment, archive.store, key)
            if facts is not None:
                yield Archived(key, facts, facts.next if until is None else min(facts.next, until))


def _keys_newest_first(archive: Archive, topic: str, partition: int, stretch: LifeRange) -> list[str]:
    found: list[tuple[int, str]] = []
    for item in archive.store.list(archive.layout.partition_prefix(topic, stretch.life, partition)):
        key = archive.layout.parse_segment(item.key)
        if key is not None and (stretch.until_offset is None or key.base < stretch.until_offset):
            # A merged segment reaches up to the `next` in its name. A plain one reaches beyond its base; its end is not in its name.
            found.append((key.base if key.next is None else key.next - 1, item.key))
    return [key for _, key in sorted(found, reverse=True)]


def _head_segment(store: ObjectStore, key: str) -> SegmentFacts | None:
    info = store.head(key)
    if info is None:
        return None
    try:
        return facts_from_metadata(info.metadata, key)
    except NotWholeError:
        return None
