"""Containers that are broken, cut, lie or come from elsewhere: CorruptSegmentError or FormatTooNewError, naming the key."""

import io
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import fastavro
import numpy as np
import pytest

from archiver.codec import avro as avro_module
from archiver.codec import schemas
from archiver.codec.avro import BlockEncoder, decode_blocks, decode_header, encode_header
from archiver.codec.compression import BlockCodec, compress_block
from archiver.codec.frame import Column
from archiver.codec.kernels.avro_decode import decode_rows
from archiver.codec.kernels.varint import encode_long
from archiver.errors import ArchiverError, CorruptSegmentError, FormatTooNewError
from tests.support.frames import frame_of, records_of
from tests.support.records import Rec

SYNC = bytes(range(16))
HEADERS = ((b"a", b"1"), (b"\xff", None))
RECORDS = [Rec(5, 7, 0, b"key", b"value", HEADERS), Rec(6, -1, 1, None, None), Rec(8, 0, 0, b"", b"", ((b"k", b"v"),))]
HEAD = encode_header(BlockCodec.NULL, SYNC, {})


def body_of(*records: Rec, topic: str = "t", partition: int = 0) -> bytes:
    """The records of one block, without its frame."""
    encoder = BlockEncoder(topic=topic, partition=partition, codec=BlockCodec.NULL, level=1, sync=SYNC)
    encoder.append(frame_of(records), 0, len(records))
    block = b"".join(encoder.flush())
    return block[len(encode_long(len(records))) + len(encode_long(encoder_size(block))) : -16]


def encoder_size(block: bytes) -> int:
    return next(size for size in range(len(block)) if len(encode_long(size)) + size + 17 == len(block))


def block(body: bytes, count: int, *, size: int | None = None, sync: bytes = SYNC) -> bytes:
    return encode_long(count) + encode_long(len(body) if size is None else size) + body + sync


def read(content: bytes, *, topic: str = "t", partition: int = 0) -> list[Rec]:
    header = decode_header(content, "key.data")
    return records_of(*decode_blocks(memoryview(content), header, topic=topic, partition=partition, key="key.data"))


BODY = body_of(*RECORDS)
CONTENT = HEAD + block(BODY, 3)


def test_the_ground_is_firm() -> None:
    assert read(CONTENT) == RECORDS
    assert read(HEAD) == []
    assert read(HEAD + block(b"", 0)) == []


BROKEN = {
    "negative count": (block(BODY, -3), "cut or broken"),
    "negative size": (block(BODY, 3, size=-1), "cut or broken"),
    "size beyond the end": (block(BODY, 3, size=len(BODY) + 1), "cut or broken"),
    "size near 2^63": (block(BODY, 3, size=2**63 - 1), "cut or broken"),
    "smallest size": (block(BODY, 3, size=-(2**63)), "cut or broken"),
    "another sync marker": (block(BODY, 3, sync=bytes(16)), "sync marker"),
    "one record too few": (block(BODY, 2), "record 2: bytes are left"),
    "one too many": (block(BODY, 4), "record 3: a field runs past"),
    "none before records": (block(BODY, 0), "bytes are left"),
    "a count that cannot be": (block(BODY, 2**62), "4611686018427387904 records cannot lie in"),
    "a byte too many": (block(BODY + b"\0", 3), "bytes are left"),
    "a varint without end": (block(b"\xff" * 40, 1), "runs past"),
    "an endless count": (b"\xff" * 40, "cut or broken"),
    "another topic": (block(body_of(RECORDS[0], topic="u"), 1), "another topic or partition"),
    "a longer topic": (block(body_of(RECORDS[0], topic="tt"), 1), "another topic or partition"),
    "another partition": (block(body_of(RECORDS[0], partition=2**31 - 1), 1), "another topic or partition"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named_and_nothing_of_it_comes_out(name: str) -> None:
    content, reason = BROKEN[name]
    with pytest.raises(CorruptSegmentError, match=f"key.data: .*{reason}"):
        read(HEAD + content)
    frames = decode_blocks(
        memoryview(CONTENT + content), decode_header(CONTENT, "k"), topic="t", partition=0, key="key.data"
    )
    assert records_of(next(frames)) == RECORDS
    with pytest.raises(CorruptSegmentError, match=reason):
        next(frames)


def test_a_container_cut_anywhere_is_an_error_or_shorter_by_whole_blocks() -> None:
    for length in range(len(CONTENT)):
        if length == len(HEAD):
            continue  # a block boundary: only the facts can tell (tests/unit/archive/test_segment_writer.py)
        with pytest.raises(CorruptSegmentError, match=r"key\.data"):
            read(CONTENT[:length])


FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "orderedHeaders", "timestampType")
PLAIN = {
    "topic": encode_long(1) + b"t",
    "partition": encode_long(0),
    "offset": encode_long(5),
    "timestamp": encode_long(7),
    "key": encode_long(0) + encode_long(1) + b"k",
    "value": encode_long(1),
    "headers": encode_long(1),
    "orderedHeaders": encode_long(0),
    "timestampType": encode_long(0),
}


def record_with(**fields: bytes) -> bytes:
    return b"".join((PLAIN | fields)[name] for name in FIELDS)


NUMBERS = (-1, 2, 3, 1000, 2**31, 2**62, 2**63 - 1, -(2**63))
PLACES: dict[str, Callable[[bytes], bytes]] = {
    "length of topic": lambda n: record_with(topic=n + b"t"),
    "branch of key": lambda n: record_with(key=n + encode_long(1) + b"k"),
    "length of key": lambda n: record_with(key=encode_long(0) + n + b"k"),
    "branch of value": lambda n: record_with(value=n),
    "length of value": lambda n: record_with(value=encode_long(0) + n),
    "branch of headers": lambda n: record_with(headers=n),
    "count of headers": lambda n: record_with(headers=encode_long(0) + n + encode_long(1) + b"a" + encode_long(0)),
    "length of a header's key": lambda n: record_with(headers=b"\0" + encode_long(1) + n + b"a" + b"\0" + b"\0"),
    "length of a header": lambda n: record_with(headers=b"\0" + encode_long(1) + encode_long(1) + b"a" + n + b"\0"),
    "branch of the list": lambda n: record_with(orderedHeaders=n),
    "count of the list": lambda n: record_with(orderedHeaders=b"\2" + n + encode_long(1) + b"a" + b"\0\0"),
    "length of a list key": lambda n: record_with(orderedHeaders=b"\2\2" + n + b"a" + b"\0\0\0"),
    "branch of a list value": lambda n: record_with(orderedHeaders=b"\2\2\2a" + n + b"\0\0"),
    "length of a list value": lambda n: record_with(orderedHeaders=b"\2\2\2a\2" + n + b"\0\0"),
    "branch of a raw key": lambda n: record_with(orderedHeaders=b"\2\2\2a\0" + n + b"\0"),
    "length of a raw key": lambda n: record_with(orderedHeaders=b"\2\2\2a\0\2" + n + b"\0"),
    "timestamp type": lambda n: record_with(timestampType=n),
}


@pytest.mark.parametrize("place", PLACES)
def test_numbers_that_lie(place: str) -> None:
    """Each alone, in front of a good record, and behind one."""
    for number in NUMBERS:
        if (place, number) == ("timestamp type", -1):
            continue
        lying = PLACES[place](encode_long(number))
        for body, count in ((lying, 1), (lying + record_with(), 2), (record_with() + lying, 2)):
            with pytest.raises(CorruptSegmentError, match=r"key\.data"):
                read(HEAD + block(body, count))


@pytest.mark.parametrize("name", [schemas.RECORD_V1, schemas.RECORD_V1_NULLABLE])
def test_v1_lies_too(name: str) -> None:
    target = io.BytesIO()
    fastavro.writer(target, fastavro.parse_schema(json.loads(schemas.load_schema(name))), [], sync_marker=SYNC)
    start = b"".join(PLAIN[field] for field in FIELDS[:5])
    for value in (encode_long(1000), encode_long(-5), encode_long(0) + encode_long(2**63 - 1)):
        with pytest.raises(CorruptSegmentError):
            read(target.getvalue() + block(start + value + encode_long(1), 1))


# --- codecs


def other_head(codec: BlockCodec) -> bytes:
    return encode_header(codec, SYNC, {})


@pytest.mark.parametrize("codec", [BlockCodec.DEFLATE, BlockCodec.SNAPPY, BlockCodec.ZSTANDARD])
@pytest.mark.parametrize("payload", [b"", b"\0", b"garbage, not compressed", b"\xff\xff\xff\xff\x0f" + bytes(9)])
def test_payloads_that_no_codec_wrote(codec: BlockCodec, payload: bytes) -> None:
    with pytest.raises(CorruptSegmentError, match=r"key\.data: the block before byte \d+"):
        read(other_head(codec) + block(payload, 1))


def test_snappy_s_crc_is_checked() -> None:
    packed = bytes(cramjam.snappy.compress_raw(BODY))
    crc = zlib.crc32(BODY)
    assert read(other_head(BlockCodec.SNAPPY) + block(packed + crc.to_bytes(4, "big"), 3)) == RECORDS
    with pytest.raises(CorruptSegmentError, match="CRC"):
        read(other_head(BlockCodec.SNAPPY) + block(packed + (crc ^ 1).to_bytes(4, "big"), 3))


def test_deflate_that_is_cut() -> None:
    packed = zlib.compress(BODY, wbits=-15)
    with pytest.raises(CorruptSegmentError, match="cut"):
        read(other_head(BlockCodec.DEFLATE) + block(packed[:-1], 3))


BOMBS = {
    BlockCodec.DEFLATE: zlib.compress(bytes(3_000_000), wbits=-15),
    BlockCodec.SNAPPY: bytes(cramjam.snappy.compress_raw(bytes(3_000_000)))
    + zlib.crc32(bytes(3_000_000)).to_bytes(4, "big"),
    BlockCodec.ZSTANDARD: bytes(cramjam.zstd.compress(bytes(3_000_000))),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_stops_at_the_cap(codec: BlockCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_module, "MOST_BLOCK_BYTES", 1_000_000)
    with pytest.raises(CorruptSegmentError, match="1000000 bytes"):
        read(other_head(codec) + block(BOMBS[codec], 1))


# --- the container's header


def test_a_header_cut_anywhere() -> None:
    for length in range(len(HEAD)):
        with pytest.raises(CorruptSegmentError, match=r"key\.data: not an Avro object container file"):
            decode_header(HEAD[:length], "key.data")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Obj\x02" + HEAD[4:],
        b"Obj\x01" + b"\xff" * 9 + b"\x01",
        b"Obj\x01" + encode_long(-(2**63)) + encode_long(-1) + bytes(40),
        b"Obj\x01" + encode_long(1) + encode_long(2**62) + bytes(40),
        HEAD.replace(b'"record"', b'"rec\xff\xff\xff"'),
        HEAD.replace(b"avro.codec\x08null", b"avro.codec\x08lzma"),
        HEAD[:4] + encode_long(1) + encode_long(11) + b"avro.schema" + encode_long(60_000) + b"[" * 60_000 + bytes(17),
        HEAD[:4] + encode_long(1) + encode_long(11) + b"avro.schema" + encode_long(4) + b"null" + bytes(17),
    ],
    ids=range(9),
)
def test_headers_that_are_none(content: bytes) -> None:
    with pytest.raises(CorruptSegmentError, match=r"key\.data: not an Avro object container file"):
        decode_header(content, "key.data")


@pytest.mark.parametrize("schema", ['"bytes"', '{"type": "record", "name": "Other", "fields": []}'])
def test_another_schema_is_refused_by_name(schema: str) -> None:
    target = io.BytesIO()
    fastavro.writer(target, fastavro.parse_schema(json.loads(schema)), [])
    with pytest.raises(FormatTooNewError, match=r"key\.data: written with a schema"):
        decode_header(target.getvalue(), "key.data")


def test_ours_is_the_only_kind_of_error(seed: int) -> None:
    """Whatever fastavro raises for a garbled header."""
    rng = random.Random(seed)
    seen = 0
    for _ in range(3000):
        garbled = bytearray(HEAD)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(garbled))
            garbled[place : place + rng.choice((0, 1, 1, 1, 5))] = rng.randbytes(rng.choice((1, 1, 1, 0, 10)))
        try:
            decode_header(bytes(garbled), "key")
        except ArchiverError:
            seen += 1
    assert seen > 1000


# --- blocks that expand


SMALLEST = record_with(key=b"\2")


def test_a_count_is_held_against_the_least_that_records_of_the_schema_take() -> None:
    assert len(SMALLEST) == 10
    assert len(read(HEAD + block(SMALLEST * 9, 9))) == 9
    with pytest.raises(CorruptSegmentError, match="10 records cannot lie in 99 bytes"):
        read(HEAD + block(SMALLEST * 9 + bytes(9), 10))


def test_a_table_grows_with_the_budget_and_not_with_the_records_of_a_block() -> None:
    count = 2_000_000
    packed = compress_block(BlockCodec.ZSTANDARD, np.frombuffer(SMALLEST * count, np.uint8), 3)
    content = encode_header(BlockCodec.ZSTANDARD, SYNC, {}) + block(packed, count)
    assert len(content) < 5_000
    header = decode_header(content, "key.data")
    tracemalloc.start()
    try:
        frames = decode_blocks(memoryview(content), header, topic="t", partition=0, key="key.data")
        sizes = [len(frame) for frame in frames]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == count
    assert max(sizes) <= avro_module.MOST_BLOCK_ROWS
    assert peak < 5 * len(SMALLEST) * count  # 10 columns of 8 bytes each make it 10 times as much


@pytest.mark.parametrize("most_rows", [1, 2, 3])
def test_a_block_in_parts_holds_the_same(monkeypatch: pytest.MonkeyPatch, most_rows: int) -> None:
    monkeypatch.setattr(avro_module, "MOST_BLOCK_ROWS", most_rows)
    assert read(CONTENT) == RECORDS
    assert read(HEAD + block(b"", 0)) == []
    for name in ("one record too few", "one too many", "none before records", "a byte too many"):
        content, reason = BROKEN[name]
        with pytest.raises(CorruptSegmentError, match=f"key.data: .*{reason}"):
            read(HEAD + content)


# --- the kernel's own guards


@pytest.mark.parametrize("room", range(60))
def test_decode_rows_writes_no_header_behind_its_target(room: int) -> None:
    body, topic = np.frombuffer(BODY, np.uint8), np.frombuffer(b"t", np.uint8)
    table = np.empty((len(Column), 3), np.int64)
    buffer = np.full(160, 0xA5, np.uint8)
    decode_rows(body, 0, 3, True, True, topic, 0, table, buffer[50 : 50 + room])
    assert set(buffer[:50].tolist() + buffer[50 + room :].tolist()) == {0xA5}
