"""Record batch v2 in plain Python: slow and obvious. A second oracle, and the maker of wrong and unusual batches.

It shares nothing with `archiver.codec`. Layout: kafka.apache.org, "Record Batch" and "Record".
"""

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import cramjam
import google_crc32c
import xxhash

from tests.support.records import Headers, Rec

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # in the order of their ids
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_END = 21  # the CRC covers everything from here: attributes, ...
LENGTH_END = 12  # the batch's length counts from here
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK = 32 * 1024
LZ4_MAGIC = 0x184D2204
LZ4_BLOCK = 64 * 1024


class BrokenBatchError(Exception):
    """These bytes are no valid batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch and its records. What the encoder takes and the decoder gives."""

    base_offset: int
    last_offset: int
    records: tuple[Rec, ...]
    codec: str = "none"
    timestamp_type: int = 0
    base_timestamp: int = 0
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False  # then base_timestamp is the horizon
    leader_epoch: int = 0


def batch_of(records: Sequence[Rec], **changes: object) -> Batch:
    """A batch with what follows from its records filled in; `changes` are fields of Batch and win."""
    fields: dict[str, object] = {
        "base_offset": records[0].offset if records else 0,
        "last_offset": records[-1].offset if records else 0,
        "records": tuple(records),
        "timestamp_type": records[0].timestamp_type if records else 0,
        "base_timestamp": records[0].timestamp if records else 0,
        "max_timestamp": max((record.timestamp for record in records), default=-1),
    }
    return Batch(**(fields | changes))  # type: ignore[arg-type]


# --- encoding ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddities:
    """Ways to be wrong or unusual. The CRC is right all the same, unless `crc` says otherwise."""

    crc: int | None = None
    count: int | None = None
    length: int | None = None
    magic: int = 2
    attributes: int | None = None
    padding: int = 0  # needless bytes in each varint: legal, Java reads them
    raw_snappy: bool = False  # librdkafka's snappy, without the xerial frame
    tail: bytes = b""  # after the last record, before compression
    payload: bytes | None = None  # in place of the compressed records


PLAIN = Oddities()


def encode(batch: Batch, odd: Oddities = PLAIN) -> bytes:
    body = b"".join(encode_record(record, batch, odd.padding) for record in batch.records) + odd.tail
    payload = compress(batch.codec, body, raw_snappy=odd.raw_snappy) if odd.payload is None else odd.payload
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes_of(batch) if odd.attributes is None else odd.attributes,
        batch.last_offset - batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records) if odd.count is None else odd.count,
    )
    after_crc += payload
    crc = crc32c(after_crc) if odd.crc is None else odd.crc
    after_length = struct.pack(">ibI", batch.leader_epoch, odd.magic, crc) + after_crc
    length = len(after_length) if odd.length is None else odd.length
    return struct.pack(">qi", batch.base_offset, length) + after_length


def attributes_of(batch: Batch) -> int:
    bits = (batch.timestamp_type == 1, batch.transactional, batch.control, batch.delete_horizon)
    return CODECS.index(batch.codec) | sum(bit << (3 + place) for place, bit in enumerate(bits))


def encode_record(record: Rec, batch: Batch, padding: int = 0) -> bytes:
    def number(value: int) -> bytes:
        return varint(value, padding)

    def blob(content: bytes | None) -> bytes:
        return number(-1) if content is None else number(len(content)) + content

    body = b"\x00"  # attributes of a record: unused
    body += number(_as_long(record.timestamp - batch.base_timestamp))
    body += number(record.offset - batch.base_offset)
    body += blob(record.key) + blob(record.value)
    body += number(len(record.headers))
    body += b"".join(blob(key) + blob(value) for key, value in record.headers)
    return number(len(body)) + body


def varint(value: int, padding: int = 0) -> bytes:
    """Zigzag, then groups of 7 bits, the lowest first. `padding` adds groups of zeros, up to ten bytes in all."""
    rest = (value << 1) ^ (value >> 63)
    groups = [rest & 0x7F]
    while rest := rest >> 7:
        groups.append(rest & 0x7F)
    most = 10 if len(groups) > 5 else 5  # what readers allow for 64 and for 32 bits
    groups += [0] * min(padding, most - len(groups))
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def _as_long(value: int) -> int:
    """Into 64 bits, as Java wraps."""
    return (value + 2**63) % 2**64 - 2**63


def control_batch(
    offset: int, *, commit: bool, producer_id: int, producer_epoch: int = 0, timestamp: int = 0, leader_epoch: int = 0
) -> Batch:
    """A transaction marker, as the coordinator has it written."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    record = Rec(offset, timestamp, 0, key, struct.pack(">hi", 0, 0))
    return batch_of(
        [record],
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
    )


# --- decoding ------------------------------------------------------------------------------------------------------


def decode(content: bytes) -> list[Batch]:
    """All whole batches; one that is cut off at the end is left out, as a fetch may cut it. Broken: an error."""
    batches = []
    while len(content) >= LENGTH_END:
        (length,) = struct.unpack_from(">i", content, 8)
        if length < HEADER.size - LENGTH_END:
            raise BrokenBatchError(f"length {length}")
        if len(content) < LENGTH_END + length:
            break
        batches.append(decode_one(content[: LENGTH_END + length]))
        content = content[LENGTH_END + length :]
    return batches


def decode_one(content: bytes) -> Batch:
    fields = HEADER.unpack_from(content)
    base_offset, _, leader_epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp = fields[:9]
    producer_id, producer_epoch, base_sequence, count = fields[9:]
    if magic != 2:
        raise BrokenBatchError(f"magic {magic}")
    if crc != crc32c(content[CRC_END:]):
        raise BrokenBatchError(f"crc {crc:08x}, should be {crc32c(content[CRC_END:]):08x}")
    if attributes & 7 >= len(CODECS):
        raise BrokenBatchError(f"codec {attributes & 7}")
    codec = CODECS[attributes & 7]
    timestamp_type = attributes >> 3 & 1
    reader = _Reader(decompress(codec, content[HEADER.size :]))
    append_time = max_timestamp if timestamp_type else None
    records = tuple(_read_record(reader, base_offset, base_timestamp, append_time) for _ in range(count))
    if reader.rest():
        raise BrokenBatchError(f"{reader.rest()} bytes after the last record")
    return Batch(
        base_offset=base_offset,
        last_offset=base_offset + last_delta,
        records=records,
        codec=codec,
        timestamp_type=timestamp_type,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=bool(attributes >> 4 & 1),
        control=bool(attributes >> 5 & 1),
        delete_horizon=bool(attributes >> 6 & 1),
        leader_epoch=leader_epoch,
    )


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def rest(self) -> int:
        return len(self._content) - self._at

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.rest():
            raise BrokenBatchError(f"{count} bytes wanted, {self.rest()} there")
        self._at += count
        return self._content[self._at - count : self._at]

    def number(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift >= 70:
                raise BrokenBatchError("a varint of more than 10 bytes")

    def blob(self) -> bytes | None:
        length = self.number()
        return None if length == -1 else self.take(length)


def _read_record(reader: _Reader, base_offset: int, base_timestamp: int, append_time: int | None) -> Rec:
    length = reader.number()
    end = reader.rest() - length
    reader.take(1)
    timestamp = _as_long(base_timestamp + reader.number())
    offset = base_offset + reader.number()
    key, value = reader.blob(), reader.blob()
    headers = _read_headers(reader)
    if reader.rest() != end:
        raise BrokenBatchError(f"record {offset} is not as long as it says")
    if append_time is None:
        return Rec(offset, timestamp, 0, key, value, headers)
    return Rec(offset, append_time, 1, key, value, headers)


def _read_headers(reader: _Reader) -> Headers:
    headers = []
    for _ in range(reader.number()):
        key = reader.blob()
        if key is None:
            raise BrokenBatchError("a header without a key")
        headers.append((key, reader.blob()))
    return tuple(headers)


# --- checksum and codecs -------------------------------------------------------------------------------------------


def crc32c(content: bytes) -> int:
    return int(google_crc32c.value(content))


def compress(codec: str, content: bytes, *, raw_snappy: bool = False) -> bytes:
    match codec:
        case "none":
            return content
        case "gzip":
            return gzip.compress(content, mtime=0)
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(content)) if raw_snappy else _compress_xerial(content)
        case "lz4":
            return _compress_lz4(content)
        case "zstd":
            return bytes(cramjam.zstd.compress(content))
        case _:
            raise ValueError(codec)


def decompress(codec: str, content: bytes) -> bytes:
    try:
        return _decompress(codec, content)
    except (OSError, EOFError, zlib.error, cramjam.DecompressionError) as error:
        raise BrokenBatchError(f"{codec}: {error}") from error


def _decompress(codec: str, content: bytes) -> bytes:
    match codec:
        case "none":
            return content
        case "gzip":
            return gzip.decompress(content)
        case "snappy":
            return _decompress_snappy(content)
        case "lz4":
            return bytes(cramjam.lz4.decompress(content))
        case "zstd":
            return bytes(cramjam.zstd.decompress(content))
        case _:
            raise ValueError(codec)


def _compress_xerial(content: bytes) -> bytes:
    """What Java writes: a frame of blocks, each with its length before it."""
    framed = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    for start in range(0, len(content), XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(content[start : start + XERIAL_BLOCK]))
        framed += struct.pack(">i", len(block)) + block
    return framed


def _decompress_snappy(content: bytes) -> bytes:
    if not content.startswith(XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(content))
    plain, at = b"", len(XERIAL_MAGIC) + 8
    while at < len(content):
        (length,) = struct.unpack_from(">i", content, at)
        plain += bytes(cramjam.snappy.decompress_raw(content[at + 4 : at + 4 + length]))
        at += 4 + length
    return plain


def _compress_lz4(content: bytes) -> bytes:
    """An LZ4 frame as Kafka's reader takes it: version 1, independent blocks of 64 KiB, no checksums but the header's."""
    descriptor = bytes([0x60, 0x40])
    framed = struct.pack("<I", LZ4_MAGIC) + descriptor + bytes([xxhash.xxh32(descriptor).intdigest() >> 8 & 0xFF])
    for start in range(0, len(content), LZ4_BLOCK):
        plain = content[start : start + LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            framed += struct.pack("<I", len(block)) + block
        else:
            framed += struct.pack("<I", len(plain) | 0x80000000) + plain
    return framed + struct.pack("<I", 0)
