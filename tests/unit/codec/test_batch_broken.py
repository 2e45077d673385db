"""Record batches that are broken, lie, or grow too large: a named error, and what lies before them is not lost."""

import random
import struct
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cramjam
import pytest
import zstandard

import archiver.codec.batch
from archiver.codec.batch import DecodedBatches, decode_batches, position_after, whole_batches
from archiver.errors import CorruptBatchError, UnsupportedBatchError
from tests.support.frames import records_of
from tests.support.records import Rec
from tests.support.reference_batch import (
    CODECS,
    Batch,
    Oddities,
    batch_of,
    encode,
    encode_record,
    varint,
)

RECORD = Rec(5, 7, 0, b"k", None, ((b"h", b""), (b"h", None)))
PAIR = [RECORD, replace(RECORD, offset=6)]


def read(content: bytes, position: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> list[Rec]:
    return records_of(decode_batches(content, position, aborted).frame)


def fetch_of(*batches: Batch) -> bytes:
    return b"".join(map(encode, batches))


# --- what is refused

BROKEN: dict[str, tuple[bytes, str]] = {
    "crc": (encode(batch_of(PAIR), Oddities(crc=1)), "CRC is 00000001"),
    "one record too many": (encode(batch_of(PAIR), Oddities(count=3)), "runs past|length cannot be|cannot lie"),
    "one too few": (encode(batch_of(PAIR), Oddities(count=1)), "behind the last record"),
    "none, before records": (encode(batch_of(PAIR), Oddities(count=0)), "behind the last record"),
    "fewer than none": (encode(batch_of(PAIR), Oddities(count=-1)), "-1 records cannot lie"),
    "fewer than none, and no bytes": (encode(batch_of(PAIR), Oddities(count=-2, payload=b"")), "-2 records cannot lie"),
    "more than a long batch holds": (encode(batch_of(PAIR), Oddities(count=2**31 - 1)), "2147483647 records cannot lie"),
    "a compressed lie": (encode(batch_of(PAIR, codec="gzip"), Oddities(count=2**31 - 1)), "2147483647 records cannot lie in"),
    "tail": (encode(batch_of(PAIR), Oddities(tail=b"\x00")), "behind the last record"),
    "no zstd": (encode(batch_of(PAIR), Oddities(attributes=4, payload=b"garbage")), "ZSTD payload"),
    "no payload where gzip should be": (encode(batch_of(PAIR), Oddities(attributes=1, payload=b"")), "GZIP payload"),
    "snappy piece cut": (
        encode(batch_of(PAIR), Oddities(attributes=2, payload=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\x50ab")),
        "SNAPPY payload: snappy piece of 80 bytes",
    ),
    "offset outside": (encode(batch_of(PAIR, last_offset=5)), "do not rise, or leave"),
    "offsets that fall": (encode(batch_of([PAIR[1], RECORD], base_offset=5, last_offset=6)), "do not rise"),
    "an offset twice": (encode(batch_of([RECORD, RECORD])), "do not rise"),
    "before the batch": (encode(batch_of([RECORD], base_offset=6, last_offset=6)), "do not rise"),
    "ends before it begins": (encode(batch_of([RECORD], last_offset=4)), "a batch of 5..4"),
    "negative": (encode(batch_of([replace(RECORD, offset=-3)])), "a batch of -3..-3"),
    "wraps": (encode(batch_of([], base_offset=2**63 - 3, last_offset=2**63 + 9)), "offset 9223372036854775805: a batch"),
    "nothing can follow": (encode(batch_of([replace(RECORD, offset=2**63 - 1)])), "offset 9223372036854775807: a batch"),
    "the same batch again": (encode(batch_of([RECORD])) * 2, "behind one that ends at 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused_by_name(name: str) -> None:
    content, reason = BROKEN[name]
    with pytest.raises(CorruptBatchError, match=reason):
        decode_batches(content, 0)
    good = encode(batch_of([replace(RECORD, offset=1)], codec="lz4"))
    if name != "negative":
        found = before_what_is_broken(good + content)
        assert records_of(found.frame)[0].offset == 1
        rest = (good + content)[found.source_bytes :]
        if rest != content:  # it has good ones itself
            return
        with pytest.raises(CorruptBatchError, match=reason):
            decode_batches(rest, 0)


def before_what_is_broken(content: bytes) -> DecodedBatches:
    """The decoder ends there, or says how much is good."""
    try:
        return decode_batches(content, 0)
    except CorruptBatchError as error:
        if not str(error).startswith("offset "):
            raise
        return decode_batches(content[: error.good_bytes], 0)


@pytest.mark.parametrize(("magic", "reason"), [(3, "magic 3"), (255, "magic 255")])
def test_other_formats_are_named_with_their_offset(magic: int, reason: str) -> None:
    content = bytearray(encode(batch_of([RECORD])))
    content[16] = magic
    with pytest.raises(UnsupportedBatchError, match=f"offset 5: .*{reason}"):
        decode_batches(bytes(content), 0)
    with pytest.raises(UnsupportedBatchError, match="offset 5: ") as error:
        decode_batches(encode(batch_of([replace(RECORD, offset=1)])) + content, 0)
    assert error.value.good_bytes > 0


@pytest.mark.parametrize("base_offset", [2**63 - 1, 2**63 - 2, -1, -(2**63)])
def test_a_position_behind_any_batch_is_an_offset(base_offset: int) -> None:
    content = struct.pack(">q", base_offset) + encode(batch_of([RECORD]))[8:]
    batches, _ = whole_batches(content, 3)
    assert 3 <= position_after(batches, 3) < 2**63


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_named(codec: int) -> None:
    with pytest.raises(UnsupportedBatchError, match=f"offset 5: compression {codec}"):
        decode_batches(encode(batch_of([RECORD]), Oddities(attributes=codec)), 0)


def test_every_flipped_bit_is_noticed() -> None:
    """But of the fields that the CRC leaves out: base offset, length, leader epoch, magic."""
    content = encode(batch_of(PAIR, codec="lz4"))
    for bit in range(8 * 17, 8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatchError, match="CRC"):
            decode_batches(bytes(flipped), 0)


# One record whose fields are given as bytes; what a number says is not what is there.
HUGE = (2**63 - 1, 2**62, 2**31, 1000)


@pytest.mark.parametrize("field", ["length", "key", "value", "count", "header key", "header value", "offset"])
@pytest.mark.parametrize("number", [*HUGE, -(2**63), -(2**31)])
def test_numbers_that_lie(field: str, number: int) -> None:
    def says(name: str, true: int) -> bytes:
        return varint(number if name == field else true)

    header = says("header key", 1) + b"h" + says("header value", 1) + b"v"
    body = (
        b"\x00"
        + varint(0)
        + says("offset", 0)
        + says("key", 1)
        + b"k"
        + says("value", 1)
        + b"v"
        + says("count", 1)
        + header
    )
    content = encode(batch_of([RECORD]), Oddities(payload=says("length", len(body)) + body))
    with pytest.raises(CorruptBatchError, match="offset 5"):
        decode_batches(content, 0)


def test_a_varint_of_eleven_bytes_is_refused() -> None:
    for payload in (b"\xff" * 30, b"\x80" * 10 + b"\x00" * 30):
        with pytest.raises(CorruptBatchError):
            decode_batches(encode(batch_of([RECORD]), Oddities(payload=payload)), 0)


# --- how much comes out


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_stops_at_the_cap(codec: str) -> None:
    records = [replace(RECORD, value=bytes(3_000_000))]
    content = encode(batch_of(records, codec=codec))
    assert len(content) < 200_000
    with pytest.raises(
        CorruptBatchError, match=f"offset 5: {codec.upper()} payload: not readable within 2000000 bytes"
    ):
        decode_batches(content, 0, most_bytes=2_000_000)
    assert read(content) == records


def test_ten_megabytes_of_zstd_zeros_take_no_more_memory_than_the_cap() -> None:
    """Some 200 GB. The arena doubles, so that half as much again is alive while it is copied."""
    frame = bytes(cramjam.zstd.compress(bytes(2_000_000)))
    content = encode(batch_of([RECORD]), Oddities(attributes=4, payload=frame * (10_000_000 // len(frame))))
    cap = 64 * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError, match="ZSTD payload: not readable within"):
            decode_batches(content, 0, most_bytes=cap)
        assert tracemalloc.get_traced_memory()[1] < 1.6 * cap
    finally:
        tracemalloc.stop()


def test_snappy_that_claims_four_gigabytes_is_not_believed() -> None:
    content = encode(batch_of([RECORD]), Oddities(attributes=2, payload=b"\xff\xff\xff\xff\x0f\x00"))
    with pytest.raises(CorruptBatchError, match="SNAPPY"):
        decode_batches(content, 0)


def decode_in_turns(content: bytes, most_bytes: int) -> list[DecodedBatches]:
    """As a fetch is repeated from where the last one ended."""
    turns = [decode_batches(content, 0, most_bytes=most_bytes)]
    while (at := sum(turn.source_bytes for turn in turns)) < len(content):
        turns.append(decode_batches(content[at:], turns[-1].next_offset, most_bytes=most_bytes))
    return turns


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_fetch_that_grows_beyond_the_cap_is_taken_in_turns(codec: str) -> None:
    """It is no fault of the data that it compresses well: the fetch ends before what does not fit any more."""
    records = [Rec(offset, 0, 0, None, bytes(700_000)) for offset in range(0, 20, 2)]
    content = fetch_of(
        *(
            batch_of([record], codec=codec, last_offset=record.offset + 1, leader_epoch=record.offset)
            for record in records
        )
    )
    turns = decode_in_turns(content, 2_000_000)
    assert records_of(*(turn.frame for turn in turns)) == records
    assert [turn.next_offset for turn in turns] == [4, 8, 12, 16, 20]
    assert [turn.leader_epoch for turn in turns] == [2, 6, 10, 14, 18]


def test_the_table_of_the_records_has_a_cap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch ends before it; the records of a batch that has more come some at a time, and are the same."""
    records = [Rec(offset, 0, 0, None, b"%d" % offset) for offset in range(400)]
    batches = [batch_of(records[start : start + 80], codec="zstd") for start in range(0, 400, 80)]
    monkeypatch.setattr(archiver.codec.batch, "MOST_FETCHED_ROWS", 200)
    turns = decode_in_turns(fetch_of(*batches), 1_000_000)
    assert [turn.records for turn in turns] == [160, 160, 80]
    assert records_of(*(turn.frame for turn in turns)) == records
    monkeypatch.setattr(archiver.codec.batch, "MOST_FETCHED_ROWS", 39)
    turns = decode_in_turns(fetch_of(*batches), 1_000_000)
    assert [[len(frame) for frame in turn.frames()] for turn in turns] == [[39, 39, 2]] * 5
    assert [one for turn in turns for frame in turn.frames() for one in records_of(frame)] == records
    late = decode_batches(encode(batches[4]), 350)
    assert late.records == 50
    assert [one for frame in late.frames() for one in records_of(frame)] == records[350:]


@pytest.mark.parametrize("tail", [b"\0", b"\x0c\0\0\0\1\1\0", b"\x7f"])
def test_nothing_is_given_out_of_a_long_batch_that_is_broken_at_its_end(
    monkeypatch: pytest.MonkeyPatch, tail: bytes
) -> None:
    monkeypatch.setattr(archiver.codec.batch, "MOST_FETCHED_ROWS", 10)
    records = [Rec(offset, 0, 0, None, None) for offset in range(40)]
    content = encode(batch_of(records), Oddities(tail=tail, count=40 + (len(tail) > 1)))
    with pytest.raises(CorruptBatchError, match="offset 0: "):
        decode_batches(content, 0)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_payloads_in_several_frames_are_one(codec: str) -> None:
    """Streams of these codecs may be joined; Java's readers go on to the next."""
    one = batch_of(PAIR, codec=codec)
    parts = [encode_record(record, one) for record in PAIR]
    compress = {"gzip": cramjam.gzip.compress, "zstd": cramjam.zstd.compress, "lz4": cramjam.lz4.compress}[codec]
    payload = b"".join(bytes(compress(part)) for part in parts)
    assert read(encode(one, Oddities(payload=payload))) == PAIR


def _zstd_shapes(content: bytes) -> dict[str, bytes]:
    """One content as others may compress it."""
    settings: dict[str, dict[str, Any]] = {
        "plain": {},
        "with a checksum": {"write_checksum": True},
        "of unknown size": {"write_content_size": False},
    }
    shapes = {name: zstandard.ZstdCompressor(level=1, **more).compress(content) for name, more in settings.items()}
    half = len(content) // 2
    plain = zstandard.ZstdCompressor(level=1)
    shapes["in two frames"] = plain.compress(content[:half]) + plain.compress(content[half:])
    shapes["behind a skippable frame"] = struct.pack("<II3s", 0x184D2A50, 3, b"abc") + shapes["plain"]
    streamed = plain.compressobj(size=len(content))
    shapes["in many blocks"] = (
        b"".join(
            streamed.compress(content[start : start + 5000]) + streamed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            for start in range(0, len(content), 5000)
        )
        + streamed.flush()
    )
    return shapes


ZEROS_AND_NOISE = [
    replace(RECORD, value=bytes(300_000)),
    replace(RECORD, offset=6, value=random.Random(1).randbytes(200_000)),
]


@pytest.mark.parametrize("name", _zstd_shapes(b""))
def test_zstd_is_read_as_others_write_it_and_refused_where_it_is_cut(name: str) -> None:
    one = batch_of(ZEROS_AND_NOISE, codec="zstd")
    content = b"".join(encode_record(record, one) for record in ZEROS_AND_NOISE)
    payload = _zstd_shapes(content)[name]
    assert read(encode(one, Oddities(payload=payload))) == ZEROS_AND_NOISE
    for cut in (1, 2, 3, 4, 5, 1000, len(payload) // 2, len(payload) - 7):
        with pytest.raises(CorruptBatchError, match="ZSTD payload"):
            decode_batches(encode(one, Oddities(payload=payload[:-cut])), 0)
    for tail in (b"x", b"garbage", payload[:-1]):
        with pytest.raises(CorruptBatchError):
            decode_batches(encode(one, Oddities(payload=payload + tail)), 0)


def test_lengths_of_batches_that_cannot_be() -> None:
    content = encode(batch_of([RECORD]))
    for length in (-(2**31), -1, 0, 4, 5, 48, 2**31 - 1):
        lying = content[:8] + struct.pack(">i", length) + content[12:]
        with pytest.raises(CorruptBatchError):
            decode_batches(lying, 5)
        assert decode_batches(content + lying, 5).source_bytes == len(content)
