"""What `archiver cat` is to print of a record, spelled without the program's help."""

import base64
from typing import Any

from tests.support.records import Headers, Rec


def tell(record: Rec, partition: int) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "key": spell_bytes(record.key),
        "value": spell_bytes(record.value),
        "headers": tell_headers(record.headers),
    }


def tell_headers(headers: Headers) -> list[list[dict[str, str] | None]]:
    return [[spell_bytes(key), spell_bytes(value)] for key, value in headers]


def spell_bytes(content: bytes | None) -> dict[str, str] | None:
    if content is None:
        return None
    try:
        return {"utf8": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
