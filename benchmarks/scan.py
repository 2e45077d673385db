"""`python -m benchmarks.scan`: reading the archive in Spark, `kafka-archive` against spark-avro over s3a, in one run.

Both read the same objects from the same MinIO in the same session, warm, in turns, and swap who goes first; every
column that is asked for goes to a sink that drops it, because a count alone decodes nothing. Prints medians and ratios, of
the time and of the CPU of the JVM and its Python workers: where others use the machine too, the CPU tells more.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from archiver.backup.service.run_backup import run_backup
from archiver.config.model import ArchiverConfig
from archiver.spark import register
from benchmarks.generate import fill_topic
from benchmarks.measure import cpu_seconds
from benchmarks.servers import own_broker, own_minio
from tests.support.foreign_reader import open_client
from tests.support.minio import Minio
from tests.support.parts import SPARK_AVRO_OVER_S3A, fetch_part
from tests.support.processes import tree_of

BUCKET = "scan"
RECORDS = {100: 4_000_000, 800: 1_000_000}
FEW_COLUMNS = ("offset", "timestamp", "partition")
WARM_RUNS = 3  # after one, the JVM's compiler is still at work on spark-avro's code


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one scan took."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the archive is, and who may read it."""

    url: str
    endpoint: str
    access_key: str
    secret_key: str


@contextmanager
def archive(records: Mapping[int, int], seed: int) -> Iterator[tuple[Site, Minio]]:
    """Fill topics on a broker and back them up; the broker is gone when they are read."""
    with own_minio() as minio:
        os.environ |= {"AWS_ACCESS_KEY_ID": minio.access_key, "AWS_SECRET_ACCESS_KEY": minio.secret_key}
        open_client(minio).create_bucket(Bucket=BUCKET)
        site = Site(
            url=f"s3://{BUCKET}/archive",
            endpoint=minio.endpoint,
            access_key=minio.access_key,
            secret_key=minio.secret_key,
        )
        with own_broker() as (broker, _):
            for size, count in records.items():
                fill_topic(broker.bootstrap, f"scan-{size}", size=size, records=count, seed=seed)
            config = {
                "kafka": {"bootstrap.servers": broker.bootstrap},
                "storage": {"url": site.url, "endpoint": site.endpoint},
                "topics": {"include": ["scan-.*"]},
                "backup": {"groups": "off"},
            }
            run_backup(ArchiverConfig.model_validate(config), lambda _: None)
        yield site, minio


def open_session(site: Site, jars: Sequence[Path]) -> SparkSession:
    os.environ |= {
        "AWS_ACCESS_KEY_ID": site.access_key,
        "AWS_SECRET_ACCESS_KEY": site.secret_key,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[*]").appName("scan").config("spark.jars", ",".join(map(str, jars)))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.hadoop.fs.s3a.endpoint": site.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": site.access_key,
        "spark.hadoop.fs.s3a.secret.key": site.secret_key,
    }
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    register(session)
    return session


def ours(session: SparkSession, site: Site, topic: str, columns: Sequence[str], **options: str) -> DataFrame:
    reader = session.read.format("kafka-archive").option("url", site.url).option("endpoint", site.endpoint)
    reader = reader.option("topic", topic).options(**options)
    return (reader.option("columns", ",".join(columns)) if columns else reader).load()


def theirs(session: SparkSession, site: Site, topic: str, columns: Sequence[str]) -> DataFrame:
    frame = session.read.format("avro").load(f"{site.url.replace('s3:', 's3a:', 1)}/topics/{topic}")
    return frame.select(*columns) if columns else frame


def measured(scan: Callable[[], DataFrame], not_ours: Sequence[int]) -> Run:
    before, started_s = our_cpu_seconds(not_ours), time.monotonic()
    scan().write.format("noop").mode("overwrite").save()
    return Run(seconds=time.monotonic() - started_s, cpu_seconds=our_cpu_seconds(not_ours) - before)


def our_cpu_seconds(not_ours: Sequence[int]) -> float:
    """CPU of this process and of all below it, the ended ones included."""
    return cpu_seconds(pid for pid in tree_of(os.getpid()) if pid not in not_ours)


def compare(
    session: SparkSession,
    site: Site,
    size: int,
    count: int,
    columns: Sequence[str],
    repeat: int,
    not_ours: Sequence[int],
) -> None:
    topic = f"scan-{size}"
    contestants: dict[str, Callable[[], DataFrame]] = {
        "spark-avro": lambda: theirs(session, site, topic, columns),
        "kafka-archive": lambda: ours(session, site, topic, columns),
        "kafka-archive verify=counts": lambda: ours(session, site, topic, columns, verify="counts"),
    }
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for scan in contestants.values():
        if (found := scan().count()) != count:
            raise RuntimeError(f"{topic}: {found} records, not {count}")
        for _ in range(WARM_RUNS):
            measured(scan, not_ours)
    for turn in range(repeat):
        for name in list(contestants)[:: 1 if turn % 2 else -1]:
            runs[name].append(measured(contestants[name], not_ours))
    _print(f"{size} B, {', '.join(columns) or 'all columns'}", count, runs)


def _print(what: str, count: int, runs: Mapping[str, Sequence[Run]]) -> None:
    print(f"{what}: {count:,} records")
    base_s, base_cpu = _medians(runs["spark-avro"])
    for name, found in runs.items():
        seconds, cpu = _medians(found)
        slowest, fastest = max(run.seconds for run in found), min(run.seconds for run in found)
        print(
            f"  {name:28} {seconds:6.2f} s ({fastest:.2f} to {slowest:.2f}), CPU {1e6 * cpu / count:5.2f} us/record;"
            f" {seconds / base_s:.2f}x the time, {cpu / base_cpu:.2f}x the CPU of spark-avro",
            flush=True,
        )


def _medians(runs: Sequence[Run]) -> tuple[float, float]:
    return statistics.median(run.seconds for run in runs), statistics.median(run.cpu_seconds for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="a hundredth of the records: shows whether something broke"
    )
    given = parser.parse_args()
    records = {size: count // 100 if given.quick else count for size, count in RECORDS.items()}
    jars = sorted(fetch_part(SPARK_AVRO_OVER_S3A).iterdir())
    with archive(records, given.seed) as (site, minio):
        session = open_session(site, jars)
        try:
            for size, count in records.items():
                for columns in ((), FEW_COLUMNS):
                    compare(session, site, size, count, columns, given.repeat, [minio.pid])
        finally:
            session.stop()


if __name__ == "__main__":
    main()
