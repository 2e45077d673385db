"""Avro object container files of AvroKafkaRecord <-> Frame. fastavro owns the container's header."""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import cast

import fastavro
import numpy as np
from fastavro.read import HEADER_SCHEMA

from archiver.avsc import load_schema
from archiver.codec.avro_decode import (
    ALL_READ,
    BRANCH_UNKNOWN,
    BYTES_LEFT,
    FIELD_CUT,
    HEADER_ROOM,
    TYPE_UNKNOWN,
    WRONG_TOPIC,
    decode_rows,
)
from archiver.codec.avro_encode import HEADERS_BROKEN, NEEDS_ROOM, ROW_OUTSIDE, encode_rows
from archiver.codec.compression import BlockCodec, DecompressionError, compress_block, decompress_block
from archiver.codec.varint import BROKEN, MAX_VARINT_BYTES, read_varint, write_varint
from archiver.errors import CorruptSegmentError, FormatTooNewError
from archiver.frame import Bytes, Column, Frame

SYNC_BYTES = 16
BLOCK_BYTES = 512 * 1024
_ROOM_BYTES = 64 * 1024  # that a block's buffer has beyond the block, for the record that fills it
# What we write must be readable: the largest record batch that we decode may be one record that is all headers, and
# these take five times their size when their keys are not UTF-8.
MOST_DECOMPRESSED_BYTES = 6 * 256 * 1024 * 1024
_MOST_HEADER_BYTES = 1024 * 1024  # of a container: ours is 4 KB
# Fewest bytes that a v1.0 record takes beside its topic: seven fields, one byte each.
_SMALLEST_RECORD = 7

PROBLEMS = {
    FIELD_CUT: "a field runs past the block",
    BRANCH_UNKNOWN: "a union has a branch that the schema does not have",
    WRONG_TOPIC: "a record of another topic or partition",
    HEADER_ROOM: "headers larger than their block",
    BYTES_LEFT: "bytes are left behind the last record",
    TYPE_UNKNOWN: "a timestamp type other than -1, 0 and 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSchema:
    """Which of the known schemas a file was written with."""

    name: str
    nullable_value: bool
    second_version: bool


_KNOWN = (
    RecordSchema(name="AvroKafkaRecord-v2.0", nullable_value=True, second_version=True),
    RecordSchema(name="AvroKafkaRecord-v1.0", nullable_value=False, second_version=False),
    RecordSchema(name="AvroKafkaRecord-v1.0-nullable", nullable_value=True, second_version=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHeader:
    """The header of a container file, and where its first block begins."""

    schema: RecordSchema
    codec: BlockCodec
    sync: bytes
    metadata: Mapping[str, str]
    size: int


def encode_header(codec: BlockCodec, sync: bytes, metadata: Mapping[str, str]) -> bytes:
    """Write the header of a v2.0 container file."""
    target = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(load_schema(_KNOWN[0].name)))
    fastavro.writer(target, schema, [], codec=codec.value, metadata=dict(metadata), sync_marker=sync)
    return target.getvalue()


def says_the_same(one: bytes, other: bytes) -> bool:
    """Compare two headers that can be read, byte by byte but for the order of a schema's keys: fastavro's is another in each process."""
    return _spelled_evenly(one) == _spelled_evenly(other)


def _spelled_evenly(header: bytes) -> bytes:
    """Write a header as it was, its schema with sorted keys; what follows it, or cannot be in one, stays and tells."""
    source, target = io.BytesIO(header), io.BytesIO()
    found = cast("dict[str, dict[str, bytes]]", fastavro.schemaless_reader(source, HEADER_SCHEMA, None))
    fastavro.schemaless_writer(target, HEADER_SCHEMA, found)
    if target.getvalue() != header:
        return header
    texts = found["meta"]
    texts["avro.schema"] = json.dumps(json.loads(texts["avro.schema"]), sort_keys=True).encode()
    return repr((found["magic"], sorted(texts.items()), found["sync"])).encode()


def decode_header(content: bytes | memoryview, key: str) -> ContainerHeader:
    """Read the header at the start of `content`; errors name the key."""
    source = io.BytesIO(content[:_MOST_HEADER_BYTES])
    try:
        header = cast("dict[str, object]", fastavro.schemaless_reader(source, HEADER_SCHEMA, None))
        texts = cast("dict[str, bytes]", header["meta"])
        canonical = _canonical(texts["avro.schema"].decode())
        # Others may keep any bytes in a header; what we look at is ASCII.
        metadata = {name: value.decode(errors="replace") for name, value in texts.items()}
        codec = BlockCodec(metadata.get("avro.codec", BlockCodec.NULL.value))
    except Exception as error:  # fastavro promises nothing about what it raises for garbage
        raise CorruptSegmentError(f"{key}: not an Avro object container file of a known codec: {error!r}") from error
    sync = cast("bytes", header["sync"])
    if header["magic"] != b"Obj\x01" or len(sync) != SYNC_BYTES:
        raise CorruptSegmentError(f"{key}: not an Avro object container file")
    schema = _known_schemas().get(canonical)
    if schema is None:
        raise FormatTooNewError(f"{key}: written with a schema that this program does not know")
    return ContainerHeader(schema=schema, codec=codec, sync=sync, metadata=metadata, size=source.tell())


@cache
def _known_schemas() -> dict[str, RecordSchema]:
    return {_canonical(load_schema(known.name)): known for known in _KNOWN}


@lru_cache(maxsize=16)
def _canonical(schema_text: str) -> str:
    return fastavro.schema.to_parsing_canonical_form(json.loads(schema_text))


class BlockEncoder:
    """Collects the rows of one partition into blocks of about BLOCK_BYTES; small frames share a block."""

    def __init__(self, *, topic: str, partition: int, codec: BlockCodec, level: int, sync: bytes) -> None:
        self._prefix = _record_prefix(topic, partition)
        self._codec = codec
        self._level = level
        self._sync = sync
        self._buffer = np.empty(0, np.uint8)
        self._kept_bytes = 0  # of the buffer, from block to block
        self._used = 0
        self._rows = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of records that are not in a finished block yet."""
        return self._used

    @property
    def is_full(self) -> bool:
        return self._used >= BLOCK_BYTES

    def append(self, frame: Frame, start: int, stop: int, most_bytes: int = BLOCK_BYTES) -> int:
        """Take rows up to and with the one that reaches `most_bytes`. Returns the next row; flush a full block before going on."""
        row, block_bytes = start, min(most_bytes, BLOCK_BYTES)
        self._kept_bytes = block_bytes + _ROOM_BYTES
        while True:
            row, self._used, room, why = encode_rows(
                frame.body,
                frame.header_body,
                frame.table,
                row,
                stop,
                self._prefix,
                self._buffer,
                self._used,
                block_bytes,
            )
            if why in {ROW_OUTSIDE, HEADERS_BROKEN}:
                raise ValueError(f"row {row} is not in the frame, or points outside its buffers")
            if why != NEEDS_ROOM:
                self._rows += row - start
                return int(row)
            self._grow(room)

    def _grow(self, room: int) -> None:
        # A large record is seldom alone: room for a block of them. What is not written to costs no memory.
        wanted = self._kept_bytes + room if room > _ROOM_BYTES else min(2 * len(self._buffer), self._kept_bytes)
        larger = np.empty(max(wanted, self._used + room), np.uint8)
        larger[: self._used] = self._buffer[: self._used]
        self._buffer = larger

    def flush(self) -> bytes:
        """Finish the block: count, size, compressed records, sync marker. Empty when there are no rows."""
        if not self._rows:
            return b""
        packed = compress_block(self._codec, self._buffer[: self._used], self._level)
        block = b"".join((encode_long(self._rows), encode_long(len(packed)), packed, self._sync))
        self._used = 0
        self._rows = 0
        if len(self._buffer) > self._kept_bytes:  # each of thousands of partitions would keep a large record's room
            self._buffer = np.empty(0, np.uint8)
        return block


def _record_prefix(topic: str, partition: int) -> Bytes:
    name = topic.encode("ascii")
    return np.frombuffer(encode_long(len(name)) + name + encode_long(partition), np.uint8)


def encode_long(value: int) -> bytes:
    """Encode one Avro long."""
    target = np.empty(MAX_VARINT_BYTES, np.uint8)
    return target[: write_varint(target, 0, value)].tobytes()


def decode_blocks(
    content: memoryview, header: ContainerHeader, *, topic: str, partition: int, key: str
) -> Iterator[Frame]:
    """Read the blocks of a container file, one frame each, behind its header. Errors name the key and the block's position."""
    for block in split_blocks(content, header, key):
        try:
            body = decompress_block(header.codec, block.payload, MOST_DECOMPRESSED_BYTES)
        except DecompressionError as error:
            raise CorruptSegmentError(f"{block.where}: {error}") from error
        yield _decode_block(body, block.count, header.schema, topic, partition, block.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a container file; `where` names it in errors, `end` is the position behind it."""

    count: int
    payload: memoryview
    end: int
    where: str


def split_blocks(content: memoryview, header: ContainerHeader, key: str) -> Iterator[Block]:
    """Read the blocks behind the header, compressed as they are."""
    position = header.size
    while position < len(content):
        count, payload, position = _next_block(content, position, header.sync, key)
        yield Block(count=count, payload=payload, end=position, where=f"{key}: the block before byte {position}")


def check_count(count: int, body_bytes: int, topic: str, where: str) -> None:
    """Refuse a count of records that cannot be true: it chooses how much is allocated."""
    if count > body_bytes // (_SMALLEST_RECORD + len(topic)):
        raise CorruptSegmentError(f"{where}: {count} records cannot lie in {body_bytes} bytes")


def _next_block(content: memoryview, position: int, sync: bytes, key: str) -> tuple[int, memoryview, int]:
    source = np.frombuffer(content, np.uint8)
    count, after_count = read_varint(source, position, len(source))
    size, start = read_varint(source, max(after_count, 0), len(source))
    if BROKEN in {after_count, start} or count < 0 or not 0 <= size <= len(source) - start - SYNC_BYTES:
        raise CorruptSegmentError(f"{key}: cut or broken in the block at byte {position} of {len(source)}")
    end = int(start + size)
    if content[end : end + SYNC_BYTES] != sync:
        raise CorruptSegmentError(f"{key}: the block at byte {position} does not end with the file's sync marker")
    return int(count), content[int(start) : end], end + SYNC_BYTES


def _decode_block(body: Bytes, count: int, schema: RecordSchema, topic: str, partition: int, where: str) -> Frame:
    check_count(count, len(body), topic, where)
    table = np.empty((len(Column), count), np.int64)
    header_body = np.empty(len(body) + 2 * MAX_VARINT_BYTES, np.uint8)
    name = np.frombuffer(topic.encode("ascii"), np.uint8)
    row, header_bytes, problem = decode_rows(
        body, count, schema.nullable_value, schema.second_version, name, partition, table, header_body
    )
    if problem != ALL_READ:
        raise CorruptSegmentError(f"{where}, record {row}: {PROBLEMS[problem]}")
    return Frame(body=body, header_body=header_body[:header_bytes], table=table)
