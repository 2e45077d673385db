"""Bombs: batches that any producer may send, and that are far larger when decompressed, or have far more parts, than was sent."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import zstandard

from tests.support.records import NOW_MS, Rec
from tests.support.reference_batch import Oddities, batch_of, encode, varint

_CHUNK: Final = 1 << 20


def headers(count: int, header: bytes) -> bytes:
    """Return one record without key and value, with so many equal headers."""
    return _one_record([b"\1\1", varint(count)], _repeated(header, count), count * len(header))


def distinct_headers(count: int, size: int) -> bytes:
    """Return one record whose headers have different keys, of so many bytes, and empty values."""
    spelled = b"".join(varint(size) + b"%0*x" % (size, number) + b"\0" for number in range(count))
    return _one_record([b"\1\1", varint(count)], [spelled], len(spelled))


def one_header(key: bytes, value_bytes: int) -> bytes:
    """Return one record with one header, whose key or value is large."""
    head = varint(len(key)) + key + varint(value_bytes)
    return _one_record([b"\1\1", varint(1)], [head, *_repeated(b"\0", value_bytes)], len(head) + value_bytes)


def value(size: int, pattern: bytes = b"\0") -> bytes:
    return _one_record([b"\1", varint(size)], [*_repeated(pattern, size // len(pattern)), b"\0"], size + 1)


def key(size: int) -> bytes:
    return _one_record([varint(size)], [*_repeated(b"\0", size), b"\1\0"], size + 2)


def tiny_records(count: int) -> bytes:
    """Return a batch of as many records of the smallest kind."""
    last = Rec(count - 1, NOW_MS, 0, None, None)
    return _packed([Rec(0, NOW_MS, 0, None, None), last], _tiny(count), count)


def _tiny(count: int) -> Iterator[bytes]:
    for start in range(0, count, 10_000):
        bodies = [b"\0\0" + varint(offset) + b"\1\1\0" for offset in range(start, min(start + 10_000, count))]
        yield b"".join(varint(len(body)) + body for body in bodies)


def _one_record(head: Iterable[bytes], pieces: Iterable[bytes], size: int) -> bytes:
    start = b"\0" + varint(0) + varint(0) + b"".join(head)
    return _packed([Rec(0, NOW_MS, 0, None, None)], [varint(len(start) + size) + start, *pieces], 1)


def _packed(ends: list[Rec], pieces: Iterable[bytes], count: int) -> bytes:
    # A long window: what repeats far away takes almost no bytes, unlike in our own compression.
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=24, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    payload = b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])
    return encode(batch_of(ends, codec="zstd"), Oddities(payload=payload, count=count))


def _repeated(pattern: bytes, count: int) -> Iterator[bytes]:
    many = pattern * (_CHUNK // len(pattern))
    times = _CHUNK // len(pattern)
    for _ in range(count // times):
        yield many
    yield pattern * (count % times)


# By their size in megabytes, decompressed.
BOMBS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "empty headers": lambda size: headers(size * 500_000, b"\0\0"),
    "headers that are null": lambda size: headers(size * 333_333, b"\2k\1"),
    "keys that are not UTF-8": lambda size: headers(size * 333_333, b"\2\xff\1"),
    "keys that differ": lambda size: distinct_headers(size * 100_000, 8),
    "a header whose key is not UTF-8": lambda size: one_header(b"\xff" * (size * 1_000_000), 0),
    "a header's value": lambda size: one_header(b"k", size * 1_000_000),
    "a value": lambda size: value(size * 1_000_000),
    "a key": lambda size: key(size * 1_000_000),
    "tiny records": lambda size: tiny_records(size * 100_000),
}
