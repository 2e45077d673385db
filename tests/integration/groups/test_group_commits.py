"""Positions set and deleted from outside, against real brokers: of groups without members, and refused where there is one."""

import asyncio

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_commits import GroupActiveError, commit_positions, delete_positions
from archiver.kafka.groups.group_positions import GroupPosition, Positions, positions_of
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic, settings_of
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka]


def set_positions(broker: Broker, group: str, positions: Positions) -> Positions:
    """Set them, and return what the brokers say then."""

    async def body() -> Positions:
        async with KafkaClient(settings_of(broker.bootstrap)) as client:
            await client.persist(lambda: commit_positions(client, group, positions))  # it does not repeat itself
            return await positions_of(client, group)

    return asyncio.run(body())


def test_positions_are_set_whole_and_deleted(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 3)
    wanted = {
        (topic, 0): GroupPosition(offset=0),
        (topic, 1): GroupPosition(offset=2**40, leader_epoch=7, metadata="ü\0 and a zero byte"),
        (topic, 2): GroupPosition(offset=5, metadata="x" * 4000),
    }
    group = f"{topic}-new"
    assert set_positions(broker, group, wanted) == wanted
    moved = {(topic, 2): GroupPosition(offset=3)}
    assert set_positions(broker, group, moved) == wanted | moved

    async def body() -> Positions:
        async with KafkaClient(settings_of(broker.bootstrap)) as client:
            await delete_positions(client, group, [(topic, 0), (topic, 1)])
            await delete_positions(client, f"{group}-that-never-was", [(topic, 0)])
            return await positions_of(client, group)

    assert asyncio.run(body()) == moved


def test_a_group_with_a_member_is_refused_whole(broker: Broker, topic: str) -> None:
    refuse_while_joined(broker, topic, "classic")


def test_a_group_of_the_new_protocol_with_a_member_is_refused_whole(broker_41: Broker, topic: str) -> None:
    refuse_while_joined(broker_41, topic, "consumer")


def refuse_while_joined(broker: Broker, topic: str, protocol: str) -> None:
    create_topic(broker.bootstrap, topic, 2)
    group = f"{topic}-{protocol}"
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), f"{group} was not let in")
        consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=False)
        with pytest.raises(GroupActiveError, match=f"group {group} has members"):
            set_positions(broker, group, {(topic, 0): GroupPosition(offset=9), (topic, 1): GroupPosition(offset=9)})
        held = asyncio.run(_positions(broker, group))
        assert held == {(topic, 0): held[topic, 0]}
        assert held[topic, 0].offset == 1
    finally:
        consumer.close()
    assert set_positions(broker, group, {(topic, 0): GroupPosition(offset=9)})[topic, 0].offset == 9


async def _positions(broker: Broker, group: str) -> Positions:
    async with KafkaClient(settings_of(broker.bootstrap)) as client:
        return await positions_of(client, group)


def test_a_topic_that_is_not_there_is_named(broker_41: Broker, topic: str) -> None:
    with pytest.raises(KafkaError, match=f"position of group g in {topic}-0 could not be set.*UNKNOWN_TOPIC"):
        set_positions(broker_41, "g", {(topic, 0): GroupPosition(offset=1)})
