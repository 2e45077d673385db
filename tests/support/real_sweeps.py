"""Retention sweeps beside a real broker: topics with records of chosen ages, sweeps in this process, and what must hold after each."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.archive.format.handle import Archive, open_archive
from archiver.cli.main import main
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.process.running.children import start_child
from archiver.spark.retention import run_retention
from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult
from tests.support.brokers import REPOSITORY, Broker, Bucket
from tests.support.foreign_reader import read_segments
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import producer_of, with_client
from tests.support.records import Rec, without_offsets
from tests.support.round_trip import ArchiveSite, environment_of, without_spark

DAY_MS = 24 * 3600 * 1000
# A broker that deletes and compacts at once.
EAGER = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100", "log.cleaner.backoff.ms": "200"}
_TICK_S = 1.1  # the store's clock has whole seconds, and what was put in this one is too young


def produce_aged(bootstrap: str, topic: str, ages_ms: Sequence[int], partition: int = 0) -> None:
    """Produce records of these ages, a batch each."""
    producer, now_ms = producer_of(bootstrap, **{"linger.ms": 0}), time.time_ns() // 1_000_000
    for age_ms in ages_ms:
        producer.produce(topic, b"v" * 100, b"k%d" % (age_ms % 7), partition=partition, timestamp=now_ms - age_ms)
        assert producer.flush(30) == 0


def cut(broker: Broker, topic: str, offset: int, partition: int = 0) -> None:
    admin, where = AdminClient({"bootstrap.servers": broker.bootstrap}), TopicPartition(topic, partition, offset)
    admin.delete_records([where])[where].result(20)


def sweep(
    site: ArchiveSite,
    bootstrap: str,
    topic: str,
    retention: Mapping[str, Any] | None = None,
    **asked: Any,  # noqa: ANN401
) -> SweepResult:
    config = site.config(bootstrap, [topic]) | {"retention": {"grace": 0, "min-object-age": 0, **(retention or {})}}
    return run_retention(ArchiverConfig.model_validate(config), SweepRequest(**asked))


def start_sweep(
    site: ArchiveSite,
    bootstrap: str,
    topic: str,
    failpoint: str = "",
    *arguments: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    retention: Mapping[str, Any] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """Start a sweep that agrees to everything, in a process of its own: as the command does, but for Spark's engine."""
    config = site.config(bootstrap, [topic]) | {"retention": {"grace": 0, "min-object-age": 0, **retention}}
    path = site.folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(config))
    return start_child(
        [sys.executable, "-m", "tests.support.real_sweeps", "-c", str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**environment_of(site.bucket), "ARCHIVER_FAILPOINT": failpoint, **environment},
    )


def archive_of(site: ArchiveSite) -> Archive:
    return open_archive(StorageConfig(url=site.bucket.url, endpoint=site.bucket.s3.endpoint))


def bases(site: ArchiveSite, topic: str) -> list[int]:
    archive = archive_of(site)
    parsed = (archive.layout.parse_segment(item.key) for item in archive.store.list(f"topics/{topic}/"))
    return [key.base for key in parsed if key is not None]


@dataclass(frozen=True, slots=True)
class Kept:
    """What the archive has of a partition, by the read rule alone: nothing of it twice. `gaps`: [from, until) that no object covers."""

    records: Sequence[Rec]
    gaps: Sequence[tuple[int, int]]
    end: int


def read_kept(bucket: Bucket, directory: str) -> dict[int, Kept]:
    """Read a topic's directory without our own code. Of a swept topic: what is left need not follow on each other."""
    records: dict[int, list[Rec]] = {}
    gaps: dict[int, list[tuple[int, int]]] = {}
    ends: dict[int, int] = {}
    order = sorted(read_segments(bucket, directory), key=lambda one: (one.partition, one.base, -one.next))
    for segment in order:
        end = ends.setdefault(segment.partition, 0)
        if segment.next <= end:
            continue
        if segment.base > end:
            gaps.setdefault(segment.partition, []).append((end, segment.base))
        records.setdefault(segment.partition, []).extend(row for row in segment.records if row.offset >= end)
        ends[segment.partition] = segment.next
    return {number: Kept(records.get(number, []), gaps.get(number, []), end) for number, end in ends.items()}


def assert_archived(
    bucket: Bucket, bootstrap: str, topic: str, oracle: JavaOracle, directory: str = ""
) -> dict[int, Kept]:
    """What the broker still has, by Kafka's own consumer, is in the archive. Returns what the archive has."""
    kept = read_kept(bucket, directory or topic)
    for number, rows in oracle.consume(bootstrap, topic).records.items():
        if not rows:
            continue
        assert kept[number].end > rows[-1].offset
        archived = {row.offset: row for row in kept[number].records}
        assert len(archived) == len(kept[number].records)
        assert [row for row in rows if archived.get(row.offset) != row] == []
        assert [gap for gap in kept[number].gaps if gap[1] > rows[0].offset] == []
    return kept


def assert_restored(
    site: ArchiveSite,
    bootstrap: str,
    topic: str,
    oracle: JavaOracle,
    directory: str = "",
    *,
    is_compacted: bool = False,
) -> None:
    """A restore brings back just what the archive has, in this order. `directory` is that of the topic's newest life.

    A topic that is compacted has at least the last record of each key when we look: the broker may have begun.
    """
    kept = read_kept(site.bucket, directory or topic)
    back = f"{topic}.back"
    done = site.restore(bootstrap, topics=topic, rename=[f"{topic}={back}"], restore_id="back")
    assert done.failure is None

    found = {nr: without_offsets(rows) for nr, rows in oracle.consume(bootstrap, back).records.items() if rows}
    wanted = {nr: without_offsets(one.records) for nr, one in kept.items() if one.records}
    if is_compacted:
        assert all(row in wanted[nr] for nr, rows in found.items() for row in rows)
        found, wanted = ({nr: _last_of_keys(rows) for nr, rows in some.items()} for some in (found, wanted))
    assert found == wanted


def _last_of_keys(rows: Sequence[Rec]) -> list[Rec]:
    return list({row.key: row for row in rows}.values())


def until_swept(
    site: ArchiveSite, broker: Broker, topic: str, retention: Mapping[str, Any] | None = None
) -> SweepResult:
    """Sweep as often as it takes until what goes has gone."""
    time.sleep(_TICK_S)
    sweep(site, broker.bootstrap, topic, retention)
    return sweep(site, broker.bootstrap, topic, retention, agreed=True)


def log_start(broker: Broker, topic: str) -> int:
    found = with_client(broker.bootstrap, lambda client: client.offsets([(topic, 0)]))
    return found[topic, 0].log_start


if __name__ == "__main__":
    with without_spark():
        sys.exit(main(["retention", "--yes", "--quiet", *sys.argv[1:]]))
