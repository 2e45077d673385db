"""What `cat` prints of a record does not depend on how much of it is read at once."""

import json
import math

import pytest

import archiver.archive.reading.plain_records
from archiver.archive.reading.plain_records import frame_to_values, json_pieces
from archiver.process.output.text import printable_json
from tests.support.cat_lines import cat_line
from tests.support.frames import frame_of
from tests.support.records import Rec, generate

LONG = [
    Rec(0, 5, 0, b"k" * 70_000, b"\xe2\x82\xac" * 50_000),
    Rec(1, 5, 0, b"\xff" * 70_000, b'\x00\x1b"\\' * 50_000, ((b"a", None), (b"a", b""), (b"\xff", b"w" * 90_000))),
    Rec(2, -1, -1, None, b"\xe2\x82\xac" * 50_000 + b"\xe2", tuple((b"", None) for _ in range(50_000))),
]


@pytest.mark.parametrize("large_bytes", [0, 20, 64 * 1024, math.inf])
@pytest.mark.parametrize("piece_bytes", [3, 48 * 1024])
def test_lines_are_the_same(monkeypatch: pytest.MonkeyPatch, seed: int, large_bytes: float, piece_bytes: int) -> None:
    monkeypatch.setattr(archiver.archive.reading.plain_records, "_LARGE_BYTES", large_bytes)
    monkeypatch.setattr(archiver.archive.reading.plain_records, "_PIECE_BYTES", piece_bytes)
    records = [*generate(seed, 200), *(LONG if piece_bytes > 3 else [])]
    lines = ["".join(map(printable_json, json_pieces(one))) for one in frame_to_values(frame_of(records), 3)]
    assert [json.loads(line) for line in lines] == [cat_line(record, 3) for record in records]
    whole = [json.dumps(cat_line(record, 3), ensure_ascii=False) for record in records]
    assert lines == [printable_json(line) for line in whole]
