"""Restore against real brokers and a real S3: what stands on the target, whatever comes between."""

import asyncio
import json
import os
import random
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import archiver.kafka.admin
import archiver.spark.restore
import archiver.spark.task
from archiver.errors import KafkaError, UsageError
from archiver.kafka.admin import KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.configs import topic_configs
from archiver.kafka.produce import ProduceAnswer, produce
from archiver.spark.task import RestoreTask, TaskReport, run_task
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values, settings_of, with_client
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec, generate
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, run_here

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

Partitions = dict[int, list[Rec]]


class Killed(BaseException):
    """Nothing in the program may catch it: the process is gone."""


def fill(broker: Broker, topic: str, sizes: Sequence[int], configs: Mapping[str, str] = KEEP_ALL) -> Partitions:
    """A topic with so many records in each partition; timestamps and values tell them apart."""
    create_topic(broker.bootstrap, topic, len(sizes), configs)
    written: Partitions = {}
    for partition, size in enumerate(sizes):
        rows = [Rec(at, NOW_MS + at, 0, b"k%d" % at, b"%d of %d" % (at, partition)) for at in range(size)]
        for start in range(0, size, 50):
            part = [replace(row, offset=at) for at, row in enumerate(rows[start : start + 50])]
            produce_raw(broker.bootstrap, topic, [encode(batch_of(part))], partition)
        written[partition] = rows
    return written


def archived(broker: Broker, topic: str, site: ArchiveSite, sizes: Sequence[int], records: int = 100) -> Partitions:
    written = fill(broker, topic, sizes)
    site.back_up(broker.bootstrap, topic, records=records)
    return written


def on_target(oracle: JavaOracle, broker: Broker, topic: str) -> Partitions:
    return dict(oracle.consume(broker.bootstrap, topic).records)


def configs_of(broker: Broker, topic: str, *, own: bool = False) -> dict[str, str]:
    found = with_client(broker.bootstrap, lambda client: topic_configs(client, topic))
    return dict(found.own if own else found.effective)


# --- what is created


def test_partitions_and_names_are_kept(broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle) -> None:
    names = [f"{topic}.{name}" for name in ("one", "two", "other")]
    written = [fill(broker, name, sizes) for name, sizes in zip(names, ([30, 0, 250, 0], [5], [5]), strict=True)]
    site.back_up(broker.bootstrap, f"{topic}[.].*", records=100)
    result = site.restore(
        broker.bootstrap, topics=rf"{topic}\.(one|two)", rename=[f"{name}={name}.b" for name in names[:2]]
    )
    assert [(one.source, one.target, len(one.partitions)) for one in result.topics] == [
        (names[0], f"{names[0]}.b", 4),
        (names[1], f"{names[1]}.b", 1),
    ]
    assert on_target(java_oracle, broker, f"{names[0]}.b") == written[0]
    assert on_target(java_oracle, broker, f"{names[1]}.b") == written[1]


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

    monkeypatch.setattr(archiver.spark.restore, "run_on_spark", look_and_run)
    (restored,) = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    assert (during["cleanup.policy"], during["message.timestamp.type"]) == ("delete", "CreateTime")
    assert (during["retention.ms"], during["retention.bytes"]) == ("-1", "-1")
    after = configs_of(broker, f"{topic}.back", own=True)
    assert after == own | {"retention.ms": "-1", "retention.bytes": "-1"}
    assert f"--entity-name {topic}.back --alter --add-config retention.ms=86400000" in restored.retention_command
    assert restored.left_out_configs == ()
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


def test_a_recreated_topic_comes_back_as_it_was_last(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    archived(broker_41, topic, site, [40])
    asyncio.run(KafkaAdmin(settings_of(broker_41.bootstrap)).delete_topic(topic))
    written = archived(broker_41, topic, site, [7, 3])
    site.restore(broker_41.bootstrap, rename=[f"{topic}={topic}.back"])
    assert on_target(java_oracle, broker_41, f"{topic}.back") == written


# --- what is refused


def test_a_target_with_records_is_refused(broker: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker, topic, site, [10, 10])
    with pytest.raises(KafkaError, match=f"{topic} is not empty.*--rename"):
        site.restore(broker.bootstrap)
    create_topic(broker.bootstrap, f"{topic}.narrow")
    with pytest.raises(KafkaError, match="has 1 partitions, the archive 2"):
        site.restore(broker.bootstrap, rename=[f"{topic}={topic}.narrow"])


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


def test_what_is_not_in_the_archive_is_refused(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site, [1])
    with pytest.raises(UsageError, match="no archived topic matches"):
        site.restore(broker_41.bootstrap, topics="nothing")
    with pytest.raises(UsageError, match="--rename of nothing"):
        site.restore(broker_41.bootstrap, rename=["nothing=else"])


def test_one_refused_target_keeps_all_from_being_touched(broker: Broker, topic: str, site: ArchiveSite) -> None:
    """Also one that would come late: more topics than are filled first."""
    names = [f"{topic}.{number:02}" for number in range(18)]
    for name in names:
        fill(broker, name, [1, 1])
    site.back_up(broker.bootstrap, f"{topic}[.].*")
    renames = [f"{name}={name}.back" for name in names]
    create_topic(broker.bootstrap, f"{names[16]}.back", 2)
    fill(broker, f"{names[17]}.back", [0, 1])
    before = configs_of(broker, f"{names[16]}.back", own=True)
    with pytest.raises(KafkaError, match=rf"{names[17]}\.back is not empty \(partition 1\)"):
        site.restore(broker.bootstrap, topics=rf"{topic}\..*", rename=renames)
    there = with_client(broker.bootstrap, lambda client: client.describe_topics(f"{name}.back" for name in names))
    assert sorted(there) == [f"{names[16]}.back", f"{names[17]}.back"]
    assert configs_of(broker, f"{names[16]}.back", own=True) == before


# --- again, and at the same time


def test_many_topics_at_once_and_again(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of them are created, two are there already, and one of those was restored before."""
    monkeypatch.setattr(archiver.kafka.admin, "_MOST_CHANGES", 100)  # several requests for all
    names = [f"{topic}.{number:02}" for number in range(30)]
    asyncio.run(KafkaAdmin(settings_of(broker.bootstrap)).create_topics(dict.fromkeys(names, 2), configs=KEEP_ALL))
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
    for name in (names[0], names[3], names[7], names[29]):
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


def test_a_rerun_leaves_a_finished_target_alone_that_lives_on(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    written = archived(broker_41, topic, site, [150, 0])
    rename = [f"{topic}={topic}.back"]
    site.restore(broker_41.bootstrap, topics=topic, rename=rename)
    later = [Rec(0, NOW_MS, 0, b"later", b"by a producer that is back", ())]
    produce_raw(broker_41.bootstrap, f"{topic}.back", [encode(batch_of(later))], 0)
    before = configs_of(broker_41, f"{topic}.back")
    result = site.restore(broker_41.bootstrap, topics=topic, rename=rename)
    assert [(one.error, one.records, one.already_there) for one in result.topics[0].partitions] == [
        ("", 150, 150),
        ("", 0, 0),
    ]
    assert configs_of(broker_41, f"{topic}.back") == before
    assert len(on_target(java_oracle, broker_41, f"{topic}.back")[0]) == len(written[0]) + 1


def test_a_rerun_keeps_what_the_user_has_changed_since(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site, [50])
    rename = [f"{topic}={topic}.back"]
    site.restore(broker_41.bootstrap, topics=topic, rename=rename)
    changed = {"cleanup.policy": "compact", "retention.ms": "86400000", "max.message.bytes": "5000000"}
    admin = KafkaAdmin(settings_of(broker_41.bootstrap))
    asyncio.run(admin.alter_topic_configs(f"{topic}.back", set_to=changed))
    site.restore(broker_41.bootstrap, topics=topic, rename=rename)
    assert changed.items() <= configs_of(broker_41, f"{topic}.back", own=True).items()


def test_a_record_written_before_the_fill_is_a_strangers(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the empty target and the first record of a partition there is time."""
    archived(broker_41, topic, site, [50, 50])

    def intrude_and_run(spark: object, tasks: Sequence[RestoreTask], *_: object) -> list[TaskReport]:
        foreign = [Rec(0, NOW_MS, 0, b"k", b"foreign", ())]
        produce_raw(broker_41.bootstrap, f"{topic}.back", [encode(batch_of(foreign))], 1)
        return run_here(spark, tasks, run_task)

    monkeypatch.setattr(archiver.spark.restore, "run_on_spark", intrude_and_run)
    partitions = site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"]).topics[0].partitions
    assert [one.exit_code for one in partitions] == [0, 3]
    assert "someone else wrote" in partitions[1].error


def test_a_restore_goes_on_where_it_was_cut(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few batches it dies; before or after the broker took the last one."""
    written = archived(broker, topic, site, [2000], records=300)
    monkeypatch.setattr(archiver.spark.task, "BATCH_BYTES", 1000)
    rng = random.Random(7)
    left = 0

    async def mortal(client: KafkaClient, name: str, partition: int, batch: bytes, timeout_ms: int) -> ProduceAnswer:
        nonlocal left
        left -= 1
        if left > 0:
            return await produce(client, name, partition, batch, timeout_ms)
        if rng.random() < 0.5:
            await produce(client, name, partition, batch, timeout_ms)
        raise Killed

    monkeypatch.setattr(archiver.spark.task, "produce", mortal)
    deaths = 0
    for lifetime in (1, 2, 5, 9, 1, 10**6):
        left = lifetime
        try:
            site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"])
        except Killed:
            deaths += 1
    assert deaths == 5
    assert on_target(java_oracle, broker, f"{topic}.back") == written


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_killed_and_run_again_each_record_is_there_once(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    rng = random.Random(seed)
    count, partitions = 30_000, 2
    create_topic(broker_41.bootstrap, topic, partitions, KEEP_ALL)
    for partition in range(partitions):
        values = [b"%d " % at + rng.randbytes(1500) for at in range(count)]
        produce_values(broker_41.bootstrap, topic, values, partition)
    site.back_up(broker_41.bootstrap, topic, records=5000)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    command = ["restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back", "--format", "json"]
    reached = 0
    for _ in range(2):
        reached += rng.randrange(1, count // 3)
        process = site.command(*command)
        until_filled(broker_41, f"{topic}.back", partitions, reached, process.poll)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert 0 < end_of(broker_41, f"{topic}.back", 0) + end_of(broker_41, f"{topic}.back", 1) < partitions * count

    done = site.run(*command)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    (restored,) = json.loads(done.stdout)["topics"]
    assert sum(one["already_there"] for one in restored["partitions"]) >= reached
    assert sum(one["records"] for one in restored["partitions"]) == partitions * count
    for partition in range(partitions):
        assert read_values(java_oracle, broker_41, f"{topic}.back", partition) == read_values(
            java_oracle, broker_41, topic, partition
        )


def read_values(oracle: JavaOracle, broker: Broker, topic: str, partition: int) -> list[tuple[int, int, bytes | None]]:
    records = oracle.consume(broker.bootstrap, topic).records[partition]
    return [(record.offset, record.timestamp, record.value) for record in records]


def end_of(broker: Broker, topic: str, partition: int) -> int:
    async def body(client: KafkaClient) -> int:
        if topic not in await client.describe_topics([topic]):
            return 0
        return (await client.offsets([(topic, partition)]))[topic, partition].high_watermark

    return with_client(broker.bootstrap, body)


def until_filled(broker: Broker, topic: str, partitions: int, wanted: int, ended: object) -> None:
    assert callable(ended)
    while sum(end_of(broker, topic, partition) for partition in range(partitions)) < wanted:
        assert ended() is None, "the restore ended before it could be killed"


def test_two_runs_at_once_restore_each_record_once(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = archived(broker, topic, site, [3000, 500], records=400)
    monkeypatch.setattr(archiver.spark.task, "BATCH_BYTES", 2000)
    gate = threading.Barrier(2)
    senders: set[int] = set()

    async def counted(client: KafkaClient, name: str, partition: int, batch: bytes, timeout_ms: int) -> ProduceAnswer:
        if threading.get_ident() not in senders:
            senders.add(threading.get_ident())
            gate.wait(60)  # neither begins before the other one is about to
        return await produce(client, name, partition, batch, timeout_ms)

    monkeypatch.setattr(archiver.spark.task, "produce", counted)

    def run(_: int) -> list[str]:
        result = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"])
        return [one.error for restored in result.topics for one in restored.errors]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [[], []]
    assert len(senders) == 2
    assert on_target(java_oracle, broker, f"{topic}.back") == written


def test_a_deleted_target_is_filled_again_under_the_same_id(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    written = archived(broker, topic, site, [120, 30])
    for _ in range(2):
        result = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"], restore_id="mine")
        assert [one.already_there for one in result.topics[0].partitions] == [0, 0]
        assert on_target(java_oracle, broker, f"{topic}.back") == written
        asyncio.run(KafkaAdmin(settings_of(broker.bootstrap)).delete_topic(f"{topic}.back"))


# --- what goes wrong


@pytest.mark.parametrize("when", ["meanwhile", "at the end"])
def test_a_stranger_in_the_target_is_noticed(
    broker: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    archived(broker, topic, site, [500, 60])
    monkeypatch.setattr(archiver.spark.task, "BATCH_BYTES", 3000)
    sent = 0

    async def with_company(
        client: KafkaClient, name: str, partition: int, batch: bytes, timeout_ms: int
    ) -> ProduceAnswer:
        nonlocal sent
        sent += partition == 0
        answer = await produce(client, name, partition, batch, timeout_ms)
        at_end = answer.base_offset + int.from_bytes(batch[57:61], "big") == 500
        if partition == 0 and (sent == 2 if when == "meanwhile" else at_end):
            await asyncio.to_thread(
                produce_raw, broker.bootstrap, name, [encode(batch_of([Rec(0, NOW_MS, 0, b"s", b"")]))]
            )
        return answer

    monkeypatch.setattr(archiver.spark.task, "produce", with_company)
    (restored,) = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    (wrong,) = restored.errors
    assert (wrong.partition, wrong.exit_code) == (0, 3)
    assert f"{topic}.back-0" in wrong.error
    assert "someone else wrote" in wrong.error

    monkeypatch.setattr(archiver.spark.task, "produce", produce)
    (again,) = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    (wrong,) = again.errors
    assert (wrong.partition, wrong.exit_code) == (0, 3), wrong.error


def test_damaged_objects_stop_only_their_partitions(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    written = archived(broker_41, topic, site, [300] * 6)
    keys = {partition: keys_in(site.bucket, f"topics/{topic}/partition={partition}/") for partition in range(6)}
    assert {len(some) for some in keys.values()} == {3}
    client = s3_client(site.bucket)

    def replace_object(key: str, change: int, metadata: Mapping[str, str] | None = None) -> None:
        found = client.get_object(Bucket=site.bucket.name, Key=key)
        content = bytearray(found["Body"].read())
        if change:
            content[change] ^= 0x10
        else:
            del content[len(content) // 2 :]
        client.put_object(
            Bucket=site.bucket.name, Key=key, Body=bytes(content), Metadata={**found["Metadata"], **(metadata or {})}
        )

    replace_object(keys[0][1], -200)  # a flipped bit in the last block
    replace_object(keys[1][1], 0)  # cut
    client.delete_object(Bucket=site.bucket.name, Key=keys[2][1])  # missing
    replace_object(keys[3][2], -1, {"archiver-next": "five"})  # facts that cannot be
    replace_object(keys[4][0], 20)  # a flipped bit in the Avro header

    (restored,) = site.restore(broker_41.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    assert {one.partition: one.exit_code for one in restored.errors} == dict.fromkeys(range(5), 3)
    errors = {one.partition: one.error for one in restored.errors}
    for partition, index in ((0, 1), (1, 1), (3, 2), (4, 0)):
        assert keys[partition][index] in errors[partition]
    assert f"{topic}-2: offsets 100-199 are missing" in errors[2]
    assert on_target(java_oracle, broker_41, f"{topic}.back")[5] == written[5]
    assert configs_of(broker_41, f"{topic}.back")["retention.ms"] == "-1"


def test_an_object_that_goes_during_the_restore_is_named(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(broker_41, topic, site, [300])
    key = keys_in(site.bucket, f"topics/{topic}/")[2]

    def delete_and_run(spark: object, tasks: Sequence[RestoreTask], *_: object) -> list[TaskReport]:
        s3_client(site.bucket).delete_object(Bucket=site.bucket.name, Key=key)
        return run_here(spark, tasks, run_task)

    monkeypatch.setattr(archiver.spark.restore, "run_on_spark", delete_and_run)
    (restored,) = site.restore(broker_41.bootstrap, rename=[f"{topic}={topic}.back"]).topics
    (wrong,) = restored.errors
    assert (wrong.exit_code, key in wrong.error) == (3, True)


def test_a_restore_from_another_state_of_the_archive_is_refused(
    broker_41: Broker, topic: str, site: ArchiveSite
) -> None:
    archived(broker_41, topic, site, [100])
    site.restore(broker_41.bootstrap, rename=[f"{topic}={topic}.back"], restore_id="mine")
    more = generate(1, 30)
    produce_raw(broker_41.bootstrap, topic, [encode(batch_of(more))])
    site.back_up(broker_41.bootstrap, topic)
    (restored,) = site.restore(broker_41.bootstrap, rename=[f"{topic}={topic}.back"], restore_id="mine").topics
    (wrong,) = restored.errors
    assert "another state of the archive" in wrong.error
    assert wrong.exit_code == 3
