"""Finds the end of a partition in the archive, where its writer continues: read from the objects themselves, never from the index."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET, CopyKey, Layout, SegmentKey
from archiver.archive.index.inventory import Gap
from archiver.archive.segments.listing import Before, Newest
from archiver.archive.segments.segment_facts import SegmentFacts, check_named, facts_from_metadata
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.store.port import ListedObject, ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedEnd:
    """The next offset of a writer, and the log of the newest segment. None, zero, -1 and empty without a segment."""

    base: int | None = None  # of the newest segment
    next: int = 0
    leader_epoch: int = -1
    topic_id: str = ""
    cluster_id: str = ""
    key: str = ""  # of the newest segment
    gap: Gap | None = None  # between the newest segment and its predecessor

    def spell_gap(self, gap: Gap) -> str:
        """Describe the missing offsets before the newest segment."""
        return (
            f"{self.key}: the newest object begins at offset {gap.last_offset + 1}, and the objects before it end at"
            f" {gap.first_offset}: offsets {gap} are in no object"
        )

    @classmethod
    def of(cls, facts: SegmentFacts, key: str) -> "ArchivedEnd":
        return cls(
            base=facts.base,
            next=facts.next,
            leader_epoch=facts.leader_epoch,
            topic_id=facts.topic_id,
            cluster_id=facts.cluster_id,
            key=key,
        )


def position_of(archive: Archive, topic: str, life: int, partition: int, newest_base: int | None = None) -> ArchivedEnd:
    """Return the next offset of a writer: the end of the coverage, with two HEADs, or three beside a merged segment.

    The end comes from the facts of the last plain segment, or from the name of a merged one. An old writer's segment within a
    merged one does not move the end back. Of the segment before the newest, only the end is read. `newest_base` is a hint: the
    last known base of the newest segment. It saves listing earlier keys; a listing that contradicts the hint wins.
    """
    prefix = archive.layout.partition_prefix(topic, life, partition)
    if newest_base is None:
        return end_at(archive.store, _newest_of(archive.store.list(prefix), archive.layout.parse_segment))
    hinted = archive.layout.segment_key(SegmentKey(topic=topic, life=life, partition=partition, base=newest_base))
    later = _newest_of(archive.store.list(prefix, start_after=hinted), archive.layout.parse_segment)
    later.follow(hinted)
    end = end_at(archive.store, later)
    found = None if end.key else archive.store.head(hinted)
    if found is not None:
        return _end_from(hinted, found)
    return end if end.key and end.gap is None else position_of(archive, topic, life, partition)


def position_of_copy(archive: Archive, copy: CopyKey) -> ArchivedEnd:
    """Return the next offset of a writer of a copy, as `position_of` does for `topics/`."""
    listed = archive.store.list(archive.layout.copy_prefix(copy))
    return end_at(archive.store, _newest_of(listed, lambda key: archive.layout.parse_copied_segment(copy, key)))


def _newest_of(listed: Iterable[ListedObject], parse: Callable[[str], SegmentKey | None]) -> Newest:
    newest = Newest()
    for item in listed:
        key = parse(item.key)
        if key is not None:
            newest.see(key, item.key)
    return newest


def end_at(store: ObjectStore, newest: Newest) -> ArchivedEnd:
    """Return the next offset of a writer from a listing of its partition. Facts come from the object, never from the index."""
    plain = _end_of(store, newest.plain) if newest.plain else ArchivedEnd()
    # A broker needs the epoch of the segment with the end: with an earlier epoch the log would seem to diverge.
    if not newest.plain and not newest.merged:
        return plain
    if plain.next >= newest.merged_next:
        return _with_gap(store, plain, newest.before_plain)
    return _with_gap(store, _end_of(store, newest.merged), newest.before_merged)


def _with_gap(store: ObjectStore, end: ArchivedEnd, before: Before) -> ArchivedEnd:
    """Note the gap between the newest segment and its predecessor."""
    base = end.base or 0
    reach = before.merged_next
    if reach < base and before.plain:
        reach = max(reach, _next_of(store, before.plain))
    return end if base <= reach else replace(end, gap=Gap(first_offset=reach, last_offset=base - 1))


def _next_of(store: ObjectStore, key: str) -> int:
    """Return the end of a segment; the highest offset if it is unknown: the segment was deleted, is damaged, or is of v1.0."""
    info = store.head(key)
    try:
        facts = None if info is None else facts_from_metadata(info.metadata, key)
    except NotWholeError:
        facts = None
    return MOST_OFFSET if facts is None else facts.next


def _end_of(store: ObjectStore, key: str) -> ArchivedEnd:
    return _end_from(key, store.head(key))


def _end_from(key: str, info: ObjectInfo | None) -> ArchivedEnd:
    facts = facts_from_metadata(info.metadata, key) if info is not None else None
    if facts is None:
        raise CorruptSegmentError(f"{key}: the newest segment has no facts; move it away, and look who wrote it")
    named = Layout.parse_segment_name(key.rpartition("/")[2])
    if named is not None:
        check_named(facts, named.base, named.next, key)
    return ArchivedEnd.of(facts, key)
