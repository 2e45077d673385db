"""What goes with a purged topic, besides its records: its replicas stay as many, and all else is told beforehand."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import archiver.restore.targets.targets
from archiver.errors import TargetError
from archiver.restore.plan.request import Existing
from archiver.restore.purge.purge_checks import ArchiveReading
from archiver.spark.purge_proof import read_whole
from tests.support.cluster import BrokerCluster, broker_cluster
from tests.support.foreign_reader import keys_in
from tests.support.produce_doubles import Killed
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import id_of, log_of, records_of, until, write

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """Two brokers; a topic has one replica, unless someone asks for more."""
    with broker_cluster(tmp_path_factory.mktemp("pair"), 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(tmp_path_factory.mktemp("trio"), 3) as cluster:
        yield cluster


@pytest.fixture
def doubled(pair: BrokerCluster, topic: str, site: ArchiveSite) -> str:
    """An archived topic with two replicas of each partition."""
    pair.start_all()
    pair.create_topic(topic, [[1, 2], [2, 1]])
    write(pair.nodes[1], topic, records_of(20))
    site.back_up(pair.bootstrap, topic)
    return topic


def commit(cluster: BrokerCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def replicas_of(cluster: BrokerCluster, topic: str) -> list[set[int]]:
    """That are in sync, as an administrator's client has it."""
    return [cluster.in_sync(topic, number) for number in (0, 1)]


def purged(site: ArchiveSite, cluster: BrokerCluster, topic: str, **asked: Any) -> Any:  # noqa: ANN401 - a TopicReport
    (report,) = site.restore(cluster.bootstrap, topics=topic, existing=Existing.PURGE, **asked).topics
    return report


@pytest.mark.timeout(180)
def test_what_goes_with_a_topic_is_told_and_its_replicas_stay(
    pair: BrokerCluster, doubled: str, site: ArchiveSite
) -> None:
    """By the command: the dry run, and the run. A backup's own group is no consumer's."""
    for number in range(5):
        commit(pair, f"group-{number}", doubled, 12)
    pair.create_topic(f"{doubled}-other", [[1]])
    commit(pair, "of-another", f"{doubled}-other", 3)
    site.write_config(pair.bootstrap, doubled)
    site.write_target(pair.bootstrap)
    command = ["restore", "--target", "target.yaml", "--topics", doubled, "--purge-target", "--format", "json"]
    dry = site.run_within(*command, "--dry-run")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    (note,) = json.loads(dry.stdout)["notes"]
    assert note == (
        f"target topic {doubled} goes, with all its records, at most 20, and is created again, with 2 replicas; with it"
        " go the offsets that 5 consumer groups have committed for it: group-0, group-1, group-2 and 2 more"
    )
    done = site.run_within(*command)
    assert done.returncode == 0, done.stderr
    assert note in done.stderr
    until(lambda: replicas_of(pair, doubled) == [{1, 2}, {1, 2}])


def test_one_that_was_killed_before_it_created_the_topic_knows_how_many(
    pair: BrokerCluster, doubled: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.targets.targets.Targets, "_create", die)
        with pytest.raises(Killed):
            purged(site, pair, doubled)
        with pytest.raises(Killed):  # nor does the second one forget it
            purged(site, pair, doubled)
    assert purged(site, pair, doubled).records == 20
    until(lambda: replicas_of(pair, doubled) == [{1, 2}, {1, 2}])


def test_as_many_as_are_asked_for(pair: BrokerCluster, doubled: str, site: ArchiveSite) -> None:
    assert purged(site, pair, doubled, replication_factor=1).records == 20
    assert [len(some) for some in replicas_of(pair, doubled)] == [1, 1]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_topic_whose_replicas_cannot_be_had_is_not_purged(
    trio: BrokerCluster, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    """A broker is away; or goes while the archive is read, when all has been looked at."""
    trio.start_all()
    trio.create_topic(topic, [[1, 2, 3]])
    write(trio.nodes[1], topic, records_of(20))
    site.back_up(trio.bootstrap, topic)
    before = id_of(trio.nodes[1], topic)

    def lose_one() -> None:
        trio.nodes[3].kill()
        until(lambda: trio.in_sync(topic) == {1, 2}, 60)

    def read_and_lose_one(*arguments: Any) -> ArchiveReading:  # noqa: ANN401
        reading = read_whole(*arguments)
        lose_one()
        return reading

    if is_late:
        monkeypatch.setattr("archiver.spark.purge_proof.read_whole", read_and_lose_one)
    else:
        lose_one()
    with pytest.raises(TargetError) as caught:
        purged(site, trio, topic)
    assert str(caught.value) == (
        f"target topic {topic} is not purged: it has 3 replicas, and only 2 brokers of the target cluster are up; bring the"
        " others back, or give --replication-factor 2"
    )
    assert (id_of(trio.nodes[1], topic), log_of(trio.nodes[1], topic)) == (before, (0, 20))
    assert is_late or keys_in(site.bucket, "control/restores/") == []
    if not is_late:
        assert purged(site, trio, topic, replication_factor=2).records == 20
