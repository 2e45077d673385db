"""What an earlier run has noted as verified counts for what stands on the target now: the same cluster, and a log that has all of it."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.archive.format.fact_model import FactModel
from archiver.errors import TargetError
from archiver.restore.plan.claims import PartitionClaim
from archiver.restore.plan.request import Existing
from archiver.restore.targets.target_configs import TargetConfigs
from tests.conftest import kafka_jars
from tests.support.brokers import KAFKA_39, KAFKA_41, Broker, StartBroker
from tests.support.cluster import cut_log
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, recreate_topic, with_client
from tests.support.produce_doubles import Killed
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import (
    archived,
    configs_of,
    foreign_topic,
    log_of,
    on_target,
    records_of,
    restored,
    set_configs,
    until,
    write,
)
from tests.support.zookeeper import KAFKA_28, WITHOUT_TOPIC_IDS, StartZooKeeperBroker, ZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

# Brokers that soon have forgotten who wrote, and that compact at once.
FORGETFUL = {
    "producer.id.expiration.check.interval.ms": "100",
    "producer.id.expiration.ms": "100",
    "log.cleaner.backoff.ms": "100",
}


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
    write(other, f"{topic}.back", ours[0])  # as long, and the same if anybody read it: only the cluster tells
    for existing in (Existing.EMPTY, Existing.PURGE):
        with pytest.raises(TargetError, match=rf"target topic {topic}.back (is not empty|has no topic id)"):
            restored(site, other, topic, existing=existing, **ask)
    recreate_topic(other.bootstrap, f"{topic}.back")
    report = restored(site, other, topic, **ask)
    assert (report.errors, report.records, report.partitions[0].already_there) == ((), 60, 0)
    assert on_target(java_oracle, other, f"{topic}.back") == ours


def test_a_log_that_has_lost_what_was_verified(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the restore has finished, it fills it up again; a topic that lives again it leaves alone, and says so."""
    broker = shared_broker(KAFKA_41)
    ours = archived(broker, topic, site, records_of(60))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TargetConfigs, "set_archived", die)
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


GROWN_AGAIN: list[tuple[dict[str, Any], int, int]] = [
    ({}, 50, 100),
    ({}, 50, 130),
    ({"repartition": 1}, 50, 110),
    ({"existing": Existing.APPEND}, 30, 130),  # nothing of ours is left
]


@pytest.mark.parametrize(
    ("version", "end"), [pytest.param(KAFKA_39, "kill", marks=pytest.mark.long), (KAFKA_41, "stop")]
)
def test_a_log_that_was_cut_back_and_has_grown_again(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, version: str, end: str
) -> None:
    """It ends where what was verified ended, or behind that. A leader before 4.0 that is killed leads on in the same epoch."""
    broker = shared_broker(version)
    archived(broker, topic, site, records_of(100))
    targets = [f"{topic}.{number}" for number in range(len(GROWN_AGAIN))]
    foreign_topic(broker, targets[-1], 30)

    def restore_again() -> list[Any]:
        return [
            site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={target}"], batch_bytes=300, **asked).topics[
                0
            ]
            for target, (asked, _, _) in zip(targets, GROWN_AGAIN, strict=True)
        ]

    for _ in range(2):
        assert [(one.errors, one.records) for one in restore_again()] == [((), 100)] * len(targets)
    getattr(broker, end)()
    for target, (_, cut, _) in zip(targets, GROWN_AGAIN, strict=True):
        cut_log(broker, target, 0, cut)
    broker.start()
    for target, (_, cut, grown) in zip(targets, GROWN_AGAIN, strict=True):
        left = log_of(broker, target)[1]
        assert cut <= left < 60
        write(broker, target, records_of(grown, mark=b"other")[left:])
    there = [(on_target(java_oracle, broker, target), configs_of(broker, target)) for target in targets]
    for report in restore_again():
        (wrong,) = report.errors
        assert (wrong.exit_code, "someone else wrote to" in wrong.error) == (3, True), wrong.error
    assert [(on_target(java_oracle, broker, one), configs_of(broker, one)) for one in targets] == there


def test_what_was_filled_up_again_is_verified_only_when_it_is_whole(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of brokers that have forgotten who wrote: what would be sent again does not go behind strangers' records."""
    broker = shared_broker(**FORGETFUL)
    archived(broker, topic, site, records_of(60))

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TargetConfigs, "set_archived", die)
        with pytest.raises(Killed):
            restored(site, broker, topic, batch_bytes=300)
    broker.stop()
    cut_log(broker, f"{topic}.back", 0, 30)
    broker.start()
    write(broker, f"{topic}.back", records_of(5, mark=b"other"))
    until(lambda: with_client(broker.bootstrap, lambda client: client._producers(f"{topic}.back", 0)) == [])
    before = log_of(broker, f"{topic}.back")
    for _ in range(3):
        report = restored(site, broker, topic, batch_bytes=300)
        assert [one.exit_code for one in report.errors] == [3], report
    assert log_of(broker, f"{topic}.back") == before


def test_what_compaction_has_taken_is_no_loss(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the epoch of it was noted: earlier versions did not, and then the log is read."""
    broker = shared_broker(**FORGETFUL)
    archived(broker, topic, site, records_of(60, keys=3))
    back = f"{topic}.back"
    assert restored(site, broker, topic).errors == ()
    set_configs(broker, back, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="50")

    def is_compacted() -> bool:
        write(broker, back, records_of(3, mark=b"later", keys=3, first_ms=time.time_ns() // 1_000_000))
        values = [one.value or b"" for one in on_target(java_oracle, broker, back)[0]]
        return not any(value.startswith(b"ours") for value in values)

    until(is_compacted)
    report = restored(site, broker, topic)
    assert (report.errors, report.partitions[0].already_there) == ((), 60)
    read = FactModel.read

    def read_without_epoch(model: FactModel[Any], *args: Any) -> Any:  # noqa: ANN401
        found = read(model, *args)
        if not isinstance(found, PartitionClaim) or found.verified is None:
            return found
        return replace(found, verified=replace(found.verified, leader_epoch=-1))

    monkeypatch.setattr(FactModel, "read", read_without_epoch)
    (wrong,) = restored(site, broker, topic).errors
    assert (wrong.exit_code, "it was compacted since" in wrong.error) == (3, True), wrong.error


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
