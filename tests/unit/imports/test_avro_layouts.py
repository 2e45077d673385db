"""Avro files of other tools, written by fastavro: layouts, header values in Java's serialization, overlaps, damage, refusals."""

import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest

from archiver.errors import UsageError
from archiver.imports.filling.partition_fill import ImportHole
from archiver.imports.tools.avro_layouts import KEEP, TRIVADIS, find_partitions
from tests.support.frames import records_of
from tests.support.mapped_memory import resident_bytes
from tests.support.records import Headers, Rec

SYNC = b"0123456789abcdef"
TRIVADIS_SCHEMA = fastavro.parse_schema(
    {
        "namespace": "ch.tbd.kafka.backuprestore.model.avro",
        "type": "record",
        "name": "AvroKafkaRecord",
        "fields": [
            {"name": "topic", "type": {"type": "string", "avro.java.string": "String"}},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp", "type": "long"},
            {"name": "key", "type": ["bytes", "null"]},
            {"name": "value", "type": ["bytes", "null"]},
            {"name": "headers", "type": [{"type": "map", "values": "bytes"}, "null"]},
        ],
    }
)
KEEP_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "KafkaRecord",
        "namespace": "github.utilitywarehouse.kafka_backup_restore",
        "fields": [
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
            {"name": "headers", "type": {"type": "map", "values": "bytes"}},
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "timestamp", "type": "long"},
            {"name": "offset", "type": "long"},
        ],
    }
)
SCHEMAS = {TRIVADIS: TRIVADIS_SCHEMA, KEEP: KEEP_SCHEMA}


def every(_: str) -> bool:
    return True


def rec(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = ()) -> Rec:
    return Rec(offset, 1000 + offset, -1, key, value, headers)


def avro(
    layout: str, records: Iterable[Rec], *, topic: str = "orders", codec: str = "deflate", block: int = 200
) -> bytes:
    target = io.BytesIO()
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": 0,
            "offset": one.offset,
            "timestamp": one.timestamp,
            "key": one.key,
            "value": one.value,
            "headers": {key.decode(): value for key, value in one.headers},
        }
        for one in records
    ]
    fastavro.writer(target, SCHEMAS[layout], rows, codec=codec, sync_marker=SYNC, sync_interval=block)
    return target.getvalue()


class Folder:
    """A copy of a tool's files."""

    def __init__(self, path: Path, layout: str) -> None:
        self.path = path
        self.layout = layout

    def write(self, first: int, content: bytes | Iterable[Rec], *, under: str = "orders/0") -> Path:
        digits = 15 if self.layout == TRIVADIS else 19
        return self.put(f"{under}/orders-0-{first:0{digits}}.avro", content)

    def put(self, name: str, content: bytes | Iterable[Rec]) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else avro(self.layout, content))
        return file

    def read(self, *, layout: str = "", empty_is_null: bool = False) -> list[Rec | ImportHole]:
        (found,) = find_partitions([self.path], every, layout=layout or self.layout, empty_is_null=empty_is_null)
        assert (found.topic, found.partition) == ("orders", 0)
        return [one for step in found.steps() for one in ([step] if isinstance(step, ImportHole) else records_of(step))]


@pytest.fixture(params=[TRIVADIS, KEEP])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(tmp_path / "files", request.param)


@pytest.fixture
def trivadis(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "files", TRIVADIS)


def split(found: Sequence[Rec | ImportHole]) -> tuple[list[Rec], list[ImportHole]]:
    return [one for one in found if isinstance(one, Rec)], [one for one in found if isinstance(one, ImportHole)]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_files_are_read_in_the_order_of_their_offsets(files: Folder, codec: str) -> None:
    records = [rec(5, None, b""), rec(6, b"", None), rec(9, b"key", bytes(300)), rec(10), rec(2000)]
    files.write(10, avro(files.layout, records[3:], codec=codec))
    files.write(5, avro(files.layout, records[:3], codec=codec))
    found, holes = split(files.read())
    assert found == records
    assert [(one.until, str(one.cause)) for one in holes] == [(5, "expired")]


JAVA = {  # made by java.io.ObjectOutputStream
    "bytes": ("aced0005757200025b42acf317f8060854e0020000787000000003010203", b"\x01\x02\x03"),
    "no bytes": ("aced0005757200025b42acf317f8060854e0020000787000000000", b""),
    "text": ("aced00057400136772c3b6c39f6520eda0bdedb880c080e282ac", "größe 😀\0€".encode()),
    "no text": ("aced0005740000", b""),
    "long text": ("aced00057c0000000000011170" + "78" * 70_000, b"x" * 70_000),
    "many bytes": ("aced0005757200025b42acf317f8060854e0020000787000011170" + "00" * 70_000, bytes(70_000)),
}
KEPT = {
    "integer": "aced0005737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c7565787200106a6176"
    "612e6c616e672e4e756d62657286ac951d0b94e08b020000787000000007",
    "half a surrogate pair": "aced000574000461eda0bd",
    "null": "aced000570",
    "cut": "aced0005757200025b42acf317f8060854e00200007870000000030102",
    "more": "aced000574000161ff",
    "not serialized": "00ff",
    "nothing": "",
    "header alone": "aced0005",
}


@pytest.mark.parametrize("name", JAVA)
def test_serialized_header_values_are_unwrapped(trivadis: Folder, name: str) -> None:
    packed, plain = JAVA[name]
    trivadis.write(0, [rec(0, headers=((b"first", bytes.fromhex(packed)), (b"second", b"")))])
    assert trivadis.read() == [rec(0, headers=((b"first", plain), (b"second", b"")))]


def test_other_header_values_stay_as_they_are_and_are_counted(
    trivadis: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    headers = tuple((name.encode(), bytes.fromhex(value)) for name, value in KEPT.items())
    trivadis.write(0, [rec(0, headers=headers), rec(1)])
    assert trivadis.read() == [rec(0, headers=headers), rec(1)]
    assert f"{len(KEPT)} header values are neither byte[] nor String" in caplog.text


def test_empty_is_null_where_asked(trivadis: Folder) -> None:
    trivadis.write(0, [rec(0, b"", b""), rec(1, b"k", b""), rec(2, None, b"v")])
    assert trivadis.read() == [rec(0, b"", b""), rec(1, b"k", b""), rec(2, None, b"v")]
    assert trivadis.read(empty_is_null=True) == [rec(0, None, None), rec(1, b"k", None), rec(2, None, b"v")]
    with pytest.raises(UsageError, match="--empty-is-null belongs to --layout trivadis"):
        trivadis.read(layout=KEEP, empty_is_null=True)


def test_every_name_of_trivadis_is_known(trivadis: Folder) -> None:
    trivadis.put("topics/orders/partition=0/orders+0-7.data", [rec(0), rec(1)])
    trivadis.write(2, [rec(2)])
    trivadis.write(3, [rec(3)], under="orders/instance-a/0")
    trivadis.put("orders/0/README.txt", b"no record")
    assert trivadis.read() == [rec(0), rec(1), rec(2), rec(3)]


def test_overlapping_files_give_each_record_once(files: Folder) -> None:
    records = [rec(offset) for offset in range(0, 600, 2)]
    files.write(0, records[:200])
    files.write(100, records[50:120])
    files.write(102, records[51:300])
    files.write(590, records[295:])
    assert files.read() == records


def test_equal_offsets_with_other_bytes_are_damage(files: Folder) -> None:
    files.write(0, [rec(0), rec(1), rec(2), rec(3)])
    files.write(1, [rec(1), rec(2, value=b"other"), rec(3), rec(4)])
    found, (hole,) = split(files.read())
    assert found == [rec(0), rec(1), rec(3), rec(4)]
    assert (hole.until, str(hole.cause)) == (3, "unreadable")
    assert "offset 2 has other records in" in hole.why


def test_headers_of_equal_records_may_be_in_another_order(files: Folder) -> None:
    headers = tuple((b"h%d" % number, b"%d" % number) for number in range(5))
    files.write(0, [rec(0), rec(1, headers=headers)])
    files.write(1, [rec(1, headers=headers[::-1]), rec(2)])
    assert files.read() == [rec(0), rec(1, headers=headers), rec(2)]
    files.write(1, [rec(1, headers=(*headers[:4], (b"h4", b"5")))])
    assert len(split(files.read())[1]) == 1


def blocks_of(content: bytes) -> list[int]:
    """Return where blocks begin, and the end."""
    return [at + len(SYNC) for at in range(len(content)) if content.startswith(SYNC, at)]


def test_a_broken_block_is_a_hole_up_to_the_next(files: Folder) -> None:
    content = avro(files.layout, [rec(offset, value=bytes(100)) for offset in range(10)], codec="null")
    starts = blocks_of(content)
    broken = bytearray(content)
    broken[starts[1] + 3] ^= 0xFF
    broken[starts[1] + 1] ^= 0x40
    path = files.write(0, bytes(broken))
    found, (hole,) = split(files.read())
    assert [one.offset for one in found] == [0, 1, *range(4, 10)]
    assert (hole.until, str(hole.cause)) == (4, "unreadable")
    assert f"bytes {starts[1]} to {starts[2]} of {path}" in hole.why


def test_another_file_fills_what_damage_has_taken(files: Folder) -> None:
    records = [rec(offset, value=bytes(100)) for offset in range(10)]
    content = avro(files.layout, records, codec="null")
    start = blocks_of(content)[1]
    files.write(0, content[:start] + bytes(8) + content[start + 8 :])
    files.write(1, records[1:6])
    found, (hole,) = split(files.read())
    assert found == records
    assert hole.until == 0  # the damage is reported, and no offset is missing


@pytest.mark.parametrize("cut", [3, 40, -1, -20])
def test_a_cut_file_is_reported(files: Folder, cut: int) -> None:
    content = avro(files.layout, [rec(offset) for offset in range(10)], block=10_000)
    files.write(0, content[:cut])
    found, holes = split(files.read())
    assert found == []
    assert [one.until for one in holes] == [0]
    files.write(20, [rec(20)])
    found, holes = split(files.read())
    assert found == [rec(20)]
    assert [(one.until, str(one.cause)) for one in holes] == [(20, "unreadable")]


def test_offsets_that_do_not_rise_are_damage(files: Folder) -> None:
    files.write(5, [rec(5), rec(4), rec(6)])
    files.write(7, [rec(7)])
    found, holes = split(files.read())
    assert found == [rec(7)]
    assert "do not rise" in holes[-1].why
    assert holes[-1].until == 7


def test_records_of_another_topic_are_damage(files: Folder) -> None:
    files.write(0, avro(files.layout, [rec(0)], topic="others"))
    files.write(1, [rec(1)])
    found, (hole,) = split(files.read())
    assert found == [rec(1)]
    assert "another topic or partition" in hole.why


def test_other_files_are_refused(files: Folder, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match=r"no file of layout|is no directory"):
            find_partitions([path], every, layout=files.layout, empty_is_null=False)
    other = next(one for one in SCHEMAS if one != files.layout)
    files.write(0, [rec(0)])
    files.write(1, avro(other, [rec(1)]))
    with pytest.raises(UsageError, match=f"its schema is not that of --layout {files.layout}"):
        files.read()


def test_several_folders_may_have_the_same_partition(files: Folder, tmp_path: Path) -> None:
    files.write(0, [rec(0), rec(1)])
    second = Folder(tmp_path / "second", files.layout)
    second.write(2, [rec(2)])
    (found,) = find_partitions([files.path, second.path], every, layout=files.layout, empty_is_null=False)
    read = [one for step in found.steps() if not isinstance(step, ImportHole) for one in records_of(step)]
    assert (read, found.problems) == ([rec(0), rec(1), rec(2)], ())


def test_files_of_another_name_are_reported(files: Folder) -> None:
    files.write(0, [rec(0)])
    for name in ("orders-0-7.avro", "more.data", "notes.txt"):
        (files.path / name).write_bytes(b"")
    (found,) = find_partitions([files.path], every, layout=files.layout, empty_is_null=False)
    (problem,) = found.problems
    assert problem.endswith(
        f"/more.data and 1 more files: these are no names of layout {files.layout}, and not imported"
    )


def test_bytes_that_are_read_take_no_memory(files: Folder) -> None:
    content = avro(files.layout, [rec(offset, value=bytes(100_000)) for offset in range(300)], codec="null")
    file = files.write(0, content)
    (found,) = find_partitions([files.path], every, layout=files.layout, empty_is_null=False)
    most = max(resident_bytes(file) for number, _ in enumerate(found.steps()) if number % 20 == 0)  # each look is slow
    assert most < len(content) // 4


def test_damaged_files_never_crash_nor_stop_the_others(files: Folder, seed: int) -> None:
    rng = random.Random(seed)
    whole = avro(files.layout, [rec(offset, headers=((b"h", b"v"),)) for offset in range(30)], codec="null")
    for _ in range(100):
        content = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        del content[rng.choice([len(content), rng.randrange(len(content))]) :]
        files.write(0, bytes(content))
        files.write(1000, [rec(1000), rec(1001)])
        try:
            found, _ = split(files.read())
        except UsageError as error:  # its header names another schema
            assert "its schema is not" in str(error)  # noqa: PT017 - and nothing else
            continue
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        assert {1000, 1001} <= {*offsets} or max(offsets) > 1001
