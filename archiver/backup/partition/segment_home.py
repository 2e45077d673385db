"""Where a partition writer puts segments: the history under `topics/`, or a generation of copies."""

from collections.abc import Callable
from dataclasses import dataclass

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, SegmentKey
from archiver.archive.index.archived_end import ArchivedEnd, position_of, position_of_copy
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.segment_writer import FinishedSegment


@dataclass(frozen=True, slots=True)
class HistoryHome:
    """The directory of a partition in one life under `topics/`."""

    archive: Archive
    source: PartitionSource
    fresh: FreshEntries

    def key(self, base: int) -> str:
        return self.archive.layout.segment_key(self._segment_key(base))

    def end(self, newest_base: int | None = None) -> ArchivedEnd:
        """Ask the store for a writer's next offset. `newest_base` is a hint: the base of the newest known object."""
        source = self.source
        return position_of(self.archive, source.topic, source.life, source.partition, newest_base)

    def note(self, put: FinishedSegment, etag: str) -> None:
        self.fresh.note(IndexEntry(self._segment_key(put.facts.base), put.size, etag, put.facts))

    def _segment_key(self, base: int) -> SegmentKey:
        source = self.source
        return SegmentKey(topic=source.topic, life=source.life, partition=source.partition, base=base)


@dataclass(frozen=True, slots=True)
class CopyHome:
    """The directory of a generation. Copies are not in the index: they are deleted as a whole."""

    archive: Archive
    copy: CopyKey
    note_put: Callable[[CopyKey, str, str], None]  # called with the copy, and the object's key and ETag

    def key(self, base: int) -> str:
        return self.archive.layout.copied_segment_key(self.copy, base)

    def end(self, newest_base: int | None = None) -> ArchivedEnd:
        del newest_base
        return position_of_copy(self.archive, self.copy)

    def note(self, put: FinishedSegment, etag: str) -> None:
        self.note_put(self.copy, self.key(put.facts.base), etag)


SegmentHome = HistoryHome | CopyHome
