"""A restore into another number of partitions, against the Java client's own choice and a brute-force oracle."""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import archiver.restore.fill.partition_restore
import archiver.restore.fill.sending
import archiver.spark.repartition
from archiver.codec.selection import TopicSelection
from archiver.errors import KafkaError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.produce import ProduceAnswer, ProduceOutcome, produce
from archiver.restore.fill.repartition_source import SourceTask
from archiver.restore.fill.repartition_target import run_read_back
from archiver.restore.plan.request import Existing
from tests.support.brokers import Broker
from tests.support.dealt_records import Rows, brute_force, fill, on_target
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, with_client
from tests.support.murmur2 import murmur2
from tests.support.produce_doubles import Killed, MeetingProduce, MortalProduce
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, run_here

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def archived(broker: Broker, topic: str, site: ArchiveSite, sizes: Sequence[int], seed: int = 5) -> Rows:
    written = fill(broker, topic, sizes, seed)
    site.back_up(broker.bootstrap, topic, records=100)
    return written


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_each_record_is_where_its_key_belongs(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, partitions: int, seed: int
) -> None:
    written = archived(broker, topic, site, [300, 0, 120, 250], seed)
    result = site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"], repartition=partitions)
    (restored,) = result.topics
    assert [one.error for one in restored.errors] == []
    expected = brute_force(written, partitions)
    assert on_target(java_oracle, broker, f"{topic}.back") == expected
    sizes = Counter(dict.fromkeys(range(partitions), 0))
    for (_, target), rows in expected.items():
        sizes[target] += len(rows)
    assert [one.records for one in restored.partitions] == [300, 0, 120, 250]
    assert [one.records for one in restored.target_partitions] == [sizes[target] for target in range(partitions)]
    assert restored.is_finished


def test_keys_go_where_the_java_client_sends_them(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    """What the same producer would have done on a topic of that size."""
    rng = random.Random(seed)
    keys = [rng.randbytes(length) for length in range(40) for _ in range(5)]
    create_topic(broker_41.bootstrap, topic, 3, KEEP_ALL)
    create_topic(broker_41.bootstrap, f"{topic}.java", 5, KEEP_ALL)
    records = [Rec(0, NOW_MS, 0, key, b"v%d" % at) for at, key in enumerate(keys)]
    for name in (topic, f"{topic}.java"):
        java_oracle.produce(broker_41.bootstrap, name, {-1: records})
    site.back_up(broker_41.bootstrap, topic)
    site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], repartition=5)

    def by_partition(name: str) -> dict[int, set[tuple[bytes | None, bytes | None]]]:
        found = java_oracle.consume(broker_41.bootstrap, name).records
        return {partition: {(row.key, row.value) for row in rows} for partition, rows in found.items()}

    assert by_partition(f"{topic}.back") == by_partition(f"{topic}.java")


def test_a_window_of_some_partitions(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers are not asked what each source has in each target partition: nothing of it was refused."""

    async def not_asked(*_: object) -> int:
        raise KafkaError("a question for each pair of partitions")

    monkeypatch.setattr(KafkaClient, "last_sequence", not_asked)
    written = archived(broker_41, topic, site, [200, 200, 200], seed)
    wanted = TopicSelection(partitions=frozenset([0, 2]), from_ms=NOW_MS + 300, until_ms=NOW_MS + 700)
    (restored,) = site.restore(
        broker_41.bootstrap, rename=[f"{topic}={topic}.back"], repartition=4, wanted=wanted
    ).topics
    chosen = {
        partition: [row for row in rows if NOW_MS + 300 <= row.timestamp <= NOW_MS + 700]
        for partition, rows in written.items()
        if partition != 1
    }
    assert on_target(java_oracle, broker_41, f"{topic}.back") == brute_force(chosen, 4)
    assert restored.records == sum(map(len, chosen.values()))


def test_behind_the_records_of_a_topic_that_is_there(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    written = archived(broker_41, topic, site, [150, 90])
    create_topic(broker_41.bootstrap, f"{topic}.back", 3, KEEP_ALL)
    for partition in range(3):
        there = [Rec(at, NOW_MS, 0, b"k", b"there") for at in range(2)]
        produce_raw(broker_41.bootstrap, f"{topic}.back", [encode(batch_of(there))], partition)
    asked: dict[str, Any] = {"rename": [f"{topic}={topic}.back"], "existing": Existing.APPEND}
    with pytest.raises(KafkaError, match=r"has 3 partitions, the archive 2; .* --repartition 3"):
        site.restore(broker_41.bootstrap, **asked)
    with pytest.raises(KafkaError, match="has 3 partitions, not 4"):
        site.restore(broker_41.bootstrap, repartition=4, **asked)
    for already_there in (0, 240):
        (restored,) = site.restore(broker_41.bootstrap, repartition=3, batch_bytes=2000, **asked).topics
        assert [one.error for one in restored.errors] == []
        assert sum(one.already_there for one in restored.partitions) == already_there
        assert on_target(java_oracle, broker_41, f"{topic}.back", skipped=2) == brute_force(written, 3)


@pytest.mark.parametrize("forgotten", [False, True])
def test_it_goes_on_where_it_was_cut(
    broker: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    forgotten: bool,
) -> None:
    """Every few batches it dies, before or after the broker took the last one; the brokers may have forgotten producers."""
    written = archived(broker, topic, site, [900, 400, 700])
    errors: list[str] = []

    async def nothing(*_: object) -> None:
        return None

    mortal = MortalProduce(seed=7)
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", mortal)
    if forgotten:
        monkeypatch.setattr(KafkaClient, "last_sequence", nothing)
    deaths = 0
    for lifetime in (1, 2, 5, 20, 1, 12, 10**6):
        mortal.live(lifetime)
        try:
            result = site.restore(broker.bootstrap, batch_bytes=1000, rename=[f"{topic}={topic}.back"], repartition=5)
            errors += [one.error for one in result.topics[0].errors]
        except Killed:
            deaths += 1
    assert deaths == 6
    assert errors == []
    assert on_target(java_oracle, broker, f"{topic}.back") == brute_force(written, 5)


def test_a_task_that_spark_repeats_goes_on(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given the counts of before the attempt that was lost."""
    written = archived(broker_41, topic, site, [500, 300])

    def twice(spark: object, tasks: Sequence[object], run: object, *_: object) -> list[object]:
        assert callable(run)
        if tasks and isinstance(tasks[0], SourceTask):
            run_here(spark, tasks, run)
        return run_here(spark, tasks, run)

    monkeypatch.setattr(archiver.spark.repartition, "run_on_spark", twice)
    (restored,) = site.restore(
        broker_41.bootstrap, batch_bytes=1000, rename=[f"{topic}={topic}.back"], repartition=3
    ).topics
    assert [one.error for one in restored.errors] == []
    assert [one.already_there for one in restored.partitions] == [500, 300]
    assert on_target(java_oracle, broker_41, f"{topic}.back") == brute_force(written, 3)


def test_two_runs_at_once(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = archived(broker, topic, site, [1500, 700])
    meeting = MeetingProduce(2)
    monkeypatch.setattr(archiver.restore.fill.sending, "produce", meeting)

    def run(_: int) -> list[str]:
        result = site.restore(broker.bootstrap, batch_bytes=2000, rename=[f"{topic}={topic}.back"], repartition=3)
        return [one.error for restored in result.topics for one in restored.errors]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [[], []]
    assert len(meeting.senders) == 2
    assert on_target(java_oracle, broker, f"{topic}.back") == brute_force(written, 3)


@pytest.mark.parametrize("when", ["meanwhile", "before it is read back"])
def test_a_stranger_in_the_target_is_named(
    broker: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    archived(broker, topic, site, [300, 200])
    foreign = [encode(batch_of([Rec(0, NOW_MS, 0, b"s", b"")]))]
    sent = 0

    async def with_company(
        client: KafkaClient, name: str, partition: int, batch: bytes, timeout_ms: int
    ) -> ProduceAnswer:
        nonlocal sent
        sent += 1
        if sent == 4:
            await asyncio.to_thread(produce_raw, broker.bootstrap, name, foreign, 1)
        return await produce(client, name, partition, batch, timeout_ms)

    def intrude_and_run(spark: object, tasks: Sequence[object], run: object, *_: object) -> list[object]:
        assert callable(run)
        if run is run_read_back:
            produce_raw(broker.bootstrap, f"{topic}.back", foreign, 1)
        return run_here(spark, tasks, run)

    with monkeypatch.context() as patch:
        if when == "meanwhile":
            patch.setattr(archiver.restore.fill.sending, "produce", with_company)
        else:
            patch.setattr(archiver.spark.repartition, "run_on_spark", intrude_and_run)
        rename = [f"{topic}={topic}.back"]
        (restored,) = site.restore(broker.bootstrap, batch_bytes=2000, rename=rename, repartition=2).topics
    (again,) = site.restore(broker.bootstrap, batch_bytes=2000, rename=rename, repartition=2).topics
    for one in (restored, again):
        (wrong,) = one.errors
        assert (wrong.partition, wrong.exit_code, one.is_finished) == (1, 3, False)
        assert f"{topic}.back-1: someone else wrote to the target: the record at offset" in wrong.error


def test_a_rerun_leaves_a_finished_target_alone_that_lives_on(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site, [150, 60])
    rename = [f"{topic}={topic}.back"]
    (first,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename, repartition=3).topics
    later = [Rec(0, NOW_MS, 0, b"later", b"by a producer that is back", ())]
    produce_raw(broker_41.bootstrap, f"{topic}.back", [encode(batch_of(later))], 0)
    (again,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename, repartition=3).topics
    assert again.errors == ()
    assert [one.already_there for one in again.partitions] == [150, 60]
    assert [one.digest for one in again.target_partitions] == [one.digest for one in first.target_partitions]
    assert [one.records for one in again.target_partitions] == [one.records for one in first.target_partitions]
    assert [one.bytes for one in again.target_partitions] == [one.bytes for one in first.target_partitions]
    assert sum(one.bytes or 0 for one in again.partitions) == sum(one.bytes or 0 for one in again.target_partitions) > 0

    (read,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename, repartition=3, reads_again=True).topics
    assert read.errors == ()
    assert [one.digest for one in read.target_partitions] == [one.digest for one in first.target_partitions]
    client = AdminClient({"bootstrap.servers": broker_41.bootstrap})
    for deleted in client.delete_records([TopicPartition(f"{topic}.back", 1, 1)]).values():
        deleted.result(30)
    (read,) = site.restore(broker_41.bootstrap, topics=topic, rename=rename, repartition=3, reads_again=True).topics
    (error,) = read.errors
    assert (error.partition, error.exit_code, read.is_finished) == (1, 3, True)
    assert "the brokers have deleted those below 1: for the topic's retention" in error.error


def test_records_that_the_target_lost_are_noticed_and_sent_again(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader may remember what it could not keep: the last batches of a source are not there when it is read back."""
    written = archived(broker_41, topic, site, [300, 200])
    rename = [f"{topic}={topic}.back"]

    async def pretends(client: KafkaClient, name: str, partition: int, batch: bytes, timeout_ms: int) -> ProduceAnswer:
        if partition == 1:
            return ProduceAnswer(outcome=ProduceOutcome.DONE, base_offset=0, error_code=0)
        return await produce(client, name, partition, batch, timeout_ms)

    with monkeypatch.context() as patch:
        patch.setattr(archiver.restore.fill.sending, "produce", pretends)
        (restored,) = site.restore(broker_41.bootstrap, rename=rename, repartition=2).topics
    (wrong,) = restored.errors
    assert (wrong.partition, wrong.exit_code) == (1, 4)
    assert "the target holds 0 of the" in wrong.error
    (again,) = site.restore(broker_41.bootstrap, rename=rename, repartition=2).topics
    assert again.errors == ()
    assert on_target(java_oracle, broker_41, f"{topic}.back") == brute_force(written, 2)


@pytest.mark.parametrize("skips", [False, True])
def test_damage_stops_only_its_source_or_is_skipped_in_every_attempt(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    skips: bool,
) -> None:
    written = archived(broker_41, topic, site, [300, 200])
    client = s3_client(site.bucket)
    key = keys_in(site.bucket, f"topics/{topic}/partition=0/")[1]
    found = client.get_object(Bucket=site.bucket.name, Key=key)
    content = found["Body"].read()
    cut = content[: len(content) // 2]
    client.put_object(Bucket=site.bucket.name, Key=key, Body=cut, Metadata=found["Metadata"])
    asked: dict[str, Any] = {
        "rename": [f"{topic}={topic}.back"],
        "repartition": 3,
        "skips_damage": skips,
        "batch_bytes": 500,
    }
    if skips:
        mortal = MortalProduce()
        mortal.live(12)
        with monkeypatch.context() as patch:
            patch.setattr(archiver.restore.fill.sending, "produce", mortal)
            with pytest.raises(Killed):
                site.restore(broker_41.bootstrap, **asked)
        # Mended meanwhile: what was left out once stays out.
        client.put_object(Bucket=site.bucket.name, Key=key, Body=content, Metadata=found["Metadata"])
    (restored,) = site.restore(broker_41.bootstrap, **asked).topics
    there = on_target(java_oracle, broker_41, f"{topic}.back")
    if skips:
        assert restored.errors == ()
        assert [len(one.missing) for one in restored.partitions] == [1, 0]
        assert restored.partitions[0].missing[0].count("topics/") == 1
        kept = {0: written[0][:100] + written[0][200:], 1: written[1]}
        assert there == brute_force(kept, 3)
    else:
        (wrong,) = restored.errors
        assert (wrong.partition, wrong.exit_code, key in wrong.error) == (0, 3, True)
        expected = {which: rows for which, rows in brute_force(written, 3).items() if which[0] == 1}
        assert {which: rows for which, rows in there.items() if which[0] == 1} == expected


@pytest.mark.parametrize("existing", [Existing.EMPTY, Existing.APPEND])
def test_what_was_refused_says_what_brings_it_back(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, existing: Existing
) -> None:
    """Also when it was mended: the same command goes on with what was planned, and says so again."""
    written = archived(broker_41, topic, site, [300, 200])
    client = s3_client(site.bucket)
    key = keys_in(site.bucket, f"topics/{topic}/partition=0/")[1]
    whole = client.get_object(Bucket=site.bucket.name, Key=key)
    content = whole["Body"].read()
    client.delete_object(Bucket=site.bucket.name, Key=key)
    back = f"{topic}.back"
    create_topic(broker_41.bootstrap, back, 3, KEEP_ALL)
    asked: dict[str, Any] = {"topics": topic, "repartition": 3}
    way = f"--rename {topic}=OTHER" if existing is Existing.APPEND else f"--purge-target, which makes {back} again"
    for _ in range(2):
        result = site.restore(broker_41.bootstrap, rename=[f"{topic}={back}"], existing=existing, **asked)
        (wrong,) = result.topics[0].errors
        assert f"{topic}-0: offsets 100-199 are missing from the archive" in wrong.error
        assert wrong.error.endswith(f" so give it another --id then, and {way}")
        client.put_object(Bucket=site.bucket.name, Key=key, Body=content, Metadata=whole["Metadata"])
    if existing is Existing.APPEND:
        asked |= {"rename": [f"{topic}={topic}.other"], "existing": existing}
    else:
        asked |= {"rename": [f"{topic}={back}"], "existing": Existing.PURGE}
    (restored,) = site.restore(broker_41.bootstrap, restore_id="another", **asked).topics
    assert restored.errors == ()
    assert on_target(java_oracle, broker_41, restored.target) == brute_force(written, 3)


def test_other_partitions_are_another_restore(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    archived(broker_41, topic, site, [20])
    rename = [f"{topic}={topic}.back"]
    site.restore(broker_41.bootstrap, rename=rename, restore_id="mine", repartition=2)
    with pytest.raises(UsageError, match=r"was begun with other options .*--repartition"):
        site.restore(broker_41.bootstrap, rename=rename, restore_id="mine", repartition=3)
    with pytest.raises(KafkaError, match="has 2 partitions, not 3"):
        site.restore(broker_41.bootstrap, rename=rename, repartition=3)
    assert keys_in(site.bucket, f"control/restores/mine/{topic}.back/repartition/") != []
    assert not any(key.endswith(".avro") for key in keys_in(site.bucket, "control/restores/"))


@pytest.mark.installed
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_killed_and_run_again_on_spark(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    seed: int,
    pytestconfig: pytest.Config,
) -> None:
    rng = random.Random(seed)
    count, target = 5_000, f"{topic}.back"
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    for partition in range(2):
        for start in range(0, count, 1000):
            rows = [
                Rec(
                    at,
                    NOW_MS,
                    0,
                    b"k%d" % rng.randrange(500),
                    b"%d %d " % (partition, start + at) + rng.randbytes(1500),
                )
                for at in range(1000)
            ]
            produce_raw(broker_41.bootstrap, topic, [encode(batch_of(rows))], partition)
    site.back_up(broker_41.bootstrap, topic, records=3000)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    command = [
        "restore",
        "--target",
        "target.yaml",
        "--rename",
        f"{topic}={target}",
        "--repartition",
        "3",
        "--rate",
        "4MB",
    ]

    async def ends(client: KafkaClient) -> int:
        if target not in await client.describe_topics([target]):
            return 0
        return sum(one.high_watermark for one in (await client.offsets([(target, at) for at in range(3)])).values())

    reached = 0
    for _ in range(2 if pytestconfig.getoption("--long") else 1):
        reached += rng.randrange(1, count // 2)
        process = site.command(*command)
        while with_client(broker_41.bootstrap, ends) < reached:
            assert process.poll() is None, "the restore ended before it could be killed"
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert with_client(broker_41.bootstrap, ends) < 2 * count

    done = site.run(*command, "--format", "json")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    (restored,) = json.loads(done.stdout)["topics"]
    assert [one["records"] for one in restored["partitions"]] == [count, count]
    assert sum(one["already_there"] for one in restored["partitions"]) >= reached
    assert sum(one["records"] for one in restored["target_partitions"]) == 2 * count

    def order(row: Rec) -> tuple[int, int]:
        source, at, _ = (row.value or b"").split(b" ", 2)
        return int(source), int(at)

    there = java_oracle.consume(broker_41.bootstrap, target).records
    assert {(row.key, row.value) for rows in there.values() for row in rows} == {
        (row.key, row.value)
        for rows in java_oracle.consume(broker_41.bootstrap, topic).records.values()
        for row in rows
    }
    for partition, rows in there.items():
        assert {(murmur2(row.key or b"") & 0x7FFFFFFF) % 3 for row in rows} == {partition}
        for source in range(2):
            places = [at for number, at in map(order, rows) if number == source]
            assert places == sorted(set(places))
