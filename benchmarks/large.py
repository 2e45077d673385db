"""Memory with large records: `python -m benchmarks.large` backs up and restores topics of 1, 10 and 30 MB a record.

It starts a broker and a MinIO of its own, and ends with 1 when a backup or a task of a restore takes more than its fixed
budget and four times what the largest record has beyond 1 MB. Producers compress with zstd: half of the topics hold random
bytes, half a megabyte of hex digits again and again.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.generate import PARTITIONS, create_topic
from benchmarks.limits import MOST_MEMORY, MOST_TASK, Limits
from benchmarks.measure import Usage, run_measured
from benchmarks.servers import environment_for, own_broker, own_minio
from tests.support.foreign_reader import open_client
from tests.support.minio import Minio

BUCKET = "large"
TOPIC_BYTES = 600_000_000
_LARGEST_MESSAGE = 64 * 1024 * 1024
_PATIENCE_S = 300

KINDS: dict[str, Callable[[int], bytes]] = {
    "random": os.urandom,
    "text": lambda size: (os.urandom(500_000).hex() * (size // 1_000_000 + 1)).encode()[:size],
}


def fill(bootstrap: str, topic: str, size: int, content_of: Callable[[int], bytes]) -> None:
    create_topic(bootstrap, topic, max_message_bytes=str(_LARGEST_MESSAGE))
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": _LARGEST_MESSAGE,
            "compression.type": "zstd",
            "queue.buffering.max.kbytes": 200_000,
        }
    )
    content = content_of(size)

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))

    for number in range(TOPIC_BYTES // size):
        producer.produce(topic, content, key=str(number), partition=number % PARTITIONS, on_delivery=delivered)
        while len(producer) > 2:
            producer.poll(0.1)
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("the broker did not take all records")


class Site:
    """A broker, a bucket, and what was over its limit so far."""

    def __init__(self, bootstrap: str, minio: Minio, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._minio = minio
        self._folder = folder
        self.limits = Limits()

    def measure(self, kind: str, content_of: Callable[[int], bytes], megabytes: int) -> None:
        """Back a new topic up, and restore it under another name."""
        topic, size = f"{kind}-{megabytes}", megabytes * 1_000_000
        beyond = 4 * max(0, size - 1_000_000)
        fill(self._bootstrap, topic, size, content_of)
        kafka = {"bootstrap.servers": self._bootstrap}
        storage = {"url": f"s3://{BUCKET}/{topic}", "endpoint": self._minio.endpoint}
        config = self._write("archive", {"kafka": kafka, "storage": storage, "topics": {"include": [topic]}})
        usage = self._run("backup", "--until-end", "-c", config)
        self.limits.report_memory(f"backup, {megabytes} MB of {kind}", usage.peak_memory_bytes, MOST_MEMORY + beyond)
        target = self._write("target", {"kafka": kafka})
        usage = self._run("restore", "-c", config, "--target", target, "--rename", f"{topic}={topic}-back")
        self.limits.report_memory(
            f"task of a restore, {megabytes} MB of {kind}", usage.peak_task_bytes, MOST_TASK + beyond
        )

    def _write(self, name: str, values: object) -> str:
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        return str(path)

    def _run(self, *arguments: str) -> Usage:
        archiver = str(Path(sys.executable).with_name("archiver"))
        return run_measured([archiver, *arguments], self._folder / "usage.json", environment_for(self._minio))[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="*", default=[1, 10, 30])
    given = parser.parse_args()
    with own_broker() as (broker, folder), own_minio() as minio:
        open_client(minio).create_bucket(Bucket=BUCKET)
        site = Site(broker.bootstrap, minio, folder)
        for megabytes in given.megabytes:
            for kind, content_of in KINDS.items():
                site.measure(kind, content_of, megabytes)
    return 1 if site.limits.over else 0


if __name__ == "__main__":
    sys.exit(main())
