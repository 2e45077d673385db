"""The two oracles against each other: what Java writes Python reads, what Python writes Java reads."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.java_oracle import JavaBatch, JavaError, JavaOracle
from tests.support.records import CLIENT_CLASSES, Rec, classes_of, generate, missing_classes, record_lists
from tests.support.reference_batch import (
    CODECS,
    Batch,
    BrokenBatchError,
    Oddities,
    batch_of,
    control_batch,
    crc32c,
    decode,
    encode,
    varint,
)

RECORD = Rec(5, 7, 0, b"k", None, ((b"h", b""), (b"h", None)))
SHORT, LONG = 8, 25  # examples, times five codecs and more
OFFSETS = st.integers(0, 2**62)


@pytest.fixture
def examples(pytestconfig: pytest.Config) -> int:
    return LONG if pytestconfig.getoption("--long") else SHORT


def java_reads(oracle: JavaOracle, content: bytes) -> list[JavaBatch]:
    found = oracle.read(content)
    assert not isinstance(found, JavaError), found
    return found


def same_fields(ours: Batch, java: JavaBatch) -> bool:
    names = [
        "codec",
        "timestamp_type",
        "base_offset",
        "last_offset",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ]
    names += ["transactional", "control", "leader_epoch"]
    return [getattr(ours, name) for name in names] == [getattr(java, name) for name in names]


def test_known_vectors() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720
    assert [varint(number) for number in (0, -1, 1, -64, 64)] == [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80\x01"]
    assert varint(1, padding=2) == b"\x82\x80\x00"
    assert len(varint(-(2**63))) == 10


def test_a_batch_of_kafka_4_byte_by_byte() -> None:
    """An idempotent batch of one record (1 → "x"), written out by hand from the layout."""
    record = Rec(offset=3, timestamp=1000, timestamp_type=0, key=b"1", value=b"x")
    content = encode(batch_of([record], producer_id=9, producer_epoch=1, base_sequence=4))
    body = bytes([16, 0, 0, 0, 2, ord("1"), 2, ord("x"), 0])
    head = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, 9, 1, 4, 1)
    assert content == struct.pack(">qiibI", 3, 49 + 9, 0, 2, crc32c(head + body)) + head + body


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_python_reads_what_java_writes(java_oracle: JavaOracle, codec: str, timestamp_type: int, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        lists = record_lists(raw=False, timestamp_type=timestamp_type, least=1, largest_gap=3, first_offsets=OFFSETS)
        records = data.draw(lists)
        content = java_oracle.build(
            records, codec=codec, timestamp_type=timestamp_type, log_append_time=records[0].timestamp, leader_epoch=3
        )
        (batch,) = decode(content)
        assert list(batch.records) == records
        (java,) = java_reads(java_oracle, content)
        assert same_fields(batch, java)
        assert list(java.records) == records

    check()


@pytest.mark.parametrize("codec", [*CODECS, "snappy without frame"])
def test_java_reads_what_python_writes(java_oracle: JavaOracle, codec: str, examples: int) -> None:
    """All that a batch can hold: broken header keys, any timestamp, gaps, needless varint bytes."""
    codec, _, unframed = codec.partition(" ")

    @settings(max_examples=examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        kind = data.draw(st.integers(0, 1))
        lists = record_lists(extreme=True, timestamp_type=kind, least=1, largest_gap=3, first_offsets=OFFSETS)
        odd = Oddities(padding=data.draw(st.integers(0, 3)), raw_snappy=bool(unframed))
        batch = batch_of(data.draw(lists), codec=codec, transactional=True, producer_id=data.draw(st.integers(0, 9)))
        content = encode(batch, odd)
        (java,) = java_reads(java_oracle, content)
        assert java.records == batch.records
        assert same_fields(batch, java)
        assert decode(content) == [batch]

    check()


@pytest.mark.parametrize("codec", CODECS)
def test_two_thousand_records_of_every_class(java_oracle: JavaOracle, codec: str, seed: int) -> None:
    records = generate(seed, 2000)
    assert missing_classes(classes_of(records)) == []
    content = encode(batch_of(records, codec=codec))
    assert [list(batch.records) for batch in java_reads(java_oracle, content)] == [records]
    assert [list(batch.records) for batch in decode(content)] == [records]


def test_the_generator_repeats_itself_and_keeps_to_what_clients_can_write(seed: int) -> None:
    records = generate(seed, 2000, raw=False)
    assert records == generate(seed, 2000, raw=False)
    assert records != generate(seed + 1, 2000, raw=False)
    counts = classes_of(records)
    assert missing_classes(counts, CLIENT_CLASSES) == []
    assert set(counts) == CLIENT_CLASSES


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_java_s_byte_for_byte(java_oracle: JavaOracle, commit: bool) -> None:
    ours = encode(control_batch(40, commit=commit, producer_id=7, producer_epoch=2, timestamp=99))
    assert ours == java_oracle.marker(40, commit=commit, producer_id=7, producer_epoch=2, timestamp=99)


def test_empty_batches_are_java_s_byte_for_byte(java_oracle: JavaOracle) -> None:
    empty = batch_of([], base_offset=3, last_offset=9, producer_id=1, producer_epoch=0, base_sequence=0)
    empty = replace(empty, base_timestamp=-1, max_timestamp=77)
    assert encode(empty) == java_oracle.empty(3, 9, timestamp=77)
    (java,) = java_reads(java_oracle, encode(empty))
    assert (java.records, java.base_offset, java.last_offset) == ((), 3, 9)


def test_several_batches_and_a_cut_one(java_oracle: JavaOracle) -> None:
    many = [encode(batch_of([replace(RECORD, offset=offset)])) for offset in (1, 5, 9)]
    content = b"".join(many) + many[0][:-1]
    assert [batch.base_offset for batch in java_reads(java_oracle, content)] == [1, 5, 9]
    assert [batch.base_offset for batch in decode(content)] == [1, 5, 9]


def test_java_writes_old_formats(java_oracle: JavaOracle) -> None:
    plain = [Rec(offset, 8, 0, b"k", b"v") for offset in range(3)]
    old = java_reads(java_oracle, java_oracle.build(plain, magic=1, codec="gzip"))
    assert [(batch.magic, batch.records) for batch in old] == [(1, tuple(plain))]
    oldest = java_oracle.build([replace(record, timestamp=-1) for record in plain], magic=0, timestamp_type=-1)
    assert {batch.magic for batch in java_reads(java_oracle, oldest)} == {0}


BREAKS = {
    "crc": Oddities(crc=1),
    "one record too many": Oddities(count=3),
    "one too few": Oddities(count=1),
    "length too short": Oddities(length=20),
    "codec 7": Oddities(attributes=7),
    "tail": Oddities(tail=b"\x00"),
    "no zstd": Oddities(attributes=4, payload=b"garbage"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_both_refuse_what_is_broken(java_oracle: JavaOracle, name: str) -> None:
    content = encode(batch_of([RECORD, replace(RECORD, offset=6)]), BREAKS[name])
    assert isinstance(java_oracle.read(content), JavaError)
    with pytest.raises(BrokenBatchError):
        decode(content)


def test_a_count_of_none_before_records_is_an_empty_batch_to_java_alone(java_oracle: JavaOracle) -> None:
    """Seen with Kafka 4.1: the one wrong count that its reader lets pass. Ours is stricter."""
    content = encode(batch_of([RECORD]), Oddities(count=0))
    assert [batch.records for batch in java_reads(java_oracle, content)] == [()]
    with pytest.raises(BrokenBatchError, match="after the last record"):
        decode(content)


def test_java_refuses_to_be_asked_for_header_keys_that_it_cannot_write(java_oracle: JavaOracle) -> None:
    with pytest.raises(UnicodeDecodeError):
        java_oracle.build([replace(RECORD, headers=((b"\xff", None),))])
