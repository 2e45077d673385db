"""Objects straight to Arrow: chosen columns and rows, nothing else; broken ones refused as the frames' decoder refuses them.

Mutated containers are in tests/faults/test_codec_fuzz.py.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from archiver.codec import arrow_scan
from archiver.codec.arrow_scan import COLUMN_TYPES, Scanned, Scanner
from archiver.codec.avro import decode_blocks, decode_header, split_blocks
from archiver.codec.compression import BlockCodec
from archiver.codec.kernels.varint import encode_long
from archiver.codec.selection import ALL_RECORDS, Selection
from archiver.errors import CorruptSegmentError
from tests.support.frames import records_of
from tests.support.old_archive import old_file
from tests.support.records import ALL_CLASSES, Rec, classes_of, generate, missing_classes, record_lists
from tests.support.scans import is_selected, rows_of, scan_row
from tests.support.segments import written

ALL = tuple(COLUMN_TYPES)


def scan(
    content: bytes, columns: tuple[str, ...] = ALL, selection: Selection = ALL_RECORDS, batch_bytes: int = 1 << 20
) -> list[dict[str, Any]]:
    scanner = Scanner(topic="orders", partition=3, columns=columns, batch_bytes=batch_bytes)
    header, rows = decode_header(content, "key.data"), list[dict[str, Any]]()
    # None is held: each has room for a whole block, and thousands of them are more addresses than machines have memory.
    for one in scanner.scan(memoryview(content), header, "key.data", selection):
        assert tuple(one.batch.schema.names) == columns
        rows += rows_of(one.batch)
    return rows


def expected(
    records: list[Rec], columns: tuple[str, ...] = ALL, selection: Selection = ALL_RECORDS
) -> list[dict[str, Any]]:
    return [scan_row(record, columns, "orders", 3) for record in records if is_selected(record, selection)]


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20, 1 << 30])
def test_two_thousand_records_of_every_class(seed: int, tmp_path: Path, batch_bytes: int) -> None:
    records = [*generate(seed, 2000), *generate(seed, 9, first_offset=2000, timestamp_type=-1)]
    assert missing_classes(classes_of(records), ALL_CLASSES) == []
    content, _ = written(tmp_path, records)
    assert scan(content, batch_bytes=batch_bytes) == expected(records)


@pytest.mark.parametrize("most_rows", [1, 7, 1999])
def test_blocks_of_very_many_records_come_in_parts(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    monkeypatch.setattr(arrow_scan, "MOST_ARROW_ROWS", most_rows)
    records = generate(seed, 2000)
    content, _ = written(tmp_path, records)
    scanner = Scanner(topic="orders", partition=3, columns=ALL)
    header = decode_header(content, "key.data")
    rows: list[dict[str, Any]] = []
    last: Scanned | None = None
    for last in scanner.scan(memoryview(content), header, "key.data", ALL_RECORDS):
        assert last.batch.num_rows <= most_rows
        rows += rows_of(last.batch)
    assert rows == expected(records)
    assert last is not None
    assert (last.counted, last.last_offset) == (2000, records[-1].offset)
    some = Selection(first_offset=records[500].offset, last_offset=records[1500].offset)
    assert scan(content, selection=some) == expected(records, selection=some)


@pytest.mark.parametrize(("surplus", "reason"), [(b"\0", "bytes are left"), (b"", "a field runs past")])
def test_a_block_in_parts_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surplus: bytes, reason: str
) -> None:
    monkeypatch.setattr(arrow_scan, "MOST_ARROW_ROWS", 2)
    content, _ = written(tmp_path, generate(1, 5), codec=BlockCodec.NULL)
    header = decode_header(content, "key.data")
    (block,) = split_blocks(memoryview(content), header, "key.data")
    body = bytes(block.payload) + surplus
    count = 5 if surplus else 6
    broken = content[: header.size] + encode_long(count) + encode_long(len(body)) + body + header.sync
    with pytest.raises(CorruptSegmentError, match=f"record 5: {reason}"):
        scan(broken)


@settings(max_examples=30)
@given(record_lists(extreme=True, least=1, most=8, largest_gap=2))
def test_any_records(tmp_path_factory: pytest.TempPathFactory, records: list[Rec]) -> None:
    content, _ = written(tmp_path_factory.mktemp("spool"), records)
    assert scan(content) == expected(records)
    for selection in (Selection(first_offset=2, last_offset=4), Selection(from_ms=0), Selection(until_ms=10**12)):
        columns = ("timestampMs", "headers", "offset")
        assert scan(content, columns, selection) == expected(records, columns, selection)


NOT_TEXT = b"caf\xe9\x80"  # what can be read of it is longer


@pytest.mark.parametrize("kind", ["v1.0", "v2.0, a map", "v2.0, a list"])
def test_a_key_of_a_header_that_is_no_text_keeps_its_bytes(tmp_path: Path, kind: str) -> None:
    """A map of Avro has nothing else; who wrote a list that is none of ours may have left out `rawKey`."""
    headers = ((b"HEAD!", b"x"),) * (2 if kind == "v2.0, a list" else 1)
    records = [Rec(at, at, 0, None, b"v", headers) for at in range(2000)]
    content = old_file(records, "orders", 3) if kind == "v1.0" else written(tmp_path, records, codec=BlockCodec.NULL)[0]
    content = content.replace(b"HEAD!", NOT_TEXT)
    kept = tuple((NOT_TEXT, value) for _, value in headers)
    view, header = memoryview(content), decode_header(content, "k")
    frames = decode_blocks(view, header, topic="orders", partition=3, key="k")
    assert {record.headers for record in records_of(*frames)} == {kept}
    assert {tuple(row["headers"]) for row in scan(content)} == {kept}
    scanner = Scanner(topic="orders", partition=3, columns=("headers",))
    (one,) = scanner.scan(view, header, "k", ALL_RECORDS)
    one.batch.validate(full=True)
    element = {"key": "caf\ufffd\ufffd", "value": b"x", "rawKey": NOT_TEXT}
    assert one.batch.column("headers").to_pylist() == [[element] * len(headers)] * 2000


def test_what_a_scan_has_met_counts_also_what_is_not_selected(tmp_path: Path) -> None:
    content, _ = written(tmp_path, [Rec(at, at, 0, None, b"v") for at in range(5, 25)])
    scanner = Scanner(topic="orders", partition=3, columns=("offset",))
    nothing = Selection(first_offset=100)
    (found,) = scanner.scan(memoryview(content), decode_header(content, "k"), "k", nothing)
    assert (found.counted, found.last_offset, found.batch.num_rows) == (20, 24, 0)


def test_offsets_that_fall_are_refused(tmp_path: Path) -> None:
    content, _ = written(tmp_path, [Rec(at, at, 0, None, b"v") for at in range(5)], codec=BlockCodec.NULL)
    block = content[decode_header(content, "k").size :]
    with pytest.raises(
        CorruptSegmentError, match=r"key\.data: the block before byte \d+, record 0: offsets do not rise"
    ):
        scan(content + block)


def test_another_partition_is_refused(tmp_path: Path) -> None:
    content, _ = written(tmp_path, [Rec(0, 0, 0, None, b"v")])
    scanner = Scanner(topic="orders", partition=4, columns=("offset",))
    with pytest.raises(CorruptSegmentError, match="a record of another topic or partition"):
        list(scanner.scan(memoryview(content), decode_header(content, "k"), "k", ALL_RECORDS))
