"""Positions in a topic that was dealt into another number of partitions, against what Kafka's consumer finds there, and where there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark import SparkContext

import archiver.spark.dealt_positions
from archiver.codec.selection import TopicSelection
from archiver.groups.approximation import DealtPosition
from archiver.restore.dealt_positions import DealtPositions, DealtTopic
from archiver.restore.request import Existing, RestoreRequest
from archiver.spark.dealt_positions import approximate_positions
from tests.support.brokers import Broker
from tests.support.dealt_groups import Committed, dealt_topic
from tests.support.dealt_records import Rows, fill
from tests.support.examples import until_compacted
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, recreate_topic
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, run_here
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

SIZES = [90, 60, 70]
COMMITTED = {"one": {0: 40, 1: 25, 2: 66}, "two": {1: 60}, "done": {0: 90, 1: 60, 2: 70}}


@pytest.fixture(autouse=True)
def _tasks_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver.spark.dealt_positions, "run_on_spark", run_here)


def here(topics: Sequence[DealtTopic]) -> list[DealtPositions]:
    return approximate_positions(cast("SparkContext", None), topics)


class Stage:
    """An archived topic, its restore into other partitions, and positions there."""

    def __init__(self, broker: Broker, site: ArchiveSite, topic: str) -> None:
        self.broker, self.site, self.topic, self.target = broker, site, topic, f"{topic}.back"
        self.written: Rows = fill(broker, topic, SIZES, 5)
        self.asked: dict[str, Any] = {}
        site.back_up(broker.bootstrap, topic, records=30)

    def restore(self, partitions: int = 4, **asked: Any) -> None:  # noqa: ANN401 - of a RestoreRequest
        self.asked = {"repartition": partitions, "batch_bytes": 700, **asked}
        self.site.restore(
            self.broker.bootstrap,
            topics=self.topic,
            rename=[f"{self.topic}={self.target}"],
            restore_id="r",
            **self.asked,
        )

    def positions(self, committed: Committed = COMMITTED) -> DealtPositions:
        request = RestoreRequest(**self.asked)
        dealt = dealt_topic(self.site, self.broker.bootstrap, self.target, "r", request, committed)
        (found,) = here([dealt])
        return found

    def delete_below(self, partition: int, offset: int) -> None:
        client = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for deleted in client.delete_records([TopicPartition(self.target, partition, offset)]).values():
            deleted.result(30)


@pytest.fixture
def stage(broker_41: Broker, site: ArchiveSite, topic: str) -> Stage:
    return Stage(broker_41, site, topic)


def source_and_number(record: Rec) -> tuple[int, int] | None:
    """Return where a record of `fill` comes from; None: it is somebody else's."""
    if not record.headers:
        return None
    source, _, at = (record.headers[0][1] or b"").decode().partition("/")
    return int(source), int(at)


def expected(
    there: Mapping[int, list[Rec]], before: Mapping[int, list[Rec]], read: Mapping[int, int]
) -> list[DealtPosition]:
    """Where a group goes on by what stands in the target now, and what stood there before brokers deleted some."""
    return [_expected(there[target], before[target], read) for target in sorted(before)]


def _expected(there: list[Rec], before: list[Rec], read: Mapping[int, int]) -> DealtPosition:
    ours = [(one.offset, place) for one in before if (place := source_and_number(one))]
    present = {one.offset for one in there}
    left = [(offset, at >= read.get(source, 0)) for offset, (source, at) in ours]
    unread = [offset for offset, is_unread in left if is_unread and offset in present]
    position = min(unread, default=ours[-1][0] + 1)
    again = sum(offset >= position and not is_unread for offset, is_unread in left)
    return DealtPosition(position, again, sum(is_unread and offset not in present for offset, is_unread in left))


def consumed(oracle: JavaOracle, stage: Stage) -> Mapping[int, list[Rec]]:
    return oracle.consume(stage.broker.bootstrap, stage.target).records


def test_behind_records_of_others_and_before_later_ones(stage: Stage, java_oracle: JavaOracle) -> None:
    create_topic(stage.broker.bootstrap, stage.target, 4, KEEP_ALL)
    theirs = [encode(batch_of([Rec(at, NOW_MS, 0, b"k", b"theirs") for at in range(3)]))]
    for partition in range(4):
        produce_raw(stage.broker.bootstrap, stage.target, theirs, partition)
    stage.restore(existing=Existing.APPEND)
    for partition in range(4):
        produce_raw(stage.broker.bootstrap, stage.target, theirs, partition)
    found, there = stage.positions(), consumed(java_oracle, stage)
    assert (found.error, found.groups.keys()) == ("", COMMITTED.keys())
    for group, positions in found.groups.items():
        assert list(positions) == expected(there, there, COMMITTED[group])


def test_a_window_of_some_partitions(stage: Stage, java_oracle: JavaOracle) -> None:
    """Nothing of the other source partitions holds a group back, nor what is not in the window."""
    wanted = TopicSelection(partitions=frozenset([0, 2]), from_ms=NOW_MS + 300, until_ms=NOW_MS + 700)
    stage.restore(wanted=wanted)
    found, there = stage.positions(), consumed(java_oracle, stage)
    for group, positions in found.groups.items():
        assert list(positions) == expected(there, there, COMMITTED[group])


def test_records_that_brokers_have_deleted_since(stage: Stage, java_oracle: JavaOracle) -> None:
    """Within a batch, at the end of a partition, and nothing of the others."""
    stage.restore(partitions=3)
    before = consumed(java_oracle, stage)
    stage.delete_below(0, before[0][25].offset)
    stage.delete_below(2, before[2][-1].offset + 1)
    found, there = stage.positions(), consumed(java_oracle, stage)
    assert [len(there[number]) for number in range(3)] == [len(before[0]) - 25, len(before[1]), 0]
    for group, positions in found.groups.items():
        assert list(positions) == expected(there, before, COMMITTED[group])
    assert found.deleted("two") > 0
    assert found.deleted("done") == 0


def test_skipped_objects_are_skipped_again(stage: Stage, java_oracle: JavaOracle) -> None:
    client, bucket = s3_client(stage.site.bucket), stage.site.bucket.name
    key = keys_in(stage.site.bucket, f"topics/{stage.topic}/partition=0/")[1]
    whole = client.get_object(Bucket=bucket, Key=key)
    content = whole["Body"].read()
    client.put_object(Bucket=bucket, Key=key, Body=content[:-9], Metadata=whole["Metadata"])
    stage.restore(skips_damage=True)
    client.put_object(Bucket=bucket, Key=key, Body=content, Metadata=whole["Metadata"])
    found, there = stage.positions(), consumed(java_oracle, stage)
    assert sum(map(len, there.values())) == sum(SIZES) - 30
    for group, positions in found.groups.items():
        assert list(positions) == expected(there, there, COMMITTED[group])


def test_an_archive_that_has_changed_since(stage: Stage) -> None:
    stage.restore()
    key = keys_in(stage.site.bucket, f"topics/{stage.topic}/partition=0/")[1]
    s3_client(stage.site.bucket).delete_object(Bucket=stage.site.bucket.name, Key=key)
    found = stage.positions()
    assert (found.groups, found.exit_code, key in found.error) == ({}, 3, True)


def test_a_target_that_is_another_topic_by_now(stage: Stage) -> None:
    stage.restore()
    request = RestoreRequest(**stage.asked)
    dealt = dealt_topic(stage.site, stage.broker.bootstrap, stage.target, "r", request, COMMITTED)
    recreate_topic(stage.broker.bootstrap, stage.target, 4, KEEP_ALL)
    (found,) = here([dealt])
    assert (found.groups, found.exit_code) == ({}, 2)
    assert f"{stage.target}: is not the topic that restore r has filled" in found.error


def test_a_target_that_was_compacted_since(stage: Stage, java_oracle: JavaOracle) -> None:
    stage.restore()
    compaction = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.01",
        "segment_ms": "100",
        "max_compaction_lag_ms": "100",
    }
    set_configs(stage.broker, stage.target, **compaction)
    later = [encode(batch_of([Rec(0, NOW_MS + 10**6, 0, b"last", b"")]))]
    for partition in range(4):  # begins another segment: the last one is not compacted
        produce_raw(stage.broker.bootstrap, stage.target, later, partition)
    until_compacted(java_oracle, stage.broker.bootstrap, stage.target)
    found = stage.positions()
    assert (found.groups, found.exit_code) == ({}, 3)
    assert "the target is not what was verified: records are missing at offset" in found.error


def test_one_topic_of_two_fails(stage: Stage) -> None:
    """And groups that have committed nothing get nothing."""
    stage.restore()
    request = RestoreRequest(**stage.asked)
    dealt = dealt_topic(stage.site, stage.broker.bootstrap, stage.target, "r", request, {"a": {0: 1}, "b": {}})
    other = replace(dealt, plan=replace(dealt.plan, target=f"{stage.target}.other"))
    bad, good = here([other, dealt])
    assert (bad.exit_code, good.error, list(good.groups)) == (2, "", ["a"])
