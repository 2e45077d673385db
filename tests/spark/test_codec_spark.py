"""Objects of ours in spark-avro, and of spark-avro in ours: Java's own Avro as a third opinion."""

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from archiver.codec import schemas
from archiver.codec.avro import decode_blocks, decode_header
from archiver.codec.compression import BlockCodec
from tests.support.frames import avro_of, records_of
from tests.support.records import Rec, generate
from tests.support.segments import written

pytestmark = pytest.mark.spark

COUNT = 500
IN_LONG = (BlockCodec.NULL, BlockCodec.DEFLATE)


def plain(value: Any) -> Any:  # noqa: ANN401
    """Spark hands out bytearrays, and rows for records."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return bytes(value) if isinstance(value, bytearray) else value


def spark_reads(spark: SparkSession, source: Path) -> list[dict[str, Any]]:
    rows = spark.read.format("avro").load(str(source)).orderBy("offset").collect()
    return [cast("dict[str, Any]", plain(row.asDict(recursive=True))) for row in rows]


def we_read(content: bytes) -> list[Rec]:
    header = decode_header(content, "key")
    return records_of(*decode_blocks(memoryview(content), header, topic="orders", partition=3, key="key"))


@pytest.mark.parametrize(
    "codec", [pytest.param(one, marks=pytest.mark.long if one in IN_LONG else ()) for one in BlockCodec]
)
def test_spark_reads_a_directory_of_segments(
    spark_avro: SparkSession, tmp_path: Path, codec: BlockCodec, seed: int
) -> None:
    records = generate(seed, COUNT, big_bytes=700_000)
    topic = tmp_path / "orders" / "partition=3"
    topic.mkdir(parents=True)
    spool = tmp_path / "spool"
    spool.mkdir()
    for start in range(0, COUNT, 200):
        content, facts = written(spool, records[start : start + 200], base=start, codec=codec)
        (topic / f"orders+3-{facts.base:020}.data").write_bytes(content)
    found = spark_reads(spark_avro, tmp_path / "orders")
    assert found == [avro_of(record, "orders", 3) for record in records]


@pytest.mark.parametrize("codec", ["uncompressed", "deflate", "snappy", "zstandard"])
def test_we_read_what_spark_writes(spark_avro: SparkSession, tmp_path: Path, codec: str, seed: int) -> None:
    """Spark keeps the schema it is given, canonically; its blocks and codecs are Java's."""
    records = generate(seed, COUNT, big_bytes=700_000)
    content, _ = written(tmp_path, records)
    source = tmp_path / "ours.data"
    source.write_bytes(content)
    frame = spark_avro.read.format("avro").load(str(source)).orderBy("offset").coalesce(1)
    target = tmp_path / "theirs"
    frame.write.format("avro").option("avroSchema", schemas.load_schema(schemas.RECORD)).option(
        "compression", codec
    ).save(str(target))
    (file,) = target.glob("*.avro")
    assert we_read(file.read_bytes()) == records
