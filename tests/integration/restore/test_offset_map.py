"""Every source offset is where the offset map says, by what Kafka's own Java reads there; whatever came between."""

import random
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

import archiver.restore.fill.partition_map
import archiver.restore.fill.partition_restore
from archiver.archive.restores.offset_map import OffsetMap, decode_offset_map
from archiver.cli.restore_report import topic_row
from archiver.restore.plan.claim_stream import ClaimStream
from archiver.restore.report.restore_report import RestoreResult
from archiver.upkeep.object_check import Level
from tests.support.brokers import Broker
from tests.support.examples import ExampleWriter, Kind, until_compacted, until_stable
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.produce_doubles import Killed
from tests.support.records import Rec, generate
from tests.support.round_trip import KEEP_ALL, ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

Partitions = dict[int, list[Rec]]


def with_transactions(broker: Broker, topic: str, oracle: JavaOracle, partitions: int = 2) -> Partitions:
    """Each transaction leaves a hole of one offset behind its records, and a larger one when it was aborted."""
    create_topic(broker.bootstrap, topic, partitions, KEEP_ALL)
    rng = random.Random(5)
    for number in range(30):
        parts = {
            partition: generate(1000 * partition + number, rng.randint(1, 12), raw=False, big_bytes=100)
            for partition in range(partitions)
        }
        oracle.produce(broker.bootstrap, topic, parts, transactional_id=topic)
        oracle.end_transaction(topic, commit=number % 3 > 0)
    until_stable(broker.bootstrap, topic)
    return dict(oracle.consume(broker.bootstrap, topic).records)


@dataclass(frozen=True, slots=True)
class Source:
    """A topic of three partitions with many holes, that nobody changes."""

    topic: str
    records: Partitions


@pytest.fixture(scope="module")
def source(broker_41: Broker, java_oracle: JavaOracle) -> Source:
    topic = f"source-{uuid.uuid4().hex[:8]}"
    return Source(topic, with_transactions(broker_41, topic, java_oracle, partitions=3))


def compacted(broker: Broker, topic: str, oracle: JavaOracle) -> Partitions:
    ExampleWriter(broker.bootstrap, oracle).write(topic, Kind.COMPACTED, (1, 2), 400)
    return dict(until_compacted(oracle, broker.bootstrap, topic).records)


def object_of(site: ArchiveSite, key: str) -> tuple[bytes, dict[str, str], str]:
    found = s3_client(site.bucket).get_object(Bucket=site.bucket.name, Key=key)
    return found["Body"].read(), found["Metadata"], found["ETag"]


def maps_of(site: ArchiveSite, result: RestoreResult) -> dict[int, OffsetMap]:
    (restored,) = result.topics
    assert [one.error for one in restored.errors] == []
    keys = {one.partition: one.offset_map for one in restored.partitions}
    assert [row["offset_map"] for row in topic_row(restored)["partitions"]] == list(keys.values())
    return {partition: decode_offset_map(*object_of(site, key)[:2], key) for partition, key in keys.items()}


def prove(found: OffsetMap, wanted: Sequence[Rec], target: Sequence[Rec]) -> None:
    """Ask for every offset there is, and some that are not."""
    offsets = [record.offset for record in wanted]
    assert len(target) == found.facts.records == len(offsets)
    asked = np.arange(-3, max([*offsets, 0]) + 5)
    there = found.translate(asked).tolist()
    for offset, where in zip(asked.tolist(), there, strict=True):
        following = bisect_left(offsets, offset)
        if following == len(offsets):
            assert where == found.facts.target_next
        else:
            assert target[where] == replace(wanted[following], offset=where, timestamp_type=0), offset
    assert found.translate_back(np.arange(len(target))).tolist() == offsets


@pytest.mark.parametrize("made", [with_transactions, compacted])
def test_records_are_where_the_map_says(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, made: Callable[..., Partitions]
) -> None:
    source = made(broker, topic, java_oracle)
    positions = {which: one.position for (_, which), one in site.back_up(broker.bootstrap, topic, records=50).items()}
    found = maps_of(site, site.restore(broker.bootstrap, rename=[f"{topic}={topic}.back"]))
    target = java_oracle.consume(broker.bootstrap, f"{topic}.back").records
    for partition, records in source.items():
        assert 10 < found[partition].facts.runs < len(records) < positions[partition]
        assert found[partition].facts.source_next == positions[partition]
        prove(found[partition], records, target[partition])
    assert site.verify(broker.bootstrap, [topic], Level.RECORDS).problems == []


def test_what_was_damaged_lies_in_a_hole(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    source: Source,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when it was mended since: it was left out."""
    site.back_up(broker_41.bootstrap, source.topic, records=50)
    key = keys_in(site.bucket, f"topics/{source.topic}/partition=0/")[1]
    content, metadata, _ = object_of(site, key)
    put = partial(s3_client(site.bucket).put_object, Bucket=site.bucket.name, Key=key, Metadata=metadata)
    put(Body=content[:-1])
    rename = [f"{source.topic}={topic}"]
    with killed_in(monkeypatch, "put_offset_map"):
        site.restore(broker_41.bootstrap, rename=rename, skips_damage=True)
    put(Body=content)
    first, last = int(metadata["archiver-first"]), int(metadata["archiver-last"])
    wanted = [record for record in source.records[0] if not first <= record.offset <= last]
    assert len(wanted) == len(source.records[0]) - 50
    target = java_oracle.consume(broker_41.bootstrap, topic).records[0]
    result = site.restore(broker_41.bootstrap, rename=rename, skips_damage=True)
    prove(maps_of(site, result)[0], wanted, target)


@contextmanager
def killed_in(patch: pytest.MonkeyPatch, name: str, *, after: bool = False) -> Iterator[None]:
    """The process dies when it reaches this function of a task, or this method of a claim's stream."""
    owner = ClaimStream if hasattr(ClaimStream, name) else archiver.restore.fill.partition_map
    real = getattr(owner, name)

    def die(*given: object) -> None:
        if after:
            real(*given)
        raise Killed

    with patch.context() as inner:
        inner.setattr(owner, name, die)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize(
    ("name", "after", "maps"),
    [
        ("put_offset_map", False, 0),
        ("put_offset_map", True, 1),
        ("note_verified", False, 1),
        ("note_verified", True, 1),
    ],
)
def test_killed_beside_the_map_and_run_again(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    source: Source,
    java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    after: bool,
    maps: int,
) -> None:
    site.back_up(broker_41.bootstrap, source.topic, records=50)
    rename = [f"{source.topic}={topic}"]
    with killed_in(monkeypatch, name, after=after):
        site.restore(broker_41.bootstrap, rename=rename, restore_id="mine")
    put = [key for key in keys_in(site.bucket, "control/restores/mine/") if key.endswith(".avro")]
    assert len(put) == maps
    before = [object_of(site, key) for key in put]
    found = maps_of(site, site.restore(broker_41.bootstrap, rename=rename, restore_id="mine"))
    assert [object_of(site, key) for key in put] == before
    target = java_oracle.consume(broker_41.bootstrap, topic).records
    for partition, records in source.records.items():
        prove(found[partition], records, target[partition])


def test_a_map_that_is_gone_is_made_anew(
    broker_41: Broker, topic: str, site: ArchiveSite, source: Source, java_oracle: JavaOracle
) -> None:
    """The target may have gone on living meanwhile."""
    site.back_up(broker_41.bootstrap, source.topic, records=50)
    rename = [f"{source.topic}={topic}"]
    first = site.restore(broker_41.bootstrap, rename=rename)
    before = maps_of(site, first)
    (key,) = [one.offset_map for one in first.topics[0].partitions if one.partition == 1]
    s3_client(site.bucket).delete_object(Bucket=site.bucket.name, Key=key)
    java_oracle.produce(broker_41.bootstrap, topic, {1: [Rec(0, 1, 0, b"later", b"")]})
    after = maps_of(site, site.restore(broker_41.bootstrap, rename=rename))
    for partition, found in before.items():
        assert after[partition].facts == found.facts
        assert after[partition].sources.tolist() == found.sources.tolist()
