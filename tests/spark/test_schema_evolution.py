"""Java Avro and ours: v1.0 and v2.0 read each other, in both variants of v1.0 (docs/format.md §3.2)."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, reader, writer
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from archiver.codec import schemas

pytestmark = pytest.mark.spark

Record = dict[str, Any]

FIRST = {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1_700_000_000_000, "key": b"", "value": b"\xff"}
SECOND = {"topic": "orders", "partition": 0, "offset": 9, "timestamp": -1, "key": None, "value": b""}
PLAIN = [FIRST | {"headers": {"h": b"\x00"}}, SECOND | {"headers": None}]
TOMBSTONE = SECOND | {"offset": 12, "value": None, "headers": None}
ADDED = {"orderedHeaders": None, "timestampType": -1}
ORDERED = SECOND | {
    "offset": 13,
    "headers": None,
    "orderedHeaders": [
        {"key": "a", "value": None, "rawKey": None},
        {"key": "a", "value": b"", "rawKey": None},
        {"key": "\ufffd", "value": b"x", "rawKey": b"\xff"},
    ],
    "timestampType": 1,
}

variants = pytest.mark.parametrize(
    ("v1", "records"),
    [(schemas.RECORD_V1, PLAIN), (schemas.RECORD_V1_NULLABLE, [*PLAIN, TOMBSTONE])],
    ids=["plain", "nullable"],
)


def write(path: Path, name: str, records: list[Record]) -> Path:
    with path.open("wb") as file:
        writer(file, parse_schema(json.loads(schemas.load_schema(name))), records, codec="zstandard")
    return path


def spark_records(spark: SparkSession, source: Path, schema: str | None) -> list[Record]:
    options = {} if schema is None else {"avroSchema": schemas.load_schema(schema)}
    rows = spark.read.format("avro").options(**options).load(str(source)).orderBy("offset").collect()
    return [as_record(row.asDict(recursive=True)) for row in rows]


def as_record(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    # Spark hands out bytearrays; Avro's bytes compare with bytes.
    if isinstance(value, dict):
        return {name: as_record(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_record(part) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value


@variants
def test_java_reads_v2_with_a_v1_schema(
    spark_avro: SparkSession, tmp_path: Path, v1: str, records: list[Record]
) -> None:
    source = write(tmp_path / "s.data", schemas.RECORD, [record | ADDED for record in records])
    assert spark_records(spark_avro, source, v1) == records


@variants
def test_java_reads_v1_with_the_v2_schema(
    spark_avro: SparkSession, tmp_path: Path, v1: str, records: list[Record]
) -> None:
    source = write(tmp_path / "s.data", v1, records)
    assert spark_records(spark_avro, source, schemas.RECORD) == [record | ADDED for record in records]


@variants
def test_v1_written_by_java_is_read_as_v2(
    spark_avro: SparkSession, tmp_path: Path, v1: str, records: list[Record]
) -> None:
    written_by_java(spark_avro, write(tmp_path / "s.data", v1, records), tmp_path / "java", v1)
    (body,) = (tmp_path / "java").glob("*.avro")
    with body.open("rb") as file:
        found = list(reader(file, parse_schema(json.loads(schemas.load_schema(schemas.RECORD)))))
    assert found == [record | ADDED for record in records]


def written_by_java(spark: SparkSession, source: Path, target: Path, name: str) -> None:
    frame = spark.read.format("avro").option("avroSchema", schemas.load_schema(name)).load(str(source))
    frame.orderBy("offset").coalesce(1).write.format("avro").option("avroSchema", schemas.load_schema(name)).save(
        str(target)
    )


def test_a_bare_directory_of_v2_opens_without_a_schema(spark_avro: SparkSession, tmp_path: Path) -> None:
    topic = tmp_path / "orders" / "partition=0"
    topic.mkdir(parents=True)
    records = [*(record | ADDED for record in PLAIN), TOMBSTONE | ADDED, ORDERED]
    write(topic / "orders+0-00000000000000000000.data", schemas.RECORD, records[:2])
    write(topic / "orders+0-00000000000000000010.data", schemas.RECORD, records[2:])
    assert spark_records(spark_avro, tmp_path / "orders", None) == records


@pytest.mark.parametrize("name", [schemas.RECORD, schemas.RECORD_V1, schemas.RECORD_V1_NULLABLE, schemas.COORDINATION])
def test_java_parses_every_schema(spark_avro: SparkSession, name: str) -> None:
    schema = json.loads(schemas.load_schema(name))
    assert java_schema(spark_avro, name).getFullName() == f"{schema['namespace']}.{schema['name']}"


def java_schema(spark: SparkSession, name: str) -> JavaObject:
    return java_avro(spark).Schema.Parser().parse(schemas.load_schema(name))


def java_avro(spark: SparkSession) -> Any:  # noqa: ANN401 - a package of the JVM has no type here
    assert spark._jvm is not None
    return spark._jvm.org.apache.avro
