"""`kafka-archive` on a real S3, compared with what fastavro reads there by the words of docs/format.md."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from archiver.codec.arrow_scan import ARROW_BATCH_BYTES
from archiver.codec.compression import BlockCodec
from archiver.spark import register
from archiver.store.port import ObjectKind
from tests.support.brokers import REPOSITORY, S3
from tests.support.bucket_archive import BucketArchive
from tests.support.faulty_s3 import FaultyS3
from tests.support.foreign_reader import read_partitions
from tests.support.old_archive import VARIANTS, old_file, old_key, old_records
from tests.support.records import ALL_CLASSES, NOW_MS, Rec, classes_of, generate, missing_classes
from tests.support.spark_bucket import lent_archive, own_daemon
from tests.support.spark_rows import by_partition, plain

pytestmark = [pytest.mark.s3, pytest.mark.spark]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
NUMBERED = (0, 3)
MOMENT_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
MOMENTS = [Rec(at, MOMENT_MS + 1000 * at, 0, b"k%d" % at, b"v%d" % at) for at in range(100)]
# Two listings of the index, which is not there, two of the topic's directory, one of its control facts, and the fact; and one of
# its role logs.
GETS_OF_PLANNING = 7
TIMELESS = [Rec(at, -1, -1, None, b"no time") for at in range(100, 110)]


class Site:
    """A session that knows the source, and one archive with a topic for each matter."""

    def __init__(self, spark: SparkSession, archive: BucketArchive) -> None:
        self.spark = spark
        self.archive = archive

    def load(self, topic: str, **options: object) -> DataFrame:
        bucket = self.archive.bucket
        given = {"url": bucket.url, "endpoint": bucket.s3.endpoint, "topic": topic, **options}
        texts = {name.rstrip("_"): str(text) for name, text in given.items()}
        return self.spark.read.format("kafka-archive").options(**texts).load()

    def read(self, topic: str, **options: object) -> dict[int, list[Rec]]:
        return by_partition(self.load(topic, **options))

    def stored(self, directory: str) -> dict[int, list[Rec]]:
        return read_partitions(self.archive.bucket, directory)


def offsets_of(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


@pytest.fixture(scope="module")
def site(minio: S3, spark_avro: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[Site]:
    with lent_archive(minio, spark_avro, tmp_path_factory.mktemp("spool")) as archive:
        fill(archive, seed)
        register(spark_avro)
        yield Site(spark_avro, archive)


@pytest.fixture
def workers_of_others() -> None:
    """For tests of sessions that are not ours, whose workers import all of it again and again."""


@pytest.fixture(autouse=True)
def _workers(request: pytest.FixtureRequest, spark_avro: SparkSession) -> Iterator[None]:
    """What is read does not hang on who starts the workers; ours are quicker."""
    if "workers_of_others" in request.fixturenames:
        yield
    else:
        with own_daemon(spark_avro.sparkContext):
            yield


def fill(archive: BucketArchive, seed: int) -> None:
    archive.write_topic_fact("orders")
    for number in NUMBERED:
        archive.put("orders", number, generate(seed + number, 600), each=200)
    archive.write_topic_fact("moments")
    archive.put("moments", 0, [*MOMENTS, *TIMELESS], each=10)
    archive.put("moments", 2, MOMENTS[:20], each=10)


@contextmanager
def setting(spark: SparkSession, name: str, text: str) -> Iterator[None]:
    spark.conf.set(name, text)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def proxy(site: Site) -> Iterator[FaultyS3]:
    """Counts what is asked of the store through it."""
    with FaultyS3(site.archive.bucket.s3.endpoint) as proxy:
        yield proxy


# --- what is read


@pytest.mark.usefixtures("workers_of_others")
def test_every_record_comes_with_every_byte(site: Site) -> None:
    stored = site.stored("orders")
    assert missing_classes(classes_of([record for part in stored.values() for record in part]), ALL_CLASSES) == []
    assert site.read("orders") == stored


def test_columns(site: Site) -> None:
    rows = site.load("orders", columns="value, offset,Partition,timestampms").collect()
    assert rows[0].__fields__ == ["value", "offset", "partition", "timestampMs"]
    stored = site.stored("orders")
    assert [(plain(value), offset, number, ms) for value, offset, number, ms in rows] == [
        (record.value, record.offset, number, record.timestamp) for number in NUMBERED for record in stored[number]
    ]
    for column in ("topic", "headers"):
        assert site.load("orders", columns=column).count() == 1200


def test_a_schema_of_the_users_own_chooses_columns(site: Site) -> None:
    bucket = site.archive.bucket
    reader = site.spark.read.format("kafka-archive").option("url", bucket.url).option("topic", "orders")
    reader = reader.option("endpoint", bucket.s3.endpoint)
    assert len(reader.schema("key binary, offset long").load().collect()[0]) == 2
    with pytest.raises(PySparkException, match="the schema's column value string is not one of"):
        reader.schema("value string").load().collect()


@pytest.mark.usefixtures("workers_of_others")
def test_headers_by_sql(site: Site) -> None:
    site.load("orders").createOrReplaceTempView("orders")
    found = site.spark.sql(
        "SELECT partition, offset, transform(headers, h -> coalesce(h.rawKey, cast(h.key AS binary))) AS keys FROM orders"
    ).collect()
    keys = {(row["partition"], row["offset"]): [bytes(key) for key in row["keys"]] for row in found}
    stored = site.stored("orders")
    assert keys == {
        (number, record.offset): [key for key, _ in record.headers] for number in NUMBERED for record in stored[number]
    }
    tables = site.spark.sql(
        f"CREATE TEMPORARY VIEW ddl USING `kafka-archive` OPTIONS (url '{site.archive.bucket.url}',"
        f" endpoint '{site.archive.bucket.s3.endpoint}', topic 'orders')"
    )
    assert tables.count() == 0
    assert site.spark.sql("SELECT count(*) AS n FROM ddl").collect()[0]["n"] == 1200


def test_timestamps_that_spark_cannot_hold(site: Site) -> None:
    times = [-1, -2, 0, 1, 2**63 - 1, -(2**63), 9_223_372_036_854_774, 9_223_372_036_854_776, NOW_MS]
    site.archive.write_topic_fact("times")
    site.archive.put("times", 0, [Rec(at, time, 0, None, None) for at, time in enumerate(times)], each=100)
    frame = site.load("times", columns="timestamp,timestampMs").selectExpr(
        "unix_micros(timestamp) AS us", "timestampMs"
    )
    rows = frame.collect()
    assert [row["timestampMs"] for row in rows] == times
    fits = [-(2**63) <= 1000 * time < 2**63 and time != -1 for time in times]
    assert [row["us"] for row in rows] == [1000 * time if fit else None for time, fit in zip(times, fits, strict=True)]


@pytest.mark.usefixtures("workers_of_others")
def test_the_examples_of_the_documentation(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = {"url": site.archive.bucket.url, "endpoint": site.archive.bucket.s3.endpoint}
    (tmp_path / "archive.yaml").write_text(yaml.safe_dump({"storage": storage}))
    text = (REPOSITORY / "docs" / "spark.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    places = {
        "s3://my-bucket/kafka": storage["url"],
        "http://localhost:9000": storage["endpoint"],
        "archive.yaml": str(tmp_path / "archive.yaml"),
        "2026-11-20T00:00:00Z": "0",
    }
    for example, real in places.items():
        assert example in code
        code = code.replace(example, real)
    exec(code, {})
    shown = capsys.readouterr().out
    assert "|        0|  600|" in shown
    assert "|article|" in shown


# --- what is asked for


def test_offsets(site: Site) -> None:
    stored = site.stored("orders")
    assert site.read("orders", offsets="0:199-400,3:590-") == {0: stored[0][199:401], 3: stored[3][590:]}
    assert site.read("orders", offsets="3:7") == {3: stored[3][7:8]}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "absent"}, "topic absent is not in the archive"),
        ({"life": "7"}, "orders has no life 7"),
        ({"columns": "kex"}, "option columns: 'kex': there are topic, "),
    ],
    ids=["topic", "life", "columns"],
)
def test_a_wrong_option_is_told(site: Site, options: dict[str, str], told: str) -> None:
    """Those that need no archive to be seen are in tests/unit/spark/test_table_options.py."""
    with pytest.raises(PySparkException, match=told):
        site.load(**{"topic": "orders", **options}).collect()


# --- what is fetched


def test_only_objects_that_can_matter_are_fetched(site: Site, proxy: FaultyS3) -> None:
    def cost(**options: object) -> int:
        proxy.requests.clear()
        frame = site.load("moments", endpoint=proxy.endpoint, columns="offset", **options)
        frame.write.format("noop").mode("overwrite").save()
        return proxy.requests["GET"] - GETS_OF_PLANNING

    assert cost() == 13  # 11 objects of partition 0, 2 of partition 2; the last of 0 has no timestamps
    assert cost(from_=MOMENT_MS + 5000, until=MOMENT_MS + 20_000, partitions=0) == 3
    assert cost(offsets="0:9-20") == 3
    assert cost(offsets="0:10-19,2:0") == 2
    assert cost(offsets="0:35-", until=MOMENT_MS + 39_999) == 1


FILTERS: list[tuple[str, int, Callable[[int, Rec], bool]]] = [
    ("partition IN (1, 2)", 2, lambda number, _: number == 2),
    ("offset BETWEEN 15 AND 25", 3, lambda _, record: 15 <= record.offset <= 25),
    ("offset >= 15 AND partition = 0 AND offset < 20", 1, lambda n, record: n == 0 and 15 <= record.offset < 20),
    ("timestamp >= timestamp_millis(1700000095000)", 1, lambda _, record: 95 <= record.offset < 100),
    (
        "timestamp > timestamp_micros(1700000018999999) AND timestamp < timestamp_millis(1700000020000)",
        2,
        lambda _, record: record.offset == 19,
    ),
    ("timestamp IS NULL", 13, lambda _, record: record.timestamp == -1),
    ("offset = 1 OR offset = 42", 13, lambda _, record: record.offset in {1, 42}),
]


@pytest.mark.parametrize(("condition", "objects", "keeps"), FILTERS, ids=[condition for condition, _, _ in FILTERS])
def test_filters_that_are_pushed(
    site: Site, proxy: FaultyS3, condition: str, objects: int, keeps: Callable[[int, Rec], bool]
) -> None:
    every = [(0, record) for record in (*MOMENTS, *TIMELESS)] + [(2, record) for record in MOMENTS[:20]]
    expected = [(number, record.offset, record.value) for number, record in every if keeps(number, record)]
    with setting(site.spark, PUSHDOWN, "true"):
        frame = site.load(
            "moments", endpoint=proxy.endpoint, pushFilters="true", columns="partition,offset,value,key,timestamp"
        )
        proxy.requests.clear()
        rows = frame.where(condition).select("partition", "offset", "value").collect()
    assert sorted((row["partition"], row["offset"], plain(row["value"])) for row in rows) == sorted(expected)
    assert proxy.requests["GET"] - GETS_OF_PLANNING == objects


def test_filters_are_not_pushed_unless_asked_for(site: Site) -> None:
    """Spark 4.1 gives what was planned for one query of a DataFrame to all: records would be missed without a word."""
    with setting(site.spark, PUSHDOWN, "true"):
        frame = site.load("moments")
        assert [frame.where("offset < 5").count(), frame.count()] == [10, 130]
        asked = site.load("moments", pushFilters="true")
        # Once the second is 130, the option can be the default.
        assert [asked.where("offset < 5").count(), asked.count()] == [10, 10]
    with setting(site.spark, PUSHDOWN, "false"):
        assert site.load("moments", pushFilters="true").where("offset < 5").count() == 10


def test_tasks(site: Site) -> None:
    assert site.load("moments").rdd.getNumPartitions() == 2  # never two partitions of Kafka in one task
    finer = site.load("moments", minPartitions=4)
    assert finer.rdd.getNumPartitions() >= 4
    assert by_partition(finer) == {0: [*MOMENTS, *TIMELESS], 2: MOMENTS[:20]}


# --- what others have written (docs/format.md §3.2)


def put_old(site: Site, topic: str, records: list[Rec], partition: int = 0, **options: Any) -> None:  # noqa: ANN401 - fastavro's
    key = old_key(topic, partition, records[0].offset)
    site.archive.store.put_if_absent(key, old_file(records, topic, partition, **options), {}, kind=ObjectKind.SEGMENT)


@pytest.mark.parametrize("schema", VARIANTS)
def test_v1_objects(site: Site, topic: str, schema: str, seed: int) -> None:
    records = [replace(one, offset=at) for at, one in enumerate(old_records(seed, 300, schema=schema))]
    for start, codec in ((0, "deflate"), (100, "zstandard"), (200, "null")):
        put_old(site, topic, records[start : start + 100], schema=schema, codec=codec, sync_interval=3000)
    assert site.read(topic) == {0: records}
    assert site.read(topic, offsets="0:99-101", verify="digest") == {0: records[99:102]}


def test_a_v1_object_that_is_broken_behind_its_first_block_gives_nothing(site: Site, topic: str) -> None:
    """Neither to who skips it nor, before that is known, to who looks for the last of each key."""
    large = bytes(ARROW_BATCH_BYTES // 10)
    records = [Rec(at, MOMENT_MS + at, -1, b"k", b"%d" % at + large) for at in range(90)]
    put_old(site, topic, records[:30])
    content = bytearray(old_file(records[30:60], topic, 0, sync_interval=200))
    markers = [at for at in range(len(content)) if content.startswith(content[-16:], at)]
    content[markers[len(markers) // 2]] ^= 1
    site.archive.store.put_if_absent(old_key(topic, 0, 30), bytes(content), {}, kind=ObjectKind.SEGMENT)
    put_old(site, topic, records[60:])
    with pytest.raises(PySparkException, match=r"0030\.data: "):
        site.read(topic)
    assert site.read(topic, onDamage="skip") == {0: [*records[:30], *records[60:]]}


# --- what is damaged


@pytest.fixture
def damaged(site: Site, topic: str, seed: int) -> tuple[str, list[str], list[Rec]]:
    """A topic of four objects of ten records, uncompressed, and their keys."""
    records = [replace(record, value=b"a value %d" % record.offset) for record in generate(seed, 40, big_bytes=2000)]
    site.archive.write_topic_fact(topic)
    return topic, site.archive.put(topic, 0, records, each=10, codec=BlockCodec.NULL), records


def test_a_changed_byte(site: Site, damaged: tuple[str, list[str], list[Rec]]) -> None:
    topic, keys, records = damaged
    site.archive.change(keys[2], site.archive.content(keys[2]).replace(b"a value 25", b"A value 25"))
    with pytest.raises(PySparkException, match=r"0020\.data: its bytes are not those that were written"):
        site.read(topic)
    assert site.read(topic, verify="counts")[0][25].value == b"A value 25"  # what that level does not find
    assert site.read(topic, onDamage="skip") == {0: [*records[:20], *records[30:]]}


def test_a_cut_object(site: Site, damaged: tuple[str, list[str], list[Rec]]) -> None:
    """Cut behind its header it has no record, and is a valid file to any other reader."""
    topic, keys, records = damaged
    content = site.archive.content(keys[3])
    sync = content[-16:]
    site.archive.change(keys[3], content[: content.index(sync) + 16])
    with pytest.raises(PySparkException, match=r"0030\.data: 0 records up to offset -1, not 10 up to 39"):
        site.read(topic, verify="counts")
    assert site.read(topic, onDamage="skip") == {0: records[:30]}
