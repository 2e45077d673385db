"""Instances at a broker that gives topics no ids: compacted topics stay with the plain backup."""

import time

import pytest

from tests.support.foreign_reader import keys_in
from tests.support.instances import compacted_config, instance, write
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, until_archived
from tests.support.zookeeper import WITHOUT_TOPIC_IDS, StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


def test_it_is_told_once_and_the_backup_takes_the_topic(
    new_zookeeper_broker: StartZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = new_zookeeper_broker(**WITHOUT_TOPIC_IDS).bootstrap
    create_topic(bootstrap, topic, 1, {"cleanup.policy": "compact"})
    write(bootstrap, topic, {f"k{number}": "some" for number in range(20)})
    config = compacted_config(site, bootstrap, topic)  # topics are looked for every second
    told = "is compacted, and has no topic id"
    with instance(site, config, "a", "--initial-role", "active") as found, running(site, config):
        until_archived(site, java_oracle, bootstrap, topic)
        eventually(lambda: told in found.log)
        time.sleep(4)
        assert found.log.count(told) == 1
        assert found.process.poll() is None
    assert not keys_in(site.bucket, "compacted/")
    assert not keys_in(site.bucket, "control/roles/")
