"""Batches that nobody can read: asked for again, skipped where the configuration says so, and told by everything that reads the archive."""

import asyncio
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import archiver.backup.partition.fetching
from archiver.backup.partition.feed import PartitionReport
from archiver.backup.partition.unreadable import judge_broken
from archiver.demo.sandbox import fetch_kafka
from archiver.errors import TargetError
from archiver.kafka.records.fetch import Fetched, fetch
from archiver.restore.plan.request import Existing
from tests.support.bad_input import MACHINE
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import LogFile, corrupt_log, log_folder
from tests.support.foreign_reader import read_partitions, read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, with_client
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import ALL_OF_LONG, KEEP_ALL, ArchiveSite
from tests.support.service import eventually, running, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

SKIP = {"unreadable": "skip"}
LOW_CAP = {"batch": {"bytes": "1MiB"}}


def ten(start: int = 0) -> list[Rec]:
    return [Rec(offset, NOW_MS + offset, 0, b"k%d" % offset, b"v") for offset in range(start, start + 10)]


def without_ten(records: Sequence[Rec], gone: range) -> list[Rec]:
    return [one for one in records if one.offset not in gone]


# A tenth of a percent of what it opens to: whoever may produce can write it.
LARGE = encode(batch_of([Rec(0, NOW_MS, 0, b"large", bytes(3_000_000))], codec="zstd"))
SMALL = encode(batch_of(ten()))


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def filled(own_broker: KafkaBroker, topic: str) -> KafkaBroker:
    """With a topic of three batches of ten records. Its log is one file, whatever the times of what follows."""
    create_topic(own_broker.bootstrap, topic, configs={**KEEP_ALL, "segment.ms": ALL_OF_LONG})
    produce_raw(own_broker.bootstrap, topic, [SMALL] * 3)
    return own_broker


def back_up(site: ArchiveSite, broker: KafkaBroker, topic: str, **backup: object) -> PartitionReport:
    return site.back_up_with(broker.bootstrap, topic, **backup)[topic, 0]


def errors_logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_a_batch_above_the_cap(
    own_broker: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops its partition and says why; then it is skipped, which everything tells that reads the archive."""
    create_topic(own_broker.bootstrap, topic, configs=KEEP_ALL)
    produce_raw(own_broker.bootstrap, topic, [SMALL, LARGE, SMALL])
    seen = java_oracle.consume(own_broker.bootstrap, topic).records[0]
    assert len(seen) == 21

    stopped = back_up(site, own_broker, topic, **LOW_CAP)
    assert stopped.error is not None
    assert (stopped.position, stopped.error.exit_code) == (10, 3)
    for part in (
        MACHINE["a batch that expands to gigabytes"]
        .says.replace("offset 1:", "offset 10:")
        .replace("268435456", "1048576"),
        "offsets 10-10 are as a producer wrote them, by their checksum",
        "whoever may write to the topic",
        "Raise backup.batch.bytes (now 1MiB), or set backup.unreadable: skip",
        "everything before it is archived",
    ):
        assert part in str(stopped.error)
    assert read_partitions(site.bucket, topic)[0] == seen[:10]

    skipped = back_up(site, own_broker, topic, **LOW_CAP, **SKIP)
    kept = without_ten(seen, range(10, 11))
    assert (skipped.error, skipped.position) == (None, 21)
    assert read_partitions(site.bucket, topic)[0] == kept
    assert [str(hole) for hole in skipped.written.holes] == ["10-10:unreadable"]
    _, last = read_segments(site.bucket, topic)
    assert (last.holes, last.metadata["archiver-format"]) == ("10-10:unreadable", "2")
    (told,) = errors_logged(caplog)
    assert f"{topic}-0: offsets 10 to 10 are not archived: unreadable" in told

    site.write_config(own_broker.bootstrap, topic)
    listed = json.loads(site.run_within("ls", "--format", "json").stdout)["holdings"]
    assert [(one["holes"], one["unreadable"]) for one in listed] == [(1, 1)]
    assert "1 hole, 1 of them unreadable" in site.run_within("ls").stdout

    verified = site.verify(own_broker.bootstrap, [topic], against_kafka=True)
    assert (verified.is_whole, verified.compared) == (True, 20), verified
    assert any(f"{topic}-0: offsets 10-10 are lost to this archive" in note for note in verified.notes)

    caplog.clear()
    site.restore(own_broker.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"])
    assert f"{topic}-0: offsets 10-10 do not come back: the backup could not read them" in caplog.text
    back = java_oracle.consume(own_broker.bootstrap, f"{topic}.back").records[0]
    assert [one.without_offset() for one in back] == [one.without_offset() for one in kept]
    # The topic itself has the only copy of what was skipped.
    with pytest.raises(TargetError, match="up to 1 record of it is not in the archive"):
        site.restore(own_broker.bootstrap, topics=topic, existing=Existing.PURGE, restore_id="purge")


def test_a_batch_that_is_broken_on_the_only_disk(filled: KafkaBroker, topic: str, site: ArchiveSite) -> None:
    corrupt_log(filled, topic, 0, 10)
    stopped = back_up(site, filled, topic)
    assert stopped.position == 10
    assert "do not have the checksum of a batch, on the only replica in sync (broker 1)" in str(stopped.error)
    assert "Set backup.unreadable: skip" in str(stopped.error)
    skipped = back_up(site, filled, topic, **SKIP)
    assert (skipped.error, skipped.position) == (None, 30)
    assert read_partitions(site.bucket, topic)[0] == [*ten(0), *written_at(20)]
    assert read_segments(site.bucket, topic)[-1].holes == "10-19:unreadable"


def written_at(start: int) -> list[Rec]:
    return [replace(one, offset=start + number) for number, one in enumerate(ten())]


def test_the_last_batch_is_met_again_until_a_record_comes_behind_it(
    filled: KafkaBroker, topic: str, site: ArchiveSite
) -> None:
    """Killed between the alarm and the put, a backup has noted nothing: the next one asks again."""
    corrupt_log(filled, topic, 0, 20)
    assert back_up(site, filled, topic).position == 20
    config = service_config(site, filled.bootstrap, topic, group=topic, **SKIP)
    with running(site, config) as instance:
        eventually(lambda: instance.value("archiver_unreadable_offsets_total", topic=topic, partition="0") == 10)
        assert instance.value("archiver_holes_total", topic=topic, cause="unreadable") == 1
        assert instance.value("archiver_partitions_failing", topic=topic) == 0
        assert instance.value("archiver_lag_offsets", topic=topic) == 0
        assert f"{topic}-0: offsets 20 to 29 are not archived: unreadable" in instance.log
    with running(site, config) as instance:
        produce_raw(filled.bootstrap, topic, [SMALL])
        eventually(lambda: len(read_partitions(site.bucket, topic)[0]) == 30)
        assert instance.stop() == 0
    assert read_partitions(site.bucket, topic)[0] == [*ten(), *written_at(10), *written_at(30)]
    assert [one.holes for one in read_segments(site.bucket, topic)] == ["", "20-29:unreadable"]


# What the second batch's header says of its last offset, counted from its first; None: that it begins behind where it does.
LENGTHS: Mapping[str, int | None] = {"beyond the log": 5000, "into the next batch": 14, "behind its place": None}


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_header_that_nothing_confirms(own_broker: KafkaBroker, topic: str, site: ArchiveSite, kind: str) -> None:
    """How far it reaches cannot be told: not a record of the batches behind it is skipped."""
    create_topic(own_broker.bootstrap, topic, configs={**KEEP_ALL, "segment.ms": ALL_OF_LONG})
    produce_raw(own_broker.bootstrap, topic, [SMALL, LARGE, SMALL, SMALL])
    last = LENGTHS[kind]
    if last is None:
        move_batch(own_broker, topic, 10, 15)
    else:
        log = LogFile(log_folder(own_broker, topic, 0) / f"{0:020}.log", b"")
        content = bytearray(log.path.read_bytes())
        struct.pack_into(">i", content, 12 + struct.unpack_from(">i", content, 8)[0] + 23, last)
        log.write(bytes(content))
    report = back_up(site, own_broker, topic, **LOW_CAP, **SKIP)
    assert report.position == 10
    assert "How far it reaches cannot be told, so it is not skipped: kafka-delete-records" in str(report.error)


def test_an_answer_that_is_damaged_on_the_way(
    filled: KafkaBroker,
    topic: str,
    site: ArchiveSite,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(archiver.backup.partition.fetching, "fetch", damaging(topic, 1))
    assert back_up(site, filled, topic, **SKIP).error is None
    assert "asked for once more, of broker 1, it came whole" in caplog.text
    assert read_partitions(site.bucket, topic) == java_oracle.consume(filled.bootstrap, topic).records


def end_of(broker: KafkaBroker, topic: str) -> int:
    offsets = with_client(broker.bootstrap, lambda client: client.offsets([(topic, 0)]))
    return offsets[topic, 0].last_stable


def test_a_broken_marker_of_a_transaction(
    filled: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle
) -> None:
    """Its offset is the hole; the transaction's records are there, and an aborted one's are not."""
    for commit in (True, False):
        java_oracle.produce(filled.bootstrap, topic, {0: ten()[:1]}, transactional_id=topic)
        java_oracle.end_transaction(topic, commit=commit)
        end = 32 if commit else 34
        eventually(lambda end=end: end_of(filled, topic) == end)  # type: ignore[misc]
    produce_raw(filled.bootstrap, topic, [SMALL])
    for marker in (31, 33):
        corrupt_log(filled, topic, 0, marker)
    report = back_up(site, filled, topic, **SKIP)
    assert (report.error, report.position) == (None, 44)
    archived = [one.offset for one in read_partitions(site.bucket, topic)[0]]
    assert archived == [*range(31), *range(34, 44)]
    assert read_segments(site.bucket, topic)[-1].holes == "31-31:unreadable;33-33:unreadable"


def test_what_expires_while_it_is_looked_into(
    filled: KafkaBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt_log(filled, topic, 0, 10)

    async def late(*asked: Any) -> object:  # noqa: ANN401 - as they are
        admin = AdminClient({"bootstrap.servers": filled.bootstrap})
        await asyncio.to_thread(lambda: delete_below(admin, topic, 20))
        return await judge_broken(*asked)

    monkeypatch.setattr(archiver.backup.partition.fetching, "judge_broken", late)
    assert back_up(site, filled, topic, **SKIP).error is None
    assert read_segments(site.bucket, topic)[-1].holes == "10-19:expired"


def delete_below(admin: AdminClient, topic: str, offset: int) -> None:
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(20)


def damaging(topic: str, times: int) -> Callable[..., Any]:
    """Flip a bit in the second batch of the first answers that have one."""
    left = [times]

    async def damaged(*args: Any, **limits: Any) -> list[Fetched]:  # noqa: ANN401 - as they are
        return [harmed(one) for one in await fetch(*args, **limits)]

    def harmed(answer: Fetched) -> Fetched:
        if answer.topic != topic or len(answer.records) <= len(SMALL) or not left[0]:
            return answer
        left[0] -= 1
        records = bytearray(answer.records)
        records[len(SMALL) + 70] ^= 1
        return replace(answer, records=memoryview(bytes(records)))

    return damaged


def move_batch(broker: KafkaBroker, topic: str, base: int, to: int) -> None:
    """Let the batch that begins at an offset say that it begins at another one."""
    log = LogFile(log_folder(broker, topic, 0) / f"{0:020}.log", b"")
    content, at = bytearray(log.path.read_bytes()), 0
    while struct.unpack_from(">q", content, at)[0] != base:
        at += 12 + struct.unpack_from(">i", content, at + 8)[0]
    struct.pack_into(">q", content, at, to)
    log.write(bytes(content))


# The batch whose base offset is false, what it says, and what is told of it.
MOVES: Mapping[str, tuple[int, int, str]] = {
    "into the next batch": (10, 14, "14-23, and the next one begins at 20, and the log ends at 30"),
    "the last one, behind the log": (20, 20 + 2**20, "1048596-1048605, and the log ends at 30"),
    "before the one before it": (20, 4, "10-19, and the next one begins at 4, and the log ends at 30"),
}


@pytest.mark.parametrize("times", [1, 1000])
def test_a_batch_that_was_appended_while_it_was_fetched(
    filled: KafkaBroker,
    topic: str,
    site: ArchiveSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    times: int,
) -> None:
    """A broker looks where the log ends before it reads: an end below the last batch is no sign that this one is false."""
    monkeypatch.setattr(archiver.backup.partition.fetching, "fetch", ending_early(topic, times))
    report = back_up(site, filled, topic)
    assert (report.error, report.position) == (None, 30)
    assert read_partitions(site.bucket, topic)[0] == [*ten(), *written_at(10), *written_at(20)]
    assert ("asked for once more" in caplog.text) == (times > 1)


def ending_early(topic: str, times: int) -> Callable[..., Any]:
    """Let the first answers with records say that the log ends within the last batch."""
    left = [times]

    async def early(*args: Any, **limits: Any) -> list[Fetched]:  # noqa: ANN401 - as they are
        return [ended(one) for one in await fetch(*args, **limits)]

    def ended(answer: Fetched) -> Fetched:
        if answer.topic != topic or not len(answer.records) or not left[0]:
            return answer
        left[0] -= 1
        return replace(answer, high_watermark=25, last_stable_offset=25)

    return early


@pytest.mark.parametrize("kind", MOVES)
def test_a_batch_that_is_not_where_it_says(filled: KafkaBroker, topic: str, site: ArchiveSite, kind: str) -> None:
    """Its records are whole, and nothing is archived at offsets that they never had."""
    base, to, told = MOVES[kind]
    move_batch(filled, topic, base, to)
    stopped = back_up(site, filled, topic)
    at = 10 if to < base else base
    assert stopped.position == at
    assert f"offset {at}: the batch that stands there says that it has offsets {told}" in str(stopped.error)
    assert "Set backup.unreadable: skip" in str(stopped.error)
    assert "on the only replica in sync (broker 1)" in str(stopped.error)
    skipped = back_up(site, filled, topic, **SKIP)
    if to < base:  # which of the two is false, nothing tells
        assert "How far it reaches cannot be told, so it is not skipped" in str(skipped.error)
        return
    produce_raw(filled.bootstrap, topic, [SMALL])
    after = back_up(site, filled, topic, **SKIP)
    assert (skipped.error, skipped.position, after.error, after.position) == (None, 30, None, 40)
    archived = [one.offset for one in read_partitions(site.bucket, topic)[0]]
    assert archived == [offset for offset in range(40) if not base <= offset < base + 10]
    assert {one.holes for one in read_segments(site.bucket, topic)} - {""} == {f"{base}-{base + 9}:unreadable"}
