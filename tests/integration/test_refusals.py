"""What could stop a restore is asked before it changes anything, and its dry run says so."""

import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import archiver.spark.targets
from archiver.config import ArchiverConfig, TargetConfig
from archiver.errors import ArchiverError
from archiver.job import RestorePreview, preview_restore
from archiver.kafka.client import KafkaClient
from archiver.kafka.deletion import delete_topics_by_id
from archiver.restore_request import Existing, RestoreRequest
from archiver.sandbox import fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41, Broker, StartBroker
from tests.support.foreign_reader import keys_in
from tests.support.kafka_topics import create_topic, with_client
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import archived, log_of, records_of, restored, set_configs, write
from tests.support.zookeeper import StartZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

KEPT = {"retention.ms": "-1"}
WAYS: dict[str, dict[str, Any]] = {
    "new": {},
    "purged": {"existing": Existing.PURGE},
    "dealt": {"repartition": 3},
    "empty": {},
    "behind": {"existing": Existing.APPEND},
}


def stand(broker: Broker, topic: str, way: str, **configs: str) -> None:
    """What is there before the restore comes; `configs` are set on it, with _ for a dot."""
    if way in {"new", "dealt"}:
        return
    create_topic(broker.bootstrap, topic, 1, KEPT | {name.replace("_", "."): value for name, value in configs.items()})
    if way != "empty":
        write(broker, topic, records_of(7, mark=b"theirs"))


def preview(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> RestorePreview:  # noqa: ANN401
    storage = ArchiverConfig.model_validate(site.config(broker.bootstrap, ())).storage
    request = RestoreRequest(topics=topic, renames={topic: f"{topic}.back"}, **asked)
    target = TargetConfig(kafka={"bootstrap.servers": broker.bootstrap})
    return preview_restore(storage, target, request, restore_id=None)


def there(broker: Broker, topic: str) -> tuple[str, tuple[int, int]] | None:
    """Which topic it is, and what it holds."""
    found = with_client(broker.bootstrap, lambda client: client.describe_topics([topic]))
    return (found[topic].topic_id, log_of(broker, topic)) if topic in found else None


def refused(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> str:  # noqa: ANN401
    """What is said about it, by a dry run as well; and nothing is changed."""
    before = there(broker, f"{topic}.back")
    foretold = preview(site, broker, topic, **asked).refused
    with pytest.raises(ArchiverError) as caught:
        restored(site, broker, topic, **asked)
    assert [str(caught.value)] == list(foretold)
    assert keys_in(site.bucket, "control/restores/") == []
    assert there(broker, f"{topic}.back") == before
    return str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_more_replicas_in_sync_are_wanted_than_there_are(
    broker_41: Broker, new_zookeeper_broker: StartZooKeeperBroker, topic: str, site: ArchiveSite, way: str
) -> None:
    """By the cluster's default, or the topic's own; what is said helps."""
    archived(broker_41, topic, site, records_of(20))
    target = new_zookeeper_broker(**{"min.insync.replicas": "2"})
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


@pytest.mark.parametrize("way", ["new", "purged", "behind"])
def test_newer_brokers_want_no_more_in_sync_than_there_are(
    broker_41: Broker, new_broker: StartBroker, topic: str, site: ArchiveSite, way: str
) -> None:
    archived(broker_41, topic, site, records_of(20))
    target = new_broker(**{"min.insync.replicas": "2"})
    stand(target, f"{topic}.back", way)
    assert restored(site, target, topic, **WAYS[way]).records == 20


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
        f"--bootstrap-server {broker.bootstrap} --alter --add-config controller_mutation_rate=5 --entity-type clients"
    )
    java = ["java", "-cp", f"{fetch_kafka(KAFKA_41, CACHE)}/*", "kafka.admin.ConfigCommand", *quota.split()]
    subprocess.run([*java, "--entity-default"], capture_output=True, timeout=60, check=True)
    missing: list[int] = []

    async def watched(client: KafkaClient, topic_ids: Mapping[str, str], tell: Callable[[str], None]) -> None:
        targets = {f"{name}.back" for name in names}
        missing.append(len(targets - (await client.describe_topics(targets)).keys()))
        await delete_topics_by_id(client, topic_ids, tell)

    monkeypatch.setattr(archiver.spark.targets, "delete_topics_by_id", watched)
    topics = site.restore(
        broker.bootstrap, topics=rf"{topic}\.\d\d", patterns=((r"(.*)", r"\1.back"),), existing=Existing.PURGE
    ).topics
    assert [(one.records, one.errors) for one in topics] == [(3, ())] * 10
    assert missing == [0, 0]
