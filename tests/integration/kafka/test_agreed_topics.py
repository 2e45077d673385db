"""Whether a topic is gone, by the word of real brokers."""

from pathlib import Path

import pytest

from archiver.kafka.agreed_topics import agreed_topics
from archiver.kafka.client import KafkaClient
from archiver.upkeep.retention.cluster import LiveCluster, ask_cluster
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic, delete_topic, recreate_topic, with_client
from tests.support.service import eventually
from tests.support.split_cluster import FOLLOWER, LEADER, leader_and_follower

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


async def agreed(client: KafkaClient, *names: str) -> dict[str, str | None]:
    return await agreed_topics(client, names, await client.cluster_id())


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


def test_a_broker_that_does_not_answer_may_know_better(tmp_path: Path) -> None:
    """As long as the others take it for up; from then on it is no broker of the cluster."""
    with leader_and_follower(tmp_path) as (pair, _):
        leader = pair.nodes[LEADER].bootstrap
        create_topic(leader, "there")
        whole = with_client(leader, lambda client: agreed(client, "there", "never"))
        assert whole.keys() == {"there", "never"}
        assert whole["never"] is None
        pair.nodes[FOLLOWER].kill()
        assert with_client(leader, lambda client: agreed(client, "there", "never")) == {}
        eventually(lambda: with_client(leader, lambda client: agreed(client, "there", "never")) == whole)
