"""`backup --until-end` against real brokers and a real S3: where it ends, what it keeps, and what goes wrong beside it."""

import asyncio
import errno
import json
import logging
import os
import random
import shutil
import signal
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import archiver.backup.partition.fetching
import archiver.backup.service.run_backup
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.backup.opening.opener import Opener
from archiver.backup.partition.feed import PartitionReport
from archiver.backup.partition.fetched_batches import Fetch
from archiver.backup.partition.partition_writer import PartitionWriter
from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig
from archiver.errors import KafkaTemporaryError, NotWholeError, StoppedError, StrangerError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets
from archiver.kafka.records.fetch import Fetched, FetchTarget, fetch
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.store.port import Body, ObjectKind
from archiver.store.s3 import S3Store
from tests.support.bad_input import MACHINE, STORE
from tests.support.brokers import KAFKA_39, KAFKA_41, Broker, Bucket, GivenS3, StartBroker
from tests.support.cluster import broker_cluster
from tests.support.examples import EAGER_CLEANER, until_stable
from tests.support.faulty_s3 import Fault, FaultyS3, Quirk
from tests.support.foreign_reader import Segment, keys_in, read_partitions, read_segments, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, produce_values, settings_of
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec, generate
from tests.support.reference_batch import Oddities, batch_of, encode, varint
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site, errors_of
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


def test_topics_are_chosen_by_full_match(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    names = [f"{topic}.a1", f"{topic}.a2", f"{topic}.b", f"{topic}.a1.dead"]
    for name in names:
        create(broker_41, name)
        send(broker_41, name, 1)
    reports = site.back_up(broker_41.bootstrap, rf"{topic}\.a\d", rf"{topic}\.b")
    assert {name for name, _ in reports} == set(names[:3])
    with pytest.raises(UsageError, match="nothing to archive"):
        site.back_up(broker_41.bootstrap, topic)


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


def test_holes_of_two_causes_side_by_side_stay_two(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """The backup was told to begin late, and what lies behind that has expired before its first record came."""
    create(broker_41, topic)
    send(broker_41, topic, 10)
    config = site.config(broker_41.bootstrap, [topic])
    config["backup"]["start"] = "latest"
    back_up_as(config)
    send(broker_41, topic, 40)
    delete_below(broker_41, topic, 30)
    (report,) = back_up_as(config)
    assert (report.error, report.written.records) == (None, 20)
    assert [one.holes for one in read_segments(site.bucket, topic)] == ["0-9:before-start;10-29:expired"]
    assert site.verify(broker_41.bootstrap, [topic], against_kafka=True).is_whole


def back_up_as(config: Mapping[str, Any]) -> Sequence[PartitionReport]:
    found, _ = run_backup(ArchiverConfig.model_validate(config), lambda _: None)
    return found.partitions


@pytest.mark.parametrize(
    ("limits", "most_records"), [({"records": 100}, 100), ({"bytes": 20_000}, 400)], ids=["records", "bytes"]
)
def test_segments_roll(
    broker_41: Broker, topic: str, site: ArchiveSite, limits: dict[str, int], most_records: int
) -> None:
    create(broker_41, topic)
    send(broker_41, topic, 1000, per_batch=30)
    (report,) = site.back_up(broker_41.bootstrap, topic, **limits).values()
    segments = read_segments(site.bucket, topic)
    assert_contiguous(segments)
    assert len(segments) == report.written.segments >= 1000 // most_records
    assert max(len(one.records) for one in segments) <= most_records
    assert [row.offset for one in segments for row in one.records] == list(range(1000))
    assert sum(int(one.metadata["archiver-source-bytes"]) for one in segments) == _log_bytes(segments)


def _log_bytes(segments: Sequence[Segment]) -> int:
    """What the batches of `send(1000, per_batch=30)` took."""
    del segments
    return sum(len(encode(batch_of(rows(min(30, 1000 - start))))) for start in range(0, 1000, 30))


def test_each_run_goes_on_where_the_last_one_ended(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    create(broker, topic, 2)
    for turn in range(4):
        java_oracle.produce(
            broker.bootstrap, topic, {0: generate(seed + turn, 50, raw=False), 1: rows(turn)}, compression_type="lz4"
        )
        assert errors_of(site.back_up(broker.bootstrap, topic, records=20)) == {}
    assert_contiguous(read_segments(site.bucket, topic))
    assert read_partitions(site.bucket, topic) == java_oracle.consume(broker.bootstrap, topic).records


def test_nothing_but_avro_lies_under_topics(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create(broker_41, topic, 2)
    send(broker_41, topic, 20, partition=1)
    site.back_up(broker_41.bootstrap, topic, records=7)
    keys = keys_in(site.bucket)
    under_topics = [key for key in keys if key.startswith("topics/")]
    assert len(under_topics) == 3
    client = s3_client(site.bucket)
    for key in under_topics:
        assert client.get_object(Bucket=site.bucket.name, Key=key)["Body"].read(4) == b"Obj\x01"
    assert {key.partition("/")[0] for key in keys} == {"topics", "control"}
    assert list((site.folder / "spool").iterdir()) == []


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
    with broker_cluster(tmp_path, 3) as cluster:
        cluster.create_topic(topic, [[1], [2], [3]] * 2)
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

    assert told_by(site) == told_by(site, "--partitions") == [["0", "records", "archived", " 2 topics had nothing new"]]


def test_as_json_it_tells_of_everything_and_a_sum(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create(broker_41, f"{topic}.busy", 2)
    create(broker_41, f"{topic}.idle")
    send(broker_41, f"{topic}.busy", 20, 1)
    site.write_config(broker_41.bootstrap, f"{topic}[.].*", records=10)
    told = json.loads(site.run("backup", "--until-end", "--format", "json").stdout)
    partitions = [(row["topic"], row["partition"], row["records"], row["position"]) for row in told["partitions"]]
    assert partitions == [(f"{topic}.busy", 0, 0, 0), (f"{topic}.busy", 1, 20, 20), (f"{topic}.idle", 0, 0, 0)]
    stored = sum(
        len(s3_client(site.bucket).get_object(Bucket=site.bucket.name, Key=key)["Body"].read())
        for key in keys_in(site.bucket, "topics/")
    )
    assert told["summary"] == {
        "topics": 2,
        "topics_changed": 1,
        "partitions": 3,
        "partitions_changed": 1,
        "partitions_left": 0,
        "partitions_failed": 0,
        "records": 20,
        "bytes": told["partitions"][1]["bytes"],
        "stored_bytes": stored,
        "segments": 2,
        "holes": 0,
        "open_transactions": 0,
        "dropped_records": 0,
        "errors": [],
    }


# --- two writers, and puts of unknown outcome


class UnsteadyStore(S3Store):
    """A put takes long now and then, so that the writer behind catches up and overtakes. One that has created a segment
    waits until the other one has, too.
    """

    creators: set[int]
    both_have: threading.Event

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        time.sleep(0.3 if random.random() < 0.1 else 0.0)
        if id(self) in self.creators:
            assert self.both_have.wait(60), "the other one creates nothing"
        etag = super().put_if_absent(key, body, metadata, kind=kind)
        if etag is not None and key.startswith("topics/"):
            self.creators.add(id(self))
            if len(self.creators) == 2:
                self.both_have.set()
        return etag


def test_two_backups_at_once_keep_every_offset_once(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    count = 600 if pytestconfig.getoption("--long") else 240
    create(broker_41, topic, 3)
    for partition in range(3):
        send(broker_41, topic, count, partition, per_batch=20)
    monkeypatch.setattr(UnsteadyStore, "creators", set(), raising=False)
    monkeypatch.setattr(UnsteadyStore, "both_have", threading.Event(), raising=False)
    monkeypatch.setattr(
        archiver.backup.service.run_backup,
        "open_archive",
        lambda config: Archive(UnsteadyStore(config), Layout(config.prefix)),
    )
    gate = threading.Barrier(2)

    def run(records: int) -> dict[tuple[str, int], PartitionReport]:
        gate.wait()
        return site.back_up(broker_41.bootstrap, topic, records=records)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(run, (7, 11)))
    assert [errors_of(reports) for reports in both] == [{}, {}]
    assert {report.position for reports in both for report in reports.values()} == {count}
    wrote = [sum(report.written.records for report in reports.values()) for reports in both]
    assert min(wrote) > 0
    assert sum(wrote) == 3 * count
    assert_contiguous(read_segments(site.bucket, topic))
    assert read_partitions(site.bucket, topic) == java_oracle.consume(broker_41.bootstrap, topic).records


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[FaultyS3]:
    with FaultyS3(bucket.s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def shaky(bucket: Bucket, proxy: FaultyS3, tmp_path: Path) -> Iterator[ArchiveSite]:
    """The same bucket, through the proxy."""
    s3 = GivenS3(proxy.endpoint, bucket.s3.access_key, bucket.s3.secret_key)
    with archive_site(Bucket(s3, bucket.name), tmp_path) as site:
        yield site


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.SLOW_DOWN, Fault.CUT_UPLOAD])
def test_a_store_that_fails_for_a_while_costs_nothing(
    broker_41: Broker,
    topic: str,
    bucket: Bucket,
    shaky: ArchiveSite,
    proxy: FaultyS3,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create(broker_41, topic)
    send(broker_41, topic, 5)
    shaky.back_up(broker_41.bootstrap, topic)
    send(broker_41, topic, 35)
    monkeypatch.setattr(
        archiver.backup.service.run_backup, "probe_store", lambda *_: None
    )  # the fault is for the segments
    with proxy.failing(fault, "PUT", times=4):
        (report,) = shaky.back_up(broker_41.bootstrap, topic, records=10).values()
    assert (report.error, report.position) == (None, 40)
    assert (report.written.records, report.written.segments) == (35, 4)
    segments = read_segments(bucket, topic)
    assert_contiguous(segments)
    assert [row.offset for row in read_partitions(bucket, topic)[0]] == list(range(40))


def test_a_bucket_with_object_lock_takes_an_archive(
    broker_41: Broker, topic: str, bucket: Bucket, tmp_path: Path
) -> None:
    """As AWS does, the store refuses each put that has no checksum: of segments, facts, positions and the index."""
    create(broker_41, topic)
    with FaultyS3(bucket.s3.endpoint, Quirk.WANTS_CHECKSUM) as proxy:
        s3 = GivenS3(proxy.endpoint, bucket.s3.access_key, bucket.s3.secret_key)
        with archive_site(Bucket(s3, bucket.name), tmp_path) as site:
            for _ in range(2):
                send(broker_41, topic, 30)
                site.write_config(broker_41.bootstrap, topic, records=10)
                done = site.run("backup", "--until-end", "--quiet")
                assert (done.returncode, done.stderr) == (0, "")
    assert_contiguous(read_segments(bucket, topic))
    assert [row.offset for row in read_partitions(bucket, topic)[0]] == list(range(60))
    assert {key.split("/")[1] for key in keys_in(bucket, "control/")} >= {"index", "cluster", "topics", "probe"}


# --- bad input


def test_a_broken_batch_stops_only_its_partition(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    broker = shared_broker(KAFKA_41)
    create(broker, topic, 3)
    for partition in range(3):
        send(broker, topic, 100, partition)
    before = java_oracle.consume(broker.bootstrap, topic).records
    broker.stop()
    log = broker.data_dir / "log" / f"{topic}-1" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    place = content.index(b"value 9", content.index(b"value 9") + len(content) // 2)
    content[place] ^= 0xFF
    log.write_bytes(content)
    broken_at = 10 * (content[:place].count(b"value 0") - 1)
    assert 40 < broken_at < 90
    broker.start()

    reports = site.back_up(broker.bootstrap, topic)
    errors = errors_of(reports)
    assert errors.keys() == {(topic, 1)}
    message = errors[topic, 1]
    assert f"{topic}-1" in message
    assert f"offset {broken_at}" in message
    assert isinstance(reports[topic, 1].error, NotWholeError)
    assert reports[topic, 1].position == broken_at
    found = read_partitions(site.bucket, topic)
    assert found == {0: before[0], 1: before[1][:broken_at], 2: before[2]}

    site.write_config(broker.bootstrap, topic)
    done = site.run("backup", "--until-end")
    assert done.returncode == 3
    assert [line.split()[:4] + line.split()[-2:] for line in done.stdout.splitlines() if "FAILED" in line] == [
        [topic, "1", "of", "3", "1", "FAILED"]
    ]
    assert f"{topic}-1" in done.stderr
    assert f"offset {broken_at}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_the_store_does_not_take_stops_its_partition_alone(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """MinIO takes 255 bytes between two slashes. Also one that holds nothing is told: it could never be archived."""
    topic = topic[-60:]
    at_limit, beyond = topic + "x" * (227 - len(topic)), topic + "y" * (249 - len(topic))
    create(broker_41, at_limit, 11)
    create(broker_41, beyond, 1)
    for partition in range(11):
        send(broker_41, at_limit, 20, partition)
    before = java_oracle.consume(broker_41.bootstrap, at_limit).records
    site.write_config(broker_41.bootstrap, f"{topic}.*")
    for _ in range(2):
        done = site.run("backup", "--until-end", "--quiet")
        assert done.returncode == STORE["a topic whose objects' names the store does not take"].exit_code
        told = sorted(line.removeprefix("archiver: ") for line in done.stderr.splitlines())
        assert [line.partition(": ")[0] for line in told] == [f"{at_limit}-10", f"{beyond}-0"]
        assert STORE["a topic whose objects' names the store does not take"].says in told[0]
        assert "leave the topic out (topics.exclude)" in told[1]
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


def recreate(broker: Broker, topic: str) -> None:
    async def body() -> None:
        admin = KafkaAdmin(settings_of(broker.bootstrap))
        await admin.delete_topic(topic)
        await admin.create_topic(topic, partitions=1, replication_factor=1, configs=KEEP_ALL)

    asyncio.run(body())


def test_a_recreated_topic_begins_a_life(broker: Broker, topic: str, site: ArchiveSite) -> None:
    create(broker, topic)
    send(broker, topic, 20)
    site.back_up(broker.bootstrap, topic)
    recreate(broker, topic)
    send(broker, topic, 8)
    (report,) = site.back_up(broker.bootstrap, topic).values()
    assert (report.error, report.source.life, report.from_offset, report.position) == (None, 1, 0, 8)
    assert [row.offset for row in read_partitions(site.bucket, topic)[0]] == list(range(20))
    assert [row.offset for row in read_partitions(site.bucket, f"{topic}@1")[0]] == list(range(8))


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


def bomb(size: int) -> bytes:
    """A batch of one record, as large as that, which a broker takes: zeros."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(size)
    packer = zstandard.ZstdCompressor().compressobj()
    parts = [packer.compress(varint(len(body) + size + 1) + body)]
    parts += [packer.compress(bytes(1_000_000)) for _ in range(size // 1_000_000)]
    parts += [packer.compress(b"\0"), packer.flush()]
    return encode(batch_of([Rec(0, NOW_MS, 0, None, b"")], codec="zstd"), Oddities(payload=b"".join(parts)))


def test_a_batch_that_expands_to_gigabytes_is_stopped(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create(broker_41, topic, 1)
    small = encode(batch_of([Rec(0, NOW_MS, 0, b"k", b"v")]))
    produce_raw(broker_41.bootstrap, topic, [small, bomb(300_000_000), small])
    tracemalloc.start()
    report = site.back_up(broker_41.bootstrap, topic)[topic, 0]
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    answer = MACHINE["a batch that expands to gigabytes"]
    assert kept_bytes < 100_000_000  # the error does not hold what was decompressed
    assert report.error is not None
    assert (report.error.exit_code, report.position) == (answer.exit_code, 1)
    assert answer.says in str(report.error)


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


@pytest.mark.parametrize("version", [pytest.param(KAFKA_39, marks=pytest.mark.long), KAFKA_41])
def test_a_log_that_was_cut_back_and_has_grown_again_begins_a_life(
    shared_broker: StartBroker, topic: str, site: ArchiveSite, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = shared_broker(version)
    create(broker, topic, 2)
    for partition in range(2):
        send(broker, topic, 100, partition)
    site.back_up(broker.bootstrap, topic, records=35)
    before = read_partitions(site.bucket, topic)
    broker.stop()  # a new leader epoch alone harms nobody: partition 1 goes on
    shutil.rmtree(broker.data_dir / "log" / f"{topic}-0")
    broker.start()
    for partition in range(2):
        send(broker, topic, 150, partition)
    reports = site.back_up(broker.bootstrap, topic)
    assert errors_of(reports) == {}
    assert {number: report.source.life for (_, number), report in reports.items()} == {0: 1, 1: 0}
    (alarm,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert all(part in alarm for part in (f"{topic}-0", "offset 0", "cut back", "life 1"))
    after = read_partitions(site.bucket, topic)
    assert (after[0], len(after[1])) == (before[0], 250)
    assert {number: len(rows) for number, rows in read_partitions(site.bucket, f"{topic}@1").items()} == {0: 150}
    assert errors_of(site.back_up(broker.bootstrap, topic)) == {}
    assert {one.metadata["archiver-leader-epoch"] for one in read_segments(site.bucket, topic) if one.base < 100} == {
        "0"
    }


def test_a_segment_of_another_topic_id_is_not_gone_on_from(broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    """As when the control facts were lost, and the topic was created again."""
    create(broker_41, topic, 2)
    send(broker_41, topic, 20)
    site.back_up(broker_41.bootstrap, topic)
    client = s3_client(site.bucket)
    for key in keys_in(site.bucket):
        if key.startswith("control/topics/"):
            client.delete_object(Bucket=site.bucket.name, Key=key)
    recreate(broker_41, topic)
    send(broker_41, topic, 25)
    reports = site.back_up(broker_41.bootstrap, topic)
    assert isinstance(reports[topic, 0].error, StrangerError)
    assert "belongs to topic id" in str(reports[topic, 0].error)
    assert len(read_segments(site.bucket, topic)) == 1


def test_another_cluster_is_refused(broker_39: Broker, broker_41: Broker, topic: str, site: ArchiveSite) -> None:
    create(broker_39, topic)
    send(broker_39, topic, 3)
    site.back_up(broker_39.bootstrap, topic)
    other = f"{topic}-other"  # not even with a topic that the archive does not know
    create(broker_41, other)
    send(broker_41, other, 3)
    with pytest.raises(StrangerError, match=r"control/cluster/000000\.json: this archive belongs to cluster"):
        site.back_up(broker_41.bootstrap, other)
    assert len(read_segments(site.bucket, topic)) == 1
    assert read_segments(site.bucket, other) == []
