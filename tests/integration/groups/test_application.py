"""Groups are set on real brokers, and set back: beside consumers that are there, that come meanwhile, and that have run on."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.groups.target.application import apply_positions, roll_back_positions
from archiver.groups.target.application_decisions import (
    ApplicationReport,
    GroupReport,
    PositionOutcome,
    WantedGroup,
    WantedPosition,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_positions import GroupPosition, Positions, positions_of
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import KAFKA_39, KAFKA_41, KAFKA_44, Broker, StartBroker
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.memory_store import MemoryStore

pytestmark = [pytest.mark.kafka]

BROKERS: Final = ["broker_39", "broker_41"]
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
            lambda client: apply_positions(
                client, self.archive, "r1", wanted, ignore, as_of_ms=None, is_dry_run=is_dry_run
            ),
        )

    def roll_back(self) -> ApplicationReport:
        return with_client(
            self.broker.bootstrap,
            lambda client: roll_back_positions(
                client, self.archive, "r1", re.compile(".*", re.DOTALL), ignore, is_dry_run=False
            ),
        )

    def positions(self, group: str | None = None) -> Positions:
        name = self.group if group is None else group
        return with_client(self.broker.bootstrap, lambda client: positions_of(client, name))

    def offsets(self, group: str | None = None) -> Mapping[int, int]:
        return {partition: one.offset for (_, partition), one in self.positions(group).items()}


@pytest.fixture
def target(request: pytest.FixtureRequest, topic: str) -> Target:
    """On the broker that the test is parametrized with, else on the newest."""
    return Target(request.getfixturevalue(getattr(request, "param", "broker_41")), topic)


def ignore(_text: str) -> None:
    """Take a report of progress."""


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
    names = ["a/../@+ \n\0ü", "x" * 20_000]
    for name in names:
        assert outcomes(target.apply(1, 2, 3, group=name), name) == {PositionOutcome.SET}
        assert target.offsets(name) == {0: 1, 1: 2, 2: 3}
    back = target.roll_back()
    for name in names:
        assert outcomes(back, name) == {PositionOutcome.SET}
        assert target.offsets(name) == {}
    assert back.exit_code == 0


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
        return await apply_positions(
            client, Archive(MemoryStore(), Layout()), "r1", wanted, ignore, as_of_ms=None, is_dry_run=False
        )

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
