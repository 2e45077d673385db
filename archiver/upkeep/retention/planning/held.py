"""Lists the objects that a hold covers, before and after it is put: a running sweep may delete some meanwhile."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from archiver.archive.format.handle import Archive
from archiver.archive.index.index_generations import read_index
from archiver.archive.notes.holds import Hold
from archiver.archive.segments.listing import ListedPartition, ListedSegment, Partition, list_segments
from archiver.groups.positions.snapshots import STREAM as SNAPSHOTS
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.upkeep.retention.planning.partition_verdict import HeldTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldObjects:
    """The objects of the topics that a hold names, and the snapshots that it keeps."""

    segments: Mapping[Partition, ListedPartition]
    snapshots: frozenset[str]

    @property
    def count(self) -> int:
        return sum(map(len, self.segments.values())) + len(self.snapshots)


def list_held(archive: Archive, hold: Hold) -> HeldObjects:
    """List the objects that a hold may cover, of whatever times."""
    prefix = archive.layout.control_prefix(SNAPSHOTS)
    snapshots = archive.store.list(prefix) if hold.matches(OFFSETS_TOPIC) else ()
    return HeldObjects(
        segments=list_segments(archive, hold.matches).partitions,
        snapshots=frozenset(item.key for item in snapshots),
    )


def find_gone(hold: Hold, before: HeldObjects, now: HeldObjects, archive: Archive) -> list[str]:
    """Return the keys of covered objects that were deleted meanwhile. An object whose times are now unknown counts as covered."""
    gone = [one for place, some in before.segments.items() for one in _missing(some, now.segments.get(place))]
    if gone and (hold.from_ms, hold.until_ms) != (None, None):
        topics = {one.key.topic for one in gone}
        index, times = read_index(archive, topics.__contains__), HeldTimes(hold.from_ms, hold.until_ms)
        facts = [index.remembered(one.key) for one in gone]
        gone = [one for one, told in zip(gone, facts, strict=True) if told is None or times.hold(told)]
    return [*(one.item.key for one in gone), *sorted(before.snapshots - now.snapshots)]


def _missing(before: ListedPartition, now: ListedPartition | None) -> Iterator[ListedSegment]:
    there = frozenset() if now is None else frozenset(_names_of(now))
    return (before.value(place) for place, name in enumerate(_names_of(before)) if name not in there)


def _names_of(some: ListedPartition) -> Iterator[tuple[int, int, int]]:
    return zip(some.base.tolist(), some.named_next.tolist(), some.rewrite.tolist(), strict=True)
