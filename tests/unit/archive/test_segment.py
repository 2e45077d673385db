"""Finished segments read back: whatever is wrong with them has a name, before a wrong record comes out."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

from archiver.archive.segments.segment_facts import SegmentFacts, facts_from_metadata
from archiver.codec.avro import BLOCK_BYTES
from archiver.codec.compression import BlockCodec
from archiver.errors import CorruptSegmentError, FormatTooNewError
from tests.support.frames import avro_of, records_of
from tests.support.records import Rec
from tests.support.segments import RECORDS, opened, read, read_frames, written


def test_up_to_an_offset(tmp_path: Path) -> None:
    records = [Rec(offset, 0, 0, None, bytes(BLOCK_BYTES // 3)) for offset in range(0, 40, 4)]
    content, facts = written(tmp_path, records)
    for from_offset in (0, 5, 20):
        for until_offset in (*range(45), 2**63 - 1):
            frames = list(read_frames(content, facts, from_offset=from_offset, until_offset=until_offset))
            assert all(len(frame) for frame in frames)
            assert records_of(*frames) == [one for one in records if from_offset <= one.offset < until_offset]


@pytest.mark.parametrize("codec", [BlockCodec.NULL, BlockCodec.ZSTANDARD])
def test_every_flipped_bit_is_noticed_before_the_first_record(tmp_path: Path, codec: BlockCodec) -> None:
    content, facts = written(tmp_path, RECORDS, codec=codec)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        try:
            found = read(bytes(flipped), facts)
        except (CorruptSegmentError, FormatTooNewError) as error:
            assert "key.data" in str(error)  # noqa: PT017
        else:  # a word in the header's schema that says nothing to a reader
            assert found == RECORDS
            assert place < content.index(content[-16:])


def boundaries(content: bytes) -> list[int]:
    sync, places, at = content[-16:], [], 0
    while (at := content.find(sync, at)) >= 0:
        at += 16
        places.append(at)
    return places


def test_an_object_cut_at_a_block_boundary(tmp_path: Path) -> None:
    """It reads as a shorter valid file everywhere else (docs/format.md §4)."""
    records = [Rec(offset, 0, 0, None, bytes(BLOCK_BYTES)) for offset in range(4)]
    content, facts = written(tmp_path, records)
    *cuts, whole = boundaries(content)
    assert (len(cuts), whole) == (4, len(content))
    for number, cut in enumerate(cuts):
        assert len(list(fastavro.reader(io.BytesIO(content[:cut])))) == number
        with pytest.raises(CorruptSegmentError, match="SHA-256"):
            next(read_frames(content[:cut], facts))
        # Should even the hash be that of the shorter object, the count is not.
        forged, forged_facts = with_facts(
            content[:cut], facts, sha256=hashlib.sha256(content[cuts[0] : cut]).hexdigest()
        )
        frames = read_frames(forged, forged_facts)
        assert records_of(*(next(frames) for _ in range(number))) == records[:number]
        with pytest.raises(
            CorruptSegmentError, match=f"{number} records? up to offset .*, not 4 up to 3: the object was cut"
        ):
            next(frames)


def with_facts(content: bytes, facts: SegmentFacts, **changes: object) -> tuple[bytes, SegmentFacts]:
    """The object and its metadata with other facts, in both places."""
    other = replace(facts, **changes)  # type: ignore[arg-type]
    for name, text in facts.to_header().items():
        new = other.to_header()[name]
        content = content.replace(entry(name, text), entry(name, new), 1)
    return content, other


def entry(name: str, text: str) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, {"type": "string"}, name)
    fastavro.schemaless_writer(target, {"type": "string"}, text)
    return target.getvalue()


WRONG_FACTS = [
    ({"records": 2}, "3 records up to offset 13, not 2 up to 13"),
    ({"records": 4, "unserved": 0}, "3 records up to offset 13, not 4 up to 13"),
    ({"last": 14}, "3 records up to offset 13, not 3 up to 14"),
    ({"first": 11}, "offsets do not rise after 10"),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG_FACTS)
def test_wrong_facts(tmp_path: Path, changes: dict[str, int], reason: str) -> None:
    content, facts = written(tmp_path, RECORDS)
    with pytest.raises(CorruptSegmentError, match=f"key.data: {reason}"):
        read(*with_facts(content, facts, **changes))


def test_metadata_and_header_must_agree(tmp_path: Path) -> None:
    content, facts = written(tmp_path, RECORDS)
    with pytest.raises(CorruptSegmentError, match=r"differ in next, digest"):
        next(read_frames(content, replace(facts, next=facts.next + 1, digest=1)))
    without = content.replace(b"archiver.", b"archivar.")
    with pytest.raises(CorruptSegmentError, match="its Avro header has none"):
        next(read_frames(without, facts))


def test_a_copy_that_lost_its_metadata_is_checked_by_its_header(tmp_path: Path) -> None:
    content, facts = written(tmp_path, RECORDS)
    assert read(content, None) == RECORDS
    with pytest.raises(CorruptSegmentError, match="SHA-256"):
        next(read_frames(content[: boundaries(content)[0]], None))
    forged, _ = with_facts(content, facts, records=4, unserved=0)
    with pytest.raises(CorruptSegmentError, match="not 4 up to"):
        read(forged, None)


def test_a_later_format_is_refused_by_name(tmp_path: Path) -> None:
    content, facts = written(tmp_path, RECORDS)
    later = content.replace(entry("archiver.format", "1"), entry("archiver.format", "99"))
    for known in (facts, None):
        with pytest.raises(FormatTooNewError, match=r"key\.data: format 99 is newer than this program reads \(2\)"):
            next(read_frames(later, known))
    with pytest.raises(FormatTooNewError, match="format 99"):
        facts_from_metadata(facts.to_metadata() | {"archiver-format": "99"}, "k")


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"not Avro at all", bytes(1000)])
def test_what_is_no_segment(tmp_path: Path, content: bytes) -> None:
    _, facts = written(tmp_path, RECORDS)
    for known in (facts, None):
        with pytest.raises(CorruptSegmentError, match=r"key\.data: not an Avro object container file"):
            next(read_frames(content, known))


def test_offsets_must_rise(tmp_path: Path) -> None:
    """Within a block and across blocks, also without facts (v1.0)."""
    for records in ([RECORDS[0], RECORDS[0]], [RECORDS[1], RECORDS[0]], [replace(RECORDS[0], offset=-4)]):
        target = io.BytesIO()
        schema = fastavro.reader(io.BytesIO(written(tmp_path, RECORDS)[0])).writer_schema
        values = [avro_of(record, "orders", 3) for record in records]
        for interval in (1, 10**6):
            target = io.BytesIO()
            fastavro.writer(target, schema, values, sync_interval=interval)
            with pytest.raises(CorruptSegmentError, match="offsets do not rise"):
                read(target.getvalue(), None)


def test_another_partition_s_object(tmp_path: Path) -> None:
    content, facts = written(tmp_path, RECORDS)
    with pytest.raises(CorruptSegmentError, match="another topic or partition"):
        list(opened(content, facts, "k").frames("orders", 4))
