"""An agreement to shorter limits ends when a sweep has seen longer ones: at a real store, with the shipped roles."""

import time

import pytest

from archiver.archive.format.handle import open_archive
from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig
from archiver.spark.retention import run_retention
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.integration.test_policies import PREFIX, as_role
from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic
from tests.support.real_sweeps import DAY_MS, cut, produce_aged
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

TICK_S = 1.1  # the store's clock has whole seconds, and what was put in this one is too young


class Stage:
    """A live topic that keeps its records for ever, and its archive."""

    def __init__(self, broker: Broker, topic: str, site: ArchiveSite) -> None:
        self.broker, self.topic, self.site = broker, topic, site
        create_topic(broker.bootstrap, topic, configs=KEEP_ALL)

    def config(self) -> ArchiverConfig:
        tree = self.site.config(self.broker.bootstrap, [self.topic], records=1)
        storage = {**tree["storage"], "url": f"{self.site.bucket.url}/{PREFIX}"}
        section = {"grace": 0, "min-object-age": 0}
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

    def sweep(self, *, agreed: bool = False) -> SweepResult:
        time.sleep(TICK_S)  # else what was noted in this second counts from later on
        with as_role(self.site.bucket, "sweep"):
            return run_retention(self.config(), SweepRequest(topics=self.topic, agreed=agreed))

    def bases(self) -> list[int]:
        archive = open_archive(self.config().storage)
        keys = (archive.layout.parse_segment(item.key) for item in archive.store.list(f"{PREFIX}/topics/"))
        return [key.base for key in keys if key is not None]


@pytest.fixture
def stage(broker_41: Broker, topic: str, site: ArchiveSite) -> Stage:
    return Stage(broker_41, topic, site)


def deleted(result: SweepResult) -> int:
    return sum(len(one.deleted) for one in result.swept)


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
