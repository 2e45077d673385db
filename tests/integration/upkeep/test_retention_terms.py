"""Retention sweeps of what no policy of a live topic speaks of: topics that are gone, earlier lives, and a run that asks no cluster."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from archiver.config.model import ArchiverConfig
from archiver.errors import UsageError
from archiver.spark.retention import run_retention
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.support.brokers import Broker, StartBroker
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, producer_of, recreate_topic
from tests.support.real_sweeps import DAY_MS, archive_of, bases
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

AT_ONCE = {"grace": 0, "min-object-age": 0}
TICK_S = 1.1  # the store's clock has whole seconds, and what was put in this one is too young


def produce_aged(bootstrap: str, topic: str, ages: list[int], word: str = "days") -> None:
    """Produce records so many days old, a batch each."""
    producer, now_ms = producer_of(bootstrap, **{"linger.ms": 0}), time.time_ns() // 1_000_000
    for age in ages:
        producer.produce(topic, f"{age} {word}".encode(), key=b"%d" % age, timestamp=now_ms - age * DAY_MS)
        assert producer.flush(30) == 0


def archive_aged(site: ArchiveSite, bootstrap: str, topic: str, ages: list[int], word: str = "days") -> None:
    produce_aged(bootstrap, topic, ages, word)
    site.back_up(bootstrap, topic, records=1)
    time.sleep(TICK_S)


def sweep(
    site: ArchiveSite,
    bootstrap: str | None,
    topic: str,
    retention: dict[str, Any],
    **asked: Any,  # noqa: ANN401
) -> SweepResult:
    config = site.config(bootstrap or "", [topic]) | {"retention": AT_ONCE | retention}
    if bootstrap is None:
        del config["kafka"]
        asked["without_kafka"] = True
    return run_retention(ArchiverConfig.model_validate(config), SweepRequest(topics=topic, **asked))


def gone_after(topic: str, age: str) -> dict[str, Any]:
    return {"gone": [{"topics": topic, "ms": age}]}


def waiting(result: SweepResult) -> list[str]:
    return [one.name for one in result.waiting]


def whys(result: SweepResult) -> dict[str, str]:
    return {one.topic: one.why for one in result.plan.kept}


def restored(site: ArchiveSite, bootstrap: str, oracle: JavaOracle, topic: str, **asked: Any) -> list[str]:  # noqa: ANN401
    """What a restore brings back."""
    target = f"{topic}.back.{time.monotonic_ns()}"
    done = site.restore(bootstrap, topics=topic, rename=[f"{topic}={target}"], **asked)
    assert done.failure is None
    found = oracle.consume(bootstrap, target).records
    return [(one.value or b"").decode() for one in found.get(0, [])]


YOUNGEST = ["4 days", "3 days", "2 days", "1 days"]


def write_config(site: ArchiveSite, folder: Path, retention: dict[str, Any]) -> Path:
    path = folder / "without-kafka.yaml"
    config = {"storage": site.config("", [])["storage"], "retention": AT_ONCE | retention}
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_run_that_asks_no_cluster_goes_by_fixed_limits(
    new_broker: StartBroker, broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    """Also when there is none any more."""
    lost = new_broker()
    of_ever = f"{topic}.compacted"
    create_topic(lost.bootstrap, topic, configs={"retention.ms": str(20 * DAY_MS)})
    create_topic(lost.bootstrap, of_ever, configs={"cleanup.policy": "compact"})
    for name in (topic, of_ever):
        archive_aged(site, lost.bootstrap, name, list(range(10, 0, -1)))
    recreate_topic(lost.bootstrap, topic, configs={"retention.ms": str(20 * DAY_MS)})
    archive_aged(site, lost.bootstrap, topic, list(range(10, 0, -1)), "days again")
    lost.kill()

    fixed = {"fixed": {"ms": "24h", "segment-ms": "84h"}} | gone_after(".*", "1d")
    everything = f"{topic}.*"
    with pytest.raises(
        UsageError, match=r"^--without-kafka: the configuration does not say what topics keep; set retention"
    ):
        sweep(site, None, everything, {"gone": fixed["gone"], "floor": "1d"}, agreed=True)
    first = sweep(site, None, everything, fixed)
    assert first.plan.without_kafka
    assert whys(first) == {
        of_ever: "it keeps its records for ever",
        f"{topic}@0": "it is of a topic that was created again: only a run that asks the cluster lets that go",
    }
    assert waiting(first) == [topic]
    config = write_config(site, tmp_path, fixed)
    shown = site.run("retention", "-c", str(config), "--without-kafka", "--dry-run")
    assert "this run asked no cluster: it goes by retention.fixed" in shown.stdout
    done = site.run("retention", "-c", str(config), "--without-kafka", "--yes", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["without_kafka"]
    (row,) = told["topics"]
    assert (row["topic"], row["limits_of"], row["deleted"]) == (topic, "fixed", 6)
    assert row["limits"] == {"ms": 4 * DAY_MS + DAY_MS // 2, "bytes": None}

    assert bases(site, f"{topic}@1") == [6, 7, 8, 9]
    assert bases(site, topic) == bases(site, of_ever) == list(range(10))
    archive = archive_of(site)
    assert not list(archive.store.list(archive.layout.control_prefix("policies")))
    assert restored(site, broker_41.bootstrap, java_oracle, topic) == [f"{age} again" for age in YOUNGEST]
    assert len(restored(site, broker_41.bootstrap, java_oracle, topic, life=0)) == 10
    again = sweep(site, None, everything, fixed)
    assert (again.plan.objects, waiting(again)) == (0, [])
