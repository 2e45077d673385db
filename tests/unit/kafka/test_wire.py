"""The wire format without a broker: forms, bounds, versions, and what each error code means."""

import asyncio
import gc
import struct
import weakref
from io import BytesIO
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import TEMPORARY, Code, broker_error
from archiver.kafka.brokers.wire import (
    AnswerReader,
    MalformedAnswerError,
    RequestWriter,
    uuid_bytes,
    uuid_text,
    uvarint,
)
from archiver.kafka.records.fetch import Divergence, FetchCall, Fetched, FetchProblem, FetchTarget, fetch, problem_of
from archiver.kafka.records.produce import ProduceCall, ProduceOutcome, outcome_of

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"  # bytes 0 to 15, as Kafka's Uuid.toString prints them


@given(st.integers(0, 2**31 - 1))
def test_numbers_come_back(number: int) -> None:
    assert AnswerReader(memoryview(uvarint(number)), flexible=True).uvarint() == number


@given(st.binary(min_size=16, max_size=16))
def test_ids_come_back(raw: bytes) -> None:
    assert uuid_bytes(uuid_text(raw)) == raw


def test_ids_look_as_kafka_prints_them() -> None:
    assert uuid_text(bytes(range(16))) == TOPIC_ID
    assert uuid_text(bytes(16)) == ""
    with pytest.raises(ValueError, match="not a Kafka id"):
        uuid_bytes("abcd")


@pytest.mark.parametrize(
    ("flexible", "text", "raw"),
    [
        (False, "ab", b"\0\2ab"),
        (False, None, b"\xff\xff"),
        (True, "ab", b"\3ab"),
        (True, None, b"\0"),
        (True, "", b"\1"),
    ],
)
def test_strings_in_both_forms(flexible: bool, text: str | None, raw: bytes) -> None:
    out = RequestWriter(flexible=flexible)
    out.text(text)
    out.tags()
    assert b"".join(out.pieces()) == raw + (b"\0" if flexible else b"")
    assert AnswerReader(memoryview(raw), flexible=flexible).text() == (text or "")


@given(st.binary(max_size=40))
def test_no_bytes_make_the_reader_leave_its_buffer(raw: bytes) -> None:
    for read in (
        AnswerReader.text,
        AnswerReader.blob,
        AnswerReader.tags,
        AnswerReader.uuid,
        lambda reader: reader.array(reader.int64),
    ):
        reader = AnswerReader(memoryview(raw), flexible=True)
        try:
            read(reader)
        except MalformedAnswerError:
            continue
        assert reader._at <= len(raw)


# --- fetch

ANSWERED = struct.Struct(">ihqqq")


def answer_with(partitions: list[bytes], topic: bytes = bytes(range(16))) -> bytes:
    rows = b"".join(partitions)
    return struct.pack(">ihi", 0, 0, 0) + uvarint(2) + topic + uvarint(len(partitions) + 1) + rows + b"\0" + b"\0"


WHOLE = answer_with([
    ANSWERED.pack(0, 0, 9, 8, 1) + uvarint(2) + struct.pack(">qq", 77, 3) + b"\0" + b"\xff" * 4 + uvarint(6) + b"bytes\0",
    ANSWERED.pack(1, 0, -1, -1, -1) + b"\0" + b"\xff" * 4 + b"\0"
    + b"\2" + b"\0\x0d" + struct.pack(">iq", 4, 50) + b"\0" + b"\1\x09" + struct.pack(">ii", 1, 5) + b"\0",
    ANSWERED.pack(2, 100, -1, -1, -1) + b"\0" + b"\xff" * 4 + b"\1" + b"\0",
])  # fmt: skip


def call_for(partitions: int) -> FetchCall:
    targets = [FetchTarget(topic="t", topic_id=TOPIC_ID, partition=nr, offset=0) for nr in range(partitions)]
    return FetchCall(targets, max_bytes=1, partition_bytes=1, max_wait_ms=1, min_bytes=1)


def test_a_fetch_answer_is_read_with_its_tagged_fields() -> None:
    error_code, (whole, cut, gone) = call_for(3).read(AnswerReader(memoryview(WHOLE), flexible=True), 13)
    assert error_code == 0
    assert bytes(whole.records) == b"bytes"
    assert whole.records.obj is WHOLE, "a slice, not a copy"
    assert whole == Fetched(
        topic="t",
        partition=0,
        records=whole.records,
        aborted=((77, 3),),
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=1,
        by_topic_id=True,
        error=None,
    )
    assert (cut.error, cut.diverging) == (FetchProblem.DIVERGING_EPOCH, Divergence(epoch=4, end_offset=50))
    assert (gone.error, gone.error_code, len(gone.records)) == (FetchProblem.UNKNOWN_TOPIC_ID, 100, 0)


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_cut_fetch_answer_is_malformed_wherever_it_is_cut(length: int) -> None:
    with pytest.raises(MalformedAnswerError):
        call_for(3).read(AnswerReader(memoryview(WHOLE)[:length], flexible=True), 13)


def test_answers_are_paired_with_their_partitions() -> None:
    """A broker answers with the refused ones last."""
    targets = [FetchTarget(topic="t", topic_id=TOPIC_ID, partition=number, offset=0) for number in (2, 0, 1)]

    class Client:
        settings = SimpleNamespace(request_timeout_ms=1000)

        async def send(self, *_: object, **__: object) -> tuple[int, list[Fetched]]:
            return call_for(3).read(AnswerReader(memoryview(WHOLE), flexible=True), 13)

    client = cast("KafkaClient", Client())
    found = asyncio.run(fetch(client, 0, targets, max_bytes=1, partition_bytes=1, max_wait_ms=1, min_bytes=1))
    assert [one.partition for one in found] == [2, 0, 1]


def test_an_answer_about_another_topic_is_malformed() -> None:
    raw = answer_with([], topic=bytes(15) + b"\1")
    with pytest.raises(MalformedAnswerError, match="was not requested"):
        call_for(1).read(AnswerReader(memoryview(raw), flexible=True), 13)


@pytest.mark.parametrize(
    ("topic_id", "spoken", "version"),
    [(TOPIC_ID, (4, 17), 13), (TOPIC_ID, (0, 12), 12), ("", (4, 17), 12)],
    ids=["by id", "old broker", "no id"],
)
def test_fetch_goes_by_id_where_it_can(topic_id: str, spoken: tuple[int, int], version: int) -> None:
    target = FetchTarget(topic="t", topic_id=topic_id, partition=0, offset=0)
    call = FetchCall([target], max_bytes=1, partition_bytes=1, max_wait_ms=1, min_bytes=1)
    prepared = call.prepare({1: spoken})
    assert repr(prepared) == f"Fetch v{version}"
    assert (b"\2t\2" in b"".join(prepared.pieces(b""))) == (version == 12)
    assert prepared.parse_response_header(BytesIO(b"\0\0\0\7\0")).correlation_id == 7


@pytest.mark.parametrize("spoken", [{1: (0, 11)}, {1: (14, 20)}, {}])
def test_an_unsupported_request_is_detected_by_the_api_versions(spoken: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(KafkaError, match=r"the broker speaks Fetch v.* this program v12\.\.v13"):
        call_for(1).prepare(spoken)


def test_the_received_bytes_are_not_copied() -> None:
    received = bytes(4) + b"\0" + WHOLE
    prepared = call_for(3).prepare({1: (4, 13)})
    prepared.received = memoryview(received)
    stream = BytesIO(received[:100])  # the beginning is enough
    prepared.parse_response_header(stream)
    _, (whole, _, _) = prepared.decode(stream)
    assert whole.records.obj is received


# --- codes


@pytest.mark.parametrize("size", [0, 100, 1_000_000])
def test_a_large_batch_goes_out_from_where_it_lies(size: int) -> None:
    batch = memoryview(bytes(range(256)) * (size // 256 + 1))[:size]
    pieces = ProduceCall("topic", 7, batch, 1000).prepare({ProduceCall.api_key: (0, 9)}).pieces(b"header")
    whole = b"".join(pieces)
    assert whole.startswith(b"header")
    assert whole.endswith(size.to_bytes(4, "big") + bytes(batch))
    assert any(piece is batch for piece in pieces) == (size > 100)
    assert len(pieces) <= 2


def test_a_call_that_was_sent_is_gone_at_once() -> None:
    """It holds a batch of records: one that garbage collection has to find costs megabytes and page faults."""
    call = ProduceCall("t", 0, bytes(10), 1000)
    prepared = call.prepare({ProduceCall.api_key: (0, 9)})
    assert prepared.RESPONSE_TYPE is prepared
    kept = weakref.ref(prepared)
    gc.disable()
    try:
        del prepared
        assert kept() is None
    finally:
        gc.enable()


def test_every_code_is_an_error_of_one_kind() -> None:
    for code in [*Code, 12345]:
        error = broker_error(code, "t[0] at broker 1", "its words")
        assert isinstance(error, KafkaTemporaryError) == (code in TEMPORARY)
        assert str(code if code == 12345 else int(code)) in str(error)
        assert "t[0] at broker 1" in str(error)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (0, None),
        (Code.OFFSET_OUT_OF_RANGE, FetchProblem.OFFSET_OUT_OF_RANGE),
        (Code.NOT_LEADER_OR_FOLLOWER, FetchProblem.NOT_LEADER),
        (Code.FENCED_LEADER_EPOCH, FetchProblem.NOT_LEADER),
        (Code.UNKNOWN_TOPIC_ID, FetchProblem.UNKNOWN_TOPIC_ID),
        (Code.INCONSISTENT_TOPIC_ID, FetchProblem.UNKNOWN_TOPIC_ID),
        (Code.TOPIC_AUTHORIZATION_FAILED, FetchProblem.DENIED),
        (Code.OFFSET_NOT_AVAILABLE, FetchProblem.TEMPORARY),
        (Code.UNKNOWN_SERVER_ERROR, FetchProblem.TEMPORARY),
        (Code.CORRUPT_MESSAGE, FetchProblem.FAILED),
        (12345, FetchProblem.FAILED),
    ],
)
def test_fetch_problems(code: int, problem: FetchProblem | None) -> None:
    assert problem_of(code) is problem


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, ProduceOutcome.DONE),
        (45, ProduceOutcome.OUT_OF_SEQUENCE),
        (46, ProduceOutcome.DUPLICATE),
        (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ProduceOutcome.TEMPORARY),
        (Code.REQUEST_TIMED_OUT, ProduceOutcome.TEMPORARY),
        (Code.NOT_LEADER_OR_FOLLOWER, ProduceOutcome.TEMPORARY),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, ProduceOutcome.TEMPORARY),
        (Code.POLICY_VIOLATION, ProduceOutcome.FATAL),
        (Code.TOPIC_AUTHORIZATION_FAILED, ProduceOutcome.FATAL),
        (Code.UNKNOWN_PRODUCER_ID, ProduceOutcome.FATAL),
        (Code.UNKNOWN_SERVER_ERROR, ProduceOutcome.FATAL),
        (12345, ProduceOutcome.FATAL),
    ],
)
def test_produce_outcomes(code: int, outcome: ProduceOutcome) -> None:
    assert outcome_of(code) is outcome
