"""Plain backups of topics of which instances keep copies: role logs and copies are written by the test."""

import asyncio
import json
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import yaml

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import (
    HISTORY,
    CompleteCopy,
    Generation,
    RoleLog,
    RolePlace,
    put_entry,
    read_newest_entry,
)
from archiver.archive.format.handle import Archive, open_archive
from archiver.config.model import ArchiverConfig
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.configs import topic_configs
from tests.support.brokers import Broker
from tests.support.copied_topic import copy_partition
from tests.support.foreign_reader import keys_in, read_partitions
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, producer_of, settings_of, with_client
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

COMPACTED = {"cleanup.policy": "compact"}


def config_of(site: ArchiveSite, bootstrap: str, topic: str, *, is_enabled: bool = True) -> dict[str, Any]:
    instances = {"enabled": is_enabled, "instances": ["a", "b"]}
    return {**service_config(site, bootstrap, topic, group=topic), "compacted": instances}


def archive_at(site: ArchiveSite) -> Archive:
    return open_archive(ArchiverConfig.model_validate(site.config("unused:1", ())).storage)


def switch_to_copy(site: ArchiveSite, topic: str, partition: int, end: int) -> None:
    """Have a copy read: of what is archived by now, up to where the log ends."""
    copy_partition(site.bucket, site.bucket, topic, partition, instance="a", generation=0)
    archive, place = archive_at(site), RolePlace(topic=topic, life=0, partition=partition)
    begun = entries.begin(None, 0, "a", has_history=True)
    copy = CompleteCopy(generation=Generation(instance="a", number=0), next=end, position=end, is_sure=True)
    put_entry(archive, place, 0, begun)
    put_entry(archive, place, 1, entries.switch(begun, 1, copy))


def newest_entry(site: ArchiveSite, topic: str, partition: int) -> RoleLog:
    found = read_newest_entry(archive_at(site), RolePlace(topic=topic, life=0, partition=partition))
    assert found is not None
    return found


def produce(bootstrap: str, topic: str, count: int, partition: int) -> None:
    """Each record has a key of its own: the cleaner takes none away."""
    producer = producer_of(bootstrap)
    for _ in range(count):
        producer.produce(topic, b"value", uuid.uuid4().bytes, partition=partition)
    assert producer.flush(30) == 0


def set_policy(bootstrap: str, topic: str, policy: str) -> None:
    """Returns when the broker tells it."""
    changed = KafkaAdmin(settings_of(bootstrap)).alter_configs_of_topics({topic: {"cleanup.policy": policy}})
    assert asyncio.run(changed) == {}
    ask = partial(topic_configs, name=topic)
    eventually(lambda: with_client(bootstrap, ask).effective["cleanup.policy"] == policy)


def records_in(site: ArchiveSite, topic: str) -> dict[int, int]:
    return {partition: len(records) for partition, records in read_partitions(site.bucket, topic).items()}


def back_up(site: ArchiveSite, bootstrap: str, topic: str, *, is_enabled: bool = True) -> Mapping[str, Any]:
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config_of(site, bootstrap, topic, is_enabled=is_enabled)))
    done = site.run("backup", "--until-end", "--format", "json")
    assert done.returncode == 0, done.stderr
    told: Mapping[str, Any] = json.loads(done.stdout)
    return told


def test_a_running_backup_leaves_what_is_copied_and_takes_it_back_when_compaction_ends(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 2, COMPACTED)
    for partition in range(2):
        produce(bootstrap, topic, 30, partition)
    with running(site, config_of(site, bootstrap, topic)) as instance:
        until_archived(site, java_oracle, bootstrap, topic)
        switch_to_copy(site, topic, 0, 30)
        eventually(lambda: instance.value("archiver_partitions_left", topic=topic) == 1)
        before = keys_in(site.bucket, f"topics/{topic}/partition=0/")
        produce(bootstrap, topic, 20, 0)
        produce(bootstrap, topic, 20, 1)
        eventually(lambda: records_in(site, topic)[1] == 50)
        assert keys_in(site.bucket, f"topics/{topic}/partition=0/") == before
        assert instance.value("archiver_partitions", topic=topic) == 2
        assert instance.total("archiver_partitions_failing") == 0
        assert instance.log.count("is left to the instances that keep copies") == 1
        assert newest_entry(site, topic, 0).number == 1

        set_policy(bootstrap, topic, "delete")
        eventually(lambda: newest_entry(site, topic, 0).entry.holder == HISTORY)
        until_archived(site, java_oracle, bootstrap, topic)
        assert newest_entry(site, topic, 0).number == 2
        assert instance.value("archiver_partitions_left", topic=topic) == 0
        assert "topics/ is read again, by entry 2" in instance.log
        produce(bootstrap, topic, 10, 0)
        until_archived(site, java_oracle, bootstrap, topic)
        assert instance.stop() == 0
    assert newest_entry(site, topic, 0).number == 2


def test_a_backup_up_to_the_end_leaves_what_is_copied_and_says_so(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 2, COMPACTED)
    for partition in range(2):
        produce(bootstrap, topic, 10, partition)
    back_up(site, bootstrap, topic)
    assert records_in(site, topic) == {0: 10, 1: 10}
    switch_to_copy(site, topic, 0, 10)
    for partition in range(2):
        produce(bootstrap, topic, 5, partition)
    told = back_up(site, bootstrap, topic)
    assert told["left_to_instances"] == [{"topic": topic, "partition": 0}]
    assert told["summary"]["partitions_left"] == 1
    assert [row["partition"] for row in told["partitions"]] == [1]
    assert records_in(site, topic) == {0: 10, 1: 15}
    lines = site.run("backup", "--until-end").stdout
    assert f"{topic}: partition 0 left to the instances that keep copies of compacted topics" in lines

    told = back_up(site, bootstrap, topic, is_enabled=False)
    assert (told["left_to_instances"], records_in(site, topic)) == ([], {0: 15, 1: 15})
    assert newest_entry(site, topic, 0).number == 1

    set_policy(bootstrap, topic, "delete")
    back_up(site, bootstrap, topic)
    newest = newest_entry(site, topic, 0)
    assert (newest.number, newest.entry.holder) == (2, HISTORY)
    until_archived(site, java_oracle, bootstrap, topic)
