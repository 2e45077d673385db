"""`restore --dry-run`: what would be done, what is refused and why; nothing is changed."""

import contextlib
import io
import json
import random
from typing import Any

import pytest

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.spark.record_choice
from archiver.cli.main import main
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProduceAnswer, produce
from archiver.restore.plan.estimate import Effort, effort_of
from archiver.restore.plan.request import Existing, RestoreRequest
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.spark.restore import preview_restore
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def topics_of(broker: Broker) -> set[str]:
    return set(with_client(broker.bootstrap, lambda client: client.describe_topics(None)))


def test_a_dry_run_tells_all_and_changes_nothing(
    broker_41: Broker, topic: str, site: ArchiveSite, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{topic}.{name}" for name in ("a", "b", "c")]
    for name in names:
        create_topic(broker_41.bootstrap, name, 2, KEEP_ALL)
        produce_values(broker_41.bootstrap, name, [b"%d" % at for at in range(50)], 1)
    site.back_up(broker_41.bootstrap, rf"{topic}\..*", records=20)
    site.write_config(broker_41.bootstrap, *names)
    site.write_target(broker_41.bootstrap)
    create_topic(broker_41.bootstrap, f"{names[1]}.back", 2)
    produce_values(broker_41.bootstrap, f"{names[1]}.back", [b"another's"], 0)
    s3_client(site.bucket).delete_object(
        Bucket=site.bucket.name, Key=keys_in(site.bucket, f"topics/{names[2]}/partition=1/")[1]
    )
    keys, topics = keys_in(site.bucket), topics_of(broker_41)
    command = ["restore", "--target", "target.yaml", "--dry-run", "--rename-regex", r"(.*)=\1.back"]

    done = site.run(*command, "--topics", rf"{topic}\..*", "--format", "json")
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    assert [(one["source"], one["target"], one["state"], one["records"]) for one in found["topics"]] == [
        (names[0], f"{names[0]}.back", "new", 50),
        (names[1], f"{names[1]}.back", "there already", 50),
        (names[2], f"{names[2]}.back", "new", 30),
    ]
    assert [f"{names[1]}.back" in problem and "not empty" in problem for problem in found["refused"]] == [True]
    assert "offsets 20-39 are missing" in found["topics"][2]["partitions"][1]["problem"]
    assert found["effort"]["gets"] == 3 + 3  # of the third topic nothing comes back
    assert len(done.stderr.splitlines()) == 2

    for option, state in (
        ("--into-existing", "there already, and kept"),
        ("--purge-target", "there already, and would be purged"),
    ):
        done = site.run_within(*command, "--topics", names[1], option, "--format", "json")
        assert (done.returncode, json.loads(done.stdout)["topics"][0]["state"]) == (0, state), done.stderr

    done = site.run_within(*command, "--topics", names[2])
    assert (done.returncode, "offsets 20-39 are missing" in done.stderr) == (3, True)
    done = site.run_within(*command, "--topics", names[2], "--skip-damaged")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    told = f"would be skipped, not in {names[2]}.back-1: {names[2]}-1: offsets 20-39 are missing"
    assert told in done.stderr
    done = site.run_within(*command, "--topics", names[0], "--from", "0", "--first", "order")
    assert done.returncode == 0, done.stderr
    note = "--first order: matches none of the topics that are restored; the largest go first"
    assert f"note: {note}" in done.stdout.splitlines()
    cells = done.stdout.splitlines()[1].split()
    assert (cells[:5], cells[-1]) == ([names[0], "0", f"{names[0]}.back", "2", "50"], "new")
    assert done.stdout.splitlines()[-1] == "nothing was changed"
    assert keys_in(site.bucket) == keys
    assert topics_of(broker_41) == topics

    rename = [f"{names[0]}={names[0]}.back"]
    site.restore(broker_41.bootstrap, topics=names[0], rename=rename, restore_id="mine", first="order")
    assert note in caplog.messages
    done = site.run_within(*command, "--topics", names[0], "--id", "mine", "--first", "order", "--format", "json")
    found = json.loads(done.stdout)
    assert ([one["state"] for one in found["topics"]], found["notes"]) == (["begun with"], [note])


def test_a_topic_without_an_object_is_not_called_verified(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """The archive knows it, and has none of its records: whether it ever had one, nobody can tell."""
    for name in ("empty", "full"):
        create_topic(broker_41.bootstrap, f"{topic}.{name}", 2, KEEP_ALL)
    produce_values(broker_41.bootstrap, f"{topic}.full", [b"one"])
    site.back_up(broker_41.bootstrap, rf"{topic}\..*")
    site.write_config(broker_41.bootstrap)
    config, target = str(site.folder / "archive.yaml"), str(site.write_target(broker_41.bootstrap))
    command = ["restore", "-c", config, "--target", target, "--rename-regex", r"(.*)=\1.back"]
    line = f"{topic}.empty.back: nothing of {topic}.empty is archived"
    said = said_by([*command, "--dry-run"])
    assert sum(one.startswith(f"note: {line}") for one in said) == 1
    said = said_by(command)
    outcomes = {tuple(one.split()[:3:2]): one.split("  ")[-1].strip() for one in said[1:5]}
    assert outcomes == {
        (f"{topic}.empty", "0"): "nothing archived",
        (f"{topic}.empty", "1"): "nothing archived",
        (f"{topic}.full", "0"): "verified",
        (f"{topic}.full", "1"): "verified",
    }
    assert sum(one.startswith(line) for one in said) == 1
    said = said_by([*command, "--topics", f"{topic}.empty", "--partitions", "0", "--id", "another"])
    assert "nothing chosen" in said[1]


def said_by(command: list[str]) -> list[str]:
    """What the command prints, in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(command) == 0
    return out.getvalue().splitlines()


def test_copies_that_a_backup_would_archive_are_told(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    produce_values(broker_41.bootstrap, topic, [b"one"], 0)
    site.back_up(broker_41.bootstrap, topic)
    site.write_config(broker_41.bootstrap, rf"{topic}.*")
    site.write_target(broker_41.bootstrap)

    def notes(name: str) -> list[str]:
        command = ["restore", "--target", "target.yaml", "--dry-run", "--format", "json"]
        done = site.run_within(*command, "--rename", f"{topic}={name}")
        assert done.returncode == 0, done.stderr
        found: list[str] = json.loads(done.stdout)["notes"]
        return found

    (note,) = notes(f"{topic}.copy")
    assert note.startswith(f"{topic}.copy: topics.include matches the name")
    assert notes(f"copy.{topic}") == []


def test_an_estimate_counts_what_is_read_twice_and_what_is_dealt_out(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver.spark.record_choice, "check_predicate", lambda *_: None)  # which takes Spark
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    for partition, count in enumerate((60, 3)):
        produce_values(broker_41.bootstrap, topic, [b"%d" % at for at in range(count)], partition)
    site.back_up(broker_41.bootstrap, topic, records=20)
    storage = ArchiverConfig.model_validate(site.config(broker_41.bootstrap, ())).storage
    target = TargetConfig(kafka={"bootstrap.servers": broker_41.bootstrap})

    def effort(**asked: Any) -> tuple[int, int, int]:  # noqa: ANN401 - of a RestoreRequest
        request = RestoreRequest(topics=topic, renames={topic: f"{topic}.back"}, **asked)
        found = preview_restore(storage, target, request, restore_id=None).effort
        return found.gets, found.puts, found.batches

    assert effort() == (4, 2 + 2 * 3, 2)
    assert effort(where="offset > 5") == (4 + 4 + 4, 2 + 2 * 3 + 4, 2)  # looked through, and what was chosen noted
    assert effort(repartition=5) == (4, 4, 5 + 3)
    assert effort(batch_bytes=1) == (4, 2 + 2 * 3, 60 + 3)  # of one record each


def test_an_estimate_knows_the_batches_that_a_target_takes(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """They are as small as its configs make them, and each costs time."""
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    create_topic(broker_41.bootstrap, f"{topic}.back", 2, {"max.message.bytes": "8000", "compression.type": "gzip"})
    values = random.Random(seed).randbytes(400 * 2000)
    for partition in range(2):
        produce_values(
            broker_41.bootstrap, topic, [values[at : at + 400] for at in range(0, len(values), 400)], partition
        )
    site.back_up(broker_41.bootstrap, topic)
    storage = ArchiverConfig.model_validate(site.config(broker_41.bootstrap, ())).storage
    target = TargetConfig(kafka={"bootstrap.servers": broker_41.bootstrap})
    asked: dict[str, Any] = {"topics": topic, "existing": Existing.APPEND}

    def effort(name: str) -> Effort:
        request = RestoreRequest(renames={topic: f"{topic}.{name}"}, **asked)
        return preview_restore(storage, target, request, restore_id=None).effort

    sent = 0

    async def count(client: KafkaClient, topic: str, partition: int, content: bytes, timeout_ms: int) -> ProduceAnswer:
        nonlocal sent
        sent += 1
        return await produce(client, topic, partition, content, timeout_ms)

    estimate, of_new = effort("back"), effort("new")
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", count)
    site.restore(broker_41.bootstrap, rename=[f"{topic}={topic}.back"], **asked)
    assert sent > 100
    assert 0.8 * sent < estimate.batches < 1.2 * sent
    assert (of_new.batches, of_new.seconds < estimate.seconds) == (2, True)


def test_an_estimate_grows_with_partitions_that_have_little_in_them() -> None:
    """A hundred of fifty records each took two cores 4 s of work, and as much of broker and store beside them."""
    empty = PartitionPlan(partition=0, parts=(), stored_bytes=0, records=0, selection=ALL_RECORDS, selection_digest="")

    def seconds(partitions: int) -> float:
        topic = TopicPlan(
            source="t",
            life=0,
            target="t",
            partitions=(empty,) * partitions,
            final_configs={},
            archived_retention={},
        )
        return effort_of([topic], RestoreRequest(), 2, {}).seconds

    assert seconds(2_000) > 5 * seconds(2)
