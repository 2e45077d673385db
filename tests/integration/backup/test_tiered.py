"""Tiered storage whose reads are slow or fail: a broker then answers without records, without an error, and with a valid end."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

import archiver.backup.partition.fetching
import archiver.kafka.records.log_reader
from archiver.demo.sandbox import fetch_kafka
from archiver.errors import TargetError
from archiver.restore.plan.request import Existing
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import broker_cluster
from tests.support.foreign_reader import read_partitions, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import eventually, running, service_config, until_archived
from tests.support.target_topics import archived, log_of, records_of, restored, set_configs
from tests.support.tiered import FAIL, TIERED, RemoteTier, earliest_local, until_local_from

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

COUNT = 4000  # records of 1 KB: three segments in the remote tier, and one on the broker's own disk
LONGER_THAN_BROKERS_WAIT_MS = 1500
VERY_SLOW_MS = 60_000


@dataclass(frozen=True, slots=True)
class TieredBroker:
    broker: KafkaBroker
    tier: RemoteTier

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def fill(self, topic: str) -> None:
        """Most of what is written is in the remote tier then, and nowhere else."""
        create_topic(self.bootstrap, topic, configs=KEEP_ALL | TIERED)
        produce_values(self.bootstrap, topic, VALUES)
        until_local_from(self.broker, topic, COUNT // 2)


VALUES = [random.Random(number).randbytes(1022) for number in range(COUNT)]  # a restore compresses


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredBroker]:
    folder, jars = tmp_path_factory.mktemp("tiered"), fetch_kafka(KAFKA_41, CACHE)
    tier = RemoteTier(folder / "tier", jars)
    with KafkaBroker(jars, folder / "broker", properties=tier.broker_properties()) as broker:
        yield TieredBroker(broker, tier)


@pytest.fixture
def tiered(started: TieredBroker) -> Iterator[TieredBroker]:
    """Its reads are quick before and after each test."""
    started.tier.behave()
    yield started
    started.tier.behave()


@contextmanager
def mended_after(tiered: TieredBroker, topic: str, reads: int) -> Iterator[None]:
    """No read ends until so many more have been begun."""
    tiered.tier.behave(VERY_SLOW_MS)
    begun, served = tiered.tier.reads(topic), tiered.tier.reads(topic, served=True)

    def mend() -> None:
        eventually(lambda: tiered.tier.reads(topic) >= begun + reads, f"{topic}: nobody reads the remote tier")
        assert tiered.tier.reads(topic, served=True) == served
        tiered.tier.behave()

    with ThreadPoolExecutor(1) as pool:
        mended = pool.submit(mend)
        yield
        mended.result()


def test_until_end_waits_for_a_slow_tier(
    tiered: TieredBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    tiered.fill(topic)
    site.write_config(tiered.bootstrap, topic)
    with mended_after(tiered, topic, reads=6):
        done = site.run("backup", "--until-end")
    assert (done.returncode, done.stderr.count("defect")) == (0, 0), done.stderr
    assert read_partitions(site.bucket, topic) == java_oracle.consume(tiered.bootstrap, topic).records
    assert len(read_partitions(site.bucket, topic)[0]) == COUNT


@pytest.mark.parametrize("order", [LONGER_THAN_BROKERS_WAIT_MS, FAIL])
def test_until_end_passes_over_nothing_that_is_in_the_tier(
    tiered: TieredBroker, topic: str, site: ArchiveSite, order: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition ends with an error that names the tier, and its position is where the records are."""
    tiered.fill(topic)
    create_topic(tiered.bootstrap, f"{topic}.near", configs=KEEP_ALL)
    produce_values(tiered.bootstrap, f"{topic}.near", VALUES[:10])
    tiered.tier.behave(order)
    with monkeypatch.context() as patch:
        patch.setattr(archiver.backup.partition.fetching, "FETCH_PATIENCE_S", 4.0)
        reports = site.back_up(tiered.bootstrap, f"{topic}.*")
    far, near = reports[topic, 0], reports[f"{topic}.near", 0]
    assert far.error is not None
    assert (far.error.exit_code, far.position) == (4, 0)
    if order != FAIL:
        assert f"nothing comes at offset 0, though the end is {COUNT}; it lies in the remote tier" in str(far.error)
        assert "remote.fetch.max.wait.ms" in str(far.error)
    assert (near.error, near.written.records) == (None, 10)
    assert read_segments(site.bucket, topic) == []
    assert site.verify(tiered.bootstrap, [topic, f"{topic}.near"]).is_whole

    tiered.tier.behave()
    assert site.back_up(tiered.bootstrap, topic)[topic, 0].written.records == COUNT


@pytest.mark.parametrize("asked", [{}, {"repartition": 1}], ids=["plain", "repartition"])
def test_what_is_in_the_tier_counts_as_bytes_that_nobody_knows(
    tiered: TieredBroker, topic: str, site: ArchiveSite, asked: dict[str, int]
) -> None:
    """Behind such records none go that could have the brokers delete the oldest; without a limit they do."""
    archived(tiered.broker, topic, site, records_of(20))
    tiered.fill(f"{topic}.back")
    ask: dict[str, Any] = {"existing": Existing.APPEND, **asked}
    assert earliest_local(tiered.broker, f"{topic}.back") > 0
    set_configs(tiered.broker, f"{topic}.back", retention_bytes=str(COUNT * 1024 + 2_000_000))
    with pytest.raises(
        TargetError, match=r"how many bytes it has now is not known \(a part of it is in the remote tier"
    ):
        restored(site, tiered.broker, topic, **ask)
    assert log_of(tiered.broker, f"{topic}.back") == (0, COUNT)
    set_configs(tiered.broker, f"{topic}.back", retention_bytes="-1")
    assert restored(site, tiered.broker, topic, **ask).errors == ()
    assert log_of(tiered.broker, f"{topic}.back") == (0, COUNT + 20)


def test_a_continuous_backup_names_what_does_not_come_and_gets_on(
    tiered: TieredBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, soon_lasting: str
) -> None:
    """And the other topics of the broker do not wait for it."""
    tiered.fill(topic)
    near = f"{topic}.near"
    create_topic(tiered.bootstrap, near, configs=KEEP_ALL)
    tiered.tier.behave(LONGER_THAN_BROKERS_WAIT_MS)
    config = service_config(site, tiered.bootstrap, f"{topic}.*", group=topic)
    with running(site, config, PYTHONPATH=soon_lasting) as instance:
        eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 1, "no gauge tells of it")
        assert instance.value("archiver_lag_offsets", topic=topic) == COUNT
        assert instance.value("archiver_retries_total", effect="fetch", cause="EMPTY") > 0
        eventually(lambda: f"{topic}-0: nothing comes at offset 0, though the end is {COUNT}; it lies" in instance.log)
        assert read_segments(site.bucket, topic) == []

        produce_values(tiered.bootstrap, near, VALUES[:100])
        until_archived(site, java_oracle, tiered.bootstrap, near)
        assert instance.value("archiver_partitions_failing", topic=topic) == 1
        assert instance.value("archiver_partitions_failing", topic=near) == 0

        tiered.tier.behave()
        until_archived(site, java_oracle, tiered.bootstrap, topic)
        eventually(lambda: instance.value("archiver_partitions_failing", topic=topic) == 0)
        assert instance.stop() == 0


def test_a_comparison_waits_for_a_slow_tier(
    tiered: TieredBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered.fill(topic)
    site.back_up(tiered.bootstrap, topic)
    with mended_after(tiered, topic, reads=5):
        found = site.verify(tiered.bootstrap, [topic], against_kafka=True)
    assert (found.compared, found.problems, found.errors) == (COUNT, [], [])

    tiered.tier.behave(VERY_SLOW_MS)
    monkeypatch.setattr(archiver.kafka.records.log_reader, "_PATIENCE_S", 4.0)
    found = site.verify(tiered.bootstrap, [topic], against_kafka=True)
    assert not found.problems
    ((error, exit_code),) = [(one.error, one.exit_code) for one in found.errors]
    assert exit_code == 4
    assert f"{topic}-0 cannot be read at offset 0; it lies in the remote tier" in error


def test_followers_that_read_from_a_slow_tier(
    site: ArchiveSite, topic: str, java_oracle: JavaOracle, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cluster")
    tier = RemoteTier(folder / "tier", fetch_kafka(KAFKA_41, CACHE))
    racks = {node: {"broker.rack": f"rack-{node}"} for node in (1, 2)}
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with broker_cluster(folder, 2, of_node=racks, **dict[str, Any](tier.broker_properties(2) | selector)) as cluster:
        cluster.create_topic(topic, [[1, 2]], TIERED)
        produce_values(cluster.bootstrap, topic, VALUES)
        for node in cluster.nodes.values():
            until_local_from(node, topic, COUNT // 2)
        config = site.config(cluster.bootstrap, [topic])
        config["kafka"]["client.rack"] = "rack-2"
        (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
        tiered = TieredBroker(cluster.nodes[1], tier)
        with mended_after(tiered, topic, reads=6):
            done = site.run("backup", "--until-end", "--verbose")
        assert done.returncode == 0, done.stderr
        assert read_partitions(site.bucket, topic) == java_oracle.consume(cluster.bootstrap, topic).records
