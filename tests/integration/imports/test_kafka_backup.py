"""kafka-backup's files, made byte by byte: imported, restored and read by Kafka's own Java; and exported again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.brokers import Broker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_backup_files import KafkaBackupFolder, Segment, all_kinds, read_topic
from tests.support.records import Rec, generate, without_offsets
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def as_read(records: list[Rec]) -> list[Rec]:
    """As a consumer of a topic with CreateTime sees records, whatever the type of their times was."""
    return without_offsets(replace(one, timestamp_type=0) for one in records)


def test_what_the_tool_has_kept_comes_back(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, tmp_path: Path, seed: int
) -> None:
    broker, folder = broker_41, KafkaBackupFolder(tmp_path / "target")
    first = generate(seed, 2_000, raw=False)
    second = [*all_kinds(40), *generate(seed + 1, 500, raw=False, first_offset=100)]
    groups = {f"{topic}.g": 1_500}
    folder.write(topic, 0, Segment(0).add(*first[:900]), Segment(900).add(*first[900:]), groups=groups)
    folder.write(topic, 1, Segment(0).add(*second).add(replace(second[-1], offset=900), confirmed=False), groups={})
    second.append(replace(second[-1], offset=900))
    site.write_config(broker.bootstrap)
    command = ("import", "kafka-backup", str(folder.path), "--cluster-id", "gone", "--format", "json")
    planned = json.loads(site.run(*command, "--dry-run").stdout)
    assert [(one["offsets"], one["records"]) for one in planned["planned"]] == [([0, 2_000], 2_000), ([40, 901], 506)]
    for records in ([2_000, 506], [0, 0]):  # again, it adds nothing
        done = site.run(*command)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert [one["records"] for one in told["imported"]] == records
        assert "aborted transactions" in told["notes"][0]
    shown = json.loads(site.run_within("groups", "show", "--format", "json").stdout)["positions"]
    assert [(one["group"], one["partition"], one["offset"]) for one in shown] == [(f"{topic}.g", 0, 1_500)]

    site.restore(
        broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], restore_id="mine", target_configs=KEEP_ALL
    )
    theirs = java_oracle.consume(broker.bootstrap, f"{topic}.back").records
    assert without_offsets(theirs[0]) == as_read(first)
    assert without_offsets(theirs[1]) == as_read(second)
    target = site.write_target(broker.bootstrap)
    applied = site.run_within("groups", "apply", "--target", str(target), "--restore", "mine", "--groups", f"{topic}.g")
    assert applied.returncode == 0, applied.stderr
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}.g"})
    (position,) = consumer.committed([TopicPartition(f"{topic}.back", 0)], timeout=30)
    consumer.close()
    assert position.offset == 1_500

    exported = site.run("export", "kafka-backup", str(tmp_path / "out"), "--format", "json")
    assert exported.returncode == 0, exported.stderr
    assert {number: read_topic(tmp_path / "out" / topic, number) for number in (0, 1)} == {0: first, 1: second}
    assert (tmp_path / "out" / topic / "consumer_offsets_partition_000").read_text() == json.dumps(groups)
    refused = site.run_within("export", "kafka-backup", str(tmp_path / "out"))
    assert (refused.returncode, "is not empty" in refused.stderr) == (2, True)


def test_wrong_input_writes_nothing(broker_41: Broker, site: ArchiveSite, tmp_path: Path) -> None:
    site.write_config(broker_41.bootstrap)
    (tmp_path / "empty").mkdir()
    for source, says in (("none", "is no directory"), ("empty", "no folder in it has segment files")):
        refused = site.run_within("import", "kafka-backup", str(tmp_path / source), "--cluster-id", "gone")
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    KafkaBackupFolder(tmp_path / "full").write("orders", 0, Segment(0).add(*all_kinds()))
    refused = site.run_within("import", "kafka-backup", str(tmp_path / "full"))
    assert (refused.returncode, "--cluster-id" in refused.stderr) == (2, True)
    nothing = site.run_within("ls", "--format", "json")
    assert json.loads(nothing.stdout)["holdings"] == []
