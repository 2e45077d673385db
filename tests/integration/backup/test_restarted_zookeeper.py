"""A broker with ZooKeeper that was restarted: for a moment it lists no topics, and none of them is gone."""

from functools import partial

import pytest

from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, running, service_config
from tests.support.zookeeper import KAFKA_28, StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


def _has_archived(instance: Instance, records: int) -> bool:
    return instance.total("archiver_records_total") == records


def test_no_topic_is_gone_when_a_broker_was_restarted(
    new_zookeeper_broker: StartZooKeeperBroker, site: ArchiveSite, topic: str
) -> None:
    broker = new_zookeeper_broker(KAFKA_28)
    names = [f"{topic}-{number}" for number in range(4)]
    for name in names:
        create_topic(broker.bootstrap, name, 4, {"retention.ms": "-1"})
        produce_values(broker.bootstrap, name, [b"before"])
    config = service_config(site, broker.bootstrap, f"{topic}-.*", group=topic)
    config["topics"]["refresh"] = "500ms"
    with running(site, config) as instance:
        eventually(partial(_has_archived, instance, len(names)))
        for done in range(2, 4):
            broker.restart()
            for name in names:
                produce_values(broker.bootstrap, name, [b"after"])
            eventually(partial(_has_archived, instance, done * len(names)))
        assert "is gone" not in instance.log
        assert "deleted in Kafka" not in instance.log
        assert instance.stop() == 0
