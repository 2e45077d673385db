"""What could stop a restore is asked before it changes anything, and its dry run says so."""

import random
import subprocess
from collections.abc import Callable, Mapping

import pytest

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.restore.targets.broker_terms
import archiver.restore.targets.targets
from archiver.codec.selection import TopicSelection
from archiver.demo.sandbox import fetch_kafka
from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.topics.deletion import delete_topics_by_id
from archiver.restore.plan.request import Existing
from tests.support.brokers import CACHE, KAFKA_41, Broker, StartBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import (
    WAYS,
    archived,
    configs_of,
    previewed,
    records_of,
    refused,
    restored,
    set_configs,
    there,
    write,
)
from tests.support.zookeeper import StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

KEPT = {"retention.ms": "-1"}


def stand(broker: Broker, topic: str, way: str, **configs: str) -> None:
    """What is there before the restore comes; `configs` are set on it, with _ for a dot."""
    if way in {"new", "dealt"}:
        return
    create_topic(broker.bootstrap, topic, 1, KEPT | {name.replace("_", "."): value for name, value in configs.items()})
    if way != "empty":
        write(broker, topic, records_of(7, mark=b"theirs"))


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.long) if way in {"purged", "dealt"} else way for way in WAYS]
)
def test_more_replicas_in_sync_are_wanted_than_there_are(
    broker_41: Broker, shared_zookeeper_broker: StartZooKeeperBroker, topic: str, site: ArchiveSite, way: str
) -> None:
    """By the cluster's default, or the topic's own; what is said helps."""
    archived(broker_41, topic, site, records_of(20))
    target = shared_zookeeper_broker(**{"min.insync.replicas": "2"})
    own = {"min_insync_replicas": "1"} if way != "empty" else {}
    stand(target, f"{topic}.back", way, **own)
    if way == "behind":
        set_configs(target, f"{topic}.back", min_insync_replicas="2")
    said = refused(site, target, topic, **WAYS[way])
    assert said.startswith(f"{topic}.back: min.insync.replicas=2, and ")
    if way in {"empty", "behind"}:
        assert f"--entity-name {topic}.back --alter --add-config min.insync.replicas=1`" in said
    else:
        assert "give --replication-factor 2, or create the topic first, with min.insync.replicas=1" in said
    if way == "new":
        stand(target, f"{topic}.back", "empty", min_insync_replicas="1")
        assert restored(site, target, topic).records == 20
    if way == "behind":
        set_configs(target, f"{topic}.back", min_insync_replicas="1")
        assert restored(site, target, topic, **WAYS[way]).records == 20


@pytest.mark.parametrize(
    "way", [pytest.param("new", marks=pytest.mark.long), "purged", pytest.param("behind", marks=pytest.mark.long)]
)
def test_newer_brokers_want_no_more_in_sync_than_there_are(
    broker_41: Broker, shared_broker: StartBroker, topic: str, site: ArchiveSite, way: str
) -> None:
    archived(broker_41, topic, site, records_of(20))
    target = shared_broker(**{"min.insync.replicas": "2"})
    stand(target, f"{topic}.back", way)
    assert restored(site, target, topic, **WAYS[way]).records == 20


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "way", ["purged", "empty", *(pytest.param(way, marks=pytest.mark.long) for way in ("new", "dealt"))]
)
def test_more_in_sync_than_there_are_is_not_wanted_in_the_end(
    broker_41: Broker, shared_zookeeper_broker: StartZooKeeperBroker, topic: str, site: ArchiveSite, way: str
) -> None:
    """Of what is archived, it is left out, and told before; the topic takes records. A newer broker takes it as it is."""
    archived(broker_41, topic, site, records_of(20), min_insync_replicas="2", delete_retention_ms="12345678")
    target = shared_zookeeper_broker()
    stand(target, f"{topic}.back", way)
    told = (
        "min.insync.replicas=2 is more than the 1 replica of a partition: these brokers would take no record"
        " with acks=all; it is left out in the end"
    )
    assert previewed(site, target, topic, **WAYS[way]).notes[-1] == f"{topic}.back: {told}"
    report = restored(site, target, topic, **WAYS[way])
    assert (report.records, report.is_finished, str(report.finish.refusal)) == (20, True, f"topic {topic}.back: {told}")
    own = configs_of(target, f"{topic}.back")
    assert (own.get("min.insync.replicas"), own["delete.retention.ms"]) == (None, "12345678")
    produce_values(target.bootstrap, f"{topic}.back", [b"one more"], acks="all", message_timeout_ms=20_000)
    stand(broker_41, f"{topic}.back", way)
    assert not any("min.insync" in note for note in previewed(site, broker_41, topic, **WAYS[way]).notes)
    report = restored(site, broker_41, topic, **WAYS[way])
    assert (report.records, report.finish.refusal) == (20, None)
    assert configs_of(broker_41, f"{topic}.back")["min.insync.replicas"] == "2"


@pytest.mark.timeout(240)
def test_a_quota_of_changes_holds_a_purge_up_and_does_not_end_it(
    new_broker: StartBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers refuse a deletion that is too much. What was deleted stands again before more goes."""
    broker = new_broker(**{"controller.quota.window.num": "2"})
    names = [f"{topic}.{number:02}" for number in range(10)]
    for name in names:
        create_topic(broker.bootstrap, name, 1, KEPT)
        write(broker, name, records_of(3))
    site.back_up(broker.bootstrap, rf"{topic}\..*")
    for name in names:
        create_topic(broker.bootstrap, f"{name}.back", 5, KEPT)
        write(broker, f"{name}.back", records_of(7, mark=b"theirs"))
    quota = (
        f"--bootstrap-server {broker.bootstrap} --alter --add-config controller_mutation_rate=10 --entity-type clients"
    )
    java = ["java", "-cp", f"{fetch_kafka(KAFKA_41, CACHE)}/*", "kafka.admin.ConfigCommand", *quota.split()]
    subprocess.run([*java, "--entity-default"], capture_output=True, timeout=60, check=True)
    missing: list[int] = []

    async def watched(client: KafkaClient, topic_ids: Mapping[str, str], tell: Callable[[str], None]) -> None:
        targets = {f"{name}.back" for name in names}
        missing.append(len(targets - (await client.describe_topics(targets)).keys()))
        await delete_topics_by_id(client, topic_ids, tell)

    monkeypatch.setattr(archiver.restore.targets.targets, "delete_topics_by_id", watched)
    topics = site.restore(
        broker.bootstrap, topics=rf"{topic}\.\d\d", patterns=((r"(.*)", r"\1.back"),), existing=Existing.PURGE
    ).topics
    assert [(one.records, one.errors) for one in topics] == [(3, ())] * 10
    assert missing == [0, 0]


def test_brokers_that_delete_no_topics(shared_broker: StartBroker, topic: str, site: ArchiveSite) -> None:
    broker = shared_broker(**{"delete.topic.enable": "false"})
    archived(broker, topic, site, records_of(20))
    stand(broker, f"{topic}.back", "purged")
    said = refused(site, broker, topic, existing=Existing.PURGE)
    assert said == (
        f"target topic {topic}.back is not purged: broker 1 has delete.topic.enable=false; have it set to true, or restore"
        f" under another name with --rename {topic}=NEW"
    )


def test_a_deletion_that_brokers_refuse_unforeseen(
    shared_broker: StartBroker,
    topic: str,
    site: ArchiveSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As for a user who may not ask for the configs of brokers."""

    async def untold(*_: object) -> dict[int, Mapping[str, str]]:
        return {}

    monkeypatch.setattr(archiver.restore.targets.broker_terms, "broker_configs", untold)
    broker = shared_broker(**{"delete.topic.enable": "false"})
    archived(broker, topic, site, records_of(20))
    stand(broker, f"{topic}.back", "purged")
    before = there(broker, f"{topic}.back")
    with pytest.raises(KafkaError) as caught:
        restored(site, broker, topic, existing=Existing.PURGE)
    assert str(caught.value) == (
        f"topic {topic}.back could not be deleted: TOPIC_DELETION_DISABLED (73); the brokers have"
        " delete.topic.enable=false; set it to true, or choose another name"
    )
    assert there(broker, f"{topic}.back") == before
    assert "deleted with all its records" not in caplog.text


@pytest.mark.parametrize("way", [pytest.param("new", marks=pytest.mark.long), "purged", "behind"])
def test_requests_that_brokers_do_not_take(
    broker_41: Broker, shared_broker: StartBroker, topic: str, site: ArchiveSite, way: str
) -> None:
    """One record is larger than a request may be; of the others, fewer go together."""
    large = [Rec(at, NOW_MS + at, 0, b"k%d" % at, random.Random(at).randbytes(200_000)) for at in range(20)]
    archived(broker_41, topic, site, [*large, Rec(20, NOW_MS, 0, None, random.Random(1).randbytes(1_000_000))])
    target = shared_broker(**{"socket.request.max.bytes": "900000"})
    stand(target, f"{topic}.back", way)
    said = refused(site, target, topic, **WAYS[way])
    assert said.startswith(f"{topic}.back: broker 1 has socket.request.max.bytes=900000, and closes the connection at")
    assert "the largest record has 1,000,000 bytes; have it set to 1001" in said
    report = restored(site, target, topic, wanted=TopicSelection(offsets={0: (0, 19)}), **WAYS[way])
    assert (report.records, report.errors) == (20, ())


def test_a_request_that_is_too_large_unforeseen(
    broker_41: Broker, shared_broker: StartBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user who may not ask for the configs of brokers: these close the connection, and say nothing."""

    async def untold(*_: object) -> dict[int, Mapping[str, str]]:
        return {}

    monkeypatch.setattr(archiver.restore.targets.broker_terms, "broker_configs", untold)
    monkeypatch.setattr(archiver.restore.fill.sending, "ATTEMPTS", 4)
    archived(broker_41, topic, site, [Rec(0, NOW_MS, 0, None, random.Random(1).randbytes(1_000_000))])
    target = shared_broker(**{"socket.request.max.bytes": "900000"})
    (report,) = restored(site, target, topic).errors
    assert "the connection was closed at each of 4 requests with a batch of 1,000," in report.error
    assert "raise socket.request.max.bytes of the brokers" in report.error
