"""Archives that osodevops/kafka-backup's own crate wrote (osodevops-1/writer): read as that program listed them; and broken ones."""

import json
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from archiver.errors import UsageError
from archiver.imports.filling.foreign_import import ForeignPartition
from archiver.imports.filling.partition_fill import ImportHole
from archiver.imports.tools.osodevops import find_partitions
from tests.support.frames import records_of
from tests.support.mapped_memory import resident_bytes
from tests.support.records import Rec

HERE = Path(__file__).parent / "osodevops-1"
ARCHIVES = ("zstd", "lz4", "plain")


def every(_: str) -> bool:
    return True


def of_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def listed(partition: int) -> list[Rec]:
    rows = [json.loads(line) for line in (HERE / "records.jsonl").read_text().splitlines()]
    return [
        Rec(
            row["offset"],
            row["timestamp"],
            -1,
            of_hex(row["key"]),
            of_hex(row["value"]),
            tuple((bytes.fromhex(key), of_hex(value)) for key, value in row["headers"]),
        )
        for row in rows
        if row["partition"] == partition
    ]


def read(found: ForeignPartition) -> tuple[list[Rec], list[tuple[int, str]]]:
    records: list[Rec] = []
    holes: list[tuple[int, str]] = []
    for step in found.steps():
        if isinstance(step, ImportHole):
            holes.append((step.until, str(step.cause)))
        else:
            records += records_of(step)
    return records, holes


class Copy:
    """A copy of the archive of one codec, to be changed."""

    def __init__(self, folder: Path, name: str) -> None:
        shutil.copytree(HERE / name, folder)
        self.path = folder
        self.manifest = json.loads((folder / "manifest.json").read_text())

    @property
    def first(self) -> dict[str, Any]:
        found: dict[str, Any] = self.manifest["topics"][0]["partitions"][0]
        return found

    def segment(self, index: int) -> Path:
        key: str = self.first["segments"][index]["key"]
        return self.path / key.partition("/")[2]

    def save(self) -> None:
        (self.path / "manifest.json").write_text(json.dumps(self.manifest))

    def partitions(self) -> list[ForeignPartition]:
        return find_partitions([self.path], every)

    def read(self) -> tuple[list[Rec], list[tuple[int, str]]]:
        return read(self.partitions()[0])


@pytest.fixture(params=ARCHIVES)
def copy(tmp_path: Path, request: pytest.FixtureRequest) -> Copy:
    return Copy(tmp_path / "copy", request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy", "plain")


@pytest.mark.parametrize("name", ARCHIVES)
def test_records_and_gaps_are_those_of_the_writing_program(name: str) -> None:
    first, second, third = find_partitions([HERE / name], every)
    assert (first.topic, [one.partition for one in (first, second, third)]) == ("orders", [0, 1, 2])
    assert first.cluster_id == ("" if name == "lz4" else "old-cluster")
    assert read(first) == (listed(0), [(100, "expired"), (140, "expired")])
    assert read(second) == (listed(1), [])
    assert read(third) == ([], [])


def rewritten(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the records of an uncompressed segment, and give it a right checksum."""
    content = path.read_bytes()
    content = content[:32] + change(content[32:-8])
    path.write_bytes(content + struct.pack("<I", zlib.crc32(content)) + b"BKAE")


OFFSET, TIME, CLUSTER = b"x-original-offset", b"x-original-timestamp", b"x-source-cluster"


def one_record(headers: list[tuple[bytes, bytes | None]]) -> Callable[[bytes], bytes]:
    def change(_: bytes) -> bytes:
        body = struct.pack("<qqiiH", 77, 100, -1, -1, len(headers))
        for key, value in headers:
            body += struct.pack("<H", len(key)) + key
            body += struct.pack("<i", -1) if value is None else struct.pack("<i", len(value)) + value
        return struct.pack("<I", len(body)) + body

    return change


def long(value: int) -> bytes:
    return struct.pack("<q", value)


ADDED = [(OFFSET, long(100)), (TIME, long(77))]
KEPT: dict[str, list[tuple[bytes, bytes | None]]] = {
    "other offset": [(OFFSET, long(99)), (TIME, long(77))],
    "other time": [(OFFSET, long(100)), (TIME, long(78))],
    "not the last": [*ADDED, (b"a", b"b")],
    "not the last of three": [*ADDED, (CLUSTER, b"c"), (b"a", b"b")],
    "other order": [*ADDED[::-1]],
    "cluster before": [(CLUSTER, b"c"), (OFFSET, long(100))],
    "null": [(OFFSET, None), (TIME, None)],
    "restored": [*ADDED, (b"x-source-partition", b"\0\0\0\0")],
}


def alone(copy: Copy, headers: list[tuple[bytes, bytes | None]]) -> Copy:
    del copy.first["segments"][1:]
    rewritten(copy.segment(0), one_record(headers))
    content = copy.segment(0).read_bytes()[:-8]
    head = content[:8] + struct.pack("<Qqq", 1, 100, 100)
    content = head + content[32:]
    copy.segment(0).write_bytes(content + struct.pack("<I", zlib.crc32(content)) + b"BKAE")
    copy.save()
    return copy


@pytest.mark.parametrize("name", KEPT)
def test_headers_that_a_backup_did_not_add_stay(plain: Copy, name: str) -> None:
    (record,) = alone(plain, KEPT[name]).read()[0]
    assert record.headers == tuple(KEPT[name])


@pytest.mark.parametrize("own", [[], [(b"a", None)], ADDED, [*ADDED, (CLUSTER, b"c")], [(CLUSTER, b"")]])
@pytest.mark.parametrize("added", [ADDED, [*ADDED, (CLUSTER, b"c")]])
def test_only_the_last_headers_of_a_backup_are_removed(
    plain: Copy, own: list[tuple[bytes, bytes | None]], added: list[tuple[bytes, bytes | None]]
) -> None:
    (record,) = alone(plain, [*own, *added]).read()[0]
    assert record.headers == tuple(own)


def test_a_broken_segment_is_a_hole_of_what_it_accounts_for(copy: Copy) -> None:
    path = copy.segment(1)
    whole = path.read_bytes()
    for at in (0, 4, 5, 40, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        records, holes = copy.read()
        assert records == [one for one in listed(0) if not 140 <= one.offset < 150]
        assert holes == [(100, "expired"), (140, "expired"), (150, "unreadable")]
    for content in (b"", whole[:20], whole[:-1], whole + b"more"):
        path.write_bytes(content)
        assert copy.read()[1][2:] == [(150, "unreadable")]
    path.unlink()
    assert copy.read()[1][2:] == [(150, "unreadable")]
    assert copy.partitions()[0].files == [copy.segment(0), copy.segment(2)]


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "fewer records": lambda body: body[: 4 + int.from_bytes(body[:4], "little")],
    "cut": lambda body: body[:-1],
    "more bytes": lambda body: body + b"\0",
    "a long record": lambda body: b"\xff\xff\xff\xff" + body[4:],
    "a short record": lambda body: b"\x19\0\0\0" + body[4:],
    "a long key": lambda body: body[:20] + b"\xff\xff\xff\x7f" + body[24:],
    "a key below null": lambda body: body[:20] + b"\xfe\xff\xff\xff" + body[24:],
    "an earlier offset": lambda body: body[:12] + long(139) + body[20:],
    "a later offset": lambda body: body[:12] + long(141) + body[20:],
    "a negative offset": lambda body: body[:12] + long(-1) + body[20:],
}


@pytest.mark.parametrize("name", WRONG)
def test_segments_with_a_right_checksum_around_wrong_records_are_damage(plain: Copy, name: str) -> None:
    rewritten(plain.segment(1), WRONG[name])
    records, holes = plain.read()
    assert [one for one in records if not 140 <= one.offset < 150] == [
        one for one in listed(0) if not 140 <= one.offset < 150
    ]
    assert all(one in listed(0) for one in records)
    assert holes[-1] == (0 if name == "more bytes" else 150, "unreadable")  # 0: no record is missing


def test_an_lz4_block_that_expands_to_too_much_is_left_out(tmp_path: Path) -> None:
    """300 MiB, in a whole block of 1.2 MB."""
    copy = Copy(tmp_path / "copy", "lz4")
    size = 300 * 1024 * 1024
    block = bytes(cramjam.lz4.compress_block(bytes(size), store_size=False))
    rewritten(copy.segment(1), lambda _: struct.pack("<I", size) + block)
    holes = [step for step in copy.partitions()[0].steps() if isinstance(step, ImportHole)]
    assert (holes[2].until, f"would expand to {size}" in holes[2].why) == (150, True)


def test_bytes_of_a_segment_that_are_read_take_no_memory(plain: Copy) -> None:
    path = plain.segment(1)
    bodies = (struct.pack("<qqiiH", 77, offset, -1, 2_000_000, 0) + bytes(2_000_000) for offset in range(140, 150))
    rewritten(path, lambda _: b"".join(struct.pack("<I", len(body)) + body for body in bodies))
    most = max(resident_bytes(path) for _ in plain.partitions()[0].steps())
    assert most < path.stat().st_size // 2


def test_a_bomb_is_left_out(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copy", "lz4")
    rewritten(copy.segment(1), lambda body: b"\xff\xff\xff\x3f" + body[4:])
    assert copy.read()[1][2:] == [(150, "unreadable")]


def test_offsets_that_no_segment_accounts_for_are_a_hole(copy: Copy) -> None:
    del copy.first["segments"][1]
    copy.save()
    assert copy.read()[1] == [(100, "expired"), (140, "expired"), (150, "unreadable")]
    copy.first["pruned"] = [{"start_offset": 140, "end_offset": 149}]
    copy.save()
    assert copy.read()[1] == [(100, "expired"), (140, "expired"), (150, "expired")]


@pytest.mark.parametrize("kind", ["gaps", "pruned"])
@pytest.mark.parametrize(("start", "end"), [(20, 10), (-5, 3), (0, 2**70), (2**63, 2**63 + 5)])
def test_gaps_that_cannot_be_are_refused(plain: Copy, kind: str, start: int, end: int) -> None:
    plain.first[kind] = [{"start_offset": start, "end_offset": end}]
    plain.save()
    with pytest.raises(UsageError, match=r"is no manifest.*offsets \("):
        plain.partitions()


def test_what_older_versions_could_not_keep_is_told(copy: Copy) -> None:
    assert not any("0.25" in note for note in copy.partitions()[0].notes)
    copy.manifest["isolation_level"] = "read_uncommitted"
    copy.save()
    assert any("aborted" in note for note in copy.partitions()[0].notes)
    for segment in copy.first["segments"]:
        del segment["covered_start_offset"], segment["covered_end_offset"]
    copy.save()
    notes = " ".join(copy.partitions()[0].notes)
    assert all(text in notes for text in ("0.25", "0.24", "0.18", "types of timestamps"))
    assert copy.read() == (listed(0), [(100, "expired"), (140, "expired")])


def test_other_folders_are_refused(copy: Copy) -> None:
    with pytest.raises(UsageError, match=r"has no manifest\.json.*: copy"):
        find_partitions([copy.path.parent], every)
    texts = (
        "{",
        "[]",
        '{"backup_id": "b"}',
        '{"backup_id": "b", "topics": [{"name": "t", "partitions": [7]}]}',
        '{"backup_id": "b", "topics": [{"name": "t", "partitions": [{"partition_id": Infinity, "segments": []}]}]}',
    )
    for text in texts:
        (copy.path / "manifest.json").write_text(text)
        with pytest.raises(UsageError, match=r"manifest\.json: is no "):
            copy.partitions()
    for key in ("../../etc/passwd", "zstd/topics/orders/partition=0/../x", "/etc/passwd"):
        copy.first["segments"][0]["key"] = key
        copy.save()
        with pytest.raises(UsageError, match="is no segment of orders-0"):
            copy.partitions()


@pytest.mark.parametrize("name", ARCHIVES)
def test_damaged_segments_never_crash_nor_give_a_record_that_was_not_written(
    tmp_path: Path, name: str, seed: int
) -> None:
    """Their checksum is right, so that what is inside is read."""
    copy, rng = Copy(tmp_path / "copy", name), random.Random(seed)
    path = copy.segment(1)
    whole = path.read_bytes()
    for _ in range(60):
        body = bytearray(whole[:-8])
        for _ in range(rng.choice([1, 1, 3])):
            body[rng.randrange(6, len(body))] = rng.randrange(256)
        del body[rng.choice([len(body), rng.randrange(40, len(body))]) :]
        path.write_bytes(body + struct.pack("<I", zlib.crc32(body)) + b"BKAE")
        records, _ = copy.read()
        offsets = [one.offset for one in records]
        assert offsets == sorted(set(offsets))
        assert [one for one in records if not 140 <= one.offset < 150] == [
            one for one in listed(0) if not 140 <= one.offset < 150
        ]
