"""Open segments: their facts against a slow oracle (docs/format.md §3-§5), their body, and where they are cut."""

import hashlib
import io
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from archiver.archive.segments.block_budget import BlockBudget
from archiver.archive.segments.segment_facts import Hole, HoleCause, SegmentFacts, facts_from_metadata
from archiver.archive.segments.segment_writer import MOST_HOLES, FinishedSegment, OpenSegment, SegmentLimits
from archiver.archive.segments.spool import Spool
from archiver.codec.avro import BLOCK_BYTES
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Frame
from archiver.errors import TemporaryError
from tests.support.frames import avro_of, digest_of, frame_of
from tests.support.records import Rec, generate
from tests.support.segments import NO_LIMIT, RECORDS, SOURCE, content_of, open_segment, read

# --- facts


@pytest.mark.parametrize("codec", BlockCodec)
def test_the_facts_are_those_of_the_records(tmp_path: Path, codec: BlockCodec, seed: int) -> None:
    records = generate(seed, 3000, first_offset=100, timestamp_type=1)
    segment = open_segment(tmp_path, 77, SegmentLimits(uncompressed_bytes=0, codec=codec))
    for start in range(0, 3000, 700):
        part = frame_of(records[start : start + 700])
        assert segment.append(part, 0) == len(part)
        segment.cover(100 + start + len(part), leader_epoch=start, source_bytes=11)
    hole = Hole(first_offset=3100, last_offset=3109, cause=HoleCause.EXPIRED)
    segment.note_hole(hole)
    finished = segment.finish()
    content = content_of(finished)
    header_bytes = content.index(content[-16:]) + 16
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    assert finished.facts == SegmentFacts(
        writer=finished.facts.writer,
        cluster_id="c",
        topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
        leader_epoch=2800,
        base=77,
        first=100,
        last=3099,
        next=3110,
        records=3000,
        tombstones=sum(record.value is None for record in records),
        min_timestamp=min(record.timestamp for record in records),
        max_timestamp=max(record.timestamp for record in records),
        timestamp_types=(1,),
        bytes=sum(sizes),
        largest_record=max(sizes),
        source_bytes=55,
        holes=(hole,),
        unserved=23,
        sha256=hashlib.sha256(content[header_bytes:]).hexdigest(),
        digest=digest_of(records),
    )
    reader = fastavro.reader(io.BytesIO(content))
    texts = {f"archiver.{name.removeprefix('archiver-')}": text for name, text in finished.facts.to_metadata().items()}
    del texts["archiver.facts-sha256"]  # the header is under no other's hands
    assert {name: text for name, text in reader.metadata.items() if name.startswith("archiver.")} == texts
    assert sum(len(name) + len(text) for name, text in finished.facts.to_metadata().items()) < 2048
    assert list(reader) == [avro_of(record, "orders", 3) for record in records]
    assert read(content, facts_from_metadata(finished.facts.to_metadata(), "k")) == records


def test_facts_stay_small_with_as_many_holes_as_there_may_be(tmp_path: Path) -> None:
    far = 2**63 - 1000
    segment = open_segment(tmp_path, far)
    segment.append(frame_of([replace(RECORDS[0], offset=far)]), 0)
    for index in range(MOST_HOLES):
        assert not segment.is_full
        segment.note_hole(
            Hole(first_offset=far + 10 * index, last_offset=far + 10 * index + 1, cause=HoleCause.EXPIRED)
        )
    assert segment.is_full
    segment.cover(2**63 - 1, leader_epoch=2**31 - 1, source_bytes=2**62, stable_end=2**63 - 1)
    metadata = segment.finish().facts.to_metadata()
    assert metadata["archiver-unserved"] == str(999 - 1 - 2 * MOST_HOLES)
    assert sum(len(name) + len(text) for name, text in metadata.items()) < 2048


@pytest.mark.parametrize(("told", "stable_end"), [([14, 20, 17], 20), ([14, None, 17], None), ([], 0)])
def test_the_highest_stable_end_is_told_unless_one_is_not_known(
    told: list[int | None], stable_end: int | None, tmp_path: Path
) -> None:
    segment = open_segment(tmp_path)
    segment.append(frame_of(RECORDS), 0)
    for one in told:
        segment.cover(14, leader_epoch=0, source_bytes=0, stable_end=one)
    assert segment.finish().facts.stable_end == stable_end


def test_what_was_left_out_or_lies_in_a_hole_is_not_unserved(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 5)
    segment.note_hole(Hole(first_offset=5, last_offset=6, cause=HoleCause.EXPIRED))
    segment.cover(10, leader_epoch=0, source_bytes=0, left_out=2)  # of 7, 8, 9
    segment.append(frame_of(RECORDS), 0)  # 10, 12, 13
    segment.cover(14, leader_epoch=0, source_bytes=0)
    segment.cover(20, leader_epoch=0, source_bytes=0, left_out=6)
    segment.note_hole(Hole(first_offset=20, last_offset=29, cause=HoleCause.UNREADABLE))
    segment.cover(33, leader_epoch=-1, source_bytes=0)  # passed over
    assert segment.finish().facts.unserved == 1 + 1 + 3


def test_there_is_no_segment_without_a_record(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    segment.cover(9, leader_epoch=0, source_bytes=9)
    with pytest.raises(ValueError, match="without a record"):
        segment.finish()
    segment.discard()
    assert not list(tmp_path.iterdir())


def test_a_body_is_a_stream_like_any_other(tmp_path: Path) -> None:
    segment = open_segment(tmp_path)
    segment.append(frame_of(generate(1, 300)), 0)
    finished = segment.finish()
    whole = content_of(finished)
    edge = len(finished.header)
    with finished.open_body() as body:
        assert len(body) == len(whole)
        for place in (0, 1, edge - 1, edge, edge + 1, len(whole), len(whole) + 5):
            for size in (0, 1, 2, edge, 10**6):
                assert body.seek(place) == body.tell() == place
                assert body.read(size) == whole[place : place + size]
        assert body.seek(-3, io.SEEK_END) == len(whole) - 3
        assert (body.read(), body.read()) == (whole[-3:], b"")
        assert body.seek(-5, io.SEEK_CUR) == len(whole) - 5
        assert io.BufferedReader(body, 100).read() == whole[-5:]  # closes it
    finished.discard()
    assert not list(tmp_path.iterdir())


# --- rolling


def roll(spool: Path, frames: Sequence[Frame], limits: SegmentLimits) -> list[FinishedSegment]:
    """As a writer does: the next segment begins where the last one ends."""
    finished, segment = [], open_segment(spool, 0, limits)
    for frame in frames:
        row = 0
        while row < len(frame):
            after = segment.append(frame, row)
            assert after > row
            row = after
            if segment.is_full:
                finished.append(segment.finish())
                segment = open_segment(spool, segment.next, limits)
    if segment.records:
        finished.append(segment.finish())
    return finished


def frames_of(records: Sequence[Rec], rng: random.Random) -> list[Frame]:
    frames, start = [], 0
    while start < len(records):
        size = rng.choice((1, 3, 50, 400))
        frames.append(frame_of(records[start : start + size]))
        start += size
    return frames


def block_sizes(content: bytes) -> list[int]:
    """Uncompressed."""
    blocks: list[Any] = list(fastavro.block_reader(io.BytesIO(content)))
    return [len(block.bytes_.getvalue()) for block in blocks]


@pytest.mark.parametrize("limit", [1, 999, 20_000, BLOCK_BYTES, BLOCK_BYTES + 1, 1_500_000])
def test_rolling_by_bytes(tmp_path: Path, limit: int, seed: int) -> None:
    """A segment ends with the record that reaches the limit, however the records came in: two writers cut alike."""
    count = 60 if limit < 1000 else 2000
    rng = random.Random(seed)
    records = [replace(record, offset=3 * record.offset) for record in generate(seed, count, big_bytes=5000)]
    if limit > 100_000:
        records = [replace(record, value=rng.randbytes(1500)) for record in records]
    limits = SegmentLimits(uncompressed_bytes=limit, codec=BlockCodec.NULL)
    cuts = roll(tmp_path, frames_of(records, rng), limits)
    bases, contents = [0], []
    for finished in cuts:
        assert finished.facts.base == bases[-1]
        bases.append(finished.facts.next)
        contents.append(content_of(finished))
    assert [
        record for content, cut in zip(contents, cuts, strict=True) for record in read(content, cut.facts)
    ] == records
    assert bases[-1] == records[-1].offset + 1
    sizes = [sum(block_sizes(content)) for content in contents]
    for size, cut, content in zip(sizes[:-1], cuts, contents, strict=False):
        last = read(content, cut.facts)[-1:]
        one = roll(tmp_path, [frame_of(last)], replace(limits, uncompressed_bytes=0))[0]
        assert size - sum(block_sizes(content_of(one))) < limit <= size
    again = roll(tmp_path, frames_of(records, rng), limits)
    assert [cut.facts.base for cut in again] == bases[:-1]
    assert len(cuts) > 1 or limit > 100_000


@pytest.mark.parametrize("limit", [1, 7, 100, 1999, 2000, 2001])
def test_rolling_by_records(tmp_path: Path, limit: int, seed: int) -> None:
    count = 100 if limit == 1 else 2000
    records = generate(seed, count, big_bytes=5000)
    limits = SegmentLimits(uncompressed_bytes=0, records=limit)
    cuts = roll(tmp_path, frames_of(records, random.Random(seed)), limits)
    assert [cut.facts.records for cut in cuts[:-1]] == [limit] * (len(cuts) - 1)
    assert [cut.facts.base for cut in cuts] == list(range(0, count, limit))
    assert [record for cut in cuts for record in read(content_of(cut), cut.facts)] == records


def test_blocks_are_of_about_the_same_size(tmp_path: Path) -> None:
    records = [Rec(offset, 0, 0, None, bytes(300)) for offset in range(6000)]
    (cut,) = roll(tmp_path, [frame_of(records[start : start + 10]) for start in range(0, 6000, 10)], NO_LIMIT)
    sizes = block_sizes(content_of(cut))
    assert all(BLOCK_BYTES <= size < BLOCK_BYTES + 1000 for size in sizes[:-1])
    assert len(sizes) == 4


def test_many_open_segments_share_the_room_of_their_blocks(tmp_path: Path) -> None:
    room = BlockBudget(most_bytes=1_000_000)
    others = [OpenSegment(SOURCE, 0, NO_LIMIT, Spool(tmp_path), room) for _ in range(9)]
    segment = OpenSegment(SOURCE, 0, NO_LIMIT, Spool(tmp_path), room)
    records = [Rec(offset, 0, 0, None, bytes(300)) for offset in range(2000)]
    assert segment.append(frame_of(records), 0) == 2000
    finished = segment.finish()
    assert all(100_000 <= size < 101_000 for size in block_sizes(content_of(finished))[:-1])
    assert read(content_of(finished), finished.facts) == records
    for other in others:
        other.discard()
        other.discard()
    assert room.block_bytes == BLOCK_BYTES
    for _ in range(10_000):
        room.enter()
    assert room.block_bytes == 8 * 1024


def test_offsets_below_the_coverage_are_refused(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 20)
    with pytest.raises(ValueError, match="offset 10 is below 20"):
        segment.append(frame_of(RECORDS), 0)
    segment.append(frame_of([replace(RECORDS[0], offset=20)]), 0)
    segment.cover(30, leader_epoch=0, source_bytes=0)
    with pytest.raises(ValueError, match="offset 29 is below 30"):
        segment.append(frame_of([replace(RECORDS[0], offset=29)]), 0)


def test_a_spool_file_that_someone_touched_is_noticed(tmp_path: Path) -> None:
    """Such as a sweeper of temporary directories: blocks appended later would begin a new file."""
    big = [replace(RECORDS[0], value=bytes(BLOCK_BYTES))]
    for harm, told in (("delete", "was deleted under us"), ("cut", "is not what was written")):
        segment = open_segment(tmp_path)
        segment.append(frame_of(big), 0)
        (file,) = tmp_path.iterdir()
        if harm == "delete":
            file.unlink()
        else:
            file.write_bytes(b"")
        segment.append(frame_of([RECORDS[1]]), 0)
        with pytest.raises(TemporaryError, match=told):
            segment.finish()
        segment.discard()


def test_the_longest_topic_name_has_a_spool_file(tmp_path: Path) -> None:
    segment = OpenSegment(replace(SOURCE, topic="x" * 249), 0, NO_LIMIT, Spool(tmp_path))
    assert segment.append(frame_of(RECORDS), 0) == len(RECORDS)
    assert content_of(segment.finish())
