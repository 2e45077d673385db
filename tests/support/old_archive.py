"""Archives of AvroKafkaRecord v1.0, as others have written them: fastavro's files under our names, without our facts."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fastavro

from archiver.codec import schemas
from tests.support.records import Headers, Rec, generate

VARIANTS = (schemas.RECORD_V1, schemas.RECORD_V1_NULLABLE)


def old_key(topic: str, partition: int, base: int) -> str:
    """Spelled by hand: a name that our own code gets wrong must not be one that it finds."""
    return f"topics/{topic}/partition={partition}/{topic}+{partition}-{base:020d}.data"


def old_file(
    records: Sequence[Rec],
    topic: str,
    partition: int,
    *,
    schema: str = schemas.RECORD_V1_NULLABLE,
    codec: str = "null",
    sync_interval: int = 16_000,
    **more: Any,  # noqa: ANN401 - fastavro's
) -> bytes:
    """Write one file."""
    target = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(schemas.load_schema(schema)))
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": {key.decode(): value for key, value in record.headers} or None,
        }
        for record in records
    ]
    fastavro.writer(target, parsed, rows, codec=codec, sync_interval=sync_interval, **more)
    return target.getvalue()


def old_records(seed: int, count: int, *, first_offset: int = 0, schema: str = schemas.RECORD_V1_NULLABLE) -> list[Rec]:
    """Records of every kind that v1.0 can hold, offsets left out among them."""
    return [_old(record, schema) for record in generate(seed, count, first_offset=first_offset, big_bytes=2000)]


def _old(record: Rec, schema: str) -> Rec:
    """What is left of a record: a map of headers, no type of the timestamp, and in the first variant no null."""
    headers: dict[str, bytes] = {}
    for key, value in record.headers:
        headers[key.decode(errors="replace")] = value or b""
    kept: Headers = tuple((key.encode(), value) for key, value in headers.items())
    value = record.value if schema == schemas.RECORD_V1_NULLABLE else record.value or b""
    return replace(record, timestamp_type=-1, headers=kept, value=value)
