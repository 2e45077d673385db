"""Listings side by side show what one listing shows, each object once and in order."""

import string
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import archiver.archive.segments.listing
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.archived_end import end_at, position_of
from archiver.archive.segments.listing import NO_SEGMENTS, list_newest, list_segments
from archiver.store.port import ListedObject, ObjectKind
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAYOUT = Layout("p")

# Names that sort around "/" and "@", and lives of them: neighbours of which only some are wanted.
topics = st.text("a-.0" + string.ascii_uppercase[0], min_size=1, max_size=3).filter(
    lambda name: name not in {".", ".."}
)
segments = st.builds(
    lambda topic, life, partition, base, length: SegmentKey(
        topic=topic, life=life, partition=partition, base=base, next=base + length if length else None
    ),
    topics,
    st.integers(0, 2),
    st.sampled_from([0, 1, 10]),
    st.integers(0, 5),
    st.sampled_from([0, 0, 3]),
)
strange = st.sampled_from(["README", "a/_SUCCESS", "a@1/", "b/partition=0/x", "!/y", "a/partition=0/a+0-7.data"])


def archive(keys: set[SegmentKey], strangers: set[str]) -> MemoryStore:
    store = MemoryStore()
    for key in keys:
        facts = facts_of(key.base, key.next or key.base + 1)
        store.put_if_absent(LAYOUT.segment_key(key), b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)
    for name in strangers:
        store.put_if_absent(f"{LAYOUT.topics_prefix}{name}", b"", {}, kind=ObjectKind.FACT)
    return store


@pytest.fixture(autouse=True, params=["few directories", "small ones", "large ones"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to list: soon side by side, by neighbours, a directory each."""
    monkeypatch.setattr(archiver.archive.segments.listing, "_ALONE", 5)
    if request.param != "few directories":
        monkeypatch.setattr(archiver.archive.segments.listing, "_FEW_DIRECTORIES", 0)
        monkeypatch.setattr(
            archiver.archive.segments.listing, "_MANY_KEYS", 0 if request.param == "large ones" else 10**6
        )


@settings(max_examples=25)
@given(st.sets(segments, max_size=40), st.sets(strange))
def test_the_whole_archive_is_listed_once(keys: set[SegmentKey], strangers: set[str]) -> None:
    store = archive(keys, strangers)
    found = list_segments(Archive(store, LAYOUT))
    listed = list(store.list(LAYOUT.topics_prefix))
    assert [one.item for one in found.segments] == [item for item in listed if LAYOUT.parse_segment(item.key)]
    assert {one.key for one in found.segments} == keys
    assert list(found.strangers) == [item.key for item in listed if not LAYOUT.parse_segment(item.key)]


@settings(max_examples=25)
@given(st.sets(segments, max_size=40), st.sets(strange), st.sets(topics))
def test_wanted_topics_are_listed_once_and_no_others(
    keys: set[SegmentKey], strangers: set[str], wanted: set[str]
) -> None:
    store = archive(keys, strangers)
    wanted |= {key.topic for key in list(keys)[::2]}
    found = [one.key for one in list_segments(Archive(store, LAYOUT), wanted.__contains__).segments]
    assert len(found) == len(set(found))
    assert set(found) == {key for key in keys if key.topic in wanted}


@pytest.mark.parametrize("wanted", [{"t02"}, {"t02", "t03"}, {"t02", "t03", "t10"}, {"t14", "t15"}])
def test_large_topics_are_shared_out_and_nothing_beside_them(wanted: set[str]) -> None:
    """Neighbours are one listing, of which the first part is read before the rest is shared out."""
    keys = {
        SegmentKey(topic=f"t{number:02}", partition=partition, base=base)
        for number in range(16)
        for partition in (0, 2, 10)
        for base in range(4)
    }
    found = list_segments(Archive(archive(keys, {"t02/stray", "t04/stray"}), LAYOUT), wanted.__contains__)
    listed = [one.key for one in found.segments]
    assert len(listed) == len(set(listed))
    assert set(listed) == {key for key in keys if key.topic in wanted}
    assert [name.removeprefix(LAYOUT.topics_prefix) for name in found.strangers] == ["t02/stray"] * ("t02" in wanted)


# The key of a directory itself, which some tools put, is the bound between its neighbours and it.
@example(
    {SegmentKey(topic=name, partition=0, base=0) for name in ("A", "0A", "-", "Aa", "a", "0", "00", "0a")},
    {"a@1/", "README"},
)
@settings(max_examples=25)
@given(st.sets(segments, max_size=40), st.sets(strange))
def test_ends_that_are_listed_together_are_those_of_each_partition(keys: set[SegmentKey], strangers: set[str]) -> None:
    store = archive(keys, strangers)
    names, listed = {key.topic for key in keys}, len(list(store.list(LAYOUT.topics_prefix)))
    newest = list_newest(Archive(store, LAYOUT), names, listed)
    assert newest is not None
    assert newest == list_newest(Archive(store, LAYOUT), names)
    assert newest.keys() == {(key.topic, key.life, key.partition) for key in keys}
    for partition, found in newest.items():
        assert end_at(store, found) == position_of(Archive(store, LAYOUT), *partition)
    assert end_at(store, NO_SEGMENTS) == position_of(Archive(store, LAYOUT), "nothing", 0, 0)
    assert not keys or list_newest(Archive(store, LAYOUT), names, len(keys) - 1) is None


def test_a_listing_is_not_read_beyond_what_is_needed() -> None:
    class Watched(MemoryStore):
        read = 0

        def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
            for item in super().list(prefix, start_after):
                self.read += 1
                yield item

    names = [f"t{number:03}" for number in range(200)]
    watched = Watched()
    watched.objects = archive({SegmentKey(topic=name, partition=0, base=0) for name in names}, set()).objects
    assert len(list_segments(Archive(watched, LAYOUT), {"t007"}.__contains__).segments) == 1
    assert watched.read <= 202  # the directories are made of keys in this store
    watched.read = 0
    assert len(list_segments(Archive(watched, LAYOUT)).segments) == 200
    assert watched.read <= 2 * 200 + 2 * archiver.archive.segments.listing.LISTINGS_AT_ONCE


@pytest.mark.parametrize(("keys_each", "one_each"), [(1, False), (40, True)])
def test_small_topics_share_a_request_and_large_ones_have_their_own(
    keys_each: int, one_each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.prefixes: set[str] = set()

        def list(self, prefix: str, start_after: str = "") -> Iterator[ListedObject]:
            self.prefixes.add(f"{prefix} {start_after}")
            return super().list(prefix, start_after)

    monkeypatch.setattr(archiver.archive.segments.listing, "_FEW_DIRECTORIES", 32)
    monkeypatch.setattr(archiver.archive.segments.listing, "_MANY_KEYS", 25)
    names = [f"t{number:03}" for number in range(110)]
    keys = {SegmentKey(topic=name, partition=0, base=base) for name in names for base in range(keys_each)}
    store = Counting()
    store.objects = archive(keys, set()).objects
    found = list_segments(Archive(store, LAYOUT), set(names[:100]).__contains__)
    assert {one.key for one in found.segments} == {key for key in keys if key.topic in names[:100]}
    assert (len(store.prefixes) >= 100) is one_each
    assert len(store.prefixes) < 25 or one_each
