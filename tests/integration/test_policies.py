"""The bucket policies of `infra/policies/`, in force at a real store: each role does its work, and no other's."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.archive.format.control import encode_fact
from archiver.archive.format.handle import Archive, open_archive
from archiver.backup.service.run_backup import run_backup
from archiver.backup.service.until_end import BackupReport
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.errors import NotWholeError, StoreError
from archiver.restore.plan.request import RestoreRequest, parse_renames
from archiver.spark.drill import run_drill
from archiver.spark.restore import run_restore_job
from archiver.spark.retention import run_retention
from archiver.store import shared
from archiver.store.port import ObjectKind
from archiver.upkeep.copying import copy_archive
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from tests.support.brokers import KAFKA_41, REPOSITORY, Bucket, StartBroker
from tests.support.kafka_topics import create_topic, produce_values, producer_of
from tests.support.rights_stage import FINISHED_RESTORE, acting
from tests.support.round_trip import ArchiveSite
from tests.support.segments import put_stray
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

PREFIX = "kafka"
SECOND = "second"
OLD_MS = 10 * 24 * 3600 * 1000
YESTERDAY = str((datetime.now(UTC) - timedelta(days=1)).date())


@contextmanager
def as_role(bucket: Bucket, role: str) -> Iterator[None]:
    text = (REPOSITORY / "infra" / "policies" / f"{role}.json").read_text(encoding="utf-8")
    text = text.replace("BUCKET", bucket.name).replace("PREFIX", PREFIX)
    text = text.replace("ARCHIVE", SECOND).replace("SECOND", bucket.name)
    policy: Mapping[str, Any] = json.loads(text)
    shared._open_once.cache_clear()  # it has the credentials of the role before
    with acting(bucket, policy["Statement"]):
        yield
    shared._open_once.cache_clear()


def may_delete(archive: Archive, key: str) -> bool:
    return not archive.store.delete_each([key])


def may_put(archive: Archive, key: str) -> bool:
    try:
        archive.store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT)
    except StoreError:
        return False
    return True


def who_puts() -> Mapping[str, frozenset[str]]:
    """Return the roles of each stream, as docs/security.md tells."""
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:topics|compacted|control/[a-z-]+)/)` \| ([^|]+) \|", page, re.MULTILINE)
    return {prefix: frozenset(roles.split(", ")) for prefix, roles in rows}


def streams_of(own: Archive, archive: Archive) -> frozenset[str]:
    """Where the user of `own` may put something; `archive` deletes it again."""
    found = frozenset(prefix for prefix in who_puts() if may_put(own, f"{PREFIX}/{prefix}x"))
    assert not archive.store.delete_each([f"{PREFIX}/{prefix}x" for prefix in found])
    return found


def streams_by(role: str) -> frozenset[str]:
    return frozenset(prefix for prefix, roles in who_puts().items() if role in roles)


def put_debris(archive: Archive) -> None:
    """A finished restore, and two days of snapshots. Only of the second one all was put on its day."""
    facts = {f"restores/old/t/{name}": fact for name, fact in FINISHED_RESTORE.items()}
    for day in ("2020-01-01", YESTERDAY):
        snapshot = {"format": 1, "time_ms": 1_577_836_800_000, "groups": {}, "missing": []}
        facts[f"group-positions/{day}"] = snapshot
    for stream, fact in facts.items():
        key = archive.layout.fact_key(stream, 0)
        archive.store.put_if_absent(key, encode_fact(fact), {}, kind=ObjectKind.FACT)


def assert_drill_and_copy(config: ArchiverConfig, site: ArchiveSite, bootstrap: str, topic: str) -> None:
    archive = open_archive(config.storage)
    (segment,) = (item.key for item in archive.store.list(f"{PREFIX}/topics/{topic}/"))
    with as_role(site.bucket, "drill"):
        drill = run_drill(config, TargetConfig(kafka={"bootstrap.servers": bootstrap}), topics=topic)
        assert (drill.problems, drill.topics[topic]["records"]) == ({}, 1)
        own = open_archive(config.storage)
        assert streams_of(own, archive) == streams_by("drill")
        assert not any(may_delete(own, key) for key in (segment, f"{PREFIX}/control/restores/back/x"))
    with as_role(site.bucket, "copy"):
        storage = config.storage.model_copy(update={"url": f"{site.bucket.url}/{SECOND}"})
        own, second = open_archive(config.storage), open_archive(storage)
        copied = copy_archive(own, second)
        assert (copied.problems, copied.objects > 0) == ([], True)
        assert not streams_of(own, archive)
        assert not any(may_delete(one, key) for one in (own, second) for key in (segment, f"{SECOND}/control/x"))


def test_each_role_does_its_work_and_no_others(new_broker: StartBroker, site: ArchiveSite, topic: str) -> None:
    broker = new_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, configs={"retention.ms": "-1"})
    producer, old_ms = producer_of(broker.bootstrap, **{"linger.ms": 0}), time.time_ns() // 1_000_000 - OLD_MS
    for number in range(4):
        producer.produce(topic, b"old", timestamp=old_ms + number)
        assert producer.flush(30) == 0
    tree = site.config(broker.bootstrap, [topic], records=1)
    tree |= {"storage": {**tree["storage"], "url": f"{site.bucket.url}/{PREFIX}"}}
    config = ArchiverConfig.model_validate(
        tree | {"retention": {"grace": 0, "min-object-age": 0, "groups": "1ms"}, "restores": {"keep": 0}}
    )
    archive = open_archive(config.storage)

    def segments() -> list[str]:
        return [item.key for item in archive.store.list(f"{PREFIX}/topics/{topic}/")]

    with as_role(site.bucket, "backup"):
        found, _ = run_backup(config, lambda _: None)
        assert [one.error for one in found.partitions] == [None]
        own = open_archive(config.storage)
        assert not any(may_delete(own, key) for key in (segments()[0], f"{PREFIX}/compacted/x", f"{PREFIX}/control/x"))
        assert streams_of(own, archive) == streams_by("backup")
    put_debris(archive)
    admin, where = AdminClient({"bootstrap.servers": broker.bootstrap}), TopicPartition(topic, 0, 3)
    admin.delete_records([where])[where].result(20)
    set_configs(broker, topic, retention_ms="3600000")  # not before: the broker would be first
    time.sleep(1.1)  # the store's clock has whole seconds, and what was put in this one is too young
    with as_role(site.bucket, "sweep"):
        assert not run_retention(config, SweepRequest()).swept
        assert run_retention(config, SweepRequest(agreed=True)).is_complete
        own = open_archive(config.storage)
        assert streams_of(own, archive) == streams_by("sweep")
        assert not any(
            may_delete(own, f"{PREFIX}/{key}")
            for key in ("compacted/x", "control/topics/x", "control/holds/x", "control/group-folds/x")
        )
    assert len(segments()) == 1
    left = [item.key.removeprefix(f"{PREFIX}/control/") for item in archive.store.list(f"{PREFIX}/control/")]
    assert [key for key in left if key.startswith(("restores/", "group-positions/"))] == [
        f"group-positions/{YESTERDAY}/000000.json"
    ]
    with as_role(site.bucket, "restore"):
        done = run_restore_job(
            config.storage,
            TargetConfig(kafka={"bootstrap.servers": broker.bootstrap}),
            RestoreRequest(topics=topic, renames=parse_renames([f"{topic}={topic}.back"])),
            restore_id="back",
            notice=lambda _: None,
        )
        assert (done.failure, [one.records for one in done.topics]) == (None, [1])
        own = open_archive(config.storage)
        assert not may_delete(own, segments()[0])
        assert streams_of(own, archive) == streams_by("restore")
    assert_drill_and_copy(config, site, broker.bootstrap, topic)
    with as_role(site.bucket, "compacted"):
        own = open_archive(config.storage)
        assert may_delete(own, f"{PREFIX}/compacted/x")
        assert streams_of(own, archive) == streams_by("compacted")
        assert not may_delete(own, segments()[0])


def test_no_stray_object_has_records_skipped_that_kafka_has(
    new_broker: StartBroker, site: ArchiveSite, topic: str
) -> None:
    broker, half = new_broker(KAFKA_41), [b"value"] * 50
    create_topic(broker.bootstrap, topic, 2)
    tree = site.config(broker.bootstrap, [topic])
    tree |= {"storage": {**tree["storage"], "url": f"{site.bucket.url}/{PREFIX}"}}
    config = ArchiverConfig.model_validate(tree)
    archive = open_archive(config.storage)

    def back_up() -> BackupReport:
        for partition in range(2):
            produce_values(broker.bootstrap, topic, half, partition)
        with as_role(site.bucket, "backup"):
            return run_backup(config, lambda _: None)[0]

    def told(report: BackupReport, partition: int = 0) -> tuple[int, int, int, int]:
        """What was archived of a partition: the life, from where to where, and how many records."""
        one = next(one for one in report.partitions if one.source.partition == partition)
        return one.source.life, one.from_offset, one.position, one.written.records

    assert not back_up().errors
    far = put_stray(archive, topic, 5000, 5001)  # it does not join
    found = back_up()
    (error,) = found.errors
    assert isinstance(error, NotWholeError)
    assert f"{far}: the newest object begins at offset 5000, and the objects before it end at 50" in str(error)
    assert told(found)[3] == 0
    assert told(found, 1) == (0, 50, 100, 50)  # the other partition goes on
    assert not archive.store.delete_each([far])
    found = back_up()
    assert not found.errors
    assert told(found) == (0, 50, 150, 100)

    long = put_stray(archive, topic, 150, 5000)  # it joins, and reaches beyond the log in an epoch that has not ended
    found = back_up()
    (error,) = found.errors
    assert isinstance(error, NotWholeError)
    assert f"{long} reaches offset 5000, and the log ends at 200" in str(error)
    assert told(found) == (1, 150, 200, 50)  # what Kafka has is archived
    found = back_up()
    assert not found.errors
    assert told(found) == (1, 200, 250, 50)
