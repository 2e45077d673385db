"""One of several brokers does not let us in: that is the trouble of its partitions, and of nobody else's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from tests.support.foreign_reader import read_partitions
from tests.support.guarded_cluster import GuardedBroker, GuardedCluster, guarded_cluster
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

OFFSETS = "__consumer_offsets"


@dataclass(frozen=True)
class World:
    """A topic of three partitions, one of them on the second broker, which refuses us from its next start on, or not."""

    site: ArchiveSite
    cluster: GuardedCluster
    topic: str
    oracle: JavaOracle

    @classmethod
    def start(
        cls, site: ArchiveSite, cluster: GuardedCluster, topic: str, oracle: JavaOracle, *, refuser_has_group: bool
    ) -> Self:
        world = cls(site, cluster, topic, oracle)
        world.refusing.let_in(False)
        cluster.plain.start_all()
        cluster.plain.create_topic(OFFSETS, [[2 if refuser_has_group else 1]], {"cleanup.policy": "compact"})
        cluster.plain.create_topic(topic, [[1], [1], [2]])
        world.produce("first", 0, 1, 2)
        return world

    @property
    def refusing(self) -> GuardedBroker:
        return self.cluster.brokers[2]

    @property
    def config(self) -> dict[str, Any]:
        return {**service_config(self.site, "", self.topic, group=self.topic), "kafka": self.cluster.kafka}

    def let_in(self, is_fitting: bool) -> None:
        self.refusing.let_in(is_fitting)
        self.refusing.restart()

    def produce(self, text: str, *partitions: int) -> None:
        for partition in partitions:
            values = [f"{text} {number}".encode() for number in range(30)]
            produce_values(self.cluster.plain.bootstrap, self.topic, values, partition)

    def archived(self) -> dict[int, int]:
        return {number: len(records) for number, records in read_partitions(self.site.bucket, self.topic).items()}

    def until_archived(self) -> None:
        until_archived(self.site, self.oracle, self.cluster.plain.bootstrap, self.topic, timeout_s=90)

    def run_until_end(self, why: str) -> None:
        """The others' partitions are archived."""
        (self.site.folder / "archive.yaml").write_text(yaml.safe_dump(self.config))
        done = self.site.run("backup", "--until-end", "--format", "json")
        assert done.returncode == 4, done.stderr
        assert self.archived() == {0: 30, 1: 30}
        errors = {row["partition"]: row["error"] for row in json.loads(done.stdout)["partitions"]}
        assert errors[0] is errors[1] is None
        assert f"to broker 2: {self.refusing.door} {why}" in errors[2]


def until_failing(instance: Instance, topic: str, count: int) -> None:
    eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == count, timeout_s=60)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GuardedCluster]:
    """Not started."""
    with guarded_cluster(tmp_path / "cluster") as cluster:
        yield cluster


def test_a_broker_that_does_not_let_us_in(
    site: ArchiveSite, topic: str, java_oracle: JavaOracle, cluster: GuardedCluster, soon_lasting: str
) -> None:
    """Before a backup begins, and when it does. The partitions of the others get on all the time."""
    world = World.start(site, cluster, topic, java_oracle, refuser_has_group=False)
    why = "does not let us in"
    world.run_until_end(why)
    with running(site, world.config, PYTHONPATH=soon_lasting) as instance:
        until_failing(instance, topic, 1)
        world.produce("second", 0, 1)
        eventually(lambda: world.archived() == {0: 60, 1: 60})
        eventually(lambda: f"{world.refusing.door} {why}" in instance.log)  # what heals soon is not told
        assert instance.is_ready()
        world.let_in(True)
        world.until_archived()
        until_failing(instance, topic, 0)
        assert instance.stop() == 0


def test_the_broker_that_has_the_group_does_not_let_us_in(
    site: ArchiveSite, topic: str, java_oracle: JavaOracle, cluster: GuardedCluster, soon_lasting: str
) -> None:
    """What this instance was given before it goes on archiving; what it never was is told."""
    world = World.start(site, cluster, topic, java_oracle, refuser_has_group=True)
    world.run_until_end("does not let us in")
    told = f"its coordinator cannot be asked: {world.refusing.door}"
    with running(site, world.config, PYTHONPATH=soon_lasting) as instance:
        eventually(lambda: told in instance.readiness)
        assert "Authentication failed" in instance.readiness
        assert told in instance.log
        until_failing(instance, topic, 3)
        assert instance.value("archiver_rpo_seconds", topic=topic) > 0
        world.let_in(True)
        world.until_archived()
        until_failing(instance, topic, 0)
        assert instance.is_ready()
        world.let_in(False)
        eventually(lambda: told in instance.readiness)  # the session has ended
        world.produce("second", 0, 1, 2)
        eventually(lambda: world.archived() == {0: 60, 1: 60, 2: 30})
        until_failing(instance, topic, 1)
        assert instance.value("archiver_partitions", topic=topic) == 3
        with running(site, service_config(site, cluster.plain.bootstrap, topic, group=topic), "two") as other:
            world.until_archived()  # whom the coordinator lets in
            eventually(lambda: other.value("archiver_partitions", topic=topic) == 3)
            world.produce("more", 0, 1)  # now both archive these partitions
            world.until_archived()
            assert other.stop() == 0
        world.let_in(True)
        world.produce("last", 0, 1, 2)
        world.until_archived()
        until_failing(instance, topic, 0)
        assert instance.stop() == 0
