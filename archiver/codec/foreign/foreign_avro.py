"""Decodes Avro files of other tools to frames, and passes over blocks that are broken. Used by `archiver import avro`."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from archiver.codec.avro import (
    MOST_BLOCK_ROWS,
    PROBLEMS,
    SYNC_BYTES,
    Block,
    ContainerHeader,
    block_at,
    decode_block,
    decode_header,
    decode_payload,
)
from archiver.codec.foreign.damage import DamagedInput
from archiver.codec.frame import Bytes, Column, Frame
from archiver.codec.kernels.avro_decode import ALL_READ, BYTES_LEFT
from archiver.codec.kernels.foreign.foreign_avro import decode_keep_rows, unwrap_headers
from archiver.codec.kernels.varint import BROKEN, MAX_VARINT_BYTES
from archiver.codec.schemas import KEEP_RECORD, RECORD_V1, RECORD_V1_NULLABLE
from archiver.errors import CorruptSegmentError

_MOST_BLOCK_BYTES: Final = 256 * 1024 * 1024
_SMALLEST_KEEP_RECORD: Final = 7  # one byte for each field
_SEARCHED_BYTES: Final = 1024 * 1024


class AvroFile(NamedTuple):
    """An Avro file with the records of one partition."""

    content: Bytes
    name: str  # in errors
    topic: str
    partition: int
    release: Callable[[int], None] = lambda _: None  # called with the end of the bytes that are done


class RecordFormat(NamedTuple):
    """The Avro files of a tool: the schemas of its records, and how the records of a block become frames."""

    schemas: tuple[str, ...]
    decode: Callable[[Block, ContainerHeader, AvroFile], Iterator[Frame]]


def read_header(file: AvroFile, tool: RecordFormat) -> ContainerHeader:
    """Read the header of a file. Raises CorruptSegmentError, or FormatTooNewError for another schema."""
    return decode_header(file.content.data, file.name, tool.schemas)


def read_records(file: AvroFile, tool: RecordFormat) -> Iterator[Frame | DamagedInput]:
    """Yield the records of a file, and what of it could not be read. A broken block ends at the next sync marker."""
    header = read_header(file, tool)
    content = file.content.data
    position = header.size
    while position < len(content):
        try:
            block = block_at(content, position, header, file.name)
            if not block.is_empty:
                yield from tool.decode(block, header, file)
            position = block.end
            file.release(position)
        except CorruptSegmentError as error:
            end = _behind_sync(file.content, position, header.sync)
            yield DamagedInput(position, end, str(error))
            position = end


def _behind_sync(content: Bytes, position: int, sync: bytes) -> int:
    """Return the position behind the next sync marker; the end of the file if there is none."""
    while position < len(content):
        found = content[position : position + _SEARCHED_BYTES + SYNC_BYTES].tobytes().find(sync)
        if found >= 0:
            return position + found + SYNC_BYTES
        position += _SEARCHED_BYTES
    return len(content)


def trivadis_format(*, empty_is_null: bool) -> tuple[RecordFormat, Callable[[], int]]:
    """Return the format of TrivadisPF/kafka-backup, and a count of header values that are neither byte[] nor String."""
    left = 0

    def decode(block: Block, header: ContainerHeader, file: AvroFile) -> Iterator[Frame]:
        nonlocal left
        most = _MOST_BLOCK_BYTES
        for frame in decode_block(block, header, topic=file.topic, partition=file.partition, most_bytes=most):
            headers = np.empty((2, len(frame.header_body)), np.uint8)
            used, kept = unwrap_headers(frame.header_body, frame.table, headers[0], headers[1])
            if used == BROKEN:
                raise CorruptSegmentError(f"{block.where}: headers outside their block")
            left += int(kept)
            if empty_is_null:
                for column in (Column.KEY_LENGTH, Column.VALUE_LENGTH):
                    lengths = frame.column(column)
                    lengths[lengths == 0] = -1
            yield Frame(body=frame.body, header_body=headers[0, :used], table=frame.table)

    return RecordFormat((RECORD_V1_NULLABLE, RECORD_V1), decode), lambda: left


def _decode_keep(block: Block, header: ContainerHeader, file: AvroFile) -> Iterator[Frame]:
    body = decode_payload(block, header.codec, _MOST_BLOCK_BYTES)
    if block.count > len(body) // (_SMALLEST_KEEP_RECORD + len(file.topic)):
        raise CorruptSegmentError(f"{block.where}: {block.count} records cannot lie in {len(body)} bytes")
    topic = np.frombuffer(file.topic.encode("ascii"), np.uint8)
    done, position = 0, 0
    while done < block.count:
        rows = min(block.count - done, MOST_BLOCK_ROWS)
        table = np.empty((len(Column), rows), np.int64)
        headers = np.empty(len(body) - position + 2 * MAX_VARINT_BYTES, np.uint8)
        read, position, used, why = decode_keep_rows(body, position, rows, topic, file.partition, table, headers)
        done += int(read)
        if why == ALL_READ and done == block.count and position != len(body):
            why = BYTES_LEFT
        if why != ALL_READ:
            raise CorruptSegmentError(f"{block.where}, record {done}: {PROBLEMS[why]}")
        yield Frame(body=body, header_body=headers[:used], table=table)


KEEP_FORMAT: Final = RecordFormat((KEEP_RECORD,), _decode_keep)
