"""An object held against what Kafka has of it, in a store in memory: of any of its records, in frames of any size."""

import random
from pathlib import Path

import pytest

import archiver.archive.segments.block_budget
import archiver.upkeep.lost_keys
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.segments.partition_segments import Segment, SegmentSlice
from archiver.codec.avro import SYNC_BYTES
from archiver.store.port import ObjectKind
from archiver.upkeep.comparison import PartitionComparison
from archiver.upkeep.lost_keys import KeyComparison, LostKeys
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import SOURCE, written

LAYOUT = Layout("p")
KEY = SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=0)
NAME = LAYOUT.segment_key(KEY)


def record(offset: int) -> Rec:
    return Rec(offset, offset, 0, b"k", b"value %d" % offset)


def problems_of(folder: Path, archived: list[int], kafka: list[int], *, forged: int = -1) -> list[str]:
    store = MemoryStore()
    content, facts = written(folder, [record(offset) for offset in archived])
    assert content.count(content[-SYNC_BYTES:]) > 5  # as many blocks
    store.put_if_absent(NAME, content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
    segment = Segment(key=KEY, object_key=NAME, size=len(content), facts=facts)
    comparison = PartitionComparison(
        store, KEY.topic, KEY.partition, [SegmentSlice(segment=segment, from_offset=0)], end=facts.next
    )
    records = [record(offset) if offset != forged else Rec(offset, offset, 0, b"k", b"forged") for offset in kafka]
    for start in range(0, len(records), 7):
        comparison.take(frame_of(records[start : start + 7]))
    comparison.finish()
    return comparison.problems


@pytest.mark.parametrize("seed", range(20))
def test_what_kafka_still_has_is_found_in_an_object_of_many_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for limit in ("BLOCK_BYTES", "_LEAST_BLOCK_BYTES"):
        monkeypatch.setattr(archiver.archive.segments.block_budget, limit, 200)
    chance = random.Random(seed)
    archived = sorted(chance.sample(range(2, 300), 90))
    still_there = sorted(chance.sample(archived, chance.choice([1, 20, 89, 90])))
    assert problems_of(tmp_path, archived, still_there) == []
    (problem,) = problems_of(tmp_path, archived, still_there, forged=chance.choice(still_there))
    assert "are not those that Kafka has" in problem
    others = sorted(set(range(archived[-1])) - set(archived))
    lost = sorted(chance.sample(others, 3))
    (problem,) = problems_of(tmp_path, archived, sorted([*still_there, *lost]))
    assert problem.endswith(f"3 records that Kafka has are not in it, the first at offset {lost[0]}")


def lost_by_oracle(copy: list[Rec], kafka: list[Rec], start: int) -> LostKeys | None:
    last = {one.key: one for one in copy}
    gone = [
        one.offset
        for key, one in last.items()
        if key is not None
        and one.value is not None
        and one.offset >= start
        and key not in {other.key for other in kafka}
    ]
    return LostKeys(len(gone), min(gone)) if gone else None


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_kafka_no_longer_has_are_found_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The copy has any part of the log; of each key Kafka has the last record, or none: of a tombstone, or of anything."""
    chance = random.Random(seed)
    monkeypatch.setattr(archiver.upkeep.lost_keys, "_LEAST_MERGED", chance.choice([1, 10, 10_000]))
    log = [
        Rec(offset, offset, 0, chance.choice([None, b"", *(b"k%d" % one for one in range(40))]), chance.choice([b"v", b"", None]))
        for offset in range(300)
    ]  # fmt: skip
    copy = sorted(chance.sample(log, chance.choice([1, 90, 299])), key=lambda one: one.offset)
    last = {one.key: one for one in log if one.key is not None}
    left = [one for one in last.values() if chance.random() < chance.choice([0.5, 1.0])]
    more = [one for one in copy if chance.random() < 0.1]  # not compacted yet
    kafka = sorted({one.offset: one for one in [*left, *more]}.values(), key=lambda one: one.offset)
    start = chance.choice([0, 0, 150])
    kafka = [one for one in kafka if one.offset >= start]
    store, (content, facts) = MemoryStore(), written(tmp_path, copy)
    store.put_if_absent(NAME, content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
    reading = SegmentSlice(segment=Segment(key=KEY, object_key=NAME, size=len(content), facts=facts), from_offset=0)
    keys, end = KeyComparison(), facts.next
    comparison = PartitionComparison(store, KEY.topic, KEY.partition, [reading], start=start, end=end, keys=keys)
    for first in range(0, len(kafka), 7):
        comparison.take(frame_of([one for one in kafka[first : first + 7] if one.offset < end]))
    comparison.finish()
    for one in kafka:
        if one.offset >= end:  # what has come since
            keys.take(frame_of([one]))
    assert keys.lost() == lost_by_oracle([one for one in copy if one not in kafka], kafka, start)
    assert keys.lost() == keys.lost()
