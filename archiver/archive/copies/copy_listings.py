"""Lists the objects of copies below a prefix, and all copies of a topic in one life. Readers, turns and clearing use it."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, is_instance
from archiver.archive.segments.listing import ListedPartition, ListedRow, ListedSegment
from archiver.process.running.workers import side_by_side

_LISTINGS_AT_ONCE: Final = 8

ListedCopies = Mapping[int, Mapping[CopyKey, ListedPartition]]  # by partition


def list_copy_objects(archive: Archive, prefix: str) -> Iterator[tuple[CopyKey, ListedSegment]]:
    """List the objects of copies below a prefix. Other keys are left out."""
    for item in archive.store.list(prefix):
        copy = archive.layout.parse_copy(item.key)
        key = archive.layout.parse_copied_segment(copy, item.key) if copy else None
        if copy is not None and key is not None:
            yield copy, ListedSegment(key, item)


def list_copies(archive: Archive, instances: Collection[str], topic: str, life: int) -> ListedCopies:
    """List all copies of a topic in one life, of these instances, by partition."""

    def list_instance(instance: str) -> dict[CopyKey, ListedPartition]:
        rows = dict[CopyKey, list[ListedRow]]()
        for copy, (key, item) in list_copy_objects(archive, archive.layout.copied_topic_prefix(instance, topic, life)):
            rows.setdefault(copy, []).append((key.base, key.next or 0, key.rewrite, item))
        return {copy: ListedPartition.of((topic, life, copy.partition), some) for copy, some in rows.items()}

    found: dict[int, dict[CopyKey, ListedPartition]] = {}
    for listed in side_by_side(_LISTINGS_AT_ONCE, list_instance, sorted(instances), "copy"):
        for copy, objects in listed.items():
            found.setdefault(copy.partition, {})[copy] = objects
    return found


def list_instances(archive: Archive) -> frozenset[str]:
    """List the instances with copies in the archive."""
    return frozenset(filter(is_instance, archive.store.list_directories(archive.layout.copies_root)))
