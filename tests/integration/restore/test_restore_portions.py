"""A restore of many topics, of which some cannot be had: the others are filled, finished and told, and it says how to go on."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

import archiver.restore.targets.targets
import archiver.spark.restore_job
from archiver.cli.main import main
from archiver.errors import KafkaTemporaryError, TemporaryError
from archiver.restore.fill.partition_restore import run_task
from archiver.restore.plan.task import RestoreTask, TaskReport
from archiver.restore.targets.target_configs import TargetConfigs
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import delete_topic, with_client
from tests.support.round_trip import ArchiveSite, run_here
from tests.support.target_topics import Partitions, archived, foreign_topic, log_of, records_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

Done = tuple[int, Any, list[str]]  # exit code, JSON, what it complains of


@pytest.fixture
def names(broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch) -> dict[str, Partitions]:
    """Three archived topics, the largest first; each that is purged is a portion of its own."""
    monkeypatch.setattr(archiver.restore.targets.targets, "_PURGED_AT_ONCE", 1)
    wanted = {f"{topic}.{name}": records_of(count) for name, count in (("a", 90), ("b", 20), ("c", 10))}
    return {name: archived(broker_41, name, site, records, compression_type="lz4") for name, records in wanted.items()}


def restore(site: ArchiveSite, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str], *more: str) -> Done:
    """By the command itself, but for Spark's engine."""
    site.write_config(broker.bootstrap)
    command = ["restore", "-c", str(site.folder / "archive.yaml"), "--target", str(site.write_target(broker.bootstrap))]
    command += ["--rename-regex", r"(.*)\.([abc])=\1.\2.back", "--topics", rf"{topic}\..*", "--format", "json"]
    code = main([*command, *more])
    told = capsys.readouterr()
    lines = [line.removeprefix("archiver: ") for line in told.err.splitlines() if line.startswith("archiver: ")]
    return code, json.loads(told.out or "null"), lines


def assert_way_on(line: str, restore_id: str) -> None:
    assert line.startswith(f"restore {restore_id} is not done; when that is mended, go on with: archiver restore ")
    assert line.endswith(f" --id {restore_id}")


def test_spark_that_dies_with_the_second_portion_hides_nothing(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    names: dict[str, Partitions],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, *others = names
    for name in names:
        foreign_topic(broker_41, f"{name}.back", 3)
    portions = 0

    def die_later(spark: object, tasks: Sequence[RestoreTask], *_: object) -> list[TaskReport]:
        nonlocal portions
        portions += 1
        if portions == 2:
            raise TemporaryError("Spark's JVM died; run the same command again")
        return run_here(spark, tasks, run_task)

    monkeypatch.setattr(archiver.spark.restore_job, "run_on_spark", die_later)
    code, found, lines = restore(site, broker_41, topic, capsys, "--purge-target")
    assert (code, lines[0], found["not_begun"]) == (
        4,
        "Spark's JVM died; run the same command again",
        [f"{others[1]}.back"],
    )
    assert_way_on(lines[1], found["id"])
    assert [(one["source"], one["is_finished"]) for one in found["topics"]] == [
        (first, True), (others[0], False)
    ]  # fmt: skip
    assert log_of(broker_41, f"{others[1]}.back") == (0, 3)
    assert restore(site, broker_41, topic, capsys, "--purge-target")[0] == 0


def test_what_is_whole_is_told_when_its_configs_cannot_be_set_now(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    names: dict[str, Partitions],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(*_: object) -> None:
        raise KafkaTemporaryError("no broker answers")

    with monkeypatch.context() as patch:
        patch.setattr(TargetConfigs, "set_archived", fail)
        code, found, lines = restore(site, broker_41, topic, capsys)
    assert (code, lines[0]) == (4, "no broker answers")
    assert_way_on(lines[1], found["id"])
    assert [(one["records"], one["refusal"]) for one in found["topics"]] == [
        (len(written[0]), "no broker answers") for written in names.values()
    ]
    code, found, _ = restore(site, broker_41, topic, capsys)
    assert (code, {one["is_finished"] for one in found["topics"]}) == (0, {True})


@pytest.mark.parametrize("lives", [1, 2])
def test_topic_note_that_cannot_be_read_ends_the_restore_before_any_change(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    names: dict[str, Partitions],
    capsys: pytest.CaptureFixture[str],
    lives: int,
) -> None:
    """The newest one; and one of an earlier life, which only its history tells."""
    *_, last = names
    if lives == 2:  # created again, and empty since: its records are of the first life
        delete_topic(broker_41.bootstrap, last)
        archived(broker_41, last, site, [])
    key = keys_in(site.bucket, f"control/topics/{last}/")[0]
    s3_client(site.bucket).put_object(Bucket=site.bucket.name, Key=key, Body=b'{"format": 1, "topic": ')
    code, found, lines = restore(site, broker_41, topic, capsys)
    assert (code, found["failure"], found["topics"]) == (3, lines[0], [])
    assert key in lines[0]
    there = with_client(broker_41.bootstrap, lambda it: it.describe_topics([f"{name}.back" for name in names]))
    assert there == {}
    assert keys_in(site.bucket, "control/restores/") == []
    assert_way_on(lines[-1], lines[-1].split()[1])
