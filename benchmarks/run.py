"""`make bench`: ours against the baseline, backup and restore, in one run on real servers; writes docs/benchmarks.md."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from archiver.codec.warm import compile_kernels
from archiver.demo.sandbox import KafkaBroker
from benchmarks.generate import Produced, create_topic, fill_topic
from benchmarks.landing import Landing
from benchmarks.measure import Usage, read_all, run_measured
from benchmarks.report import compare_with_recorded, machine_facts, ratios, results, summarise, write_page
from benchmarks.servers import environment_for, own_broker, own_minio
from tests.support.brokers import KAFKA_41
from tests.support.foreign_reader import open_client
from tests.support.minio import Minio

LAST = Path(__file__).with_name("last.json")
LAST_QUICK = Path(__file__).with_name("last-quick.json")
LEVEL = 1
# What a run of few records takes is the start of the program, and is subtracted where a figure says "without start".
TINY_RECORDS = 400
Row = dict[str, Any]
Filled = tuple[str, Produced]  # a topic, and what is in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    records: dict[int, int]
    repetitions: int
    starts: int
    seed: int = 1
    with_stages: bool = True
    baseline_part: int = 1  # of the records, that the baseline takes: its rate does not depend on how many there are


FULL = Plan(records={100: 4_000_000, 800: 1_000_000}, repetitions=5, starts=2)
QUICK = Plan(records={100: 1_000_000, 800: 250_000}, repetitions=1, starts=1, with_stages=False)


class Bench:
    """Servers, folders, and the four measured operations. `size` names a topic that is filled already."""

    def __init__(self, broker: KafkaBroker, minio: Minio, folder: Path, level: int) -> None:
        self.bootstrap = broker.bootstrap
        self.minio = minio
        self.level = level
        self.log_dir = broker.data_dir / "log"
        self._folder = folder
        self._archiver = str(Path(sys.executable).with_name("archiver"))
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._s3 = open_client(minio)
        self._environment = environment_for(minio)

    def measured(self, command: list[str], landing: Landing | None = None) -> tuple[Usage, Any]:
        """Measure a command with its files in the page cache, and no writes to disk under way from earlier commands."""
        for folder in (self._folder, self.minio.drive):  # the first is the broker's, too
            read_all(folder)
        os.sync()
        usage, printed = run_measured(command, self._folder / "usage.json", self._environment, landing)
        return usage, json.loads(printed)

    # --- backup

    def baseline_backup(self, topic: str, produced: Produced) -> Row:
        usage, found = self.measured([*self._baseline("backup", topic), "--level", str(self.level)])
        _agree("the baseline's backup", found, produced)
        return _row(usage, produced, stored_bytes=found["stored_bytes"])

    def our_backup(self, topic: str, produced: Produced) -> Row:
        self._s3.create_bucket(Bucket=_bucket(topic))
        config = {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "storage": {"url": f"s3://{_bucket(topic)}/archive", "endpoint": self.minio.endpoint},
            "topics": {"include": [topic]},
            "backup": {"codec": "zstandard", "codec.level": self.level},
        }
        path = self._config(topic)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        usage, found = self.measured([self._archiver, "backup", "--until-end", "--format", "json", "-c", str(path)])
        counted = {
            "records": sum(part["records"] for part in found["partitions"]),
            "payload_bytes": sum(part["bytes"] for part in found["partitions"]),
        }
        _agree("our backup", counted, produced)
        records, stored = self._stored(topic)
        _agree("our objects, read with fastavro", {"records": records}, produced)
        return _row(usage, produced, stored_bytes=stored)

    # --- restore

    def baseline_restore(self, topic: str, produced: Produced) -> Row:
        target = f"{topic}-baseline"
        create_topic(self.bootstrap, target)
        landing = Landing(self.log_dir, target)
        usage, found = self.measured(self._baseline("restore", target, topic), landing)
        _agree("the baseline's restore", found, produced)
        return self._restored(target, usage, produced, landing)

    def our_restore(self, topic: str, produced: Produced) -> Row:
        target = f"{topic}-ours"
        landing = Landing(self.log_dir, target)
        file = self._folder / "target.yaml"
        file.write_text(yaml.safe_dump({"kafka": {"bootstrap.servers": self.bootstrap}}), encoding="utf-8")
        command = [self._archiver, "restore", "--format", "json", "-c", str(self._config(topic))]
        usage, found = self.measured([*command, "--target", str(file), "--rename", f"{topic}={target}"], landing)
        (restored,) = found["topics"]
        _agree("our restore", restored, produced)
        parts = restored["partitions"]
        row = self._restored(target, usage, produced, landing)
        return row | {
            "task_seconds": sum(part["seconds"] for part in parts),
            "verify_seconds": sum(part["verify_seconds"] for part in parts),
            "peak_task_bytes": usage.peak_task_bytes,
        }

    def _restored(self, target: str, usage: Usage, produced: Produced, landing: Landing) -> Row:
        _agree(f"the target {target}", {"records": self.records_in(target)}, produced)
        self._admin.delete_topics([target])[target].result(30)
        began_s = usage.started_at_s
        return _row(
            usage,
            produced,
            first_landed_seconds=landing.first_s - began_s,
            last_landed_seconds=landing.last_s - began_s,
        )

    # --- between

    def records_in(self, topic: str) -> int:
        """By its offsets: no record of a benchmark is in a transaction or compacted."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "benchmark"})
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30) for number in partitions]
            return sum(high - low for low, high in ends)
        finally:
            consumer.close()

    def clean(self, *, baseline: str, ours: str) -> None:
        """Remove what both backups wrote: a repetition must not find it, and disks are finite."""
        for path in (self._folder / baseline).iterdir():
            path.unlink()
        self.empty(ours)

    def empty(self, topic: str) -> None:
        """Remove what our backup of a topic wrote."""
        for key in self._keys(topic):
            self._s3.delete_object(Bucket=_bucket(topic), Key=key)
        self._s3.delete_bucket(Bucket=_bucket(topic))

    def stages(self, topic: str) -> Row:
        """Where the CPU of a backup goes, stage by stage (benchmarks/stages.py)."""
        name = f"stages-{topic}"
        self._s3.create_bucket(Bucket=name)
        command = [sys.executable, "-m", "benchmarks.stages", "--bootstrap", self.bootstrap, "--topic", topic]
        command += ["--url", f"s3://{name}/stages", "--endpoint", self.minio.endpoint, "--level", str(self.level)]
        found: Row = self.measured(command)[1]
        return found

    def _baseline(self, operation: str, topic: str, source: str | None = None) -> list[str]:
        command = [sys.executable, "-m", "benchmarks.baseline", operation, "--bootstrap", self.bootstrap]
        return [*command, "--topic", topic, "--folder", str(self._folder / (source or topic))]

    def _config(self, topic: str) -> Path:
        return self._folder / f"{topic}.yaml"

    def _keys(self, topic: str) -> Iterator[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=_bucket(topic))
        for page in pages:
            yield from (item["Key"] for item in page.get("Contents", ()))

    def _stored(self, topic: str) -> tuple[int, int]:
        """Records by fastavro's count, not ours, and bytes of all segments."""
        records = stored = 0
        for key in self._keys(topic):
            if key.endswith(".data"):
                path = self._folder / "object.data"
                self._s3.download_file(_bucket(topic), key, str(path))
                stored += path.stat().st_size
                with path.open("rb") as file:
                    records += sum(block.num_records for block in fastavro.block_reader(file))
        return records, stored


def _bucket(topic: str) -> str:
    return f"bench-{topic}"


def _row(usage: Usage, produced: Produced, **more: float) -> Row:
    return {
        "records": produced.records,
        "seconds": usage.seconds,
        "cpu_seconds": usage.cpu_seconds,
        "peak_memory_bytes": usage.peak_memory_bytes,
        **more,
    }


def _agree(who: str, found: Row, produced: Produced) -> None:
    """Check the counts of both tools: a benchmark of nothing must not look fast."""
    for name in ("records", "payload_bytes"):
        if name in found and found[name] != getattr(produced, name):
            raise RuntimeError(f"{who} has {found[name]} {name}, the topic got {getattr(produced, name)}")


def measure(bench: Bench, plan: Plan, tell: Callable[[str], None]) -> Row:
    """Everything, in an order that alternates who comes first."""
    runs: list[Row] = []

    def fill(topic: str, size: int, records: int) -> Filled:
        produced = fill_topic(bench.bootstrap, topic, size=size, records=records, seed=plan.seed)
        _agree("the topic", {"records": bench.records_in(topic)}, produced)
        return topic, produced

    def repeat(size: int, filled: Filled, few: Filled, repetition: int, kind: str) -> None:
        pairs = [
            ("backup", [("baseline", bench.baseline_backup, few), ("ours", bench.our_backup, filled)]),
            ("restore", [("baseline", bench.baseline_restore, few), ("ours", bench.our_restore, filled)]),
        ]
        for operation, sides in pairs:
            for tool, run, source in sides if repetition % 2 == 0 else sides[::-1]:
                row = run(*source)
                runs.append({"kind": kind, "size": size, "operation": operation, "tool": tool, **row})
                rate = row["records"] / row["seconds"]
                tell(f"{kind} {size} B {operation} {tool}: {row['seconds']:.2f} s, {rate:,.0f} records/s, "
                     f"CPU {row['cpu_seconds']:.2f} s, {row['peak_memory_bytes'] / 2**20:.0f} MiB")  # fmt: skip
        bench.clean(baseline=few[0], ours=filled[0])

    tiny = fill("tiny", 100, TINY_RECORDS)
    for repetition in range(plan.starts):
        repeat(100, tiny, tiny, repetition, "start")
    produced_of: dict[str, Row] = {}
    stages: dict[str, Row] = {}
    for size, records in plan.records.items():
        filled = topic, produced = fill(f"json-{size}", size, records)
        few = fill(f"json-{size}-few", size, records // plan.baseline_part) if plan.baseline_part > 1 else filled
        mean = produced.payload_bytes / produced.records
        produced_of[str(size)] = {"records": records, "bytes_a_record": mean, "seconds": produced.seconds}
        tell(f"{records:,} records of {mean:.1f} B produced in {produced.seconds:.1f} s")
        for repetition in range(plan.repetitions):
            repeat(size, filled, few, repetition, "run")
        if plan.with_stages:
            stages[str(size)] = bench.stages(topic)
            tell(f"stages {size} B: {json.dumps(stages[str(size)])}")
    return {"runs": runs, "topics": produced_of, "stages": stages}


@contextmanager
def servers(level: int) -> Iterator[Bench]:
    """A broker and a MinIO of our own, and a folder; all gone afterwards."""
    with own_broker() as (broker, folder), own_minio() as minio:
        yield Bench(broker, minio, folder, level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few records, once: under two minutes; prints ratios beside the recorded ones",
    )
    parser.add_argument("--record", action="store_true", help="with --quick: keep these ratios for later runs")
    parser.add_argument("-n", "--repetitions", type=int, help="default 5, with --quick 1; odd, for a median")
    parser.add_argument(
        "--records", action="append", default=[], metavar="SIZE=COUNT", help="100=20000000, 800=4000000"
    )
    parser.add_argument(
        "--baseline-part",
        type=int,
        default=1,
        metavar="N",
        help="the baseline takes an Nth of the records: a run of twenty million takes it minutes",
    )
    parser.add_argument("--level", type=int, default=LEVEL, help="of zstandard, for both (default %(default)s)")
    given = parser.parse_args()
    plan = QUICK if given.quick else FULL
    chosen = {int(size): int(count) for size, _, count in (text.partition("=") for text in given.records)}
    plan = replace(
        plan,
        records=chosen or plan.records,
        repetitions=given.repetitions or plan.repetitions,
        baseline_part=given.baseline_part,
    )
    started_s = time.monotonic()
    compile_kernels()
    with servers(given.level) as bench:
        found = measure(bench, plan, lambda text: print(f"{time.monotonic() - started_s:6.1f} s  {text}", flush=True))
    found |= {
        "machine": machine_facts(KAFKA_41),
        "settings": {
            "level": given.level,
            "repetitions": plan.repetitions,
            "seed": plan.seed,
            "baseline_part": plan.baseline_part,
        },
    }
    found["summary"] = summarise(found["runs"])
    if given.quick:
        now = {"date": found["machine"]["date"], "ratios": ratios(found["summary"])}
        recorded = json.loads(LAST_QUICK.read_text(encoding="utf-8")) if LAST_QUICK.exists() else now
        print(compare_with_recorded(now, recorded))
        if given.record:
            LAST_QUICK.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return
    LAST.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page(found)
    print(results(found))


if __name__ == "__main__":
    main()
