"""Finds where the history of a compacted topic under `topics/` may lack deletions: it was read after tombstones had expired."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from archiver.archive.format.layout import Layout
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.inventory import PartitionInventory
from archiver.archive.notes.topics import TOMBSTONES_KEPT, TopicFact
from archiver.archive.segments.partition_segments import Segment, segment_blocks
from archiver.archive.segments.segment_facts import SegmentFacts
from archiver.codec.selection import NO_TIMESTAMP

_MARGIN: Final = 10  # brokers clean in passes, and clocks differ: allow a tenth


def doubtful_offset(found: PartitionInventory, layout: Layout, seen_ms: int | None, kept_ms: int | None) -> int | None:
    """Return the offset from which archived records under `topics/` may lack deletions; None: none are lacking.

    Kafka keeps a tombstone for `kept_ms` after it compacts the earlier values away. A missing record can be a tombstone only if
    the object was read at least that long after the previous record was written. All reading began after `seen_ms`, so Kafka
    still had each archived value until then. An object without missing records has all deletions, however late it was read. Records
    that expired in Kafka before they were read may have been anything.
    """
    before: Segment | None = None
    for reading in found.readable:
        segment = reading.segment
        is_later = before is not None and segment.object_key.startswith(layout.topics_prefix)
        if is_later and _has_expired(segment):
            return reading.from_offset
        if before is not None and is_later and _lacks_offsets(segment):
            written_ms = max(filter(None, (_written_ms(before), seen_ms)), default=None)
            if written_ms is None or segment.put_at is None or kept_ms is None:
                return reading.from_offset
            if epoch_ms(segment.put_at) - written_ms >= kept_ms - kept_ms // _MARGIN:
                return reading.from_offset
        before = segment
    return None


def _has_expired(segment: Segment) -> bool:
    return isinstance(segment.facts, SegmentFacts) and segment.facts.expired_above(-1) is not None


def _lacks_offsets(segment: Segment) -> bool:
    """Return whether Kafka had deleted records there before they were read; True if unknown."""
    facts = segment.facts
    if not isinstance(facts, SegmentFacts):
        return True
    return facts.next - facts.base > facts.records and facts.unserved != 0


def _written_ms(segment: Segment) -> int | None:
    """Return the earliest write time of an object's last record. A time after the object's put is ignored."""
    facts, put_at = segment.facts, segment.put_at
    if not isinstance(facts, SegmentFacts) or facts.max_timestamp == NO_TIMESTAMP or put_at is None:
        return None
    return facts.max_timestamp if facts.max_timestamp <= epoch_ms(put_at) else None


def expired_offset(found: PartitionInventory) -> int | None:
    """Return where records expired in Kafka unread, behind the first archived record; None: nowhere.

    Such a record may have deleted or replaced an archived value.
    """
    if not found.readable:
        return None
    first = found.readable[0].segment.facts
    begins = first.first if isinstance(first, SegmentFacts) else first.base
    with_holes = (facts for some in segment_blocks(found.segments) for facts in some.facts_with_holes())
    return min((at for facts in with_holes if (at := facts.expired_above(begins)) is not None), default=None)


def tombstones_kept_ms(configs: Mapping[str, str]) -> int | None:
    """Return delete.retention.ms; None if it is unknown."""
    told = configs.get(TOMBSTONES_KEPT, "")
    return int(told) if told.isascii() and told.isdigit() else None


def least_kept_ms(history: Iterable[TopicFact]) -> int | None:
    """Return the smallest delete.retention.ms seen for a topic; None if none was seen."""
    told = (tombstones_kept_ms(fact.effective or fact.configs) for fact in history)
    return min((one for one in told if one is not None), default=None)


def history_doubts(
    topic: str, life: int, found: Mapping[int, PartitionInventory], layout: Layout, history: Sequence[TopicFact]
) -> dict[int, str]:
    """Report the partitions that may have values of deleted keys under `topics/`, and why."""
    kept_ms = least_kept_ms(history)
    newest = history[-1] if history else None
    root = None if newest is None or life >= len(newest.lives) else newest.lives[newest.root(life)]
    doubts: dict[int, str] = {}
    for number, inventory in found.items():
        offset = doubtful_offset(inventory, layout, None if root is None else root.seen_ms, kept_ms)
        if offset is not None:
            kept = (
                "delete.retention.ms, which is not known" if kept_ms is None else f"delete.retention.ms ({kept_ms} ms)"
            )
            doubts[number] = (
                f"{topic}-{number}: what lies under topics/ is unsure from offset {offset} on: it was archived later than {kept}"
                " or retention allows, and Kafka had removed records there by then, so a key that was deleted may have a value"
                " again"
            )
    return doubts
