"""Restore against real brokers and a real S3: what stands on the target, whatever comes between. Kills: tests/faults/test_restore_kills.py."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import archiver.kafka.topics.admin
import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.spark.repartition
import archiver.spark.restore_job
from archiver.codec.selection import TopicSelection
from archiver.errors import KafkaError, KafkaTemporaryError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProduceAnswer, ProduceOutcome, ProducerIdentity, init_producer_id, produce
from archiver.kafka.topics.admin import KafkaAdmin, ToCreate
from archiver.kafka.topics.configs import topic_configs
from archiver.restore.fill.partition_restore import run_task
from archiver.restore.plan.request import Retention
from archiver.restore.plan.task import RestoreTask, TaskReport
from archiver.restore.report.restore_report import RestoreResult
from tests.support.brokers import Broker, StartBroker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import (
    add_partitions,
    create_topic,
    delete_topic,
    produce_values,
    settings_of,
    with_client,
)
from tests.support.produce_doubles import Killed, MortalProduce
from tests.support.raw_produce import produce_raw, produce_records
from tests.support.records import NOW_MS, Rec, generate
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, run_here

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

Partitions = dict[int, list[Rec]]
FOREVER_MS = "600000"
LONG_AGO_MS = NOW_MS - 400 * 86_400_000  # older than brokers remember producers


def fill(
    broker: Broker, topic: str, sizes: Sequence[int], configs: Mapping[str, str] = KEEP_ALL, first_ms: int = NOW_MS
) -> Partitions:
    """A topic with so many records in each partition; timestamps and values tell them apart."""
    create_topic(broker.bootstrap, topic, len(sizes), configs)
    written: Partitions = {}
    for partition, size in enumerate(sizes):
        rows = [Rec(at, first_ms + at, 0, b"k%d" % at, b"%d of %d" % (at, partition)) for at in range(size)]
        produce_records(broker.bootstrap, topic, rows, size=50, partition=partition)
        written[partition] = rows
    return written


def archived(
    broker: Broker, topic: str, site: ArchiveSite, sizes: Sequence[int], records: int = 100, first_ms: int = NOW_MS
) -> Partitions:
    written = fill(broker, topic, sizes, first_ms=first_ms)
    site.back_up(broker.bootstrap, topic, records=records)
    return written


def on_target(oracle: JavaOracle, broker: Broker, topic: str) -> Partitions:
    return dict(oracle.consume(broker.bootstrap, topic).records)


def configs_of(broker: Broker, topic: str, *, own: bool = False) -> dict[str, str]:
    found = with_client(broker.bootstrap, lambda client: topic_configs(client, topic))
    return dict(found.own if own else found.effective)


# --- what is created


def test_configs_while_it_fills_and_afterwards(
    broker: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, java_oracle: JavaOracle
) -> None:
    own = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "123456",
        "retention.ms": "86400000",
        "segment.ms": "3600000",
    }
    fill(broker, topic, [20], own)
    source = on_target(java_oracle, broker, topic)[0]
    site.back_up(broker.bootstrap, topic)
    during: dict[str, str] = {}

    def look_and_run(spark: object, tasks: Sequence[RestoreTask], *_: object) -> list[TaskReport]:
        during.update(configs_of(broker, f"{topic}.back"))
        return run_here(spark, tasks, run_task)

    monkeypatch.setattr(archiver.spark.restore_job, "run_on_spark", look_and_run)
    (restored,) = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    assert (during["cleanup.policy"], during["message.timestamp.type"]) == ("delete", "CreateTime")
    assert (during["retention.ms"], during["retention.bytes"]) == ("-1", "-1")
    after = configs_of(broker, f"{topic}.back", own=True)
    assert after == own | {"retention.ms": "-1", "retention.bytes": "-1"}
    assert f"--entity-name {topic}.back --alter --add-config retention.ms=86400000" in restored.retention_command
    assert restored.retention_command.endswith(" --delete-config retention.bytes")
    assert restored.finish.left_out == ()
    target = on_target(java_oracle, broker, f"{topic}.back")[0]
    assert target == [replace(record, timestamp_type=0) for record in source]


@pytest.mark.parametrize("where", ["key and value", "headers"])
def test_large_records_pass_where_the_broker_allows_less(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, where: str
) -> None:
    """The source topic took them by its own limit, which is small again when the backup comes."""
    content = random.Random(1).randbytes(5_000_000)
    record = (
        Rec(0, NOW_MS, 0, b"k", content)
        if where == "key and value"
        else Rec(0, NOW_MS, 0, b"", b"", ((b"h", content),))
    )
    create_topic(broker.bootstrap, topic, 1, KEEP_ALL)
    produce_raw(broker.bootstrap, topic, [encode(batch_of([record]))])
    alter = KafkaAdmin(settings_of(broker.bootstrap)).alter_topic_configs
    asyncio.run(alter(topic, set_to={"max.message.bytes": "100000"}))
    site.back_up(broker.bootstrap, topic)
    (restored,) = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    assert [one.error for one in restored.errors] == []
    assert on_target(java_oracle, broker, f"{topic}.back") == {0: [record]}


# --- what is refused


def test_what_another_one_wrote_to_a_deleted_target_is_refused(
    broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    """The claims are of a topic of that name that is gone."""
    archived(broker_41, topic, site, [20])
    rename = [f"{topic}={topic}.back"]
    site.restore(broker_41.bootstrap, rename=rename, restore_id="mine")
    asyncio.run(KafkaAdmin(settings_of(broker_41.bootstrap)).delete_topic(f"{topic}.back"))
    fill(broker_41, f"{topic}.back", [5])
    with pytest.raises(KafkaError, match=f"{topic}.back is not empty"):
        site.restore(broker_41.bootstrap, rename=rename, restore_id="mine")


# --- again, and at the same time


def test_many_topics_at_once_and_again(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of them are created, two are there already, and one of those was restored before."""
    monkeypatch.setattr(archiver.kafka.topics.admin, "_MOST_CHANGES", 40)  # several requests for all
    names = [f"{topic}.{number:02}" for number in range(12)]
    created = dict.fromkeys(names, ToCreate(2, configs=KEEP_ALL))
    assert asyncio.run(KafkaAdmin(settings_of(broker.bootstrap)).create_topics(created)) == {}
    for name in names:
        produce_values(broker.bootstrap, name, [name.encode(), b"more"], 1)
    site.back_up(broker.bootstrap, f"{topic}[.].*")
    create_topic(broker.bootstrap, f"{names[7]}.back", 2)
    site.restore(broker.bootstrap, topics=names[3], rename=[f"{names[3]}={names[3]}.back"], restore_id="mine")
    changed = {"retention.ms": "86400000"}
    asyncio.run(KafkaAdmin(settings_of(broker.bootstrap)).alter_topic_configs(f"{names[3]}.back", set_to=changed))

    renames = [f"{name}={name}.back" for name in names]
    for already_there in ([names[3]], names):
        result = site.restore(broker.bootstrap, topics=rf"{topic}\..*", rename=renames, restore_id="mine")
        assert [(one.source, one.target, one.errors, one.is_finished) for one in result.topics] == [
            (name, f"{name}.back", (), True) for name in names
        ]
        assert [one.source for one in result.topics if one.partitions[1].already_there] == already_there
    for name in (names[0], names[3], names[7], names[11]):
        assert on_target(java_oracle, broker, f"{name}.back") == on_target(java_oracle, broker, name)
    for name in names:
        kept = changed if name == names[3] else {"retention.ms": "-1"}
        assert configs_of(broker, f"{name}.back", own=True) == KEEP_ALL | {"retention.bytes": "-1"} | kept


def test_the_same_command_again_adds_nothing(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    written = archived(broker, topic, site, [300, 0, 20])
    rename = [f"{topic}={topic}.back"]
    first = site.restore(broker.bootstrap, rename=rename)
    again = site.restore(broker.bootstrap, rename=rename)
    assert first.restore_id == again.restore_id
    assert [one.already_there for one in first.topics[0].partitions] == [0, 0, 0]
    assert [one.already_there for one in again.topics[0].partitions] == [300, 0, 20]
    assert [one.digest for one in first.topics[0].partitions] == [one.digest for one in again.topics[0].partitions]
    assert on_target(java_oracle, broker, f"{topic}.back") == written


def test_a_target_is_compared_again_when_asked(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    archived(broker_41, topic, site, [120])
    rename = [f"{topic}={topic}.back"]
    (first,) = site.restore(broker_41.bootstrap, rename=rename).topics[0].partitions
    assert first.target_digest == first.digest != 0
    assert first.bytes == sum(
        len(row.key or b"") + len(row.value or b"") for row in archive_rows(java_oracle, broker_41, topic)
    )
    produce_values(broker_41.bootstrap, f"{topic}.back", [b"lives on"])
    (again,) = site.restore(broker_41.bootstrap, rename=rename, reads_again=True).topics[0].partitions
    assert (again.error, again.target_digest, again.already_there) == ("", first.digest, 120)
    (untouched,) = site.restore(broker_41.bootstrap, rename=rename).topics[0].partitions
    assert (untouched.target_digest, untouched.bytes) == (None, first.bytes)
    client = AdminClient({"bootstrap.servers": broker_41.bootstrap})
    for deleted in client.delete_records([TopicPartition(f"{topic}.back", 0, 1)]).values():
        deleted.result(30)
    (told,) = site.restore(broker_41.bootstrap, rename=rename, reads_again=True).topics
    (changed,) = told.partitions
    deleted_below = "of offsets 0-119, which were restored, the brokers have deleted those below 1: for the topic's"
    assert (changed.exit_code, deleted_below in changed.error, told.is_finished) == (3, True, True), changed.error


def archive_rows(oracle: JavaOracle, broker: Broker, topic: str) -> list[Rec]:
    return on_target(oracle, broker, topic)[0]


def test_partitions_that_a_finished_target_got_since_are_the_users(
    broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    for name in (topic, f"{topic}.other"):
        archived(broker_41, name, site, [20])
    request: dict[str, Any] = {"topics": f"{topic}.*", "patterns": ((r"(.*)", r"\1.back"),)}
    site.restore(broker_41.bootstrap, **request)
    add_partitions(broker_41.bootstrap, f"{topic}.back", 3)
    produce_values(broker_41.bootstrap, f"{topic}.back", [b"new"], 2)
    delete_topic(broker_41.bootstrap, f"{topic}.other.back")
    done = [
        (one.records, one.errors, one.is_finished)
        for one in site.restore(broker_41.bootstrap, reads_again=True, **request).topics
    ]
    assert done == [(20, (), True)] * 2


def test_a_restore_goes_on_where_it_was_cut(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few batches it dies; before or after the broker took the last one."""
    written = archived(broker, topic, site, [2000], records=300)
    mortal = MortalProduce(seed=7)
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", mortal)
    deaths = 0
    for lifetime in (1, 2, 5, 9, 1, 10**6):
        mortal.live(lifetime)
        try:
            site.restore(broker.bootstrap, batch_bytes=1000, rename=[f"{topic}={topic}.back"])
        except Killed:  # while its traceback lives, nothing is collected: what reads has been ended by then
            deaths += 1
            assert [one.name for one in threading.enumerate() if one.name.startswith("read-ahead")] == []
    assert deaths == 5
    assert on_target(java_oracle, broker, f"{topic}.back") == written


@pytest.mark.parametrize("repartition", [None, 2])
def test_a_broker_that_starts_again_has_forgotten_who_sent_old_records(
    shared_broker: StartBroker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    repartition: int | None,
) -> None:
    """It goes by their timestamps. The answers to some batches are lost, each with the broker that had taken it."""
    broker = shared_broker(**{"producer.id.expiration.check.interval.ms": FOREVER_MS})
    written = archived(broker, topic, site, [300], first_ms=LONG_AGO_MS)
    # There several batches are on their way at once.
    sent, lost = 0, {2, 4} if repartition is None and pytestconfig.getoption("--long") else {2}

    async def lose_answers(
        client: KafkaClient, name: str, partition: int, batch: bytes | memoryview, timeout_ms: int
    ) -> ProduceAnswer:
        nonlocal sent
        answer = await produce(client, name, partition, batch, timeout_ms)
        sent += answer.outcome is ProduceOutcome.DONE
        if sent in lost:
            sent += 1
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            raise KafkaTemporaryError("the answer is lost")
        return answer

    monkeypatch.setattr(archiver.restore.fill.sending, "produce", lose_answers)
    asked: dict[str, Any] = {"batch_bytes": 1000, "rename": [f"{topic}={topic}.back"], "repartition": repartition}
    (restored,) = site.restore(broker.bootstrap, **asked).topics
    if repartition is None:
        assert restored.errors == ()
    for _ in range(3):  # there a new run has to count
        assert {one.exit_code for one in restored.errors} <= {4}, restored.errors
        (restored,) = site.restore(broker.bootstrap, **asked).topics
    assert restored.errors == ()
    assert sent > max(lost) + 1
    assert values_of(on_target(java_oracle, broker, f"{topic}.back")) == values_of(written)


@pytest.mark.parametrize("starts_again", [True, False])
def test_a_run_that_wakes_up_when_brokers_have_forgotten_it_sends_nothing(
    shared_broker: StartBroker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    starts_again: bool,
) -> None:
    """While it sleeps before a batch, another run ends the restore, and the broker starts again, or lets ids expire."""
    broker = shared_broker(**{"producer.id.expiration.check.interval.ms": FOREVER_MS if starts_again else "200"})
    written = archived(broker, topic, site, [300], first_ms=LONG_AGO_MS)
    rename = [f"{topic}={topic}.back"]
    waits = 0
    wait_for = archiver.restore.fill.sending.RateLimit.wait_for

    async def sleep(rate_limit: archiver.restore.fill.sending.RateLimit, size: int) -> None:
        nonlocal waits
        await wait_for(rate_limit, size)
        waits += 1
        if waits == 3:
            await asyncio.to_thread(site.restore, broker.bootstrap, batch_bytes=1000, rename=rename)
            if starts_again:
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await asyncio.sleep(1.5)

    monkeypatch.setattr(archiver.restore.fill.sending.RateLimit, "wait_for", sleep)
    monkeypatch.setattr(archiver.restore.fill.partition_restore, "_SILENT_S", 1.0)
    (restored,) = site.restore(broker.bootstrap, batch_bytes=1000, rename=rename).topics
    assert restored.errors == ()
    assert waits > 3
    assert on_target(java_oracle, broker, f"{topic}.back") == written


@pytest.mark.parametrize("repartition", [None, 2])
def test_a_run_that_was_overtaken_takes_no_one_for_a_stranger(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    repartition: int | None,
) -> None:
    """The other one claims, fills and ends between this one's look for a claim and its look at the target."""
    written = archived(broker_41, topic, site, [300], records=100)
    asked: dict[str, Any] = {"rename": [f"{topic}={topic}.back"], "repartition": repartition}
    overtaken: list[RestoreResult] = []

    async def slowly(client: KafkaClient) -> ProducerIdentity:
        identity = await init_producer_id(client)
        if not overtaken:
            patch.undo()
            overtaken.append(await asyncio.to_thread(site.restore, broker_41.bootstrap, **asked))
        return identity

    with pytest.MonkeyPatch.context() as patch:
        for module in (archiver.restore.fill.partition_restore, archiver.spark.repartition):
            patch.setattr(module, "init_producer_id", slowly)
        result = site.restore(broker_41.bootstrap, **asked)
    assert [one.errors for run in (result, *overtaken) for one in run.topics] == [(), ()]
    found = on_target(java_oracle, broker_41, f"{topic}.back")
    assert values_of(found) == values_of(written)


def values_of(partitions: Partitions) -> Counter[bytes | None]:
    return Counter(record.value for records in partitions.values() for record in records)


# --- what goes wrong


def test_what_was_refused_comes_back_when_it_is_mended(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """By the same command. What an earlier run has planned otherwise stays, although the archive has grown."""
    written = archived(broker_41, topic, site, [250, 120])
    client, rename = s3_client(site.bucket), [f"{topic}={topic}.back"]
    key = keys_in(site.bucket, f"topics/{topic}/partition=0/")[1]
    whole = client.get_object(Bucket=site.bucket.name, Key=key)
    content = whole["Body"].read()
    client.delete_object(Bucket=site.bucket.name, Key=key)
    for _ in range(2):
        (restored,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename).topics
        assert [(one.exit_code, one.records) for one in restored.partitions] == [(3, 0), (0, 120)]
    client.put_object(Bucket=site.bucket.name, Key=key, Body=content, Metadata=whole["Metadata"])
    for partition in (0, 1):
        produce_raw(broker_41.bootstrap, topic, [encode(batch_of(generate(1, 30)))], partition)
    site.back_up(broker_41.bootstrap, topic)
    (restored,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename).topics
    assert (restored.errors, restored.is_finished) == ((), True)
    assert [(one.records, one.already_there) for one in restored.partitions] == [(280, 0), (120, 120)]
    found = on_target(java_oracle, broker_41, f"{topic}.back")
    assert (found[0][:250], len(found[0]), found[1]) == (written[0], 280, written[1])


def test_one_id_is_one_restore(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site, [100])
    rename = [f"{topic}={topic}.back"]
    site.restore(broker_41.bootstrap, rename=rename, restore_id="mine")
    with pytest.raises(UsageError, match=r"restore mine into .* was begun with other options"):
        site.restore(broker_41.bootstrap, rename=rename, restore_id="mine", wanted=TopicSelection(from_ms=5))
    with pytest.raises(UsageError, match=r"restore mine into .* was begun with other options"):
        site.restore(broker_41.bootstrap, rename=rename, restore_id="mine", retention=Retention.ARCHIVED)
    archived(broker_41, f"{topic}.other", site, [7])
    with pytest.raises(UsageError, match=rf"into {topic}.back was begun with topic {topic}, not with {topic}.other"):
        site.restore(
            broker_41.bootstrap, topics=f"{topic}.other", rename=[f"{topic}.other={topic}.back"], restore_id="mine"
        )
