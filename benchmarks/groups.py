"""How long `archiver groups show` takes, and how much memory: a million commits of 10,000 groups, in 50 partitions.

`python -m benchmarks.groups` puts them into a MinIO of its own, as segments of the program's own writer, and runs the
command, now and as of the middle of the time. It fails above 10 s or 400 MB, or when an answer is not what was committed.
"""

import argparse
import json
import os
import random
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.limits import Limits
from benchmarks.measure import run_measured
from benchmarks.servers import environment_for, own_minio
from tests.support.brokers import Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.foreign_reader import open_client
from tests.support.records import Rec

MOST_SECONDS, MOST_BYTES = 10.0, 400_000_000
OFFSETS_TOPIC, PARTITIONS, TOPICS = "__consumer_offsets", 50, 20
TOPICS_OF_GROUP, PARTITIONS_OF_TOPIC = 2, 4
BEGIN_MS = 1_790_000_000_000
SEED = 1
Place = tuple[str, str, int]  # group, topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One partition of the offsets topic, and what holds at the middle of the time and at its end."""

    records: Sequence[Rec]
    middle: dict[Place, int]
    end: dict[Place, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=10_000)
    asked = parser.parse_args()
    middle_ms = BEGIN_MS + asked.commits // PARTITIONS // 2
    limits = Limits()
    with own_minio() as minio, tempfile.TemporaryDirectory(prefix="bench-groups-") as name:
        os.environ |= environment_for(minio)
        bucket = Bucket(minio, "groups")
        open_client(minio).create_bucket(Bucket=bucket.name)
        wanted_middle, wanted_end = _fill(bucket, Path(name), asked.commits, asked.groups)
        for what, as_of, wanted in (("newest", [], wanted_end), ("as of", ["--as-of", str(middle_ms)], wanted_middle)):
            command = [str(Path(sys.executable).parent / "archiver"), "groups", "show", "--url", bucket.url]
            usage, printed = run_measured(
                [*command, "--format", "json", *as_of], Path(name) / "usage.json", dict(os.environ)
            )
            _compare(json.loads(printed), wanted)
            limits.report(f"groups show, {what}: {asked.commits:,} commits", usage.seconds, MOST_SECONDS, "s")
            print(f"{'':58} {usage.cpu_seconds:9.1f} s of CPU, {len(wanted):,} positions")
            limits.report_memory(f"groups show, {what}: memory", usage.peak_memory_bytes, MOST_BYTES)
    return 1 if limits.over else 0


def _fill(bucket: Bucket, folder: Path, commits: int, groups: int) -> tuple[dict[Place, int], dict[Place, int]]:
    archive = BucketArchive(bucket, folder)
    archive.write_topic_fact(OFFSETS_TOPIC, partitions=PARTITIONS)
    for number in range(TOPICS):
        archive.write_topic_fact(f"topic-{number:02}", partitions=PARTITIONS_OF_TOPIC)
    middle: dict[Place, int] = {}
    end: dict[Place, int] = {}
    for partition in range(PARTITIONS):
        log = _log(partition, commits // PARTITIONS, range(partition, groups, PARTITIONS))
        archive.put(OFFSETS_TOPIC, partition, log.records, each=10_000)
        middle |= log.middle
        end |= log.end
    return middle, end


def _log(partition: int, commits: int, groups: range) -> Log:
    drawn = random.Random(SEED + partition)
    records: list[Rec] = []
    middle: dict[Place, int] = {}
    end: dict[Place, int] = {}
    for number in range(commits):
        group = drawn.choice(groups)
        topic = f"topic-{(group + drawn.randrange(TOPICS_OF_GROUP)) % TOPICS:02}"
        place = (f"group-{group:05}", topic, drawn.randrange(PARTITIONS_OF_TOPIC))
        end[place] = number
        if number <= commits // 2:
            middle[place] = number
        records.append(
            Rec(
                offset=number,
                timestamp=BEGIN_MS + number,
                timestamp_type=0,
                key=_key(*place),
                value=_value(number),
            )
        )
    return Log(records=records, middle=middle, end=end)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def _key(group: str, topic: str, partition: int) -> bytes:
    return struct.pack(">h", 1) + _text(group) + _text(topic) + struct.pack(">i", partition)


def _value(number: int) -> bytes:
    return struct.pack(">hqi", 3, number, 0) + _text("") + struct.pack(">q", BEGIN_MS + number)


def _compare(told: dict[str, list[dict[str, object]]], wanted: dict[Place, int]) -> None:
    found = {(one["group"], one["topic"], one["partition"]): one["offset"] for one in told["positions"]}
    if found != wanted:
        raise SystemExit(f"{len(found):,} positions, not the {len(wanted):,} that were committed")


if __name__ == "__main__":
    sys.exit(main())
