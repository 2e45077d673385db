"""Record batches -> Frame, against the reference codec. Java's word: tests/integration/codec/test_codec_java.py."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.codec.batch import Scratch, decode_batches, in_place, position_after, whole_batches
from archiver.codec.frame import Column
from archiver.codec.kernels import batches as batch_kernels
from archiver.errors import CorruptBatchError
from tests.support.frames import records_of
from tests.support.records import Rec, classes_of, generate, missing_classes, record_lists
from tests.support.reference_batch import (
    CODECS,
    Batch,
    Oddities,
    batch_of,
    control_batch,
    encode,
    varint,
)

RECORD = Rec(5, 7, 0, b"k", None, ((b"h", b""), (b"h", None)))
PAIR = [RECORD, replace(RECORD, offset=6)]


def read(content: bytes, position: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> list[Rec]:
    return records_of(decode_batches(content, position, aborted).frame)


# --- what is in a batch


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_two_thousand_records_of_every_class(codec: str, timestamp_type: int, seed: int) -> None:
    records = generate(seed, 2000)
    assert missing_classes(classes_of(records)) == []
    if timestamp_type:  # one for all, that of the append
        records = [replace(record, timestamp=77, timestamp_type=1) for record in records]
    decoded = decode_batches(encode(batch_of(records, codec=codec, leader_epoch=9)), 0)
    assert records_of(decoded.frame) == records
    assert (decoded.next_offset, decoded.leader_epoch) == (2000, 9)


@settings(max_examples=40)
@given(st.data())
def test_any_records(data: st.DataObject) -> None:
    """Gaps, any timestamp (a delta may wrap), needless varint bytes, snappy with and without its frame."""
    lists = record_lists(
        extreme=True, timestamp_type=data.draw(st.integers(0, 1)), least=1, most=6, largest_gap=3,
        first_offsets=st.integers(0, 2**62),
    )  # fmt: skip
    records = data.draw(lists)
    odd = Oddities(padding=data.draw(st.integers(0, 9)), raw_snappy=data.draw(st.booleans()))
    content = encode(batch_of(records, codec=data.draw(st.sampled_from(CODECS))), odd)
    decoded = decode_batches(content, records[0].offset)
    assert records_of(decoded.frame) == records
    assert (decoded.next_offset, decoded.source_bytes) == (records[-1].offset + 1, len(content))


def test_memory_is_used_again_and_nothing_of_before_shows(seed: int) -> None:
    rng, scratch = random.Random(seed), Scratch()
    for number in range(30):
        records = generate(seed + number, rng.choice((1, 40, 700)))
        content = encode(batch_of(records, codec=rng.choice(CODECS)))
        assert records_of(decode_batches(content, 0, scratch=scratch).frame) == records
    large = [Rec(offset, 0, 0, None, bytes(40_000_000)) for offset in range(1)]
    assert records_of(decode_batches(encode(batch_of(large, codec="zstd")), 0, scratch=scratch).frame) == large
    scratch.trim(0)
    assert scratch.body is None


def test_log_append_time_is_the_batch_s_whatever_records_say() -> None:
    batch = batch_of(PAIR, timestamp_type=1, base_timestamp=3, max_timestamp=-(2**63))
    assert [(record.timestamp, record.timestamp_type) for record in read(encode(batch))] == [(-(2**63), 1)] * 2


def test_a_delete_horizon_leaves_timestamps_as_they_are() -> None:
    """Compaction puts the horizon where the base timestamp was, and counts deltas from there."""
    batch = batch_of(PAIR, delete_horizon=True, base_timestamp=1_753_000_000_000)
    assert read(encode(batch)) == PAIR


def test_negative_lengths_are_null_as_in_java() -> None:
    body = b"\x00" + varint(0) + varint(0) + varint(-5) + varint(-(2**31)) + varint(1) + varint(1) + b"h" + varint(-9)
    batch = batch_of([RECORD])
    content = encode(batch, Oddities(payload=varint(len(body)) + body))
    assert read(content) == [replace(RECORD, key=None, value=None, headers=((b"h", None),))]


# --- what is in a fetch


def fetch_of(*batches: Batch) -> bytes:
    return b"".join(map(encode, batches))


def test_many_batches_of_all_codecs_in_one_fetch(seed: int) -> None:
    records = generate(seed, 500)
    cut = [*range(0, 500, 23), 500]
    content = fetch_of(
        *(batch_of(records[start:stop], codec=CODECS[index % 5]) for index, (start, stop) in enumerate(pairwise(cut)))
    )
    assert read(content) == records
    for position in (0, 1, 22, 23, 24, 250, 499):
        decoded = decode_batches(content, position)
        assert records_of(decoded.frame) == records[position:]
        assert decoded.next_offset == 500
    assert decode_batches(content, 500).next_offset == 500
    assert decode_batches(content, 700).next_offset == 700


def test_more_batches_than_the_first_table_holds() -> None:
    content = fetch_of(*(batch_of([replace(RECORD, offset=offset)]) for offset in range(5000)))
    decoded = decode_batches(content, 0)
    assert decoded.frame.column(Column.OFFSET).tolist() == list(range(5000))
    assert (decoded.next_offset, decoded.source_bytes) == (5000, len(content))


def test_a_last_batch_that_is_cut_is_left_for_the_next_fetch() -> None:
    whole, cut = encode(batch_of([RECORD])), encode(batch_of([replace(RECORD, offset=9)]))
    for length in range(len(cut)):
        decoded = decode_batches(whole + cut[:length], 5)
        assert records_of(decoded.frame) == [RECORD]
        assert (decoded.next_offset, decoded.source_bytes) == (6, len(whole))


def test_a_first_batch_that_is_cut_is_an_error() -> None:
    content = encode(batch_of([RECORD]))
    for length in range(1, len(content)):
        with pytest.raises(CorruptBatchError, match=r"offset 5: .* do not begin with a whole record batch"):
            decode_batches(content[:length], 5)


def test_an_empty_fetch_stays_where_it_is() -> None:
    decoded = decode_batches(b"", 5)
    assert (len(decoded.frame), decoded.next_offset, decoded.leader_epoch, decoded.source_bytes) == (0, 5, -1, 0)
    batches, whole = whole_batches(b"", 5)
    assert (position_after(batches, 5), len(whole)) == (5, 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("transactional", [False, True])
def test_batches_that_compaction_emptied_move_the_position(codec: str, transactional: bool) -> None:
    empty = batch_of([], base_offset=6, last_offset=19, codec=codec, transactional=transactional, producer_id=4)
    emptied = encode(empty, Oddities(payload=b""))
    assert len(emptied) == batch_kernels.HEADER_SIZE
    decoded = decode_batches(encode(batch_of([RECORD])) + emptied, 5)
    assert (records_of(decoded.frame), decoded.next_offset) == ([RECORD], 20)
    assert decode_batches(emptied, 5).next_offset == 20


def test_markers_are_no_records_and_move_the_position() -> None:
    content = fetch_of(
        batch_of([RECORD]), control_batch(6, commit=True, producer_id=1), control_batch(7, commit=False, producer_id=2)
    )
    decoded = decode_batches(content, 5)
    assert (records_of(decoded.frame), decoded.next_offset) == ([RECORD], 8)
    assert len(decode_batches(content, 6).frame) == 0


def test_a_header_tells_positions_without_decoding() -> None:
    content = fetch_of(batch_of([RECORD], last_offset=11, codec="zstd"), control_batch(15, commit=True, producer_id=1))
    batches, whole = whole_batches(content + content[:30], 5)
    assert (position_after(batches, 5), len(whole)) == (16, len(content))


# --- what was there and is not the archive's


def left_out(content: bytes, position: int, aborted: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """(last offset, records) of the batches that are left out."""
    lasts, records = decode_batches(content, position, aborted).left_out.tolist()
    return list(zip(lasts, records, strict=True))


def of_producer(first: int, last: int, *offsets: int) -> Batch:
    """A batch of a transaction; of first..last compaction has left only some offsets."""
    records = [replace(RECORD, offset=offset) for offset in offsets]
    return batch_of(records, base_offset=first, last_offset=last, transactional=True, producer_id=4)


def test_records_and_what_compaction_took_are_not_left_out() -> None:
    emptied = encode(batch_of([], base_offset=8, last_offset=19, control=True, producer_id=4), Oddities(payload=b""))
    content = fetch_of(batch_of(PAIR, base_offset=3, last_offset=7)) + emptied + fetch_of(of_producer(20, 25, 22, 24))
    decoded = decode_batches(content, 0)
    assert (decoded.next_offset, decoded.records, decoded.left_out_within(0, 26)) == (26, 4, 0)


def test_markers_and_aborted_records_are_counted_where_they_lie() -> None:
    content = fetch_of(
        of_producer(5, 9, 5, 6, 7, 8, 9), batch_of([replace(RECORD, offset=10)]), of_producer(11, 16, 12, 15),
        control_batch(20, commit=False, producer_id=4), of_producer(21, 21, 21), control_batch(22, commit=True, producer_id=4),
    )  # fmt: skip
    decoded = decode_batches(content, 5, [(4, 5)])
    assert (decoded.records, left_out(content, 5, [(4, 5)])) == (2, [(9, 5), (16, 2), (20, 1), (22, 1)])
    within = {(0, 23): 9, (5, 10): 5, (10, 11): 0, (11, 17): 2, (11, 22): 3, (21, 23): 1, (22, 22): 0}
    assert {bounds: decoded.left_out_within(*bounds) for bounds in within} == within
    assert left_out(content, 10, [(4, 5)]) == [(9, 0), (16, 2), (20, 1), (22, 1)]  # what lies below was counted before


@pytest.mark.parametrize(
    ("position", "counted"),
    [(11, 4), (12, 3), (13, 2), (14, 1), (15, 0), (16, 0), (17, 0)],  # there are 4, 3, 3, 2, 2, 1 and 0
)
def test_of_a_batch_that_begins_below_no_more_are_counted_than_are_there(position: int, counted: int) -> None:
    content = fetch_of(of_producer(11, 16, 11, 13, 15, 16), control_batch(17, commit=False, producer_id=4))
    assert left_out(content, position, [(4, 11)]) == [(16, counted), (17, 1)]


@pytest.mark.parametrize("count", [-(2**31), -1, 2, 2**31 - 1])
def test_a_false_count_is_no_more_than_the_batch_has_room_for(count: int) -> None:
    content = encode(control_batch(7, commit=True, producer_id=4), Oddities(count=count))
    assert left_out(content, 5) == [(7, 1 if count > 0 else 0)]


def test_batches_that_were_not_decoded_are_not_counted() -> None:
    content = fetch_of(
        control_batch(4, commit=True, producer_id=4),
        batch_of(PAIR),
        batch_of([Rec(9, 0, 0, None, bytes(90_000))], codec="zstd"),
        control_batch(10, commit=True, producer_id=4),
    )
    decoded = decode_batches(content, 4, most_bytes=50_000)
    assert (decoded.next_offset, decoded.left_out.tolist()) == (7, [[4], [1]])


# --- where batches stand, which no checksum covers


def placed(ranges: Sequence[tuple[int, int]], position: int, end: int) -> list[int]:
    """Of batches with these first and last offsets: which are taken."""
    content = fetch_of(*(batch_of([], base_offset=first, last_offset=last) for first, last in ranges))
    batches, _ = whole_batches(content, position)
    return list(range(*in_place(batches, position, end).indices(len(ranges))))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=12), st.data())
def test_whatever_a_log_can_have_is_in_place(steps: list[int], data: st.DataObject) -> None:
    """Also compacted, from within a batch, and up to the end."""
    bounds = [sum(steps[:count]) for count in range(len(steps) + 1)]
    ranges = [(first, data.draw(st.integers(first, stop - 1))) for first, stop in pairwise(bounds)]
    position = data.draw(st.integers(0, ranges[0][1]))
    assert placed(ranges, position, ranges[-1][1] + 1) == list(range(len(ranges)))


@pytest.mark.parametrize(
    ("ranges", "position", "taken"),
    [
        ([(0, 9), (10, 19), (20, 30)], 0, [0, 1]),  # beyond the end
        ([(0, 9), (40, 49), (20, 29)], 0, [0]),
        ([(0, 9), (12, 21), (20, 29)], 0, [0]),  # into the next one
        ([(0, 9), (10, 19), (4, 13)], 0, [0]),  # one of the two is false
        ([(40, 49), (20, 29)], 10, []),
        ([(10, 19), (4, 13)], 10, []),
        ([(0, 9)], 10, []),  # nothing would move the position
        ([(0, 9), (10, 19)], 10, [0, 1]),
        ([(40, 49), (10, 19), (20, 29)], 20, [1, 2]),  # what is false was passed before
        ([(40, 49), (10, 19), (20, 29)], 25, [1, 2]),
        ([(22, 29), (10, 19), (20, 29)], 20, [2]),
        ([(22, 29), (10, 19)], 20, []),  # which of the two is false, nothing tells
        ([(20, 29), (20, 24)], 20, []),
        ([], 10, []),
    ],
)
def test_a_batch_that_is_not_where_it_can_be(ranges: list[tuple[int, int]], position: int, taken: list[int]) -> None:
    assert placed(ranges, position, 30) == taken


# --- aborted transactions, against a log that is played forward


def play(rng: random.Random) -> tuple[list[Batch], dict[int, tuple[int, int]]]:
    """A log of interleaved transactions. Returns its batches, and of each aborted one (producer: index of its marker)."""
    batches: list[Batch] = []
    begun: dict[int, int] = {}
    aborted: dict[int, tuple[int, int]] = {}  # offset of the marker -> (producer, first offset)
    offset = 0
    for _ in range(rng.randint(5, 40)):
        offset += rng.choice((0, 0, 3))
        producer = rng.randrange(4)
        if producer in begun and rng.random() < 0.35:
            commit = rng.random() < 0.5
            batches.append(control_batch(offset, commit=commit, producer_id=producer))
            first = begun.pop(producer)
            if not commit:
                aborted[offset] = (producer, first)
            offset += 1
            continue
        transactional = rng.random() < 0.8
        records = [Rec(offset + index, producer, 0, b"%d" % offset, None) for index in range(rng.randint(1, 4))]
        batches.append(batch_of(records, producer_id=producer, transactional=transactional, codec=rng.choice(CODECS)))
        if transactional:
            begun.setdefault(producer, offset)
        offset += len(records)
    for producer, first in begun.items():  # a fetch ends at the last stable offset: nothing is open below it
        batches.append(control_batch(offset, commit=False, producer_id=producer))
        aborted[offset] = (producer, first)
        offset += 1
    return batches, aborted


def committed(batches: Sequence[Batch], aborted: dict[int, tuple[int, int]]) -> Iterator[Rec]:
    for batch in batches:
        spans = [(p, first, marker) for marker, (p, first) in aborted.items()]
        gone = batch.transactional and any(
            batch.producer_id == producer and first <= batch.base_offset < marker for producer, first, marker in spans
        )
        if not batch.control and not gone:
            yield from batch.records


@pytest.mark.parametrize("case", range(25))
def test_aborted_records_never_come_out(case: int, seed: int) -> None:
    """Interleaved producers, several aborted transactions of each, plain records of transactional producers; from any position."""
    rng = random.Random(seed * 1000 + case)
    batches, aborted = play(rng)
    wanted = list(committed(batches, aborted))
    for start in sorted(rng.sample(range(len(batches)), min(4, len(batches)))):
        position = rng.randint(batches[start].base_offset, batches[start].last_offset)
        # The broker tells of those that end at or after the position, in the order of their markers.
        told = [entry for marker, entry in sorted(aborted.items()) if marker >= position]
        found = read(fetch_of(*batches[start:]), position, told)
        expected = [record for record in wanted if record.offset >= position]
        assert found == expected
        assert read_in_turns(fetch_of(*batches[start:]), position, told) == expected


def read_in_turns(content: bytes, position: int, aborted: Sequence[tuple[int, int]]) -> list[Rec]:
    """With a cap of a few records, each turn with what the one before left of the list."""
    found: list[Rec] = []
    while content:
        decoded = decode_batches(content, position, aborted, most_bytes=5 * 8 * len(Column))
        found += records_of(decoded.frame)
        content, position, aborted = content[decoded.source_bytes :], decoded.next_offset, decoded.aborted
    return found
