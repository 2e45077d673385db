"""Archive == what an independent consumer sees == what is on the target after a restore. Exactly, in order."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from archiver.kafka.topics.admin import KafkaAdmin
from tests.support.brokers import Broker
from tests.support.examples import SHAPES, ExampleWriter, Kind, until_compacted, until_stable
from tests.support.foreign_reader import read_partitions
from tests.support.java_oracle import Consumed, JavaOracle
from tests.support.kafka_topics import settings_of
from tests.support.records import ALL_CLASSES, Rec, classes_of, missing_classes
from tests.support.round_trip import ArchiveSite, errors_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3]

Partitions = Mapping[int, Sequence[Rec]]


@dataclass(frozen=True, slots=True)
class Examples:
    """How many partitions of each kind, and how long."""

    counts: Mapping[Kind, int]
    records: int


SHORT = Examples(
    {Kind.PLAIN: 3, Kind.APPEND_TIME: 1, Kind.TRANSACTIONS: 2, Kind.COMPACTED: 1, Kind.BIG: 1}, records=700
)
LONG = Examples(
    {Kind.PLAIN: 12, Kind.APPEND_TIME: 6, Kind.TRANSACTIONS: 12, Kind.COMPACTED: 9, Kind.BIG: 1}, records=2000
)
LONG_ROUNDS = 6  # of 39 partitions with 2,000 records and one with big ones: 234 examples


def test_everything_comes_back(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    counts = prove(broker.bootstrap, topic, site, java_oracle, seed, SHORT)
    assert missing_classes(counts, ALL_CLASSES | SHAPES) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_everything_comes_back_many_times(
    broker: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, seed: int
) -> None:
    counts: Counter[str] = Counter()
    for number in range(LONG_ROUNDS):
        found = prove(broker.bootstrap, f"{topic}-{number}", site, java_oracle, seed + 1000 * number, LONG)
        assert missing_classes(found, ALL_CLASSES | SHAPES) == []
        counts += found
    print("classes:", dict(sorted(counts.items())))


def prove(
    bootstrap: str, name: str, site: ArchiveSite, oracle: JavaOracle, seed: int, examples: Examples
) -> Counter[str]:
    """Write, archive, compare, restore, compare. Returns how often each class of records and each shape was there."""
    writer = ExampleWriter(bootstrap, oracle)
    topics = {kind: f"{name}.{kind.value}" for kind in examples.counts}
    seeds = iter(range(seed, seed + 10**6))
    for kind, count in examples.counts.items():
        writer.write(topics[kind], kind, [next(seeds) for _ in range(count)], examples.records)
    sources = {kind: settled(bootstrap, topic, kind, oracle) for kind, topic in topics.items()}

    reports = site.back_up(bootstrap, f"{name}[.].*", records=1000)
    assert errors_of(reports) == {}
    assert {report.position for report in reports.values()} == {report.end_offset for report in reports.values()}
    counts: Counter[str] = Counter()
    for kind, topic in topics.items():
        source = sources[kind]
        assert oracle.consume(bootstrap, topic) == source, f"{topic} changed while it was archived"
        compare(read_partitions(site.bucket, topic), source.records, f"archive of {topic}, seed {seed}")
        writer.note(kind, source)
        for records in source.records.values():
            counts += classes_of(records)

    result = site.restore(bootstrap, topics=f"{name}[.].*", rename=[f"{one}={one}.back" for one in topics.values()])
    assert [report.error for topic in result.topics for report in topic.errors] == []
    for kind, topic in topics.items():
        target = oracle.consume(bootstrap, f"{topic}.back")
        compare(target.records, as_restored(sources[kind].records), f"target of {topic}, seed {seed}")
    delete_topics(bootstrap, [*topics.values(), *(f"{topic}.back" for topic in topics.values())])
    return counts + writer.shapes


def settled(bootstrap: str, topic: str, kind: Kind, oracle: JavaOracle) -> Consumed:
    """What the topic holds, once it no longer changes by itself."""
    if kind is Kind.COMPACTED:
        return until_compacted(oracle, bootstrap, topic)
    if kind is Kind.TRANSACTIONS:
        until_stable(bootstrap, topic)
    return oracle.consume(bootstrap, topic)


def as_restored(source: Partitions) -> dict[int, list[Rec]]:
    """New offsets from 0 without holes, and CreateTime."""
    return {partition: list(_as_restored(records)) for partition, records in source.items()}


def _as_restored(records: Sequence[Rec]) -> Iterator[Rec]:
    for offset, record in enumerate(records):
        yield replace(record, offset=offset, timestamp_type=0)


def compare(found: Partitions, wanted: Partitions, where: str) -> None:
    """Name the first record that differs; pytest's own diff of thousands helps nobody."""
    assert {which for which, records in wanted.items() if records} <= found.keys(), where
    for partition, records in wanted.items():
        others = found.get(partition, [])
        for record, other in zip(records, others, strict=False):
            assert other == record, f"{where}, partition {partition}"
        assert len(others) == len(records), f"{where}, partition {partition}"


def delete_topics(bootstrap: str, topics: Sequence[str]) -> None:
    admin = KafkaAdmin(settings_of(bootstrap))

    async def delete() -> None:
        await asyncio.gather(*map(admin.delete_topic, topics))

    asyncio.run(delete())
