"""What a sweep of a large archive costs: requests are counted, and time grows with the objects that go."""

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.topics import LifeRange
from archiver.config.model import StorageConfig
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.partition_verdict import PartitionTerms
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask, survey
from tests.support.memory_store import CountingStore, StoredObject
from tests.support.segments import facts_of

LAYOUT = Layout()
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(MOMENT.timestamp() * 1000) + 30 * 24 * 3600 * 1000
EACH = 200  # objects of a partition
GONE = 150  # of these, the broker has none any more


def archive_of(partitions: int) -> tuple[Archive, CountingStore]:
    store = CountingStore()
    for partition in range(partitions):
        for base in range(0, EACH * 10, 10):
            facts = replace(facts_of(base, base + 10), max_timestamp=base)
            key = LAYOUT.segment_key(SegmentKey(topic="t", life=0, partition=partition, base=base))
            store.objects[key] = StoredObject(b"x", facts.to_metadata(), MOMENT)
    return Archive(store, LAYOUT), store


def surveyed(archive: Archive, partition: int, limits: Limits) -> PartitionSweep:
    terms = PartitionTerms(
        limits=limits, now_ms=NOW_MS, store_now_ms=NOW_MS, min_age_ms=0, log_start=GONE * 10, topic_id="t"
    )
    lineage, storage = (LifeRange(0, 0, None),), StorageConfig(url="s3://bucket")
    return survey(
        archive,
        SurveyTask(
            storage=storage,
            topic="t",
            partition=partition,
            root=0,
            lineage=lineage,
            terms=terms,
            swept_by=FOR_EVER,
        ),
    )


@pytest.mark.parametrize("partitions", [5, pytest.param(500, marks=pytest.mark.long)])
def test_each_object_that_may_go_is_asked_once_and_no_other_but_the_last(partitions: int) -> None:
    archive, store = archive_of(partitions)
    started_s = time.monotonic()
    found = [surveyed(archive, number, Limits(ms=1000)) for number in range(partitions)]
    assert [len(one.going) for one in found] == [GONE] * partitions
    assert store.heads == partitions * (GONE + 1)
    print(f"{partitions * EACH} objects, {store.heads} asked, {time.monotonic() - started_s:.1f} s")


def test_where_nothing_goes_nobody_is_asked() -> None:
    archive, store = archive_of(1)
    assert not surveyed(archive, 0, FOR_EVER).going
    assert store.heads == 0


def test_a_limit_of_size_asks_only_what_it_needs_from_the_newest_on() -> None:
    archive, store = archive_of(1)
    found = surveyed(archive, 0, Limits(bytes=20))  # each object counts one byte
    assert len(found.going) == GONE
    assert store.heads == GONE + 20
