"""Records that go behind others must not have the brokers delete those: what is there already counts against retention.bytes."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
from archiver.errors import TargetError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.log_dirs import LogSizes, log_sizes
from archiver.restore.plan.request import Existing
from tests.support.brokers import Broker, StartBroker
from tests.support.cluster import broker_cluster, log_folder
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, with_client
from tests.support.produce_doubles import Killed, MortalProduce
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import archived, foreign_topic, log_of, records_of, restored, set_configs, until, write
from tests.support.zookeeper import WITHOUT_TOPIC_IDS, StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

EAGER = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100"}


@pytest.fixture(scope="module")
def eager_broker(new_module_broker: StartBroker) -> Broker:
    return new_module_broker(**EAGER)


def sizes(broker: Broker, topic: str) -> LogSizes:
    async def ask(client: KafkaClient) -> LogSizes:
        return (await log_sizes(client, await client.describe_topics([topic])))[topic]

    return with_client(broker.bootstrap, ask)


def on_disk(broker: KafkaBroker, topic: str, partition: int) -> int:
    return sum(file.stat().st_size for file in log_folder(broker, topic, partition).glob("*.log"))


@pytest.mark.parametrize("version", ["2.8", "3.9", "4.1"])
def test_sizes_are_those_of_the_files(
    request: pytest.FixtureRequest, new_zookeeper_broker: StartZooKeeperBroker, topic: str, version: str
) -> None:
    broker: KafkaBroker
    if version == "2.8":
        broker = new_zookeeper_broker(**WITHOUT_TOPIC_IDS)
    else:
        broker = request.getfixturevalue(f"broker_{version.replace('.', '')}")
    create_topic(broker.bootstrap, topic, 3, {"retention.ms": "-1"})
    for number, count in ((0, 70), (2, 10)):
        write(broker, topic, records_of(count), number)
    written = {number: on_disk(broker, topic, number) for number in range(3)}
    assert written[0] > written[2] > written[1] == 0
    assert sizes(broker, topic) == LogSizes(written)


def test_the_size_is_that_of_the_replica_that_has_most(topic: str, tmp_path: Path) -> None:
    """Whichever leads later deletes by what it has: here a follower that has not yet deleted what the leader has."""
    slow = {"log.initial.task.delay.ms": "3600000"}
    with broker_cluster(tmp_path, 3, of_node={2: slow, 3: slow}, **dict[str, Any](EAGER)) as cluster:
        cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1]], {"segment.bytes": "1048576", "file.delete.delay.ms": "0"})
        leader = cluster.nodes[1]
        for number in (0, 1):
            write(cluster.nodes[number + 1], topic, records_of(2000, mark=b"t" * 1500), number, size=100)
        until(lambda: cluster.in_sync(topic) == {1, 2, 3})
        where = TopicPartition(topic, 0, 1500)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.delete_records([where])[where].result(20)
        until(lambda: on_disk(leader, topic, 0) < on_disk(cluster.nodes[2], topic, 0) // 2)
        most = {number: max(on_disk(cluster.nodes[node], topic, number) for node in cluster.nodes) for number in (0, 1)}
        assert sizes(leader, topic) == LogSizes(most)


@pytest.mark.parametrize("asked", [{}, {"repartition": 1}], ids=["plain", "repartition"])
def test_what_is_there_is_not_evicted(
    broker_41: Broker,
    eager_broker: Broker,
    topic: str,
    site: ArchiveSite,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, int],
) -> None:
    """Neither is too large alone; one whose files are this small loses what is too much at once."""
    archived(broker_41, topic, site, records_of(200))
    foreign_topic(eager_broker, f"{topic}.back", 0)
    small = {"segment_bytes": "1048576", "retention_bytes": "2000000"}
    set_configs(eager_broker, f"{topic}.back", **small)
    write(eager_broker, f"{topic}.back", records_of(1000, mark=b"t" * 1500), size=100)
    limit = str(sizes(eager_broker, f"{topic}.back").bytes[0] + 1000)
    set_configs(eager_broker, f"{topic}.back", retention_bytes=limit)
    with pytest.raises(TargetError) as caught:
        restored(site, eager_broker, topic, existing=Existing.APPEND, **asked)
    said = str(caught.value)
    assert f"{topic}.back: retention.bytes={limit} " in said
    assert "have the brokers delete the oldest records there" in said
    assert f" behind the {int(limit) - 1000:,} that it has" in said
    assert log_of(eager_broker, f"{topic}.back") == (0, 1000)
    more = int(said.partition("up to ")[2].partition(" bytes")[0].replace(",", ""))
    set_configs(eager_broker, f"{topic}.back", retention_bytes=str(int(limit) - 1000 + more))
    mortal = MortalProduce(seed=3)
    mortal.live(3)
    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.fill.sending, "produce", mortal)
        with pytest.raises(Killed):
            restored(site, eager_broker, topic, existing=Existing.APPEND, batch_bytes=1000, **asked)
    assert 1000 < log_of(eager_broker, f"{topic}.back")[1] < 1200
    # What it has brought itself does not count twice.
    assert restored(site, eager_broker, topic, existing=Existing.APPEND, batch_bytes=1000, **asked).errors == ()
    assert log_of(eager_broker, f"{topic}.back") == (0, 1200)
    # The limit is one that this broker holds: what goes beyond it evicts.
    write(eager_broker, f"{topic}.back", records_of(1000, mark=b"t" * 1500), size=100)
    until(lambda: log_of(eager_broker, f"{topic}.back")[0] > 0)
