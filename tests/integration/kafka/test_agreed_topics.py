"""Whether a topic is gone, by the word of real brokers."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.upkeep.retention.planning.cluster import LiveCluster, ask_cluster
from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_41, Broker
from tests.support.kafka_topics import create_topic, delete_topic, recreate_topic, with_client
from tests.support.secure_broker import PASSWORD, USER, Certificates, SecureBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def asked(bootstrap: str, *names: str) -> LiveCluster:
    return with_client(bootstrap, lambda client: ask_cluster(client, names))


def test_a_topic_that_was_deleted_is_absent_and_one_that_was_created_again_has_another_id(
    broker: Broker, topic: str
) -> None:
    other = f"{topic}.other"
    create_topic(broker.bootstrap, topic)
    create_topic(broker.bootstrap, other)
    first = asked(broker.bootstrap, topic, other)
    assert first.absent == frozenset()
    assert [one.is_agreed for one in first.topics.values()] == [True, True]
    delete_topic(broker.bootstrap, other)
    recreate_topic(broker.bootstrap, topic)
    second = asked(broker.bootstrap, topic, other)
    assert second.absent == {other}
    assert second.topics[topic].is_agreed
    assert second.topics[topic].topic_id != first.topics[topic].topic_id


def test_a_topic_that_this_user_may_not_see_is_not_taken_for_gone(tmp_path: Path) -> None:
    """Neither one that is there nor one that is not: an authorizer says the same of both."""
    with SecureBroker(kafka_jars(KAFKA_41), tmp_path / "broker", Certificates.make(tmp_path / "keys")) as broker:
        create_topic(broker.bootstrap, "there")
        settings = KafkaSettings.parse(
            {
                "bootstrap.servers": broker.address("SASL"),
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        )

        async def ask() -> LiveCluster:
            async with KafkaClient(settings) as client:
                return await ask_cluster(client, ["there", "never"])

        broker.grant((ResourceType.TOPIC, "other", AclOperation.DESCRIBE))
        hidden = asyncio.run(ask())
        assert (hidden.absent, sorted(hidden.untold), hidden.topics) == (frozenset(), ["never", "there"], {})
        rights = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        broker.grant(*((ResourceType.TOPIC, name, right) for name in ("there", "never") for right in rights))
        shown = asyncio.run(ask())
        assert (shown.absent, dict(shown.untold), list(shown.topics)) == (frozenset({"never"}), {}, ["there"])
