"""Segments in a temporary spool, and back."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import SegmentKey
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.segment import LoadedSegment
from archiver.archive.segments.segment import open_segment as open_body
from archiver.archive.segments.segment_facts import SegmentFacts, facts_from_metadata
from archiver.archive.segments.segment_writer import FinishedSegment, OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.codec.frame import Frame
from archiver.store.port import ObjectKind
from tests.support.frames import frame_of, records_of
from tests.support.records import Rec

SOURCE = PartitionSource(topic="orders", partition=3, life=0, topic_id="AAAAAAAAAAAAAAAAAAAAAQ", cluster_id="c")
NO_LIMIT = SegmentLimits(uncompressed_bytes=0)
RECORDS = [Rec(10, 5, 0, b"k", b"v" * 99), Rec(12, -9, 1, None, None), Rec(13, 0, -1, b"", b"", ((b"a", None),))]


def known_facts(segment: Segment | IndexEntry) -> SegmentFacts:
    """Its facts; it must not be of v1.0."""
    assert isinstance(segment.facts, SegmentFacts)
    return segment.facts


def facts_of(base: int, next_offset: int) -> SegmentFacts:
    """Facts without an object."""
    return SegmentFacts(
        writer="test",
        cluster_id="c",
        topic_id="t",
        leader_epoch=0,
        base=base,
        first=base,
        last=next_offset - 1,
        next=next_offset,
        records=1,
        tombstones=0,
        min_timestamp=0,
        max_timestamp=0,
        timestamp_types=(0,),
        bytes=1,
        largest_record=1,
        source_bytes=1,
        sha256="0" * 64,
        digest=0,
    )


def put_stray(archive: Archive, topic: str, base: int, end: int) -> str:
    """Put an object of the topic's first partition that no backup has put; all else is as the newest one there says."""
    listed = [item.key for item in archive.store.list(archive.layout.partition_prefix(topic, 0, 0))]
    info = archive.store.head(listed[-1])
    assert info is not None
    facts = facts_from_metadata(info.metadata, listed[-1])
    assert facts is not None
    stray = replace(
        facts_of(base, end), topic_id=facts.topic_id, cluster_id=facts.cluster_id, leader_epoch=facts.leader_epoch
    )
    key = archive.layout.segment_key(SegmentKey(topic=topic, partition=0, base=base))
    assert archive.store.put_if_absent(key, b"", stray.to_metadata(), kind=ObjectKind.SEGMENT)
    return key


def open_segment(spool: Path, base: int = 0, limits: SegmentLimits = NO_LIMIT) -> OpenSegment:
    return OpenSegment(SOURCE, base, limits, Spool(spool))


def content_of(finished: FinishedSegment) -> bytes:
    with finished.open_body() as body:
        content = body.read()
    assert len(content) == finished.size
    return content


def written(spool: Path, records: Sequence[Rec], base: int = 0, **limits: object) -> tuple[bytes, SegmentFacts]:
    segment = open_segment(spool, base, SegmentLimits(uncompressed_bytes=0, **limits))  # type: ignore[arg-type]
    assert segment.append(frame_of(records), 0) == len(records)
    segment.cover(records[-1].offset + 5, leader_epoch=4, source_bytes=1000)
    finished = segment.finish()
    return content_of(finished), finished.facts


def read(content: bytes, facts: SegmentFacts | None, **options: int) -> list[Rec]:
    return records_of(*read_frames(content, facts, **options))


def read_frames(
    content: bytes, facts: SegmentFacts | None, from_offset: int = 0, until_offset: int | None = None
) -> Iterator[Frame]:
    return opened(content, facts, "key.data").frames("orders", 3, from_offset, until_offset)


def opened(content: bytes | memoryview, facts: SegmentFacts | None, key: str) -> LoadedSegment:
    """Open an object with these facts in its metadata."""
    return open_body(content, {} if facts is None else facts.to_metadata(), key)
