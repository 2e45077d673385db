"""What `archiver cat` must print for a record, made without the program's own code."""

import base64
import time
from typing import Any

from tests.support.records import Headers, Rec


def cat_line(record: Rec, partition: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": cat_time(record.timestamp),
        "timestampType": record.timestamp_type,
        "key": cat_bytes(record.key),
        "value": cat_bytes(record.value),
        "headers": cat_headers(record.headers),
    }


def cat_time(timestamp: int) -> str | None:
    seconds, rest = divmod(timestamp, 1000)
    try:
        spelled = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    except (OverflowError, OSError, ValueError):
        return None
    is_spelled = timestamp != -1 and 1 <= time.gmtime(seconds).tm_year <= 9999
    return f"{spelled.zfill(19)}.{rest:03}Z" if is_spelled else None


def cat_headers(headers: Headers) -> list[list[dict[str, str] | None]]:
    return [[cat_bytes(key), cat_bytes(value)] for key, value in headers]


def cat_bytes(content: bytes | None) -> dict[str, str] | None:
    if content is None:
        return None
    try:
        return {"utf8": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
