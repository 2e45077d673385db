"""What a scan must give of records, in plain Python."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from archiver.codec.selection import Selection
from tests.support.records import Rec

MOST_MS = 2**63 // 1000 - 1


def is_selected(record: Rec, selection: Selection) -> bool:
    has_moment = record.timestamp != -1 or not selection.has_times
    return (
        has_moment
        and selection.first_offset <= record.offset <= selection.last_offset
        and selection.from_ms <= record.timestamp <= selection.until_ms
    )


def scan_row(record: Rec, columns: Sequence[str], topic: str, partition: int) -> dict[str, Any]:
    """Header keys as the bytes that Kafka had; a timestamp as microseconds."""
    has_moment = record.timestamp != -1 and abs(record.timestamp) <= MOST_MS
    whole = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000 if has_moment else None,
        "timestampType": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
        "timestampMs": record.timestamp,
    }
    return {name: whole[name] for name in columns}


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch in that form; its arrays must be sound."""
    batch.validate()
    columns = {name: _plain(name, batch.column(name)) for name in batch.schema.names}
    return [{name: column[row] for name, column in columns.items()} for row in range(batch.num_rows)]


def _plain(name: str, column: pa.Array) -> list[Any]:
    if name == "timestamp":
        return list(column.cast(pa.int64()).to_pylist())
    if name != "headers":
        return list(column.to_pylist())
    elements = column.values
    keys, values, raw_keys = (elements.field(at).cast(pa.binary()).to_pylist() for at in range(3))
    pairs = [
        (key if raw_key is None else raw_key, value) for key, value, raw_key in zip(keys, values, raw_keys, strict=True)
    ]
    ends = column.offsets.to_pylist()
    return [pairs[start:end] for start, end in pairwise(ends)]
