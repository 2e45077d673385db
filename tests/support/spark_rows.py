"""Rows of `kafka-archive` back to records."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from tests.support.records import Rec


def by_partition(frame: DataFrame) -> dict[int, list[Rec]]:
    """All columns back to records. Within a task records come in order of offsets; tasks are in order, too."""
    found: dict[int, list[Rec]] = {}
    for row in frame.withColumn("us", expr("unix_micros(timestamp)")).drop("timestamp").collect():
        found.setdefault(row["partition"], []).append(to_rec(row.asDict(recursive=True)))
    return found


def to_rec(row: dict[str, Any]) -> Rec:
    assert row["us"] is None or row["us"] % 1000 == 0
    headers = tuple(
        (header["key"].encode() if header["rawKey"] is None else bytes(header["rawKey"]), plain(header["value"]))
        for header in row["headers"]
    )
    return Rec(
        offset=row["offset"],
        timestamp=-1 if row["us"] is None else row["us"] // 1000,
        timestamp_type=row["timestampType"],
        key=plain(row["key"]),
        value=plain(row["value"]),
        headers=headers,
    )


def plain(content: bytearray | None) -> bytes | None:
    return None if content is None else bytes(content)
