"""What an earlier run has noted as verified counts for what stands on the target now: the same cluster, and a log that has all of it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.errors import TargetError
from archiver.spark.claim import RestoreNotes
from tests.conftest import kafka_jars
from tests.support.brokers import Broker, StartBroker
from tests.support.cluster import cut_log
from tests.support.deaths import Killed
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, recreate_topic
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import archived, configs_of, on_target, records_of, restored, write
from tests.support.zookeeper import KAFKA_28, WITHOUT_TOPIC_IDS, StartZooKeeperBroker, ZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

OLD_KEEP_ALL = {name: value for name, value in KEEP_ALL.items() if "timestamp" not in name}


@pytest.fixture(scope="module")
def without_ids() -> Iterator[ZooKeeperBroker]:
    jars = kafka_jars(KAFKA_28)
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder,
        ZooKeeperBroker(jars, Path(folder), properties=WITHOUT_TOPIC_IDS) as broker,
    ):
        yield broker


def lose_below(broker: Broker, topic: str, offset: int) -> None:
    """As retention does it."""
    where = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([where])[where].result(20)


def values(oracle: JavaOracle, broker: Broker, topic: str) -> list[bytes | None]:
    return sorted((one.value for rows in on_target(oracle, broker, topic).values() for one in rows), key=repr)


@pytest.mark.parametrize("asked", [{}, {"repartition": 3}], ids=["plain", "repartition"])
def test_a_topic_without_id_that_was_made_again_is_filled_again(
    without_ids: ZooKeeperBroker,
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    asked: dict[str, int],
) -> None:
    """Empty, it has nothing of what was noted as verified; its configs are those that were archived in the end."""
    ours = archived(broker_41, topic, site, records_of(60), records_of(20), compression_type="lz4")
    wanted = sorted((one.value for rows in ours.values() for one in rows), key=repr)
    for _ in range(2):
        assert restored(site, without_ids, topic, **asked).errors == ()
        partitions = asked.get("repartition", 2)
        recreate_topic(without_ids.bootstrap, f"{topic}.back", partitions, {"retention.ms": "3600000"})
    report = restored(site, without_ids, topic, **asked)
    assert (report.errors, report.is_finished, report.records) == ((), True, 80)
    assert values(java_oracle, without_ids, f"{topic}.back") == wanted
    assert configs_of(without_ids, f"{topic}.back")["compression.type"] == "lz4"
    assert "segment.ms" not in configs_of(without_ids, f"{topic}.back")


@pytest.mark.parametrize("asked", [{}, {"repartition": 1}], ids=["plain", "repartition"])
def test_a_topic_without_id_is_read_back_again(
    without_ids: ZooKeeperBroker,
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    asked: dict[str, int],
) -> None:
    """As long as what was restored, or longer, and somebody else's: it stays as it is, and nobody says that it is verified."""
    archived(broker_41, topic, site, records_of(60))
    assert restored(site, without_ids, topic, **asked).errors == ()
    write(without_ids, f"{topic}.back", records_of(65)[60:])
    assert restored(site, without_ids, topic, **asked).errors == ()  # it goes on living
    theirs = {"cleanup.policy": "compact"}
    for count in (70, 30):
        recreate_topic(without_ids.bootstrap, f"{topic}.back", 1, theirs)
        write(without_ids, f"{topic}.back", records_of(count, mark=b"theirs"))
        if count == 70:
            report = restored(site, without_ids, topic, **asked)
            assert [one.exit_code for one in report.errors] == [3], report
        else:
            with pytest.raises(TargetError, match="has no topic id, and is not the one that this restore has begun"):
                restored(site, without_ids, topic, **asked)
        assert len(on_target(java_oracle, without_ids, f"{topic}.back")[0]) == count
        assert configs_of(without_ids, f"{topic}.back") == theirs


def test_what_was_verified_on_another_cluster_is_not_on_this_one(
    without_ids: ZooKeeperBroker,
    new_zookeeper_broker: StartZooKeeperBroker,
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
) -> None:
    """Under one --id, and where no topic has an id."""
    ours = archived(broker_41, topic, site, records_of(60))
    other = new_zookeeper_broker(**WITHOUT_TOPIC_IDS)
    ask: dict[str, Any] = {"restore_id": "mine"}
    assert restored(site, without_ids, topic, **ask).errors == ()
    create_topic(other.bootstrap, f"{topic}.back")
    report = restored(site, other, topic, **ask)
    assert (report.errors, report.records, report.partitions[0].already_there) == ((), 60, 0)
    assert on_target(java_oracle, other, f"{topic}.back") == ours


def test_a_log_that_has_lost_what_was_verified(
    new_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the restore has finished, it fills it up again; a topic that lives again it leaves alone, and says so."""
    broker = new_broker()
    ours = archived(broker, topic, site, records_of(60))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RestoreNotes, "note_finished", die)
        with pytest.raises(Killed):
            restored(site, broker, topic, batch_bytes=300)
    broker.stop()
    cut_log(broker, f"{topic}.back", 0, 30)
    broker.start()
    report = restored(site, broker, topic, batch_bytes=300)
    assert (report.errors, 0 < report.partitions[0].already_there < 60) == ((), True)
    assert on_target(java_oracle, broker, f"{topic}.back") == ours
    before = configs_of(broker, f"{topic}.back")
    broker.stop()
    cut_log(broker, f"{topic}.back", 0, 30)
    broker.start()
    with pytest.raises(TargetError, match=rf"{topic}.back was restored and finished, with partition 0 up to offset 60"):
        restored(site, broker, topic, batch_bytes=300)
    assert configs_of(broker, f"{topic}.back") == before
    assert len(on_target(java_oracle, broker, f"{topic}.back")[0]) < 60


@pytest.mark.parametrize("asked", [{}, {"repartition": 1}], ids=["plain", "repartition"])
def test_what_has_expired_since_is_told(
    broker_41: Broker, topic: str, site: ArchiveSite, asked: dict[str, int]
) -> None:
    archived(broker_41, topic, site, records_of(60))
    assert restored(site, broker_41, topic, **asked).errors == ()
    lose_below(broker_41, f"{topic}.back", 25)
    report = restored(site, broker_41, topic, **asked)
    (one,) = report.target_partitions if asked else report.partitions
    assert (report.errors, one.records, one.expired) == ((), 60, 25)
