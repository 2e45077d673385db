"""Retention sweeps beside a real broker: what the broker still has is in the archive, and what was swept is no loss."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from archiver.archive.handle import Archive, open_archive
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.spark.retention import SweepRequest, SweepResult, run_retention
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

DAY_MS = 24 * 3600 * 1000


def produce_aged(bootstrap: str, topic: str, ages_ms: list[int], partition: int = 0) -> None:
    """Produce records of these ages, a batch each."""
    producer, now_ms = producer_of(bootstrap, **{"linger.ms": 0}), time.time_ns() // 1_000_000
    for age_ms in ages_ms:
        producer.produce(topic, b"v" * 100, partition=partition, timestamp=now_ms - age_ms)
        assert producer.flush(30) == 0


def cut(broker: Broker, topic: str, offset: int, partition: int = 0) -> None:
    admin, where = AdminClient({"bootstrap.servers": broker.bootstrap}), TopicPartition(topic, partition, offset)
    admin.delete_records([where])[where].result(20)


def sweep(
    site: ArchiveSite,
    bootstrap: str,
    topic: str,
    retention: Mapping[str, Any] | None = None,
    **asked: Any,  # noqa: ANN401
) -> SweepResult:
    config = site.config(bootstrap, [topic]) | {"retention": {"grace": 0, "min-object-age": 0, **(retention or {})}}
    return run_retention(ArchiverConfig.model_validate(config), SweepRequest(**asked))


def archive_of(site: ArchiveSite) -> Archive:
    return open_archive(StorageConfig(url=site.bucket.url, endpoint=site.bucket.s3.endpoint))


def bases(site: ArchiveSite, topic: str) -> list[int]:
    archive = archive_of(site)
    parsed = (archive.layout.parse_segment(item.key) for item in archive.store.list(f"topics/{topic}/"))
    return [key.base for key in parsed if key is not None]


@pytest.fixture
def aged(broker: Broker, topic: str, site: ArchiveSite) -> str:
    """Ten records, the oldest ten days old, an object for each; the broker has the last four."""
    create_topic(broker.bootstrap, topic, configs={"retention.ms": str(20 * DAY_MS)})
    produce_aged(broker.bootstrap, topic, [age * DAY_MS for age in range(10, 0, -1)])
    site.back_up(broker.bootstrap, topic, records=1)
    assert bases(site, topic) == list(range(10))
    cut(broker, topic, 6)
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("retention.ms", str(5 * DAY_MS - DAY_MS // 2), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
    return topic


def test_a_sweep(broker: Broker, aged: str, site: ArchiveSite) -> None:
    first = sweep(site, broker.bootstrap, aged)
    assert [kept.why for kept in first.plan.kept if kept.topic == aged] == [
        "what it keeps was never noted before; this run notes it, and the next one goes by it"
    ]
    second = sweep(site, broker.bootstrap, aged)
    assert [one.topic for one in second.waiting] == [aged]
    assert bases(site, aged) == list(range(10))
    shown = sweep(site, broker.bootstrap, aged, is_dry_run=True)
    assert bases(site, aged) == list(range(10))
    third = sweep(site, broker.bootstrap, aged, digest=shown.digest)
    assert third.is_complete
    assert bases(site, aged) == list(range(6, 10))
    found = site.verify(broker.bootstrap, [aged], against_kafka=True)
    assert found.is_whole
    assert f"{aged}-0: offsets 0-5 are no longer in the archive: a retention sweep took them" in found.notes
    restored = site.restore(broker.bootstrap, topics=aged, rename=[f"{aged}={aged}.back"])
    assert restored.failure is None
