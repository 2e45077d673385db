"""How `ls`, the start of a backup and the plan of a restore grow with the archive: 1,000, 10,000 and 100,000 objects.

`python -m benchmarks.scale` starts a MinIO of its own, fills it (100,000 objects take some minutes), prints a table and
writes docs/growth.md. `--objects 1000` is the short form, `--endpoint` takes a MinIO that is there, and the
archives that an earlier run has made in it. Every figure is of a process of its own, its start included: the median of
`--repeat` runs. CPU is that process's; MinIO works beside it on the same cores, and in a restore the broker, too.
"""

import argparse
import http.client
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.archived_end import end_at, position_of
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import PartitionSource, record_cluster
from archiver.archive.reading.catalog import read_archive, topic_names
from archiver.archive.segments.listing import list_newest
from archiver.archive.segments.segment_writer import OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.backup.opening.opener import OPENERS
from archiver.config.model import StorageConfig
from archiver.process.running.children import start_child
from archiver.process.running.memory import tune_memory
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import plan_restore
from benchmarks.growth import table, write_page
from benchmarks.landing import Landing
from benchmarks.report import machine_facts
from benchmarks.servers import environment_for, own_broker, own_minio
from tests.support.brokers import KAFKA_41, S3, GivenS3
from tests.support.foreign_reader import open_client
from tests.support.frames import frame_of
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec

CLUSTER = "scale-cluster"
PARTITIONS = 2
PUTTERS = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """An archive of so many topics of so many partitions."""

    topics: int
    objects: int
    partitions: int = PARTITIONS

    @property
    def bucket(self) -> str:
        return f"scale-{self.partitions}-{self.objects}"

    @property
    def per_partition(self) -> int:
        return self.objects // self.topics // self.partitions


SHAPES = {shape.objects: shape for shape in (Shape(100, 1_000), Shape(1_000, 10_000), Shape(1_000, 100_000))}


def topic_name(number: int) -> str:
    return f"shop.events-{number:04}"


# --- the archives


def make_archive(minio: S3, shape: Shape) -> None:
    """Put every object by hand, without signatures: boto3 would take three times as long."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as spool:
        objects = segments_of(shape, Path(spool))
        lock, failures = threading.Lock(), list[str]()

        def work() -> None:
            connection = http.client.HTTPConnection(minio.endpoint.removeprefix("http://"))
            while True:
                with lock:
                    item = next(objects, None)
                if item is None or failures:
                    return
                key, body, metadata = item
                headers = {f"x-amz-meta-{name}": text for name, text in metadata.items()}
                connection.request("PUT", f"/{shape.bucket}/{quote(key)}", body, headers)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    failures.append(f"{key}: {answer.status} {text!r}")

        with ThreadPoolExecutor(PUTTERS) as pool:
            for done in [pool.submit(work) for _ in range(PUTTERS)]:
                done.result()
        if failures:
            raise RuntimeError(failures[0])


def segments_of(shape: Shape, spool: Path) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """One record each, and readable: a restore could read them. The control facts of all topics come first."""
    layout, control = Layout(), MemoryStore()
    record_cluster(Archive(control, layout), CLUSTER)
    for topic in map(topic_name, range(shape.topics)):
        record_topic(
            Archive(control, layout),
            topic=topic,
            topic_id=f"id-{topic}",
            cluster_id=CLUSTER,
            partitions=shape.partitions,
            configs={"cleanup.policy": "delete"},
        )
    yield from ((key, found.body, {}) for key, found in control.objects.items())
    for topic in map(topic_name, range(shape.topics)):
        for partition in range(shape.partitions):
            for base in range(shape.per_partition):
                yield _segment(topic, partition, base, layout, spool)


def _segment(topic: str, partition: int, base: int, layout: Layout, spool: Path) -> tuple[str, bytes, dict[str, str]]:
    source = PartitionSource(topic=topic, partition=partition, life=0, topic_id=f"id-{topic}", cluster_id=CLUSTER)
    segment = OpenSegment(source, base, SegmentLimits(uncompressed_bytes=0), Spool(spool))
    segment.append(frame_of([Rec(base, 1_700_000_000_000 + base, 0, b"key", b"value %d" % base)]), 0)
    finished = segment.finish()
    with finished.open_body() as body:
        content = body.read()
    finished.discard()
    key = layout.segment_key(SegmentKey(topic=topic, partition=partition, base=base))
    return key, content, finished.facts.to_metadata()


def prepare(minio: S3, shape: Shape) -> None:
    """Make an archive, unless it is there."""
    if shape.bucket in {bucket["Name"] for bucket in open_client(minio).list_buckets()["Buckets"]}:
        return
    make_bucket(minio, shape)
    measure(minio, shape, "ls")  # the first reader asks for every segment, and writes the index


def make_bucket(minio: S3, shape: Shape) -> None:
    client = open_client(minio)
    client.create_bucket(Bucket=shape.bucket)
    allow = {
        "Effect": "Allow",
        "Principal": {"AWS": ["*"]},
        "Action": ["s3:PutObject"],
        "Resource": [f"arn:aws:s3:::{shape.bucket}/*"],
    }
    client.put_bucket_policy(Bucket=shape.bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allow]}))
    started_s = time.monotonic()
    make_archive(minio, shape)
    print(f"{shape.objects} objects made in {time.monotonic() - started_s:.0f} s", flush=True)


# --- what is measured, each in a process of its own


def plan_all(archive: Archive, shape: Shape) -> None:
    targets = RestoreRequest().targets(topic_names(archive))
    plan = plan_restore(read_archive(archive, wanted=targets.__contains__), targets)
    assert sum(topic.records for topic in plan) == shape.objects


def plan_topic(archive: Archive, shape: Shape) -> None:
    name = topic_name(shape.topics // 2)
    plan = plan_restore(read_archive(archive, wanted=name.__eq__), {name: name})
    assert plan[0].records == shape.objects // shape.topics


def start_anew(archive: Archive, shape: Shape) -> None:
    """Positions of all partitions, of which nothing is known."""
    ends = list_newest(archive, {topic_name(number) for number in range(shape.topics)}) or {}
    with ThreadPoolExecutor(OPENERS) as pool:
        positions = list(pool.map(lambda newest: end_at(archive.store, newest).next, ends.values()))
    assert positions == [shape.per_partition] * (PARTITIONS * shape.topics)


def start_with_hints(archive: Archive, shape: Shape) -> None:
    """Positions of all partitions, of which the group has the newest base."""

    def look(number: int) -> int:
        topic = topic_name(number // PARTITIONS)
        return position_of(archive, topic, 0, number % PARTITIONS, shape.per_partition - 1).next

    with ThreadPoolExecutor(OPENERS) as pool:
        assert set(pool.map(look, range(PARTITIONS * shape.topics))) == {shape.per_partition}


TITLES = {
    "ls": "`archiver ls`",
    "ls-topic": "`archiver ls TOPIC`",
    "plan": "restore planned, all topics",
    "plan-topic": "restore planned, one topic",
    "start": "backup start, positions unknown",
    "start-hints": "backup start, positions hinted",
}
RESTORES: dict[str, Callable[[Shape], Sequence[str]]] = {
    "restore to its first record, one topic": lambda shape: [topic_name(shape.topics // 2)],
    "restore to its first record, all topics": lambda shape: [topic_name(number) for number in range(shape.topics)],
}
COMMANDS: dict[str, Callable[[Shape], list[str]]] = {
    "ls": lambda _: ["ls"],
    "ls-topic": lambda shape: ["ls", topic_name(shape.topics // 2)],
}
CALLS: dict[str, Callable[[Archive, Shape], None]] = {
    "plan": plan_all,
    "plan-topic": plan_topic,
    "start": start_anew,
    "start-hints": start_with_hints,
}


@dataclass(frozen=True, slots=True)
class Figure:
    seconds: float
    cpu_seconds: float


def measure_first_record(minio: S3, shape: Shape, topics: Sequence[str]) -> float:
    """Seconds from the command to the first record on a new broker. The restore is ended there."""
    with own_broker() as (broker, folder):
        target = folder / "target.yaml"
        target.write_text(json.dumps({"kafka": {"bootstrap.servers": broker.bootstrap}}))
        command = [sys.executable, "-m", "archiver", "restore", "--url", f"s3://{shape.bucket}"]
        command += ["--target", str(target), "--topics", "|".join(topics)]
        landing = Landing(broker.data_dir / "log", topics[0])
        landing.begin()
        started_s = time.time()
        process = start_child(command, env=environment_for(minio), stdout=subprocess.DEVNULL)
        try:
            while not landing.first_s and process.poll() is None:
                time.sleep(0.05)
        finally:
            landing.end()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not landing.first_s:
            raise RuntimeError(f"the restore ended with {process.returncode}, and no record was seen")
        return landing.first_s - started_s


def measure(minio: S3, shape: Shape, task: str) -> Figure:
    command = [sys.executable, "-m", "benchmarks.scale", "--task", task, "--objects", str(shape.objects)]
    if task in COMMANDS:
        command = [sys.executable, "-m", "archiver", *COMMANDS[task](shape), "--url", f"s3://{shape.bucket}"]
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=environment_for(minio), stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.monotonic() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Figure(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def run_task(task: str, shape: Shape) -> None:
    tune_memory()  # as the command does
    config = StorageConfig(url=f"s3://{shape.bucket}", endpoint=os.environ["AWS_ENDPOINT_URL"])
    archive = open_archive(config)
    CALLS[task](archive, shape)


def measure_all(minio: S3, shapes: Sequence[Shape], repeat: int) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for task, title in TITLES.items():
        for shape in shapes:
            figures = [measure(minio, shape, task) for _ in range(repeat)]
            found.setdefault(title, {})[str(shape.objects)] = {
                "seconds": round(statistics.median(one.seconds for one in figures), 2),
                "fastest_seconds": round(min(one.seconds for one in figures), 2),
                "cpu_seconds": round(statistics.median(one.cpu_seconds for one in figures), 2),
            }
        print(title, found[title], flush=True)
    for title, topics_of in RESTORES.items():
        for shape in shapes:
            seconds = [measure_first_record(minio, shape, topics_of(shape)) for _ in range(repeat)]
            found.setdefault(title, {})[str(shape.objects)] = {
                "seconds": round(statistics.median(seconds), 2),
                "fastest_seconds": round(min(seconds), 2),
            }
        print(title, found[title], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, choices=list(SHAPES), action="append", help="default: all of them")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--endpoint", help="of a MinIO; credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
    parser.add_argument("--task", choices=list(CALLS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    shapes = [SHAPES[objects] for objects in options.objects or SHAPES]
    if options.task:
        run_task(options.task, shapes[0])
        return
    with ExitStack() as stack:
        minio: S3 = GivenS3(
            options.endpoint or "", os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
        )
        if not options.endpoint:
            minio = stack.enter_context(own_minio())
        for shape in shapes:
            prepare(minio, shape)
        found = measure_all(minio, shapes, options.repeat)
    print(table(found))
    if shapes == list(SHAPES.values()):
        made_of = ", ".join(f"{shape.topics} topics of {PARTITIONS} partitions" for shape in shapes)
        machine = machine_facts(KAFKA_41)
        write_page({"machine": machine, "shapes": made_of, "repeat": options.repeat, "figures": found})


if __name__ == "__main__":
    main()
