"""`backup --until-end` against real brokers and a real S3: where it ends, what it keeps, and what goes wrong beside it."""

import asyncio
import errno
import json
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import archiver.backup.partition.fetching
import archiver.backup.service.run_backup
from archiver.backup.opening.opener import Opener
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter
from archiver.config.model import ArchiverConfig
from archiver.errors import KafkaTemporaryError, StoppedError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets
from archiver.kafka.records.fetch import Fetched, FetchTarget, fetch
from archiver.kafka.topics.admin import KafkaAdmin
from tests.support.bad_input import MACHINE, STORE
from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.cluster import broker_cluster
from tests.support.examples import EAGER_CLEANER, until_stable
from tests.support.foreign_reader import Segment, keys_in, read_partitions, read_segments, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def rows(count: int, *, key: bytes = b"k", timestamp: int = NOW_MS) -> list[Rec]:
    return [Rec(at, timestamp, 0, key, b"value %d" % at) for at in range(count)]


def create(broker: Broker, topic: str, partitions: int = 1, configs: Mapping[str, str] = KEEP_ALL) -> None:
    create_topic(broker.bootstrap, topic, partitions, {**KEEP_ALL, **configs})


def send(broker: Broker, topic: str, count: int, partition: int = 0, *, per_batch: int = 10) -> None:
    """Small batches, so that there are many."""
    for start in range(0, count, per_batch):
        part = rows(min(per_batch, count - start))
        produce_raw(broker.bootstrap, topic, [encode(batch_of(part))], partition)


def coverage(segments: Sequence[Segment], partition: int = 0) -> list[tuple[int, int]]:
    return [(one.base, one.next) for one in segments if one.partition == partition]


def assert_contiguous(segments: Sequence[Segment]) -> None:
    """Coverage begins at 0 and has neither a gap nor a double."""
    for partition in {one.partition for one in segments}:
        bounds = coverage(segments, partition)
        assert [base for base, _ in bounds] == [0, *(end for _, end in bounds[:-1])]


# --- where it ends


def test_markers_and_aborted_tails_end_by_position(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    create(broker, topic, 3)  # 0: records and an aborted tail; 1: only aborted; 2: empty
    java_oracle.produce(broker.bootstrap, topic, {0: rows(5)}, transactional_id=f"{topic}-a")
    java_oracle.end_transaction(f"{topic}-a", commit=True)
    java_oracle.produce(broker.bootstrap, topic, {0: rows(3), 1: rows(4)}, transactional_id=f"{topic}-b")
    java_oracle.end_transaction(f"{topic}-b", commit=False)
    until_stable(broker.bootstrap, topic)

    first = site.back_up(broker.bootstrap, topic)
    assert errors_of(first) == {}
    assert {one.source.partition: (one.position, one.end_offset) for one in first.values()} == {
        0: (10, 10),
        1: (5, 5),
        2: (0, 0),
    }
    assert coverage(read_segments(site.bucket, topic)) == [(0, 10)]

    again = site.back_up(broker.bootstrap, topic)
    assert sum(one.written.segments for one in again.values()) == 0

    send(broker, topic, 7, partition=1)
    site.back_up(broker.bootstrap, topic)
    segments = read_segments(site.bucket, topic)
    assert_contiguous(segments)
    assert coverage(segments, 1) == [(0, 12)]
    assert read_partitions(site.bucket, topic) == {
        0: rows(5),
        1: [replace(row, offset=row.offset + 5) for row in rows(7)],
    }


def test_it_ends_where_the_log_ended_at_the_start_however_long_opening_takes(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker_41, topic)
    send(broker_41, topic, 5)
    open_all = Opener.open_all

    async def open_late(opener: Opener, *given: Any, **more: Any) -> None:  # noqa: ANN401 - as they are
        await asyncio.to_thread(send, broker_41, topic, 3)
        await open_all(opener, *given, **more)

    monkeypatch.setattr(Opener, "open_all", open_late)
    (first,) = site.back_up(broker_41.bootstrap, topic).values()
    assert (first.position, first.end_offset, first.written.records) == (8, 5, 8)
    monkeypatch.undo()
    assert coverage(read_segments(site.bucket, topic)) == [(0, 8)]


def test_a_tail_that_compaction_emptied_ends_too(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """Behind the last record lie only offsets that no longer exist, up to an open transaction."""
    broker = shared_broker(KAFKA_41)
    create(broker, topic, configs=EAGER_CLEANER | {"delete.retention.ms": "0"})
    batches = [
        [Rec(0, NOW_MS, 0, b"kept", b"")],
        [Rec(0, NOW_MS, 0, b"k", b"")],
        [Rec(0, NOW_MS + 9999, 0, b"k", None)],
    ]
    produce_raw(broker.bootstrap, topic, [encode(batch_of(batch)) for batch in batches])
    held = Rec(0, NOW_MS + 99_999, 0, b"held", b"")
    java_oracle.produce(broker.bootstrap, topic, {0: [held]}, transactional_id=topic)
    eventually(lambda: len(java_oracle.consume(broker.bootstrap, topic).records[0]) == 2, every_s=0.25)
    # A tombstone goes with the second cleaning, and nothing calls for one: let the cleaner forget the first.
    broker.stop()
    (broker.data_dir / "log" / "cleaner-offset-checkpoint").unlink()
    broker.start()
    eventually(lambda: len(java_oracle.consume(broker.bootstrap, topic).records[0]) == 1, every_s=0.25)
    assert java_oracle.consume(broker.bootstrap, topic).ranges == {0: (0, 3)}

    (report,) = site.back_up(broker.bootstrap, topic).values()
    assert (report.error, report.position, report.end_offset) == (None, 3, 3)
    assert coverage(read_segments(site.bucket, topic)) == [(0, 3)]


def test_an_open_transaction_is_named_and_comes_later(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker, topic)
    send(broker, topic, 4)
    java_oracle.produce(broker.bootstrap, topic, {0: rows(2)}, transactional_id=topic)
    send(broker, topic, 3)
    with caplog.at_level(logging.WARNING, "archiver"):
        (report,) = site.back_up(broker.bootstrap, topic).values()
    assert (report.error, report.position, report.end_offset) == (None, 4, 4)
    (named,) = report.open_transactions
    assert (named.transactional_id, named.start_offset) == (topic, 4)
    assert any(topic in line and "open transaction" in line and "offset 4" in line for line in caplog.messages)

    java_oracle.end_transaction(topic, commit=True)
    until_stable(broker.bootstrap, topic)
    (report,) = site.back_up(broker.bootstrap, topic).values()
    assert (report.from_offset, report.position, report.written.records) == (4, 10, 5)
    assert read_partitions(site.bucket, topic) == java_oracle.consume(broker.bootstrap, topic).records


# --- what it covers


def delete_below(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    future.result(20)


def test_what_kafka_no_longer_has_is_a_hole(broker: Broker, topic: str, site: ArchiveSite) -> None:
    create(broker, topic)
    send(broker, topic, 30)
    delete_below(broker, topic, 7)
    (report,) = site.back_up(broker.bootstrap, topic).values()
    assert [str(hole) for hole in report.written.holes] == ["0-6:expired"]

    send(broker, topic, 30)
    delete_below(broker, topic, 45)
    (report,) = site.back_up(broker.bootstrap, topic).values()
    assert (report.from_offset, report.position) == (30, 60)
    assert [str(hole) for hole in report.written.holes] == ["30-44:expired"]

    delete_below(broker, topic, 60)  # nothing is left: a hole only once there is a record to tell it with
    (report,) = site.back_up(broker.bootstrap, topic).values()
    assert (report.error, report.written.segments) == (None, 0)
    send(broker, topic, 1)
    site.back_up(broker.bootstrap, topic)

    segments = read_segments(site.bucket, topic)
    assert_contiguous(segments)
    assert [one.holes for one in segments] == ["0-6:expired", "30-44:expired", ""]
    offsets = [record.offset for record in read_partitions(site.bucket, topic)[0]]
    assert offsets == [*range(7, 30), *range(45, 61)]


def test_no_more_is_asked_for_at_once_than_there_is_memory_for(
    tmp_path: Path, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all brokers together. A batch that is larger than the answer that was asked for comes all the same."""
    memory_bytes = 16 * 1024 * 1024
    asked: dict[int, int] = {}  # by broker, while the request is under way
    most: list[int] = []

    async def counted(
        client: KafkaClient,
        node_id: int,
        targets: Sequence[FetchTarget],
        **limits: Any,  # noqa: ANN401 - as they are
    ) -> list[Fetched]:
        asked[node_id] = limits["max_bytes"]
        most.append(sum(asked.values()))
        try:
            return await fetch(client, node_id, targets, **limits)
        finally:
            del asked[node_id]

    monkeypatch.setattr(archiver.backup.partition.fetching, "fetch", counted)
    with broker_cluster(tmp_path, 2) as cluster:
        cluster.create_topic(topic, [[1], [2]] * 3)
        for partition in range(6):
            produce_values(cluster.bootstrap, topic, [random.randbytes(3_000_000), *[b"small"] * 100], partition)
        config = ArchiverConfig.model_validate(site.config(cluster.bootstrap, [topic]))
        config = config.model_copy(update={"backup": config.backup.model_copy(update={"memory_bytes": memory_bytes})})
        report, _ = archiver.backup.service.run_backup.run_backup(config, lambda _: None)
    assert [(one.error, one.written.records) for one in report.partitions] == [(None, 101)] * 6
    assert max(most) <= memory_bytes


def test_no_more_is_held_than_there_is_memory_for(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that comes is taken for a while: then no more is fetched. A slice of an answer keeps all of it in memory."""
    budget_bytes = 4 * 1024 * 1024
    create(broker_41, topic, 13)
    for partition in range(12):
        produce_values(broker_41.bootstrap, topic, [random.randbytes(100_000) for _ in range(20)], partition)
    produce_values(broker_41.bootstrap, topic, [b"small"], 12)
    came: list[Fetched] = []
    real, is_let_go = PartitionWriter.take, threading.Event()

    async def counted(*args: Any, **limits: Any) -> list[Fetched]:  # noqa: ANN401 - as they are
        found = await fetch(*args, **limits)
        came.extend(found)
        return found

    def take(writer: PartitionWriter, fetch: Fetch) -> Any:  # noqa: ANN401 - as it is
        if not is_let_go.wait(3.0):
            held.append(sum(len(one.records) for one in came))
            is_let_go.set()
        slices.append((len(fetch.records), memoryview(fetch.records.obj).nbytes))
        return real(writer, fetch)

    held: list[int] = []
    slices: list[tuple[int, int]] = []
    monkeypatch.setattr(archiver.backup.partition.fetching, "fetch", counted)
    monkeypatch.setattr(PartitionWriter, "take", take)
    config = ArchiverConfig.model_validate(site.config(broker_41.bootstrap, [topic]))
    config = config.model_copy(update={"backup": config.backup.model_copy(update={"memory_bytes": 8 * budget_bytes})})
    report, _ = archiver.backup.service.run_backup.run_backup(config, lambda _: None)
    assert [(one.error, one.written.records) for one in report.partitions] == [(None, 20)] * 12 + [(None, 1)]
    assert budget_bytes / 2 < max(held) <= budget_bytes
    assert [found for found in slices if found[1] > 4 * found[0]] == []


# --- a stop


def test_a_stop_covers_nothing_that_it_drops(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is fetched, and only the first of it is in a segment: the rest waits behind it, and is dropped."""
    create(broker_41, topic)
    produce_values(broker_41.bootstrap, topic, [random.randbytes(1_000_000) for _ in range(7)])
    real, taken = PartitionWriter.take, []

    def take(writer: PartitionWriter, fetch: Fetch) -> Any:  # noqa: ANN401 - as it is
        taken.append(fetch.position)
        if len(taken) == 1:
            time.sleep(1.0)  # until the rest was fetched
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)
        return real(writer, fetch)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionWriter, "take", take)
        config = ArchiverConfig.model_validate(site.config(broker_41.bootstrap, [topic]))
        report, _ = archiver.backup.service.run_backup.run_backup(config, lambda _: None)
    assert [type(problem) for problem in report.problems] == [StoppedError]
    assert [(one.error, one.position, one.end_offset) for one in report.partitions] == [(None, 4, 7)]
    (first,) = read_segments(site.bucket, topic)
    assert (len(first.records), first.next) == (4, 4)
    site.back_up(broker_41.bootstrap, topic)
    assert [record.offset for record in read_partitions(site.bucket, topic)[0]] == list(range(7))


def told_by(site: ArchiveSite, *options: str) -> list[list[str]]:
    """Words of the lines, without what differs from run to run."""
    done = site.run_within("backup", "--until-end", *options)
    assert done.returncode == 0, done.stderr
    return [line.split(" in ")[0].split() + line.split(";")[1:] for line in done.stdout.splitlines()]


def test_it_tells_of_what_changed(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    busy, idle = f"{topic}.busy", f"{topic}.idle"
    create(broker_41, busy, 3)
    create(broker_41, idle, 2)
    for partition in (0, 2):
        send(broker_41, busy, 20, partition)
    site.write_config(broker_41.bootstrap, f"{topic}[.].*", records=10)

    head = ["topic", "partitions", "records", "segments", "stored"]
    said, row, total = told_by(site)
    assert said == head
    assert row[:-2] == [busy, "2", "of", "3", "40", "4"]
    assert total == ["40", "records", "archived", " 1 topic had nothing new"]

    send(broker_41, busy, 10, 1)
    said, row, total = told_by(site, "--partitions")
    assert said == ["topic", "partition", "offsets", *head[2:]]
    assert row[:-2] == [busy, "1", "0..10", "10", "1"]
    assert total == ["10", "records", "archived", " 1 topic had nothing new"]
    assert told_by(site) == [["0", "records", "archived", " 2 topics had nothing new"]]

    send(broker_41, busy, 20, 0)
    before = set(keys_in(site.bucket, "topics/"))
    told = json.loads(site.run("backup", "--until-end", "--format", "json").stdout)
    partitions = [(row["topic"], row["partition"], row["records"], row["position"]) for row in told["partitions"]]
    others = [(busy, 1, 0, 10), (busy, 2, 0, 20), (idle, 0, 0, 0), (idle, 1, 0, 0)]
    assert partitions == [(busy, 0, 20, 40), *others]
    stored = sum(
        len(s3_client(site.bucket).get_object(Bucket=site.bucket.name, Key=key)["Body"].read())
        for key in keys_in(site.bucket, "topics/")
        if key not in before
    )
    assert told["summary"] == {
        "topics": 2,
        "topics_changed": 1,
        "partitions": 5,
        "partitions_changed": 1,
        "partitions_left": 0,
        "partitions_failed": 0,
        "records": 20,
        "bytes": told["partitions"][0]["bytes"],
        "stored_bytes": stored,
        "segments": 2,
        "holes": 0,
        "open_transactions": 0,
        "dropped_records": 0,
        "errors": [],
    }


# --- bad input


def test_a_name_that_the_store_does_not_take_stops_its_partition_alone(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """MinIO takes 255 bytes between two slashes."""
    topic = topic[-60:]
    at_limit, beyond = topic + "x" * (227 - len(topic)), topic + "y" * (249 - len(topic))
    create(broker_41, at_limit, 11)
    create(broker_41, beyond, 1)
    for partition in range(11):
        send(broker_41, at_limit, 20, partition)
    send(broker_41, beyond, 20)
    before = java_oracle.consume(broker_41.bootstrap, at_limit).records
    site.write_config(broker_41.bootstrap, f"{topic}.*")
    for _ in range(2):
        done = site.run("backup", "--until-end", "--quiet")
        answer = STORE["a topic whose objects' names the store does not take"]
        assert done.returncode == answer.exit_code
        told = sorted(done.stderr.splitlines())
        assert [f"topics/{at_limit}/partition=10/" in told[0], f"topics/{beyond}/partition=0/" in told[1]] == [True] * 2
        assert [answer.says in line for line in told] == [True] * 2
    assert read_partitions(site.bucket, at_limit) == {number: before[number] for number in range(10)}


@pytest.mark.parametrize("is_broken", [False, True], ids=["answered", "connection lost"])
def test_a_topic_that_vanishes_leaves_the_others_alone(
    broker: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    is_broken: bool,
) -> None:
    """The broker answers for it last, wherever it stood in the request; after a break, leaders are asked for again."""
    names = [f"{topic}.a", f"{topic}.b", f"{topic}.c"]
    for name in names:
        create(broker, name, 2)
        send(broker, name, 50, 0)
        send(broker, name, 20, 1)

    async def fetch_after_deletion(
        client: KafkaClient,
        node_id: int,
        targets: Sequence[FetchTarget],
        **limits: Any,  # noqa: ANN401 - of fetch
    ) -> list[Fetched]:
        if names[0] in await client.describe_topics([names[0]]):
            await KafkaAdmin(client.settings).delete_topic(names[0])
            if is_broken:
                raise KafkaTemporaryError("lost")
        return await fetch(client, node_id, targets, **limits)

    monkeypatch.setattr(archiver.backup.partition.fetching, "fetch", fetch_after_deletion)
    reports = site.back_up(broker.bootstrap, f"{topic}[.].")
    errors = errors_of(reports)
    assert errors.keys() == {(names[0], 0), (names[0], 1)}
    assert all(names[0] in message for message in errors.values())
    for name in names[1:]:
        assert read_partitions(site.bucket, name) == java_oracle.consume(broker.bootstrap, name).records


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("odd")], ids=repr)
def test_what_goes_wrong_beside_the_store_ends_one_partition(
    broker_41: Broker, site: ArchiveSite, topic: str, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    create(broker_41, topic, 3)
    for partition in range(3):
        send(broker_41, topic, 10, partition)
    real = Path.open

    def open_or_not(path: Path, mode: str = "r", **options: Any) -> IO[Any]:  # noqa: ANN401 - as Path.open
        if path.name.startswith("1-0-") and mode == "r+b":
            raise fault
        return real(path, mode, **options)

    monkeypatch.setattr(Path, "open", open_or_not)
    reports = site.back_up(broker_41.bootstrap, topic)
    errors = errors_of(reports)
    assert errors.keys() == {(topic, 1)}
    error = reports[topic, 1].error
    assert error is not None
    if isinstance(fault, OSError):
        assert error.exit_code == 4
        assert all(part in str(error) for part in ("1-0-", "No space left", MACHINE["a spool disk that is full"].says))
    else:
        assert error.exit_code == 1
        assert all(part in str(error) for part in (f"{topic}-1", "RuntimeError", "odd"))
    assert read_partitions(site.bucket, topic).keys() == {0, 2}


@pytest.mark.parametrize("keeps_lying", [False, True])
def test_an_end_that_goes_away_under_a_run(
    broker_41: Broker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, keeps_lying: bool
) -> None:
    """What is archived agrees with the log all the same: its life goes on, up to what is committed at the start."""
    create(broker_41, topic)
    send(broker_41, topic, 20)
    real, calls = KafkaClient.offsets_each, []

    async def offsets_each(
        client: KafkaClient, wanted: Iterable[tuple[str, int]]
    ) -> tuple[dict[tuple[str, int], PartitionOffsets], Any]:
        calls.append(1)
        more = 5 if keeps_lying or len(calls) == 1 else 0
        found, refused = await real(client, wanted)
        later = {
            which: replace(one, last_stable=one.last_stable + more, high_watermark=one.high_watermark + more)
            for which, one in found.items()
        }
        return later, refused

    monkeypatch.setattr(KafkaClient, "offsets_each", offsets_each)
    monkeypatch.setattr(archiver.backup.partition.fetching, "FETCH_PATIENCE_S", 1.0)
    (report,) = site.back_up(broker_41.bootstrap, topic).values()
    assert (report.source.life, report.position, report.written.records) == (0, 20, 20)
    if keeps_lying:
        assert report.error is not None
        assert report.error.exit_code == 4
        assert "offset 20" in str(report.error)
    else:
        assert (report.error, report.end_offset) == (None, 20)
