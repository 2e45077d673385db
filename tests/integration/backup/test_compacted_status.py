"""The status of compacted topics, their clearing, also by force, with two instances on a real broker and a real store."""

import json
import subprocess
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.backup.compacted.clearing.clearing_rules import ClearingRules
from archiver.backup.compacted.clearing.clearing_run import ClearingReport, clear_copies
from archiver.backup.compacted.clearing.clearing_survey import ClearingSurvey
from archiver.backup.compacted.clearing.live_logs import asker_of
from archiver.config.model import StorageConfig
from archiver.kafka.login.settings import KafkaSettings
from archiver.store.s3 import S3Store
from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of
from tests.support.instances import compacted_config, holder, instance, write
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


def run(site: ArchiveSite, what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return site.run_within("compacted", what, "-c", "a.yaml", *arguments)


def status(site: ArchiveSite, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run(site, "status", "--format", "json", *arguments)
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def clear(site: ArchiveSite, bootstrap: str, topic: str) -> ClearingReport:
    archive = Archive(S3Store(StorageConfig(url=site.bucket.url, endpoint=site.bucket.s3.endpoint)), Layout())
    ask = asker_of(
        archive, KafkaSettings.parse({"bootstrap.servers": bootstrap}), lambda error: pytest.fail(str(error))
    )
    survey = ClearingSurvey(archive, ClearingRules(delay_ms=0), 0, ask)
    return clear_copies(survey, [RolePlace(topic=topic, life=0, partition=0)], 2**50)


def test_a_turn_is_told_and_its_copy_cleared(broker: Broker, site: ArchiveSite, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 1, {"cleanup.policy": "compact"})
    write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(200)})
    config = compacted_config(site, broker.bootstrap, topic, turn_s=3600.0, **{"clear.delay": "1d"})
    at_once = {**config, "compacted": {**config["compacted"], "log.backup.length.days": 1e-6}}
    with instance(site, config, "a", "--initial-role", "active"):
        eventually(lambda: holder(site, topic).startswith("a:"))
        with instance(site, at_once, "b"):
            eventually(lambda: holder(site, topic).startswith("b:"))
            code, found = status(site, "--against-kafka")
    (one,) = found["partitions"]
    assert (one["holder"]["instance"], one["replaced"]["instance"], one["is_live"]) == ("b", "a", True)
    assert (one["lag"], one["log_start"], one["log_end"]) == (0, 0, 200)
    assert [row["role"] for row in one["generations"]] == ["left", "active"]
    assert "compacted.clear.delay" in one["generations"][0]["kept"][0]
    assert {row["instance"] for row in found["instances"] if row["heard_ms"]} == {"a", "b"}
    assert (code, found["alarms"]) == (0, [])

    _delete_below(broker.bootstrap, topic, 50)
    code, found = status(site, "--against-kafka")
    assert (code, "in-question" in {alarm["kind"] for alarm in found["alarms"]}) == (3, True)
    report = clear(site, broker.bootstrap, topic)
    assert "the log begins at offset 50" in str(report.alarms)
    before = generations_of(site.bucket, topic)
    kept = run(site, "clear", f"{topic}-0", "--force")
    assert (kept.returncode, "compacted.clear.delay" in kept.stdout) == (0, True)
    now = {**config, "compacted": {**config["compacted"], "clear.delay": 0}}
    (site.folder / "now.yaml").write_text(json.dumps(now))
    number = min(before).replace(":", "/")

    def is_cleared() -> bool:
        """The store's clock has whole seconds: the delay is not surely over in the second of the switch."""
        shown = site.run_within("compacted", "clear", "-c", "now.yaml", f"{topic}-0", "--force")
        return f"{topic}-0: generation {number} was deleted by force" in shown.stdout

    eventually(is_cleared, every_s=1)
    assert list(generations_of(site.bucket, topic)) == [max(before)]
    code, found = status(site)
    assert [row["role"] for row in found["partitions"][0]["generations"]] == ["active"]


def _delete_below(bootstrap: str, topic: str, offset: int) -> None:
    """Brokers refuse that while a topic is only compacted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for policy in ("compact,delete", "compact"):
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(timeout=30)
        if "delete" in policy:
            (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
            assert deleted.result(timeout=30).low_watermark == offset
