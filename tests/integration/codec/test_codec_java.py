"""The batch codec and Kafka's own Java: each reads what the other writes, and where Java refuses, so do we."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.codec.batch import decode_batches
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec
from archiver.errors import ArchiverError, CorruptBatchError
from tests.support import codec_fuzz
from tests.support.frames import frame_of, records_of
from tests.support.java_oracle import JavaBatch, JavaError, JavaOracle
from tests.support.records import Rec, generate, record_lists
from tests.support.reference_batch import CODECS

codecs = pytest.mark.parametrize("codec", CODECS)
types = pytest.mark.parametrize("timestamp_type", [0, 1])


def java_reads(oracle: JavaOracle, content: bytes) -> list[JavaBatch]:
    found = oracle.read(content)
    assert not isinstance(found, JavaError), found
    return found


def we_read(content: bytes, position: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> list[Rec]:
    return records_of(decode_batches(content, position, aborted).frame)


# --- Java writes, we read


@codecs
@types
def test_two_thousand_records(java_oracle: JavaOracle, codec: str, timestamp_type: int, seed: int) -> None:
    records = generate(seed, 2000, raw=False, first_offset=10**9)
    if timestamp_type:
        records = [replace(record, timestamp=123, timestamp_type=1) for record in records]
    content = java_oracle.build(
        records, codec=codec, timestamp_type=timestamp_type, log_append_time=123, leader_epoch=6
    )
    decoded = decode_batches(content, 10**9)
    assert records_of(decoded.frame) == records
    assert (decoded.next_offset, decoded.leader_epoch, decoded.source_bytes) == (10**9 + 2000, 6, len(content))


@codecs
@types
def test_any_records(java_oracle: JavaOracle, codec: str, timestamp_type: int) -> None:
    @settings(max_examples=20)
    @given(record_lists(raw=False, timestamp_type=timestamp_type, least=1, most=8, largest_gap=3))
    def check(records: list[Rec]) -> None:
        content = java_oracle.build(
            records, codec=codec, timestamp_type=timestamp_type, log_append_time=records[0].timestamp
        )
        assert we_read(content) == records

    check()


@codecs
def test_large_records(java_oracle: JavaOracle, codec: str) -> None:
    """Payloads of many codec blocks: xerial's of 32 KB, LZ4's of 64 KB, gzip's and zstd's streams."""
    records = [Rec(0, 1, 0, b"k", random.Random(7).randbytes(3_000_000)), Rec(1, 1, 0, b"k", b"text " * 600_000)]
    assert we_read(java_oracle.build(records, codec=codec)) == records


def test_a_log_with_transactions_and_what_compaction_leaves(java_oracle: JavaOracle) -> None:
    def batch(first: int, producer_id: int = -1) -> bytes:
        records = [Rec(first + index, 5, 0, b"%d" % first, None) for index in range(2)]
        return java_oracle.build(
            records,
            codec="lz4",
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer_id >= 0,
        )

    content = b"".join(
        [
            batch(0, 1),
            batch(2, 2),
            java_oracle.marker(4, commit=False, producer_id=1),
            batch(5, 1),
            batch(7),
            java_oracle.marker(9, commit=True, producer_id=1),
            batch(10, 1),
            java_oracle.marker(12, commit=True, producer_id=2),
            java_oracle.marker(13, commit=False, producer_id=1),
            java_oracle.empty(14, 20, transactional=True),
            batch(30, 1),
            java_oracle.marker(32, commit=True, producer_id=1),
        ]
    )
    assert [record.offset for record in we_read(content, 0, [(1, 0), (1, 10)])] == [2, 3, 5, 6, 7, 8, 30, 31]
    assert [record.offset for record in we_read(content, 6, [(1, 10)])] == [6, 7, 8, 30, 31]
    assert decode_batches(content, 0).next_offset == 33


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@types
def test_message_sets(java_oracle: JavaOracle, magic: int, codec: str, timestamp_type: int, seed: int) -> None:
    """Java writes the broken header of lz4 frames in v0, as old brokers did."""
    kind = -1 if magic == 0 else timestamp_type
    records = [
        replace(one, headers=(), timestamp_type=kind, timestamp=-1 if magic == 0 else 123 if kind else one.timestamp)
        for one in generate(seed, 500, raw=False, first_offset=40)
    ]
    built = java_oracle.build(records, magic=magic, codec=codec, timestamp_type=kind, log_append_time=123)
    before = java_oracle.build([Rec(3, 1, 0, None, b"v")])
    assert we_read(built) == records
    assert we_read(built, 300) == [one for one in records if one.offset >= 300]
    first = decode_batches(before + built, 0)
    assert (len(first.frame), first.source_bytes) == (1, len(before))


# --- we write, Java reads and finds valid


@pytest.mark.parametrize("codec", [BatchCodec.NONE, BatchCodec.LZ4])
def test_java_reads_ours(java_oracle: JavaOracle, codec: BatchCodec, seed: int) -> None:
    records = generate(seed, 2000)
    frame, row, found = frame_of(records), 0, 0
    encoder = BatchEncoder(codec=codec, batch_bytes=50_000, most_bytes=50_000, producer_id=7, producer_epoch=2)
    while row < len(frame):
        next_row = encoder.append(frame, row)
        made = encoder.flush()
        (batch,) = java_reads(java_oracle, made.content.tobytes())
        wanted = records[row:next_row]
        assert batch.records == tuple(replace(record, offset=index) for index, record in enumerate(wanted))
        assert (batch.magic, batch.codec, batch.timestamp_type) == (2, codec.name.lower(), 0)
        assert (batch.base_offset, batch.last_offset) == (0, len(wanted) - 1)
        assert batch.max_timestamp == max(record.timestamp for record in wanted)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, row)
        assert (batch.transactional, batch.control, batch.size) == (False, False, len(made.content))
        row, found = next_row, found + len(batch.records)
    assert found == 2000


@pytest.mark.parametrize("codec", [BatchCodec.NONE, BatchCodec.LZ4])
def test_java_reads_any_of_ours(java_oracle: JavaOracle, codec: BatchCodec) -> None:
    @settings(max_examples=25)
    @given(record_lists(extreme=True, least=1, most=8), st.integers(0, 2**31 - 1), st.integers(0, 2**15 - 1))
    def check(records: list[Rec], sequence: int, epoch: int) -> None:
        encoder = BatchEncoder(
            codec=codec,
            batch_bytes=10**6,
            most_bytes=10**6,
            producer_id=2**62,
            producer_epoch=epoch,
            sequence=sequence,
        )
        encoder.append(frame_of(records), 0)
        made = encoder.flush()
        (batch,) = java_reads(java_oracle, made.content.tobytes())
        assert list(batch.records) == records
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**62, epoch, sequence)

    check()


def test_java_reads_batches_of_many_pieces(java_oracle: JavaOracle, seed: int) -> None:
    """Records of which some compress and some do not, so that blocks of a frame are of both kinds."""
    source = random.Random(seed)
    values = [source.randbytes(size) if size % 3 else bytes(size) for size in source.choices(range(9_000), k=900)]
    records = [Rec(offset, 1_000 + offset, 0, None, value) for offset, value in enumerate(values)]
    frame, row = frame_of(records), 0
    encoder = BatchEncoder(
        codec=BatchCodec.LZ4, batch_bytes=4_000_000, most_bytes=1_000_000, producer_id=7, producer_epoch=2
    )
    while row < len(frame):
        next_row = encoder.append(frame, row)
        made = encoder.flush()
        (batch,) = java_reads(java_oracle, made.content.tobytes())
        assert batch.records == tuple(
            replace(record, offset=index) for index, record in enumerate(records[row:next_row])
        )
        row = next_row
    assert encoder._sequence == len(records)


@codecs
def test_a_frame_from_java_goes_back_to_java(java_oracle: JavaOracle, codec: str, seed: int) -> None:
    records = generate(seed, 500, raw=False)
    frame = decode_batches(java_oracle.build(records, codec=codec), 0).frame
    encoder = BatchEncoder(codec=BatchCodec.LZ4, batch_bytes=10**7, most_bytes=10**7, producer_id=1, producer_epoch=0)
    encoder.append(frame, 0)
    made = encoder.flush()
    (batch,) = java_reads(java_oracle, made.content.tobytes())
    assert list(batch.records) == records


# --- what is broken


def agree(oracle: JavaOracle, seed: int, count: int) -> tuple[int, int]:
    """Mutated fetches: what we read, Java reads too, and the same. Returns (read by us, refused by us alone).

    One leniency is ours: a 32-bit number may take more than five bytes. No writer does that; the reference reads the same.
    """
    read = stricter = lenient = 0
    for case in range(count):
        content, _ = codec_fuzz.mutated_fetch(random.Random(f"{seed}-java-{case}"))
        try:
            decoded = decode_batches(content, 0)
        except ArchiverError:
            stricter += not isinstance(oracle.read(content), JavaError)
            continue
        content = content[: decoded.source_bytes]
        if codec_fuzz.holds_control_batch(content):
            continue  # we skip them unread; Java decodes what is in them
        read += 1
        java = oracle.read(content)
        if isinstance(java, JavaError):
            lenient += 1
            theirs = codec_fuzz.oracle_records(content)
        else:
            theirs = [record for batch in java for record in batch.records]
        assert records_of(decoded.frame) == theirs, (case, content.hex())
    assert lenient <= 2 + read // 200
    return read, stricter


def test_what_we_read_of_mutated_batches_java_reads_too(java_oracle: JavaOracle, seed: int) -> None:
    read, stricter = agree(java_oracle, seed, 1500)
    assert read > 150
    assert stricter < 500


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_we_read_of_mutated_batches_java_reads_too_long(java_oracle: JavaOracle, seed: int) -> None:
    read, stricter = agree(java_oracle, seed + 1, 30_000)
    print(f"\nseed {seed + 1}: of 30000 read by both {read}, refused by us alone {stricter}")


@codecs
def test_a_flipped_bit_is_noticed_by_both(java_oracle: JavaOracle, codec: str, seed: int) -> None:
    content = java_oracle.build([Rec(0, 1, 0, b"key", b"value" * 9)], codec=codec)
    rng = random.Random(seed)
    for bit in rng.sample(range(17 * 8, len(content) * 8), 60):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(java_oracle.read(bytes(flipped)), JavaError)
        with pytest.raises(CorruptBatchError, match="CRC"):
            decode_batches(bytes(flipped), 0)
