"""Message sets v0 and v1, made here byte by byte: what is read, and what is refused. Java's own are in test_codec_java.py."""

import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from archiver.codec import batch as batch_codec
from archiver.codec.batch import DecodedBatches, decode_batches
from archiver.errors import CorruptBatchError, LargeBatchError, UnsupportedBatchError
from tests.support.frames import records_of
from tests.support.message_sets import TIME, message, sealed, wrapper
from tests.support.records import Rec
from tests.support.reference_batch import batch_of, encode


def rec(offset: int, value: bytes | None, *, time: int = TIME, kind: int = 0) -> Rec:
    return Rec(offset, time, kind, None, value)


def read(content: bytes, position: int = 0) -> list[Rec]:
    return [record for decoded in steps(content, position) for record in records_of(decoded.frame)]


def steps(content: bytes, position: int = 0) -> Sequence[DecodedBatches]:
    """Each formats' run of a fetch is decoded by itself."""
    found = []
    while content:
        decoded = decode_batches(content, position)
        found.append(decoded)
        position, content = decoded.next_offset, content[decoded.source_bytes :]
    return found


def test_plain_messages_of_both_formats() -> None:
    content = message(3, b"a", b"k") + message(7, None, b"") + message(9, b"", None, time=-1)
    assert read(content) == [Rec(3, TIME, 0, b"k", b"a"), Rec(7, TIME, 0, b"", None), rec(9, b"", time=-1)]
    content = message(3, b"a", magic=0) + message(4, b"b", magic=1) + message(5, b"c", magic=0)
    assert read(content) == [rec(3, b"a", time=-1, kind=-1), rec(4, b"b"), rec(5, b"c", time=-1, kind=-1)]


def test_compressed_offsets_are_absolute_in_v0_and_relative_in_v1() -> None:
    old = wrapper(12, message(10, b"a", magic=0) + message(12, b"b", magic=0), magic=0)
    assert [one.offset for one in read(old)] == [10, 12]
    new = wrapper(29, message(0, b"a") + message(4, b"b") + message(9, b"c"))
    assert [one.offset for one in read(old + new)] == [10, 12, 20, 24, 29]
    assert steps(old + new)[-1].next_offset == 30


def test_a_wrapper_at_0_has_its_set_begin_there() -> None:
    content = wrapper(0, message(0, b"a") + message(1, b"b")) + message(2, b"c")
    assert [one.offset for one in read(content)] == [0, 1, 2]


def test_with_log_append_time_the_time_of_the_wrapper_counts() -> None:
    content = wrapper(1, message(0, b"a", time=5) + message(1, b"b", time=-1), attributes=2 | 8, time=77)
    assert read(content) == [rec(0, b"a", time=77, kind=1), rec(1, b"b", time=77, kind=1)]
    content = wrapper(1, message(0, b"a", time=5) + message(1, b"b", time=-1), time=77)
    assert read(content) == [rec(0, b"a", time=5), rec(1, b"b", time=-1)]
    assert read(message(0, b"a", attributes=8)) == [rec(0, b"a", kind=1)]


def test_a_set_is_read_from_an_offset_inside() -> None:
    content = wrapper(9, b"".join(message(number, b"%d" % number) for number in range(10)))
    assert [one.offset for one in read(content, 7)] == [7, 8, 9]


def test_formats_may_change_within_a_fetch() -> None:
    batch = encode(batch_of([Rec(5, TIME, 0, None, b"new")]))
    content = message(3, b"a") + wrapper(4, message(0, b"b")) + batch + message(6, b"c", magic=0)
    assert [one.value for one in read(content)] == [b"a", b"b", b"new", b"c"]
    assert [one.records for one in steps(content)] == [2, 1, 1]


def test_many_records_come_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_codec, "MOST_FETCHED_ROWS", 7)
    inner = b"".join(message(number, b"%d" % number) for number in range(20))
    content = message(0, b"first") + wrapper(20, inner) + message(21, b"last")
    decoded = decode_batches(content, 0)
    frames = [records_of(frame) for frame in decoded.frames()]
    assert [len(frame) for frame in frames] == [7, 7, 7, 1]
    assert [one.offset for frame in frames for one in frame] == list(range(22))
    assert decoded.records == 22


def test_a_cut_message_at_the_end_of_a_fetch_is_left_for_the_next() -> None:
    whole = message(0, b"a")
    for size in range(1, len(whole)):
        decoded = decode_batches(whole + message(1, b"b")[:size], 0)
        assert (decoded.source_bytes, decoded.next_offset) == (len(whole), 1)


def test_what_its_producer_wrote_wrong_is_read_and_counted() -> None:
    wrong = bytearray(message(0, b"a") + message(1, b"b"))
    wrong[12] ^= 1  # the CRC of the first one
    decoded = decode_batches(wrapper(1, bytes(wrong)), 0)
    assert [one.value for one in records_of(decoded.frame)] == [b"a", b"b"]
    assert (decoded.wrong_inside, decoded.cut_sets) == (1, 0)
    cut = decode_batches(wrapper(10, message(0, b"a") + message(1, b"b")[:-1]), 0)
    assert [one.offset for one in records_of(cut.frame)] == [10]
    assert (cut.wrong_inside, cut.cut_sets) == (0, 1)


BROKEN = {
    "CRC": message(5, b"value")[:-1] + b"E",
    "length": sealed(struct.pack(">qi", 5, 8) + bytes(8)),
    "key beyond": sealed(message(5, b"value", b"key").replace(struct.pack(">i", 3), struct.pack(">i", 99))),
    "value short": sealed(message(5, b"value").replace(struct.pack(">i", 5), struct.pack(">i", 4))),
    "null below -1": sealed(message(5, b"value").replace(struct.pack(">i", -1), struct.pack(">i", -2))),
    "not rising": message(5, b"a") + message(5, b"b"),
    "falling": message(5, b"a") + message(4, b"b"),
    "inside not rising": wrapper(5, message(1, b"a") + message(1, b"b")),
    "inside above": wrapper(5, message(6, b"a", magic=0), magic=0),
    "wrapper below": wrapper(5, message(0, b"a") + message(6, b"b")),
    "set before its wrapper's": message(8, b"a") + wrapper(9, message(0, b"b") + message(3, b"c")),
    "other magic": wrapper(5, message(0, b"a", magic=0)),
    "nested": wrapper(5, wrapper(0, message(0, b"a"))),
    "no value": message(5, None, attributes=2),
    "garbage": message(5, b"\xff" * 40, attributes=2),
    "offset": message(2**63 - 1, b"a"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_messages_are_refused_with_their_offset(name: str) -> None:
    with pytest.raises(CorruptBatchError, match=r"^offset \d+: "):
        read(BROKEN[name])


def test_an_error_tells_how_much_before_it_is_good() -> None:
    good = message(3, b"a") + wrapper(4, message(0, b"b"))
    for broken in (BROKEN["CRC"], BROKEN["nested"]):
        with pytest.raises(CorruptBatchError, match=r"^offset 5: ") as error:
            decode_batches(good + broken, 0)
        assert error.value.good_bytes == len(good)


def test_a_bomb_is_refused() -> None:
    content = wrapper(5, message(0, bytes(10_000_000)))
    with pytest.raises(LargeBatchError, match=r"^offset 5: "):
        decode_batches(content, 0, most_bytes=1_000_000)


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedBatchError, match=r"^offset 5: compression 4 is not known"):
        decode_batches(wrapper(5, message(0, b"a"), attributes=4), 0)


def test_every_flipped_bit_is_noticed() -> None:
    content = wrapper(5, message(0, b"a", b"k") + message(1, b"b"))
    for bit in range(8 * 16, 8 * len(content)):  # no checksum covers offset and length
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        if flipped[16] not in {0, 1}:
            continue  # of another format then
        with pytest.raises(CorruptBatchError):
            decode_batches(bytes(flipped), 0)


def test_any_records_come_back(seed: int) -> None:
    source = random.Random(seed)
    expected, content, offset = [], b"", 0
    for _ in range(200):
        magic, codec = source.choice([0, 1]), source.choice([0, 1, 2])
        inner = []
        for _ in range(source.randint(1, 5)):
            time = -1 if magic == 0 else source.choice([-1, 0, TIME])
            key, value = (source.choice([None, b"", source.randbytes(source.randrange(300))]) for _ in range(2))
            inner.append(Rec(offset, time, -1 if magic == 0 else 0, key, value))
            offset += source.randint(1, 3)
        expected += inner
        base = inner[0].offset if magic and codec else 0
        made = [message(one.offset - base, one.value, one.key, magic=magic, time=one.timestamp) for one in inner]
        content += (
            b"".join(made) if not codec else wrapper(inner[-1].offset, b"".join(made), magic=magic, attributes=codec)
        )
    assert read(content) == expected
    start = source.randrange(offset)
    kept = [one for one in expected if one.offset >= start]
    assert [replace(one) for one in read(content, start)] == kept
