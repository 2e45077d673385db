"""Where a writer goes on after a silence of its process: never behind an object that does not join those before it."""

from pathlib import Path

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.spool import Spool
from archiver.backup.partition.fetched_batches import Fetch
from archiver.errors import CorruptSegmentError
from archiver.process.running.silence import SilenceCounter
from archiver.store.port import ObjectKind
from tests.support.feeds import sink_of, writer_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.segments import SOURCE, facts_of

ARCHIVE = Layout("p")


def fetch_of(first: int, count: int) -> Fetch:
    records = [Rec(offset, 0, 0, b"k", b"v") for offset in range(first, first + count)]
    return Fetch(position=first, records=memoryview(encode(batch_of(records, base_offset=first))), aborted=())


def put_stray(store: MemoryStore, base: int, end: int) -> None:
    key = ARCHIVE.segment_key(SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=base))
    assert store.put_if_absent(key, b"", facts_of(base, end).to_metadata(), kind=ObjectKind.SEGMENT)


def test_a_writer_that_slept_does_not_go_on_behind_a_stray_object(tmp_path: Path) -> None:
    store, now_s = MemoryStore(), [0.0]
    silence = SilenceCounter(10.0, lambda: now_s[0])
    sink = sink_of(
        Archive(store, ARCHIVE), Spool(tmp_path), records=10, clock=lambda: now_s[0], silence_counter=silence
    )
    writer = writer_of(sink)
    writer.take(fetch_of(0, 10))
    writer.flush()
    writer.take(fetch_of(10, 10))
    put_stray(store, 5000, 5001)
    now_s[0] = 100.0
    silence.beat()
    with pytest.raises(CorruptSegmentError, match="begins at offset 5000, and the objects before it end at 10"):
        writer.flush()
    assert len(store.objects) == 2
