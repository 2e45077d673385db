"""Topics that are created again and logs that lose records, while a backup runs: nothing archived is touched, and all is read back."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.restore.plan.request import RestoreRequest
from archiver.spark.restore import run_restore_job
from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.chaos.broken import Change, make_overlay
from tests.support.cluster import BrokerCluster, broker_cluster, cut_log
from tests.support.foreign_reader import keys_in, read_partitions, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, delete_topic, produce_values
from tests.support.processes import standing_still
from tests.support.records import Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import Instance, eventually, running, service_config, until_archived
from tests.support.zookeeper import StartZooKeeperBroker

pytestmark = [pytest.mark.installed, pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

# Every broker is asked by name, as one of before Kafka 3.1 is: nothing but the name tells it what is meant.
BY_NAME = Change(
    "kafka/records/fetch.py", "BY_TOPIC_ID if all(target.topic_id for target in targets) else BY_NAME", "BY_NAME"
)

FOR_EVER = {"retention.ms": "-1"}


def config_of(site: ArchiveSite, bootstrap: str, topic: str, **backup: object) -> dict[str, Any]:
    return service_config(site, bootstrap, topic, **{"group": topic, **backup})


def values(count: int, text: str) -> list[bytes]:
    return [f"{text} {number}".encode() for number in range(count)]


def produce(bootstrap: str, topic: str, count: int, text: str, partition: int = 0) -> None:
    """Ten records a batch: places to cut at."""
    produce_values(bootstrap, topic, values(count, text), partition, batch_num_messages=10, linger_ms=200)


def restored(
    site: ArchiveSite, oracle: JavaOracle, bootstrap: str, topic: str, target: str, life: int | None = None
) -> dict[int, list[Rec]]:
    config = ArchiverConfig.model_validate(site.config(bootstrap, ()))
    run_restore_job(
        config.storage,
        TargetConfig(kafka={"bootstrap.servers": bootstrap}),
        RestoreRequest(topics=topic, renames={topic: target}, life=life),
        restore_id=None,
        notice=lambda _: None,
    )
    return {partition: rows for partition, rows in oracle.consume(bootstrap, target).records.items() if rows}


# --- a topic that was created again


def test_a_topic_created_again_is_another_life(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """Nobody but the running backup sees it go and come. The new one is longer than the old one, and differs in each record."""
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 2, KEEP_ALL)
    for partition in range(2):
        produce(bootstrap, topic, 100, "old", partition)
    with running(site, config_of(site, bootstrap, topic)) as instance:
        old = until_archived(site, java_oracle, bootstrap, topic)
        before = set(keys_in(site.bucket, f"topics/{topic}/"))
        delete_topic(bootstrap, topic)
        create_topic(bootstrap, topic, 3, KEEP_ALL)
        for partition in range(3):
            produce(bootstrap, topic, 150, "new", partition)
        new = until_archived(site, java_oracle, bootstrap, topic, f"{topic}@1")
        assert instance.total("archiver_holes_total") == 0
        assert instance.total("archiver_branches_total") == 0
        assert instance.total("archiver_partitions_failing") == 0
        eventually(lambda: instance.value("archiver_partitions", topic=topic) == 3)
        assert instance.stop() == 0
    assert {len(records) for records in new.values()} == {150}
    assert set(keys_in(site.bucket, f"topics/{topic}/")) == before
    assert read_partitions(site.bucket, topic) == old
    site.write_config(bootstrap, topic)
    listed = json.loads(site.run("ls", "--format", "json").stdout)["holdings"]
    assert {(row["topic"], row["life"], row["records"]) for row in listed} == {(topic, 0, 200), (topic, 1, 450)}


@pytest.mark.parametrize(("old", "new"), [("held", 90), ("archived", 30), ("archived", 50)])
def test_a_topic_fetched_by_name_is_not_taken_for_another(
    broker_41: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, tmp_path: Path, old: str, new: int
) -> None:
    """Fetches go on in the new topic: in its midst, at its end, or behind it. What is held of the old one is put in its life.

    Nothing of either gets into the other's life, and nothing is taken for a log that was cut back.
    """
    bootstrap = broker_41.bootstrap
    overlay = make_overlay(tmp_path / "overlay", [BY_NAME])
    create_topic(bootstrap, topic, 1, KEEP_ALL)
    config = config_of(site, bootstrap, topic, segment={"age": "4s" if old == "held" else "1s"})
    if new != 50:  # else the fetches are empty, as they were before: nothing but a look at the topics tells
        config["topics"]["refresh"] = "1h"
    with running(site, config, PYTHONPATH=str(overlay)) as instance:
        eventually(lambda: instance.value("archiver_partitions", topic=topic) == 1)
        produce(bootstrap, topic, 50, "old")
        eventually(lambda: instance.value("archiver_fetched_bytes_total", topic=topic) > 0)
        kept = java_oracle.consume(bootstrap, topic).records
        if old == "archived":
            until_archived(site, java_oracle, bootstrap, topic)
        with standing_still(instance.process.pid):
            time.sleep(1)  # a fetch that the broker still holds would tell that the topic goes
            delete_topic(bootstrap, topic)
            create_topic(bootstrap, topic, 1, KEEP_ALL)
            produce(bootstrap, topic, new, "new")
        until_archived(site, java_oracle, bootstrap, topic, f"{topic}@1")
        assert instance.total("archiver_branches_total") == 0
        assert instance.total("archiver_holes_total") == 0
        assert instance.stop() == 0
    assert read_partitions(site.bucket, topic) == kept


def test_what_is_held_of_a_deleted_topic_is_put(
    shared_zookeeper_broker: StartZooKeeperBroker, site: ArchiveSite, topic: str
) -> None:
    """Of a broker that serves by name alone; nothing but the fetches tells that the topic is gone."""
    bootstrap = shared_zookeeper_broker().bootstrap
    create_topic(bootstrap, topic, 1, FOR_EVER)
    config = config_of(site, bootstrap, topic, segment={"age": "1h"})
    config["topics"]["refresh"] = "1h"
    with running(site, config) as instance:
        eventually(lambda: instance.value("archiver_partitions", topic=topic) == 1)
        produce_values(bootstrap, topic, values(50, "old"), linger_ms=5000)  # one batch: all is fetched, or nothing
        eventually(lambda: instance.value("archiver_fetched_bytes_total", topic=topic) > 0)
        assert keys_in(site.bucket, "topics/") == []
        delete_topic(bootstrap, topic)
        eventually(lambda: instance.value("archiver_records_total", topic=topic) == 50)
        eventually(lambda: "what is archived is kept" in instance.log)
        assert instance.total("archiver_partitions_failing") == instance.total("archiver_failures_total") == 0
        assert instance.stop() == 0
        assert "ERROR" not in instance.log
    (records,) = read_partitions(site.bucket, topic).values()
    assert [record.value for record in records] == values(50, "old")


# --- a log that lost what was archived


def check_the_lives(
    site: ArchiveSite, oracle: JavaOracle, bootstrap: str, topic: str, parent: list[Rec], branch: int
) -> None:
    """The parent is kept; the child begins at the branch, and goes on as the log that Kafka has now."""
    now = oracle.consume(bootstrap, topic).records[0]
    assert now[:branch] == parent[:branch]
    assert now[branch] != parent[branch]
    assert read_partitions(site.bucket, topic)[0] == parent
    child = read_segments(site.bucket, f"{topic}@1")
    assert child[0].base == branch
    assert [record for segment in child for record in segment.records] == now[branch:]


def cut_while_stopped(instance: Instance, broker: KafkaBroker, topic: str, grown: int = 90) -> None:
    """Cut the log back to offset 60. With 40 new records it is as long as it was, with 90 longer: only the epoch tells."""
    with standing_still(instance.process.pid):  # else it may see the shorter log before it grows
        broker.stop()
        cut_log(broker, topic, 0, 60)
        broker.start()
        produce(broker.bootstrap, topic, grown, "new")


def until_child_has(site: ArchiveSite, topic: str, count: int) -> None:
    eventually(lambda: sum(len(one.records) for one in read_segments(site.bucket, f"{topic}@1")) >= count)


@pytest.mark.parametrize("grown", [40, 90])
def test_a_log_cut_over_a_restart_goes_on_in_a_child_life(
    shared_broker: StartBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, grown: int
) -> None:
    broker = shared_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
    produce(broker.bootstrap, topic, 100, "old")
    with running(site, config_of(site, broker.bootstrap, topic)) as instance:
        parent = until_archived(site, java_oracle, broker.bootstrap, topic)[0]
        cut_while_stopped(instance, broker, topic, grown)
        eventually(lambda: instance.value("archiver_branches_total", topic=topic) == 1)
        until_child_has(site, topic, grown)
        assert "the log was cut back: the archive goes on at offset 60 as life 1" in instance.log
        assert instance.stop() == 0
    check_the_lives(site, java_oracle, broker.bootstrap, topic, parent, 60)


def test_a_log_cut_back_below_a_late_start_begins_earlier(
    shared_broker: StartBroker, site: ArchiveSite, topic: str
) -> None:
    """What was written since the archive was told to begin at the end is archived."""
    broker = shared_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
    produce(broker.bootstrap, topic, 100, "old")
    config = config_of(site, broker.bootstrap, topic, start="latest")
    with running(site, config) as instance:
        eventually(lambda: instance.value("archiver_hole_offsets_total", topic=topic, cause="before-start") == 100)
        cut_while_stopped(instance, broker, topic)
        eventually(lambda: sum(map(len, read_partitions(site.bucket, topic).values())) == 90)
        assert instance.value("archiver_branches_total", topic=topic) == 1
        assert instance.value("archiver_hole_offsets_total", topic=topic, cause="before-start") == 100 + 60
        assert "the log was cut back to offset 60, below offset 100" in instance.log
        assert instance.stop() == 0
    (records,) = read_partitions(site.bucket, topic).values()
    assert [record.offset for record in records] == [*range(60, 150)]
    assert read_segments(site.bucket, topic)[0].holes == "0-59:before-start"


def test_a_child_life_is_kept_over_a_kill_before_its_first_put(
    shared_broker: StartBroker, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """The next instance begins no other life: it finds that one, and where it begins."""
    broker = shared_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
    produce(broker.bootstrap, topic, 100, "old")
    config = config_of(site, broker.bootstrap, topic, **{"session-timeout": "3s"})
    with running(site, config, ARCHIVER_FAILPOINT="branch.recorded") as instance:
        parent = until_archived(site, java_oracle, broker.bootstrap, topic)[0]
        cut_while_stopped(instance, broker, topic)
        assert instance.process.wait(100) == -signal.SIGKILL
    assert keys_in(site.bucket, f"topics/{topic}@1/") == []
    known = keys_in(site.bucket, f"control/topics/{topic}/")
    with running(site, config, "two") as instance:
        until_child_has(site, topic, 90)
        assert "the log was cut back" not in instance.log
        assert instance.total("archiver_branches_total") == 0
        assert instance.stop() == 0
    assert keys_in(site.bucket, f"control/topics/{topic}/") == known
    check_the_lives(site, java_oracle, broker.bootstrap, topic, parent, 60)


UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[BrokerCluster]:
    with broker_cluster(tmp_path, 3) as cluster:
        yield cluster


def test_an_unclean_election_begins_a_child_life(
    three_brokers: BrokerCluster, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """Broker 3 lags behind and is down; what broker 2 took meanwhile is archived; broker 2 goes, and broker 3 leads."""
    cluster = three_brokers
    leader, follower = cluster.nodes[2], cluster.nodes[3]
    cluster.create_topic(topic, [[2, 3], [1, 2]], UNCLEAN)
    bootstrap = cluster.bootstrap
    produce(bootstrap, topic, 50, "both")
    with running(site, config_of(site, bootstrap, topic)) as instance:
        until_archived(site, java_oracle, bootstrap, topic)
        follower.kill()
        eventually(lambda: cluster.in_sync(topic) == {2})
        produce(bootstrap, topic, 50, "one alone")
        parent = until_archived(site, java_oracle, bootstrap, topic)[0]
        leader.kill()
        follower.start()
        eventually(lambda: cluster.leader(topic) == 3)
        produce(bootstrap, topic, 70, "the other")
        produce(bootstrap, topic, 30, "beside", 1)
        eventually(lambda: instance.value("archiver_branches_total", topic=topic) == 1)
        until_child_has(site, topic, 70)
        assert "the log was cut back: the archive goes on at offset 50 as life 1" in instance.log
        leader.start()
        eventually(lambda: cluster.in_sync(topic) == {2, 3})
        produce(bootstrap, topic, 20, "both again")
        until_child_has(site, topic, 90)
        eventually(lambda: len(read_partitions(site.bucket, topic).get(1, [])) == 30)
        assert instance.value("archiver_branches_total", topic=topic) == 1
        assert instance.total("archiver_holes_total") == 0
        assert instance.stop() == 0
    now = java_oracle.consume(bootstrap, topic).records[0]
    assert read_partitions(site.bucket, topic)[0] == parent
    child = read_segments(site.bucket, f"{topic}@1")
    assert {segment.partition for segment in child} == {0}
    assert child[0].base == 50
    assert [record for segment in child for record in segment.records] == now[50:]


# --- records that Kafka deleted first
