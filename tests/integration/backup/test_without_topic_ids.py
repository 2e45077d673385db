"""Brokers that give topics no ids: backups refuse such topics, and wait for an id that a topic had. Nothing is purged there."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from archiver.errors import TargetError
from archiver.restore.plan.request import Existing
from tests.conftest import kafka_jars
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, read_partitions, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.records import Rec
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, service_config, until_archived
from tests.support.target_topics import archived, configs_of, log_of, records_of, restored, write
from tests.support.zookeeper import KAFKA_28, WITHOUT_TOPIC_IDS, ZooKeeperBroker

pytestmark = [pytest.mark.installed, pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

WITH_TOPIC_IDS = {"inter.broker.protocol.version": "2.8"}
REFUSED = (
    "has no topic id, so it cannot be archived: raise inter.broker.protocol.version to 2.8 or later on all brokers"
)


@pytest.fixture(scope="module")
def upgraded() -> Iterator[ZooKeeperBroker]:
    """For tests that change its protocol."""
    jars = kafka_jars(KAFKA_28)
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        broker = ZooKeeperBroker(jars, Path(folder))
        yield broker
        broker.stop()


def speak(broker: ZooKeeperBroker, protocol: Mapping[str, str]) -> None:
    """From now on it speaks this one."""
    if not broker.running or protocol.items() - broker.properties.items():
        broker.stop()
        broker.properties.update(protocol)
        broker.start()


def back_up(site: ArchiveSite, exit_code: int = 0, **environment: str) -> str:
    """Back up to what is committed at the start, as archive.yaml says. Returns what the command printed."""
    process = site.command("backup", "--until-end", **environment)
    said = "".join(process.communicate(timeout=120))
    assert process.returncode == exit_code, said
    return said


def produce(bootstrap: str, topic: str, text: str, count: int = 20) -> None:
    produce_values(bootstrap, topic, [f"{text} {number}".encode() for number in range(count)], 0)


def consumed(oracle: JavaOracle, bootstrap: str, topic: str) -> dict[int, list[Rec]]:
    return {number: records for number, records in oracle.consume(bootstrap, topic).records.items() if records}


def known_lives(site: ArchiveSite, topic: str) -> list[tuple[bool, int | None]]:
    """Return of each life whether it has a topic id, and its parent, as the newest control fact has them."""
    key = keys_in(site.bucket, f"control/topics/{topic}/")[-1]
    content = s3_client(site.bucket).get_object(Bucket=site.bucket.name, Key=key)["Body"].read()
    return [(bool(life["topic_id"]), life["parent"]) for life in json.loads(content)["lives"]]


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(one.topic, one.partition): one.offset for one in done.result(20).topic_partitions}


# --- a topic that never had an id


def test_it_is_archived_from_its_beginning_once_the_brokers_give_ids(
    upgraded: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    speak(upgraded, WITHOUT_TOPIC_IDS)
    site.write_config(upgraded.bootstrap, topic)
    create_topic(upgraded.bootstrap, topic)
    produce(upgraded.bootstrap, topic, "first")
    assert f"topic {topic} {REFUSED}" in back_up(site, exit_code=1)
    speak(upgraded, WITH_TOPIC_IDS)
    produce(upgraded.bootstrap, topic, "second")
    back_up(site)
    assert read_partitions(site.bucket, topic) == consumed(java_oracle, upgraded.bootstrap, topic)
    assert known_lives(site, topic) == [(True, None)]


# --- a topic that had an id


def test_a_topic_waits_while_its_id_is_missing(
    upgraded: ZooKeeperBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, soon_lasting: str
) -> None:
    """The brokers' protocol is set back and raised again under a running backup, and between backups up to the end."""
    speak(upgraded, WITH_TOPIC_IDS)
    bootstrap, other, group = upgraded.bootstrap, f"{topic}-other", f"{topic}-group"
    for name in (topic, other):
        create_topic(bootstrap, name)
        produce(bootstrap, name, "first")
    site.write_config(bootstrap, other)
    back_up(site)
    with running(site, service_config(site, bootstrap, topic, group=group), PYTHONPATH=soon_lasting) as found:
        until_archived(site, java_oracle, bootstrap, topic)
        eventually(lambda: committed(bootstrap, group) == {(topic, 0): 20})
        speak(upgraded, WITHOUT_TOPIC_IDS)
        before = keys_in(site.bucket, "")
        for name in (topic, other):
            produce(bootstrap, name, "second")
        waits = "had a topic id and brokers report none now, so its backup waits"
        eventually(lambda: f"topic {topic} {waits}" in found.log)
        eventually(lambda: found.value("archiver_partitions_failing", topic=topic) == 1)
        assert f"topic {other} {waits}" in back_up(site, exit_code=4, PYTHONPATH=soon_lasting)
        news = [key for key in keys_in(site.bucket, "") if key not in before]
        left = ("control/index/", "control/cluster-metadata/", "control/runs/")
        assert [key for key in news if not key.startswith(left)] == []
        assert committed(bootstrap, group) == {(topic, 0): 20}
        speak(upgraded, WITH_TOPIC_IDS)
        for name in (topic, other):
            produce(bootstrap, name, "third")
        until_archived(site, java_oracle, bootstrap, topic)
        eventually(lambda: found.value("archiver_partitions_failing", topic=topic) == 0)
        assert found.total("archiver_branches_total") == 0
        assert found.stop() == 0
    back_up(site)
    for name in (topic, other):
        assert read_partitions(site.bucket, name) == consumed(java_oracle, bootstrap, name)
        assert known_lives(site, name) == [(True, None)]


# --- a target without an id


def test_a_topic_without_id_is_not_purged(
    upgraded: ZooKeeperBroker, broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    """Deletion goes by ids: what has none may be another topic by then."""
    speak(upgraded, WITHOUT_TOPIC_IDS)
    archived(broker_41, topic, site, records_of(20))
    create_topic(upgraded.bootstrap, f"{topic}.back", 1, {"retention.ms": "-1"})
    write(upgraded, f"{topic}.back", records_of(7, mark=b"theirs"))
    own = configs_of(upgraded, f"{topic}.back")
    for unread in (False, True):
        with pytest.raises(TargetError, match=rf"{topic}.back has no topic id, and is not purged; delete it"):
            restored(site, upgraded, topic, existing=Existing.PURGE, purges_unread=unread)
    assert log_of(upgraded, f"{topic}.back") == (0, 7)
    assert configs_of(upgraded, f"{topic}.back") == own
