"""Records to and from frames, Avro values and digests, in plain Python: what the codec is compared with.

Shares nothing with `archiver.codec` but the names of a frame's columns.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xxhash

from archiver.codec.frame import NULL_LENGTH, Column, Frame
from tests.support.records import Headers, Rec
from tests.support.reference_batch import varint

AvroValue = dict[str, Any]
_MODULUS = 2**61 - 1
_BASE = 0x1D8E4E27C47D124F % _MODULUS


def frame_of(records: Sequence[Rec]) -> Frame:
    body, header_body = bytearray(b"before"), bytearray(b"headers")
    table = np.empty((len(Column), len(records)), np.int64)

    def add(content: bytes | None) -> tuple[int, int]:
        if content is None:
            return -7, NULL_LENGTH  # no one may look at where a null begins
        body.extend(content)
        return len(body) - len(content), len(content)

    for row, record in enumerate(records):
        packed = b"".join(varint(len(key)) + key + _blob(value) for key, value in record.headers)
        key, value = add(record.key), add(record.value)
        place = (len(header_body), len(packed), len(record.headers))
        table[:, row] = (record.offset, record.timestamp, record.timestamp_type, *key, *value, *place)
        header_body.extend(packed)
    return Frame(
        body=np.frombuffer(bytes(body) + b"behind", np.uint8),
        header_body=np.frombuffer(bytes(header_body), np.uint8),
        table=table,
    )


def _blob(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def records_of(*frames: Frame) -> list[Rec]:
    return [record for frame in frames for record in _records_of(frame)]


def _records_of(frame: Frame) -> list[Rec]:
    body, header_body = frame.body.tobytes(), frame.header_body.tobytes()

    def cut(start: int, length: int) -> bytes | None:
        assert length < 0 or 0 <= start <= start + length <= len(body)
        return None if length < 0 else body[start : start + length]

    found = []
    for numbers in frame.table.T.tolist():
        offset, timestamp, kind, key_start, key_length, value_start, value_length, start, length, count = numbers
        assert 0 <= start <= start + max(length, 0) <= len(header_body)
        assert min(length, count) >= 0
        headers = _read_headers(header_body[start : start + length], count)
        found.append(Rec(offset, timestamp, kind, cut(key_start, key_length), cut(value_start, value_length), headers))
    return found


def _read_headers(content: bytes, count: int) -> Headers:
    headers: list[tuple[bytes, bytes | None]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value & 2**64 - 1) >> 1 ^ -(value & 1)

    def blob() -> bytes | None:
        nonlocal at
        length = number()
        if length < 0:
            return None
        at += length
        assert at <= len(content)
        return content[at - length : at]

    for _ in range(count):
        key = blob()
        assert key is not None
        headers.append((key, blob()))
    assert at == len(content)
    return tuple(headers)


# --- Avro (docs/format.md §3.1) ------------------------------------------------------------------------------------


def avro_of(record: Rec, topic: str, partition: int) -> AvroValue:
    """The record as AvroKafkaRecord v2.0 holds it."""
    keys = [key for key, _ in record.headers]
    expressible = all(is_utf8(key) for key in keys) and all(value is not None for _, value in record.headers)
    unique = len(set(keys)) == len(keys)
    in_map = bool(keys) and expressible and unique
    in_list = len(keys) > 1 or (bool(keys) and not expressible)
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": {key.decode(): value for key, value in record.headers} if in_map else None,
        "orderedHeaders": [_avro_header(*header) for header in record.headers] if in_list else None,
        "timestampType": record.timestamp_type,
    }


def _avro_header(key: bytes, value: bytes | None) -> AvroValue:
    if is_utf8(key):
        return {"key": key.decode(), "value": value, "rawKey": None}
    readable = "".join(chr(byte) if byte < 0x80 else "\ufffd" for byte in key)
    return {"key": readable, "value": value, "rawKey": key}


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def of_avro(value: AvroValue) -> Rec:
    """The record in an Avro value of either version, by the reading rule."""
    ordered = value.get("orderedHeaders")
    headers: Headers
    if ordered is not None:
        headers = tuple((_raw_key(header), header["value"]) for header in ordered)
    else:
        headers = tuple((_bytes(key), content) for key, content in (value["headers"] or {}).items())
    kind = value.get("timestampType", -1)
    return Rec(value["offset"], value["timestamp"], kind, value["key"], value["value"], headers)


def _raw_key(header: AvroValue) -> bytes:
    raw: bytes | None = header["rawKey"]
    return _bytes(header["key"]) if raw is None else raw


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


# --- the record digest (docs/format.md §5) -------------------------------------------------------------------------


def digest_of(records: Iterable[Rec]) -> int:
    digest = 0
    for record in records:
        digest = (digest * _BASE + _hash_record(record) % _MODULUS + 1) % _MODULUS
    return digest


def _hash_record(record: Rec) -> int:
    state = len(record.headers)
    for key, value in record.headers:
        state = _hash(2, state, *_length_and_hash(key), *_length_and_hash(value))
    content = (*_length_and_hash(record.key), *_length_and_hash(record.value))
    return _hash(1, record.timestamp, record.timestamp_type, *content, state)


def _length_and_hash(content: bytes | None) -> tuple[int, int]:
    return (-1, 0) if content is None else (len(content), xxhash.xxh64(content, seed=0).intdigest())


def _hash(seed: int, *words: int) -> int:
    packed = b"".join(struct.pack("<Q", word % 2**64) for word in words)
    return int(xxhash.xxh64(packed, seed=seed).intdigest())
