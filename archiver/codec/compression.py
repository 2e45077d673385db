"""Compression by name, for record batches (Kafka's codecs) and for Avro blocks (Avro's): always with a cap on what comes out."""

import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum, StrEnum
from typing import Any

import cramjam
import numpy as np

from archiver.frame import Bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# (compressed, room to decompress into) -> bytes written
Inflate = Callable[[Any, Any], int]

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16  # magic, version, compatible version
_FIRST_GUESS = 8  # times larger than compressed: what is not needed is never touched, and too small is done twice
_SMALLEST_ARENA = 64 * 1024
# Magic; version 1, independent blocks, no checksums (a batch has its own); blocks of 256 KiB; checksum of the two before.
# Smaller blocks, such as Kafka's own producer writes, cost a tenth more time and are larger.
_LZ4_HEADER = bytes.fromhex("04224d18 60 50 fb")
_LZ4_BLOCK_BYTES = 256 * 1024
_LZ4_UNCOMPRESSED = 0x8000_0000
_LZ4_END = bytes(4)
LARGEST_KEPT = 32 * 1024 * 1024  # of buffers that are used again: a large payload must not cost memory for ever


class BatchCodec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BlockCodec(StrEnum):
    """Avro's names."""

    NULL = "null"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    ZSTANDARD = "zstandard"


class DecompressionError(ValueError):
    """The bytes are not what their codec writes, or more comes out than is allowed."""


class Arena:
    """A buffer that decompressed payloads are laid into, one behind the other, up to a cap.

    One that is left from an earlier arena may be used again; what was in it is gone then.
    """

    def __init__(self, compressed_bytes: int, most_bytes: int, used_buffer: Bytes | None = None) -> None:
        wanted = min(max(compressed_bytes * _FIRST_GUESS, _SMALLEST_ARENA), most_bytes)
        enough = used_buffer is not None and wanted <= len(used_buffer) <= most_bytes
        self._most = most_bytes
        self._buffer = used_buffer if used_buffer is not None and enough else np.empty(wanted, np.uint8)
        self._used = 0

    @property
    def buffer(self) -> Bytes:
        return self._buffer

    @property
    def body(self) -> Bytes:
        return self._buffer[: self._used]

    def add(self, codec: BatchCodec, payload: Bytes) -> tuple[int, int]:
        """Decompress behind what is there. Returns the range that it takes."""
        start = self._used
        for piece, inflate in _pieces(codec, payload):
            self._add_piece(piece, inflate)
        return start, self._used

    def _add_piece(self, piece: Bytes, inflate: Inflate) -> None:
        while True:
            try:
                self._used += inflate(piece, self._buffer[self._used :])
            except (cramjam.DecompressionError, ValueError) as error:
                # Too small and broken are told apart by growing: their texts belong to the library.
                if len(self._buffer) >= self._most:
                    raise DecompressionError(f"not readable within {self._most} bytes: {error}") from error
                self._grow()
            else:
                return

    def _grow(self) -> None:
        larger = np.empty(min(2 * len(self._buffer), self._most), np.uint8)
        larger[: self._used] = self._buffer[: self._used]
        self._buffer = larger


def _pieces(codec: BatchCodec, payload: Bytes) -> Iterator[tuple[Bytes, Inflate]]:
    if codec is not BatchCodec.SNAPPY:
        yield payload, _INFLATE[codec]
    elif payload[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:  # librdkafka and others write it raw
        yield payload, cramjam.snappy.decompress_raw_into
    else:
        for piece in _xerial_pieces(payload):
            yield piece, cramjam.snappy.decompress_raw_into


def _xerial_pieces(payload: Bytes) -> Iterator[Bytes]:
    position = _XERIAL_HEADER_SIZE
    while position < len(payload):
        size_bytes = payload[position : position + 4].tobytes()
        size = struct.unpack(">I", size_bytes)[0] if len(size_bytes) == 4 else -1
        position += 4
        if not 0 <= size <= len(payload) - position:
            raise DecompressionError(f"snappy piece of {size} bytes at {position} of {len(payload)}")
        yield payload[position : position + size]
        position += size


def _copy(source: Bytes, target: Bytes) -> int:
    if len(source) > len(target):
        raise ValueError("the arena is too small")
    target[: len(source)] = source
    return len(source)


_INFLATE: dict[BatchCodec, Inflate] = {
    BatchCodec.NONE: _copy,
    BatchCodec.GZIP: cramjam.gzip.decompress_into,
    BatchCodec.LZ4: cramjam.lz4.decompress_into,
    BatchCodec.ZSTD: cramjam.zstd.decompress_into,
}


def compress_payload(codec: BatchCodec, payload: Bytes, level: int) -> bytes:
    """Compress the records of a batch that we write: lz4 (which has no levels), zstd, or not at all."""
    match codec:
        case BatchCodec.NONE:
            return payload.tobytes()
        case BatchCodec.LZ4:
            return _lz4_frame(payload)
        case BatchCodec.ZSTD:
            return _zstd_frame(payload, level)
        case BatchCodec.GZIP | BatchCodec.SNAPPY:
            raise ValueError(f"batches are not written with {codec.name}")


def _lz4_frame(payload: Bytes) -> bytes:
    """Write a frame of independent blocks: Kafka refuses those that depend on each other, which cramjam makes."""
    pieces: list[Any] = [_LZ4_HEADER]
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        block = payload[start : start + _LZ4_BLOCK_BYTES].data
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            pieces += [struct.pack("<I", len(packed)), packed]
        else:
            pieces += [struct.pack("<I", len(block) | _LZ4_UNCOMPRESSED), block]
    return b"".join([*pieces, _LZ4_END])


def compress_block(codec: BlockCodec, block: Bytes, level: int) -> bytes:
    """Compress an Avro block as the Avro specification has it."""
    match codec:
        case BlockCodec.NULL:
            return block.tobytes()
        case BlockCodec.DEFLATE:
            return zlib.compress(block.data, level, wbits=-15)
        case BlockCodec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(block.data)) + struct.pack(">I", zlib.crc32(block.data))
        case BlockCodec.ZSTANDARD:
            return _zstd_frame(block, level)


_of_thread = threading.local()


def _zstd_frame(content: Bytes, level: int) -> bytes:
    """With one compressor a thread, whose tables are used again: a tenth faster than a new one for each block."""
    made: dict[int, zstd.ZstdCompressor] = vars(_of_thread).setdefault("compressors", {})
    compressor = made.get(level) or made.setdefault(level, zstd.ZstdCompressor(level))
    return compressor.compress(content.data, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress_block(codec: BlockCodec, block: memoryview, most_bytes: int) -> Bytes:
    """Undo compress_block; at most `most_bytes` may come out."""
    source = np.frombuffer(block, np.uint8)
    match codec:
        case BlockCodec.NULL:
            return source
        case BlockCodec.DEFLATE:
            return _inflate_deflate(block, most_bytes)
        case BlockCodec.SNAPPY:
            return _inflate_snappy(source, most_bytes)
        case BlockCodec.ZSTANDARD:
            arena = Arena(len(source), most_bytes)
            arena.add(BatchCodec.ZSTD, source)
            return arena.body


class BlockArena:
    """Decompresses Avro blocks one behind the other into a buffer that is used again and again."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._arena = Arena(0, most_bytes)

    @property
    def body(self) -> Bytes:
        return self._arena.body

    def add(self, codec: BlockCodec, payload: memoryview) -> tuple[int, int]:
        """Undo compress_block behind what is there. Returns the range that it takes."""
        if codec is BlockCodec.ZSTANDARD:
            return self._arena.add(BatchCodec.ZSTD, np.frombuffer(payload, np.uint8))
        return self._arena.add(BatchCodec.NONE, decompress_block(codec, payload, self._most))

    def clear(self) -> None:
        """Use the buffer anew, unless one large block made it larger than is good to keep."""
        left = self._arena.buffer
        self._arena = Arena(0, self._most, left if len(left) <= LARGEST_KEPT else None)


def _inflate_deflate(block: memoryview, most_bytes: int) -> Bytes:
    inflater = zlib.decompressobj(wbits=-15)
    try:
        body = inflater.decompress(block, most_bytes)
    except zlib.error as error:
        raise DecompressionError(str(error)) from error
    if not inflater.eof:
        raise DecompressionError(f"cut, or more than {most_bytes} bytes")
    return np.frombuffer(body, np.uint8)


def _inflate_snappy(source: Bytes, most_bytes: int) -> Bytes:
    if len(source) < 4:
        raise DecompressionError("cut")
    arena = Arena(len(source), most_bytes)
    arena.add(BatchCodec.SNAPPY, source[:-4])
    if zlib.crc32(arena.body.data) != int.from_bytes(source[-4:].tobytes(), "big"):
        raise DecompressionError("its CRC does not match")
    return arena.body
