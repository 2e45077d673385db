"""The table of positions: in SQL and in the data source just what `archiver groups show` tells."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from archiver.archive.format.control import append_fact
from archiver.cli.main import main
from archiver.config.model import StorageConfig
from archiver.errors import NotWholeError
from archiver.spark.table.options import POSITION_COLUMNS
from archiver.spark.table.query import QueryAnswer, ask
from archiver.spark.table.source import source_for
from tests.support.brokers import S3
from tests.support.bucket_archive import BucketArchive
from tests.support.commit_frames import commit_value, position_key
from tests.support.records import NOW_MS, Rec
from tests.support.spark_bucket import lent_archive, own_daemon, sql_session

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(300)]

OFFSETS = "__consumer_offsets"
GROUPS = "`@groups`"


def commits() -> list[Rec]:
    """Of three groups in two topics, one of which is archived; some are removed again."""
    found: list[Rec] = []
    for number in range(60):
        key = position_key("abc"[number % 3], "orders" if number % 2 else "elsewhere", number % 4)
        value = None if number % 7 == 0 else commit_value(number, metadata="ü" * (number % 3), epoch=number % 5 - 1)
        found.append(Rec(number, NOW_MS + number * 1000, 0, key, value))
    return found


class Site:
    def __init__(self, archive: BucketArchive, spark: SparkSession) -> None:
        self.archive, self.spark = archive, spark
        self.storage = StorageConfig(url=archive.bucket.url, endpoint=archive.bucket.s3.endpoint)

    def ask(self, sql: str, skips_damage: bool = False, /, **options: str) -> QueryAnswer:
        return ask(sql_session(self.spark), self.storage, {"orders", OFFSETS}, sql, options, skips_damage=skips_damage)

    def rows(self, sql: str, **options: str) -> list[dict[str, Any]]:
        answer = self.ask(sql, False, **options)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@pytest.fixture(scope="module")
def site(minio: S3, spark_avro: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    spool = tmp_path_factory.mktemp("spool")
    with own_daemon(spark_avro.sparkContext), lent_archive(minio, spark_avro, spool) as archive:
        for topic in ("orders", OFFSETS):
            archive.write_topic_fact(topic)
        archive.put("orders", 1, [Rec(at, NOW_MS, 0, None, b"") for at in range(50)], each=50)
        archive.put(OFFSETS, 7, commits(), each=20)
        told = {"d": {"orders": {"1": {"offset": 12, "metadata": "m"}}}}
        fact = {"cluster_id": "c", "time_ms": NOW_MS + 130_000, "duration_ms": 1, "groups": told, "missing": []}
        day = datetime.fromtimestamp(NOW_MS / 1000, UTC).strftime("%Y-%m-%d")
        append_fact(archive.handle, f"group-positions/{day}", lambda _: {"format": 1, **fact})
        yield Site(archive, spark_avro)


def shown(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str
) -> list[dict[str, Any]]:
    capsys.readouterr()
    monkeypatch.setenv("AWS_ENDPOINT_URL", site.archive.bucket.s3.endpoint)
    main(["groups", "show", "--url", site.archive.bucket.url, "--format", "json", *options])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["positions"]
    return rows


def as_rows(positions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `groups show` tells, with the names and the times of the table."""

    def moment(at_ms: int | None) -> str | None:
        if at_ms is None:
            return None
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%M:%S.%f")[
            :-3
        ] + "Z"

    renamed = {"leader_epoch": "leaderEpoch"}
    return [
        {renamed.get(name, name): value for name, value in one.items() if not name.endswith("_ms")}
        | {"committed": moment(one["committed_ms"]), "removed": moment(one["removed_ms"])}
        for one in positions
    ]


@pytest.mark.parametrize("until_s", [None, 25, 131])
def test_the_table_equals_groups_show(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, until_s: int | None
) -> None:
    at = {} if until_s is None else {"until": str(NOW_MS + until_s * 1000)}
    expected = as_rows(shown(site, capsys, monkeypatch, *(["--as-of", at["until"]] if at else [])))
    assert len(expected) > 5
    found = site.rows(f"SELECT * FROM {GROUPS} ORDER BY `group`, topic, partition, life", **at)
    assert list(found[0]) == list(POSITION_COLUMNS)
    assert found == [{name: one[name] for name in POSITION_COLUMNS} for one in expected]


def test_the_data_source_takes_it_as_a_topic(site: Site) -> None:
    spark = site.spark.newSession()
    spark.dataSource.register(source_for(2))
    places = {"url": site.storage.url, "endpoint": str(site.storage.endpoint), "topic": "@groups"}
    read = spark.read.format("kafka-archive").options(**places)
    frame = read.option("columns", "group,offset,removed").load()
    assert frame.schema.simpleString() == "struct<group:string,offset:bigint,removed:timestamp>"
    assert frame.where("removed IS NULL").count() == len(
        site.rows(f"SELECT 1 AS one FROM {GROUPS} WHERE removed IS NULL")
    )
    assert read.schema("offset long, source string").load().columns == ["offset", "source"]
    for options, why in (
        ({"partitions": "0"}, "option partitions: there is no such option for @groups"),
        ({"columns": "key"}, "option columns: 'key': there are group, topic"),
        ({"until": "noon"}, "option until"),
    ):
        with pytest.raises(Exception, match=why):
            spark.read.format("kafka-archive").options(**places, **options).load().count()


def test_damage_is_named_and_may_be_skipped(site: Site) -> None:
    key = f"topics/{OFFSETS}/partition=7/{OFFSETS}+7-{40:020}.data"
    content = site.archive.content(key)
    whole = site.rows(f"SELECT * FROM {GROUPS}")
    site.archive.change(key, content[:-3] + b"xyz")
    try:
        with pytest.raises(NotWholeError, match=f"{OFFSETS}-7: .*{40:020}.data.*[^p]$"):
            list(site.ask(f"SELECT * FROM {GROUPS}").rows)
        answer = site.ask(f"SELECT state FROM {GROUPS}", True)
        assert [f"{40:020}.data" in one for one in answer.skipped] == [True]
        states = [row[0] for row in answer.rows]
        assert "unknown" in states
    finally:
        site.archive.change(key, content)
    assert site.rows(f"SELECT * FROM {GROUPS}") == whole
