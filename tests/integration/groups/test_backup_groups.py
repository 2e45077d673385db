"""Which consumer group an archive's backups share: never by accident one with another archive's."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Bucket, StartBroker
from tests.support.foreign_reader import s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

PARTITIONS = 4


@pytest.fixture
def bootstrap(shared_broker: StartBroker) -> Iterator[str]:
    """Of a broker on which no group has commits."""
    broker = shared_broker()
    yield broker.bootstrap
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def are_deleted() -> bool:
        """Those of members that were killed cannot be, until they are missed."""
        groups = [one.group_id for one in admin.list_consumer_groups().result(20).valid]
        with suppress(KafkaException):
            for deleted in admin.delete_consumer_groups(groups).values() if groups else ():
                deleted.result(20)
        return not groups

    eventually(are_deleted)


@pytest.fixture
def other_site(site: ArchiveSite, tmp_path: Path) -> ArchiveSite:
    """Another archive, of the same cluster."""
    bucket = Bucket(site.bucket.s3, f"{site.bucket.name}-other")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    (tmp_path / "other").mkdir()
    return ArchiveSite(bucket, tmp_path / "other")


def config_of(site: ArchiveSite, bootstrap: str, topic: str, group: str | None = None) -> dict[str, Any]:
    config = service_config(site, bootstrap, topic)
    return config if group is None else {**config, "backup": {**config["backup"], "group": group}}


def fill(bootstrap: str, topic: str, text: str = "one", partitions: int = PARTITIONS) -> None:
    for partition in range(partitions):
        produce_values(bootstrap, topic, [f"{text} {number}".encode() for number in range(20)], partition)


def is_holding(instance: Instance, topic: str) -> float:
    return instance.value("archiver_partitions", topic=topic)


def commits(bootstrap: str, group: str) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until it has answered
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return asked[group].result(20).topic_partitions or []


def committed(bootstrap: str, group: str) -> dict[int, int]:
    return {row.partition: row.offset for row in commits(bootstrap, group)}


def test_two_archives_of_one_cluster_each_have_all_of_it(
    bootstrap: str, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    create_topic(bootstrap, topic, PARTITIONS)
    with (
        running(site, config_of(site, bootstrap, topic)) as one,
        running(other_site, config_of(other_site, bootstrap, topic)) as other,
    ):
        for instance in (one, other):
            eventually(lambda: is_holding(instance, topic) >= 1)  # noqa: B023
        fill(bootstrap, topic)
        for archive in (site, other_site):
            until_archived(archive, java_oracle, bootstrap, topic)
        assert is_holding(one, topic) == is_holding(other, topic) == PARTITIONS
        assert one.stop() == other.stop() == 0


def test_a_group_that_was_given_to_two_archives_is_told(
    bootstrap: str, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """Of so many partitions that topics are listed whole."""
    partitions = 40
    create_topic(bootstrap, topic, partitions)
    fill(bootstrap, topic, partitions=partitions)
    for archive, name in ((site, "one"), (other_site, "other")):
        with running(archive, config_of(archive, bootstrap, topic, "shared"), name) as instance:
            until_archived(archive, java_oracle, bootstrap, topic)
            eventually(lambda: len(committed(bootstrap, "shared")) == partitions)
            told = f"group shared: another archive has committed the positions of {partitions} partitions"
            assert (told in instance.log) == (archive is other_site)
            assert instance.stop() == 0
