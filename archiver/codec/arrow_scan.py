"""Decodes archived objects to Arrow record batches of chosen columns and rows, for the Spark table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from archiver.codec.avro import (
    MOST_BLOCK_BYTES,
    PROBLEMS,
    RECORD_SCHEMAS,
    Block,
    ContainerHeader,
    RecordSchema,
    check_block_count,
    split_blocks,
)
from archiver.codec.compression import BlockArena, DecompressionError
from archiver.codec.frame import Bytes, Longs
from archiver.codec.kernels.avro_decode import ALL_READ, BYTES_LEFT
from archiver.codec.kernels.headers import READABLE_TIMES
from archiver.codec.kernels.scan import (
    COUNTED,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    HEADERS,
    KEY_BYTES,
    LAST_OFFSET,
    NO_ROOM,
    OFFSETS_FALL,
    RAW_KEY_BYTES,
    ROWS,
    TOTALS_SIZE,
    VALUE_BYTES,
    Blob,
    scan_rows,
)
from archiver.codec.selection import Selection
from archiver.errors import CorruptSegmentError

# Uncompressed bytes of the blocks that become one batch. At 100 B a record 0.46 us each with 512 KiB, 0.42 with 1 MiB, 0.40 with 2,
# 0.48 with 4; at 800 B 1.65, 1.60, 1.76, 1.97: a larger batch leaves the cache before it is sent.
ARROW_BATCH_BYTES = 1024 * 1024
# Rows of one batch: more than our own blocks have in these bytes. Foreign blocks may expand to very many tiny records.
MOST_ARROW_ROWS = 256 * 1024
_MOST_ENDS: Final = 2**31 - 1  # the most that Arrow has in one array

_HEADER = pa.struct(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("rawKey", pa.binary()),
    ]
)
COLUMN_TYPES: Final = {
    "topic": pa.field("topic", pa.string(), nullable=False),
    "partition": pa.field("partition", pa.int32(), nullable=False),
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": pa.field("timestampType", pa.int32(), nullable=False),
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "headers": pa.field("headers", pa.list_(pa.field("element", _HEADER, nullable=False)), nullable=False),
    "timestampMs": pa.field("timestampMs", pa.int64(), nullable=False),
}
_PROBLEMS = PROBLEMS | {OFFSETS_FALL: "offsets do not rise", NO_ROOM: "fields larger than their block"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A step of a scan: the number of records so far, selected or not, and the selected records of some blocks."""

    counted: int
    last_offset: int
    batch: pa.RecordBatch


class Scanner:
    """Decodes objects of one partition into batches. It reuses its buffers: not safe for two threads at once."""

    def __init__(
        self, *, topic: str, partition: int, columns: Sequence[str], batch_bytes: int = ARROW_BATCH_BYTES
    ) -> None:
        self._topic = topic
        self._name = np.frombuffer(topic.encode("ascii"), np.uint8)
        self._partition = partition
        self._columns = tuple(columns)
        self._schema = pa.schema([COLUMN_TYPES[name] for name in columns])
        self._batch_bytes = batch_bytes
        self._arena = BlockArena(MOST_BLOCK_BYTES)
        self._constants = _Constants(topic, partition)

    def scan(self, content: memoryview, header: ContainerHeader, key: str, selection: Selection) -> Iterator[Scanned]:
        """Decode the selected records. Errors name the key and the block."""
        selected = np.array(
            [selection.first_offset, selection.last_offset, selection.from_ms, selection.until_ms, selection.has_times],
            np.int64,
        )
        schema = RECORD_SCHEMAS[header.schema]
        totals = 0, -1  # records counted, offset of the last
        for blocks in self._groups(content, header, key):
            for rows in self._filled(blocks, schema, selected, totals):
                counted, last_offset = totals = rows.met
                batch = rows.finish(self._schema, self._constants)
                yield Scanned(counted=counted, last_offset=last_offset, batch=batch)

    def _filled(
        self, blocks: Sequence[tuple[Block, int, int]], schema: RecordSchema, selected: Longs, met: tuple[int, int]
    ) -> Iterator["_Rows"]:
        """Decode a group of blocks: usually at once, in several parts if they have very many records."""
        left = sum(block.count for block, _, _ in blocks)
        rows = self._new_rows(left, blocks, met)
        for block, start, end in blocks:
            position, done = start, 0
            while True:
                count = min(block.count - done, rows.left)
                position = self._decode(rows, block, position, end, (done, count), schema, selected)
                done, left = done + count, left - count
                if done == block.count:
                    break
                yield rows
                rows = self._new_rows(left, blocks, rows.met)
        yield rows

    def _new_rows(self, count: int, blocks: Sequence[tuple[Block, int, int]], met: tuple[int, int]) -> "_Rows":
        return _Rows(self._columns, min(count, MOST_ARROW_ROWS), blocks[-1][2], met)

    def _groups(self, content: memoryview, header: ContainerHeader, key: str) -> Iterator[list[tuple[Block, int, int]]]:
        """Decompress blocks into the arena, in groups of about a batch's size. Each group reuses the arena."""
        group: list[tuple[Block, int, int]] = []
        schema = RECORD_SCHEMAS[header.schema]
        for block in split_blocks(content, header, key):
            if block.is_empty:
                continue
            try:
                start, end = self._arena.add(header.codec, block.payload)
            except DecompressionError as error:
                raise CorruptSegmentError(f"{block.where}: {error}") from error
            check_block_count(block.count, end - start, schema, self._topic, block.where)
            if not block.count and start == end:
                continue
            group.append((block, start, end))
            if end >= self._batch_bytes:
                yield group
                group = []
                self._arena.clear()
        if group:
            yield group
            self._arena.clear()

    def _decode(
        self,
        rows: "_Rows",
        block: Block,
        start: int,
        end: int,
        part: tuple[int, int],
        schema: RecordSchema,
        selected: Longs,
    ) -> int:
        """Decode a `part` of a block's records: (done, count to decode). Returns the begin of the next record."""
        done, count = part
        before = int(rows.totals[COUNTED])
        position, problem = scan_rows(
            self._arena.body,
            start,
            end,
            count,
            schema.nullable_value,
            schema.second_version,
            self._name,
            self._partition,
            selected,
            rows.room,
            rows.offsets,
            rows.milliseconds,
            rows.microseconds,
            rows.has_moment,
            rows.kinds,
            rows.keys,
            rows.values,
            rows.header_ends,
            rows.header_keys,
            rows.header_values,
            rows.raw_keys,
            rows.totals,
        )
        rows.left -= count
        if problem == ALL_READ and done + count == block.count and position != end:
            problem = BYTES_LEFT
        if problem != ALL_READ:
            at = done + int(rows.totals[COUNTED]) - before
            raise CorruptSegmentError(f"{block.where}, record {at}: {_PROBLEMS[problem]}")
        return int(position)


class _Rows:
    """The arrays of one batch while it fills. They have the maximum length: np.empty takes memory only for written pages."""

    def __init__(self, columns: Sequence[str], room: int, body_bytes: int, met: tuple[int, int]) -> None:
        def sized(column: str, size: int) -> int:
            return size if column in columns else 0

        # A header takes at least two bytes: an empty key and an empty value.
        headers = sized("headers", body_bytes // 2 + 1)
        self.room = self.left = room
        self.offsets = np.empty(sized("offset", room), np.int64)
        self.milliseconds = np.empty(sized("timestampMs", room), np.int64)
        self.microseconds = np.empty(sized("timestamp", room), np.int64)
        self.has_moment = np.empty(sized("timestamp", room), np.uint8)
        self.kinds = np.empty(sized("timestampType", room), np.int32)
        self.keys = _blob(sized("key", room), body_bytes)
        self.values = _blob(sized("value", room), body_bytes)
        self.header_ends = np.empty(sized("headers", room + 1), np.int32)
        self.header_ends[:1] = 0
        self.header_keys = _blob(headers, min(READABLE_TIMES * body_bytes, _MOST_ENDS))
        self.header_values = _blob(headers, body_bytes)
        self.raw_keys = _blob(headers, body_bytes)
        self.totals = np.zeros(TOTALS_SIZE, np.int64)
        self.totals[COUNTED], self.totals[LAST_OFFSET] = met

    @property
    def met(self) -> tuple[int, int]:
        """The number of the object's records so far, selected or not, and the last one's offset."""
        return int(self.totals[COUNTED]), int(self.totals[LAST_OFFSET])

    def finish(self, schema: pa.Schema, constants: "_Constants") -> pa.RecordBatch:
        """Wrap the arrays for Arrow, without a copy."""
        return pa.RecordBatch.from_arrays([self._array(name, constants) for name in schema.names], schema=schema)

    def _array(self, name: str, constants: "_Constants") -> pa.Array:
        count = int(self.totals[ROWS])
        field = COLUMN_TYPES[name]
        match name:
            case "topic":
                return constants.topics(count)
            case "partition":
                return constants.partitions(count)
            case "offset":
                return _fixed(field.type, count, self.offsets)
            case "timestamp":
                return _fixed(field.type, count, self.microseconds, self.has_moment)
            case "timestampMs":
                return _fixed(field.type, count, self.milliseconds)
            case "timestampType":
                return _fixed(field.type, count, self.kinds)
            case "key":
                return _binary(field.type, count, self.keys, int(self.totals[KEY_BYTES]))
            case "value":
                return _binary(field.type, count, self.values, int(self.totals[VALUE_BYTES]))
            case _:
                return self._headers(field.type, count)

    def _headers(self, list_type: pa.ListType, count: int) -> pa.Array:
        headers = int(self.totals[HEADERS])
        parts = [
            _binary(_HEADER.field("key").type, headers, self.header_keys, int(self.totals[HEADER_KEY_BYTES])),
            _binary(_HEADER.field("value").type, headers, self.header_values, int(self.totals[HEADER_VALUE_BYTES])),
            _binary(_HEADER.field("rawKey").type, headers, self.raw_keys, int(self.totals[RAW_KEY_BYTES])),
        ]
        elements = pa.StructArray.from_arrays(parts, fields=list(_HEADER))
        ends = pa.py_buffer(self.header_ends[: count + 1])
        return pa.Array.from_buffers(list_type, count, [None, ends], 0, children=[elements])


class _Constants:
    """Columns that hold one value in all rows: made once, as long as the longest batch so far."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    def topics(self, count: int) -> pa.Array:
        if len(self._topics) < count:
            self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)
        return self._topics.slice(0, count)

    def partitions(self, count: int) -> pa.Array:
        if len(self._partitions) < count:
            self._partitions = pa.repeat(pa.scalar(self._partition, pa.int32()), count)
        return self._partitions.slice(0, count)


def _blob(room: int, body_bytes: int) -> Blob:
    if not room:
        return np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.uint8)
    ends = np.empty(room + 1, np.int32)
    ends[0] = 0
    return ends, np.empty(room, np.uint8), np.empty(body_bytes, np.uint8)


def _validity(present: Bytes) -> tuple[pa.Buffer | None, int]:
    nulls = len(present) - int(np.count_nonzero(present))
    return (pa.py_buffer(np.packbits(present, bitorder="little")), nulls) if nulls else (None, 0)


def _fixed(
    kind: pa.DataType, count: int, content: "np.typing.NDArray[np.generic]", present: Bytes | None = None
) -> pa.Array:
    bitmap, nulls = (None, 0) if present is None else _validity(present[:count])
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(content[:count])], nulls)


def _binary(kind: pa.DataType, count: int, blob: Blob, used: int) -> pa.Array:
    ends, present, content = blob
    bitmap, nulls = _validity(present[:count])
    return pa.Array.from_buffers(
        kind, count, [bitmap, pa.py_buffer(ends[: count + 1]), pa.py_buffer(content[:used])], nulls
    )
