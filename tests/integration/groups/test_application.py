"""Groups are set on real brokers, and set back: beside consumers that are there, that come meanwhile, and that have run on."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

import archiver.groups.application
from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.cli.main import main
from archiver.groups.application import apply_positions, roll_back_positions
from archiver.groups.application_decisions import PositionOutcome
from archiver.groups.application_report import ApplicationReport, GroupReport
from archiver.groups.wanted_positions import WantedGroup, WantedPosition
from archiver.kafka.client import KafkaClient
from archiver.kafka.group_positions import GroupPosition, Positions, positions_of
from tests.integration.groups.test_group_positions import commit, member
from tests.support.brokers import KAFKA_39, KAFKA_41, KAFKA_44, REPOSITORY, Broker, StartBroker
from tests.support.foreign_reader import keys_in
from tests.support.forked_commands import COMMAND
from tests.support.group_application import apply
from tests.support.kafka_topics import create_topic, produce_values, recreate_topic, with_client
from tests.support.memory_store import MemoryStore
from tests.support.round_trip import ArchiveSite, environment_of

pytestmark = [pytest.mark.kafka]

BROKERS: Final = ["broker_39", "broker_41"]
PROTOCOLS: Final = [("broker_39", "classic"), ("broker_41", "classic"), ("broker_41", "consumer")]
END: Final = 20  # a member that stands there reads nothing on


class Target:
    """A cluster with a topic of three partitions, and an archive in memory."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.group = f"{topic}-group"
        self.archive = Archive(MemoryStore(), Layout())
        create_topic(broker.bootstrap, topic, 3)
        for partition in range(3):
            produce_values(broker.bootstrap, topic, [b"%d" % number for number in range(END)], partition)

    @property
    def topic_id(self) -> str:
        described = with_client(self.broker.bootstrap, lambda client: client.describe_topics([self.topic]))
        return described[self.topic].topic_id

    def wanted(self, *offsets: int, metadata: str = "") -> Sequence[WantedPosition]:
        found = self.topic_id
        return [WantedPosition(self.topic, found, number, offset, metadata) for number, offset in enumerate(offsets)]

    def apply(
        self,
        *offsets: int,
        group: str | None = None,
        is_dry_run: bool = False,
        others: Mapping[str, Sequence[WantedPosition]] = MappingProxyType({}),
    ) -> ApplicationReport:
        positions = {self.group if group is None else group: self.wanted(*offsets), **others}
        wanted = {name: WantedGroup(source_group="source", positions=some) for name, some in positions.items()}
        return with_client(
            self.broker.bootstrap,
            lambda client: apply_positions(client, self.archive, "r1", wanted, is_dry_run=is_dry_run),
        )

    def roll_back(self) -> ApplicationReport:
        return with_client(
            self.broker.bootstrap,
            lambda client: roll_back_positions(client, self.archive, "r1", re.compile(".*", re.DOTALL)),
        )

    def positions(self, group: str | None = None) -> Positions:
        name = self.group if group is None else group
        return with_client(self.broker.bootstrap, lambda client: positions_of(client, name))

    def offsets(self, group: str | None = None) -> Mapping[int, int]:
        return {partition: one.offset for (_, partition), one in self.positions(group).items()}

    def offsets_by_kafka(self) -> Mapping[int, int]:
        """By a client that is not ours."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])
        found = asked[self.group].result(60).topic_partitions
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def consume(self, count: int) -> None:
        """As a group that goes on where it stands, and leaves."""
        properties = {"bootstrap.servers": self.broker.bootstrap, "group.id": self.group, "enable.auto.commit": False}
        consumer = Consumer({**properties, "auto.offset.reset": "error"})
        consumer.subscribe([self.topic])
        try:
            read = [consumer.poll(60) for _ in range(count)]
            assert all(message is not None and message.error() is None for message in read)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()


@pytest.fixture
def target(request: pytest.FixtureRequest, topic: str) -> Target:
    """On the broker that the test is parametrized with, else on the newest."""
    return Target(request.getfixturevalue(getattr(request, "param", "broker_41")), topic)


def of(report: ApplicationReport, group: str) -> GroupReport:
    (found,) = [one for one in report.groups if one.group == group]
    return found


def outcomes(report: ApplicationReport, group: str) -> set[PositionOutcome]:
    return {one.outcome for one in of(report, group).positions}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", BROKERS, indirect=True)
def test_a_group_is_set_and_set_back(target: Target) -> None:
    before = ClientPartition(target.topic, 0, 3, metadata="ü", leader_epoch=0)
    commit(target.broker, target.group, before)
    stood = target.positions()
    dry = target.apply(7, 8, 9, is_dry_run=True)
    assert (outcomes(dry, target.group), target.positions()) == ({PositionOutcome.SET}, stood)
    report = target.apply(7, 8, 9)
    assert (report.exit_code, outcomes(report, target.group)) == (0, {PositionOutcome.SET})
    assert target.offsets() == {0: 7, 1: 8, 2: 9}
    assert report.expiry_ms == 7 * 86_400_000
    assert outcomes(target.apply(7, 8, 9), target.group) == {PositionOutcome.SET_EARLIER}
    assert target.roll_back().exit_code == 0
    assert target.positions() == stood
    assert stood[target.topic, 0].leader_epoch == 0
    assert outcomes(target.roll_back(), target.group) == {PositionOutcome.STOOD_THERE}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", [KAFKA_39, KAFKA_41, pytest.param(KAFKA_44, marks=pytest.mark.worlds)])
def test_a_group_may_have_any_name(version: str, new_broker: StartBroker, topic: str) -> None:
    """On a broker of its own: other tests list all groups, and cannot tell one with a line break from two."""
    target = Target(new_broker(version), topic)
    names = ["", "a/../@+ \n\0ü", "x" * 20_000]
    for name in names:
        assert outcomes(target.apply(1, 2, 3, group=name), name) == {PositionOutcome.SET}
        assert target.offsets(name) == {0: 1, 1: 2, 2: 3}
    back = target.roll_back()
    for name in names[1:]:
        assert outcomes(back, name) == {PositionOutcome.SET}
        assert target.offsets(name) == {}
    # Of the one without a name brokers take a commit, and no deletion.
    assert (of(back, "").positions, back.exit_code) == ((), 0)
    assert "the group without a name is skipped" in of(back, "").skipped


@pytest.mark.parametrize(("target", "protocol"), PROTOCOLS, indirect=["target"])
def test_a_group_with_members_is_left_alone(protocol: str, target: Target) -> None:
    other = f"{target.group}-other"
    with member(target.broker, target.group, target.topic, protocol) as consumer:
        consumer.commit(offsets=[ClientPartition(target.topic, 0, 1)], asynchronous=False)
        dry = target.apply(END, END, END, is_dry_run=True)
        report = target.apply(END, END, END, others={other: target.wanted(4, 5, 6)})
        for found in (dry, report):
            assert (found.exit_code, outcomes(found, target.group)) == (3, {PositionOutcome.HAS_MEMBERS})
        assert (target.offsets(), target.offsets(other)) == ({0: 1}, {0: 4, 1: 5, 2: 6})
    assert target.apply(END, END, END).exit_code == 0
    with member(target.broker, target.group, target.topic, protocol):
        back = target.roll_back()
        assert outcomes(back, target.group) == {PositionOutcome.HAS_MEMBERS}
        assert (target.offsets(), target.offsets(other)) == ({0: END, 1: END, 2: END}, {})
    assert target.roll_back().exit_code == 0
    assert target.offsets() == {0: 1}


@contextmanager
def joining_at(
    monkeypatch: pytest.MonkeyPatch, module: object, failpoint: str, join: Callable[[], object]
) -> Iterator[None]:
    """Have a consumer join when a place between two effects is reached."""

    def reach(name: str) -> None:
        if name == failpoint:
            join()

    with monkeypatch.context() as patch:
        patch.setattr(module, "reach", reach)
        yield


@pytest.mark.parametrize(("target", "protocol"), PROTOCOLS, indirect=["target"])
def test_a_group_that_becomes_active_after_the_look_is_left_alone(
    protocol: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as consumers:

        def join() -> None:
            consumers.enter_context(member(target.broker, target.group, target.topic, protocol))

        with joining_at(monkeypatch, archiver.groups.application, "positions.noted", join):
            report = target.apply(7, 8, 9)
        assert (report.exit_code, outcomes(report, target.group)) == (3, {PositionOutcome.HAS_MEMBERS})
        assert target.offsets() == {}
    assert outcomes(target.apply(7, 8, 9), target.group) == {PositionOutcome.SET}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", BROKERS, indirect=True)
def test_who_ran_on_is_not_put_back(target: Target) -> None:
    target.apply(7, 8, 9)
    target.consume(10)
    stands = target.offsets()
    moved = {partition for partition, offset in stands.items() if offset > 7 + partition}
    assert moved
    for report, code, told in (
        (target.apply(7, 8, 9), 0, PositionOutcome.RAN_ON),
        (target.apply(1, 1, 1), 3, PositionOutcome.MOVED),
    ):
        assert report.exit_code == code
        assert {one.partition for one in of(report, target.group).positions if one.outcome is told} == moved
        assert target.offsets() == stands
    back = target.roll_back()
    assert {one.partition for one in of(back, target.group).positions if one.outcome is PositionOutcome.MOVED} == moved
    assert back.exit_code == 3
    assert target.offsets() == stands == target.offsets_by_kafka()


def test_a_group_that_had_members_and_read_on_is_left(target: Target) -> None:
    """To give the same command again is what it is told when its consumers are stopped."""
    with member(target.broker, target.group, target.topic) as consumer:
        consumer.commit(offsets=[ClientPartition(target.topic, 0, 1)], asynchronous=False)
        assert outcomes(target.apply(9, 9, 9), target.group) == {PositionOutcome.HAS_MEMBERS}
        consumer.commit(offsets=[ClientPartition(target.topic, 0, 13)], asynchronous=False)
    again = target.apply(9, 9, 9)
    assert (again.exit_code, outcomes(again, target.group)) == (3, {PositionOutcome.MOVED, PositionOutcome.GROUP_MOVED})
    back = target.roll_back()
    assert (back.exit_code, outcomes(back, target.group)) == (0, set())
    assert target.offsets_by_kafka() == {0: 13}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", BROKERS, indirect=True)
def test_metadata_are_kept_whole_or_named(target: Target) -> None:
    longest = f"{target.group}-longest"
    wanted = [one._replace(metadata="ü\0" + "m" * 4000) for one in target.wanted(1, 2, 3)]
    too_long = [*wanted[:2], wanted[2]._replace(metadata="x" * 4097)]
    report = target.apply(1, 1, 1, others={longest: too_long, f"{longest}-2": wanted})
    assert outcomes(report, target.group) == outcomes(report, f"{longest}-2") == {PositionOutcome.SET}
    assert target.positions(f"{longest}-2") == {
        one.place: GroupPosition(offset=one.offset, metadata=one.metadata) for one in wanted
    }
    assert [one.outcome for one in of(report, longest).positions] == [
        PositionOutcome.SET,
        PositionOutcome.SET,
        PositionOutcome.NOT_SET,
    ]
    assert "OFFSET_METADATA_TOO_LARGE (12); raise the brokers' offset.metadata.max.bytes" in str(
        of(report, longest).error
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("broker_name", BROKERS)
def test_more_than_a_batch_of_the_offsets_topic_is_set(
    broker_name: str, request: pytest.FixtureRequest, topic: str
) -> None:
    broker: Broker = request.getfixturevalue(broker_name)
    create_topic(broker.bootstrap, topic, 300)
    found = with_client(broker.bootstrap, lambda client: client.describe_topics([topic]))[topic].topic_id
    positions = [WantedPosition(topic, found, number, number, "m" * 4000) for number in range(300)]
    wanted = {topic: WantedGroup(source_group="s", positions=positions)}

    async def body(client: KafkaClient) -> ApplicationReport:
        return await apply_positions(client, Archive(MemoryStore(), Layout()), "r1", wanted)

    report = with_client(broker.bootstrap, body)
    assert (of(report, topic).error, outcomes(report, topic)) == (None, {PositionOutcome.SET})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", BROKERS, indirect=True)
def test_an_open_transaction_keeps_positions_from_being_set(target: Target) -> None:
    commit(target.broker, target.group, ClientPartition(target.topic, 0, 1))
    producer = Producer({"bootstrap.servers": target.broker.bootstrap, "transactional.id": target.group})
    consumer = Consumer({"bootstrap.servers": target.broker.bootstrap, "group.id": target.group})
    producer.init_transactions(30)
    producer.begin_transaction()
    position = ClientPartition(target.topic, 0, 5)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
    report = target.apply(7)
    assert (report.exit_code, target.offsets()) == (4, {0: 1})
    assert "a transaction that commits positions of the group is open" in str(of(report, target.group).error)
    producer.commit_transaction(30)
    consumer.close()
    settled = target.apply(7)
    assert [one.before for one in of(settled, target.group).positions] == [GroupPosition(offset=5)]
    assert target.offsets() == {0: 7}


def test_a_topic_that_was_created_again_gets_nothing(target: Target) -> None:
    wanted = target.wanted(7, 8, 9)
    recreate_topic(target.broker.bootstrap, target.topic, 3)
    report = target.apply(others={target.group: wanted})
    assert outcomes(report, target.group) == {PositionOutcome.OTHER_TOPIC}
    assert (report.exit_code, target.offsets()) == (3, {})


# --- kills, of processes


class Killed:
    """An application and a rollback on a target, with an archive in a bucket: as commands where they are killed."""

    def __init__(self, target: Target, site: ArchiveSite) -> None:
        self.target = target
        self._site = site
        self._case = site.folder / "case.json"
        wanted = [[*one] for one in target.wanted(7, 8)]
        config = site.config("", [])
        case = {
            "bootstrap": target.broker.bootstrap,
            "storage": config["storage"],
            "restore": "r1",
            "wanted": {target.group: wanted},
        }
        self._case.write_text(json.dumps(case), encoding="utf-8")
        self.config = site.folder / "archive.yaml"
        self.config.write_text(yaml.safe_dump({"storage": config["storage"]}))
        self.target_file = site.folder / "target.yaml"
        self.target_file.write_text(yaml.safe_dump({"kafka": {"bootstrap.servers": target.broker.bootstrap}}))

    def apply(self, failpoint: str = "") -> int:
        if not failpoint:
            return asyncio.run(apply(json.loads(self._case.read_text(encoding="utf-8")))).exit_code
        return self._run([sys.executable, "-m", "tests.support.group_application", str(self._case)], failpoint)

    @property
    def rollback(self) -> Sequence[str]:
        files = ["-c", str(self.config), "--target", str(self.target_file)]
        return ["groups", "rollback", *files, "--restore", "r1"]

    def roll_back(self, failpoint: str = "") -> int:
        return self._run([str(COMMAND), *self.rollback], failpoint) if failpoint else main(self.rollback)

    def _run(self, command: Sequence[str], failpoint: str) -> int:
        environment = {**os.environ, **environment_of(self._site.bucket), "ARCHIVER_FAILPOINT": failpoint}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode


SETTING: Final = ("positions.noted", "positions.sent", "positions.answered", "positions.read")
SETTING_BACK: Final = ("positions.sent", "positions.answered", "deletion.sent", "deletion.answered", "positions.read")


@pytest.mark.s3
@pytest.mark.timeout(240)
def test_killed_at_each_gap_the_same_command_goes_on(target: Target, site: ArchiveSite) -> None:
    """Partition 0 had a position before, and 1 had none: a rollback sets one, and deletes the other."""
    commit(target.broker, target.group, ClientPartition(target.topic, 0, 3))
    killed = Killed(target, site)
    for failpoint in SETTING:
        assert killed.apply(failpoint) == -9, failpoint
        assert target.offsets() in ({0: 3}, {0: 7, 1: 8})
        assert keys_in(site.bucket)  # noted first
        assert killed.apply() == 0
        assert target.offsets() == {0: 7, 1: 8}
        assert killed.roll_back() == 0
        assert target.offsets() == {0: 3}
    for failpoint in SETTING_BACK:
        assert killed.apply() == 0
        assert killed.roll_back(failpoint) == -9, failpoint
        assert killed.roll_back() == 0
        assert target.offsets() == {0: 3}


@pytest.mark.s3
@pytest.mark.timeout(120)
def test_killed_and_run_on_nobody_is_put_back(target: Target, site: ArchiveSite) -> None:
    killed = Killed(target, site)
    assert killed.apply("positions.answered") == -9
    commit(target.broker, target.group, ClientPartition(target.topic, 0, 11))
    assert killed.apply() == 3
    assert target.offsets() == {0: 11, 1: 8}
    assert killed.roll_back() == 3
    assert target.offsets() == {0: 11, 1: 8}
    commit(target.broker, target.group, ClientPartition(target.topic, 0, 7))
    assert killed.roll_back("deletion.answered") == -9
    commit(target.broker, target.group, ClientPartition(target.topic, 1, 12))
    assert killed.roll_back() == 3
    assert target.offsets() == {1: 12}


# --- the command


@pytest.mark.s3
def test_the_command_tells_each_position(target: Target, site: ArchiveSite, capsys: pytest.CaptureFixture[str]) -> None:
    killed = Killed(target, site)
    commit(target.broker, target.group, ClientPartition(target.topic, 0, 3))
    assert killed.apply() == 0

    def run(*options: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*killed.rollback, *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    code, out, _ = run("--dry-run")
    assert (code, target.offsets()) == (0, {0: 7, 1: 8})
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["group", "topic", "partition", "was", "set", "to", "back", "to", "now"]
    assert rows[1] == [target.group, target.topic, "0", "7", "3", "7", "would", "be", "set", "back"]
    assert rows[2] == [target.group, target.topic, "1", "8", "none", "8", "would", "be", "set", "back"]
    assert "nothing was changed" in out
    assert "(offsets.retention.minutes: 1w)" in out
    assert "consumers that were given their partitions (assign)" in out

    commit(target.broker, target.group, ClientPartition(target.topic, 1, 12))
    code, out, told = run("--format", "json", "--groups", f"{re.escape(target.group)}|x")
    assert (code, target.offsets()) == (3, {0: 7, 1: 12})
    found: dict[str, Any] = json.loads(out)
    (group,) = found["groups"]
    assert [one["outcome"] for one in group["positions"]] == ["the group has moved", "stands elsewhere"]
    assert group["positions"][0]["after"] == {"offset": 7, "metadata": ""}
    assert f"group {target.group}, left as it is: {target.topic}-1 (at 12): stands elsewhere" in told

    code, _, told = run("--groups", "x")
    assert (code, "no note below control/restores/r1/@groups/" in told) == (2, True)
