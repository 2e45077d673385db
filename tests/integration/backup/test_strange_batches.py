"""Batches that this version cannot read, among others that it can: they end their own partition, by name, and no other."""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

import archiver.backup.partition.fetching
import archiver.codec.batch
from archiver.codec.frame import Longs
from archiver.codec.kernels.batches import LAST_OFFSET, MAX_TIMESTAMP
from archiver.demo.sandbox import fetch_kafka
from archiver.kafka.records.fetch import Fetched, FetchProblem, fetch
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import LogFile, log_folder, write_log
from tests.support.foreign_reader import read_partitions
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.raw_produce import produce_raw
from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, errors_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

STRANGE_MS = NOW_MS + 4711  # the time of batches that a test spoils
HEALTHY = [b"value %d" % number for number in range(50)]


def rows(start: int, timestamp: int = NOW_MS, timestamp_type: int = 0) -> list[Rec]:
    return [Rec(offset, timestamp, timestamp_type, b"k", b"v") for offset in range(start, start + 10)]


def message_set(java: JavaOracle, magic: int, start: int) -> bytes:
    return java.build(rows(start, -1, -1) if magic == 0 else rows(start), magic=magic, timestamp_type=magic - 1)


# How that batch is changed under the running broker: one that starts looks at its log, and cuts such a batch off.
CHANGES: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "v1 by a flipped magic": (lambda batch: batch[:16] + b"\1" + batch[17:], "offset 10: message v1: its CRC"),
    "unknown magic": (lambda batch: batch[:16] + b"\7" + batch[17:], "offset 10: record batch of magic 7"),
    "base offset beyond all": (lambda batch: struct.pack(">q", 2**63 - 10) + batch[8:], f"offset {2**63 - 10}: "),
}


class Poisoned(SimpleNamespace):
    """numpy, but that a new table of batches has garbage in it: of a fetch before, an offset, and beside it no epoch."""

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)

    @staticmethod
    def empty(shape: int | tuple[int, int], dtype: type = np.int64) -> Longs:
        made: Longs = np.empty(shape, dtype)
        if made.ndim == 2:
            made[:] = 2**40
            made[LAST_OFFSET] = 12
        return made


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def filled_broker(own_broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> KafkaBroker:
    """With a topic of two good batches, and a healthy one. What of memory nobody has written to is garbage."""
    monkeypatch.setattr(archiver.codec.batch, "np", Poisoned())
    for name in (topic, f"{topic}.healthy"):
        create_topic(own_broker.bootstrap, name, configs=KEEP_ALL)
    produce_values(own_broker.bootstrap, f"{topic}.healthy", HEALTHY)
    produce_raw(own_broker.bootstrap, topic, [encode(batch_of(rows(0)))] * 2)
    return own_broker


def first_batch(content: bytes) -> bytes:
    return content[: 12 + int.from_bytes(content[8:12], "big")]


def assert_only_that_one_ends(broker: KafkaBroker, topic: str, site: ArchiveSite, says: str) -> None:
    reports = site.back_up(broker.bootstrap, f"{topic}.*")
    errors = errors_of(reports)
    assert errors.keys() == {(topic, 0)}
    assert f"{topic}-0: {says}" in errors[topic, 0]
    archived = {name: read_partitions(site.bucket, name)[0] for name, _ in reports}
    assert [one.offset for one in archived[topic]] == list(range(10))
    assert [one.value for one in archived[f"{topic}.healthy"]] == HEALTHY


def test_message_sets(filled_broker: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle) -> None:
    """A log that was begun by an old broker, and continued by a new one."""
    filled_broker.stop()
    content = first_batch(log_of(filled_broker, topic).read_bytes())
    old = [message_set(java_oracle, magic, start) for magic, start in ((0, 10), (1, 20))]
    write_log(filled_broker, topic, 0, content + b"".join(old))
    filled_broker.start()
    produce_raw(filled_broker.bootstrap, topic, [encode(batch_of(rows(0)))])
    assert not errors_of(site.back_up(filled_broker.bootstrap, topic))
    expected = [*rows(0), *rows(10, -1, -1), *rows(20), *rows(30)]
    assert read_partitions(site.bucket, topic)[0] == expected


@pytest.mark.parametrize("kind", CHANGES)
def test_changed_batches(filled_broker: KafkaBroker, topic: str, site: ArchiveSite, kind: str) -> None:
    change, says = CHANGES[kind]
    spoil(filled_broker, topic, change)
    assert_only_that_one_ends(filled_broker, topic, site, says)


def spoil(broker: KafkaBroker, topic: str, change: Callable[[bytes], bytes]) -> None:
    log = LogFile(log_of(broker, topic), b"")
    content = log.path.read_bytes()
    first = first_batch(content)
    log.write(first + change(content[len(first) :]))


def log_of(broker: KafkaBroker, topic: str) -> Path:
    return log_folder(broker, topic, 0) / f"{0:020}.log"


def refuse(*_: object) -> NoReturn:
    raise LookupError("nobody foresaw this")


# What goes wrong with a batch of the one topic: while its answer is looked at, or in the next request that asks for its topic.
DEFECTS: Mapping[str, Mapping[str, Callable[..., object]]] = {
    "in an answer": {"position_after": refuse},
    "in a request": {"epoch_of": lambda _: 2**40},
}


@pytest.mark.parametrize("where", DEFECTS)
def test_what_nobody_foresaw(
    own_broker: KafkaBroker, topic: str, site: ArchiveSite, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five partitions at one broker the other four are archived, also what comes after it happened."""
    for name in (topic, f"{topic}.healthy"):
        create_topic(own_broker.bootstrap, name, 1 if name == topic else 4, KEEP_ALL)
    produce_raw(own_broker.bootstrap, topic, [encode(batch_of(rows(0, STRANGE_MS)))] * 3)
    for partition in range(4):
        produce_values(own_broker.bootstrap, f"{topic}.healthy", HEALTHY * 20, partition, batch_size=2000)
    for name, act in DEFECTS[where].items():
        usual = getattr(archiver.backup.partition.fetching, name)
        monkeypatch.setattr(archiver.backup.partition.fetching, name, strange_for(act, usual))
    monkeypatch.setattr(archiver.backup.partition.fetching, "PARTITION_BYTES", 300)  # many fetches
    reports = site.back_up(own_broker.bootstrap, f"{topic}.*")
    errors = errors_of(reports)
    assert errors.keys() == {(topic, 0)}
    assert f"{topic}-0: unexpected " in errors[topic, 0]
    healthy = read_partitions(site.bucket, f"{topic}.healthy")
    assert {number: [one.value for one in records] for number, records in healthy.items()} == dict.fromkeys(
        range(4), HEALTHY * 20
    )


def test_what_nobody_foresaw_while_a_partition_is_looked_into(
    own_broker: KafkaBroker, topic: str, site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (topic, f"{topic}.healthy"):
        create_topic(own_broker.bootstrap, name, 1, KEEP_ALL)
        produce_values(own_broker.bootstrap, name, HEALTHY)

    async def refused(*args: Any, **limits: Any) -> list[Fetched]:  # noqa: ANN401 - as they are
        answers = await fetch(*args, **limits)
        problem = FetchProblem.OFFSET_OUT_OF_RANGE
        return [replace(one, error=problem) if one.topic == topic else one for one in answers]

    monkeypatch.setattr(archiver.backup.partition.fetching, "fetch", refused)
    monkeypatch.setattr(archiver.backup.partition.fetching, "judge", refuse)
    errors = errors_of(site.back_up(own_broker.bootstrap, f"{topic}.*"))
    assert errors.keys() == {(topic, 0)}
    assert f"{topic}-0: unexpected LookupError: nobody foresaw this" in errors[topic, 0]
    assert len(read_partitions(site.bucket, f"{topic}.healthy")[0]) == len(HEALTHY)


def strange_for(act: Callable[..., object], usual: Callable[..., object]) -> Callable[..., object]:
    def chosen(batches: Longs, *more: object) -> object:
        is_strange = batches.shape[1] and batches[MAX_TIMESTAMP, 0] == STRANGE_MS
        return (act if is_strange else usual)(batches, *more)

    return chosen
