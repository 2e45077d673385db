"""Which consumer group an archive's backups share: never by accident one with another archive's."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Bucket, StartBroker
from tests.support.foreign_reader import keys_in, read_partitions, s3_client
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


def take_back_marks(bootstrap: str, group: str) -> None:
    """As commits were before they told whose they are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rows = [
        TopicPartition(row.topic, row.partition, row.offset, metadata=(row.metadata or "").partition(" ")[0])
        for row in commits(bootstrap, group)
    ]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, rows)])[group].result(20)


def assert_each_has_all(
    bootstrap: str, topic: str, java_oracle: JavaOracle, sites: Sequence[ArchiveSite], instances: Sequence[Instance]
) -> None:
    """Neither has only a share: both are given every partition, in groups that are not the same."""
    for instance in instances:
        eventually(lambda: is_holding(instance, topic) == PARTITIONS)  # noqa: B023
    fill(bootstrap, topic, "later")
    for archive in sites:
        until_archived(archive, java_oracle, bootstrap, topic)
    groups = {
        line.partition("as a member of group ")[2].partition(";")[0]
        for one in instances
        for line in one.log.splitlines()
        if "as a member of" in line
    }
    assert len(groups) == len(instances)
    for instance in instances:
        assert instance.stop() == 0


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


def test_a_group_that_was_this_archives_goes_on(
    bootstrap: str, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """As it was named before archives had groups of their own: rights and commits stay of use."""
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
    bootstrap: str, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
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
    take_back_marks(bootstrap, "archiver")
    with (
        running(site, config_of(site, bootstrap, topic), "one again") as one,
        running(other_site, config_of(other_site, bootstrap, topic), "other again") as other,
    ):
        assert_each_has_all(bootstrap, topic, java_oracle, both, (one, other))
        for instance in (one, other):
            assert "group archiver has commits of this archive, and some that name objects" in instance.log


def test_a_copy_of_an_archive_has_a_group_of_its_own(
    bootstrap: str, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """It has every object that was committed. The archive that it is a copy of keeps the group, and says whose its commits are."""
    create_topic(bootstrap, topic, PARTITIONS)
    fill(bootstrap, topic)
    with running(site, config_of(site, bootstrap, topic, "archiver")) as instance:
        until_archived(site, java_oracle, bootstrap, topic)
        eventually(lambda: len(committed(bootstrap, "archiver")) == PARTITIONS)
        assert instance.stop() == 0
    take_back_marks(bootstrap, "archiver")
    with running(site, config_of(site, bootstrap, topic), "one") as one:
        eventually(lambda: all(" archive=" in (row.metadata or "") for row in commits(bootstrap, "archiver")))
        copy_objects(site.bucket, other_site.bucket)
        with running(other_site, config_of(other_site, bootstrap, topic), "copy") as copy:
            eventually(lambda: "as a member of group archiver;" in one.log)
            assert_each_has_all(bootstrap, topic, java_oracle, (site, other_site), (one, copy))


def copy_objects(source: Bucket, target: Bucket) -> None:
    client = s3_client(source)
    for key in keys_in(source, ""):
        client.copy_object(Bucket=target.name, Key=key, CopySource={"Bucket": source.name, "Key": key})


def test_commits_for_topics_that_are_left_out_are_nobody_elses(
    bootstrap: str, site: ArchiveSite, other_site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """An archive was begun again, with fewer topics, and the group kept."""
    idle = f"{topic}-idle"
    for name in (topic, idle):
        create_topic(bootstrap, name, PARTITIONS)
        fill(bootstrap, name)
    for archive, include in ((other_site, f"{topic}.*"), (site, topic)):
        with running(archive, config_of(archive, bootstrap, include, "archiver"), "before") as instance:
            until_archived(archive, java_oracle, bootstrap, topic)
            eventually(lambda: len(commits(bootstrap, "archiver")) == 2 * PARTITIONS)
            assert instance.stop() == 0
    take_back_marks(bootstrap, "archiver")
    with running(site, config_of(site, bootstrap, topic), "now") as instance:
        eventually(lambda: "as a member of group archiver;" in instance.log)
        assert instance.stop() == 0


@pytest.mark.parametrize("partitions", [PARTITIONS, 40], ids=["few", "so many that topics are listed whole"])
def test_a_group_that_was_given_to_two_archives_is_told(
    bootstrap: str,
    site: ArchiveSite,
    other_site: ArchiveSite,
    topic: str,
    java_oracle: JavaOracle,
    partitions: int,
) -> None:
    create_topic(bootstrap, topic, partitions)
    fill(bootstrap, topic, partitions=partitions)
    for archive, name in ((site, "one"), (other_site, "other")):
        with running(archive, config_of(archive, bootstrap, topic, "shared"), name) as instance:
            until_archived(archive, java_oracle, bootstrap, topic)
            eventually(lambda: len(committed(bootstrap, "shared")) == partitions)
            told = f"group shared: another archive has committed the positions of {partitions} partitions"
            assert (told in instance.log) == (archive is other_site)
            assert instance.stop() == 0
