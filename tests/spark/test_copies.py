"""Copies of compacted topics by `kafka-archive` and SQL: laid into a real S3 by the words of docs/format.md §11."""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from archiver.config.model import StorageConfig
from archiver.spark import register
from archiver.spark.table.query import ask
from tests.support.brokers import S3, Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.copied_topic import complete_copy, copy_partition, put_role_entry
from tests.support.faulty_s3 import FaultyS3
from tests.support.foreign_reader import s3_client
from tests.support.records import NOW_MS, Rec
from tests.support.spark_bucket import lent_archive, own_daemon, sql_session
from tests.support.spark_rows import by_partition

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(300)]

# The index, the listing of `topics/`, the topic's facts and the newest of them, its role logs; then the entry of each of its two
# partitions, the names of instances, and the topic's copies by each of the two; and the first entry of partition 0, whose objects
# have no `stable-end`.
GETS_OF_PLANNING = 7 + 2 + 1 + 2 + 1


class Copies:
    """An archive in a bucket, and archives of their own whose partitions are laid into it as copies."""

    def __init__(self, spark: SparkSession, archive: BucketArchive, spool: Path) -> None:
        self.spark = spark
        self.archive = archive
        self._spool = spool

    def new_bucket(self) -> Bucket:
        bucket = Bucket(self.archive.bucket.s3, f"copy-{uuid.uuid4().hex[:12]}")
        s3_client(bucket).create_bucket(Bucket=bucket.name)
        return bucket

    def put(
        self,
        topic: str,
        partition: int,
        records: Sequence[Rec],
        *,
        generation: int = 0,
        instance: str = "blue",
        life: int = 0,
    ) -> list[str]:
        made = BucketArchive(self.new_bucket(), self._spool)
        made.put(topic, partition, records, each=10)
        return copy_partition(
            made.bucket, self.archive.bucket, topic, partition, instance=instance, generation=generation, life=life
        )

    def complete(
        self,
        topic: str,
        partition: int,
        until: int,
        *,
        number: int = 0,
        generation: int = 0,
        instance: str = "blue",
        **said: Any,  # noqa: ANN401 - as role_entry has them
    ) -> str:
        holder = complete_copy(instance, generation, until)
        return put_role_entry(self.archive.bucket, topic, partition, number, **{"holder": holder, **said})

    def read(self, topic: str, **options: object) -> dict[int, list[Rec]]:
        return by_partition(self.load(topic, **options))

    def load(self, topic: str, **options: object) -> DataFrame:
        bucket = self.archive.bucket
        given = {"url": bucket.url, "endpoint": bucket.s3.endpoint, "topic": topic, **options}
        texts = {name.rstrip("_"): str(text) for name, text in given.items()}
        return self.spark.read.format("kafka-archive").options(**texts).load()


def records_of(mark: str, offsets: Sequence[int]) -> list[Rec]:
    """As compaction leaves them: with offsets between them that are no more."""
    return [Rec(at, NOW_MS + at, 0, b"k%d" % at, f"{mark} {at}".encode()) for at in offsets]


OLD = records_of("old", range(0, 60, 3))
NEW = records_of("new", range(1, 90, 4))


@pytest.fixture(scope="module")
def copies(minio: S3, spark_avro: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copies]:
    spool = tmp_path_factory.mktemp("spool")
    with own_daemon(spark_avro.sparkContext), lent_archive(minio, spark_avro, spool) as archive:
        register(spark_avro)
        yield Copies(spark_avro, archive, spool)


@pytest.fixture(scope="module")
def proxy(copies: Copies) -> Iterator[FaultyS3]:
    """Counts what is asked of the store through it."""
    with FaultyS3(copies.archive.bucket.s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def swapped(copies: Copies, topic: str) -> str:
    """A topic of two partitions. Of 0 a second copy holds, and a third is under way; of 1 there is one."""
    copies.archive.write_topic_fact(topic, partitions=2)
    copies.archive.put(topic, 0, records_of("history", range(20)), each=10)
    end, first = NEW[-1].offset + 1, complete_copy("blue", 0, 58)
    copies.put(topic, 0, OLD)
    copies.complete(topic, 0, 58, number=1)
    copies.put(topic, 0, NEW, generation=2)
    copies.complete(topic, 0, end, generation=2, number=3, replaced=first)
    copies.put(topic, 0, OLD[:10], generation=4)
    begun: dict[str, Any] = {"switched": 3, "candidate": ("blue", 4), "other": {"type": "begin"}}
    copies.complete(topic, 0, end, generation=2, number=4, replaced=first, **begun)
    copies.put(topic, 1, OLD)
    copies.complete(topic, 1, OLD[-1].offset + 1)
    return topic


# --- what is read


def test_the_copy_that_holds_is_read(copies: Copies, swapped: str) -> None:
    assert copies.read(swapped) == {0: NEW, 1: OLD}


def test_instances_and_history_do_not_mix(copies: Copies, swapped: str) -> None:
    green = records_of("green", range(1, 90, 4))
    copies.put(swapped, 0, green, instance="green", generation=5)
    copies.put(swapped, 1, NEW, instance="green", generation=7)
    copies.complete(swapped, 0, 1, instance="green", generation=5, number=6)  # what came later is read, too
    copies.complete(swapped, 1, 1, instance="green", generation=7, number=8)
    assert copies.read(swapped) == copies.read(swapped, instance="green") == {0: green, 1: NEW}
    assert copies.read(swapped, instance="blue") == {0: NEW, 1: OLD}
    assert copies.read(swapped, history=True) == {0: records_of("history", range(20))}
    with pytest.raises(PySparkException, match="options instance and history"):
        copies.read(swapped, history=True, instance="blue")


# --- what is asked for, and what is fetched for it


def test_only_objects_that_can_matter_are_fetched(copies: Copies, swapped: str, proxy: FaultyS3) -> None:
    copies.put(
        f"{swapped}-other", 0, OLD[:1], instance="green"
    )  # the bucket has two instances, whichever tests ran before

    def cost(**options: object) -> int:
        proxy.requests.clear()
        copies.load(swapped, endpoint=proxy.endpoint, columns="offset", **options).count()
        return proxy.requests["GET"] - GETS_OF_PLANNING

    assert cost() == 3 + 2
    assert cost(partitions=1) == 2
    assert cost(offsets="0:41-") == 2
    assert cost(until=NOW_MS + 27) == 1 + 1
    assert copies.read(swapped, offsets="0:41-50,1:0") == {0: records_of("new", [41, 45, 49]), 1: OLD[:1]}
    assert copies.read(swapped, from_=NOW_MS + 57) == {0: NEW[14:], 1: OLD[19:]}


def test_sql(copies: Copies, swapped: str) -> None:
    spark = sql_session(copies.spark)
    bucket = copies.archive.bucket
    storage = StorageConfig(url=bucket.url, endpoint=bucket.s3.endpoint)
    sql = (
        f"SELECT partition, max(value) AS last FROM `{swapped}` WHERE offset < 50 GROUP BY partition ORDER BY partition"
    )
    answer = ask(spark, storage, {swapped}, sql, {})
    assert list(answer.rows) == [[0, {"utf8": "new 9"}], [1, {"utf8": "old 9"}]]
    answer = ask(spark, storage, {swapped}, sql, {"history": "true"})
    assert list(answer.rows) == [[0, {"utf8": "history 9"}]]


# --- what is missing or damaged
