"""Two folds as the first version that had them wrote them, one made of the other: the files of `folds-1` are never made again (docs/format.md §12)."""

import hashlib
import struct
from pathlib import Path

import pytest

from archiver.archive.format.control import decode_fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.doubts import Doubt
from archiver.groups.log.fold_object import FOLD_DIGEST, check_fold
from archiver.groups.log.folds import Folds, Reach, fold_frames
from archiver.store.port import ObjectKind
from tests.support.frames import records_of
from tests.support.memory_store import MemoryStore
from tests.support.offsets_archive import doubts_of
from tests.support.records import NOW_MS, Rec

EXPECTED = Path(__file__).parent / "folds-1"


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _key(group: str, kind: int = 1) -> bytes:
    return struct.pack(">h", kind) + _text(group) + _text("orders") + struct.pack(">i", 3)


def _value(offset: int) -> bytes:
    return struct.pack(">hqi", 3, offset, 1) + _text("m") + struct.pack(">q", NOW_MS)


RECORDS = [
    Rec(0, NOW_MS, 0, _key("billing"), _value(10)),
    Rec(1, NOW_MS + 5, 0, struct.pack(">h", 2) + _text("billing"), b"members"),
    Rec(2, NOW_MS + 1, 0, struct.pack(">h", 9) + b"of a share group", b"state"),
    Rec(3, NOW_MS + 2, 0, _key("billing", kind=0), _value(11)),
    Rec(7, NOW_MS + 3, 0, _key("billing"), None),
    Rec(8, NOW_MS + 4, 0, _key("mail"), _value(2**63 - 1)),
    Rec(11, NOW_MS + 4, 0, None, b"nothing of ours"),
]
KEPT = [RECORDS[3], Rec(1, NOW_MS + 5, 0, RECORDS[1].key, b""), RECORDS[4], RECORDS[5]]


@pytest.fixture
def archive() -> Archive:
    found = Archive(MemoryStore(), Layout())
    for path in sorted(EXPECTED.rglob("*.*")):
        content = path.read_bytes()
        metadata = {FOLD_DIGEST: hashlib.sha256(content).hexdigest()} if path.suffix == ".avro" else {}
        key = f"control/{path.relative_to(EXPECTED)}"
        found.store.put_if_absent(key, content, metadata, kind=ObjectKind.FACT)
    return found


def test_both_folds_say_what_was_written(archive: Archive) -> None:
    folds = Folds.of(archive, pytest.fail)
    reaches = [Reach(0, LAST_LONG)]
    newest, earlier = folds.newest(reaches, 7), folds.smallest(reaches, 7, 1)
    assert newest is not None
    assert earlier is not None
    assert [*records_of(*fold_frames(archive, newest))] == sorted(KEPT, key=lambda one: one.offset)
    assert [one.offset for one in records_of(*fold_frames(archive, earlier))] == [1, 3]
    assert (newest.facts.next, newest.facts.records, newest.facts.others) == (12, 4, 2)
    assert (newest.facts.first_ms, newest.facts.last_ms) == (NOW_MS, NOW_MS + 5)
    sources = newest.facts.sources
    assert (sources.earlier_next, sources.earlier_sha256, sources.objects) == (5, earlier.sha256, 1)
    assert doubts_of(newest.facts) == [Doubt(0, 11, needs_later=False)]


def test_each_file_is_as_the_format_says(archive: Archive) -> None:
    keys = [item.key for item in archive.store.list("control/")]
    assert len(keys) == 4
    for key in keys:
        content, metadata = archive.store.get(key) or (b"", {})
        fold = archive.layout.parse_fold(key)
        if fold is not None:
            check_fold(content, metadata, fold, key)
        else:
            assert encode_fact(decode_fact(content, key)) == content
