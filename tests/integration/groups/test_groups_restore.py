"""`restore --groups` and `groups apply`: groups go on where they stood, once, and only when all topics are whole."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

import archiver.spark.restore
from archiver.cli.main import main
from archiver.errors import KafkaTemporaryError
from archiver.kafka.groups.group_positions import positions_of
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(120)]

SIZE: Final = 50
Offsets = Mapping[int, int]  # by partition


@dataclass(frozen=True, slots=True)
class Done:
    exit_code: int
    result: Any  # JSON; None: it printed none
    told: str


class Stage:
    """A topic whose groups stood here and there, archived; and the commands that bring it back beside itself."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        site: ArchiveSite,
        capsys: pytest.CaptureFixture[str],
        groups: str = "snapshot",
    ) -> None:
        self.broker, self.topic, self.site, self._capsys = broker, topic, site, capsys
        self.target = f"{topic}.back"
        self.early, self.within, self.elsewhere = (f"{topic}.{name}" for name in ("early", "within", "elsewhere"))
        create_topic(broker.bootstrap, topic, 3)
        create_topic(broker.bootstrap, f"{topic}.other")
        for partition in range(3):
            values = [b"%d-%d" % (partition, number) for number in range(SIZE)]
            produce_values(broker.bootstrap, topic, values, partition)
        commit(broker, self.early, ClientPartition(topic, 0, 3), ClientPartition(f"{topic}.other", 0, 0))
        within = [ClientPartition(topic, number, at) for number, at in ((0, 25), (1, SIZE), (2, 49))]
        commit(broker, self.within, *within)
        commit(broker, self.elsewhere, ClientPartition(f"{topic}.other", 0, 0))
        site.write_config(broker.bootstrap, topic)
        site.write_target(broker.bootstrap)
        site.back_up_with(broker.bootstrap, topic, groups=groups)

    @property
    def files(self) -> list[str]:
        return ["-c", str(self.site.folder / "archive.yaml"), "--target", str(self.site.folder / "target.yaml")]

    @property
    def command(self) -> list[str]:
        """Of a restore that brings back all but the first ten records of each partition."""
        renamed = ["--topics", re.escape(self.topic), "--rename", f"{self.topic}={self.target}"]
        window = ["--offsets", "0:10-,1:10-,2:10-", "--id", "mine"]
        return ["restore", *self.files, *renamed, *window, "--groups", f"{re.escape(self.topic)}.*"]

    def run(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        code = main([*arguments, "--quiet", "--format", "json"])
        said = self._capsys.readouterr()
        return Done(code, json.loads(said.out) if said.out else None, said.err)

    def restore(self, *options: str) -> Done:
        return self.run(*self.command, *options)

    def apply(self, *options: str) -> Done:
        return self.run("groups", "apply", *self.files, "--restore", "mine", *options)

    def offsets(self, group: str, topic: str | None = None) -> Offsets:
        found = with_client(self.broker.bootstrap, lambda client: positions_of(client, group))
        return {number: one.offset for (name, number), one in found.items() if name == (topic or self.target)}

    def has_target(self) -> bool:
        return bool(with_client(self.broker.bootstrap, lambda client: client.describe_topics([self.target])))

    def consume(self, group: str, count: int) -> list[bytes | None]:
        """As a worker of the group does: join, read on where it stands, commit, and leave."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "latest"})
        consumer.subscribe([self.target])
        try:
            read = [consumer.poll(60) for _ in range(count)]
            assert all(message is not None and message.error() is None for message in read)
            consumer.commit(asynchronous=False)
            return [message.value() for message in read if message is not None]
        finally:
            consumer.close()


@pytest.fixture
def stage(broker_41: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(broker_41, topic, site, capsys)


EARLY: Final = {0: 0}
WITHIN: Final = {0: 15, 1: 40, 2: 39}


def outcomes(done: Done) -> Mapping[str, set[str]]:
    applied = done.result.get("groups", done.result)["applied"]
    return {group["group"]: {one["outcome"] for one in group["positions"]} for group in applied["groups"]}


def besides_runs(stage: Stage) -> list[str]:
    return [key for key in keys_in(stage.site.bucket) if not key.startswith("control/runs/")]


def test_groups_are_set_once_and_run_on(stage: Stage) -> None:
    done = stage.restore()
    assert (done.exit_code, done.told) == (0, "")
    assert (stage.offsets(stage.early), stage.offsets(stage.within)) == (EARLY, WITHIN)
    assert stage.offsets(stage.within, stage.topic) == {0: 25, 1: SIZE, 2: 49}  # the source's are as they were
    assert outcomes(done) == {stage.early: {"set"}, stage.within: {"set"}}
    plan = {one["group"]: one for one in done.result["groups"]["plan"]["groups"]}
    assert plan.keys() == {stage.early, stage.within, stage.elsewhere}
    unset = {(group, row["topic"], row["reason"]) for group, one in plan.items() for row in one["not_set"]}
    assert unset == {(group, f"{stage.topic}.other", "topic not restored") for group in (stage.early, stage.elsewhere)}
    assert [row["partition"] for row in plan[stage.early]["without_commit"]] == [1, 2]
    first = done.result["groups"]["applied"]["groups"][0]["positions"][0]
    assert (first["before"], first["wanted"], first["after"]) == (None, *[{"offset": 0, "metadata": ""}] * 2)

    keys = besides_runs(stage)
    again = stage.restore()
    assert (again.exit_code, again.told) == (0, "")
    assert outcomes(again) == {stage.early: {"set by an earlier run"}, stage.within: {"set by an earlier run"}}
    assert besides_runs(stage) == keys

    read = stage.consume(stage.early, 7)
    assert read == [b"0-%d" % number for number in range(10, 17)]
    stands = stage.offsets(stage.early)
    assert stands == {0: 7}
    rerun = stage.restore()
    assert (rerun.exit_code, stage.offsets(stage.early), stage.offsets(stage.within)) == (0, stands, WITHIN)
    assert (outcomes(rerun)[stage.early], rerun.told) == ({"ran on"}, "")


def test_what_cannot_be_is_refused_before_anything_is_changed(
    broker_41: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(broker_41, topic, site, capsys, groups="off")
    keys = keys_in(site.bucket)

    def refused(says: str, *options: str) -> None:
        for more in ((), ("--dry-run",)):
            done = stage.restore(*options, *more)
            assert (done.exit_code, says in done.told) == (2, True), done.told
        assert not stage.has_target()
        assert keys_in(site.bucket) == keys

    refused("nothing of consumer groups is archived up to then")
    by_time = "is not supported: restore without --groups, then stop the group's consumers and reset it to a time"
    refused(f"--groups with --repartition {by_time}", "--repartition", "2")
    refused(f"--groups-approximate {by_time}", "--repartition", "2", "--groups-approximate")
    refused("--rename-group a: must be OLD=NEW", "--rename-group", "a")
    site.back_up_with(broker_41.bootstrap, topic, groups="snapshot")
    keys = keys_in(site.bucket)
    refused("--rename-group of no-such-group", "--rename-group", "no-such-group=x")
    refused("two groups would both become", "--rename-group", f"{stage.early}={stage.within}")
    refused("--groups", "--groups", "(")
    done = stage.run("restore", *stage.files, "--rename-group", "a=b")
    assert (done.exit_code, "--rename-group: goes with --groups" in done.told) == (2, True)


def test_a_restore_that_is_not_whole_sets_no_group(stage: Stage) -> None:
    client, bucket = s3_client(stage.site.bucket), stage.site.bucket.name
    (key,) = keys_in(stage.site.bucket, f"topics/{stage.topic}/partition=1/")
    whole = client.get_object(Bucket=bucket, Key=key)
    content = whole["Body"].read()
    client.put_object(Bucket=bucket, Key=key, Body=content[:-9], Metadata=whole["Metadata"])
    done = stage.restore()
    assert (done.exit_code, done.result["groups"]) == (3, None)
    assert "archiver: no group was set: that comes when all topics are whole\n" in done.told
    assert (stage.offsets(stage.early), stage.offsets(stage.within)) == ({}, {})
    assert not [name for name in keys_in(stage.site.bucket) if "@groups" in name]
    client.put_object(Bucket=bucket, Key=key, Body=content, Metadata=whole["Metadata"])
    assert stage.restore().exit_code == 0
    assert (stage.offsets(stage.early), stage.offsets(stage.within)) == (EARLY, WITHIN)


def test_what_fails_of_groups_is_told_beside_topics_that_are_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, exit_code in ((KafkaTemporaryError("the cluster is away"), 4), (ZeroDivisionError("a defect"), 1)):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(archiver.spark.restore, "restore_groups", fail)
            done = stage.restore()
        assert (done.exit_code, done.result["groups"], str(error) in done.result["failure"]) == (exit_code, None, True)
        assert [topic["is_finished"] for topic in done.result["topics"]] == [True]
        assert "archiver: no group was set\n" in done.told
        assert "restore mine is not done; when that is mended, go on with: archiver restore" in done.told
    assert outcomes(stage.restore()) == {stage.early: {"set"}, stage.within: {"set"}}


def test_apply_sets_groups_later_and_tells_before(stage: Stage) -> None:
    command = [one for one in stage.command if one not in {"--groups", f"{re.escape(stage.topic)}.*"}]
    assert stage.run(*command).result["groups"] is None
    groups = ("--groups", f"{re.escape(stage.topic)}.*")
    keys = keys_in(stage.site.bucket)
    dry = stage.apply(*groups, "--dry-run")
    assert (dry.exit_code, dry.result["applied"]["is_dry_run"], stage.offsets(stage.within)) == (0, True, {})
    assert keys_in(stage.site.bucket) == keys
    renamed = stage.apply(
        *groups, "--rename-group", f"{stage.early}=x-{stage.early}", "--topics", re.escape(stage.topic)
    )
    assert outcomes(renamed) == {f"x-{stage.early}": {"set"}, stage.within: {"set"}}
    assert (stage.offsets(f"x-{stage.early}"), stage.offsets(stage.early), stage.offsets(stage.within)) == (
        EARLY,
        {},
        WITHIN,
    )
    assert (stage.apply(*groups).exit_code, stage.offsets(stage.early)) == (0, EARLY)
    unknown = stage.run("groups", "apply", *stage.files, "--restore", "other")
    assert (unknown.exit_code, "there are mine" in unknown.told or "there is mine" in unknown.told) == (2, True)
