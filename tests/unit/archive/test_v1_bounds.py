"""What the ends of a v1.0 object tell (docs/format.md §3.2), against what fastavro reads in all of it."""

import io
import random
from collections.abc import Sequence
from typing import Any, cast

import fastavro
import pytest

from archiver.archive.format.layout import SegmentKey
from archiver.archive.segments import v1_bounds
from archiver.archive.segments.segment_facts import Bounds
from archiver.archive.segments.v1_bounds import read_bounds
from archiver.codec import schemas
from archiver.codec.kernels.varint import encode_long
from archiver.errors import CorruptSegmentError, NotWholeError
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore
from tests.support.old_archive import VARIANTS, old_file, old_records
from tests.support.records import Rec

TOPIC, PARTITION = "orders", 3
KEY = SegmentKey(topic=TOPIC, partition=PARTITION, base=100)
SYNC = bytes(range(100, 116))


class CountingRanges(MemoryStore):
    """Counts the bytes that were asked for."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.put_if_absent("name", content, {}, kind=ObjectKind.FACT)
        self.size = len(content)
        self.read_bytes = 0
        self.requests = 0

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        assert 0 <= start < stop <= self.size
        self.read_bytes += stop - start
        self.requests += 1
        return super().get_range(key, start, stop)


def bounds_of(content: bytes, key: SegmentKey = KEY) -> Bounds | None:
    return read_bounds(CountingRanges(content), key, "name", len(content))


def offsets_in(content: bytes) -> list[int]:
    """Of all blocks that are whole: fastavro stops at one that is not."""
    found: list[int] = []
    try:
        found.extend(cast("dict[str, Any]", row)["offset"] for row in fastavro.reader(io.BytesIO(content)))
    except Exception:  # noqa: BLE001 - whatever it makes of a cut
        return found
    return found


def file_of(records: Sequence[Rec], **options: Any) -> bytes:  # noqa: ANN401 - fastavro's
    return old_file(records, TOPIC, PARTITION, **options)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
@pytest.mark.parametrize("schema", VARIANTS)
@pytest.mark.parametrize("sync_interval", [1, 300, 16_000, 10**7])
def test_the_first_and_the_last_offset(schema: str, codec: str, sync_interval: int, seed: int) -> None:
    records = old_records(seed, 200, first_offset=100, schema=schema)
    content = file_of(records, schema=schema, codec=codec, sync_interval=sync_interval)
    assert bounds_of(content) == Bounds(base=100, first=records[0].offset, last=records[-1].offset)


def test_blocks_of_any_size_at_any_place(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small pieces every block is cut by some of them, and blocks are larger than a piece."""
    monkeypatch.setattr(v1_bounds, "END_PIECE_BYTES", 1024)
    pick = random.Random(seed)
    for _ in range(150):
        count = pick.randint(1, 30)
        records = [
            Rec(100 + 3 * at, at, -1, None, pick.randbytes(pick.choice([0, 10, 500, 5000])), ()) for at in range(count)
        ]
        content = file_of(records, sync_interval=pick.choice([1, 100, 3000, 10**6]))
        assert bounds_of(content) == Bounds(base=100, first=100, last=records[-1].offset)


def test_a_large_object_is_not_read_as_a_whole() -> None:
    records = [Rec(100 + at, at, -1, b"k", random.Random(at).randbytes(1000)) for at in range(5000)]
    store = CountingRanges(file_of(records))
    assert store.size > 5_000_000
    assert read_bounds(store, KEY, "name", store.size) == Bounds(base=100, first=100, last=5099)
    assert store.requests == 2
    assert store.read_bytes <= 2 * v1_bounds.END_PIECE_BYTES


def test_cut_anywhere(seed: int) -> None:
    """Cut between blocks it is a shorter valid file, to everybody; cut anywhere else that is told."""
    records = old_records(seed, 12, first_offset=100)
    content = file_of(records, sync_interval=1)
    told = 0
    for length in range(len(content)):
        cut = content[:length]
        left = offsets_in(cut)
        try:
            found = bounds_of(cut)
        except NotWholeError:
            told += 1
        else:
            assert found == Bounds(base=100, first=left[0], last=left[-1])
            assert cut.endswith(content[-16:])
    assert told == len(content) - 11  # 12 blocks end, and the last one is not cut


def test_markers_within_records_are_no_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may archive archives."""
    monkeypatch.setattr(v1_bounds, "END_PIECE_BYTES", 1024)
    fake = SYNC + encode_long(1) + encode_long(0)
    records = [Rec(100 + at, 0, -1, SYNC, fake * 50 + SYNC) for at in range(20)]
    for sync_interval in (1, 2000, 10**6):
        content = file_of(records, sync_interval=sync_interval, sync_marker=SYNC)
        assert bounds_of(content) == Bounds(base=100, first=100, last=119)


def test_blocks_without_records_are_skipped() -> None:
    empty = encode_long(0) + encode_long(0) + SYNC
    content = file_of([Rec(100 + at, 0, -1, b"k", b"v") for at in range(3)], sync_interval=1, sync_marker=SYNC)
    header = file_of([], sync_marker=SYNC)
    padded = header + empty * 3 + content[len(header) :] + empty * 2
    assert offsets_in(padded) == [100, 101, 102]
    assert bounds_of(padded) == Bounds(base=100, first=100, last=102)


def test_a_name_below_the_first_record_is_one_of_a_position() -> None:
    assert bounds_of(file_of([Rec(107, 0, -1, b"k", b"v")])) == Bounds(base=100, first=107, last=107)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (file_of([Rec(99, 0, -1, None, b""), Rec(100, 0, -1, None, b"")]), "from offset 99 to 100; its name says"),
        (file_of([Rec(101, 0, -1, None, b""), Rec(100, 0, -1, None, b"")]), "from offset 101 to 100; its name says"),
        (file_of([]), "has no record"),
        (b"", "not an Avro object container file"),
        (b"no Avro" * 100, "not an Avro object container file"),
        (old_file([Rec(100, 0, -1, None, b"")], "others", PARTITION), "a record of another topic or partition"),
        (old_file([Rec(100, 0, -1, None, b"")], TOPIC, 4), "a record of another topic or partition"),
        (file_of([Rec(100, 0, -1, None, b"")])[:-1], "cut or broken in the block at byte"),
        (file_of([Rec(at, 0, -1, None, b"") for at in (100, 101)], sync_interval=1)[:-1], "does not end with"),
    ],
    ids=["below its name", "falling", "empty", "no bytes", "garbage", "topic", "partition", "cut", "cut later"],
)
def test_what_cannot_be_is_told(content: bytes, told: str) -> None:
    with pytest.raises(NotWholeError, match=told) as raised:
        bounds_of(content)
    assert "name" in str(raised.value)


def test_an_object_of_ours_that_lost_its_metadata_is_damage() -> None:
    with pytest.raises(CorruptSegmentError, match=r"has no archiver-\* metadata"):
        bounds_of(file_of([], schema=schemas.RECORD))


def test_an_object_that_is_gone_is_none() -> None:
    assert read_bounds(MemoryStore(), KEY, "name", 10) is None
