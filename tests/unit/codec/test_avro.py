"""Frame -> Avro container -> fastavro, and fastavro -> Frame, by the rules of docs/format.md §3."""

import io
import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.codec import schemas
from archiver.codec.avro import BLOCK_BYTES, BlockEncoder, decode_blocks, decode_header, encode_header
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels import avro_encode
from archiver.codec.kernels.varint import MAX_VARINT_BYTES, encode_long, read_long, read_varint, write_varint
from tests.support.frames import AvroValue, avro_of, frame_of, of_avro, records_of
from tests.support.records import Headers, Rec, classes_of, generate, missing_classes, record_lists

TOPIC, PARTITION = "orders.v1", 300  # a partition of two varint bytes
SYNC = bytes(range(16))
RECORD = Rec(5, 7, 0, b"k", None, ((b"h", b""), (b"h", None)))
codecs = pytest.mark.parametrize("codec", BlockCodec)


def container(frames: Sequence[Frame], codec: BlockCodec = BlockCodec.NULL, **metadata: str) -> bytes:
    encoder = BlockEncoder(topic=TOPIC, partition=PARTITION, codec=codec, level=1, sync=SYNC)
    parts = [encode_header(codec, SYNC, metadata)]
    for frame in frames:
        row = 0
        while row < len(frame):
            row = encoder.append(frame, row, len(frame))
            if encoder.is_full:
                parts.extend(encoder.flush())
    return b"".join([*parts, *encoder.flush()])


def by_fastavro(content: bytes) -> list[AvroValue]:
    return cast("list[AvroValue]", list(fastavro.reader(io.BytesIO(content))))


def by_us(content: bytes) -> list[Rec]:
    header = decode_header(content, "key")
    return records_of(*decode_blocks(memoryview(content), header, topic=TOPIC, partition=PARTITION, key="key"))


def avro(records: Sequence[Rec]) -> list[AvroValue]:
    return [avro_of(record, TOPIC, PARTITION) for record in records]


def written_by_fastavro(
    schema: str, values: Sequence[AvroValue], *, codec: str = "null", sync_interval: int = 16_000
) -> bytes:
    target = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(schemas.load_schema(schema)))
    fastavro.writer(target, parsed, values, codec=codec, sync_interval=sync_interval, sync_marker=SYNC)
    return target.getvalue()


# --- there and back


@codecs
def test_two_thousand_records_of_every_class(codec: BlockCodec, seed: int) -> None:
    records = [*generate(seed, 2000), *generate(seed, 50, first_offset=2000, timestamp_type=1)]
    records += generate(seed, 50, first_offset=2050, timestamp_type=-1)
    assert missing_classes(classes_of(records)) == []
    frames = [frame_of(records[start : start + 300]) for start in range(0, len(records), 300)]
    content = container(frames, codec)
    assert by_fastavro(content) == avro(records)
    assert [of_avro(value) for value in by_fastavro(content)] == records
    assert by_us(content) == records


@settings(max_examples=25)
@given(record_lists(extreme=True, largest_gap=3, least=1, most=5))
def test_any_records(records: list[Rec]) -> None:
    content = container([frame_of(records)])
    assert by_fastavro(content) == avro(records)
    assert by_us(content) == records


@codecs
def test_what_fastavro_writes_we_read(codec: BlockCodec, seed: int) -> None:
    records = generate(seed, 1000)
    content = written_by_fastavro(schemas.RECORD, avro(records), codec=codec.value, sync_interval=5000)
    assert by_us(content) == records


@pytest.mark.parametrize("size", [600_000, 1_000_000, 20_000_000])
@pytest.mark.parametrize("block_bytes", [16 * 1024, BLOCK_BYTES])
def test_a_large_record_does_not_keep_its_memory(size: int, block_bytes: int) -> None:
    encoder = BlockEncoder(topic=TOPIC, partition=PARTITION, codec=BlockCodec.NULL, level=1, sync=SYNC)
    encoder.append(frame_of([replace(RECORD, value=bytes(size))]), 0, 1, block_bytes)
    assert encoder.pending_bytes > size
    encoder.flush()
    assert len(encoder._buffer) <= block_bytes + 64 * 1024


def test_blocks_end_with_the_row_that_fills_them() -> None:
    records = [Rec(offset, 0, 0, None, bytes(1000)) for offset in range(2000)]
    encoder = BlockEncoder(topic=TOPIC, partition=PARTITION, codec=BlockCodec.NULL, level=1, sync=SYNC)
    frame = frame_of(records)
    row = encoder.append(frame, 0, 2000)
    assert encoder.is_full
    size = encoder.pending_bytes
    assert BLOCK_BYTES <= size < BLOCK_BYTES + size / row + 1
    assert encoder.append(frame, row, 2000) == row
    assert len(b"".join(encoder.flush())) == len(encode_long(row)) + len(encode_long(size)) + size + 16
    assert not list(encoder.flush())
    assert encoder.append(frame, row, row + 3) == row + 3
    assert encoder.append(frame, row + 3, 2000, encoder.pending_bytes + 1) == row + 4


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=12), st.integers(0, 3))
def test_longs_outside_of_kernels_are_those_of_kernels(value: int, after: bytes, cut: int) -> None:
    target = np.empty(MAX_VARINT_BYTES, np.uint8)
    encoded = target[: write_varint(target, 0, value)].tobytes()
    assert encode_long(value) == encoded
    assert read_long(memoryview(encoded + after), 0) == (value, len(encoded))
    anything = (encoded + after)[cut:]
    assert read_long(memoryview(anything), 0) == read_varint(np.frombuffer(anything, np.uint8), 0, len(anything))


# --- headers (§3.1)


def test_the_rule_in_three_values() -> None:
    """Spelled out, so that it does not rest on one function of the tests alone."""
    three: list[Headers] = [((b"a", b"1"),), ((b"b", b"1"), (b"a", b"2")), ((b"a", b"1"), (b"\xff", None))]
    found = by_fastavro(container([frame_of([replace(RECORD, headers=headers) for headers in three])]))
    assert [(value["headers"], value["orderedHeaders"]) for value in found] == [
        ({"a": b"1"}, None),
        (
            {"b": b"1", "a": b"2"},
            [{"key": "b", "value": b"1", "rawKey": None}, {"key": "a", "value": b"2", "rawKey": None}],
        ),
        (
            None,
            [{"key": "a", "value": b"1", "rawKey": None}, {"key": "\ufffd", "value": None, "rawKey": b"\xff"}],
        ),
    ]


# RFC 3629: overlong forms, surrogates, above U+10FFFF, cut, stray.
ODD_KEYS = [
    *(b"\xc0\x80 \xc1\xbf \xe0\x80\x80 \xe0\x9f\xbf \xf0\x80\x80\x80 \xf0\x8f\xbf\xbf".split()),
    *(b"\xed\xa0\x80 \xed\xbf\xbf \xf4\x90\x80\x80 \xf5\x80\x80\x80 \xff \x80 \xbf".split()),
    *(b"\xc3 \xe2\x82 \xf0\x9f\xa6 a\xc3 \xc3( \xe2(\xa1 \xe2\x82( \xf0\x9f( \xf0\x9f\xa6(".split()),
    *(
        b"\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf".split()
    ),
]


@pytest.mark.parametrize("key", ODD_KEYS, ids=repr)
def test_utf8_is_what_python_calls_so(key: bytes) -> None:
    records = [
        replace(RECORD, headers=((key, b""),)),
        replace(RECORD, offset=6, headers=((b"x" + key + b"y", b""), (b"", b""))),
    ]
    content = container([frame_of(records)])
    assert by_fastavro(content) == avro(records)
    assert by_us(content) == records


@pytest.mark.parametrize("count", [2, 15, 16, 17, 18, 32, 33, 50, 700])
def test_repeated_keys_are_found_wherever_they_stand(count: int, seed: int) -> None:
    """Above 16 headers by a hash table."""
    rng = random.Random(seed + count)
    keys = [b"key-%d" % number for number in rng.sample(range(10**6), count)]
    unique: Headers = tuple((key, b"v") for key in keys)
    records = [replace(RECORD, headers=unique)]
    for first, second in [(0, 1), (0, count - 1), (count - 2, count - 1), tuple(rng.sample(range(count), 2))]:
        headers = list(unique)
        headers[second] = (headers[first][0], b"w")
        records.append(replace(RECORD, offset=5 + len(records), headers=tuple(headers)))
    content = container([frame_of(records)])
    found = by_fastavro(content)
    assert found == avro(records)
    assert [value["headers"] is None for value in found] == [False, True, True, True, True]


# --- v1.0

V1 = {"topic": TOPIC, "partition": PARTITION, "offset": 5, "timestamp": -1, "key": None, "value": b"", "headers": None}


@codecs
@pytest.mark.parametrize("schema", [schemas.RECORD_V1, schemas.RECORD_V1_NULLABLE])
def test_both_variants_of_v1(codec: BlockCodec, schema: str) -> None:
    values = [
        V1,
        V1 | {"offset": 6, "timestamp": 2**63 - 1, "key": b"", "headers": {}},
        V1 | {"offset": 7, "key": b"k", "headers": {"b": b"1", "a": b"", "ü": b"\xff"}},
    ]
    if schema == schemas.RECORD_V1_NULLABLE:
        values.append(V1 | {"offset": 9, "value": None})
    content = written_by_fastavro(schema, values, codec=codec.value)
    assert by_us(content) == [of_avro(value) for value in values]
    assert [record.timestamp_type for record in by_us(content)] == [-1] * len(values)


def test_v1_by_a_java_writer_with_strings_of_java() -> None:
    schema = json.loads(schemas.load_schema(schemas.RECORD_V1))
    schema["fields"][0]["type"] = {"type": "string", "avro.java.string": "String"}
    schema["fields"][6]["type"][0]["avro.java.string"] = "String"
    target = io.BytesIO()
    fastavro.writer(target, fastavro.parse_schema(schema), [V1 | {"headers": {"a": b"1"}}], metadata={"by": "???"})
    content = target.getvalue().replace(b"???", b"\xff\xfe\x00")  # metadata may be any bytes
    assert by_us(content) == [Rec(5, -1, -1, None, b"", ((b"a", b"1"),))]


@pytest.mark.parametrize("known", [schemas.RECORD, schemas.RECORD_V1, schemas.RECORD_V1_NULLABLE])
def test_maps_and_arrays_in_several_blocks(known: str) -> None:
    """A writer may split them, and give a negative count with the size of the block behind it."""
    second = known == schemas.RECORD
    nullable = known != schemas.RECORD_V1
    blob = encode_long(1)
    entries = [encode_long(1) + name + blob + value for name, value in ((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))]
    sized = encode_long(-2) + encode_long(len(b"".join(entries[1:]))) + b"".join(entries[1:])
    headers = encode_long(0) + encode_long(1) + entries[0] + sized + encode_long(0)
    items = [encode_long(1) + name + encode_long(0) + encode_long(0) for name in (b"x", b"y")]
    ordered = encode_long(1) + encode_long(1) + items[0] + encode_long(-1) + encode_long(4) + items[1] + encode_long(0)
    start = encode_long(len(TOPIC)) + TOPIC.encode() + encode_long(PARTITION)
    rest = encode_long(1) + (encode_long(0) if nullable else b"") + encode_long(1) + b"v" + headers
    tails = [b""]
    if second:
        tails = [
            encode_long(0) + encode_long(1),
            ordered + encode_long(0),
            encode_long(1) + encode_long(0) + encode_long(-1),
        ]
    body = b"".join(start + encode_long(offset) + encode_long(-9) + rest + tail for offset, tail in enumerate(tails))
    head = written_by_fastavro(known, [])
    content = head + encode_long(len(tails)) + encode_long(len(body)) + body + SYNC
    mapped: Headers = ((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    wanted: list[tuple[int, Headers]] = [(-1, mapped)]
    if second:
        wanted = [(1, mapped), (0, ((b"x", None), (b"y", None))), (-1, ())]
    assert by_us(content) == [Rec(offset, -9, kind, None, b"v", found) for offset, (kind, found) in enumerate(wanted)]
    assert [of_avro(value) for value in by_fastavro(content)] == by_us(content)


# --- frames that cannot be

WRONG_COLUMNS = [
    (Column.KEY_START, -1), (Column.KEY_START, 2**63 - 1), (Column.KEY_LENGTH, 2**63 - 1), (Column.KEY_LENGTH, 10**6),
    (Column.VALUE_START, -1), (Column.VALUE_START, 10**6), (Column.VALUE_LENGTH, 2**62), (Column.HEADER_START, -1),
    (Column.HEADER_START, 10**6), (Column.HEADER_LENGTH, -1), (Column.HEADER_LENGTH, 2**63 - 1), (Column.HEADER_LENGTH, 0),
    (Column.HEADER_LENGTH, 4), (Column.HEADER_COUNT, -1), (Column.HEADER_COUNT, 0), (Column.HEADER_COUNT, 1),
    (Column.HEADER_COUNT, 3), (Column.HEADER_COUNT, 2**63 - 1),
]  # fmt: skip


@pytest.mark.parametrize(("column", "wrong"), WRONG_COLUMNS)
def test_rows_that_point_outside_are_refused(column: Column, wrong: int) -> None:
    frame = frame_of([replace(RECORD, value=b"v")])
    frame.table[column, 0] = wrong
    with pytest.raises(ValueError, match="row 0"):
        container([frame])


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 2), (0, 2**62)])
def test_rows_that_are_not_there_are_refused(start: int, stop: int) -> None:
    encoder = BlockEncoder(topic=TOPIC, partition=PARTITION, codec=BlockCodec.NULL, level=1, sync=SYNC)
    with pytest.raises(ValueError, match="is not in the frame"):
        encoder.append(frame_of([RECORD]), start, stop)


def test_the_room_asked_for_is_enough() -> None:
    """Guards on both sides, and exactly the room that the kernel asked for: worst cases of every kind of header."""
    short: Headers = tuple((b"", b"") for _ in range(50))
    nulls: Headers = tuple((b"\xff", None) for _ in range(50))
    unique: Headers = tuple((bytes([97 + index]), b"") for index in range(26))
    long: Headers = ((b"\x80" * 300, b"v" * 70_000), (b"\x80" * 70_000, None))
    for headers in (short, nulls, unique, long):
        record = Rec(2**63 - 1, -(2**63), 1, b"k" * 200, b"v" * 20_000, headers)
        frame = frame_of([record])
        prefix = np.frombuffer(b"prefix", np.uint8)
        arguments = (frame.body, frame.header_body, frame.table, 0, 1, prefix)
        _, _, room, why = avro_encode.encode_rows(*arguments, np.empty(0, np.uint8), 0, BLOCK_BYTES)
        assert why == avro_encode.NEEDS_ROOM
        buffer = np.full(room + 64, 0xA5, np.uint8)
        _, used, _, why = avro_encode.encode_rows(*arguments, buffer[32:-32], 0, BLOCK_BYTES)
        assert why == avro_encode.ALL_WRITTEN
        assert used <= room
        assert set(buffer[:32].tolist() + buffer[-32:].tolist()) == {0xA5}
        buffer = np.full(room + 63, 0xA5, np.uint8)
        assert avro_encode.encode_rows(*arguments, buffer[32:-32], 0, BLOCK_BYTES)[3] == avro_encode.NEEDS_ROOM
        assert set(buffer.tolist()) == {0xA5}


def test_sync_markers_differ() -> None:
    """The header is fastavro's; the marker is the caller's."""
    sync = os.urandom(16)
    header = decode_header(encode_header(BlockCodec.SNAPPY, sync, {"archiver.records": "7"}), "key")
    assert (header.sync, header.codec, header.metadata["archiver.records"]) == (sync, BlockCodec.SNAPPY, "7")
