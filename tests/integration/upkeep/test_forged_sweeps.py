"""What nobody can make a sweep delete who may only put notes, or set a clock wrong: at a real store, with the shipped roles.

The notes are written from docs/format.md alone.
"""

import hashlib
import json
import time
from datetime import timedelta
from typing import Any

import pytest

from archiver.archive.format.handle import open_archive
from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig, TargetConfig
from archiver.errors import NotWholeError, StoreError
from archiver.restore.plan.claim_stream import ClaimStream
from archiver.restore.plan.request import RestoreRequest, parse_renames
from archiver.restore.report.restore_report import RestoreResult
from archiver.spark.restore import run_restore_job
from archiver.spark.retention import run_retention
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.integration.test_policies import PREFIX, as_role
from tests.support.brokers import Broker
from tests.support.faulty_s3 import FaultyS3
from tests.support.foreign_reader import s3_client
from tests.support.kafka_topics import create_topic
from tests.support.real_sweeps import DAY_MS, cut, produce_aged
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

TICK_S = 1.1  # the store's clock has whole seconds, and what was put in this one is too young


class Stage:
    """A live topic that keeps its records for ever, its archive, and somebody who may put objects there."""

    def __init__(self, broker: Broker, topic: str, site: ArchiveSite) -> None:
        self.broker, self.topic, self.site = broker, topic, site
        create_topic(broker.bootstrap, topic, configs=KEEP_ALL)

    def config(self, endpoint: str = "", **retention: Any) -> ArchiverConfig:  # noqa: ANN401
        tree = self.site.config(self.broker.bootstrap, [self.topic], records=1)
        storage = {"url": f"{self.site.bucket.url}/{PREFIX}", "endpoint": endpoint or tree["storage"]["endpoint"]}
        section = {"grace": 0, "min-object-age": 0, **retention}
        return ArchiverConfig.model_validate(tree | {"storage": storage, "retention": section})

    def archive(self, count: int, days: int) -> None:
        """Archive so many records of so many days ago, an object each."""
        produce_aged(self.broker.bootstrap, self.topic, [days * DAY_MS] * count)
        with as_role(self.site.bucket, "backup"):
            found, _ = run_backup(self.config(), lambda _: None)
        assert [one.error for one in found.partitions] == [None]
        time.sleep(TICK_S)

    def keep(self, days: int) -> None:
        set_configs(self.broker, self.topic, retention_ms=str(days * DAY_MS))

    def cut(self, offset: int) -> None:
        cut(self.broker, self.topic, offset)

    def sweep(self, endpoint: str = "", *, agreed: bool = False, **retention: Any) -> SweepResult:  # noqa: ANN401
        time.sleep(TICK_S)  # else what was noted in this second counts from later on
        with as_role(self.site.bucket, "sweep"):
            return run_retention(self.config(endpoint, **retention), SweepRequest(topics=self.topic, agreed=agreed))

    def restore(self) -> RestoreResult:
        with as_role(self.site.bucket, "restore"):
            return run_restore_job(
                self.config().storage,
                TargetConfig(kafka={"bootstrap.servers": self.broker.bootstrap}),
                RestoreRequest(topics=self.topic, renames=parse_renames([f"{self.topic}={self.topic}.back"])),
                restore_id="back",
                notice=lambda _: None,
            )

    def bases(self) -> list[int]:
        archive = open_archive(self.config().storage)
        keys = (archive.layout.parse_segment(item.key) for item in archive.store.list(f"{PREFIX}/topics/"))
        return [key.base for key in keys if key is not None]

    # --- with the client of the store alone

    def facts(self, stream: str) -> list[dict[str, Any]]:
        client, bucket = s3_client(self.site.bucket), self.site.bucket.name
        listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{PREFIX}/control/{stream}/").get("Contents", [])
        return [json.loads(client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()) for one in listed]

    def forge(self, stream: str, fact: dict[str, Any]) -> None:
        """Put a fact of the next number, spelled and signed as section 8 of the format tells."""
        told = {"format": 1, **{name: value for name, value in fact.items() if name != "sha256"}}
        digest = hashlib.sha256(json.dumps(told, indent=1, sort_keys=True).encode()).hexdigest()
        key = f"{PREFIX}/control/{stream}/{len(self.facts(stream)):06}.json"
        body = json.dumps({**told, "sha256": digest}, indent=1, sort_keys=True).encode()
        s3_client(self.site.bucket).put_object(Bucket=self.site.bucket.name, Key=key, Body=body)


@pytest.fixture
def stage(broker_41: Broker, topic: str, site: ArchiveSite) -> Stage:
    return Stage(broker_41, topic, site)


def deleted(result: SweepResult) -> int:
    return sum(len(one.deleted) for one in result.swept)


def test_a_life_that_is_told_to_be_another_topics_is_not_swept_as_one_that_is_gone(stage: Stage) -> None:
    stage.archive(20, days=10)
    (fact,) = stage.facts(f"topics/{stage.topic}")
    (life,) = fact["lives"]
    lives = [{**life, "topic_id": "A" * 22}, {**life, "life": 1}]
    stage.forge(f"topics/{stage.topic}", {**fact, "effective": {"cleanup.policy": "delete"}, "lives": lives})
    limits = {"topic": stage.topic, "life": 0, "whose": "gone", "ms": DAY_MS, "bytes": None, "floor_ms": 0}
    stage.forge(f"sweeps/limits/{stage.topic}/0/gone", limits)  # so that nobody is asked
    result = stage.sweep(gone=[{"topics": ".*", "ms": "1d"}])
    assert stage.bases() == list(range(20))
    (stopped,) = {one.stop for one in result.plan.kept if one.stop}
    assert f"is of topic id {life['topic_id']}, and control/topics/{stage.topic} has {'A' * 22} for its life" in stopped
    assert result.exit_code == 3


def test_short_and_long_and_short_again_asks_again(stage: Stage) -> None:
    stage.archive(5, days=10)
    stage.cut(4)
    stage.keep(days=1)
    stage.sweep()
    assert deleted(stage.sweep(agreed=True)) == 4
    stage.keep(days=365)
    stage.archive(30, days=5)
    stage.cut(34)
    assert deleted(stage.sweep()) == 0
    stage.keep(days=1)
    for _ in range(2):
        result = stage.sweep()
        assert ([one.topic for one in result.waiting], deleted(result)) == ([stage.topic], 0)
    assert len(stage.bases()) == 31
    assert deleted(stage.sweep(agreed=True)) == 30


def test_a_policy_that_says_that_it_is_older_than_it_is_skips_no_grace(stage: Stage) -> None:
    stage.archive(10, days=10)
    stage.cut(9)
    stage.keep(days=365)
    stage.sweep(grace="7d")
    (seen,) = stage.facts(f"policies/{stage.topic}")
    stage.keep(days=1)
    shorter = {**seen["effective"], "retention.ms": str(DAY_MS)}
    stage.forge(f"policies/{stage.topic}", {**seen, "effective": shorter, "since_ms": seen["since_ms"] - 9 * DAY_MS})
    assert deleted(stage.sweep(agreed=True, grace="7d")) == 0
    assert len(stage.bases()) == 10
    assert deleted(stage.sweep(agreed=True)) == 9  # without any grace


def test_a_store_or_proxy_whose_clock_is_wrong_lets_nothing_go(stage: Stage) -> None:
    stage.archive(20, days=0)
    stage.cut(19)
    stage.keep(days=30)
    stage.sweep()
    with FaultyS3(stage.site.bucket.s3.endpoint) as proxy:
        assert stage.sweep(proxy.endpoint).is_complete
        for ahead in (timedelta(days=40), timedelta(minutes=-16)):
            proxy.ahead = ahead
            with pytest.raises(
                StoreError, match=r"^the store's clock says .*, and this machine's .*: they differ by more"
            ):
                stage.sweep(proxy.endpoint, agreed=True)
    assert len(stage.bases()) == 20


def test_an_end_that_names_no_target_lets_no_sweep_take_what_a_restore_reads(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.archive(10, days=10)

    def fail(*_: object) -> None:
        raise NotWholeError("the restore ends here, with its plan noted")

    with monkeypatch.context() as patch:
        patch.setattr(ClaimStream, "put", fail)
        assert [one.is_finished for one in stage.restore().topics] == [False]
    parent = f"restores/back/{stage.topic}.back"
    (plan,) = stage.facts(f"{parent}/plan")
    assert (plan["target_cluster_id"], bool(plan["target_topic_id"])) != ("", False)
    stage.forge(f"{parent}/finished", {})
    stage.cut(9)
    stage.keep(days=1)
    stage.sweep()
    assert deleted(stage.sweep(agreed=True)) == 0
    assert len(stage.bases()) == 10
    assert [one.is_finished for one in stage.restore().topics] == [True]  # it goes on
    assert deleted(stage.sweep(agreed=True)) == 9
