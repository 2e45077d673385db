"""How positions of consumer groups are kept, against real brokers: as their own topic, and as snapshots that Java confirms."""

import asyncio
import base64
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from archiver.archive.format.control import Fact, read_history
from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import Layout
from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig, PositionKeeping
from archiver.demo.sandbox import JAVA_OPTIONS
from archiver.errors import StrangerError
from archiver.groups.positions.keeper import PositionKeeper, PositionPolicy
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import Workers
from archiver.store.port import ObjectStore
from tests.support.brokers import CACHE, KAFKA_41, Broker, StartBroker
from tests.support.foreign_reader import keys_in, read_partitions
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values, with_client
from tests.support.memory_store import MemoryStore
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually, running, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

JAVA = Path(__file__).parents[2] / "support" / "java" / "GroupPositions.java"
NOON_MS = 1_790_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000
DAY_MS = 86_400_000
Groups = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
# Whoever nothing is said about may do everything, and so may everyone but for what a test denies.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@contextmanager
def member(broker: Broker, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A consumer that has joined, and holds every partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": protocol})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), f"{group} was not let in")
        yield consumer
    finally:
        consumer.close()


def commit(broker: Broker, group: str, *positions: ClientPartition) -> None:
    """As a simple consumer does, which never joins."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})

    def is_done() -> bool:
        try:
            consumer.commit(offsets=list(positions), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR}:
                raise  # these alone the client does not ask about again by itself
            return False
        return True

    try:
        eventually(is_done, "the coordinator still loads")
    finally:
        consumer.close()


def java_positions(bootstrap: str) -> Groups:
    """As Kafka's own Admin sees them."""
    command = ["java", *JAVA_OPTIONS, "-cp", f"{CACHE / f'kafka-{KAFKA_41}'}/*", str(JAVA), bootstrap]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    groups: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for line in told.splitlines():
        kind, group, *position = line.split("\t")
        if kind == "group":
            groups[group] = {}
            continue
        topic, partition, offset, epoch, metadata = position
        row: dict[str, Any] = {"offset": int(offset)}
        row |= {"leader_epoch": int(epoch)} if int(epoch) >= 0 else {}
        row |= {"metadata": base64.b64decode(metadata[1:]).decode()} if metadata != "=" else {}
        groups[group].setdefault(topic, {})[partition] = row
    return groups


class Snapshots:
    """Keepers in this process, with a store and a clock of their own."""

    def __init__(self, bootstrap: str, interval_ms: int = 60_000) -> None:
        self.store = MemoryStore()
        self.now_ms = NOON_MS
        self._bootstrap = bootstrap
        self._interval_ms = interval_ms

    def take(self, times: int = 1, cluster_id: str = "c") -> None:
        """At once, each by a keeper of its own."""

        async def body(client: KafkaClient) -> None:
            with Workers(4, "keepers") as pool:
                keepers = [self._keeper(client, pool, cluster_id) for _ in range(times)]
                await asyncio.gather(*(keeper.take_snapshot(self._interval_ms) for keeper in keepers))

        with_client(self._bootstrap, body)

    def _keeper(self, client: KafkaClient, pool: Workers, cluster_id: str) -> PositionKeeper:
        return PositionKeeper(
            client,
            PositionPolicy(keep=PositionKeeping.SNAPSHOT, interval_ms=self._interval_ms),
            archive=Archive(self.store, Layout()),
            pool=pool,
            cluster_id=cluster_id,
            clock_ms=lambda: self.now_ms,
        )

    def facts(self, day: str = "2026-09-21") -> list[Fact]:
        return [fact for *_, fact in read_history(Archive(self.store, Layout()), f"group-positions/{day}")]


# --- snapshots


def test_a_snapshot_says_what_java_says(broker_41: Broker, topic: str) -> None:
    create_topic(broker_41.bootstrap, topic, 3)
    # confluent-kafka commits the zero byte behind the metadata, too, and its own admin client cuts it off.
    first, second = (ClientPartition(topic, nr, 5 + nr, metadata=f"ü {nr}", leader_epoch=nr) for nr in (0, 1))
    commit(broker_41, f"{topic}-simple", first, ClientPartition(topic, 2, 0))
    with member(broker_41, f"{topic}-left", topic) as consumer:
        consumer.commit(offsets=[second], asynchronous=False)
    with (
        member(broker_41, f"{topic}-new", topic, "consumer") as new,
        member(broker_41, f"{topic}-idle", topic),
        member(broker_41, f"{topic}-classic", topic) as classic,
    ):
        new.commit(offsets=[first, second], asynchronous=False)
        classic.commit(offsets=[first], asynchronous=False)
        snapshots = Snapshots(broker_41.bootstrap)
        snapshots.take()
        expected = java_positions(broker_41.bootstrap)
    (fact,) = snapshots.facts()
    assert fact["groups"] == expected
    assert {key: fact[key] for key in ("format", "cluster_id", "time_ms", "missing")} == {
        "format": 1,
        "cluster_id": "c",
        "time_ms": NOON_MS,
        "missing": [],
    }
    assert fact["groups"][f"{topic}-simple"] == {
        topic: {"0": {"offset": 5, "leader_epoch": 0, "metadata": "ü 0\0"}, "2": {"offset": 0}}
    }
    assert fact["groups"][f"{topic}-idle"] == {}


def test_a_snapshot_of_kafka_39_says_what_java_says(broker_39: Broker, topic: str) -> None:
    create_topic(broker_39.bootstrap, topic)
    commit(broker_39, topic, ClientPartition(topic, 0, 7, metadata="m"))
    snapshots = Snapshots(broker_39.bootstrap)
    snapshots.take()
    (fact,) = snapshots.facts()
    assert fact["groups"] == java_positions(broker_39.bootstrap)
    assert fact["groups"][topic] == {topic: {"0": {"offset": 7, "metadata": "m\0"}}}


def test_only_news_is_written_and_once_an_interval(broker_41: Broker, topic: str) -> None:
    create_topic(broker_41.bootstrap, topic)
    snapshots = Snapshots(broker_41.bootstrap)
    commit(broker_41, topic, ClientPartition(topic, 0, 1))
    snapshots.take(times=3)
    assert len(snapshots.facts()) == 1  # one of three at once

    snapshots.now_ms += 60_000
    snapshots.take(times=3)
    assert len(snapshots.facts()) == 1  # nothing has changed

    commit(broker_41, topic, ClientPartition(topic, 0, 2))
    snapshots.take(times=3)
    assert [fact["groups"][topic][topic]["0"]["offset"] for fact in snapshots.facts()] == [1, 2]

    commit(broker_41, topic, ClientPartition(topic, 0, 3))
    snapshots.now_ms += 59_999
    snapshots.take()
    assert len(snapshots.facts()) == 2  # too early
    snapshots.now_ms += 1
    snapshots.take()
    assert len(snapshots.facts()) == 3

    snapshots.now_ms += DAY_MS
    snapshots.take()
    assert len(snapshots.facts("2026-09-22")) == 1  # each day can be read alone

    snapshots.now_ms += 60_000
    with pytest.raises(StrangerError, match="belongs to cluster c, and this is another"):
        snapshots.take(cluster_id="another")


def snapshot_facts(site: ArchiveSite) -> list[Fact]:
    """Of all days; a test may run at midnight."""
    store, layout = store_of(site)
    days = sorted(store.list_directories(layout.control_prefix("group-positions")))
    return [fact for day in days for *_, fact in read_history(Archive(store, layout), f"group-positions/{day}")]


@cache
def store_of(site: ArchiveSite) -> tuple[ObjectStore, Layout]:
    """Opened once: tests look again and again."""
    store, layout = open_archive(config_of(site, "b:1").storage)
    return store, layout


def config_of(site: ArchiveSite, bootstrap: str, *include: str, **backup: object) -> ArchiverConfig:
    config = site.config(bootstrap, include)
    config["backup"] |= backup
    return ArchiverConfig.model_validate(config)


def test_one_run_takes_one_snapshot(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create_topic(broker_41.bootstrap, topic)
    produce_values(broker_41.bootstrap, topic, [b"v"] * 3)
    commit(broker_41, topic, ClientPartition(topic, 0, 3))
    for _ in range(2):
        run_backup(config_of(site, broker_41.bootstrap, topic, groups="snapshot"), lambda _: None)
    (fact,) = snapshot_facts(site)
    assert fact["groups"][topic] == {topic: {"0": {"offset": 3}}}


# --- the topic itself


def archived_offsets_topic(site: ArchiveSite) -> bool:
    return any(f"topics/{OFFSETS_TOPIC}/" in key for key in keys_in(site.bucket))


@pytest.mark.parametrize("groups", ["auto", "topic"])
def test_the_archived_topic_is_what_java_reads(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, groups: str
) -> None:
    broker = shared_broker()
    create_topic(broker.bootstrap, topic)
    for offset in range(20):
        commit(broker, f"group-{offset % 7}", ClientPartition(topic, 0, offset, metadata=f"m{offset}"))
    # `latest` is for records: the newest position of a group that rests is an old one.
    config = config_of(site, broker.bootstrap, topic, groups=groups, start="latest")
    found, _ = run_backup(config, lambda _: None)
    reports = found.partitions
    assert [report.error for report in reports if report.error] == []
    read = java_oracle.consume(broker.bootstrap, OFFSETS_TOPIC)
    archived = read_partitions(site.bucket, OFFSETS_TOPIC)
    assert sum(map(len, read.records.values())) >= 20
    assert {nr: rows for nr, rows in archived.items() if rows} == {
        nr: rows for nr, rows in read.records.items() if rows
    }
    assert snapshot_facts(site) == []


def deny(kind: ResourceType, name: str, operation: AclOperation) -> Sequence[AclBinding]:
    """Of this thing alone; one that has any rule needs another that allows the rest."""
    everything = (kind, name, ResourcePatternType.LITERAL)
    return [
        AclBinding(*everything, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY),
        AclBinding(*everything, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW),
    ]


def test_auto_goes_by_what_may_be_read(new_broker: StartBroker, topic: str, site: ArchiveSite) -> None:
    broker = new_broker(**AUTHORIZER)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    rules = [
        *deny(ResourceType.TOPIC, OFFSETS_TOPIC, AclOperation.READ),
        *deny(ResourceType.GROUP, "secret", AclOperation.DESCRIBE),
    ]
    create_topic(broker.bootstrap, topic)
    for group in ("known", "secret"):
        commit(broker, group, ClientPartition(topic, 0, 3))
    for future in admin.create_acls(list(rules)).values():
        future.result()
    config = service_config(site, broker.bootstrap, topic, groups="auto", **{"groups-interval": "1s"})
    with running(site, config) as instance:
        eventually(lambda: any(fact["missing"] == ["secret"] for fact in snapshot_facts(site)))
        fact = snapshot_facts(site)[-1]
        assert fact["groups"]["known"] == {topic: {"0": {"offset": 3}}}
        assert "secret" not in fact["groups"]
        assert not archived_offsets_topic(site)

        every_rule = (AclOperation.ANY, AclPermissionType.ANY)
        of_topic = AclBindingFilter(
            ResourceType.TOPIC,
            OFFSETS_TOPIC,
            ResourcePatternType.LITERAL,
            cast("str", None),
            cast("str", None),
            *every_rule,
        )
        for future in admin.delete_acls([of_topic]).values():
            future.result()
        eventually(lambda: archived_offsets_topic(site))
        eventually(lambda: f"archived with {OFFSETS_TOPIC}" in instance.log)
        assert instance.log.count("positions of group secret could not be read") == 1
        count = len(snapshot_facts(site))
        commit(broker, "known", ClientPartition(topic, 0, 4))
        puts = instance.total("archiver_puts_total", topic=OFFSETS_TOPIC)
        eventually(lambda: instance.total("archiver_puts_total", topic=OFFSETS_TOPIC) > puts + 1)
        assert len(snapshot_facts(site)) == count  # one way or the other
        assert instance.stop() == 0
