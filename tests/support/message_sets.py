"""Message sets v0 and v1 in plain Python: their maker, and a slow and obvious reader. Shares nothing with `archiver.codec`."""

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import cramjam

from tests.support import reference_batch as rb
from tests.support.records import Rec

TIME = 1_600_000_000_000
GZIP, SNAPPY, LZ4 = 1, 2, 3
APPEND_TIME = 0x08
_CODECS = 0x07
_HEAD = struct.Struct(">qiIbb")  # offset, length, CRC, magic, attributes
_CRC_END = 16
_LENGTH_END = 12


def message(
    offset: int, value: bytes | None, key: bytes | None = None, *, magic: int = 1, attributes: int = 0, time: int = TIME
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def sealed(content: bytes) -> bytes:
    """With the CRC that fits the bytes."""
    return content[:12] + struct.pack(">I", zlib.crc32(content[_CRC_END:])) + content[_CRC_END:]


def fitted(content: bytes) -> bytes:
    """With the length and the CRC that fit the bytes."""
    return sealed(content[:8] + struct.pack(">i", len(content) - _LENGTH_END) + content[_LENGTH_END:])


def raw_snappy(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


def packed(inner: bytes, codec: int, magic: int, *, xerial: bool = False) -> bytes:
    """A compressed set, as that format has it. Any other codec than Kafka's three: as it is."""
    if codec == GZIP:
        return gzip.compress(inner, mtime=0)
    if codec == SNAPPY:
        return rb.compress("snappy", inner) if xerial else raw_snappy(inner)
    if codec == LZ4:
        frame = bytearray(rb.compress("lz4", inner))
        frame[6] ^= 0 if magic else 0x5A  # KAFKA-3160
        return bytes(frame)
    return inner


def wrapper(
    offset: int, inner: bytes, *, magic: int = 1, attributes: int = SNAPPY, time: int = TIME, xerial: bool = False
) -> bytes:
    """A message whose value is a compressed set: raw snappy, unless `attributes` names another codec."""
    content = packed(inner, attributes & _CODECS, magic, xerial=xerial)
    return message(offset, content, magic=magic, attributes=attributes, time=time)


# --- reading -------------------------------------------------------------------------------------------------------


@dataclass
class Read:
    """What the messages hold."""

    records: list[Rec] = field(default_factory=list)
    wrong_inside: int = 0
    cut_sets: int = 0


def read_message(content: bytes) -> Read:
    """The records of one message and of the set inside. Raises BrokenBatchError if it is not valid."""
    offset, _, crc, magic, attributes = _HEAD.unpack_from(content)
    if crc != zlib.crc32(content[_CRC_END:]):
        raise rb.BrokenBatchError("CRC")
    found = Read()
    outer = _parsed(content, offset, attributes)
    codec = attributes & _CODECS
    if not codec:
        found.records.append(outer)
        return found
    if outer.value is None:
        raise rb.BrokenBatchError("no value")
    inner, found.cut_sets = split(unpacked(outer.value, codec, magic))
    numbers = [int.from_bytes(one[:8], "big", signed=True) for one in inner]
    base = offset - numbers[-1] if magic and offset and numbers else 0
    if base < 0:
        raise rb.BrokenBatchError("base")
    for number, one in zip(numbers, inner, strict=True):
        if offset and number + base > offset:
            raise rb.BrokenBatchError("an offset above the outer one")
        if len(one) < _HEAD.size or one[16] != magic or one[17] & _CODECS:
            raise rb.BrokenBatchError("inner message")
        found.records.append(_parsed(one, number + base, attributes, outer.timestamp))
        found.wrong_inside += zlib.crc32(one[_CRC_END:]) != int.from_bytes(one[12:16], "big")
    return found


def _parsed(content: bytes, offset: int, attributes: int, outer_time: int | None = None) -> Rec:
    """One message; its attributes are those of the outer one."""
    rest, time, kind = content[18:], -1, -1
    if content[16]:
        if len(rest) < 8:
            raise rb.BrokenBatchError("cut")
        (time,), rest = struct.unpack(">q", rest[:8]), rest[8:]
        kind = 1 if attributes & APPEND_TIME else 0
        time = outer_time if kind and outer_time is not None else time
    parts: list[bytes | None] = []
    for _ in range(2):
        if len(rest) < 4:
            raise rb.BrokenBatchError("cut")
        (length,), rest = struct.unpack(">i", rest[:4]), rest[4:]
        if not -1 <= length <= len(rest):
            raise rb.BrokenBatchError(f"length {length}")
        parts.append(None if length < 0 else rest[:length])
        rest = rest[max(length, 0) :]
    if rest:
        raise rb.BrokenBatchError("bytes behind the value")
    key, value = parts
    return Rec(offset, time, kind, key, value)


def split(content: bytes) -> tuple[list[bytes], int]:
    """The messages of a set, and how many are cut at its end."""
    found: list[bytes] = []
    while content:
        length = int.from_bytes(content[8:12], "big", signed=True) if len(content) >= _LENGTH_END else -1
        if not 0 <= length <= len(content) - _LENGTH_END:
            return found, 1
        found.append(content[: _LENGTH_END + length])
        content = content[_LENGTH_END + length :]
    return found, 0


def unpacked(payload: bytes, codec: int, magic: int) -> bytes:
    """The inverse of `packed`."""
    if codec > LZ4:
        raise rb.BrokenBatchError(f"codec {codec}")
    if codec == LZ4 and not magic:
        return b"".join(_old_lz4(payload))
    return rb.decompress(rb.CODECS[codec], payload)


def _old_lz4(frame: bytes) -> Iterator[bytes]:
    """The blocks of a frame, whatever the checksum of its header."""
    flags, position = frame[4], 7 + (8 if frame[4] & 0x08 else 0)
    while mark := int.from_bytes(frame[position : position + 4], "little"):
        block = frame[position + 4 :][: mark & 0x7FFF_FFFF]
        yield block if mark >> 31 else _lz4_block(block)
        position += 4 + len(block) + (4 if flags & 0x10 else 0)


def _lz4_block(block: bytes) -> bytes:
    """The format's own words: literals, then a match that may overlap itself."""
    plain, position = bytearray(), 0
    while position < len(block):
        token, position = block[position], position + 1
        size, position = _lz4_length(block, position, token >> 4)
        plain += block[position : position + size]
        position += size
        if position >= len(block):
            break
        distance, position = int.from_bytes(block[position : position + 2], "little"), position + 2
        size, position = _lz4_length(block, position, token & 15)
        for _ in range(size + 4):
            plain.append(plain[-distance])
    return bytes(plain)


def _lz4_length(block: bytes, position: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            byte, position = block[position], position + 1
            length += byte
            if byte != 255:
                break
    return length, position
