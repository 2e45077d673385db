"""What a sweep takes besides records, beside a real broker and store: the archive stays whole, and restores what it restored before."""

import time

import pytest

from archiver.archive.format.handle import Archive, open_archive
from archiver.config.model import ArchiverConfig
from archiver.spark.retention import run_retention
from archiver.upkeep.object_check import Level
from archiver.upkeep.retention.sweeping.debris import DebrisKind
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

DAY_MS = 24 * 3600 * 1000
RECORDS = 12


def config_of(site: ArchiveSite, bootstrap: str, topic: str) -> ArchiverConfig:
    config = site.config(bootstrap, [topic])
    config |= {"retention": {"grace": 0, "min-object-age": 0, "groups": "1ms"}, "restores": {"keep": 0}}
    return ArchiverConfig.model_validate(config)


def sweep(site: ArchiveSite, bootstrap: str, topic: str, *, is_dry_run: bool = False, digest: str = "") -> SweepResult:
    return run_retention(config_of(site, bootstrap, topic), SweepRequest(is_dry_run=is_dry_run, digest=digest))


def keys(archive: Archive, below: str) -> list[str]:
    return [item.key for item in archive.store.list(below)]


def test_a_sweep_of_debris(broker: Broker, topic: str, site: ArchiveSite) -> None:
    create_topic(broker.bootstrap, topic, configs={"retention.ms": str(20 * DAY_MS)})
    producer = producer_of(broker.bootstrap, **{"linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"v%d" % number)
        assert producer.flush(30) == 0
    site.back_up_with(broker.bootstrap, topic, groups="snapshot", segment={"records": 3})
    archive = open_archive(config_of(site, broker.bootstrap, topic).storage)
    first = site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.first"], restore_id="first")
    assert first.failure is None
    assert keys(archive, "control/restores/first/")
    assert site.verify(broker.bootstrap, [topic], Level.RECORDS).is_whole
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young

    shown = sweep(site, broker.bootstrap, topic, is_dry_run=True)
    assert [one.stream for one in shown.debris.going] == ["restores/first"]
    assert keys(archive, "control/restores/first/")
    second = site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.second"], restore_id="second")
    assert second.failure is None
    time.sleep(1.1)
    noted = sweep(site, broker.bootstrap, topic, digest=shown.digest)
    assert noted.is_complete
    assert noted.debris_swept.groups == {DebrisKind.RESTORE: 1}
    assert keys(archive, "control/restores/first/") == []
    assert noted.not_planned == len(keys(archive, "control/restores/second/")) > 0  # nobody was shown that it goes
    assert len(keys(archive, "control/group-positions/")) == 1  # the newest
    assert sweep(site, broker.bootstrap, topic).is_complete

    for _ in range(2):  # also after a backup has written the index
        found = site.verify(broker.bootstrap, [topic], Level.RECORDS, against_kafka=True)
        assert found.problems == []
        assert found.is_whole
        assert not any("control/restores/" in one for one in found.notes)
        site.back_up_with(broker.bootstrap, topic, groups="snapshot")
    again = site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.again"], restore_id="first")
    assert (again.failure, [one.records for one in again.topics]) == (None, [RECORDS])
    assert site.verify(broker.bootstrap, [topic]).is_whole
    archive.store.delete([key for key in keys(archive, "control/restores/first/") if "/plan/" in key])
    assert not site.verify(broker.bootstrap, [topic]).is_whole
