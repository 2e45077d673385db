"""A partition's records out of the archive, in order, by the read rule (docs/format.md §7)."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from archiver.errors import CorruptSegmentError
from archiver.facts import facts_from_metadata
from archiver.frame import Frame
from archiver.inventory import Reading
from archiver.segment import read_segment
from archiver.store import ObjectStore

FoundObject = tuple[bytes, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPart:
    """The records of one object at or above an offset, and below another if there is one."""

    object_key: str
    from_offset: int
    until_offset: int | None = None

    @classmethod
    def of(cls, reading: Reading) -> "ObjectPart":
        return cls(
            object_key=reading.segment.object_key, from_offset=reading.from_offset, until_offset=reading.until_offset
        )


def read_parts(store: ObjectStore, topic: str, partition: int, parts: Sequence[ObjectPart]) -> Iterator[Frame]:
    """Read frames of all parts, checked; the next object is fetched while one is decoded."""
    for part, found in fetch_parts(store, parts):
        content, metadata = found_or_gone(part, found)
        yield from read_segment(
            content,
            facts_from_metadata(metadata, part.object_key),
            topic=topic,
            partition=partition,
            key=part.object_key,
            from_offset=part.from_offset,
            until_offset=part.until_offset,
        )


def fetch_parts(store: ObjectStore, parts: Sequence[ObjectPart]) -> Iterator[tuple[ObjectPart, FoundObject | None]]:
    """Fetch the objects, one ahead of the one that is being worked on; None for one that is gone."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as pool:
        ahead = pool.submit(store.get, parts[0].object_key) if parts else None
        for index, part in enumerate(parts):
            if ahead is None:
                break
            found = ahead.result()
            ahead = pool.submit(store.get, parts[index + 1].object_key) if index + 1 < len(parts) else None
            yield part, found


def found_or_gone(part: ObjectPart, found: FoundObject | None) -> FoundObject:
    """Return what was fetched; an object that was listed and is not there any more is damage."""
    if found is None:
        raise CorruptSegmentError(f"{part.object_key}: was listed, and is gone; list again")
    return found
