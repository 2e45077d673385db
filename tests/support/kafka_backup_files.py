"""Target directories of itadventurer/kafka-backup, made byte by byte after its RecordSerde, SegmentIndex and PartitionIndex; a reader of them."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.records import Rec

CREATE_TIME_WITHOUT_TIME = -2


def blob(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def stored(record: Rec) -> bytes:
    kind, time = record.timestamp_type, struct.pack(">q", record.timestamp)
    if kind == -1:
        time = b""
    elif kind == 0 and record.timestamp == -1:
        kind, time = CREATE_TIME_WITHOUT_TIME, b""
    headers = b"".join(blob(key) + blob(value) for key, value in record.headers)
    head = struct.pack(">qi", record.offset, kind) + time
    return head + blob(record.key) + blob(record.value) + struct.pack(">i", len(record.headers)) + headers


@dataclass
class Segment:
    """A segment file with its index, as the tool appends to them."""

    start: int
    records: bytearray = field(default_factory=lambda: bytearray(b"\x01"))
    index: bytearray = field(default_factory=lambda: bytearray(b"\x01"))

    def add(self, *records: Rec, confirmed: bool = True) -> "Segment":
        for record in records:
            content = stored(record)
            if confirmed:
                self.index += struct.pack(">qqq", record.offset, len(self.records), len(content))
            self.records += content
        return self


@dataclass
class KafkaBackupFolder:
    """A target directory."""

    path: Path

    def write(self, topic: str, partition: int, *segments: Segment, groups: Mapping[str, int] | None = None) -> None:
        folder = self.path / topic
        folder.mkdir(parents=True, exist_ok=True)
        for former in folder.glob(f"segment_partition_{partition:03d}_*"):
            former.unlink()
        listed = b"\x01"
        for segment in segments:
            name = f"segment_partition_{partition:03d}_from_offset_{segment.start:010d}"
            (folder / f"{name}_records").write_bytes(segment.records)
            (folder / f"{name}_index").write_bytes(segment.index)
            listed += blob(name.encode()) + struct.pack(">q", segment.start)
        (folder / f"index_partition_{partition:03d}").write_bytes(listed)
        if groups is not None:
            (folder / f"consumer_offsets_partition_{partition:03d}").write_text(json.dumps(groups))


def read_topic(folder: Path, partition: int) -> list[Rec]:
    """Read a partition as the tool's own reader does: the listed segments, each up to its last index entry."""
    listed, found = (folder / f"index_partition_{partition:03d}").read_bytes(), list[Rec]()
    assert listed[0] == 1
    position, previous = 1, -1
    while position < len(listed):
        (length,) = struct.unpack_from(">i", listed, position)
        name = listed[position + 4 : position + 4 + length].decode()
        (start,) = struct.unpack_from(">q", listed, position + 4 + length)
        assert start > previous
        previous = start
        position += 12 + length
        found += _read_segment((folder / f"{name}_records").read_bytes(), (folder / f"{name}_index").read_bytes())
    return found


def _read_segment(content: bytes, index: bytes) -> list[Rec]:
    assert content[0] == index[0] == 1
    assert not (len(index) - 1) % 24
    found, position = [], 1
    for offset, start, length in struct.iter_unpack(">qqq", index[1:]):
        assert start == position
        record, position = read_record(content, position)
        assert (record.offset, position) == (offset, start + length)
        found.append(record)
    assert position == len(content)
    return found


def read_record(content: bytes, position: int) -> tuple[Rec, int]:
    offset, kind = struct.unpack_from(">qi", content, position)
    position, time = position + 12, -1
    if kind >= 0:
        (time,) = struct.unpack_from(">q", content, position)
        position += 8
    key, position = _read_blob(content, position)
    value, position = _read_blob(content, position)
    (count,) = struct.unpack_from(">i", content, position)
    position, headers = position + 4, []
    for _ in range(count):
        name, position = _read_blob(content, position)
        text, position = _read_blob(content, position)
        assert name is not None
        headers.append((name, text))
    return Rec(offset, time, 0 if kind == CREATE_TIME_WITHOUT_TIME else kind, key, value, tuple(headers)), position


def _read_blob(content: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", content, position)
    position += 4
    if length < 0:
        return None, position
    assert len(content) - position >= length
    return content[position : position + length], position + length


def all_kinds(first: int = 0) -> Sequence[Rec]:
    """Records of every kind that the format has."""
    headers = ((b"h", b""), (b"h", None), (b"", b"x" * 200), ("ü".encode(), b"y"))
    return [
        Rec(first, 1_600_000_000_000, 0, b"k", b"v"),
        Rec(first + 1, 1_600_000_000_001, 1, None, b""),
        Rec(first + 2, -1, -1, b"", None),
        Rec(first + 3, -1, 0, None, None, headers),
        Rec(first + 7, 0, 0, b"k" * 300, b"v" * 70_000, headers[:1]),
    ]
