"""Decodes segments of osodevops/kafka-backup to frames. Used by `archiver import osodevops`."""

import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import cramjam
import numpy as np
import zstandard

from archiver.codec.frame import Bytes, Column, Frame
from archiver.codec.kernels.foreign import osodevops as kernels

_MAGIC: Final = b"KBAK"
_END: Final = b"BKAE"
_HEADER_BYTES: Final = 32
_FOOTER_BYTES: Final = 8
_VERSION: Final = 1
_NONE, _ZSTD, _LZ4 = range(3)
_SIZE_BYTES: Final = 4  # before an lz4 block: what it expands to
_LZ4_MOST: Final = 255  # the most that a byte of an lz4 block expands to
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CHUNK_ROWS: Final = 32 * 1024
_MOST_RECORD_BYTES: Final = 256 * 1024 * 1024
_MOST_LZ4_BYTES: Final = 256 * 1024 * 1024  # one block is decompressed at once

_PROBLEMS: Final = {
    kernels.LENGTH_WRONG: "a record's length cannot be",
    kernels.FIELDS_BROKEN: "key, value and headers do not fill a record exactly",
    kernels.OFFSET_ORDER: "offsets do not rise",
    kernels.HEADER_ROOM: "headers larger than their record",
}

_Read = Callable[[Bytes], int]  # fills the beginning of a buffer; 0: nothing is left


class BrokenSegmentError(ValueError):
    """A segment that is not whole, or that no version of the tool writes."""


class SegmentHead(NamedTuple):
    """The header of a segment."""

    compression: int
    records: int
    first: int
    last: int


def read_head(content: Bytes) -> SegmentHead:
    """Check a segment's frame and checksum. Raises BrokenSegmentError."""
    if len(content) < _HEADER_BYTES + _FOOTER_BYTES:
        raise BrokenSegmentError(f"{len(content)} bytes are no segment")
    head, end = content[:_HEADER_BYTES].tobytes(), len(content) - _FOOTER_BYTES
    if head[:4] != _MAGIC:
        raise BrokenSegmentError("does not begin as a segment (KBAK)")
    if head[4] != _VERSION or head[5] not in {_NONE, _ZSTD, _LZ4}:
        raise BrokenSegmentError(f"a segment of version {head[4]} with compression {head[5]}, which is not known")
    foot = content[end:].tobytes()
    if foot[4:] != _END:
        raise BrokenSegmentError("does not end as a segment (BKAE): it was cut")
    if zlib.crc32(content[:end].data) != int.from_bytes(foot[:4], "little"):
        raise BrokenSegmentError("its CRC does not match its bytes")
    first, last = (int.from_bytes(head[at : at + 8], "little", signed=True) for at in (16, 24))
    return SegmentHead(head[5], int.from_bytes(head[8:16], "little"), first, last)


def read_segment(content: Bytes) -> Iterator[Frame]:
    """Yield the records of a segment. A frame is valid until the next one is asked for. Raises BrokenSegmentError, perhaps late."""
    head = read_head(content)
    payload = content[_HEADER_BYTES : len(content) - _FOOTER_BYTES]
    try:
        yield from _checked(head, _frames(_reader(head.compression, payload)))
    except (zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise BrokenSegmentError(f"cannot be decompressed: {error}") from error


def _checked(head: SegmentHead, frames: Iterator[Frame]) -> Iterator[Frame]:
    """Pass frames on as long as they have the records that the header tells."""
    records, first, last = 0, head.first, head.first
    for frame in frames:
        offsets = frame.column(Column.OFFSET)
        if not records:
            first = int(offsets[0])
        records, last = records + len(frame), int(offsets[-1])
        if first != head.first or last > head.last or records > head.records:
            raise BrokenSegmentError("other records than its header tells")
        yield frame
    if records != head.records or (records and last != head.last):
        raise BrokenSegmentError(f"has {records} of {head.records} records")


def _reader(compression: int, payload: Bytes) -> _Read:
    if compression == _ZSTD:
        stream = zstandard.ZstdDecompressor().stream_reader(payload.data)
        return lambda target: stream.readinto(target.data)
    return _copier(_inflate_lz4(payload) if compression == _LZ4 else payload)


def _inflate_lz4(payload: Bytes) -> Bytes:
    size = int.from_bytes(payload[:_SIZE_BYTES].tobytes(), "little")
    block = payload[_SIZE_BYTES:]
    if len(payload) < _SIZE_BYTES or size > min(_MOST_LZ4_BYTES, _LZ4_MOST * len(block)):
        raise BrokenSegmentError(
            f"an lz4 block of {len(block)} bytes that would expand to {size}; {_MOST_LZ4_BYTES} is the most"
        )
    body = np.empty(size, np.uint8)
    if cramjam.lz4.decompress_block_into(block.data, body.data, size) != size:
        raise BrokenSegmentError("an lz4 block of another size than it tells")
    return body


def _copier(body: Bytes) -> _Read:
    position = 0

    def read(target: Bytes) -> int:
        nonlocal position
        piece = body[position : position + len(target)]
        target[: len(piece)] = piece
        position += len(piece)
        return len(piece)

    return read


def _frames(read: _Read) -> Iterator[Frame]:
    buffer = np.empty(_CHUNK_BYTES, np.uint8)
    headers = np.empty(0, np.uint8)
    table = np.empty((len(Column), _CHUNK_ROWS), np.int64)
    used, previous, is_over = 0, -1, False
    while not is_over:
        got = read(buffer[used:]) if used < len(buffer) else 0
        is_over, used = used < len(buffer) and not got, used + got
        if not is_over and used < len(buffer):
            continue  # a reader may give less than fits
        if len(headers) < 2 * len(buffer):
            headers = np.empty(2 * len(buffer), np.uint8)  # a header takes no more than twice its bytes
        body, start, why, needed = buffer[:used], 0, kernels.TABLE_FULL, 0
        while why == kernels.TABLE_FULL:
            rows, start, header_bytes, why, needed = kernels.index_records(body, start, previous, table, headers)
            if rows:
                previous = int(table[Column.OFFSET, rows - 1])
                frame = Frame(body=body, header_body=headers[:header_bytes], table=table)
                yield frame if rows == len(frame) else frame.rows(0, rows)
        if why in _PROBLEMS:
            raise BrokenSegmentError(f"behind offset {previous}: {_PROBLEMS[why]}")
        if needed > _MOST_RECORD_BYTES or (is_over and used > start):
            raise BrokenSegmentError(f"behind offset {previous}: a record of {needed} bytes, which is cut or too large")
        rest = buffer[start:used].copy()
        if needed > len(buffer):
            buffer = np.empty(needed, np.uint8)
        buffer[: len(rest)] = rest
        used = len(rest)
