"""docs/format.md §10: an offset map says of every source offset where it went, and what is not one is named."""

import hashlib
import io
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, cast

import fastavro
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import MOST_OFFSET, Layout, OffsetMapKey
from archiver.archive.restores.offset_map import (
    MAP_DIGEST,
    OffsetMap,
    OffsetMapFacts,
    OffsetMapWriter,
    check_offset_map,
    decode_offset_map,
    put_offset_map,
    read_offset_map,
)
from archiver.codec.avro import encode_block, encode_header
from archiver.codec.compression import BlockCodec
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.schemas import OFFSET_RUN
from archiver.errors import FormatTooNewError, NotWholeError
from archiver.upkeep.control_check import check_control
from tests.support.memory_store import MemoryStore
from tests.support.reference_batch import varint

LAYOUT = Layout("p")
SYNC = b"s" * 16
FACTS = OffsetMapFacts(
    restore_id="mine",
    source_topic="orders",
    source_life=2,
    source_partition=7,
    source_next=0,
    target_cluster_id="c",
    target_topic="orders.back",
    target_topic_id="Xw-_",
    target_partition=7,
    target_next=0,
    records=0,
    runs=0,
)
KEY = LAYOUT.offset_map_key(FACTS.key)


def longs(offsets: Iterable[int]) -> Longs:
    return np.array(list(offsets), np.int64)


def frame_at(offsets: Sequence[int] | Longs) -> Frame:
    table = np.zeros((len(Column), len(offsets)), np.int64)
    table[Column.OFFSET] = offsets
    return Frame(body=np.empty(0, np.uint8), header_body=np.empty(0, np.uint8), table=table)


def collected(offsets: Sequence[int], start: int = 0, cuts: Iterable[int] = ()) -> OffsetMapWriter:
    """`cuts`: where one frame ends and the next begins."""
    writer = OffsetMapWriter(start)
    edges = [0, *sorted(cuts), len(offsets)]
    for first, stop in pairwise(edges):
        writer.add(frame_at(offsets[first:stop]))
    return writer


def facts_of(writer: OffsetMapWriter, behind: int = 0) -> OffsetMapFacts:
    return replace(
        FACTS,
        source_next=writer.source_next + behind,
        target_next=writer.target_next,
        records=writer.records,
        runs=writer.runs,
    )


def metadata_of(content: bytes) -> dict[str, str]:
    return {MAP_DIGEST: hashlib.sha256(content).hexdigest()}


def written(offsets: Sequence[int], start: int = 0, behind: int = 0, cuts: Iterable[int] = ()) -> bytes:
    writer = collected(offsets, start, cuts)
    return writer.finish(facts_of(writer, behind))


def read(content: bytes) -> OffsetMap:
    return decode_offset_map(content, metadata_of(content), KEY)


def runs_by_hand(offsets: Sequence[int]) -> list[dict[str, int]]:
    groups = [[offset for _, offset in some] for _, some in groupby(enumerate(offsets), lambda one: one[1] - one[0])]
    ends = [0, *(group[-1] + 1 for group in groups)]
    return [{"absent": group[0] - end, "records": len(group)} for group, end in zip(groups, ends, strict=False)]


@st.composite
def histories(draw: st.DrawFn) -> list[int]:
    """Source offsets of records, as short and long runs with short and long holes, from anywhere up to the last there can be."""
    steps = draw(st.lists(st.tuples(st.integers(0, 3) | st.integers(0, 2**50), st.integers(1, 6)), max_size=12))
    offsets: list[int] = []
    at = 0
    for hole, count in steps:
        at += hole
        offsets += range(at, at + count)
        at += count
    shift = draw(st.sampled_from((0, MOST_OFFSET - at)))  # the very end: behind the last record comes the last offset
    return [offset + shift for offset in offsets]


@given(histories(), st.integers(0, 2**40), st.sampled_from((0, 0, 1, 100)), st.data())
@example([], 0, 0, None)
@example([0], 0, 0, None)
@example([MOST_OFFSET - 1], MOST_OFFSET - 1, 0, None)
def test_every_offset_goes_where_its_record_went(
    offsets: list[int], start: int, behind: int, data: st.DataObject | None
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(offsets)), max_size=5)) if data is not None else []
    last = offsets[-1] + 1 if offsets else 0
    behind = min(behind, MOST_OFFSET - last)
    found = read(written(offsets, start, behind, cuts))
    assert found.facts.source_next == last + behind
    near = {offset + step for offset in [0, *offsets, last + behind] for step in (-2, -1, 0, 1, 2)}
    asked = sorted(one for one in near | {-(2**63), MOST_OFFSET} if -(2**63) <= one <= MOST_OFFSET)
    expected = [start + sum(offset < one for offset in offsets) for one in asked]
    assert found.translate(longs(asked)).tolist() == expected
    there = range(start, start + len(offsets))
    assert found.translate_back(longs(there)).tolist() == offsets
    beyond = [-(2**63), start - 1, start + len(offsets), MOST_OFFSET]
    first, end = [*offsets, last + behind][0], last + behind
    assert found.translate_back(longs(beyond)).tolist() == [first, first, end, end]


@given(histories(), st.data())
def test_a_stranger_reads_it(offsets: list[int], data: st.DataObject) -> None:
    content = written(
        offsets, 5, 3 if offsets and offsets[-1] < 2**62 else 0, data.draw(st.lists(st.integers(0, len(offsets))))
    )
    reader = fastavro.reader(io.BytesIO(content))
    runs = [cast("dict[str, int]", run) for run in reader]
    assert runs == runs_by_hand(offsets)
    texts = cast("Mapping[str, Any]", reader.metadata)
    assert {name: texts[f"archiver.{name}"] for name in ("format", "restore-id", "source-topic", "source-life")} == {
        "format": "1",
        "restore-id": "mine",
        "source-topic": "orders",
        "source-life": "2",
    }
    assert int(texts["archiver.records"]) == len(offsets)
    assert int(texts["archiver.target-next"]) == 5 + len(offsets)


def test_a_map_of_many_blocks() -> None:
    rng = np.random.default_rng(3)
    offsets = np.cumsum(rng.integers(1, 4, 100_000))
    writer = OffsetMapWriter(0)
    for part in np.split(offsets, 37_000 + np.arange(7) * 9_000):
        writer.add(frame_at(part))
    content = writer.finish(facts_of(writer))
    found = read(content)
    assert found.facts.runs > 3 * 16 * 1024
    asked = np.arange(int(offsets[-1]) + 3)
    assert (found.translate(asked) == np.searchsorted(offsets, asked)).all()
    assert len(list(fastavro.block_reader(io.BytesIO(content)))) == -(-found.facts.runs // (16 * 1024))
    for cut in (block.offset for block in fastavro.block_reader(io.BytesIO(content))):
        with pytest.raises(NotWholeError, match="the object was cut"):
            decode_offset_map(content[:cut], {}, KEY)


def test_what_does_not_rise_is_no_map() -> None:
    writer = collected([3, 4])
    with pytest.raises(ValueError, match="do not rise"):
        writer.add(frame_at([4, 5]))
    with pytest.raises(ValueError, match="do not rise"):
        collected([3, 3])


# --- what is not as it was written


def test_every_flipped_bit_is_found() -> None:
    content = written([1, 2, 7, 9, 10])
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(NotWholeError, match=KEY):
            decode_offset_map(bytes(flipped), metadata_of(content), KEY)


def spelled(pairs: Sequence[tuple[int, int]], count: int | None = None, **facts: int) -> bytes:
    body = b"".join(varint(absent) + varint(records) for absent, records in pairs)
    known = replace(FACTS, **facts)  # type: ignore[arg-type]
    header = encode_header(BlockCodec.NULL, SYNC, known.to_header(), OFFSET_RUN)
    size = len(pairs) if count is None else count
    return header + encode_block(np.frombuffer(body, np.uint8), size, BlockCodec.NULL, 0, SYNC)


GOOD = {"source_next": 9, "target_next": 5, "records": 5, "runs": 2}


def test_runs_by_hand_are_read() -> None:
    found = read(spelled([(1, 2), (3, 3)], **GOOD))
    assert (found.sources.tolist(), found.targets.tolist()) == ([1, 6, 9], [0, 2, 5])


@pytest.mark.parametrize(
    "content",
    [
        spelled([(1, 2), (0, 3)], **GOOD),  # one run, cut in two
        spelled([(-1, 2), (3, 3)], **GOOD),
        spelled([(1, 5), (3, 0)], **GOOD),
        spelled([(1, 2), (3, 4)], **GOOD),
        spelled([(1, 2), (4, 3)], **GOOD),  # up to offset 10
        spelled([(1, 2), (2**63 - 1, 3)], **GOOD),
        spelled([(2**63 - 1, 2), (2**63 - 1, 2**63 - 1), (3, 3)], **(GOOD | {"runs": 3})),
        spelled([(1, 5)], **GOOD),
        spelled([(1, 2), (3, 3)], 2**40, **GOOD),
        spelled([(1, 2), (3, 3)], **(GOOD | {"runs": 1})),
        spelled([(1, 2), (3, 3)], **(GOOD | {"source_next": 8})),
        spelled([(1, 2), (3, 3)], **GOOD).replace(b"archiver.runs", b"archiver.rums"),
        spelled([(1, 2), (3, 3)], **GOOD).replace(FACTS.restore_id.encode(), b"\x7f" * len(FACTS.restore_id)),
        encode_header(BlockCodec.NULL, SYNC, FACTS.to_header()),  # of records
        b"",
    ],
)
def test_what_is_no_map_is_named(content: bytes) -> None:
    with pytest.raises(NotWholeError, match=KEY):
        decode_offset_map(content, {}, KEY)


def test_a_block_of_a_map_that_expands_is_stopped() -> None:
    count = 8_000_000
    facts = replace(FACTS, runs=count, records=count, source_next=2 * count, target_next=count)
    header = encode_header(BlockCodec.ZSTANDARD, SYNC, facts.to_header(), OFFSET_RUN)
    content = header + encode_block(np.full(2 * count, 2, np.uint8), count, BlockCodec.ZSTANDARD, 3, SYNC)
    assert len(content) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(NotWholeError, match="not readable within 524288 bytes"):
            decode_offset_map(content, metadata_of(content), KEY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def alike(blocks: int, told: int | None = None) -> bytes:
    """A map of runs that are all alike, which take no room."""
    count = blocks * 16_000
    runs = count if told is None else told
    facts = replace(FACTS, runs=runs, records=count, source_next=2 * count, target_next=count)
    header = encode_header(BlockCodec.ZSTANDARD, SYNC, facts.to_header(), OFFSET_RUN)
    return header + blocks * encode_block(np.full(32_000, 2, np.uint8), 16_000, BlockCodec.ZSTANDARD, 3, SYNC)


def test_runs_without_end_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few bytes: no more than one may hold, and no more than the header tells of."""
    content = alike(20)
    assert len(content) < 2_000
    assert len(read(content).sources) == 320_001
    monkeypatch.setattr("archiver.archive.restores.offset_map.MOST_RUNS", 319_999)
    check_offset_map(content, {}, FACTS.key, KEY)  # a block at a time
    with pytest.raises(NotWholeError, match=f"{KEY}: tells of 320,000 runs, and no more than 319,999 are read at once"):
        read(content)
    with pytest.raises(NotWholeError, match=r"more runs than the 20,000 that the header tells of"):
        read(alike(20, 20_000))


def test_a_later_format_is_refused_by_name() -> None:
    header = encode_header(BlockCodec.NULL, SYNC, FACTS.to_header() | {"archiver.format": "2"}, OFFSET_RUN)
    with pytest.raises(FormatTooNewError, match=f"{KEY}: format 2 is newer"):
        decode_offset_map(header, {}, KEY)


# --- in the store


def test_a_map_is_put_once_and_found_again() -> None:
    store = MemoryStore()
    assert read_offset_map(store, KEY) is None
    for _ in range(2):  # the second time it is there
        writer = collected([5, 6, 9])
        put_offset_map(store, KEY, writer, facts_of(writer))
    found = read_offset_map(store, KEY)
    assert found is not None
    assert found.translate(longs([7])).tolist() == [2]
    other = collected([5, 6])
    with pytest.raises(NotWholeError, match=f"{KEY}: is not the map of what was restored; delete it"):
        put_offset_map(store, KEY, other, facts_of(other))
    store.objects[KEY] = replace(store.objects[KEY], body=b"x")
    with pytest.raises(NotWholeError, match=f"{KEY}: is not the map of what was restored; delete it"):
        put_offset_map(store, KEY, collected([5, 6, 9]), found.facts)


def test_verify_reads_it() -> None:
    store = MemoryStore()
    writer = collected([5, 6, 9])
    put_offset_map(store, KEY, writer, facts_of(writer))
    assert check_control(Archive(store, LAYOUT)) == []
    whole = store.objects[KEY]
    store.objects[KEY] = replace(whole, body=whole.body[:-1])
    (problem,) = check_control(Archive(store, LAYOUT))
    assert problem.startswith(f"{KEY}: ")
    assert problem.endswith("run that restore again, which makes it")


def test_a_map_under_another_ones_key_is_told() -> None:
    content = written([5, 6, 9])
    check_offset_map(content, metadata_of(content), FACTS.key, KEY)
    for other in ({"restore_id": "other"}, {"topic": "orders"}, {"partition": 0}, {"topic_id": ""}):
        with pytest.raises(NotWholeError, match="the map of another"):
            check_offset_map(content, {}, replace(FACTS.key, **other), KEY)


# --- its key

ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
topics = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in {".", ".."})
keys = st.builds(
    OffsetMapKey,
    restore_id=ids,
    topic=topics,
    partition=st.integers(0, 12) | st.integers(0, 2**31 - 1),
    topic_id=st.text("abXY01_-", max_size=22),
)


@given(keys)
def test_a_key_that_is_spelled_is_parsed(key: OffsetMapKey) -> None:
    spelled_key = LAYOUT.offset_map_key(key)
    assert LAYOUT.parse_offset_map(spelled_key) == key
    assert LAYOUT.split_fact(spelled_key) is None


@given(keys, st.data())
def test_an_edited_key_is_a_stranger_or_spells_itself(key: OffsetMapKey, data: st.DataObject) -> None:
    whole = LAYOUT.offset_map_key(key)
    at = data.draw(st.integers(0, len(whole)))
    letters = data.draw(st.text("0123456789aZ./+-@=\n٣ ", max_size=3))
    edited = whole[:at] + letters + whole[at + data.draw(st.integers(0, 3)) :]
    parsed = LAYOUT.parse_offset_map(edited)
    assert parsed is None or LAYOUT.offset_map_key(parsed) == edited


def test_the_spelling_is_the_one_of_the_format() -> None:
    assert KEY == "p/control/restores/mine/orders.back/7/offsets/Xw-_.avro"
    for wrong in ({"restore_id": "-"}, {"topic": ".."}, {"partition": -1}, {"topic_id": "a/b"}):
        with pytest.raises(ValueError, match="not"):
            replace(FACTS.key, **wrong)


def test_a_map_that_was_there_says_the_same_or_is_refused() -> None:
    """Its facts tell what it is of; whoever put another one there first could have given it the same."""
    source = [*range(10), *range(20, 30)]
    forged = [*range(5), *range(15, 30)]
    ours, theirs = collected(source), collected(forged)
    facts = facts_of(ours)
    assert facts == facts_of(theirs)
    store = MemoryStore()
    put_offset_map(store, KEY, ours, facts)
    put_offset_map(store, KEY, collected(source, cuts=[3]), facts)  # by an attempt that was killed
    store.delete([KEY])
    put_offset_map(store, KEY, theirs, facts)
    with pytest.raises(NotWholeError, match="is not the map of what was restored"):
        put_offset_map(store, KEY, collected(source), facts)
