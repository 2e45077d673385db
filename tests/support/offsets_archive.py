"""An archive of `__consumer_offsets` in memory, of records that a test lists."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, PartitionSource
from archiver.archive.reading.catalog import find_topic
from archiver.archive.segments.segment_facts import TransactionRange
from archiver.archive.segments.segment_writer import OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_log import OffsetsLog, read_log
from archiver.groups.log.doubts import Doubt
from archiver.groups.log.fold_object import FoldFacts
from archiver.groups.log.folding import MadeFold, plan_folds, run_fold
from archiver.groups.log.folds import Folds
from archiver.store.port import ObjectKind
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import content_of

TOPIC = "__consumer_offsets"


def doubts_of(facts: FoldFacts) -> list[Doubt]:
    return [Doubt(*one) for one in facts.doubts]


def refuse_problem(problem: str) -> None:
    raise AssertionError(problem)


@dataclass
class OffsetsArchive:
    """One cluster's; objects are put by the program's own writer."""

    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.archive = Archive(self.store, Layout())
        self.record_life("A")

    def record_life(self, topic_id: str) -> None:
        record_topic(self.archive, topic=TOPIC, topic_id=topic_id, cluster_id="c", partitions=4, configs={})

    def cut_back(self, partition: int, offset: int, parent: int = 0) -> int:
        branch = Branch(offset=offset, leader_epoch=1)
        return record_branch(self.archive, topic=TOPIC, partition=partition, parent=parent, branch=branch)[0]

    def put(
        self,
        records: Sequence[Rec],
        until: int,
        *,
        base: int = 0,
        partition: int = 0,
        life: int = 0,
        stable_end: int | None = None,
        transactions: Sequence[TransactionRange] = (),
    ) -> str:
        """Put one object that covers offsets from its base up to another one."""
        source = PartitionSource(topic=TOPIC, partition=partition, life=life, topic_id="A", cluster_id="c")
        with tempfile.TemporaryDirectory() as folder:
            segment = OpenSegment(source, base, SegmentLimits(uncompressed_bytes=0), Spool(Path(folder)))
            segment.append(frame_of(records), 0)
            segment.cover(until, leader_epoch=1, source_bytes=1, stable_end=stable_end)
            finished = segment.finish(tuple(transactions))
            content = content_of(finished)
        key = self.archive.layout.segment_key(SegmentKey(topic=TOPIC, life=life, partition=partition, base=base))
        assert self.store.put_if_absent(key, content, finished.facts.to_metadata(), kind=ObjectKind.SEGMENT)
        return key

    def topic(self) -> ArchivedTopic:
        return find_topic(self.archive, TOPIC)

    def fold(self, partition: int = 0, report: Callable[[str], None] = refuse_problem) -> MadeFold:
        folds = Folds.of(self.archive, report)
        (plan,) = (one for one in plan_folds(self.topic(), folds) if one.partition == partition)
        return run_fold(folds, plan)

    def read(
        self,
        until_ms: int = LAST_LONG,
        partition: int = 0,
        report: Callable[[str], None] = refuse_problem,
        *,
        with_folds: bool = True,
    ) -> OffsetsLog:
        folds = Folds.of(self.archive, report) if with_folds else Folds(self.archive, {}, report)
        return read_log(self.store, self.topic(), partition, until_ms, report, folds)
