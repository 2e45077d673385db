"""How long `archiver status` takes beside an archive of many topics, on a MinIO of its own.

`python -m benchmarks.status --topics 1000` puts a topic's note and an object for each, and notes of every kind of run; then
it starts the command, and prints seconds and the requests of the answer.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.layout import SegmentKey
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.notes.run_notes import Outcome, RunKind, RunNote, put_run_note
from archiver.archive.notes.topic_changes import record_topic
from archiver.config.load import config_from_url
from archiver.store.port import ObjectKind, ObjectStore
from archiver.upkeep.run_status import read_status
from benchmarks.servers import environment_for, own_minio
from tests.support.brokers import Bucket
from tests.support.foreign_reader import open_client


class CountingStore:
    """A store that counts the calls of each of its methods."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.calls = Counter[str]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method
        self.calls[name] += 1
        return getattr(self._store, name)


def fill(archive: Archive, topics: int) -> None:
    """Put what backups, sweeps, proofs and restores of so many topics leave, without records."""

    def add(number: int) -> None:
        topic = f"topic-{number}"
        record_topic(archive, topic=topic, topic_id=topic, cluster_id="c", partitions=1, configs={})
        key = archive.layout.segment_key(SegmentKey(topic=topic, life=0, partition=0, base=0, next=None))
        archive.store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(topics)))
    for _ in range(3):
        for kind in RunKind:
            for outcome in Outcome:
                names = [f"{number:016x}" for number in range(20)] if kind is RunKind.RESTORE else ["all"]
                for name in names:
                    note = RunNote(kind=kind, name=name, outcome=outcome, problems=("orders-3 fails",) * 20)
                    assert put_run_note(archive, note) == ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("-n", type=int, default=5)
    options = parser.parse_args()
    with own_minio() as minio:
        bucket = Bucket(minio, "status")
        open_client(minio).create_bucket(Bucket=bucket.name)
        os.environ.update(environment_for(minio))
        config = config_from_url(bucket.url).storage.model_copy(update={"endpoint": minio.endpoint})
        archive = open_archive(config)
        fill(archive, options.topics)
        counted = CountingStore(archive.store)
        began_s = time.perf_counter()
        read_status(Archive(counted, archive.layout), machine_now_ms(), {"": 3_600_000})
        print(f"answered in {time.perf_counter() - began_s:.3f} s by {dict(counted.calls)}")
        seconds = []
        for _ in range(options.n):
            began_s = time.perf_counter()
            command = [sys.executable, "-m", "archiver", "status", "--url", bucket.url]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds.append(time.perf_counter() - began_s)
            assert "durable through" in done.stdout, done.stderr
        print(f"`archiver status`: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
