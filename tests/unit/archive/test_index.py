"""The index of facts (docs/format.md §9): what it says of an object holds only for exactly that object."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.fresh_entries import FreshEntries
from archiver.archive.index.index_file import NOTHING_SEEN, SeenControl, group_entries, split_file
from archiver.archive.index.index_file import encode_index as encode_grouped
from archiver.archive.index.index_generations import MOST_FILES, append_to_index, merge_index, read_index
from archiver.archive.index.index_member import cut_member, decode_member
from archiver.archive.index.inventory import Inventory, read_inventory
from archiver.archive.segments.entries import IndexEntry, Traits
from archiver.archive.segments.listing import ListedPartition
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.segment_facts import Hole, HoleCause, SegmentFacts
from archiver.codec.selection import Selection
from archiver.errors import CorruptSegmentError, FormatTooNewError, StoreError, StoreTemporaryError
from archiver.store.port import MOST_PUT_BYTES, Body, ListedObject, ObjectKind
from archiver.upkeep.verify import check_listing
from tests.support.index_reader import (
    Member,
    facts_of,
    read_file,
    read_member,
    write_file,
    write_member,
    write_topics,
)
from tests.support.memory_store import CountingStore, MemoryStore, StoredObject
from tests.support.segments import facts_of as plain_facts
from tests.support.segments import known_facts

LAYOUT = Layout("p")
ENOUGH = 40  # segments: fewer are asked for without a look at the index
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def key_of(base: int, topic: str = "t", partition: int = 0, **more: int) -> SegmentKey:
    return SegmentKey(topic=topic, partition=partition, base=base, **more)


def fill(store: MemoryStore, topic: str = "t", count: int = ENOUGH) -> list[IndexEntry]:
    """Segments of one offset each, and the entries that their writer would note."""
    entries = []
    for base in range(count):
        key, facts = key_of(base, topic), plain_facts(base, base + 1)
        body = f"{topic} {base:06}".encode()
        etag = store.put_if_absent(LAYOUT.segment_key(key), body, facts.to_metadata(), kind=ObjectKind.SEGMENT)
        assert etag is not None
        entries.append(IndexEntry(key, len(body), etag, facts))
    return entries


def write(store: MemoryStore, entry: IndexEntry, body: bytes, facts: SegmentFacts) -> None:
    """Another object under a key that an entry has."""
    store.objects[LAYOUT.segment_key(entry.key)] = StoredObject(body, facts.to_metadata(), MOMENT)


def segments_of(inventory: Inventory) -> list[Segment]:
    return [
        segment
        for partitions in inventory.partitions.values()
        for found in partitions.values()
        for segment in found.segments
    ]


def read_counting(store: CountingStore) -> tuple[Inventory, int]:
    before = store.heads
    return read_inventory(Archive(store, LAYOUT)), store.heads - before


# --- a file

counts = st.integers(1, 2**40)
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@st.composite
def entries(draw: st.DrawFn) -> IndexEntry:
    base, first, records, rest = draw(counts), draw(counts), draw(counts), draw(counts)
    first += base
    last = first + records
    facts = SegmentFacts(
        writer=draw(texts),
        cluster_id=draw(texts),
        topic_id=draw(texts),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        base=base,
        first=first,
        last=last,
        next=last + rest,
        records=records,
        tombstones=draw(st.integers(0, records)),
        min_timestamp=draw(st.integers(-(2**63), 0)),
        max_timestamp=draw(st.integers(0, 2**63 - 1)),
        timestamp_types=draw(st.sampled_from([(0,), (-1, 0, 1), (1,)])),
        bytes=draw(counts),
        largest_record=draw(counts),
        source_bytes=draw(counts),
        holes=tuple(
            Hole(first_offset=at, last_offset=at + 1, cause=HoleCause.EXPIRED)
            for at in draw(st.lists(counts, max_size=2))
        ),
        sha256=draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
        digest=draw(st.integers(0, 2**61 - 2)),
        unserved=draw(st.none() | st.integers(0, first + rest - base)),
        stable_end=draw(st.none() | counts),
    )
    key = SegmentKey(
        topic=draw(st.sampled_from(["a", "b.c"])),
        life=draw(st.integers(0, 2)),
        partition=draw(st.integers(0, 3)),
        base=base,
        next=draw(st.sampled_from([None, facts.next])),
    )
    return IndexEntry(key, draw(counts), draw(texts), facts)


several = st.lists(entries(), max_size=12, unique_by=lambda entry: entry.key)


@given(several)
def test_what_is_written_is_read(written: list[IndexEntry]) -> None:
    found = [
        one
        for directory, member in split_file(encode_index(written), "k").members.items()
        for one in entries_in(directory, member)
    ]
    assert sorted(found, key=str) == sorted(written, key=str)


@given(several)
def test_a_file_is_read_by_a_reader_that_knows_only_the_format_page(written: list[IndexEntry]) -> None:
    first, members = read_file(encode_index(written))
    found = {}
    for (topic, life, _), frame in zip(first["directories"], members, strict=True):
        member = read_member(frame)
        for row in range(member.header["count"]):
            values = facts_of(member, row)
            named_next = values["next"] if values["merged"] else None
            found[
                SegmentKey(topic=topic, life=life, partition=values["partition"], base=values["base"], next=named_next)
            ] = values
    assert found.keys() == {entry.key for entry in written}
    for entry in written:
        assert {"rewrite": 0, "size": entry.size, "etag": entry.etag} | told_facts(known_facts(entry)) == {
            name: value for name, value in found[entry.key].items() if name not in {"kind", "partition", "merged"}
        }


def told_facts(facts: SegmentFacts) -> dict[str, int | str]:
    """Return facts as a file has them."""
    told = {name.removeprefix("archiver-").replace("-", "_"): text for name, text in facts.to_metadata().items()}
    del told["facts_sha256"]
    digest, shared = (
        {"digest": int(told.pop("digest"), 16)},
        {name: told.pop(name) for name in (*Traits._fields, "sha256")},
    )
    return {"unserved": -1, "stable_end": -1} | digest | shared | {name: int(text) for name, text in told.items()}


@given(st.lists(entries(), min_size=1, max_size=12, unique_by=lambda entry: entry.key))
def test_a_file_of_another_writer_is_read(written: list[IndexEntry]) -> None:
    """Its lines have names that nobody here knows, its columns wider texts, and its frames another level."""
    first, members = read_file(encode_index(written))
    others = []
    for (topic, life, _), frame in zip(first["directories"], members, strict=True):
        header, numbers, texts = read_member(frame)
        wider = header | {
            "etag": 201,
            "sha256": 66,
            "other": [{}],
            "kinds": [one | {"new": 1} for one in header["kinds"]],
        }
        other = write_member(Member(wider, numbers, texts))
        others.append(other)
        assert entries_in((topic, life), other) == entries_in((topic, life), frame)
    directories = [
        [topic, life, len(other)] for (topic, life, _), other in zip(first["directories"], others, strict=True)
    ]
    content = write_file({"other": None, "format": 1, "directories": directories}, others)
    assert list(split_file(content, "k").members.values()) == others


def test_an_entry_that_lacks_what_its_program_did_not_know_is_not_false(caplog: pytest.LogCaptureFixture) -> None:
    store = CountingStore()
    objects = []
    for entry in fill(store):
        counted = entry._replace(facts=replace(known_facts(entry), unserved=0))
        write(store, counted, store.objects[LAYOUT.segment_key(entry.key)].body, known_facts(counted))
        objects.append(entry)
    append_to_index(Archive(store, LAYOUT), objects)
    assert not [one for one in check_listing(Archive(store, LAYOUT)).problems if ".data" in one]
    found = read_inventory(Archive(store, LAYOUT), reads=lambda _: Selection(first_offset=ENOUGH))
    assert [known_facts(one).unserved for one in segments_of(found)] == [None] * (ENOUGH - 1) + [0]
    assert "false" not in caplog.text


def encode_index(entries: Iterable[IndexEntry], seen_control: SeenControl = NOTHING_SEEN) -> bytes:
    return encode_grouped(group_entries(entries), seen_control)


def entries_in(directory: tuple[str, int], member: bytes) -> list[IndexEntry]:
    """What a member says, one by one."""
    found = decode_member(cut_member(member), "k")
    return [found.entry(place, *directory) for place in range(len(found))]


def test_every_byte_that_is_changed_or_cut_is_noticed_or_harmless() -> None:
    entries = fill(MemoryStore(), count=3)
    content = encode_index(entries)
    broken = [content[:at] for at in range(len(content))]
    broken += [content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :] for at in range(len(content))]
    noticed = 0
    for one in broken:
        try:
            for directory, member in split_file(one, "k").members.items():
                assert entries_in(directory, member) == entries
        except CorruptSegmentError:
            noticed += 1
    assert noticed > len(broken) * 0.95  # without its checksum, a frame still says the same


# --- reading an archive with it


def test_what_the_index_knows_is_not_asked_for() -> None:
    store = CountingStore()
    written = fill(store)
    plain = read_inventory(Archive(CountingStoreOf(store), LAYOUT))
    append_to_index(Archive(store, LAYOUT), written[:-1])
    inventory, heads = read_counting(store)
    assert heads == 1
    assert inventory == plain


class CountingStoreOf(MemoryStore):
    """The same objects, without the index."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.objects = {key: found for key, found in store.objects.items() if "/index/" not in key}


def test_an_entry_of_another_object_is_not_believed() -> None:
    """Same key and size, other bytes; same key and bytes that are longer: the object tells, not the index."""
    store = CountingStore()
    written = fill(store)
    append_to_index(Archive(store, LAYOUT), written)
    first, second = written[:2]
    write(store, first, b"T 000000", replace(known_facts(first), records=1, bytes=777))
    write(store, second, b"t 000001, and more", replace(known_facts(second), bytes=888))
    inventory, heads = read_counting(store)
    assert heads == 2
    assert [known_facts(one).bytes for one in segments_of(inventory)[:3]] == [777, 888, 1]


def test_an_object_that_is_gone_is_gone() -> None:
    store = CountingStore()
    written = fill(store)
    append_to_index(Archive(store, LAYOUT), written)
    swept = written[3]
    store.delete([LAYOUT.segment_key(swept.key)])
    inventory, heads = read_counting(store)
    assert (
        heads == 1
    )  # of what lies before it: that the entry does not end where the next object begins, might be a lie
    assert swept.facts not in [one.facts for one in segments_of(inventory)]
    assert [str(gap) for gap in inventory.partitions["t", 0][0].gaps] == ["3-3"]
    merge_index(Archive(store, LAYOUT))
    assert found_in(store, swept) is None
    assert found_in(store, written[4]) == written[4].facts


def test_a_lost_end_is_a_gap() -> None:
    store = CountingStore()
    written = fill(store)
    append_to_index(Archive(store, LAYOUT), written)
    store.delete([LAYOUT.segment_key(one.key) for one in written[-2:]])
    inventory, _ = read_counting(store)
    assert [str(gap) for gap in inventory.partitions["t", 0][0].gaps] == ["38-39"]


def found_in(store: MemoryStore, entry: IndexEntry) -> SegmentFacts | None:
    """What the index says of an object that would be listed as the entry has it."""
    key = entry.key
    item = ListedObject(key=LAYOUT.segment_key(key), size=entry.size, etag=entry.etag, last_modified=datetime.now(UTC))
    listed = ListedPartition.of((key.topic, key.life, key.partition), [(key.base, key.next or 0, key.rewrite, item)])
    known = read_index(Archive(store, LAYOUT), key.topic.__eq__).of((key.topic, key.life))
    (row,) = known.find(listed).tolist()
    return None if row < 0 else cast("SegmentFacts", known.entries.facts(row))


def test_a_later_file_wins_and_no_etag_is_no_proof() -> None:
    store = CountingStore()
    written = fill(store)
    stale = [one._replace(etag="stale") for one in written]
    append_to_index(Archive(store, LAYOUT), stale)
    assert read_counting(store)[1] == ENOUGH
    append_to_index(Archive(store, LAYOUT), written)
    assert read_counting(store)[1] == 0
    nameless = written[0]._replace(etag="")
    append_to_index(Archive(store, LAYOUT), [nameless])
    assert found_in(store, nameless) is None


@pytest.mark.parametrize("topic", ["t", "t@1"])
def test_merged_segments_and_lives_are_not_mixed_up(topic: str) -> None:
    name, _, life = topic.partition("@")
    store = CountingStore()
    append_to_index(Archive(store, LAYOUT), fill(store))
    key = SegmentKey(topic=name, life=int(life or 0), partition=0, base=0, next=3)
    facts = replace(plain_facts(0, 3), bytes=99)
    store.put_if_absent(LAYOUT.segment_key(key), b"t 000000", facts.to_metadata(), kind=ObjectKind.SEGMENT)
    inventory, heads = read_counting(store)
    assert heads == 1
    found = inventory.partitions[name, key.life][0]
    (merged,) = [one for one in [*found.segments, *found.shadowed] if one.key == key]
    assert known_facts(merged).bytes == 99


HALF = "\ud800"  # of a surrogate pair: JSON spells it, and nothing encodes it

BROKEN: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[:-5],
    "a lead that lies": lambda content: content[:8] + b"\xff" * 4 + content[12:],
    "no index": lambda _: write_file([]),
    "later": lambda _: write_file({"format": 2, "directories": []}),
    "a short column": lambda content: with_columns(content, base=[1]),
    "many": lambda content: with_header(content, count=10**12),
    "facts that cannot be": lambda content: with_columns(content, records=[0] * ENOUGH),
    "later facts": lambda content: with_kinds(content, format="3"),
    "encrypted": lambda content: with_kinds(content, encryption="aes"),
    "facts of nobody": lambda content: with_columns(content, kind=[1] * ENOUGH),
    "no entries": lambda content: changed(content, lambda one: Member(one.header | {"count": 0}, {}, {})),
    "no ASCII in an ETag": lambda content: changed(
        content, lambda one: one._replace(texts=one.texts | {"etag": ["\xe9"] * ENOUGH})
    ),
    "ETags without room": lambda content: with_header(content, etag=0),
    "ETags with much room": lambda content: with_header(content, etag=257),
    "a text without end": lambda content: with_kinds(content, writer="e" * 2_000_000),
    "no partition": lambda content: with_columns(content, partition=[-1] * ENOUGH),
    "a topic that none has": lambda _: write_file({"format": 1, "directories": [[HALF, 0, 0]]}),
}


def changed(content: bytes, change: Callable[[Member], Member]) -> bytes:
    """The same file with another member."""
    _, (member,) = read_file(content)
    return write_topics({"t": write_member(change(read_member(member)))})


def with_header(content: bytes, **changes: object) -> bytes:
    return changed(content, lambda one: one._replace(header=one.header | changes))


def with_kinds(content: bytes, **changes: object) -> bytes:
    return changed(
        content,
        lambda one: one._replace(header=one.header | {"kinds": [kind | changes for kind in one.header["kinds"]]}),
    )


def with_columns(content: bytes, **changes: list[int]) -> bytes:
    return changed(content, lambda one: one._replace(numbers=one.numbers | changes))


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN.keys())
def test_a_damaged_file_is_ignored_and_forgotten_only_if_somebody_deletes_it(damage: Callable[[bytes], bytes]) -> None:
    store = CountingStore()
    written = fill(store)
    append_to_index(Archive(store, LAYOUT), [])
    store.delete([LAYOUT.index_key(0, 0)])
    store.put_if_absent(LAYOUT.index_key(0, 0), damage(encode_index(written)), {}, kind=ObjectKind.FACT)
    plain = read_inventory(Archive(CountingStoreOf(store), LAYOUT))
    inventory, heads = read_counting(store)
    assert (inventory, heads) == (plain, ENOUGH)
    append_to_index(Archive(store, LAYOUT), written)
    assert read_counting(store) == (plain, 0)
    key, before = LAYOUT.index_key(0, 0), dict(store.objects)
    if key in read_index(Archive(store, LAYOUT)).unreadable:
        with pytest.raises(CorruptSegmentError, match=f"^{key}: .*; its entries would be lost"):
            merge_index(Archive(store, LAYOUT))
        assert store.objects == before
        store.delete([key])
    merge_index(Archive(store, LAYOUT))
    assert LAYOUT.index_key(1, 0) in store.objects
    assert read_counting(store) == (plain, 0)


def test_a_later_format_is_told_as_such() -> None:
    with pytest.raises(FormatTooNewError, match="k: format 2 is newer"):
        split_file(write_file({"format": 2, "directories": []}), "k")


@pytest.mark.parametrize("number", [None, "1", -1, 1_000_001, True])
def test_a_number_of_merged_files_that_cannot_be_is_no_index(number: object) -> None:
    with pytest.raises(CorruptSegmentError, match="not an index"):
        split_file(write_file({"format": 1, "directories": [], "merged_files": number}), "k")


@pytest.mark.parametrize("name", ["facts", "holds"])
@pytest.mark.parametrize("numbers", [[], {"t": "1"}, {"t": -1}, {"t": 10**9}, {"t": True}])
def test_numbers_of_facts_that_cannot_be_are_no_index(name: str, numbers: object) -> None:
    with pytest.raises(CorruptSegmentError, match="not an index"):
        split_file(write_file({"format": 1, "directories": [], name: numbers}), "k")
    assert (
        split_file(write_file({"format": 1, "directories": []}), "k").seen_control == SeenControl()
    )  # of earlier programs


def test_a_topic_alone_needs_nothing_of_the_others() -> None:
    store = CountingStore()
    append_to_index(Archive(store, LAYOUT), fill(store) + fill(store, "u"))
    (content,) = [found.body for key, found in store.objects.items() if "/index/" in key]
    members = split_file(content, "k").members
    assert members.keys() == {("t", 0), ("u", 0)}
    damaged = content.replace(members["u", 0], b"x" * len(members["u", 0]))
    store.objects[LAYOUT.index_key(0, 0)] = StoredObject(damaged, {}, MOMENT)
    before = store.heads
    read_inventory(Archive(store, LAYOUT), lambda topic: topic == "t")
    assert store.heads == before


# --- writing it


def test_a_reader_that_had_to_ask_much_tells_the_others() -> None:
    store = CountingStore()
    fill(store, count=250)
    assert read_counting(store)[1] == 250
    assert read_counting(store)[1] == 0
    few = CountingStore()
    fill(few, count=150)
    for _ in range(2):
        before = few.heads
        read_inventory(Archive(few, LAYOUT))
        assert few.heads - before == 150


class ReadOnlyStore(CountingStore):
    is_read_only = False

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        if self.is_read_only:
            raise StoreError("PutObject was denied")
        return super().put_if_absent(key, body, metadata, kind=kind)


def test_a_reader_without_the_right_to_put_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = ReadOnlyStore()
    fill(store, count=250)
    store.is_read_only = True
    inventory, heads = read_counting(store)
    assert (len(segments_of(inventory)), heads) == (250, 250)
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


def test_readers_do_not_write_without_end() -> None:
    store = CountingStore()
    written = fill(store, count=250)
    for _ in range(MOST_FILES):
        append_to_index(Archive(store, LAYOUT), [written[0]])
    assert read_counting(store)[1] == 249
    assert read_counting(store)[1] == 249
    merge_index(Archive(store, LAYOUT))
    assert read_counting(store)[1] == 249
    assert read_counting(store)[1] == 0


def test_a_merge_loses_nothing_and_its_loser_does_no_harm() -> None:
    store = CountingStore()
    written = fill(store) + fill(store, "u")
    for entry in written:
        append_to_index(Archive(store, LAYOUT), [entry])
    merge_index(Archive(store, LAYOUT))
    assert [key for key in store.objects if "/index/000001/" in key] == [LAYOUT.index_key(1, 0)]
    assert read_counting(store)[1] == 0
    before = dict(store.objects)
    racing = RacingStore(store, lambda: merge_index(Archive(store, LAYOUT)))
    merge_index(Archive(racing, LAYOUT))
    assert racing.was_late
    assert {key: found for key, found in store.objects.items() if key in before} == before
    assert read_counting(store)[1] == 0


class FlakyStore(CountingStore):
    """One file cannot be read for now."""

    bad = ""

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        if key == self.bad:
            raise StoreTemporaryError("503 Slow Down")
        return super().get(key, most_bytes)


def problems_of(store: MemoryStore) -> list[str]:
    return [one for one in check_listing(Archive(store, LAYOUT)).problems if "t-0: " in one or "/index/" in one]


def test_a_file_that_cannot_be_read_for_now_is_not_merged_away() -> None:
    store = FlakyStore()
    written = fill(store)
    for entry in written:
        append_to_index(Archive(store, LAYOUT), [entry])
    store.delete([LAYOUT.segment_key(written[-1].key)])
    before, told = dict(store.objects), problems_of(store)
    assert [one.partition(" ")[0] for one in told] == ["t-0:"]
    store.bad = LAYOUT.index_key(0, ENOUGH - 1)
    with pytest.raises(StoreTemporaryError):
        merge_index(Archive(store, LAYOUT))
    assert store.objects == before
    store.bad = ""
    merge_index(Archive(store, LAYOUT))
    assert problems_of(store) == told


def test_a_file_that_cannot_be_read_for_now_is_no_finding() -> None:
    """Others go on without it."""
    store = FlakyStore()
    append_to_index(Archive(store, LAYOUT), fill(store))
    store.bad = LAYOUT.index_key(0, 0)
    with pytest.raises(StoreTemporaryError):
        check_listing(Archive(store, LAYOUT))
    assert read_counting(store)[1] == ENOUGH


def merged_while_another_appends(store: MemoryStore, late: IndexEntry) -> None:
    """The old generation gets a file after the merge has listed it, and before it begins the new one."""
    racing = RacingStore(
        store, lambda: append_to_index(Archive(store, LAYOUT), [late], SeenControl({"t": 7}, {"h": 3}))
    )
    merge_index(Archive(racing, LAYOUT))
    assert not racing.was_late


def test_what_is_added_during_a_merge_is_read_and_merged_next() -> None:
    store = CountingStore()
    *written, late = fill(store)
    append_to_index(Archive(store, LAYOUT), written)
    merged_while_another_appends(store, late)
    store.delete([LAYOUT.segment_key(late.key)])
    for generation in (1, 2):
        index = read_index(Archive(store, LAYOUT))
        assert len(problems_of(store)) == 1
        assert index.seen_control == SeenControl({"t": 7}, {"h": 3})
        assert (index.files, len(index.of(("t", 0)).entries)) == (1, ENOUGH)
        assert LAYOUT.index_key(generation, 0) in store.objects
        merge_index(Archive(store, LAYOUT))
    store.delete([key for key in store.objects if "/index/000000/" in key])
    assert len(problems_of(store)) == 1


def test_a_damaged_file_that_was_added_during_a_merge_is_told_and_not_merged_away() -> None:
    store = CountingStore()
    *written, late = fill(store)
    append_to_index(Archive(store, LAYOUT), written)
    merged_while_another_appends(store, late)
    key = LAYOUT.index_key(0, 1)
    store.objects[key] = replace(store.objects[key], body=b"damaged")
    assert [one.partition(":")[0] for one in problems_of(store)] == [key]
    with pytest.raises(CorruptSegmentError, match=key):
        merge_index(Archive(store, LAYOUT))
    store.delete([key])
    assert not problems_of(store)
    merge_index(Archive(store, LAYOUT))
    assert LAYOUT.index_key(2, 0) in store.objects


def test_a_merge_that_finds_a_file_deleted_begins_nothing() -> None:
    """Its number is free again, and the new generation would count a file with that number as merged."""
    store = DeletingStore()
    *written, late = fill(store)
    for entry in written:
        append_to_index(Archive(store, LAYOUT), [entry])
    store.bad = LAYOUT.index_key(0, ENOUGH - 2)
    merge_index(Archive(store, LAYOUT))
    assert LAYOUT.index_key(1, 0) not in store.objects
    append_to_index(Archive(store, LAYOUT), [late])
    merge_index(Archive(store, LAYOUT))
    assert found_in(store, late) == late.facts


class DeletingStore(CountingStore):
    """One file is deleted between its listing and its reading."""

    bad = ""

    def get(self, key: str, most_bytes: int = MOST_PUT_BYTES) -> tuple[bytes, Mapping[str, str]] | None:
        if key == self.bad:
            self.bad = ""
            self.delete([key])
        return super().get(key, most_bytes)


def test_a_merge_whose_put_had_no_answer_lost_nothing() -> None:
    """The put was done or not: whoever merges next ends with the same entries."""
    for is_done in (False, True):
        store = CountingStore()
        written = fill(store)
        for entry in written:
            append_to_index(Archive(store, LAYOUT), [entry])
        with pytest.raises(StoreTemporaryError):
            merge_index(Archive(UnansweredStore(store, is_done=is_done), LAYOUT))
        assert (LAYOUT.index_key(1, 0) in store.objects) == is_done
        assert read_counting(store)[1] == 0
        merge_index(Archive(store, LAYOUT))
        assert read_counting(store)[1] == 0


class UnansweredStore(MemoryStore):
    def __init__(self, store: MemoryStore, *, is_done: bool) -> None:
        super().__init__()
        self.objects = store.objects
        self._is_done = is_done

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        if self._is_done:
            super().put_if_absent(key, body, metadata, kind=kind)
        raise StoreTemporaryError("timed out")


class RacingStore(MemoryStore):
    """Before a put, another one does something."""

    def __init__(self, store: MemoryStore, act: Callable[[], object]) -> None:
        super().__init__()
        self.objects = store.objects
        self._act = act
        self.was_late = False

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        self._act()
        etag = super().put_if_absent(key, body, metadata, kind=kind)
        self.was_late = etag is None
        return etag


def test_writers_at_once_take_the_next_number() -> None:
    """Also one that is always overtaken between its listing and its put."""
    store = MemoryStore()
    entries = fill(store, count=5)
    first, last, *others = entries

    class Overtaken(MemoryStore):
        def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
            listed = list(store.list(prefix, start_after))
            if prefix == LAYOUT.index_generation_prefix(0):
                for entry in others:
                    append_to_index(Archive(store, LAYOUT), [entry])
            yield from listed

    other = Overtaken()
    other.objects = store.objects
    assert append_to_index(Archive(other, LAYOUT), [first]) == 4
    assert append_to_index(Archive(store, LAYOUT), [last]) == 5
    assert [found_in(store, one) for one in entries] == [one.facts for one in entries]


def test_strange_names_in_the_index_harm_nobody() -> None:
    store = CountingStore()
    append_to_index(Archive(store, LAYOUT), fill(store))
    for name in ("x", "000009", "00000a/000000.zst", "000000/9.zst", "000000/000009.zst.bak"):
        store.put_if_absent(f"{LAYOUT.index_prefix}{name}", b"", {}, kind=ObjectKind.FACT)
    assert read_counting(store)[1] == 0
    assert append_to_index(Archive(store, LAYOUT), []) == 2


def test_what_is_not_written_yet_is_bounded_and_keeps_its_order() -> None:
    fresh = FreshEntries()
    one, two, three = fill(MemoryStore(), count=3)
    fresh.note(one)
    fresh.note(two)
    taken = fresh.take()
    assert (taken, len(fresh)) == ([one, two], 0)
    fresh.note(three)
    fresh.give_back(taken)
    assert fresh.take() == [one, two, three]
    for _ in range(6000):
        fresh.note(one)
    assert len(fresh) == 5000
