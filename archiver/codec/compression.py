"""Compresses and decompresses record batches (Kafka's codecs) and Avro blocks (Avro's); decompression always has a limit."""

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum, StrEnum
from typing import Any

import cramjam
import numpy as np
import zstandard

from archiver.codec.frame import Bytes
from archiver.codec.kernels.varint import encode_unsigned

# (compressed, room to decompress into) -> bytes written
Inflate = Callable[[Any, Any], int]
Piece = tuple[Bytes, Inflate]

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16  # magic, version, compatible version
_FIRST_GUESS = (
    8  # times the compressed size: memory that is not needed is never touched; with too little, the work is done twice
)
_SMALLEST_ARENA = 64 * 1024
# Magic; version 1, independent blocks, no checksums (a batch has its own); blocks of 256 KiB; checksum of the two before.
# Smaller blocks, such as those of Kafka's own producer, take a tenth more time, and the result is larger.
_LZ4_HEADER = np.frombuffer(bytes.fromhex("04224d18 60 50 fb"), np.uint8)
_LZ4_BLOCK_BYTES = 256 * 1024
_LZ4_MARK = struct.Struct("<I")  # the size of a block, written before it
_LZ4_UNCOMPRESSED = 0x8000_0000
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_HEADER_SIZE = 7  # magic, flags, largest block, checksum; without the size of the content
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x20, 0x10, 0x08, 0x01
_LZ4_END = 0
_ZSTD_BLOCK_HEADER = 3
_ZSTD_CHECKSUM = 4
# Above this size level 1 has twice the window, which does not fit a core's cache: with the smaller window a block of 512 KiB
# takes a tenth less time, and is some thousandths larger (docs/decisions/0004).
_LARGE_BYTES = 256 * 1024
_LARGE_AT_LEVEL_1 = zstandard.ZstdCompressionParameters.from_level(1, window_log=18)
_USUAL_BLOCK_BYTES = (
    512 * 1024
)  # upper bound for a level's tables: tables for blocks of 256 MiB would take as much memory and more
LARGEST_KEPT = 32 * 1024 * 1024  # of a reused buffer: a large payload must not cost memory until the end


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
    """The bytes are invalid in their codec, or decompress to more than is allowed."""


class ExpandsError(DecompressionError):
    """The bytes decompress to more than is allowed, or are corrupt: the codecs do not distinguish the two."""


class Arena:
    """A buffer into which payloads are decompressed, one behind the other, up to a limit.

    The buffer of an earlier arena may be reused; its content is overwritten.
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
        """Decompress a payload behind the others. Returns its range."""
        return self.add_pieces(_pieces(codec, payload))

    def add_pieces(self, pieces: Iterable[Piece]) -> tuple[int, int]:
        """Decompress the pieces of a payload behind the others. Returns their range."""
        start = self._used
        for piece, inflate in pieces:
            self._add_piece(piece, inflate)
        return start, self._used

    def _add_piece(self, piece: Bytes, inflate: Inflate) -> None:
        while True:
            try:
                self._used += inflate(piece, self._buffer[self._used :])
            except (cramjam.DecompressionError, zstandard.ZstdError, ValueError) as error:
                # The library does not distinguish "too small" from "corrupt": grow the buffer and retry.
                if len(self._buffer) >= self._most:
                    raise ExpandsError(
                        f"not readable within {self._most} bytes: it expands to more, or is broken ({error})"
                    ) from error
                self._grow()
            else:
                return

    def _grow(self) -> None:
        larger = np.empty(min(2 * len(self._buffer), self._most), np.uint8)
        larger[: self._used] = self._buffer[: self._used]
        self._buffer = larger


def _pieces(codec: BatchCodec, payload: Bytes) -> Iterator[Piece]:
    if codec is not BatchCodec.SNAPPY:
        yield payload, _INFLATE[codec]
    elif (
        payload[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC
    ):  # librdkafka and others write raw snappy, without the xerial frame
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


def old_lz4_pieces(payload: Bytes) -> Iterator[Piece]:
    """Return the blocks of an lz4 frame in a message v0, whose header has a wrong checksum (KAFKA-3160)."""
    head = payload[:_LZ4_HEADER_SIZE].tobytes()
    if len(head) < _LZ4_HEADER_SIZE or head[:4] != _LZ4_MAGIC or head[4] >> 6 != 1:
        raise DecompressionError("not an lz4 frame of version 1")
    flags = head[4]
    if not flags & _LZ4_INDEPENDENT or flags & _LZ4_DICTIONARY:
        raise DecompressionError("lz4 blocks that need others, or a dictionary, which Kafka does not write")
    position = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    while True:
        mark = int.from_bytes(payload[position : position + _LZ4_MARK.size].tobytes(), "little")
        position += _LZ4_MARK.size
        size = mark & ~_LZ4_UNCOMPRESSED
        if position > len(payload) or size > len(payload) - position:
            raise DecompressionError(f"lz4 block of {size} bytes at {position} of {len(payload)}")
        if not size:
            return
        block = payload[position : position + size]
        yield block, _copy if mark & _LZ4_UNCOMPRESSED else _inflate_lz4_block
        position += size + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)


def _inflate_lz4_block(source: Bytes, target: Bytes) -> int:
    # Without a size, cramjam takes the first four bytes for one whenever they are small enough.
    return cramjam.lz4.decompress_block_into(source.data, target.data, len(target))


def _copy(source: Bytes, target: Bytes) -> int:
    if len(source) > len(target):
        raise ValueError("the arena is too small")
    target[: len(source)] = source
    return len(source)


class _Zstd(threading.local):
    """The compressors of one thread. Their tables are reused: a tenth faster than new ones for each block."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self._compressors: dict[tuple[int, bool], zstandard.ZstdCompressor] = {}

    def compress(self, content: Bytes, level: int) -> bytes:
        kind = level, level == 1 and len(content) > _LARGE_BYTES
        if kind not in self._compressors:
            self._compressors[kind] = _compressor(*kind)
        return self._compressors[kind].compress(content.data)


def _compressor(level: int, is_large_at_level_1: bool) -> zstandard.ZstdCompressor:
    if is_large_at_level_1:
        return zstandard.ZstdCompressor(compression_params=_LARGE_AT_LEVEL_1)
    return zstandard.ZstdCompressor(level=level)


_zstd = _Zstd()


def _inflate_zstd(source: Bytes, target: Bytes) -> int:
    """Decode one whole frame in place. Pass anything else to cramjam, which decodes into a window first, and raises errors."""
    size = _size_of_only_frame(source.data)
    if size is not None:
        if size > len(target):
            raise ValueError(f"{size} bytes do not fit into {len(target)}")
        with _zstd.decompressor.stream_reader(source.data) as reader:
            if reader.readinto(target[:size].data) == size:
                return size
    return cramjam.zstd.decompress_into(source.data, target.data)


def _size_of_only_frame(source: memoryview) -> int | None:
    """Return the decoded size of a payload that is one whole zstd frame with a size; None for any other.

    The decoder accepts a truncated frame, and keeps a window for input in parts.
    """
    try:
        frame = zstandard.get_frame_parameters(source)
        position = zstandard.frame_header_size(source)
    except zstandard.ZstdError:
        return None
    is_last = False
    while not is_last and position + _ZSTD_BLOCK_HEADER <= len(source):
        head = int.from_bytes(source[position : position + _ZSTD_BLOCK_HEADER], "little")
        is_last = bool(head & 1)
        is_repeated_byte = head >> 1 & 3 == 1
        position += _ZSTD_BLOCK_HEADER + (1 if is_repeated_byte else head >> 3)
    end = position + (_ZSTD_CHECKSUM if frame.has_checksum else 0)
    is_whole = is_last and end == len(source)
    return frame.content_size if is_whole and frame.content_size != zstandard.CONTENTSIZE_UNKNOWN else None


_INFLATE: dict[BatchCodec, Inflate] = {
    BatchCodec.NONE: _copy,
    BatchCodec.GZIP: cramjam.gzip.decompress_into,
    BatchCodec.LZ4: cramjam.lz4.decompress_into,
    BatchCodec.ZSTD: _inflate_zstd,
}


class PayloadCompressor:
    """Compresses the records of a batch piece by piece, as they come: lz4 (which has no levels), or not at all.

    The payload begins with `lead` bytes for the batch's header, so that nothing has to be copied. Up to `expected` bytes it
    needs no new memory. The blocks of a frame are independent: Kafka refuses blocks that depend on each other, which cramjam
    makes.
    """

    def __init__(self, codec: BatchCodec, *, lead: int, expected: int) -> None:
        if codec not in {BatchCodec.NONE, BatchCodec.LZ4}:
            raise ValueError(f"batches are not written with {codec.name}")
        self._is_lz4 = codec is BatchCodec.LZ4
        self._lead = lead
        self._expected = expected
        self._made = np.empty(0, np.uint8)
        self._used = 0

    def room_within(self, most_bytes: int) -> int:
        """Return how many bytes may still be added so that the payload stays within `most_bytes`, even uncompressed."""
        left = most_bytes - max(self._used, self._lead + len(_LZ4_HEADER))
        return left - _LZ4_MARK.size * (2 + left // _LZ4_BLOCK_BYTES)

    def add(self, piece: Bytes) -> None:
        """Compress more bytes behind the earlier ones."""
        starts = range(0, len(piece), _LZ4_BLOCK_BYTES)
        # Trying to compress takes a 255th more room where it fails; such a block is stored uncompressed.
        self._make_room(len(piece) + len(piece) // 255 + 32 * (len(starts) + 1))
        if not self._used:
            self._used = self._lead + (_copy(_LZ4_HEADER, self._made[self._lead :]) if self._is_lz4 else 0)
        if not self._is_lz4:
            self._used += _copy(piece, self._made[self._used :])
            return
        for start in starts:
            block = piece[start : start + _LZ4_BLOCK_BYTES]
            target = self._made[self._used + _LZ4_MARK.size :]
            size = mark = cramjam.lz4.compress_block_into(block.data, target.data, store_size=False)
            if size >= len(block):
                size = _copy(block, target)
                mark = size | _LZ4_UNCOMPRESSED
            _LZ4_MARK.pack_into(self._made.data, self._used, mark)
            self._used += _LZ4_MARK.size + size

    def _make_room(self, size: int) -> None:
        needed = max(self._used, self._lead) + size
        if needed > len(self._made):
            larger = np.empty(max(needed, self._expected), np.uint8)
            larger[: self._used] = self._made[: self._used]
            self._made = larger

    def finish(self) -> Bytes:
        """Return the whole payload, of at least one piece, and begin a new one."""
        if self._is_lz4:
            _LZ4_MARK.pack_into(self._made.data, self._used, _LZ4_END)
            self._used += _LZ4_MARK.size
        content = self._made[: self._used]
        self._made = np.empty(0, np.uint8)
        self._used = 0
        return content


def compress_block(codec: BlockCodec, block: Bytes, level: int) -> bytes:
    """Compress an Avro block by the Avro specification."""
    match codec:
        case BlockCodec.NULL:
            return block.tobytes()
        case BlockCodec.DEFLATE:
            return zlib.compress(block.data, level, wbits=-15)
        case BlockCodec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(block.data)) + struct.pack(">I", zlib.crc32(block.data))
        case BlockCodec.ZSTANDARD:
            return _zstd.compress(block, level)


def compress_pieces(codec: BlockCodec, pieces: Iterable[bytes | memoryview], size: int, level: int) -> Iterator[bytes]:
    """Compress an Avro block that comes in pieces, `size` bytes in all, in no more memory than a block of usual size."""
    match codec:
        case BlockCodec.NULL:
            yield from (bytes(piece) for piece in pieces)
        case BlockCodec.DEFLATE:
            deflater = zlib.compressobj(level, wbits=-15)
            yield from (deflater.compress(piece) for piece in pieces)
            yield deflater.flush()
        case BlockCodec.SNAPPY:
            yield from _snappy_pieces(pieces, size)
        case BlockCodec.ZSTANDARD:
            parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=_USUAL_BLOCK_BYTES)
            packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=size)
            yield from (packer.compress(piece) for piece in pieces)
            yield packer.flush()


def _snappy_pieces(pieces: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Compress part by part: in snappy the compressed parts may follow each other, behind the size of all."""
    yield encode_unsigned(size)
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
        packed = bytes(cramjam.snappy.compress_raw(piece))
        yield packed[len(encode_unsigned(len(piece))) :]
    yield struct.pack(">I", checksum)


def decompress_block(codec: BlockCodec, block: memoryview, most_bytes: int) -> Bytes:
    """Decompress an Avro block, to at most `most_bytes`."""
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
    """Decompresses Avro blocks one behind the other into a reused buffer."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._arena = Arena(0, most_bytes)

    @property
    def body(self) -> Bytes:
        return self._arena.body

    def add(self, codec: BlockCodec, payload: memoryview) -> tuple[int, int]:
        """Decompress a block behind the others. Returns its range."""
        if codec is BlockCodec.ZSTANDARD:
            return self._arena.add(BatchCodec.ZSTD, np.frombuffer(payload, np.uint8))
        return self._arena.add(BatchCodec.NONE, decompress_block(codec, payload, self._most))

    def clear(self) -> None:
        """Empty the arena. A buffer that a large block made larger than LARGEST_KEPT is freed."""
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
