"""How much memory plans take, and how long: of archives of up to ten million objects, in one process, by a store in memory.

`python -m benchmarks.planning --objects 1000000` makes such an archive up (no bodies, an index of it in a temporary folder),
runs each command's planning in a process of its own, and prints a table; `--write` puts it into docs/planning.json and
docs/growth.md. The bytes an object are the most that a process has had in use, less what it had before it began, by the
operating system (VmHWM); `--traced` counts what Python allocates instead, which takes three times as long.
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET, Layout
from archiver.archive.index.archived_end import end_at
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.notes.topics import LifeRange
from archiver.archive.reading.catalog import read_archive
from archiver.archive.reading.holdings import summarize
from archiver.archive.segments.listing import list_newest
from archiver.backup.service.indexer import Indexer
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import StorageConfig
from archiver.process.running.memory import tune_memory
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import TopicPlan, plan_restore
from archiver.spark.table.options import parse_options
from archiver.spark.table.scan import plan_scan
from archiver.upkeep.retention.planning.limits import FOR_EVER, Limits
from archiver.upkeep.retention.planning.partition_verdict import PartitionTerms
from archiver.upkeep.retention.planning.survey import SurveyTask, survey
from archiver.upkeep.verify import check_listing
from benchmarks.growth import MEMORY, REPORT, write_page
from benchmarks.report import machine_facts
from tests.support.brokers import KAFKA_41
from tests.support.generated_store import LAYOUT, GeneratedStore, Shape
from tests.support.no_spark import NoSpark

if TYPE_CHECKING:
    from pyspark import SparkContext

SHAPES = {
    100_000: Shape(50, 4, 500),
    200_000: Shape(50, 4, 1_000),
    1_000_000: Shape(10, 10, 10_000),
    10_000_000: Shape(10, 10, 100_000),
}
SHARES = (0.9, 0.04, 0.03, 0.03)  # of the files of the index: a merged one, and what came since


def plan_all(store: GeneratedStore) -> object:
    targets = {name: name for name in store.shape.names}
    archive = read_archive(Archive(store, LAYOUT), wanted=targets.__contains__, reads=lambda _: ALL_RECORDS)
    plan = plan_restore(archive, targets)
    assert sum(len(one.parts) for topic in plan for one in topic.partitions) == store.shape.objects
    return plan


def plan_query(store: GeneratedStore) -> object:
    """Of one topic, as the data source does for each that a statement names."""
    options = parse_options({"topic": store.shape.names[0]}, StorageConfig(url="s3://nowhere"))
    with patch("archiver.spark.table.scan.archive_of", lambda _: Archive(store, Layout())):
        plan = plan_scan(options, lambda _: ALL_RECORDS, 8)
    assert sum(len(task.parts) for task in plan.tasks) == store.shape.partitions * store.shape.per_partition
    return plan


def choose_all(store: GeneratedStore) -> object:
    """What the driver holds while Spark looks through all objects, and of what it found; Spark itself is left out."""

    plan = cast("list[TopicPlan]", plan_all(store))
    spark = cast("SparkContext", NoSpark(store.shape.objects))
    from archiver.spark.record_choice import choose_records  # noqa: PLC0415 - the others need no Spark

    storage, request = StorageConfig(url="s3://nowhere"), RestoreRequest()
    with patch("archiver.spark.record_choice.open_sql", lambda found: found):
        chosen = choose_records(spark, plan, request, storage=storage, layout=Layout(), restore_id="r-1")
    assert all(topic.is_chosen for topic in chosen)
    assert sum(len(one.parts) for topic in chosen for one in topic.partitions) == store.shape.objects
    return plan, chosen


def list_all(store: GeneratedStore) -> object:
    found = summarize(Archive(store, LAYOUT), None)
    assert sum(one.segments for one in found.holdings) == store.shape.objects
    assert not found.problems
    return found


def verify_listing(store: GeneratedStore) -> object:
    found = check_listing(Archive(store, LAYOUT))
    assert len(found.segments) == store.shape.objects
    assert not found.problems, found.problems[:3]
    return found


def start_backup(store: GeneratedStore) -> object:
    """Where all partitions end, and what the index lacks of what is below."""
    ends = list_newest(Archive(store, LAYOUT), set(store.shape.names)) or {}
    with ThreadPoolExecutor(8) as pool:
        positions = list(pool.map(lambda newest: end_at(store, newest).next, ends.values()))
    fresh = FreshEntries()
    for (topic, life, partition), end in zip(ends, positions, strict=True):
        fresh.note_found((topic, life), partition, end)
    Indexer(Archive(store, LAYOUT), fresh, clock=time.monotonic, wait=asyncio.sleep).bring_in()
    return positions


def sweep_all(store: GeneratedStore) -> object:
    """What the driver holds of a sweep that takes all but the newest; partitions are surveyed one after the other, without Spark."""
    now_ms = int(store.now().timestamp() * 1000)
    terms = PartitionTerms(limits=Limits(ms=0), now_ms=now_ms, store_now_ms=now_ms, min_age_ms=0, log_start=MOST_OFFSET)
    storage, lineage = StorageConfig(url="s3://nowhere"), (LifeRange(0, 0, None),)
    found = [
        survey(
            Archive(store, LAYOUT),
            SurveyTask(
                storage=storage,
                topic=topic,
                partition=partition,
                root=0,
                lineage=lineage,
                terms=replace(terms, topic_id=f"id-{topic}"),
                swept_by=FOR_EVER,
            ),
        )
        for topic in store.shape.names
        for partition in range(store.shape.partitions)
    ]
    assert sum(len(one.going) for one in found) == store.shape.objects - len(found)
    return found


TASKS: dict[str, tuple[str, Callable[[GeneratedStore], object]]] = {
    "plan": ("restore planned, all topics", plan_all),
    "choose": ("restore planned, `--where`", choose_all),
    "query": ("query planned, one topic", plan_query),
    "ls": ("`archiver ls`", list_all),
    "verify": ("`archiver verify --level listing`", verify_listing),
    "start": ("backup started", start_backup),
    "sweep": ("sweep planned, nearly all goes", sweep_all),
}


def run_task(task: str, shape: Shape, folder: Path, *, is_traced: bool) -> None:
    """In a process of its own: print what it took."""
    tune_memory()
    store = GeneratedStore(shape, folder)
    work = TASKS[task][1]
    gc.collect()
    if is_traced:
        tracemalloc.start()
    before, started_s, cpu_s = _memory("VmRSS"), time.monotonic(), time.process_time()
    found = work(store)
    seconds, most = time.monotonic() - started_s, _memory("VmHWM") - before
    kept, cpu_s = _memory("VmRSS") - before, time.process_time() - cpu_s
    if is_traced:
        kept, most = tracemalloc.get_traced_memory()
    del found
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "cpu_seconds": round(cpu_s, 2),
                "most_bytes": most,
                "kept_bytes": kept,
                "whole_bytes": _memory("VmHWM"),
            }
        )
    )


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def write_row(row: Mapping[str, object]) -> None:
    """Replace the figures of this command and this many objects."""
    rows = json.loads(MEMORY.read_text(encoding="utf-8")) if MEMORY.exists() else []
    kept = [one for one in rows if (one["title"], one["objects"]) != (row["title"], row["objects"])]
    machine = machine_facts(KAFKA_41)
    told = {name: machine[name] for name in ("date", "cores", "processor")} | {"load": machine["load_after"]}
    MEMORY.write_text(json.dumps([*kept, {**row, **told}], indent=1) + "\n", encoding="utf-8")
    write_page(json.loads(REPORT.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, choices=list(SHAPES), default=1_000_000)
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--write", action="store_true", help="the figures into docs/planning.json and docs/growth.md")
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the index is kept, and found again")
    parser.add_argument("--task", choices=list(TASKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    shape = SHAPES[options.objects]
    if options.task:
        run_task(options.task, shape, options.folder, is_traced=options.traced)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if not any(folder.iterdir()):
            GeneratedStore(shape, folder).write_index(SHARES)
        for task in options.tasks:
            command = [sys.executable, "-m", "benchmarks.planning", "--task", task, "--folder", str(folder)]
            command += ["--objects", str(options.objects), *(["--traced"] if options.traced else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(task, done.stderr[-3000:])
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            if options.write:
                write_row({"title": TASKS[task][0], "objects": shape.objects, **found})
            print(
                f"{TASKS[task][0]}: {found['seconds']} s ({found['cpu_seconds']} CPU), at most {found['most_bytes'] / shape.objects:.0f} bytes an object,"
                f" {found['kept_bytes'] / shape.objects:.0f} at the end, {found['whole_bytes'] / 1e6:,.0f} MB in all",
                flush=True,
            )


if __name__ == "__main__":
    main()
