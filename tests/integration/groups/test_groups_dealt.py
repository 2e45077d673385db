"""`restore --repartition --groups --groups-approximate`: groups miss nothing, and read again as many records as is told."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition as ClientPartition

import archiver.restore.deal_replay
import archiver.restore.group_restore
import archiver.restore.notes
import archiver.spark.dealt_positions
from archiver.cli.main import main
from archiver.errors import ArchiverError, NotWholeError, TemporaryError
from archiver.groups.archived_position import ArchivedPosition, State
from archiver.groups.shown import ShownGroups, show_groups
from archiver.kafka.group_positions import positions_of
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.dealt_groups import read_on, unread
from tests.support.dealt_records import fill
from tests.support.foreign_reader import keys_in
from tests.support.kafka_topics import with_client
from tests.support.produce_doubles import Killed
from tests.support.round_trip import ArchiveSite, run_here

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(120)]

SIZES: Final = [90, 60, 70]
COMMITTED: Final = {"one": {0: 40, 1: 25, 2: 66}, "two": {1: 60}, "done": {0: 90, 1: 60, 2: 70}}
PARTITIONS: Final = 4


@pytest.fixture(autouse=True)
def _tasks_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver.spark.dealt_positions, "run_on_spark", run_here)


class Stage:
    """A topic whose groups stood here and there, archived."""

    def __init__(self, broker: Broker, site: ArchiveSite, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker, self.site, self.target, self._capsys = broker, site, f"{topic}.back", capsys
        self.written = fill(broker, topic, SIZES, 5)
        self.groups = {f"{topic}.{name}": offsets for name, offsets in COMMITTED.items()}
        for group, offsets in self.groups.items():
            commit(broker, group, *(ClientPartition(topic, number, at) for number, at in offsets.items()))
        site.write_config(broker.bootstrap, topic)
        site.write_target(broker.bootstrap)
        site.back_up_with(broker.bootstrap, topic, groups="snapshot", segment={"records": 30})
        files = ["-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")]
        renamed = ["--topics", re.escape(topic), "--rename", f"{topic}={self.target}", "--id", "mine"]
        self.command = ["restore", *files, *renamed, "--repartition", str(PARTITIONS), "--batch-bytes", "700"]
        self.command += ["--quiet", "--format", "json"]
        self.approximate = ["--groups", f"{re.escape(topic)}.*", "--groups-approximate"]

    def restore(self, *options: str, exit_code: int = 0) -> Any:  # noqa: ANN401 - JSON
        self._capsys.readouterr()
        assert main([*self.command, *options]) == exit_code, self._capsys.readouterr().err
        return json.loads(self._capsys.readouterr().out)

    def offsets(self, group: str) -> Mapping[int, int]:
        found = with_client(self.broker.bootstrap, lambda client: positions_of(client, group))
        return {number: one.offset for (name, number), one in found.items() if name == self.target}

    def assert_set(self, result: Any, outcome: str) -> None:  # noqa: ANN401 - JSON
        """By what a real consumer of each group then reads."""
        applied = {one["group"]: one for one in result["groups"]["applied"]["groups"]}
        assert applied.keys() == self.groups.keys()
        for group, one in applied.items():
            assert {position["outcome"] for position in one["positions"]} == {outcome}
            assert self.offsets(group).keys() == set(range(PARTITIONS))
        plans = {one["group"]: one for one in result["groups"]["plan"]["groups"]}
        for group, committed in self.groups.items():
            assert (plans[group]["not_set"], result["groups"]["plan"]["whole"]) == ([], True)
            (dealt,) = plans[group]["dealt"]
            offsets = [at for _, at in sorted(self.offsets(group).items())]
            assert (dealt["offsets"], dealt["target_topic"], dealt["deleted"]) == (offsets, self.target, 0)
            read, wanted = read_on(self.broker.bootstrap, self.target, group, offsets), unread(self.written, committed)
            assert wanted <= read.keys()
            assert (max(read.values(), default=1), read.total() - len(wanted)) == (1, dealt["read_again"])


@pytest.fixture
def stage(broker_41: Broker, site: ArchiveSite, topic: str, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(broker_41, site, topic, capsys)


def test_groups_miss_nothing(stage: Stage) -> None:
    result = stage.restore(*stage.approximate)
    stage.assert_set(result, "set")
    dealt = {one["group"]: one["dealt"][0]["read_again"] for one in result["groups"]["plan"]["groups"]}
    assert sorted(bool(count) for count in dealt.values()) == [
        False,
        True,
        True,
    ]  # who has read all reads nothing again
    keys = keys_in(stage.site.bucket)
    stage.assert_set(stage.restore(*stage.approximate), "set by an earlier run")
    assert keys_in(stage.site.bucket) == keys


def test_a_topic_that_an_earlier_run_has_finished(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the groups; then without them."""

    def reach(name: str) -> None:
        if name == "finished.noted":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.notes, "reach", reach)
        with pytest.raises(Killed):
            stage.restore(*stage.approximate)
    assert stage.restore()["groups"] is None
    assert not any(stage.offsets(group) for group in stage.groups)
    stage.assert_set(stage.restore(*stage.approximate), "set")


@pytest.mark.parametrize(
    ("error", "exit_code"), [(TemporaryError("the store is away"), 4), (NotWholeError("an object is gone"), 3)]
)
def test_what_the_deal_cannot_tell_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: ArchiverError, exit_code: int
) -> None:
    """And the topic is whole all the same."""

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.deal_replay, "read_dealt", fail)
        result = stage.restore(*stage.approximate, exit_code=exit_code)
    assert [topic["is_finished"] for topic in result["topics"]] == [True]
    assert result["groups"]["applied"]["groups"] == []
    unset = [row for group in result["groups"]["plan"]["groups"] for row in group["not_set"]]
    assert len(unset) == sum(map(len, COMMITTED.values()))
    assert {row["reason"] for row in unset} == {"partition not restored whole"}
    assert all(str(error) in row["told"] for row in unset)
    stage.assert_set(stage.restore(*stage.approximate), "set")


def test_what_is_unknown_counts_as_the_beginning(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    group = next(iter(stage.groups))

    def show(*arguments: Any) -> ShownGroups:  # noqa: ANN401 - of show_groups
        found = show_groups(*arguments)
        return replace(found, positions=[replace(one, position=doubted(one.position)) for one in found.positions])

    def doubted(one: ArchivedPosition) -> ArchivedPosition:
        return one._replace(state=State.UNKNOWN) if (one.group, one.partition) == (group, 1) else one

    monkeypatch.setattr(archiver.restore.group_restore, "show_groups", show)
    result = stage.restore(*stage.approximate, "--groups", re.escape(group), exit_code=3)
    (plan,) = result["groups"]["plan"]["groups"]
    assert [(row["partition"], row["reason"]) for row in plan["not_set"]] == [(1, "unknown")]
    offsets = [at for _, at in sorted(stage.offsets(group).items())]
    assert len(offsets) == PARTITIONS
    read = read_on(stage.broker.bootstrap, stage.target, group, offsets)
    wanted = unread(stage.written, {**stage.groups[group], 1: 0})
    assert (wanted <= read.keys(), read.total() - len(wanted)) == (True, plan["dealt"][0]["read_again"])
