"""Frame -> record batches, against the reference codec. Java's word: tests/integration/codec/test_codec_java.py."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from archiver.codec.batch import decode_batches
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec
from archiver.codec.frame import Column, Frame
from archiver.codec.kernels import batches as batch_kernels
from tests.support.frames import frame_of, records_of
from tests.support.records import Rec, generate
from tests.support.reference_batch import (
    batch_of,
    decode,
    encode,
    encode_record,
)

RECORD = Rec(5, 7, 0, b"k", None, ((b"h", b""), (b"h", None)))


def read(content: bytes, position: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> list[Rec]:
    return records_of(decode_batches(content, position, aborted).frame)


# --- Frame -> batch


def encoder_of(
    codec: BatchCodec = BatchCodec.NONE, batch_bytes: int = 1000, sequence: int = 0, most_bytes: int = 10**7
) -> BatchEncoder:
    return BatchEncoder(
        codec=codec,
        batch_bytes=batch_bytes,
        most_bytes=most_bytes,
        producer_id=3,
        producer_epoch=1,
        sequence=sequence,
    )


def encode_all(frames: Iterable[Frame], encoder: BatchEncoder) -> list[bytes]:
    contents = list[bytes]()

    def flush() -> None:
        batch = encoder.flush()
        assert batch.records > 0
        assert not encoder.rows
        contents.append(batch.content.tobytes())

    for frame in frames:
        row = 0
        while row < len(frame):
            row = encoder.append(frame, row)
            if row < len(frame):
                flush()
    if encoder.rows:
        flush()
    return contents


@pytest.mark.parametrize("codec", [BatchCodec.NONE, BatchCodec.LZ4])
@pytest.mark.parametrize("batch_bytes", [1, 4000, 10_000_000])
def test_frames_become_batches_of_the_same_records(codec: BatchCodec, batch_bytes: int, seed: int) -> None:
    count = 200 if batch_bytes == 1 else 2000
    records = generate(seed, count, first_offset=10**12)
    records[3] = replace(records[3], timestamp=2**63 - 1)
    records[4] = replace(records[4], timestamp=-(2**63))
    contents = encode_all([frame_of(records)], encoder_of(codec, batch_bytes))
    found: list[Rec] = []
    for content in contents:
        (batch,) = decode(content)
        wanted = records[len(found) :][: len(batch.records)]
        found += [replace(record, offset=10**12 + len(found) + record.offset) for record in batch.records]
        assert (batch.base_offset, batch.last_offset) == (0, len(batch.records) - 1)
        assert (batch.base_timestamp, batch.max_timestamp) == (wanted[0].timestamp, max(r.timestamp for r in wanted))
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (3, 1, len(found) - len(wanted))
        assert (batch.codec, batch.timestamp_type, batch.transactional) == (codec.name.lower(), 0, False)
        plain = sum(len(encode_record(record, batch)) for record in batch.records)
        assert plain <= batch_bytes or len(batch.records) == 1
        assert read(content) == list(batch.records)
    assert found == records
    assert batch_bytes > 1 or len(contents) == count


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_it_does_not_matter_in_which_frames_records_come(cut: int, seed: int) -> None:
    records = generate(seed, 500)
    at_once = encode_all([frame_of(records)], encoder_of(batch_bytes=5000))
    pieces = [frame_of(records[start : start + cut]) for start in range(0, len(records), cut)]
    assert encode_all(pieces, encoder_of(batch_bytes=5000)) == at_once
    assert len(at_once) > 5


def large_records(seed: int, count: int, least: int, most: int, *, random_share: float) -> list[Rec]:
    """Records of so many bytes, of which a part is random and the rest one word again and again."""
    source = random.Random(seed)
    sizes = [source.randint(least, most) for _ in range(count)]
    values = [(source.randbytes(int(size * random_share)) + b"again " * size)[:size] for size in sizes]
    return [Rec(offset, 0, 0, None, value) for offset, value in enumerate(values)]


@pytest.mark.parametrize("random_share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("least", "most"), [(10, 900), (1_000, 200_000), (300_000, 1_400_000)])
@pytest.mark.parametrize("codec", [BatchCodec.NONE, BatchCodec.LZ4])
def test_batches_are_no_larger_than_is_taken(
    codec: BatchCodec, least: int, most: int, random_share: float, seed: int
) -> None:
    """However little they compress, and as large as they may be where records are small."""
    count = 12_000_000 // (least + most)
    records = large_records(seed, count, least, most, random_share=random_share)
    contents = encode_all([frame_of(records)], encoder_of(codec, 4_000_000, most_bytes=1_000_000))
    batches = [decode(content)[0] for content in contents]
    assert [record.value for batch in batches for record in batch.records] == [record.value for record in records]
    plain = [sum(len(encode_record(record, batch)) for record in batch.records) for batch in batches]
    for content, size, batch in zip(contents, plain, batches, strict=True):
        assert len(content) <= 1_000_000 or len(batch.records) == 1
        assert size <= 4_000_000
    if most < 1000:
        for content, size in list(zip(contents, plain, strict=True))[:-1]:
            assert len(content) > 900_000 or size > 3_900_000


def test_a_large_record_does_not_keep_its_room() -> None:
    encoder = encoder_of(batch_bytes=5000)
    records = [replace(RECORD, value=bytes(size)) for size in (10, 3_000_000, 20)]
    contents = encode_all([frame_of(records)], encoder)
    assert [len(decode(content)[0].records) for content in contents] == [1, 1, 1]
    assert len(encoder._buffer) == 5000


def test_a_frame_from_kafka_goes_back_byte_for_byte(seed: int) -> None:
    records = generate(seed, 300)
    content = encode(batch_of(records, leader_epoch=-1, producer_id=5, producer_epoch=2, base_sequence=8))
    frame = decode_batches(content, 0).frame
    encoder = BatchEncoder(
        codec=BatchCodec.NONE, batch_bytes=10**7, most_bytes=10**7, producer_id=5, producer_epoch=2, sequence=8
    )
    assert encoder.append(frame, 0) == 300
    assert encoder.flush().content == content


def test_sequence_numbers_begin_again_behind_the_largest() -> None:
    records = [replace(RECORD, offset=offset) for offset in range(5)]
    encoder = encoder_of(batch_bytes=1, sequence=2**31 - 2)
    batches = [decode(content)[0] for content in encode_all([frame_of(records)], encoder)]
    assert [batch.base_sequence for batch in batches] == [2**31 - 2, 2**31 - 1, 0, 1, 2]


@pytest.mark.parametrize("start", [-1, 1, 2, 2**40])
def test_rows_that_are_not_there_are_refused(start: int) -> None:
    encoder = encoder_of()
    for frame in (frame_of([RECORD]), frame_of([])):
        with pytest.raises(ValueError, match="is not in the frame"):
            encoder.append(frame, start)
    with pytest.raises(ValueError, match="is not in the frame"):
        encoder.append(frame_of([]), 0)


@pytest.mark.parametrize("codec", [BatchCodec.GZIP, BatchCodec.SNAPPY, BatchCodec.ZSTD])
def test_other_codecs_are_not_written(codec: BatchCodec) -> None:
    with pytest.raises(ValueError, match=codec.name):
        encoder_of(codec)


WRONG_COLUMNS = [
    (Column.KEY_START, -1), (Column.KEY_START, 2**63 - 1), (Column.KEY_LENGTH, 2**63 - 1), (Column.KEY_LENGTH, 10**6),
    (Column.VALUE_START, -1), (Column.VALUE_START, 10**6), (Column.VALUE_LENGTH, 2**62), (Column.HEADER_START, -1),
    (Column.HEADER_START, 10**6), (Column.HEADER_LENGTH, -1), (Column.HEADER_LENGTH, 2**63 - 1), (Column.HEADER_LENGTH, 0),
    (Column.HEADER_COUNT, -1), (Column.HEADER_COUNT, 1), (Column.HEADER_COUNT, 3), (Column.HEADER_COUNT, 2**63 - 1),
]  # fmt: skip


@pytest.mark.parametrize(("column", "wrong"), WRONG_COLUMNS)
def test_rows_that_point_outside_are_refused(column: Column, wrong: int) -> None:
    frame = frame_of([replace(RECORD, value=b"v")])
    frame.table[column, 0] = wrong
    encoder = encoder_of()
    with pytest.raises(ValueError, match="row 0"):
        encoder.append(frame, 0)


@pytest.mark.parametrize("room", range(40))
def test_nothing_is_written_behind_the_target(room: int) -> None:
    frame = frame_of([replace(RECORD, value=b"value"), RECORD])
    buffer = np.full(200, 0xA5, np.uint8)
    batch_kernels.encode_records(
        frame.body,
        frame.header_body,
        frame.table,
        0,
        2,
        1000,
        1000,
        buffer[80 : 80 + room],
        np.zeros(batch_kernels.BATCH_STATE_SIZE, np.int64),
    )
    assert set(buffer[:80].tolist() + buffer[80 + room :].tolist()) == {0xA5}
