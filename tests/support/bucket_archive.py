"""An archive that a test writes to a bucket object by object, with segments of the program's own writer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, PartitionSource
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.segment_facts import facts_from_metadata
from archiver.archive.segments.segment_writer import OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.codec.compression import BlockCodec
from archiver.config.model import StorageConfig
from archiver.store.port import ObjectKind, ObjectStore
from archiver.store.s3 import S3Store
from tests.support.brokers import Bucket
from tests.support.foreign_reader import s3_client
from tests.support.frames import frame_of
from tests.support.records import Rec
from tests.support.segments import content_of


class BucketArchive:
    """An archive without a prefix. The process must have the bucket's credentials."""

    def __init__(self, bucket: Bucket, spool: Path) -> None:
        self.bucket = bucket
        self.spool = spool
        self.store: ObjectStore = S3Store(StorageConfig(url=bucket.url, endpoint=bucket.s3.endpoint))
        self.layout = Layout()
        self.handle = Archive(self.store, self.layout)

    def write_topic_fact(self, topic: str, topic_id: str = "A", partitions: int = 4) -> None:
        """Write the control fact of a topic; another id begins a life."""
        record_topic(
            self.handle,
            topic=topic,
            topic_id=topic_id,
            cluster_id="c",
            partitions=partitions,
            configs={},
        )

    def cut_back(self, topic: str, partition: int, offset: int) -> int:
        """Begin a child life of life 0."""
        branch = Branch(offset=offset, leader_epoch=1)
        life, _ = record_branch(self.handle, topic=topic, partition=partition, parent=0, branch=branch)
        return life

    def put(
        self,
        topic: str,
        partition: int,
        records: Sequence[Rec],
        *,
        each: int,
        base: int = 0,
        life: int = 0,
        codec: BlockCodec = BlockCodec.ZSTANDARD,
    ) -> list[str]:
        """Put records as segments of so many. Returns the keys."""
        keys = []
        for start in range(0, len(records), each):
            part = records[start : start + each]
            source = PartitionSource(topic=topic, partition=partition, life=life, topic_id="A", cluster_id="c")
            segment = OpenSegment(source, base, SegmentLimits(uncompressed_bytes=0, codec=codec), Spool(self.spool))
            assert segment.append(frame_of(part), 0) == len(part)
            segment.cover(part[-1].offset + 1, leader_epoch=1, source_bytes=1)
            finished = segment.finish()
            key = self.layout.segment_key(SegmentKey(topic=topic, life=life, partition=partition, base=base))
            assert self.store.put_if_absent(
                key, content_of(finished), finished.facts.to_metadata(), kind=ObjectKind.SEGMENT
            )
            base = part[-1].offset + 1
            keys.append(key)
        return keys

    def change(self, key: str, content: bytes | None = None) -> None:
        """Overwrite an object as no writer of ours ever does."""
        found = self.store.get(key)
        assert found is not None
        body = found[0] if content is None else content
        s3_client(self.bucket).put_object(Bucket=self.bucket.name, Key=key, Body=body, Metadata=dict(found[1]))

    def content(self, key: str) -> bytes:
        found = self.store.get(key)
        assert found is not None
        return found[0]


def put_false_entry(store: ObjectStore, key: str, **changes: int) -> None:
    """Put an entry into the index that names an existing object, and has false facts of it, as anybody with the right to put can."""
    layout = Layout()
    found, parsed = store.head(key), layout.parse_segment(key)
    assert found is not None
    assert parsed is not None
    facts = facts_from_metadata(found.metadata, key)
    assert facts is not None
    forged = replace(facts, **changes)  # type: ignore[arg-type]
    append_to_index(Archive(store, layout), [IndexEntry(parsed, found.size, found.etag, forged)])
