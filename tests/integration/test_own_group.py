"""Which consumer group an archive's backups share: never by accident one with another archive's."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Bucket, StartBroker
from tests.support.foreign_reader import read_partitions, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

PARTITIONS = 4


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


def fill(bootstrap: str, topic: str, text: str = "one") -> None:
    for partition in range(PARTITIONS):
        produce_values(bootstrap, topic, [f"{text} {number}".encode() for number in range(20)], partition)


def is_holding(instance: Instance, topic: str) -> float:
    return instance.value("archiver_partitions", topic=topic)


def committed(bootstrap: str, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until it has answered
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {row.partition: row.offset for row in asked[group].result(20).topic_partitions or []}


def test_two_archives_of_one_cluster_each_have_all_of_it(
    new_broker: StartBroker, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = new_broker().bootstrap
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


def test_a_group_that_was_this_archives_goes_on(
    new_broker: StartBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """As it was named before archives had groups of their own: rights and commits stay of use."""
    bootstrap = new_broker().bootstrap
    create_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, topic)
    with running(site, config_of(site, bootstrap, topic, "archiver")) as instance:
        until_archived(site, java_oracle, bootstrap, topic)
        eventually(lambda: len(committed(bootstrap, "archiver")) == PARTITIONS)
        assert instance.stop() == 0
    fill(bootstrap, topic, "two")
    with running(site, config_of(site, bootstrap, topic), "two") as instance:
        until_archived(site, java_oracle, bootstrap, topic)
        eventually(lambda: set(committed(bootstrap, "archiver").values()) == {40})
        assert "as a member of group archiver;" in instance.log
        assert instance.stop() == 0


def test_two_archives_that_shared_a_group_part(
    new_broker: StartBroker, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = new_broker().bootstrap
    create_topic(bootstrap, topic, PARTITIONS)
    both = (site, other_site)
    with (
        running(site, config_of(site, bootstrap, topic, "archiver")) as one,
        running(other_site, config_of(other_site, bootstrap, topic, "archiver")) as other,
    ):
        eventually(lambda: is_holding(one, topic) == is_holding(other, topic) == PARTITIONS / 2)
        fill(bootstrap, topic)
        eventually(lambda: len(committed(bootstrap, "archiver")) == PARTITIONS)
        assert one.stop() == 0
        other.kill()
    assert [len(read_partitions(archive.bucket, topic)) for archive in both] == [PARTITIONS / 2] * 2
    for archive in both:
        with running(archive, config_of(archive, bootstrap, topic), "alone") as instance:
            until_archived(archive, java_oracle, bootstrap, topic)
            assert "group archiver has commits of this archive and of another one" in instance.log
            assert instance.stop() == 0


def test_a_group_that_was_given_to_two_archives_is_told(
    new_broker: StartBroker, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = new_broker().bootstrap
    create_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, topic)
    for archive, name in ((site, "one"), (other_site, "other")):
        with running(archive, config_of(archive, bootstrap, topic, "shared"), name) as instance:
            until_archived(archive, java_oracle, bootstrap, topic)
            eventually(lambda: len(committed(bootstrap, "shared")) == PARTITIONS)
            assert ("Does another archive use the same backup.group?" in instance.log) == (archive is other_site)
            assert instance.stop() == 0
