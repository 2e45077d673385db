"""Sweeps while a restore is unfinished: what its plan names stays, what it does not name goes, and the restore ends as it was planned."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from archiver.codec.selection import TopicSelection
from archiver.config.model import ArchiverConfig
from archiver.spark.retention import run_retention
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from tests.support.brokers import Broker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, delete_topic
from tests.support.real_sweeps import DAY_MS, bases, cut, produce_aged, sweep, until_swept
from tests.support.records import without_offsets
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]


class DiedError(BaseException):
    """The process was killed at a named place."""


def die_at(place: str) -> Callable[[str], None]:
    def reach(name: str) -> None:
        if name == place:
            raise DiedError

    return reach


def test_a_restore_keeps_what_it_is_to_read(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 2, KEEP_ALL | {"retention.ms": str(20 * DAY_MS)})
    for partition in range(2):
        produce_aged(bootstrap, topic, [age * DAY_MS for age in range(10, 0, -1)], partition)
    site.back_up(bootstrap, topic, records=1)
    written = java_oracle.consume(bootstrap, topic).records
    sweep(site, bootstrap, topic)
    asked: dict[str, Any] = {
        "restore_id": "mine",
        "topics": topic,
        "rename": [f"{topic}={topic}.back"],
        "wanted": TopicSelection(partitions=frozenset({0}), offsets={0: (2, 5)}),
    }
    with monkeypatch.context() as patch:
        patch.setattr("archiver.restore.plan.restore_notes.reach", die_at("plan.noted"))
        with pytest.raises(DiedError):
            site.restore(bootstrap, **asked)
    for partition in range(2):
        cut(broker_41, topic, 9, partition)
    set_configs(broker_41, topic, retention_ms=str(int(1.5 * DAY_MS)))
    until_swept(site, broker_41, topic)
    assert bases(site, topic) == [2, 3, 4, 5, 9, 9]
    assert site.verify(bootstrap, [topic]).is_whole
    assert site.restore(bootstrap, **asked).failure is None
    restored = java_oracle.consume(bootstrap, f"{topic}.back").records
    assert without_offsets(restored[0]) == without_offsets(written[0][2:6])
    until_swept(site, broker_41, topic)
    assert bases(site, topic) == [9, 9]


def test_a_restore_that_was_planned_too_long_ago_says_what_went_and_why(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It no longer keeps what it is to read (`restores.pin`). Begun anew it brings back what is left."""
    bootstrap = broker_41.bootstrap
    create_topic(bootstrap, topic, 1, KEEP_ALL)
    produce_aged(bootstrap, topic, [age * DAY_MS for age in range(5, 0, -1)])
    site.back_up(bootstrap, topic, records=1)
    asked: dict[str, Any] = {"topics": topic, "rename": [f"{topic}={topic}.back"]}
    with monkeypatch.context() as patch:
        patch.setattr("archiver.restore.plan.restore_notes.reach", die_at("plan.noted"))
        with pytest.raises(DiedError):
            site.restore(bootstrap, restore_id="old", **asked)
    cut(broker_41, topic, 4)
    set_configs(broker_41, topic, retention_ms=str(DAY_MS))  # not before: the broker would be first
    time.sleep(1.1)
    config = site.config(bootstrap, [topic]) | {
        "retention": {"grace": 0, "min-object-age": 0},
        "restores": {"pin": "1ms"},
    }
    for _ in range(2):
        run_retention(ArchiverConfig.model_validate(config), SweepRequest(agreed=True))
    assert bases(site, topic) == [4]
    failed = site.restore(bootstrap, restore_id="old", **asked)
    (error,) = [str(one.error) for topic_report in failed.topics for one in topic_report.errors]
    gone = f"topics/{topic}/partition=0/{topic}+0-{0:020d}.data"
    assert f"{gone}: was listed, and is gone: a retention sweep took all objects within the offsets 0-3" in error
    delete_topic(bootstrap, f"{topic}.back")
    assert site.restore(bootstrap, restore_id="new", **asked).failure is None
