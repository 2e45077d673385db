"""Topics and configs against real brokers; what the client says about topics."""

import asyncio
import subprocess

import pytest

from archiver.demo.sandbox import fetch_kafka
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.admin import KafkaAdmin, ToCreate
from archiver.kafka.topics.configs import topic_configs, topic_configs_each, wait_until_changed
from archiver.kafka.topics.deletion import delete_topics_by_id
from tests.support.brokers import CACHE, KAFKA_41, Broker, StartBroker
from tests.support.kafka_topics import create_topic, settings_of, with_client

pytestmark = pytest.mark.kafka


def test_configs_are_set_and_taken_back(broker: Broker, topic: str) -> None:
    async def body(client: KafkaClient) -> None:
        admin = KafkaAdmin(client.settings)
        created = {"retention.ms": "-1", "cleanup.policy": "delete"}  # the second is the default, and yet set
        await admin.create_topic(topic, partitions=2, replication_factor=1, configs=created)
        assert (await topic_configs(client, topic)).own == created
        changes = {"max.message.bytes": "2000000", "retention.ms": "1000"}
        await admin.alter_topic_configs(topic, set_to=changes, delete=["cleanup.policy"])
        found = await topic_configs(client, topic)
        for _ in range(200):  # the controller has agreed; the broker hears of it a little later
            if found.own != created:
                break
            await asyncio.sleep(0.05)
            found = await topic_configs(client, topic)
        assert found.own == changes
        assert changes.items() <= found.effective.items()
        assert found.effective["cleanup.policy"] == "delete"
        assert found.effective["leader.replication.throttled.replicas"] == ""

    with_client(broker.bootstrap, body)


def test_a_quota_of_changes_holds_up_nothing_else(new_broker: StartBroker, topic: str) -> None:
    """Brokers create what is too much, and then do not read from that connection for minutes."""
    broker = new_broker()
    quota = (
        f"--bootstrap-server {broker.bootstrap} --alter --add-config controller_mutation_rate=1 --entity-type clients"
    )
    java = ["java", "-cp", f"{fetch_kafka(KAFKA_41, CACHE)}/*", "kafka.admin.ConfigCommand", *quota.split()]
    subprocess.run([*java, "--entity-default"], capture_output=True, timeout=45, check=True)
    admin = KafkaAdmin(settings_of(broker.bootstrap, socket_timeout_ms=5000))
    for portion in range(2):
        topics = {f"{topic}.{portion}.{number}": ToCreate(4) for number in range(20)}
        assert asyncio.run(admin.refused_topics(topics)) == {}
        assert asyncio.run(admin.create_topics(topics)) == {}
        assert asyncio.run(admin.alter_configs_of_topics({name: {"retention.ms": "-1"} for name in topics})) == {}


def test_changes_of_configs_are_waited_for(broker: Broker, topic: str) -> None:
    async def body(client: KafkaClient) -> None:
        admin = KafkaAdmin(client.settings)
        await admin.create_topic(topic, replication_factor=1, configs={"retention.ms": "-1", "segment.ms": "5000"})
        nodes = {topic: {1}}

        async def change_later(**changes: str) -> None:
            await asyncio.sleep(0.3)
            set_to = {name.replace("_", "."): value for name, value in changes.items()}
            await admin.alter_topic_configs(topic, set_to=set_to, delete=["segment.ms"])

        later = asyncio.create_task(change_later(retention_ms="1000"))
        await wait_until_changed(client, {topic: {"retention.ms": "1000", "segment.ms": None}}, nodes)
        assert (await topic_configs(client, topic)).own == {"retention.ms": "1000"}
        await later
        await wait_until_changed(client, {topic: {}}, nodes)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await wait_until_changed(client, {topic: {"retention.ms": "7"}}, nodes)

    with_client(broker.bootstrap, body)


def test_a_topic_is_deleted_by_its_id_and_no_other_of_its_name(broker: Broker, topic: str) -> None:
    async def body(client: KafkaClient) -> None:
        admin = KafkaAdmin(client.settings)
        ids: list[str] = []
        for _ in range(2):
            await admin.create_topic(topic, replication_factor=1)
            ids.append((await client.describe_topics([topic]))[topic].topic_id)
            await delete_topics_by_id(client, {topic: ids[0]})  # the second time it is gone already
        assert (await client.describe_topics([topic]))[topic].topic_id == ids[1] != ids[0]
        await delete_topics_by_id(client, {})

    with_client(broker.bootstrap, body)


def test_a_topic_comes_and_goes(broker: Broker, topic: str) -> None:
    async def body(client: KafkaClient) -> None:
        admin = KafkaAdmin(client.settings)
        await admin.create_topic(topic, partitions=3, replication_factor=1)
        found = (await client.describe_topics([topic, "absent"])).pop(topic)
        assert found.partitions == (0, 1, 2)
        assert found.leaders == {0: 1, 1: 1, 2: 1}
        assert len(found.topic_id) == 22
        assert not found.is_internal
        assert topic in await client.describe_topics(None)
        with pytest.raises(KafkaError, match=r"TOPIC_ALREADY_EXISTS"):
            await admin.create_topic(topic, partitions=3, replication_factor=1)
        await admin.delete_topic(topic)
        assert await client.describe_topics([topic]) == {}
        with pytest.raises(KafkaError, match=r"UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.delete_topic(topic)

    with_client(broker.bootstrap, body)


def test_refusals_name_the_topic_and_the_reason(broker: Broker, topic: str) -> None:
    async def body(client: KafkaClient) -> None:
        admin = KafkaAdmin(client.settings)
        with pytest.raises(KafkaError, match=rf"{topic}.*INVALID_CONFIG.*no\.such\.config"):
            await admin.create_topic(topic, configs={"no.such.config": "1"})
        with pytest.raises(KafkaError, match=rf"{topic}.*INVALID_REPLICATION_FACTOR"):
            await admin.create_topic(topic, replication_factor=3)
        with pytest.raises(KafkaError, match=rf"{topic}.*UNKNOWN_TOPIC_OR_PARTITION"):
            await topic_configs(client, topic)
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        found, refused = await topic_configs_each(client, [topic, "absent"])
        assert (set(found), set(refused)) == ({topic}, {"absent"})

    with_client(broker.bootstrap, body)


def test_an_absent_topic_is_final_after_some_patience(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def body() -> None:
        async with KafkaClient(settings_of(broker.bootstrap), sleep=sleep) as client:
            with pytest.raises(KafkaError, match=f"topic {topic}-absent does not exist"):
                await client.offsets([(topic, 0), (topic + "-absent", 0)])
            assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6]
            with pytest.raises(KafkaError, match=f"topic {topic} has 1 partition, and no 5"):
                await client.leader(topic, 5)
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
                await client.describe_topics(["not/legal"])

    asyncio.run(body())


def test_admin_without_a_broker_is_temporary() -> None:
    async def body() -> None:
        admin = KafkaAdmin(settings_of("127.0.0.1:1", socket_timeout_ms=500))
        await admin.create_topic("anything")

    with pytest.raises(KafkaTemporaryError, match=r"anything.*bootstrap\.servers"):
        asyncio.run(body())
