"""A backup of very many partitions: how long it takes to begin, what it costs when nothing comes, and its memory with all of them open.

`python -m benchmarks.partitions` starts a broker and a MinIO of its own, makes 2,000 partitions, and prints a row a scene;
it ends with 1 when one is over its limit. `--partitions` makes fewer. CPU and memory are those of the `archiver backup`
process tree alone; memory is PSS, sampled up to ten times a second.
"""

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from archiver.kafka.topics.admin import KafkaAdmin, ToCreate
from benchmarks.limits import MOST_MEMORY, Limits
from benchmarks.measure import cpu_seconds, pss_bytes, watching
from benchmarks.servers import own_broker, own_minio
from tests.support.brokers import Bucket
from tests.support.foreign_reader import open_client
from tests.support.kafka_topics import settings_of
from tests.support.processes import tree_of
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, service_config

PER_TOPIC = 100
RECORD_BYTES = 1_000
OPEN_RECORDS = 20  # that each partition's open segment holds
LARGE_BYTES = 1_000_000
PATIENCE_S = 180.0
LOOKED_EVERY_S = 0.5  # each look has the instance write down ten figures a partition
AGE_S = 20
MOST_START_S = 10.0
MOST_IDLE = 0.05  # of a core


def totals(instance: Instance, *names: str) -> dict[str, float]:
    """Sums over all partitions, from one look at the metrics; without prometheus_client's parser, which takes far longer."""
    text = instance.metrics_text()
    return {name: sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (.+)$", text, re.MULTILINE))) for name in names}


class Scenes:
    """One broker, one bucket, one instance at a time."""

    def __init__(self, bootstrap: str, site: ArchiveSite, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._site = site
        self._partitions = partitions
        self._topics = {f"quiet-{number:02}": PER_TOPIC for number in range(partitions // PER_TOPIC)}
        self._in_kafka = 0
        self._durable = 0
        self.limits = Limits()

    def create_topics(self) -> None:
        configs = {"max.message.bytes": "2000000", "retention.ms": "-1"}
        admin = KafkaAdmin(settings_of(self._bootstrap))
        wanted = {name: ToCreate(count, 1, configs) for name, count in self._topics.items()}
        for error in asyncio.run(admin.create_topics(wanted)).values():
            raise error

    def produce(self, each: int, size: int = RECORD_BYTES, partitions: int | None = None) -> None:
        """So many records to every partition, or to the first ones."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "message.max.bytes": 2_000_000,
                "linger.ms": 20,
                "enable.idempotence": True,
            }
        )
        places = [(topic, number) for topic, count in self._topics.items() for number in range(count)][:partitions]
        for _ in range(each):
            for topic, number in places:
                producer.produce(topic, os.urandom(size // 2).hex(), partition=number)
                producer.poll(0)
                if len(producer) > 20_000_000 // size:
                    producer.flush()
        if producer.flush(120):
            raise RuntimeError("the broker did not take all records")
        self._in_kafka += each * len(places)

    @contextmanager
    def backup(self, name: str, age: str, group: str) -> Iterator[Instance]:
        """Killed in the end, so that nothing is put then."""
        config = service_config(self._site, self._bootstrap, "quiet-.*", group=group)
        config["backup"]["segment"] = {"age": age}
        config["backup"]["session-timeout"] = "45s"
        config["topics"]["refresh"] = "1min"
        instance = Instance(self._site, config, name)
        try:
            yield instance
        except BaseException:
            print(instance.log[-2000:], instance.total("archiver_lag_offsets"))
            raise
        finally:
            instance.kill()

    def until_open(self, instance: Instance) -> None:
        """Every partition has been fetched from: all that is not durable is known."""
        wanted = {"archiver_lag_offsets": self._in_kafka - self._durable, "archiver_partitions": self._partitions}
        eventually(
            lambda: totals(instance, *wanted) == wanted, "the partitions were not opened", PATIENCE_S, LOOKED_EVERY_S
        )

    # --- the scenes

    def first_objects(self) -> None:
        """An archive with an object of each partition; puts come once an age."""
        self.produce(1)
        with self.backup("first", f"{AGE_S}s", "archiver") as instance:
            eventually(lambda: instance.total("archiver_puts_total") >= self._partitions, "no puts", PATIENCE_S)
            puts = instance.total("archiver_puts_total")
            instance.stop()
        self._durable = self._in_kafka
        self.limits.report("puts of one record in each partition", puts, self._partitions, "")

    def starts(self) -> None:
        """With the positions that the group knows, and without."""
        for what, group in (("hinted", "archiver"), ("unknown", "another")):
            self.produce(1)
            started_s = time.monotonic()
            with self.backup(f"start-{what}", "1h", group) as instance:
                self.until_open(instance)
                self.limits.report(f"start, positions {what}", time.monotonic() - started_s, MOST_START_S, "s")

    def idle(self, seconds: float) -> None:
        with self.backup("idle", "1h", "idle") as instance:
            self.until_open(instance)
            time.sleep(10)  # what a start leaves to do
            before_s = cpu_seconds(tree_of(instance.process.pid))
            time.sleep(seconds)
            used = (cpu_seconds(tree_of(instance.process.pid)) - before_s) / seconds
            self.limits.report("CPU when nothing comes", 100 * used, 100 * MOST_IDLE, "%")
            memory = sum(map(pss_bytes, tree_of(instance.process.pid)))
            self.limits.report_memory("memory when nothing comes", memory, MOST_MEMORY)

    def open_segments(self) -> None:
        """All partitions hold records; then some get records of 1 MB."""
        with self.backup("open", "1h", "open") as instance, watching(lambda: tree_of(instance.process.pid)) as memory:
            self.until_open(instance)
            for _ in range(OPEN_RECORDS):
                self.produce(1)
            self.until_open(instance)
            self.limits.report_memory("peak memory, all partitions open", memory.peak_bytes, MOST_MEMORY)
            self.produce(20, LARGE_BYTES, partitions=50)
            self.until_open(instance)
            self.limits.report_memory("peak memory, and records of 1 MB", memory.peak_bytes, MOST_MEMORY)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--partitions", type=int, default=2_000, help=f"a multiple of {PER_TOPIC} (default %(default)s)"
    )
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    given = parser.parse_args()
    with own_broker() as (broker, folder), own_minio() as minio:
        bucket = Bucket(minio, "partitions")
        open_client(minio).create_bucket(Bucket=bucket.name)
        scenes = Scenes(broker.bootstrap, ArchiveSite(bucket, folder), given.partitions)
        scenes.create_topics()
        scenes.first_objects()
        scenes.starts()
        scenes.idle(given.idle_seconds)
        scenes.open_segments()
    return 1 if scenes.limits.over else 0


if __name__ == "__main__":
    sys.exit(main())
