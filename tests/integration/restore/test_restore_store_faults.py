"""A store that fails for some objects longer than its client tries: they are asked for again, and nothing else is."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import archiver.restore.fill.partition_restore
import archiver.restore.fill.repartition_source
from archiver.archive.format.handle import Archive, archive_of
from archiver.archive.restores.finished_restores import REPARTITION
from archiver.config.model import StorageConfig
from archiver.restore.plan.request import Existing
from archiver.store.patient import PatientStore
from tests.support.brokers import Broker, GivenS3
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.foreign_reader import keys_in
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import archived, foreign_topic, on_target, records_of, restored, write

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

OBJECTS = 80
FAILURES = 6  # botocore gives up after 4
LONG_FAILURES = 5  # so that it is asked for once more, which fails, too
every_way = pytest.mark.parametrize("asked", [{}, {"repartition": 1}], ids=["plain", "repartition"])


@pytest.fixture
def proxy(site: ArchiveSite) -> Iterator[FaultyS3]:
    with FaultyS3(site.bucket.s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(site: ArchiveSite, proxy: FaultyS3) -> ArchiveSite:
    s3 = site.bucket.s3
    given = GivenS3(endpoint=proxy.endpoint, access_key=s3.access_key, secret_key=s3.secret_key)
    return replace(site, bucket=replace(site.bucket, s3=given))


@pytest.fixture
def objects(broker_41: Broker, topic: str, site: ArchiveSite) -> list[str]:
    create_topic(broker_41.bootstrap, topic, 1, {"retention.ms": "-1"})
    write(broker_41, topic, records_of(OBJECTS))
    site.back_up(broker_41.bootstrap, topic, records=1)
    keys = keys_in(site.bucket, f"topics/{topic}/")
    assert len(keys) == OBJECTS
    return keys


@every_way
def test_an_object_that_does_not_come_is_asked_for_again_and_no_other(
    broker_41: Broker,
    topic: str,
    behind_proxy: ArchiveSite,
    proxy: FaultyS3,
    objects: list[str],
    java_oracle: JavaOracle,
    asked: dict[str, int],
) -> None:
    moody = {objects[50]: FAILURES}
    proxy.fail_gets(moody)
    report = restored(behind_proxy, broker_41, topic, batch_bytes=300, **asked)
    assert (report.errors, report.records) == ((), OBJECTS)
    assert on_target(java_oracle, broker_41, f"{topic}.back") == {0: records_of(OBJECTS)}
    assert {key: proxy.gets[key] for key in objects} == {key: 1 + moody.get(key, 0) for key in objects}


@every_way
def test_a_store_that_stays_away_is_what_the_restore_tells_of(
    broker_41: Broker,
    topic: str,
    behind_proxy: ArchiveSite,
    proxy: FaultyS3,
    objects: list[str],
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, int],
) -> None:
    def hasty(storage: StorageConfig) -> Archive:
        archive = archive_of(storage)
        return archive._replace(store=PatientStore(archive.store, patience_s=0.6))

    for module in (archiver.restore.fill.partition_restore, archiver.restore.fill.repartition_source):
        monkeypatch.setattr(module, "patient_archive_of", hasty)
    proxy.fail_gets({objects[50]: 10**6})
    report: Any = restored(behind_proxy, broker_41, topic, batch_bytes=300, **asked)
    said = [one.error for one in report.partitions if one.error]
    assert [one.exit_code for one in report.partitions] == [4]
    assert f"{objects[50]}: " in said[0]
    assert "InternalError" in said[0]
    assert "another run" not in said[0]
    assert {proxy.gets[key] for key in objects[:50]} == {1}


@pytest.mark.parametrize("note", ["replaced", "plan", "finished"])
def test_a_purged_topic_is_made_anew_when_a_note_is_refused_for_a_while(
    broker_41: Broker, topic: str, behind_proxy: ArchiveSite, proxy: FaultyS3, java_oracle: JavaOracle, note: str
) -> None:
    written = archived(broker_41, topic, behind_proxy, records_of(10))
    foreign_topic(broker_41, f"{topic}.back", 7)
    with proxy.failing(Fault.SLOW_DOWN, "PUT", LONG_FAILURES, naming=f"/{note}/"):
        report = restored(behind_proxy, broker_41, topic, existing=Existing.PURGE)
        assert proxy.requests["PUT"] > LONG_FAILURES
    assert (report.errors, report.is_finished) == ((), True)
    assert on_target(java_oracle, broker_41, f"{topic}.back") == written


@pytest.mark.parametrize("number", ["000000", "000001"], ids=["claimed", "verified"])
def test_the_claim_on_a_topic_that_is_dealt_out_is_noted_when_it_is_refused_for_a_while(
    broker_41: Broker, topic: str, behind_proxy: ArchiveSite, proxy: FaultyS3, number: str
) -> None:
    archived(broker_41, topic, behind_proxy, records_of(10))
    with proxy.failing(Fault.SLOW_DOWN, "PUT", LONG_FAILURES, naming=f"/{REPARTITION}/{number}"):
        report = restored(behind_proxy, broker_41, topic, repartition=2)
        assert proxy.requests["PUT"] > LONG_FAILURES
    assert (report.errors, report.is_finished) == ((), True)


def test_a_claim_that_cannot_be_noted_is_told_of_its_topic_and_the_others_are_finished(
    broker_41: Broker, topic: str, behind_proxy: ArchiveSite, proxy: FaultyS3
) -> None:
    names = [f"{topic}.a", f"{topic}.z"]
    for name in names:
        archived(broker_41, name, behind_proxy, records_of(10), records_of(5))

    def restore() -> list[tuple[bool, list[tuple[int, str]]]]:
        renames = [f"{name}={name}.back" for name in names]
        found = behind_proxy.restore(broker_41.bootstrap, topics=rf"{topic}\..*", rename=renames, repartition=3)
        assert {sum(one.records for one in report.target_partitions) for report in found.topics} == {15}
        return [
            (report.is_finished, [(one.exit_code, one.error.partition("PutObject")[2]) for one in report.errors])
            for report in found.topics
        ]

    with proxy.failing(Fault.DENIED, "PUT", naming=f"{names[0]}.back/{REPARTITION}/000001"):
        (is_finished, errors), other = restore()
    assert (is_finished, [code for code, _ in errors]) == (False, [1, 1])
    assert all("was denied" in said for _, said in errors)
    assert other == (True, [])
    assert restore() == [(True, [])] * 2
