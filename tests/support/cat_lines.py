"""What `archiver cat` must print for a record, made without the program's own code."""

import base64
from typing import Any

from tests.support.records import Headers, Rec


def cat_line(record: Rec, partition: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "key": cat_bytes(record.key),
        "value": cat_bytes(record.value),
        "headers": cat_headers(record.headers),
    }


def cat_headers(headers: Headers) -> list[list[dict[str, str] | None]]:
    return [[cat_bytes(key), cat_bytes(value)] for key, value in headers]


def cat_bytes(content: bytes | None) -> dict[str, str] | None:
    if content is None:
        return None
    try:
        return {"utf8": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
