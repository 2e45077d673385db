"""Where a backup goes on whose newest object does not join the one before it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.archived_end import position_of
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, add_swept
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import Branch, Life, PartitionSource, TopicFact
from archiver.archive.segments.spool import Spool
from archiver.backup.opening.opener import Opener
from archiver.errors import CorruptSegmentError
from archiver.kafka.brokers.cluster import PartitionOffsets
from archiver.process.running.workers import Workers
from archiver.store.port import ObjectKind
from tests.support.feeds import sink_of
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

TOPIC, TOPIC_ID = "t", "t"
LOG_END = 200
FIRST = Life(life=0, topic_id=TOPIC_ID)
CHILD = Life(life=1, topic_id=TOPIC_ID, parent=0, branches={0: Branch(offset=50, leader_epoch=0)})


class Scene:
    """A partition whose log ends at 200, and objects of it that were put by hand."""

    def __init__(self, spool: Path, *lives: Life) -> None:
        self.fact = TopicFact(topic=TOPIC, cluster_id="c", partitions=1, configs={}, lives=lives or (FIRST,))
        self.archive = Archive(MemoryStore(), Layout("p"))
        self.log_start = 0
        self.asked = 0
        sink = sink_of(self.archive, Spool(spool))
        client: Any = SimpleNamespace(offsets=self._offsets)
        self.opener = Opener(client, sink=sink, pool=Workers(1, "test"), cluster_id="c")

    async def _offsets(self, keys: list[tuple[str, int]]) -> Mapping[tuple[str, int], PartitionOffsets]:
        self.asked += 1
        told = PartitionOffsets(log_start=self.log_start, high_watermark=LOG_END, last_stable=LOG_END, leader_epoch=0)
        return dict.fromkeys(keys, told)

    @property
    def life(self) -> int:
        return len(self.fact.lives) - 1

    def put(self, base: int, end: int, *, merged: bool = False) -> str:
        named = SegmentKey(topic=TOPIC, life=self.life, partition=0, base=base, next=end if merged else None)
        key = self.archive.layout.segment_key(named)
        facts = replace(facts_of(base, end), topic_id=TOPIC_ID)
        assert self.archive.store.put_if_absent(key, b"", facts.to_metadata(), kind=ObjectKind.SEGMENT)
        return key

    def position(self) -> int:
        """Where the backup goes on, whichever way it learns of the newest object."""
        ends = asyncio.run(self.opener.find_archived_ends([(TOPIC, number) for number in range(40)]))
        assert ends is not None
        opened = {
            asyncio.run(self.opener.open(self.fact, TOPIC_ID, 0, newest_base=hint, ends=listed)).writer.position
            for hint, listed in ((None, None), (None, ends), (100, None))
        }
        (position,) = opened
        return position


def test_a_backup_continues_behind_an_object_that_joins_without_requests(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.put(0, 50)
    scene.put(50, 100)
    assert (scene.position(), scene.asked, scene.opener.findings) == (100, 0, {})


@pytest.mark.parametrize("log_start", [0, 149])
@pytest.mark.parametrize("merged", [False, True])
def test_no_record_that_kafka_has_is_skipped_behind_an_object_that_does_not_join(
    tmp_path: Path, merged: bool, log_start: int
) -> None:
    scene = Scene(tmp_path)
    scene.log_start = log_start
    scene.put(0, 100)
    far = scene.put(150, 160, merged=merged)
    with pytest.raises(CorruptSegmentError, match="begins at offset 150, and the objects before it end at 100") as told:
        scene.position()
    assert far in str(told.value)
    assert f"Kafka still has records from offset {log_start} on" in str(told.value)


def test_offsets_that_kafka_has_deleted_are_reported_once_and_skipped(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.log_start = 150
    scene.put(0, 100)
    far = scene.put(150, 160)
    assert scene.position() == 160
    assert list(scene.opener.findings) == [far]
    assert "offsets 100-149 are in no object, and Kafka has them no longer" in str(scene.opener.findings[far])


def test_swept_offsets_are_not_missing_before_the_newest_object(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.put(150, 160)
    add_swept(scene.archive, SweptPlace(TOPIC, 0, 0), OffsetRanges.of([(0, 140)]))
    with pytest.raises(CorruptSegmentError, match="offsets 140-149 are in no object"):
        scene.position()
    add_swept(scene.archive, SweptPlace(TOPIC, 0, 0), OffsetRanges.of([(140, 150)]))
    assert (scene.position(), scene.opener.findings) == (160, {})


def test_a_child_life_begins_at_its_branch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FIRST, CHILD)
    newest = scene.put(50, 60)
    assert (scene.position(), scene.asked) == (60, 0)
    assert position_of(scene.archive, TOPIC, 1, 0).key == newest
    scene.put(70, 80)
    with pytest.raises(CorruptSegmentError, match="offsets 60-69 are in no object"):
        scene.position()


def test_a_truncated_log_is_reported_once_by_the_writer_of_its_branch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    record_topic(scene.archive, topic=TOPIC, topic_id=TOPIC_ID, cluster_id="c", partitions=1, configs={})
    source = PartitionSource(topic=TOPIC, partition=0, life=0, topic_id=TOPIC_ID, cluster_id="c")
    for branch in (Branch(offset=50, leader_epoch=0), Branch(offset=40, leader_epoch=0)):
        fact = scene.opener._begin_life(source, branch)
        assert fact.life_of_partition(TOPIC_ID, 0).branches[0].offset == 50
    assert caplog.text.count("the log was cut back") == 1
