"""Targets that a restore creates, goes behind, or replaces: what they are given, what is refused, and that nothing is lost in silence."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.restore.targets.targets
import archiver.spark.restore_job
from archiver.codec.selection import TopicSelection
from archiver.errors import TargetError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProduceAnswer, produce
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.configs import DescribeConfigsCall
from archiver.kafka.topics.deletion import delete_topics_by_id
from archiver.restore.fill.partition_restore import run_task
from archiver.restore.plan.claim_stream import ClaimStream
from archiver.restore.plan.claims import Contents, PartitionClaim
from archiver.restore.plan.request import Existing
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import FILL_CONFIGS
from archiver.restore.plan.task import RestoreTask, TaskReport
from archiver.restore.report.restore_report import TopicReport
from archiver.restore.targets.targets import TargetReview, Targets
from tests.support.brokers import Broker, StartBroker
from tests.support.cluster import broker_cluster
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, delete_topic, producer_of, settings_of, with_client
from tests.support.produce_doubles import Killed
from tests.support.records import NOW_MS, Rec
from tests.support.round_trip import KEEP_ALL, ArchiveSite, run_here
from tests.support.target_topics import (
    archived,
    behind,
    configs_of,
    foreign_topic,
    id_of,
    log_of,
    on_target,
    records_of,
    restored,
    set_configs,
    until,
    write,
)

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

# Whatever a broker does to records behind our back it does at once.
EAGER = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture(scope="module")
def eager_broker(new_module_broker: StartBroker) -> Broker:
    return new_module_broker(**EAGER)


def appended(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> TopicReport:  # noqa: ANN401
    return restored(site, broker, topic, existing=Existing.APPEND, **asked)


def refused(site: ArchiveSite, broker: Broker, topic: str, **asked: Any) -> list[str]:  # noqa: ANN401
    """What is said about it, a line each; and nothing is written."""
    before = keys_in(site.bucket, "control/restores/")
    with pytest.raises(TargetError) as caught:
        restored(site, broker, topic, **asked)
    assert caught.value.exit_code == 2
    assert keys_in(site.bucket, "control/restores/") == before
    return str(caught.value).splitlines()


# --- topics that the restore creates


@pytest.mark.timeout(120)
def test_replicas_and_configs_are_there_before_the_first_record(
    broker_41: Broker, topic: str, site: ArchiveSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each broker: it is the leader that refuses, changes or deletes."""
    archived(broker_41, topic, site, *[records_of(5)] * 4)
    told: dict[int, list[dict[str, str | None]]] = {}
    with broker_cluster(tmp_path / "two", 2) as cluster:
        broker = cluster.nodes[1]

        def look_and_run(spark: object, tasks: Sequence[RestoreTask], *_: object) -> list[TaskReport]:
            async def ask(client: KafkaClient) -> None:
                for node in (1, 2):
                    call = DescribeConfigsCall([f"{topic}.back", f"{topic}.empty"], sorted(FILL_CONFIGS))
                    told[node] = [{row.name: row.value for row in one.rows} for one in await client.send(node, call)]

            with_client(broker.bootstrap, ask)
            return run_here(spark, tasks, run_task)

        monkeypatch.setattr(archiver.spark.restore_job, "run_on_spark", look_and_run)
        create_topic(broker.bootstrap, f"{topic}.empty", 4, {"cleanup.policy": "compact", "segment.ms": "1000"})
        (problem,) = refused(site, broker, topic, replication_factor=3)
        assert problem.startswith("--replication-factor 3: only 2 brokers")
        assert restored(site, broker, topic, replication_factor=2).errors == ()
        site.restore(broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.empty"])
        held = {name: value for name, value in FILL_CONFIGS.items() if "difference" not in name}
        assert held.items() <= told[1][-1].items()
        assert told[1] == told[2]
        described = cluster.nodes[1]
        admin = KafkaAdmin(settings_of(described.bootstrap))
        found = asyncio.run(admin._describe_all([f"{topic}.back", f"{topic}.empty"]))
        assert {len(row.replicas) for row in found[f"{topic}.back"].partitions} == {2}
        assert {len(row.replicas) for row in found[f"{topic}.empty"].partitions} == {1}


# --- behind the records of others


def test_records_go_behind_those_of_others(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    ours = archived(broker, topic, site, records_of(120), [], records_of(30), compression_type="lz4")
    there = foreign_topic(broker, f"{topic}.back", 70, 0, 10, compression_type="gzip")
    before = configs_of(broker, f"{topic}.back")
    report = appended(site, broker, topic)
    assert [(one.error, one.records, one.already_there) for one in report.partitions] == [
        ("", 120, 0),
        ("", 0, 0),
        ("", 30, 0),
    ]
    assert (report.appends, report.is_finished, report.retention_command) == (True, True, "")
    assert on_target(java_oracle, broker, f"{topic}.back") == behind(there, ours)
    assert configs_of(broker, f"{topic}.back") == before
    again = appended(site, broker, topic)
    assert [one.already_there for one in again.partitions] == [120, 0, 30]
    assert on_target(java_oracle, broker, f"{topic}.back") == behind(there, ours)
    assert configs_of(broker, f"{topic}.back") == before


def test_an_open_transaction_is_refused(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    ours = archived(broker_41, topic, site, records_of(5))
    foreign_topic(broker_41, f"{topic}.back", 3)
    producer = producer_of(broker_41.bootstrap, transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"{topic}.back", b"undecided")
    assert producer.flush(30) == 0
    (problem,) = refused(site, broker_41, topic, existing=Existing.APPEND)
    assert f"{topic}.back has an open transaction in partition 0, from offset 3 on" in problem
    producer.commit_transaction(30)
    until(lambda: log_of(broker_41, f"{topic}.back") == (0, 5))  # with its marker
    report = appended(site, broker_41, topic)
    assert (report.errors, report.records) == ((), len(ours[0]))


@pytest.mark.parametrize("when", ["before the first record", "meanwhile", "at the end"])
def test_records_of_another_writer_are_noticed(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    archived(broker_41, topic, site, records_of(300))
    foreign_topic(broker_41, f"{topic}.back", 10)
    foreign = [Rec(0, NOW_MS, 0, b"s", b"later")]
    put, sent = ClaimStream.put, 0

    def put_and_intrude(self: ClaimStream[PartitionClaim, Contents], claim: PartitionClaim) -> PartitionClaim:
        found = put(self, claim)
        write(broker_41, f"{topic}.back", foreign)
        return found

    async def with_company(
        client: KafkaClient, name: str, partition: int, batch: bytes, timeout_ms: int
    ) -> ProduceAnswer:
        nonlocal sent
        sent += 1
        answer = await produce(client, name, partition, batch, timeout_ms)
        at_end = answer.base_offset + int.from_bytes(batch[57:61], "big") == 310
        if sent == 2 if when == "meanwhile" else at_end:
            await asyncio.to_thread(write, broker_41, name, foreign)
        return answer

    with monkeypatch.context() as patch:
        if when == "before the first record":
            patch.setattr(ClaimStream, "put", put_and_intrude)
        else:
            patch.setattr(archiver.restore.fill.sending, "produce", with_company)
        reports = [appended(site, broker_41, topic, batch_bytes=2000)]
    reports.append(appended(site, broker_41, topic, batch_bytes=2000))
    for report in reports:
        (wrong,) = report.errors
        assert wrong.exit_code == 3
        assert "someone else wrote" in wrong.error
        assert f"--rename {topic}=NEW" in wrong.error  # another --id is refused
        assert "--id" not in wrong.error
        assert not report.is_finished
    if when == "before the first record":
        assert log_of(broker_41, f"{topic}.back") == (0, 11)  # nothing of ours went there


# --- never a silent loss


def test_a_compacted_target_with_an_eager_cleaner(
    broker_41: Broker, eager_broker: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    ours = archived(broker_41, topic, site, records_of(400, keys=3))
    compacts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "50"}
    for name in ("back", "other"):
        create_topic(eager_broker.bootstrap, f"{topic}.{name}", 1, KEEP_ALL | compacts)
    write(eager_broker, f"{topic}.other", records_of(100, keys=3), size=10)
    (problem,) = refused(site, eager_broker, topic, existing=Existing.APPEND)
    assert "cleanup.policy=compact would drop" in problem
    # Taken empty, it is filled as if it had been made for this.
    report = restored(site, eager_broker, topic, batch_bytes=500)
    assert (report.errors, report.records) == ((), 400)

    def was_cleaned() -> bool:
        write(eager_broker, f"{topic}.other", records_of(1))
        return len(on_target(java_oracle, eager_broker, f"{topic}.other")[0]) < 100

    until(was_cleaned)
    assert on_target(java_oracle, eager_broker, f"{topic}.back") == ours


def test_retention_that_is_set_while_records_come_is_noticed(
    broker_41: Broker, eager_broker: KafkaBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(broker_41, topic, site, records_of(400))
    foreign_topic(eager_broker, f"{topic}.back", 3)
    verify = archiver.restore.fill.partition_restore._read_back

    async def wait_and_verify(*arguments: Any) -> tuple[int, int]:  # noqa: ANN401
        await asyncio.to_thread(set_configs, eager_broker, f"{topic}.back", retention_ms="60000")
        await asyncio.to_thread(until, lambda: log_of(eager_broker, f"{topic}.back")[0] > 3)
        return await verify(*arguments)

    monkeypatch.setattr(archiver.restore.fill.partition_restore, "_read_back", wait_and_verify)
    report = appended(site, eager_broker, topic)
    (wrong,) = report.errors
    assert (wrong.exit_code, "the brokers have deleted those below 4" in wrong.error) == (3, True), wrong.error
    assert "leave the records alone" in wrong.error
    assert f"--rename {topic}=NEW" in wrong.error  # another --id is refused
    assert "--id" not in wrong.error


# --- in the place of another one


def test_a_purged_target_is_made_anew(broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle) -> None:
    """Whatever it had: records, other partitions, configs of its own. A rerun leaves it alone."""
    ours = archived(broker, topic, site, records_of(120), records_of(10), cleanup_policy="compact")
    foreign_topic(broker, f"{topic}.back", 20, 20, 20, max_message_bytes="1000", segment_ms="100000")
    report = restored(site, broker, topic, existing=Existing.PURGE)
    assert (report.errors, report.appends) == ((), False)
    made = id_of(broker, f"{topic}.back")
    for _ in range(2):
        assert on_target(java_oracle, broker, f"{topic}.back") == ours
        assert configs_of(broker, f"{topic}.back") == KEEP_ALL | {
            "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"
        }  # fmt: skip
        again = restored(site, broker, topic, existing=Existing.PURGE)
        assert [one.already_there for one in again.partitions] == [120, 10]
        assert id_of(broker, f"{topic}.back") == made
    # What somebody else has put there since is not of this restore.
    delete_topic(broker.bootstrap, f"{topic}.back")
    foreign_topic(broker, f"{topic}.back", 5, 5)
    assert restored(site, broker, topic, existing=Existing.PURGE).errors == ()
    assert on_target(java_oracle, broker, f"{topic}.back") == ours


# Each effect of a restore that purges, in their order, and where it is done.
EFFECTS = [
    (RestoreNotes, "note_replaced"),
    (archiver.restore.targets.targets, "delete_topics_by_id"),
    (KafkaAdmin, "create_topics"),
    (KafkaAdmin, "alter_configs_of_topics"),
    (RestoreNotes, "note_plans"),
    (ClaimStream, "put"),
    (archiver.restore.fill.sending, "produce"),
    (ClaimStream, "note_verified"),
    (RestoreNotes, "note_finished"),
]


def deadly(effect: Callable[..., Any]) -> Callable[..., Any]:
    """The effect, which is the last one."""

    def die(*arguments: Any, **named: Any) -> None:  # noqa: ANN401
        effect(*arguments, **named)
        raise Killed

    async def die_later(*arguments: Any, **named: Any) -> None:  # noqa: ANN401
        await effect(*arguments, **named)
        raise Killed

    return die_later if asyncio.iscoroutinefunction(effect) else die


@pytest.mark.timeout(240)
def test_what_this_restore_has_filled_is_never_purged(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each of its effects, and run again with the same command."""
    ours = archived(broker_41, topic, site, records_of(60), records_of(10))
    deleted: list[str] = []

    async def watched(client: KafkaClient, topic_ids: Mapping[str, str], tell: Callable[[str], None]) -> None:
        deleted.extend(topic_ids.values())
        await delete_topics_by_id(client, topic_ids, tell)

    monkeypatch.setattr(archiver.restore.targets.targets, "delete_topics_by_id", watched)
    for number, (place, effect) in enumerate(EFFECTS):
        name = f"{topic}.{number}"
        foreign_topic(broker_41, name, 7)
        theirs = id_of(broker_41, name)
        deleted.clear()
        ask: dict[str, Any] = {"topics": topic, "rename": [f"{topic}={name}"], "existing": Existing.PURGE}
        with monkeypatch.context() as patch:
            patch.setattr(place, effect, deadly(getattr(place, effect)))
            with pytest.raises(Killed):
                site.restore(broker_41.bootstrap, batch_bytes=500, **ask)
        (report,) = site.restore(broker_41.bootstrap, batch_bytes=500, **ask).topics
        assert report.errors == (), effect
        assert set(deleted) == {theirs}, effect
        assert on_target(java_oracle, broker_41, name) == ours, effect


def test_two_runs_at_once_purge_once(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen the other one's records there."""
    ours = archived(broker_41, topic, site, records_of(300), records_of(10))
    foreign_topic(broker_41, f"{topic}.back", 7, 7)
    gate = threading.Barrier(2)
    review = Targets.review

    async def review_together(*arguments: Any) -> TargetReview:  # noqa: ANN401
        found = await review(*arguments)
        gate.wait(60)
        return found

    monkeypatch.setattr(Targets, "review", review_together)
    with ThreadPoolExecutor(2) as pool:
        reports = list(
            pool.map(lambda _: restored(site, broker_41, topic, existing=Existing.PURGE, batch_bytes=500), range(2))
        )
    assert [report.errors for report in reports] == [(), ()]
    assert on_target(java_oracle, broker_41, f"{topic}.back") == ours


def test_what_is_not_purged(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """Kafka's own topics, and those that could not be made again, or not as whole as they were."""
    archived(broker_41, topic, site, records_of(60))
    foreign_topic(broker_41, f"{topic}.back", 7)
    consumer = Consumer({"bootstrap.servers": broker_41.bootstrap, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        with pytest.raises(TargetError, match=f"^target topic {name} is Kafka's own; restore under another name"):
            site.restore(broker_41.bootstrap, rename=[f"{topic}={name}"])
    with pytest.raises(TargetError, match="__consumer_offsets is Kafka's own"):
        site.restore(broker_41.bootstrap, rename=[f"{topic}=__consumer_offsets"], existing=Existing.PURGE)
    (problem,) = refused(site, broker_41, topic, existing=Existing.PURGE, replication_factor=2)
    assert "--replication-factor 2: only 1 broker of the target cluster is up" in problem
    late = TopicSelection(from_ms=10**15)
    (problem,) = refused(site, broker_41, topic, existing=Existing.PURGE, wanted=late)
    assert f"{topic}.back is not purged: nothing of what the archive has of {topic} is asked for" in problem
    key = keys_in(site.bucket, f"topics/{topic}/")[1]
    s3_client(site.bucket).delete_object(Bucket=site.bucket.name, Key=key)
    (problem,) = refused(site, broker_41, topic, existing=Existing.PURGE)
    assert "is not purged: the archive cannot replace it" in problem
    assert "offsets 20-39 are missing" in problem
    assert log_of(broker_41, f"{topic}.back") == (0, 7)
