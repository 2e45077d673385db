"""Log files of Kafka 0.6 and 0.7, made here byte by byte: what is read, numbered, left out, and refused."""

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cramjam
import pytest

from archiver.codec.frame import Frame
from archiver.errors import UsageError
from archiver.imports.filling.partition_fill import ImportHole
from archiver.imports.tools.kafka_07 import find_partitions
from tests.support.frames import records_of
from tests.support.records import Rec


def every(_: str) -> bool:
    return True


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def old(payload: bytes) -> bytes:
    """A message of magic 0, as Kafka 0.6 wrote it."""
    return framed(b"\x00" + struct.pack(">I", zlib.crc32(payload)) + payload)


def new(payload: bytes, attributes: int = 0) -> bytes:
    """A message of magic 1."""
    return framed(bytes([1, attributes]) + struct.pack(">I", zlib.crc32(payload)) + payload)


def xerial(content: bytes) -> bytes:
    blocks = [content[at : at + 100] for at in range(0, len(content), 100)]
    packed = [bytes(cramjam.snappy.compress_raw(one)) for one in blocks]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(one)) + one for one in packed)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: new(gzip.compress(content), 1),
    "snappy": lambda content: new(xerial(content), 2),
    "raw-snappy": lambda content: new(bytes(cramjam.snappy.compress_raw(content)), 2),
}


class Directory:
    """A broker's log directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, *files: bytes, at: int = 0, topic: str = "orders", partition: int = 0) -> None:
        folder = self.path / f"{topic}-{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        for content in files:
            (folder / f"{at:020}.kafka").write_bytes(content)
            at += len(content)

    def steps(self, *, keeps_positions: bool = False) -> Iterator[Frame | ImportHole]:
        (found,) = find_partitions([self.path], every, keeps_positions=keeps_positions)
        return found.steps()

    def read(self, *, keeps_positions: bool = False) -> list[Rec | ImportHole]:
        return [
            one
            for step in self.steps(keeps_positions=keeps_positions)
            for one in ([step] if isinstance(step, ImportHole) else records_of(step))
        ]


@pytest.fixture
def logs(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "logs")


def rec(offset: int, value: bytes, position: int | None = None) -> Rec:
    headers = () if position is None else ((b"kafka-0.7-position", b"%d" % position),)
    return Rec(offset, -1, -1, None, value, headers)


def test_messages_of_both_formats_get_running_numbers_over_all_files(logs: Directory) -> None:
    logs.write(old(b"a") + new(b"b") + old(b""), new(b"c"), b"", at=7000)
    assert logs.read() == [rec(0, b"a"), rec(1, b"b"), rec(2, b""), rec(3, b"c")]


@pytest.mark.parametrize("codec", PACKED)
def test_a_compressed_message_is_a_set_of_messages(logs: Directory, codec: str) -> None:
    inner = b"".join(new(b"%d" % number * 20) if number % 2 else old(b"%d" % number) for number in range(30))
    logs.write(old(b"before") + PACKED[codec](inner) + PACKED[codec](new(b"last")) + new(b"behind"))
    values = [b"before", *(b"%d" % number * (20 if number % 2 else 1) for number in range(30)), b"last", b"behind"]
    assert logs.read() == [rec(number, value) for number, value in enumerate(values)]


def test_positions_are_kept_in_a_header(logs: Directory) -> None:
    packed = PACKED["gzip"](new(b"b") + new(b"c"))
    logs.write(old(b"a"), packed + new(b"d"), at=990)
    after = 990 + len(old(b"a"))
    assert logs.read(keeps_positions=True) == [
        rec(0, b"a", 990),
        rec(1, b"b", after),  # Kafka 0.7 could only fetch the compressed message as a whole
        rec(2, b"c", after),
        rec(3, b"d", after + len(packed)),
    ]


def test_many_messages_are_read_in_frames_of_bounded_size(logs: Directory) -> None:
    payloads = [b"%d" % number for number in range(70_000)]
    logs.write(b"".join(map(new, payloads[:40_000])) + PACKED["gzip"](b"".join(map(new, payloads[40_000:]))))
    for keeps in (False, True):
        frames = [step for step in logs.steps(keeps_positions=keeps) if isinstance(step, Frame)]
        assert max(map(len, frames)) <= 32 * 1024
    assert [one.value for one in logs.read() if isinstance(one, Rec)] == payloads


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


NESTED = PACKED["gzip"](PACKED["gzip"](new(b"x")))
NO_GZIP = new(b"no gzip", 1)
BROKEN = {
    "crc": (flipped(new(b"bad"), 11), "CRC does not match"),
    "codec": (new(b"bad", 3), "unknown compression"),
    "magic": (framed(b"\x02\x00" + struct.pack(">I", zlib.crc32(b"bad")) + b"bad"), "another format"),
    "nested": (NESTED, "compressed message inside"),
    "payload": (NO_GZIP, "cannot be decompressed"),
    "inside": (PACKED["gzip"](new(b"x") + struct.pack(">i", -5) + b"1234"), "length cannot be"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_message_is_a_hole_of_one_number(logs: Directory, name: str) -> None:
    bad, why = BROKEN[name]
    logs.write(new(b"a") + bad + new(b"b"), new(b"c"))
    first, hole, *rest = logs.read()
    assert (first, rest) == (rec(0, b"a"), [rec(2, b"b"), rec(3, b"c")])
    assert isinstance(hole, ImportHole)
    start = len(new(b"a"))
    assert (hole.until, str(hole.cause)) == (2, "unreadable")
    assert f"bytes {start} to {start + len(bad)} of " in hole.why
    assert why in hole.why


def test_a_broken_length_loses_the_rest_of_its_file(logs: Directory) -> None:
    """Behind it a payload may hold whole messages, which are no messages of this log."""
    bad = flipped(new(b"payload " + new(b"no message of this log")), 2)
    logs.write(new(b"a") + bad, new(b"b"))
    first, hole, last = logs.read()
    assert (first, last) == (rec(0, b"a"), rec(2, b"b"))
    assert isinstance(hole, ImportHole)
    assert hole.until == 2


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_cut_end_is_reported_and_takes_no_number(logs: Directory, cut: int) -> None:
    logs.write(new(b"a") + new(b"cut off")[:cut])
    record, hole = logs.read()
    assert record == rec(0, b"a")
    assert isinstance(hole, ImportHole)
    assert hole.until == 0


def test_a_missing_file_is_a_hole_of_one_number(logs: Directory) -> None:
    logs.write(new(b"a"))
    logs.write(new(b"b"), at=500)
    first, hole, last = logs.read()
    assert (first, last) == (rec(0, b"a"), rec(2, b"b"))
    assert isinstance(hole, ImportHole)
    assert f"bytes {len(new(b'a'))} to 500 of the log are missing" in hole.why


def test_what_a_producer_wrote_wrong_is_imported_and_reported(
    logs: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    logs.write(PACKED["gzip"](flipped(new(b"a"), 6) + new(b"b") + b"\x00\x00"))
    assert logs.read() == [rec(0, b"a"), rec(1, b"b")]
    assert "1 messages inside compressed ones have a wrong CRC, and 1 compressed ones end within" in caplog.text


def test_a_bomb_is_left_out(logs: Directory) -> None:
    bomb = new(bytes(cramjam.gzip.compress(bytes(300 * 1024 * 1024), 1)), 1)
    logs.write(PACKED["gzip"](new(b"a")) + bomb + new(b"b"))
    first, hole, last = logs.read()
    assert (first, last) == (rec(0, b"a"), rec(2, b"b"))
    assert isinstance(hole, ImportHole)


def test_other_directories_are_refused(logs: Directory, tmp_path: Path) -> None:
    logs.path.mkdir()
    for path in (logs.path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="no folder of a partition"):
            find_partitions([path], every, keeps_positions=False)
    logs.write(new(b"a"), new(b"b"))
    second = Directory(tmp_path / "second")
    second.write(new(b"a"))
    with pytest.raises(UsageError, match="each broker had partitions of its own"):
        find_partitions([logs.path, second.path], every, keeps_positions=False)
    logs.write(new(b"overlaps"), at=1)
    with pytest.raises(UsageError, match="goes on behind byte 1"):
        find_partitions([logs.path], every, keeps_positions=False)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_never_crash_nor_give_a_message_that_was_not_written(logs: Directory, seed: int) -> None:
    rng = random.Random(seed)
    values = [b"%d " % number + rng.randbytes(rng.choice([0, 3, 200])) for number in range(12)]
    pieces = [old(one) if rng.random() < 0.5 else new(one) for one in values]
    sets = [PACKED[rng.choice([*PACKED])](b"".join(pieces[:5])), *pieces[5:]]
    content = bytearray(b"".join(sets))
    for _ in range(rng.choice([1, 1, 2, 5])):
        match rng.randrange(3):
            case 0:
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            case 1:
                del content[rng.randrange(len(content)) :]
                content = content or bytearray(b"\x00")
            case _:
                at = rng.randrange(len(content))
                content[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
    logs.write(bytes(content))
    found = [one.value for one in logs.read() if isinstance(one, Rec)]
    assert len(found) == len(set(found))
    # A flip in the attributes, which no CRC covers, makes one message of a compressed set, or the other way round.
    strange = [value for value in found if value not in values]
    assert len(strange) <= 1
