"""Converts Avro container files of AvroKafkaRecord from and to frames; splits any container. fastavro reads and writes headers."""

import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, cast

import fastavro
import numpy as np
from fastavro.read import HEADER_SCHEMA

from archiver.codec.compression import BlockCodec, DecompressionError, compress_block, compress_pieces, decompress_block
from archiver.codec.frame import Bytes, Column, Frame
from archiver.codec.kernels.avro_decode import (
    ALL_READ,
    BRANCH_UNKNOWN,
    BYTES_LEFT,
    FIELD_CUT,
    HEADER_ROOM,
    TYPE_UNKNOWN,
    WRONG_TOPIC,
    decode_rows,
)
from archiver.codec.kernels.avro_encode import HEADERS_BROKEN, NEEDS_PIECES, NEEDS_ROOM, ROW_OUTSIDE, encode_rows
from archiver.codec.kernels.varint import BROKEN, MAX_VARINT_BYTES, encode_long, read_long
from archiver.codec.large_record import record_pieces
from archiver.codec.schemas import RECORD, RECORD_V1, RECORD_V1_NULLABLE, load_schema
from archiver.errors import CorruptSegmentError, FormatTooNewError

SYNC_BYTES = 16
_MAGIC = b"Obj\x01"
BLOCK_BYTES = 512 * 1024
_ROOM_BYTES = 64 * 1024  # of a block's buffer beyond BLOCK_BYTES, for the record that fills the block
# The most that one record may need at once. Its block, and the same compressed, are all the memory that a segment takes.
LARGE_RECORD_BYTES = 2 * 1024 * 1024
# Our objects must be readable. The largest record batch that we decode may be one record that is all headers, and headers
# take five times their size when their keys are not UTF-8.
MOST_BLOCK_BYTES = 6 * 256 * 1024 * 1024
_MOST_HEADER_BYTES = 1024 * 1024  # of a container's header: ours have 4 KB
# The fewest bytes of a record without its topic's name: one byte for each field.
_SMALLEST_RECORD, _SMALLEST_RECORD_V1 = 9, 7
# Rows of one frame. Our own blocks hold fewer records. A row of the table may be ten times as large as its record, so a
# foreign block of very many tiny records becomes several frames.
MOST_BLOCK_ROWS = 64 * 1024

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
    """The encoding of records of one known schema."""

    nullable_value: bool
    second_version: bool

    @property
    def smallest_record(self) -> int:
        """The fewest bytes of a record, without its topic's name."""
        return _SMALLEST_RECORD if self.second_version else _SMALLEST_RECORD_V1


RECORD_SCHEMAS: Mapping[str, RecordSchema] = {
    RECORD: RecordSchema(nullable_value=True, second_version=True),
    RECORD_V1: RecordSchema(nullable_value=False, second_version=False),
    RECORD_V1_NULLABLE: RecordSchema(nullable_value=True, second_version=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHeader:
    """The header of a container file, and the begin of its first block."""

    schema: str  # name of the schema in archiver.codec.schemas
    codec: BlockCodec
    sync: bytes
    metadata: Mapping[str, str]
    size: int


def encode_header(codec: BlockCodec, sync: bytes, metadata: Mapping[str, str], schema: str = RECORD) -> bytes:
    """Write the header of a container file."""
    target = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(load_schema(schema)))
    fastavro.writer(target, parsed, [], codec=codec.value, metadata=dict(metadata), sync_marker=sync)
    return target.getvalue()


def says_the_same(one: bytes, other: bytes) -> bool:
    """Compare two readable headers byte by byte, but for the order of keys in the schema: fastavro orders them differently in each process."""
    return _spelled_evenly(one) == _spelled_evenly(other)


def _spelled_evenly(header: bytes) -> bytes:
    """Spell a header with the keys of its schema sorted. All other bytes stay, so that any difference in them shows."""
    source, target = io.BytesIO(header), io.BytesIO()
    found = cast("dict[str, dict[str, bytes]]", fastavro.schemaless_reader(source, HEADER_SCHEMA, None))
    fastavro.schemaless_writer(target, HEADER_SCHEMA, found)
    if target.getvalue() != header:
        return header
    texts = found["meta"]
    texts["avro.schema"] = json.dumps(json.loads(texts["avro.schema"]), sort_keys=True).encode()
    return repr((found["magic"], sorted(texts.items()), found["sync"])).encode()


def decode_header(
    content: bytes | memoryview, key: str, schemas: Collection[str] = RECORD_SCHEMAS.keys()
) -> ContainerHeader:
    """Read the header at the start of `content`, of a file of one of these schemas; errors name the key."""
    if content[: len(_MAGIC)] != _MAGIC:
        raise CorruptSegmentError(f"{key}: not an Avro object container file")
    source = io.BytesIO(content[:_MOST_HEADER_BYTES])
    try:
        header = cast("dict[str, object]", fastavro.schemaless_reader(source, HEADER_SCHEMA, None))
        texts = cast("dict[str, bytes]", header["meta"])
        canonical = _canonical(texts["avro.schema"].decode())
        # Other writers may put any bytes into a header; the parts that we read are ASCII.
        metadata = {name: value.decode(errors="replace") for name, value in texts.items()}
        codec = BlockCodec(metadata.get("avro.codec", BlockCodec.NULL.value))
    except Exception as error:  # fastavro does not document its errors for garbage
        raise CorruptSegmentError(f"{key}: not an Avro object container file of a known codec: {error!r}") from error
    sync = cast("bytes", header["sync"])
    if len(sync) != SYNC_BYTES:
        raise CorruptSegmentError(f"{key}: not an Avro object container file")
    schema = next((name for name in schemas if _canonical(load_schema(name)) == canonical), None)
    if schema is None:
        raise FormatTooNewError(f"{key}: written with a schema that this program does not know")
    return ContainerHeader(schema=schema, codec=codec, sync=sync, metadata=metadata, size=source.tell())


@lru_cache(maxsize=16)
def _canonical(schema_text: str) -> str:
    return fastavro.schema.to_parsing_canonical_form(json.loads(schema_text))


class BlockEncoder:
    """Collects the rows of one partition into blocks of about BLOCK_BYTES; small frames share a block.

    A large record has a block of its own, which is compressed while it is written, into a file that `overflow` opens.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        codec: BlockCodec,
        level: int,
        sync: bytes,
        overflow: Callable[[], IO[bytes]] = io.BytesIO,
    ) -> None:
        self._prefix = _record_prefix(topic, partition)
        self._codec = codec
        self._level = level
        self._sync = sync
        self._overflow = overflow
        self._buffer = np.empty(0, np.uint8)
        self._kept_bytes = 0  # how much of the buffer is kept from block to block
        self._used = 0
        self._rows = 0
        self._packed: IO[bytes] | None = None  # the compressed block of a large record
        self._is_closed = False  # the block takes no more: a large record comes next, or is the block

    @property
    def pending_bytes(self) -> int:
        """Bytes of records that are not in a finished block yet."""
        return self._used

    @property
    def is_full(self) -> bool:
        return self._is_closed or self._used >= BLOCK_BYTES

    def append(self, frame: Frame, start: int, stop: int, most_bytes: int = BLOCK_BYTES) -> int:
        """Take rows up to and with the one that reaches `most_bytes`. Returns the next row; flush a full block before going on.

        Takes no row if the next record is large and the block has others: then the block is full.
        """
        row, block_bytes = start, min(most_bytes, BLOCK_BYTES)
        self._kept_bytes = block_bytes + _ROOM_BYTES
        while True:
            before = row
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
            self._rows += row - before
            if why in {ROW_OUTSIDE, HEADERS_BROKEN}:
                raise ValueError(f"row {row} is not in the frame, or points outside its buffers")
            if why == NEEDS_PIECES or (why == NEEDS_ROOM and room > LARGE_RECORD_BYTES):
                return self._append_alone(frame, int(row))
            if why != NEEDS_ROOM:
                return int(row)
            self._grow(room)

    def _append_alone(self, frame: Frame, row: int) -> int:
        self._is_closed = True
        if self._rows:
            return row
        size = sum(len(piece) for piece in record_pieces(frame, row, self._prefix))
        self._packed = self._overflow()
        for packed in compress_pieces(self._codec, record_pieces(frame, row, self._prefix), size, self._level):
            self._packed.write(packed)
        self._used, self._rows = size, 1
        return row + 1

    def _grow(self, room: int) -> None:
        # Large records seldom come alone: make room for a block of them. Memory that is not written to costs nothing.
        wanted = self._kept_bytes + room if room > _ROOM_BYTES else min(2 * len(self._buffer), self._kept_bytes)
        larger = np.empty(max(wanted, self._used + room), np.uint8)
        larger[: self._used] = self._buffer[: self._used]
        self._buffer = larger

    def flush(self) -> Iterable[bytes]:
        """Finish the block, in pieces: count, size, compressed records, sync marker. Empty if the block has no rows."""
        rows, self._rows = self._rows, 0
        used, self._used = self._used, 0
        packed, self._packed = self._packed, None
        self._is_closed = False
        if packed is not None:
            return _framed(packed, self._sync)
        if not rows:
            return ()
        block = encode_block(self._buffer[:used], rows, self._codec, self._level, self._sync)
        if (
            len(self._buffer) > self._kept_bytes
        ):  # else each of thousands of partitions would keep the room of a large record
            self._buffer = np.empty(0, np.uint8)
        return (block,)


def _framed(packed: IO[bytes], sync: bytes) -> Iterator[bytes]:
    """Frame one record as a block."""
    with packed:
        yield encode_long(1) + encode_long(packed.tell())
        packed.seek(0)
        yield from iter(lambda: packed.read(_ROOM_BYTES), b"")
    yield sync


def encode_block(body: Bytes, count: int, codec: BlockCodec, level: int, sync: bytes) -> bytes:
    """Frame encoded records as a block."""
    packed = compress_block(codec, body, level)
    return b"".join((encode_long(count), encode_long(len(packed)), packed, sync))


def _record_prefix(topic: str, partition: int) -> Bytes:
    name = topic.encode("ascii")
    return np.frombuffer(encode_long(len(name)) + name + encode_long(partition), np.uint8)


def decode_blocks(
    content: memoryview,
    header: ContainerHeader,
    *,
    topic: str,
    partition: int,
    key: str,
    most_bytes: int | None = None,
) -> Iterator[Frame]:
    """Read the blocks behind a container file's header, a frame each, or several of one with more than MOST_BLOCK_ROWS records.

    Errors name the key and the block's position. A block that expands to more than `most_bytes` is one; None: MOST_BLOCK_BYTES.
    """
    for block in split_blocks(content, header, key):
        if not block.is_empty:
            yield from decode_block(block, header, topic=topic, partition=partition, most_bytes=most_bytes)


def decode_block(
    block: "Block", header: ContainerHeader, *, topic: str, partition: int, most_bytes: int | None = None
) -> Iterator[Frame]:
    """Read the records of one block."""
    schema = RECORD_SCHEMAS[header.schema]
    body = decode_payload(block, header.codec, most_bytes or MOST_BLOCK_BYTES)
    check_block_count(block.count, len(body), schema, topic, block.where)
    yield from _decode_block(body, block.count, schema, topic, partition, block.where)


def decode_payload(block: "Block", codec: BlockCodec, most_bytes: int) -> Bytes:
    """Decompress the payload of a block, to at most `most_bytes`. Errors name the block."""
    try:
        return decompress_block(codec, block.payload, most_bytes)
    except DecompressionError as error:
        raise CorruptSegmentError(f"{block.where}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a container file; `end` is the position behind it."""

    count: int
    payload: memoryview
    end: int
    key: str

    @property
    def where(self) -> str:
        """The block's name in errors."""
        return f"{self.key}: the block before byte {self.end}"

    @property
    def is_empty(self) -> bool:
        """Whether the block has no record. Our writer makes no such block, and a file may have millions of them."""
        return not self.count and not self.payload


def split_blocks(content: memoryview, header: ContainerHeader, key: str) -> Iterator[Block]:
    """Read the blocks after the header without decompressing them."""
    position = header.size
    while position < len(content):
        block = _block_at(content, position, header.sync, key)
        yield block
        position = block.end


def block_size(content: memoryview, position: int) -> int:
    """Return the size of a block by its first bytes; 0 if they are too few."""
    _, after_count = read_long(content, position)
    size, start = read_long(content, max(after_count, 0))
    return 0 if BROKEN in {after_count, start} or size < 0 else start + size + SYNC_BYTES - position


def block_at(content: memoryview, position: int, header: ContainerHeader, key: str) -> Block:
    """Read one block without decompressing it."""
    return _block_at(content, position, header.sync, key)


def _block_at(content: memoryview, position: int, sync: bytes, key: str) -> Block:
    count, start, end = _next_block(content, position, key)
    if content[end : end + SYNC_BYTES].tobytes() != sync:
        raise CorruptSegmentError(f"{key}: the block at byte {position} does not end with the file's sync marker")
    return Block(count=count, payload=content[start:end], end=end + SYNC_BYTES, key=key)


def last_block(content: memoryview, header: ContainerHeader, key: str) -> Block | None:
    """Find the last block with a record, in the last bytes of a file; None when the block begins before `content` does."""
    text, end = bytes(content), len(content)
    if not text.endswith(header.sync):
        raise CorruptSegmentError(f"{key}: does not end with the file's sync marker: it was cut")
    at = len(text) - SYNC_BYTES
    while (at := text.rfind(header.sync, 0, at)) >= 0:
        start = at + SYNC_BYTES
        try:
            block = _block_at(content[:end], start, header.sync, f"{key}, in its last {len(text)} bytes")
        except CorruptSegmentError:
            continue  # these bytes look like a sync marker, and are part of a record
        if block.end == end and block.count:
            return block
        if block.end == end:
            end = start
    return None


def check_block_count(count: int, body_bytes: int, schema: RecordSchema, topic: str, where: str) -> None:
    """Refuse a count of records that cannot be true, before memory is allocated by it."""
    if count > body_bytes // (schema.smallest_record + len(topic)):
        raise CorruptSegmentError(f"{where}: {count} records cannot lie in {body_bytes} bytes")


def _next_block(source: memoryview, position: int, key: str) -> tuple[int, int, int]:
    """Read a block's count and size. Returns the count, and the range of its payload."""
    count, after_count = read_long(source, position)
    size, start = read_long(source, max(after_count, 0))
    if BROKEN in {after_count, start} or count < 0 or not 0 <= size <= len(source) - start - SYNC_BYTES:
        raise CorruptSegmentError(f"{key}: cut or broken in the block at byte {position} of {len(source)}")
    return count, start, start + size


def _decode_block(
    body: Bytes, count: int, schema: RecordSchema, topic: str, partition: int, where: str
) -> Iterator[Frame]:
    name = np.frombuffer(topic.encode("ascii"), np.uint8)
    done, position = 0, 0
    while True:
        rows = min(count - done, MOST_BLOCK_ROWS)
        table = np.empty((len(Column), rows), np.int64)
        header_body = np.empty(len(body) - position + 2 * MAX_VARINT_BYTES, np.uint8)
        read, position, header_bytes, problem = decode_rows(
            body, position, rows, schema.nullable_value, schema.second_version, name, partition, table, header_body
        )
        done += int(read)
        if problem == ALL_READ and done == count and position != len(body):
            problem = BYTES_LEFT
        if problem != ALL_READ:
            raise CorruptSegmentError(f"{where}, record {done}: {PROBLEMS[problem]}")
        yield Frame(body=body, header_body=header_body[:header_bytes], table=table)
        if done == count:
            return
