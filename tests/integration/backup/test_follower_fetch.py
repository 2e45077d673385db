"""A backup on three brokers: leaders that move, brokers that go and come, and followers that are read from instead of leaders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import BrokerCluster, broker_cluster, corrupt_log
from tests.support.foreign_reader import read_partitions
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, running, service_config, until_archived
from tests.support.split_cluster import FOLLOWER, LEADER, leader_and_follower

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

RACKS = {node: {"broker.rack": f"rack-{node}"} for node in (1, 2, 3)}
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture(scope="module")
def all_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with broker_cluster(folder, 3, of_node=RACKS, log_requests=True, **SELECTOR) as cluster:
        yield cluster


@pytest.fixture
def cluster(all_brokers: BrokerCluster) -> BrokerCluster:
    """All of them up, whatever the test before did."""
    all_brokers.start_all()
    return all_brokers


def config_of(site: ArchiveSite, cluster: BrokerCluster, topic: str, **kafka: str) -> dict[str, Any]:
    config = service_config(site, cluster.bootstrap, topic, group=topic)
    config["kafka"] |= kafka
    return config


def test_followers_are_read_from_and_leaders_when_they_are_gone(
    cluster: BrokerCluster, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    """The brokers' own logs tell who sent the records."""
    cluster.create_topic(topic, [[2, 3]])
    content = [b"%07d" % number * 100 for number in range(1000)]
    payload = 700 * 1000
    config = config_of(site, cluster, topic, **{"client.rack": "rack-3", "client.id": topic})
    with running(site, config) as instance:
        eventually(instance.is_ready)
        produce_values(cluster.bootstrap, topic, content)
        until_archived(site, java_oracle, cluster.bootstrap, topic)
        assert cluster.bytes_served(3, topic) >= payload
        assert cluster.bytes_served(2, topic) == 0

        cluster.nodes[3].kill()
        produce_values(cluster.bootstrap, topic, content)
        until_archived(site, java_oracle, cluster.bootstrap, topic)
        assert cluster.bytes_served(2, topic) >= payload

        cluster.nodes[3].start()
        eventually(lambda: cluster.in_sync(topic) == {2, 3})
        by_leader = cluster.bytes_served(2, topic)
        produce_values(cluster.bootstrap, topic, content)
        until_archived(site, java_oracle, cluster.bootstrap, topic)
        eventually(lambda: cluster.bytes_served(3, topic) >= 2 * payload, "the follower is not asked again")
        assert cluster.bytes_served(2, topic) == by_leader

        cluster.nodes[2].kill()
        eventually(lambda: cluster.leader(topic) == 3)
        produce_values(cluster.bootstrap, topic, content)
        until_archived(site, java_oracle, cluster.bootstrap, topic)
        assert_unharmed(instance)


def test_what_only_the_leaders_disk_has_broken_is_read_from_its_follower(
    cluster: BrokerCluster, site: ArchiveSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No offset is skipped of which any replica in sync has the record."""
    cluster.create_topic(topic, [[2, 3]])
    values = [b"%d" % number for number in range(30)]
    for start in (0, 10, 20):
        produce_values(cluster.bootstrap, topic, values[start : start + 10])
    corrupt_log(cluster.nodes[2], topic, 0, 10)
    (report,) = site.back_up_with(cluster.bootstrap, topic, unreadable="skip").values()
    assert (report.error, report.written.holes) == (None, [])
    assert [one.value for one in read_partitions(site.bucket, topic)[0]] == values
    assert "asked for once more, of broker 3, it came whole" in caplog.text


def test_a_follower_that_lost_its_leader_is_left(
    site: ArchiveSite, topic: str, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    """It still answers, without an error, where the log ended when it heard of it last."""
    with leader_and_follower(tmp_path) as (pair, cut):
        pair.create_topic(topic, [[LEADER, FOLLOWER]])
        config = config_of(site, pair, topic, **{"client.rack": f"rack-{FOLLOWER}", "client.id": topic})
        with running(site, config) as instance:
            eventually(instance.is_ready)
            produce_values(pair.bootstrap, topic, [b"before"] * 100)
            until_archived(site, java_oracle, pair.bootstrap, topic)
            assert pair.bytes_served(FOLLOWER, topic) > pair.bytes_served(LEADER, topic) == 0

            cut()
            produce_values(pair.bootstrap, topic, [b"after"] * 50)
            assert pair.in_sync(topic) == {LEADER}
            eventually(
                lambda: instance.value("archiver_lag_offsets", topic=topic) == 50, "its end is taken for the log's"
            )
            until_archived(site, java_oracle, pair.bootstrap, topic)
            assert pair.bytes_served(LEADER, topic) > 0
            assert (
                f"{topic}-0: nothing comes at offset 100 from the follower {FOLLOWER}, though its leader has"
                in instance.log
            )
            assert instance.value("archiver_retries_total", effect="fetch", cause="FOLLOWER_BEHIND") > 0
            assert_unharmed(instance)


def test_a_follower_is_asked_for_no_longer_than_its_lease(
    cluster: BrokerCluster, site: ArchiveSite, topic: str, java_oracle: JavaOracle
) -> None:
    cluster.create_topic(topic, [[2, 3]])
    kafka = {"client.rack": "rack-3", "client.id": topic, "metadata.max.age.ms": "1000"}
    with running(site, config_of(site, cluster, topic, **kafka)) as instance:
        eventually(instance.is_ready)
        eventually(lambda: cluster.fetches(2, topic) >= 3, "its leader is not asked again")
        produce_values(cluster.bootstrap, topic, [b"value"] * 10)
        until_archived(site, java_oracle, cluster.bootstrap, topic)
        assert cluster.bytes_served(3, topic) > cluster.bytes_served(2, topic) == 0
        assert_unharmed(instance)


def assert_unharmed(instance: Instance) -> None:
    assert instance.total("archiver_failures_total") == 0
    assert instance.total("archiver_branches_total") == 0
    assert instance.total("archiver_holes_total") == 0
    assert "ERROR" not in instance.log
    assert instance.stop() == 0
