"""A record that is written in pieces is the same bytes, and reads the same, as one that is written at once."""

import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

import archiver.codec.avro
import archiver.codec.large_record
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.codec.avro import BlockEncoder, encode_header
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.large_record import record_pieces
from tests.support.frames import frame_of
from tests.support.records import Rec, generate
from tests.support.segments import content_of, open_segment, read

SYNC = b"0123456789abcdef"
LARGE = [
    Rec(0, 5, 0, b"k" * 70_000, b"v" * 90_000),
    Rec(1, -1, -1, None, None, tuple((b"%d" % number, b"v") for number in range(3000))),
    Rec(2, 5, 1, b"", None, tuple((b"same", None) for _ in range(3000))),
    Rec(3, 5, 0, None, b"", ((b"\xff" * 50_000, None), (b"k", b"v"), (b"\xe2\x82\xac" * 30_000, b"w" * 80_000))),
    Rec(4, 5, 0, None, b"", ((b"one", b"w" * 80_000),)),
    Rec(5, 5, 0, None, b"", ((b"k" * 80_000, b""), (b"", b"v" * 80_000))),
]


def at_once(frame: Frame, topic: str = "t") -> bytes:
    encoder = BlockEncoder(topic=topic, partition=3, codec=BlockCodec.NULL, level=0, sync=SYNC)
    row, content = 0, bytearray(encode_header(BlockCodec.NULL, SYNC, {}))
    while row < len(frame):
        row = encoder.append(frame, row, len(frame))
        content += b"".join(encoder.flush())
    return bytes(content)


def rows_of(content: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content)))


@pytest.mark.parametrize("piece_bytes", [100, 1000, 256 * 1024])
def test_pieces_are_what_is_written_at_once(monkeypatch: pytest.MonkeyPatch, seed: int, piece_bytes: int) -> None:
    frame = frame_of([*LARGE, *generate(seed, 300, first_offset=10)])
    prefix = archiver.codec.avro._record_prefix("t", 3)
    monkeypatch.setattr(archiver.codec.large_record, "_PIECE_BYTES", piece_bytes)
    for row in range(len(frame)):
        pieces = [bytes(piece) for piece in record_pieces(frame, row, prefix)]
        alone = frame.rows(row, row + 1)
        assert b"".join(pieces) in at_once(alone)
        assert max(map(len, pieces)) <= max(piece_bytes, 100)


@pytest.mark.parametrize("codec", BlockCodec)
def test_a_large_record_has_a_block_to_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, codec: BlockCodec
) -> None:
    monkeypatch.setattr(archiver.codec.avro, "LARGE_RECORD_BYTES", 60_000)
    noise = random.Random(1).randbytes(300_000)
    small = [Rec(offset, 5, 0, b"k", b"v") for offset in range(20, 25)]
    records = [
        *small,
        *(replace(one, offset=30 + one.offset) for one in LARGE),
        Rec(40, 5, 0, noise, noise),
        Rec(41, 1, 0, None, None),
    ]
    segment = open_segment(tmp_path, 0, SegmentLimits(uncompressed_bytes=0, codec=codec))
    assert segment.append(frame_of(records), 0) == len(records)
    finished = segment.finish()
    content = content_of(finished)
    assert read(content, finished.facts) == records
    assert rows_of(content) == rows_of(at_once(frame_of(records), "orders"))
    assert [block.num_records for block in fastavro.block_reader(io.BytesIO(content))] == [5, *[1] * 8]


def test_as_many_headers_as_are_never_compared(tmp_path: Path) -> None:
    """A map is left out, the list is whole."""
    headers = tuple((b"%d" % number, b"v") for number in range(20_000))
    segment = open_segment(tmp_path)
    records = [Rec(0, 5, 0, None, None, headers), Rec(1, 5, 0, None, None, headers[:10_000])]
    segment.append(frame_of(records), 0)
    finished = segment.finish()
    many, fewer = rows_of(content_of(finished))
    assert many["headers"] is None
    assert [(one["key"].encode(), one["value"]) for one in many["orderedHeaders"]] == list(headers)
    assert fewer["headers"] == {key.decode(): value for key, value in headers[:10_000]}
    assert read(content_of(finished), finished.facts) == records


@pytest.mark.parametrize("change", [-1, 1])
def test_headers_that_leave_their_row_are_refused(monkeypatch: pytest.MonkeyPatch, change: int) -> None:
    monkeypatch.setattr(archiver.codec.avro, "LARGE_RECORD_BYTES", 0)
    for column in (Column.HEADER_START, Column.HEADER_LENGTH, Column.HEADER_COUNT):
        frame = frame_of([LARGE[1]])
        frame.table[column, 0] += change
        with pytest.raises(ValueError, match=r"row|headers"):
            at_once(frame)
    frame = frame_of([LARGE[0]])
    frame.table[Column.VALUE_LENGTH, 0] = np.iinfo(np.int64).max
    with pytest.raises(ValueError, match="row 0 is not in the frame"):
        at_once(frame)
