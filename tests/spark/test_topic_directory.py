"""A bare topic directory of the archive opens in Spark's own Avro reader and in fastavro, with the same records."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest
from pyspark.sql import SparkSession

from tests.support.brokers import Broker, Bucket
from tests.support.foreign_reader import keys_in, read_partitions, s3_client
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_raw
from tests.support.records import Rec, generate
from tests.support.reference_batch import batch_of, encode
from tests.support.round_trip import KEEP_ALL, ArchiveSite, archive_site

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark]


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(bucket, tmp_path) as site:
        yield site


def test_a_bare_topic_directory_opens_everywhere(
    broker_41: Broker, topic: str, site: ArchiveSite, spark_avro: SparkSession, tmp_path: Path, seed: int
) -> None:
    create_topic(broker_41.bootstrap, topic, partitions=2, configs=KEEP_ALL)
    for partition in range(2):
        produce_raw(
            broker_41.bootstrap, topic, [encode(batch_of(generate(seed + partition, 300, big_bytes=500)))], partition
        )
    site.back_up(broker_41.bootstrap, topic, records=100)
    folder = tmp_path / "download"
    for key in keys_in(site.bucket, "topics/"):
        path = folder / key.removeprefix("topics/")
        path.parent.mkdir(parents=True, exist_ok=True)
        s3_client(site.bucket).download_file(site.bucket.name, key, str(path))

    found = spark_avro.read.format("avro").load(str(folder / topic)).collect()
    by_spark = sorted((row.asDict(recursive=True) for row in found), key=place_of)
    by_fastavro = sorted((row for path in folder.rglob("*.data") for row in rows_in(path)), key=place_of)
    assert len(by_spark) == 600
    assert [comparable(row) for row in by_spark] == [comparable(row) for row in by_fastavro]

    records = {0: generate(seed, 300, big_bytes=500), 1: generate(seed + 1, 300, big_bytes=500)}
    assert read_partitions(site.bucket, topic) == records
    assert [to_rec(row) for row in by_spark] == [*records[0], *records[1]]


def rows_in(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return cast("list[dict[str, Any]]", list(fastavro.reader(file)))


def place_of(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["partition"], row["offset"]


def comparable(value: object) -> object:
    """Spark gives bytearrays, and maps in an order of its own; equal dicts have none."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    return [comparable(one) for one in value] if isinstance(value, list) else value


def to_rec(row: Mapping[str, Any]) -> Rec:
    plain = cast("dict[str, Any]", comparable(dict(row)))
    if plain["orderedHeaders"] is not None:
        headers = tuple(
            (one["key"].encode() if one["rawKey"] is None else one["rawKey"], one["value"])
            for one in plain["orderedHeaders"]
        )
    else:
        headers = tuple((key.encode(), value) for key, value in (plain["headers"] or {}).items())
    return Rec(
        offset=plain["offset"],
        timestamp=plain["timestamp"],
        timestamp_type=plain["timestampType"],
        key=plain["key"],
        value=plain["value"],
        headers=headers,
    )
