"""What the index may cost whoever reads it: bytes, memory and time, whatever stands in its files (docs/format.md §9)."""

import hashlib
import json
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_file import MOST_FILE_BYTES, encode_index, group_entries, split_file
from archiver.archive.index.index_generations import (
    _MOST_FILES_READ,
    MOST_FILES,
    MOST_GENERATION_BYTES,
    append_to_index,
    merge_index,
    read_index,
)
from archiver.archive.index.index_member import cut_member, decode_member
from archiver.archive.segments.entries import IndexEntry
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectKind
from archiver.upkeep.verify import check_listing
from tests.support.case_limits import WatchedStore, Weight
from tests.support.generated_store import LAYOUT as GENERATED
from tests.support.generated_store import GeneratedStore, Shape
from tests.support.index_reader import SKIPPED, Member, compress, read_file, read_member, write_file, write_member
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAYOUT = Layout("p")
FIRST = LAYOUT.index_key(0, 0)


def fill(store: MemoryStore, topic: str) -> None:
    """Put a segment, and a file of the index that knows it."""
    key, facts = SegmentKey(topic=topic, partition=0, base=0), facts_of(0, 10)
    etag = (
        store.put_if_absent(LAYOUT.segment_key(key), topic.encode(), facts.to_metadata(), kind=ObjectKind.SEGMENT) or ""
    )
    append_to_index(Archive(store, LAYOUT), [IndexEntry(key, len(topic), etag, facts)])


def overwrite(store: MemoryStore, content: bytes) -> None:
    store.objects[FIRST] = replace(store.objects[FIRST], body=content, metadata={})


def first_line(text: bytes) -> bytes:
    """Return a file that is only its first line, which says this."""
    line = compress(text + b"\n")
    return SKIPPED + struct.pack("<I", len(line)) + line


def member_of(store: MemoryStore) -> Member:
    _, (member,) = read_file(store.objects[FIRST].body)
    return read_member(member)


@contextmanager
def within(most_bytes: int, most_cpu_s: float) -> Iterator[None]:
    tracemalloc.start()
    begun = time.process_time()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most_bytes, f"{peak:,} bytes"
    assert time.process_time() - begun < most_cpu_s


@pytest.mark.parametrize(
    "directories",
    [
        [["t", 0, 400], ["t", 0, -300], ["t", 0, 400]],
        [["t", 0, True]],
        [["t", 0, 10**4000]],
        [["t", 0, 0]] * 5000,
        None,
    ],
    ids=str,
)
def test_a_first_line_that_lies_costs_its_file_and_nothing_else(directories: object) -> None:
    store = MemoryStore()
    fill(store, "t")
    fill(store, "kept")
    _, (member,) = read_file(store.objects[FIRST].body)
    overwrite(store, write_file({"format": 1, "directories": directories}, [member]))
    with within(20 << 20, 2):
        assert read_index(Archive(store, LAYOUT)).unreadable.keys() == {FIRST}
        with pytest.raises(CorruptSegmentError, match="not an index"):
            merge_index(Archive(store, LAYOUT))
    store.delete([FIRST])
    merge_index(Archive(store, LAYOUT))
    merged = read_index(Archive(store, LAYOUT))
    assert (merged.directories, merged.unreadable) == ({("kept", 0)}, {})


def test_files_are_refused_by_what_a_listing_says_and_by_what_comes() -> None:
    store = WatchedStore()
    for topic in ("a", "b", "c"):
        fill(store, topic)
    second, third = LAYOUT.index_key(0, 1), LAYOUT.index_key(0, 2)
    store.weights = {FIRST: Weight(MOST_FILE_BYTES + 1, 1), second: Weight(100, 1 << 40)}
    store.read_bytes = 0
    index = read_index(Archive(store, LAYOUT))
    assert index.directories == {("c", 0)}
    assert index.unreadable[FIRST].startswith(f"{FIRST}: has 2,147,483,649 bytes")
    assert index.unreadable[second].startswith(f"{second}: has 1,099,511,627,776 bytes")
    assert store.read_bytes == len(store.objects[third].body)


def test_a_generation_is_read_up_to_a_bound() -> None:
    store = WatchedStore()
    for topic in ("a", "b", "c"):
        fill(store, topic)
    half = MOST_GENERATION_BYTES // 2
    keys = [LAYOUT.index_key(0, number) for number in range(3)]
    real = [len(store.objects[key].body) for key in keys]
    store.weights = {key: Weight(half, size) for key, size in zip(keys, real, strict=True)}
    assert read_index(Archive(store, LAYOUT)).unreadable.keys() == {keys[2]}
    assert _MOST_FILES_READ > 10 * MOST_FILES


def test_thousands_of_files_are_not_all_asked_for_until_a_merge_takes_all() -> None:
    store = MemoryStore()
    fill(store, "t")
    for number in range(1, 1_199):
        store.objects[LAYOUT.index_key(0, number)] = store.objects[FIRST]
    fill(store, "last")
    index = read_index(Archive(store, LAYOUT))
    assert (index.directories, index.unread_files, index.unreadable) == ({("t", 0)}, 200, {})
    told = (
        "p/control/index/: 200 files of the index are not read, as too many come before; a backup merges them, unless"
    )
    assert told in "\n".join(check_listing(Archive(store, LAYOUT)).problems)
    merge_index(Archive(store, LAYOUT))
    index = read_index(Archive(store, LAYOUT))
    assert (index.directories, index.unread_files) == ({("t", 0), ("last", 0)}, 0)


def test_two_generations_are_read_up_to_the_same_bound() -> None:
    """Whatever file 0 claims to have merged of the previous one."""
    store = MemoryStore()
    fill(store, "t")
    for number in range(1, 700):
        store.objects[LAYOUT.index_key(0, number)] = store.objects[FIRST]
        store.objects[LAYOUT.index_key(1, number)] = store.objects[FIRST]
    false = write_file({"format": 1, "directories": [], "merged_files": 0})
    store.objects[LAYOUT.index_key(1, 0)] = replace(store.objects[FIRST], body=false, metadata={})
    assert read_index(Archive(store, LAYOUT)).unread_files == 400


def test_the_last_number_of_a_file_is_told() -> None:
    store = MemoryStore()
    fill(store, "t")
    store.objects[LAYOUT.index_key(0, 999_999)] = store.objects[FIRST]
    with pytest.raises(CorruptSegmentError, match=r"999999.zst: has the last number, and nothing can be put behind it"):
        append_to_index(Archive(store, LAYOUT), [])
    store.objects[LAYOUT.index_key(999_999, 0)] = store.objects[FIRST]
    with pytest.raises(CorruptSegmentError, match=r"p/control/index/999999/: has the last number"):
        merge_index(Archive(store, LAYOUT))


def with_header(member: Member, **changes: object) -> bytes:
    return write_member(member._replace(header=member.header | changes))


def behind(member: Member, content: bytes, **changes: object) -> bytes:
    """Return a member with other columns."""
    return compress(json.dumps(member.header | changes).encode() + b"\n" + content)


BOMBS: Mapping[str, Callable[[Member], bytes]] = {
    "many entries": lambda member: behind(member, bytes(248 * 200_000), count=200_000),
    "wide ETags": lambda member: behind(member, bytes(408 * 4_000), count=4_000, etag=256),
    "many behind the columns": lambda member: behind(member, bytes(100_000_000)),
    "a line without end": lambda _: compress(b'{"count": 1' + b" " * 100_000_000),
    "lists of nothing": lambda member: with_header(member, kinds=[[]] * 2_000_000),
    "a long text": lambda member: with_header(member, kinds=[member.header["kinds"][0] | {"writer": "e" * 10_000_000}]),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_member_cannot_become_much_more_than_it_is(bomb: Callable[[Member], bytes]) -> None:
    """Some kilobytes each, that were hundreds of megabytes, or minutes."""
    store = MemoryStore()
    fill(store, "t")
    content = bomb(member_of(store))
    with within(48 << 20, 3), pytest.raises(CorruptSegmentError, match=r"^k: not an index: "):
        decode_member(cut_member(content), "k")


def test_a_window_that_is_too_large_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = packer.compress(random.Random(1).randbytes(1 << 20)) + packer.flush()
    with within(16 << 20, 1), pytest.raises(CorruptSegmentError, match="memory"):
        decode_member(cut_member(content), "k")


def test_an_index_of_ten_million_objects_is_within_its_bounds(tmp_path: Path) -> None:
    """Bytes of an entry that no formula makes shorter, by the most for whom an index is made: half of what one may have."""
    shape = Shape(topics=20, partitions=10, per_partition=20)
    store = GeneratedStore(shape, tmp_path)
    store.write_index([1.0])
    (item,) = store.list(GENERATED.index_prefix)
    assert 10_000_000 * item.size / shape.objects < MOST_FILE_BYTES / 1.5 < MOST_GENERATION_BYTES / 2


def test_entries_that_are_nearly_alike_are_read() -> None:
    """Of a store without ETags: they get small, and are no bomb."""
    facts = facts_of(0, 10)
    hashes = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(20_000)]
    entries = [
        IndexEntry(SegmentKey(topic="t", partition=number, base=0), 5, "", replace(facts, sha256=sha256))
        for number, sha256 in enumerate(hashes)
    ]
    ((_, member),) = split_file(encode_index(group_entries(entries)), "k").members.items()
    assert list(decode_member(cut_member(member), "k").texts("sha256")) == hashes


def test_the_first_line_of_many_topics_is_read() -> None:
    """Of names as long as they get, that differ in a few digits."""
    found = {("a" * 244 + f"{number:05}", 0): None for number in range(20_000)}
    empty = compress(b"{}\n")
    names = [[topic, life, len(empty)] for topic, life in found]
    seen = {topic: 3 for topic, _ in found}
    content = write_file({"format": 1, "directories": names, "facts": seen}, [empty] * len(names))
    assert split_file(content, "k").members.keys() == found.keys()


def test_a_first_line_of_lists_is_stopped() -> None:
    content = first_line(b'{"format": 1, "directories": [' + b"[]," * 1_300_000 + b"0]}")
    assert len(content) < 20_000
    with within(24 << 20, 3), pytest.raises(CorruptSegmentError, match="parsing it may take"):
        split_file(content, "k")
