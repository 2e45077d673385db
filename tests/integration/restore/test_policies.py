"""Targets of clusters whose administrators have policies, and of brokers that write an old format: what is refused is known before anything is changed."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import archiver.restore.targets.config_agreement
import archiver.restore.targets.targets
from archiver.demo.sandbox import fetch_kafka
from archiver.restore.plan.request import Retention
from archiver.restore.report.restore_report import TopicReport
from tests.support.brokers import CACHE, KAFKA_41, Broker
from tests.support.compiled import jars_with
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_records
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import WAYS, archived, configs_of, previewed, records_of, refused
from tests.support.zookeeper import KAFKA_28, ZooKeeperBroker

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
LARGEST = 20 * 1024 * 1024
LIMITS = {
    "create.topic.policy.class.name": "Limits$Create",
    "alter.config.policy.class.name": "Limits$Alter",
    "message.max.bytes": "1048588",  # as it is by default
    "log.retention.ms": str(HOUR_MS),
}


@contextmanager
def limited(folder: Path, version: str = KAFKA_41, **limits: str) -> Iterator[KafkaBroker]:
    """A broker with policies; `limits` as `Limits.java` has them."""
    jars = jars_with("Limits", fetch_kafka(version, CACHE), CACHE, folder / f"kafka-{version}-limits")
    kind = ZooKeeperBroker if version == KAFKA_28 else KafkaBroker
    broker = kind(jars, folder / "broker", properties=LIMITS | limits)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def large_batches_refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """For changes, as managed clusters have it; a topic that is created is checked by the same policy."""
    with limited(tmp_path_factory.mktemp("alter"), **{"limits.alter.most.max.message.bytes": str(LARGEST)}) as broker:
        yield broker


@pytest.fixture(scope="module")
def few_configs_refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A topic that is created must be given one config."""
    with limited(tmp_path_factory.mktemp("must"), **{"limits.create.must": "min.insync.replicas"}) as broker:
        yield broker


@pytest.fixture(scope="module", params=[KAFKA_41, KAFKA_28])
def long_retention_refused(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Broker]:
    """When topics are created. The older broker has ZooKeeper, and asks no policy of changes then."""
    limits = {"limits.create.most.retention.ms": str(WEEK_MS), "limits.alter.never": "segment.ms"}
    with limited(tmp_path_factory.mktemp("create"), request.param, **limits) as broker:
        yield broker


def stand(broker: Broker, topic: str, way: str, **configs: str) -> None:
    """What is there before the restore comes."""
    if way in {"new", "dealt"}:
        return
    create_topic(broker.bootstrap, topic, 1, configs)
    if way != "empty":
        now_ms = time.time_ns() // 1_000_000
        produce_records(broker.bootstrap, topic, records_of(50, first_ms=now_ms))


def restored(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> TopicReport:  # noqa: ANN401
    """As a dry run has foretold it."""
    foretold = previewed(site, broker, topic, **asked)
    assert [*foretold.refused, *foretold.problems] == []
    notes = [told for told in foretold.notes if f"target topic {topic}.back goes, with" not in told]
    (report,) = site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], **asked).topics
    assert report.errors == ()
    assert report.is_finished
    assert report.finish.refusal is None
    assert notes == [f"{topic}.back: {told}" for told in report.left_out_filling]
    return report


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
def test_topic_has_the_clusters_batch_limit_where_the_largest_is_refused(
    broker_41: Broker, large_batches_refused: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, way: str
) -> None:
    """The archived limit is refused in the end, so it is left out."""
    large = Rec(50, NOW_MS + 50, 0, b"large", random.Random(3).randbytes(900_000))
    ours = archived(broker_41, topic, site, [*records_of(50), large])
    target = large_batches_refused
    standing = {"retention.ms": "-1", "max.message.bytes": str(LARGEST)} if way == "behind" else {}
    stand(target, f"{topic}.back", way, **standing)
    configs = {} if way == "behind" else {"max.message.bytes": ""}
    report = restored(site, target, topic, target_configs=configs, **WAYS[way])
    assert report.records == 51
    found = java_oracle.consume(target.bootstrap, f"{topic}.back").records
    if way == "dealt":
        keys = {record.key for rows in found.values() for record in rows}
        assert keys == {record.key for record in ours[0]}
    else:
        assert [row.without_offset() for row in found[0][-51:]] == [row.without_offset() for row in ours[0]]
        assert len(found[0]) == (101 if way == "behind" else 51)
    if way == "behind":
        assert report.left_out_filling == ()
        return
    (told,) = report.left_out_filling
    assert told.startswith(
        "the cluster refuses max.message.bytes=2147483647 (POLICY_VIOLATION (44), max.message.bytes 21"
    )
    assert told.endswith("it is filled with max.message.bytes=1048588")
    left = configs_of(target, f"{topic}.back")
    assert (left.get("max.message.bytes"), left["retention.ms"]) == (None, "-1")


@pytest.mark.parametrize("way", [pytest.param("new", marks=pytest.mark.long), "purged", "empty"])
def test_record_larger_than_the_clusters_batch_limit_is_named_before_any_change(
    broker_41: Broker, large_batches_refused: Broker, topic: str, site: ArchiveSite, way: str
) -> None:
    """A topic that somebody created with a larger limit is filled."""
    archived(broker_41, topic, site, [*records_of(5), Rec(5, NOW_MS, 0, None, bytes(3_000_000))])
    target = large_batches_refused
    stand(target, f"{topic}.back", way)
    kept = {"target_configs": {"max.message.bytes": str(LARGEST)}}
    said = refused(site, target, topic, **kept, **WAYS[way])
    assert said.startswith(f"{topic}.back: the cluster refuses max.message.bytes=2147483647 (POLICY_VIOLATION (44)")
    assert (
        "max.message.bytes=1048588 is too small for the largest record, of 3,000,000 bytes"
        f" ({topic}-0, from offset 0 to 5); create the topic first, with max.message.bytes=" in said
    )
    if way == "new":
        create_topic(target.bootstrap, f"{topic}.back", 1, {"max.message.bytes": str(LARGEST)})
        assert restored(site, target, topic, **kept).records == 6
        assert configs_of(target, f"{topic}.back")["max.message.bytes"] == str(LARGEST)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["new", "purged", "empty"])
def test_target_configs_change_only_the_finished_topic(
    broker_41: Broker, large_batches_refused: Broker, topic: str, site: ArchiveSite, way: str
) -> None:
    """By the command. A record that is older than the retention of the end is there while the topic is filled."""
    create_topic(
        broker_41.bootstrap, topic, 1, KEEP_ALL | {"delete.retention.ms": "12345678", "segment.bytes": "2000000"}
    )
    produce_records(broker_41.bootstrap, topic, records_of(20), size=50)
    site.back_up(broker_41.bootstrap, topic)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(large_batches_refused.bootstrap)
    stand(large_batches_refused, f"{topic}.back", way)
    command = ["restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back", "--format", "json"]
    command += ["--purge-target"] if way == "purged" else []
    wanted = {"cleanup.policy": "compact", "retention.ms": str(WEEK_MS), "max.message.bytes": str(LARGEST)}
    command += [word for name in wanted for word in ("--target-config", f"{name}={wanted[name]}")]
    done = site.run_within(*command, "--target-config", "segment.bytes=")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["topics"]
    assert (told["records"], told["is_finished"], told["expiring"]) == (20, True, {"at_least": 0, "at_most": 0})
    assert "retention.bytes" in told["retention_command"]
    own = configs_of(large_batches_refused, f"{topic}.back")
    assert own | wanted == own
    assert own["delete.retention.ms"] == "12345678"
    assert "segment.bytes" not in own


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["new", "purged", "dealt"])
def test_what_would_expire_is_told_and_the_largest_retention_is_taken_when_asked(
    broker_41: Broker, long_retention_refused: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, way: str
) -> None:
    """The cluster's own is an hour; a week may be set."""
    now_ms = time.time_ns() // 1_000_000
    ours = archived(
        broker_41, topic, site, [*records_of(40, first_ms=now_ms - 2 * HOUR_MS), *records_of(10, first_ms=now_ms)]
    )
    target = long_retention_refused
    stand(target, f"{topic}.back", way)
    said = refused(site, target, topic, **WAYS[way])
    assert said.startswith(
        f"{topic}.back: the cluster refuses retention.ms=-1 (POLICY_VIOLATION (44), retention.ms -1 is"
    )
    assert f"retention.ms={HOUR_MS} would have the brokers delete 40 of the 50 records, which are older" in said
    assert "give --retention largest" in said
    report = restored(site, target, topic, retention=Retention.LARGEST, **WAYS[way])
    assert (report.records, report.finish.retention) == (50, f"retention.ms={WEEK_MS}")
    assert report.left_out_filling[0].endswith(f"it is filled with retention.ms={WEEK_MS}")
    assert configs_of(target, f"{topic}.back")["retention.ms"] == str(WEEK_MS)
    if way != "dealt":
        found = java_oracle.consume(target.bootstrap, f"{topic}.back").records
        assert [row.without_offset() for row in found[0]] == [row.without_offset() for row in ours[0]]


def test_archived_retention_is_had_in_the_end_and_the_largest_until_then(
    broker_41: Broker, long_retention_refused: Broker, topic: str, site: ArchiveSite
) -> None:
    """Records that it deletes in the end are there until they were read back."""
    now_ms = time.time_ns() // 1_000_000
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL | {"retention.ms": str(5 * HOUR_MS)})
    produce_records(broker_41.bootstrap, topic, records_of(20, first_ms=now_ms - 3 * HOUR_MS))
    site.back_up(broker_41.bootstrap, topic)
    report = restored(site, long_retention_refused, topic, retention=Retention.ARCHIVED)
    assert (report.records, report.finish.retention) == (20, f"retention.ms={5 * HOUR_MS},retention.bytes=-1")
    assert report.left_out_filling[0].endswith(f"it is filled with retention.ms={WEEK_MS}")


@pytest.mark.parametrize("way", ["new", "purged"])
def test_a_config_that_a_policy_demands_is_had_from_who_creates_the_topic(
    broker_41: Broker, few_configs_refused: Broker, topic: str, site: ArchiveSite, way: str
) -> None:
    """The archive has it; but whatever a topic is filled with, it is not among that. What is said helps."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL | {"min.insync.replicas": "1"})
    produce_records(broker_41.bootstrap, topic, records_of(20), size=50)
    site.back_up(broker_41.bootstrap, topic)
    demanded = {"min.insync.replicas": "1", "retention.ms": "-1"}
    target = few_configs_refused
    stand(target, f"{topic}.back", way, **demanded)
    said = refused(site, target, topic, **WAYS[way])
    assert "POLICY_VIOLATION (44), min.insync.replicas must be given" in said
    if way == "new":
        assert "; create it yourself with what the policy demands, and run the same command again: an empty" in said
        create_topic(target.bootstrap, f"{topic}.back", 1, demanded)
        assert restored(site, target, topic).records == 20
    else:
        assert said.startswith(f"target topic {topic}.back is not purged: ")
        assert "create a topic yourself with what the policy demands, and restore into it with --rename" in said


# --- brokers that write what was before Kafka 0.11


@pytest.mark.parametrize("way", ["empty", "behind"])
def test_a_format_that_brokers_ignore_stops_nothing(
    broker_41: Broker, broker_39: Broker, topic: str, site: ArchiveSite, way: str
) -> None:
    """As it is left from the days of an older version."""
    archived(broker_41, topic, site, records_of(50))
    stand(broker_39, f"{topic}.back", way, **{"message.format.version": "0.10.2", "retention.ms": "-1"})
    assert restored(site, broker_39, topic, **WAYS[way]).records == 50


@pytest.mark.parametrize(
    "way", [pytest.param("new", marks=pytest.mark.long), "purged", pytest.param("empty", marks=pytest.mark.long)]
)
def test_configs_that_are_refused_in_the_end_refuse_the_restore(
    broker_41: Broker, tmp_path: Path, topic: str, site: ArchiveSite, way: str
) -> None:
    """In the cluster's words, and with the option that sets another value or leaves it out."""
    now_ms, month_ms = time.time_ns() // 1_000_000, 30 * 24 * HOUR_MS
    own = {"min.insync.replicas": "1", "retention.ms": str(month_ms), "segment.bytes": "2000000"}
    create_topic(broker_41.bootstrap, topic, 1, own)
    produce_records(broker_41.bootstrap, topic, records_of(20, first_ms=now_ms))
    site.back_up(broker_41.bootstrap, topic)
    limits = {"limits.alter.most.retention.ms": str(WEEK_MS), "limits.alter.never": "min.insync.replicas"}
    with limited(tmp_path, **limits) as target:
        stand(target, f"{topic}.back", way)
        asked: dict[str, Any] = {"retention": Retention.ARCHIVED, "target_configs": {}} | WAYS[way]
        for config, value, why in (
            ("min.insync.replicas", "", "min.insync.replicas may not be set"),
            ("retention.ms", str(WEEK_MS), f"retention.ms {month_ms} is not in 0..{WEEK_MS}"),
        ):
            said = refused(site, target, topic, **asked)
            assert said == (
                f"{topic}.back: the cluster refuses the configs that the topic is to have in the end (POLICY_VIOLATION (44),"
                f" {why}); give --target-config NAME=VALUE for another value, or --target-config NAME= to leave the archived"
                " one out"
            )
            asked["target_configs"] |= {config: value}
        report = restored(site, target, topic, **asked)
        left = configs_of(target, f"{topic}.back")
        assert (left["segment.bytes"], left["retention.ms"]) == ("2000000", str(WEEK_MS))
        assert "min.insync.replicas" not in left
        assert report.finish.retention == f"retention.ms={WEEK_MS},retention.bytes=-1"


def test_restore_goes_on_after_configs_were_refused_in_the_end(
    broker_41: Broker, tmp_path: Path, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records are there with the configs of the filling; the same restore with another value finishes the topic."""
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL | {"min.insync.replicas": "1"})
    produce_records(broker_41.bootstrap, topic, records_of(20), size=50)
    site.back_up(broker_41.bootstrap, topic)
    with limited(tmp_path, **{"limits.alter.never": "min.insync.replicas"}) as target:
        rename = [f"{topic}={topic}.back"]
        with monkeypatch.context() as patch:
            patch.setattr(
                archiver.restore.targets.config_agreement, "is_of_configs", lambda _: False
            )  # a policy that came later
            (report,) = site.restore(target.bootstrap, topics=topic, rename=rename).topics
        assert (report.errors, report.records, report.is_finished) == ((), 20, False)
        assert "min.insync.replicas may not be set" in str(report.finish.refusal)
        assert "give --target-config" in str(report.finish.refusal)
        assert configs_of(target, f"{topic}.back")["max.message.bytes"] == "2147483647"
        report = restored(site, target, topic, target_configs={"min.insync.replicas": ""})
        assert sum(one.already_there for one in report.partitions) == 20
        assert configs_of(target, f"{topic}.back") == KEEP_ALL | {"retention.bytes": "-1"}
