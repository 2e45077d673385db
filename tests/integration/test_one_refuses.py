"""One of three brokers does not let us in: that is the trouble of its partitions, and of nobody else's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.foreign_reader import read_partitions
from tests.support.guarded_cluster import Guard, by_certificate, by_password, guarded_cluster
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import produce_values
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, service_config, until_archived

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

OFFSETS = "__consumer_offsets"


@pytest.mark.parametrize(
    ("guard", "why"),
    [(by_password, "does not let us in"), (by_certificate, "shows a certificate that is not accepted")],
    ids=["password", "certificate"],
)
def test_a_broker_that_does_not_let_us_in(
    site: ArchiveSite, topic: str, java_oracle: JavaOracle, tmp_path: Path, guard: Callable[[Path], Guard], why: str
) -> None:
    """Before a backup begins, when it does, and while it runs. The partitions of the others get on all the time."""
    with guarded_cluster(tmp_path / "cluster", guard(tmp_path / "keys")) as cluster:
        plain, refusing = cluster.plain, cluster.brokers[3]
        refusing.let_in(False)
        plain.start_all()
        plain.create_topic(OFFSETS, [[1]], {"cleanup.policy": "compact"})  # the group is not with the one that refuses
        plain.create_topic(topic, [[1], [2], [3]])

        def produce(text: str, *partitions: int) -> None:
            for partition in partitions:
                values = [f"{text} {number}".encode() for number in range(30)]
                produce_values(plain.bootstrap, topic, values, partition)

        def archived() -> dict[int, int]:
            return {number: len(records) for number, records in read_partitions(site.bucket, topic).items()}

        produce("first", 0, 1, 2)
        config = {**service_config(site, "", topic, group=topic), "kafka": cluster.kafka}
        (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
        done = site.run("backup", "--until-end", "--format", "json")
        assert done.returncode == 4, done.stderr
        assert archived() == {0: 30, 1: 30}
        errors = {row["partition"]: row["error"] for row in json.loads(done.stdout)["partitions"]}
        assert errors[0] is errors[1] is None
        assert f"to broker 3: {refusing.door} {why}" in errors[2]
        with running(site, config) as instance:
            eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 1)
            produce("second", 0, 1)
            eventually(lambda: archived() == {0: 60, 1: 60})
            assert instance.is_ready()
            refusing.let_in(True)
            refusing.restart()
            until_archived(site, java_oracle, plain.bootstrap, topic, timeout_s=90)
            eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 0)
            refusing.let_in(False)
            refusing.restart()
            produce("third", 0, 1, 2)
            eventually(lambda: archived() == {0: 90, 1: 90, 2: 30})
            eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 1, timeout_s=60)
            produce("fourth", 0, 1)
            eventually(lambda: archived() == {0: 120, 1: 120, 2: 30})
            assert f"{refusing.door} {why}" in instance.log
            refusing.let_in(True)
            refusing.restart()
            until_archived(site, java_oracle, plain.bootstrap, topic, timeout_s=90)
            assert instance.stop() == 0


def test_nobody_lets_us_in(site: ArchiveSite, topic: str, tmp_path: Path) -> None:
    """Then no second try is of use."""
    with guarded_cluster(tmp_path / "cluster", by_password(tmp_path)) as cluster:
        cluster.plain.start_all()
        kafka = {**cluster.kafka, "sasl.password": "not this one"}
        config = {**service_config(site, "", topic), "kafka": kafka}
        (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
        for options in (["--until-end"], []):
            done = site.run("backup", *options)
            assert done.returncode == 1, done.stderr
            assert "does not let us in" in done.stderr
