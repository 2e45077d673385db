"""docs/format.md §7: the read rule, against what single offsets say; and where a writer goes on."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index import learned_facts
from archiver.archive.index.archived_end import ArchivedEnd, position_of
from archiver.archive.index.index_file import split_file
from archiver.archive.index.inventory import (
    EMPTY_PARTITION,
    Gap,
    Inventory,
    PartitionInventory,
    arrange,
    problems_of,
    read_inventory,
)
from archiver.archive.index.lookup import DamagedSegment
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.segment_facts import Bounds, SegmentFacts
from archiver.errors import CorruptSegmentError
from archiver.store.port import ObjectKind
from tests.support.index_reader import read_member
from tests.support.memory_store import CountingStore, MemoryStore
from tests.support.old_archive import old_file, old_key
from tests.support.plain_plan import without_covers
from tests.support.records import Rec
from tests.support.segments import facts_of, known_facts

LAYOUT = Layout("p")
OFFSETS = 60  # histories end below; every offset is asked about


def segment(base: int, next_offset: int, *, merged: bool = False) -> Segment:
    key = SegmentKey(topic="t", partition=0, base=base, next=next_offset if merged else None)
    facts = replace(facts_of(base, next_offset), records=next_offset - base)  # a merged one has those of its parts
    return Segment(key=key, object_key=LAYOUT.segment_key(key), size=1, facts=facts)


def put(store: MemoryStore, segments: list[Segment], **key: object) -> None:
    for one in segments:
        name = LAYOUT.segment_key(replace(one.key, **key))  # type: ignore[arg-type]
        assert store.put_if_absent(name, b"x", known_facts(one).to_metadata(), kind=ObjectKind.SEGMENT)


# --- any set of objects

ranges = st.tuples(st.integers(0, OFFSETS - 1), st.integers(1, OFFSETS)).map(lambda two: (two[0], two[0] + two[1]))
piles = st.lists(st.tuples(ranges, st.booleans()), unique_by=lambda row: (row[0] if row[1] else row[0][0], row[1])).map(
    lambda rows: [segment(base, next_offset, merged=merged) for (base, next_offset), merged in rows]
)


def reader_of(inventory: PartitionInventory, offset: int) -> list[Segment]:
    """Who gives the record at an offset, if it has one: readings, cut below their start."""
    return [
        reading.segment
        for reading in inventory.readable
        if max(reading.from_offset, reading.segment.facts.base) <= offset < reading.next
    ]


def covers(one: Segment, offset: int) -> bool:
    return one.facts.base <= offset < one.facts.next


@given(piles)
def test_each_offset_is_read_once_or_reported_missing(pile: list[Segment]) -> None:
    inventory = arrange(pile)
    end = max((one.facts.next for one in pile), default=0)
    for offset in range(2 * OFFSETS + 1):
        holders = [one for one in without_covers(pile)[0] if covers(one, offset)]
        missing = [gap for gap in inventory.gaps if gap.first_offset <= offset <= gap.last_offset]
        assert len(missing) == (1 if offset < end and not holders else 0)
        # The oracle: of those that hold it, the one that begins first, and of these the longest, is read; but a merged one
        # only where no plain one holds it.
        wanted = min(holders, key=lambda one: (one.key.next is not None, one.facts.base, -one.facts.next), default=None)
        assert [one.facts for one in reader_of(inventory, offset)] == ([] if wanted is None else [wanted.facts])


@given(piles, st.randoms(use_true_random=False))
def test_every_object_is_read_or_shadowed_whatever_the_order(pile: list[Segment], chance: random.Random) -> None:
    inventory = arrange(pile)
    read = [reading.segment for reading in inventory.readable]
    objects = list(inventory.segments)
    assert sorted(one.object_key for one in [*objects, *inventory.shadowed]) == sorted(one.object_key for one in pile)
    assert objects == list({one.object_key: one for one in read}.values())  # a merged one may be read in parts
    assert all(one.key.next is not None for one in read if read.count(one) > 1)
    for one in inventory.shadowed:
        assert all(reader_of(inventory, offset) for offset in range(one.facts.base, one.facts.next))
    shuffled = list(pile)
    chance.shuffle(shuffled)
    again = arrange(shuffled)
    assert (again.gaps, again.position) == (inventory.gaps, inventory.position)
    assert [r.from_offset for r in again.readable] == [r.from_offset for r in inventory.readable]


@given(piles)
def test_the_position_is_the_end_of_what_hangs_together(pile: list[Segment]) -> None:
    position = 0
    while any(covers(one, position) for one in pile):
        position += 1
    assert arrange(pile).position == position


# --- objects of v1.0 among them


def old_segment(base: int, next_offset: int) -> Segment:
    key = SegmentKey(topic="t", partition=0, base=base)
    bounds = Bounds(base=base, first=base, last=next_offset - 1)
    return Segment(key=key, object_key=LAYOUT.segment_key(key), size=1, etag="e", facts=bounds)


mixed_piles = st.lists(st.tuples(ranges, st.booleans()), unique_by=lambda row: row[0][0]).map(
    lambda rows: [(old_segment if old else segment)(base, next_offset) for (base, next_offset), old in rows]
)


@given(mixed_piles)
def test_what_v1_does_not_tell_is_said(pile: list[Segment]) -> None:
    inventory = arrange(pile)
    ordered = sorted(pile, key=lambda one: one.facts.base)
    end = max((one.facts.next for one in pile), default=0)
    # Its writers begin where a log begins, and say nothing of what was below.
    start = ordered[0].facts.base if ordered and isinstance(ordered[0].facts, Bounds) else 0
    for offset in range(2 * OFFSETS + 1):
        holders = [one for one in ordered if covers(one, offset)]
        missing = [gap for gap in inventory.gaps if gap.first_offset <= offset <= gap.last_offset]
        assert len(missing) == (1 if start <= offset < end and not holders else 0)
        for gap in missing:
            beside = [*reader_of(inventory, gap.first_offset - 1), *reader_of(inventory, gap.last_offset + 1)]
            assert gap.is_certain == all(isinstance(one.facts, SegmentFacts) for one in beside)
        assert [one.facts for one in reader_of(inventory, offset)] == [one.facts for one in holders[:1]]
        doubtful = len(holders) > 1 and any(isinstance(one.facts, Bounds) for one in holders)
        told = [lap for lap in inventory.overlaps if lap.first_offset <= offset <= lap.last_offset]
        assert not doubtful or told
        assert not told or len(holders) > 1


def test_gaps_and_overlaps_of_v1_are_problems() -> None:
    pile = [old_segment(7, 10), old_segment(9, 12), old_segment(14, 16), segment(16, 20), segment(22, 25)]
    first, second = (one.object_key for one in pile[:2])
    gap, doubtful_gap, overlap = problems_of("t", 0, arrange(pile), ())
    assert gap.startswith("t-0: offsets 20-21 are missing from the archive; bring ")
    assert doubtful_gap == "t-0: offsets 12-13 are in no object, and v1.0 does not tell whether they ever were records"
    assert overlap.startswith(f"t-0: offsets 9-9 are in {first} and in {second}, and v1.0 does not tell")


def test_a_v1_object_is_known_by_its_ends_and_never_enters_the_index() -> None:
    store = MemoryStore()
    records = [Rec(at, at, -1, None, b"v") for at in range(100)]
    for base in range(0, 100, 10):
        content = old_file(records[base : base + 10], "t", 0)
        store.put_if_absent("p/" + old_key("t", 0, base), content, {"by": "somebody"}, kind=ObjectKind.SEGMENT)
    for _ in range(2):
        found = read_inventory(Archive(store, LAYOUT)).partitions["t", 0][0]
        assert [one.facts for one in found.segments] == [
            Bounds(base=base, first=base, last=base + 9) for base in range(0, 100, 10)
        ]
        assert found.gaps == ()
    assert all(key.startswith("p/topics/") for key in store.objects)


# --- lives that go on from each other


@st.composite
def lineages(draw: st.DrawFn) -> list[tuple[int, int, int | None]]:
    bounds = sorted(draw(st.sets(st.integers(1, OFFSETS), max_size=3)))
    starts = [draw(st.sampled_from([0, *bounds[:1]])), *bounds]
    return [
        (life, start, until)
        for life, (start, until) in enumerate(zip(starts, [*bounds, None], strict=True))
        if until is None or start < until
    ]


@given(lineages(), st.lists(piles, min_size=4, max_size=4))
def test_of_each_offset_the_life_that_holds_it_is_read(
    lineage: list[tuple[int, int, int | None]], by_life: list[list[Segment]]
) -> None:
    pile_of = dict(enumerate(by_life))
    inventory = Inventory(
        partitions={("t", life): {0: arrange(pile)} for life, pile in pile_of.items()}, strangers=(), damaged=()
    )
    joined, damaged = inventory.join("t", 0, lineage)
    assert damaged == []
    assert [gap.first_offset for gap in joined.gaps] == sorted(gap.first_offset for gap in joined.gaps)
    for offset in range(2 * OFFSETS + 1):
        life = next(
            (life for life, start, until in lineage if start <= offset and (until is None or offset < until)), None
        )
        pile = [] if life is None else without_covers(pile_of[life])[0]
        holders = [one for one in pile if covers(one, offset)]
        is_below_end = life is not None and (
            life < lineage[-1][0] or offset < max((one.facts.next for one in pile), default=0)
        )
        wanted = min(holders, key=lambda one: (one.key.next is not None, one.facts.base, -one.facts.next), default=None)
        assert reader_of(joined, offset) == ([] if wanted is None else [wanted])
        missing = [gap for gap in joined.gaps if gap.first_offset <= offset <= gap.last_offset]
        assert len(missing) == (1 if is_below_end and not holders else 0)


def test_damage_counts_where_the_life_is_read() -> None:
    def damage(life: int, base: int) -> DamagedSegment:
        return DamagedSegment(key=SegmentKey(topic="t", life=life, partition=0, base=base), message=f"{life}:{base}")

    damaged = (damage(0, 60), damage(0, 95), damage(1, 95), damage(2, 0))
    inventory = Inventory(partitions={}, strangers=(), damaged=damaged)
    assert inventory.join("t", 0, [(0, 0, 95), (1, 95, None)])[1] == ["0:60", "1:95"]
    assert inventory.join("t", 1, [(0, 0, 95), (1, 95, None)])[1] == []
    assert inventory.numbers_of("t", [0, 1]) == {0}
    assert inventory.numbers_of("t", [3]) == set()


# --- histories: what writers, merges, sweeps and late writers can leave behind


@dataclass
class History:
    """The objects of a partition. Every step is one that the format allows."""

    objects: dict[str, Segment] = field(default_factory=dict)
    boundaries: list[int] = field(default_factory=lambda: [0])  # the end is the last one

    def create(self, one: Segment) -> None:
        self.objects.setdefault(one.object_key, one)  # If-None-Match: *

    def append(self, length: int) -> None:
        base = self.boundaries[-1]
        self.create(segment(base, base + length))
        self.boundaries.append(base + length)

    def merge(self, first: int, last: int) -> None:
        """Only what is readable and hangs together is merged."""
        read = arrange(self.objects.values()).segments
        run = read[min(first, last) : max(first, last) + 1]
        if len(run) > 1:
            self.create(segment(run[0].facts.base, run[-1].facts.next, merged=True))

    def sweep(self, number: int) -> None:
        shadowed = arrange(self.objects.values()).shadowed
        if shadowed:
            del self.objects[shadowed[number % len(shadowed)].object_key]

    def write_late(self, number: int, length: int) -> None:
        """A writer that was paused wakes at an old position, and cuts where it likes; not beyond what it had fetched."""
        base = self.boundaries[number % len(self.boundaries)]
        if base < self.boundaries[-1]:
            self.create(segment(base, min(base + length, self.boundaries[-1])))


small = st.integers(0, 5)
steps = st.lists(
    st.tuples(st.just("append"), st.integers(1, 5))
    | st.tuples(st.just("merge"), small, small)
    | st.tuples(st.just("sweep"), small)
    | st.tuples(st.just("write_late"), small, st.integers(1, 8)),
    max_size=25,
)


@given(steps)
def test_no_history_loses_anything_or_moves_the_position_back(drawn: list[tuple[str, int]]) -> None:
    history = History()
    history.append(3)
    for name, *arguments in drawn:
        getattr(history, name)(*arguments)
        inventory = arrange(history.objects.values())
        assert inventory.gaps == ()
        assert inventory.position == history.boundaries[-1]
        store = CountingStore()
        put(store, list(history.objects.values()))
        assert position_of(Archive(store, LAYOUT), "t", 0, 0).next == inventory.position
        assert store.heads <= 2


# --- examples that tell the rule


def ranges_of(segments: Iterable[Segment]) -> list[tuple[int, int]]:
    return [(one.facts.base, one.facts.next) for one in segments]


def test_a_merged_segment_is_read_when_its_parts_are_gone() -> None:
    parts, merged, last = [segment(0, 5), segment(5, 9)], segment(0, 9, merged=True), segment(9, 12)
    both = arrange([*parts, merged, last])
    assert (ranges_of(both.segments), ranges_of(both.shadowed)) == ([(0, 5), (5, 9), (9, 12)], [(0, 9)])
    alone = arrange([merged, last])
    assert (ranges_of(alone.segments), ranges_of(alone.shadowed)) == ([(0, 9), (9, 12)], [])
    assert (both.gaps, both.overlaps, alone.gaps, alone.overlaps) == ((), (), (), ())


def with_facts(one: Segment, **facts: int) -> Segment:
    return replace(one, facts=replace(known_facts(one), **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize("facts", [{"records": 1}, {"digest": 7}])
def test_a_merged_segment_that_has_other_records_hides_nothing(facts: dict[str, int]) -> None:
    """One object over many, valid in itself: it is damage, and they are read."""
    parts = [segment(at, at + 5) for at in range(0, 40, 5)]
    false = with_facts(segment(0, 30, merged=True), **facts)
    inventory = arrange([*parts, false])
    assert ranges_of(inventory.segments) == ranges_of(parts)
    assert list(inventory.shadowed) == [false]
    (problem,) = problems_of("t", 0, inventory, [])
    assert problem.startswith(
        f"t-0: {false.object_key} is damaged: it covers offsets 0-29, and does not have the records"
    )
    assert problems_of("t", 0, inventory.from_offset(30), []) == problems_of("t", 0, inventory.below(0), []) == []


@pytest.mark.parametrize(("base", "end"), [(0, 32), (3, 30), (7, 8), (1, 39)])
def test_a_merged_segment_that_ends_within_another_hides_nothing(base: int, end: int) -> None:
    parts = [segment(at, at + 5) for at in range(0, 40, 5)]
    inventory = arrange([*parts, segment(base, end, merged=True)])
    assert ranges_of(inventory.segments) == ranges_of(parts)
    (problem,) = problems_of("t", 0, inventory, [])
    assert "is damaged: it covers offsets" in problem


@pytest.mark.parametrize(
    ("pile", "offsets"),
    [
        ([segment(5, 10), segment(10, 15), segment(0, 15, merged=True)], ["5-9", "10-14"]),  # a sweep died half-way
        ([segment(0, 10), segment(5, 99, merged=True)], ["5-9"]),  # beyond the end
        ([segment(0, 10), segment(1, 20), segment(10, 20)], ["1-9", "10-19"]),  # plain ones, of two writers
    ],
)
def test_what_is_left_out_without_a_proof_is_reported(pile: list[Segment], offsets: list[str]) -> None:
    inventory = arrange(pile)
    assert [f"{one.first_offset}-{one.last_offset}" for one in inventory.overlaps] == offsets
    assert inventory.gaps == ()
    problems = problems_of("t", 0, inventory, [])
    assert all("their facts do not tell whether they are the same records" in one for one in problems)
    wholes = {one.part_in_whole[1] for one in inventory.overlaps}
    assert len(problems) == len(wholes)  # one line for all that lies within one object


def rewritten(one: Segment, rewrite: int) -> Segment:
    key = replace(one.key, rewrite=rewrite)
    return replace(one, key=key, object_key=LAYOUT.segment_key(key))


def test_of_two_rewrites_the_higher_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = segment(0, 9, merged=True)
    pile = [merged, rewritten(merged, 2), rewritten(merged, 10), segment(9, 12)]
    inventory = arrange(pile)
    assert [one.key.rewrite for one in inventory.segments] == [10, 0]
    assert [one.key.rewrite for one in inventory.shadowed] == [2, 0]
    assert inventory.overlaps == ()
    store = CountingStore()
    put(store, pile)
    monkeypatch.setattr(learned_facts, "_MANY", 1)
    found = read_inventory(Archive(store, LAYOUT))
    assert list(found.partitions["t", 0][0].segments) == list(
        read_inventory(Archive(store, LAYOUT)).partitions["t", 0][0].segments
    )
    assert store.heads == len(pile)  # the second reader found all in the index, each by its name


@pytest.mark.parametrize("facts", [{"records": 8}, {"digest": 1}, {"min_timestamp": -7}, {"max_timestamp": 7}])
def test_a_rewrite_with_other_facts_is_reported(facts: dict[str, int]) -> None:
    """False times would hide its records from who reads by time."""
    merged = segment(0, 9, merged=True)
    other = arrange([merged, with_facts(rewritten(merged, 1), **facts)])
    assert [one.key.rewrite for one in other.segments] == [1]
    assert len(problems_of("t", 0, other, [])) == 1


def test_what_is_missing_is_reported_with_both_ends() -> None:
    inventory = arrange([segment(4, 5), segment(7, 9), segment(9, 10), segment(20, 21)])
    assert [str(gap) for gap in inventory.gaps] == ["0-3", "5-6", "10-19"]
    assert inventory.gaps[0] == Gap(first_offset=0, last_offset=3)
    assert inventory.position == 0
    (missing,) = problems_of("t", 7, inventory, [])
    assert missing.startswith("t-7: offsets 0-3, 5-6, 10-19 are missing from the archive; bring ")
    assert problems_of("t", 7, inventory, ["x.data: damaged"]) == [f"x.data: damaged; {missing}"]
    assert problems_of("t", 7, inventory, ["x.data: damaged", "y: too"]) == ["x.data: damaged", "y: too", missing]
    assert problems_of("t", 7, EMPTY_PARTITION, ["x.data: damaged", "y: too"]) == ["x.data: damaged", "y: too"]


def test_what_lies_below_an_offset_is_left_out_with_its_gaps() -> None:
    inventory = arrange([segment(4, 5), segment(7, 9), segment(12, 15)]).from_offset(8)
    assert [(one.segment.facts.base, one.from_offset) for one in inventory.readable] == [(7, 8), (12, 12)]
    assert [str(gap) for gap in inventory.gaps] == ["9-11"]


@pytest.mark.parametrize(("base", "next_offset"), [(1, 5), (0, 6)])
def test_a_name_and_facts_that_differ_are_refused(base: int, next_offset: int) -> None:
    one = segment(0, 5, merged=True)
    with pytest.raises(CorruptSegmentError, match=r"0{20}-0{19}5\.data: its facts cover"):
        replace(one, facts=facts_of(base, next_offset))


# --- reading a store


def test_lives_and_partitions_are_kept_apart() -> None:
    store = MemoryStore()
    put(store, [segment(0, 5), segment(5, 7)])
    put(store, [segment(0, 3)], partition=10)
    put(store, [segment(0, 2)], life=1)
    put(store, [segment(0, 9)], topic="t.x")
    inventory = read_inventory(Archive(store, LAYOUT))
    positions = {
        (*topic_life, number): found.position
        for topic_life, by_partition in inventory.partitions.items()
        for number, found in by_partition.items()
    }
    assert positions == {("t", 0, 0): 7, ("t", 0, 10): 3, ("t", 1, 0): 2, ("t.x", 0, 0): 9}
    assert position_of(Archive(store, LAYOUT), "t", 0, 0).next == 7
    assert position_of(Archive(store, LAYOUT), "t", 0, 1).next == 0  # not that of partition 10
    assert position_of(Archive(store, LAYOUT), "t", 1, 0).next == 2


def test_only_what_is_wanted_is_asked_for() -> None:
    store = CountingStore()
    put(store, [segment(0, 5), segment(5, 7)])
    put(store, [segment(0, 9)], topic="other")
    inventory = read_inventory(Archive(store, LAYOUT), lambda topic: topic == "other")
    assert list(inventory.partitions) == [("other", 0)]
    assert store.heads == 1


def test_what_is_added_to_the_index_goes_into_files_that_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_facts, "_SHARED_AT_ONCE", 7)
    monkeypatch.setattr(learned_facts, "_MANY", 1)
    store = CountingStore()
    for topic in ("a", "b", "c"):
        put(store, [segment(at, at + 1) for at in range(10)], topic=topic)
    found = read_inventory(Archive(store, LAYOUT))
    files = [store.objects[key].body for key in sorted(store.objects) if "/index/" in key]
    counts = [
        {topic: read_member(member).header["count"] for (topic, _), member in split_file(one, "k").members.items()}
        for one in files
    ]
    assert counts == [{"a": 7}, {"a": 3, "b": 4}, {"b": 6, "c": 1}, {"c": 7}, {"c": 2}]
    assert store.heads == 30
    assert read_inventory(Archive(store, LAYOUT)) == found
    assert store.heads == 30
    monkeypatch.setattr(learned_facts, "_MOST_SHARED", 2)
    store.delete([key for key in store.objects if "/index/" in key])
    read_inventory(Archive(store, LAYOUT))
    assert len([key for key in store.objects if "/index/" in key]) == 2


def test_strangers_are_listed_and_harm_nobody_but_a_segment_without_facts_is_damage() -> None:
    store = MemoryStore()
    put(store, [segment(0, 5)])
    strange = ["p/topics/README", "p/topics/t/_SUCCESS", "p/topics/t/partition=0/t+0-7.data", "p/topics/no topic!/x"]
    without_facts = LAYOUT.segment_key(SegmentKey(topic="t", partition=0, base=5))
    for key in [*strange, without_facts]:
        store.put_if_absent(key, b"", {}, kind=ObjectKind.FACT)
    inventory = read_inventory(Archive(store, LAYOUT))
    assert inventory.strangers == tuple(sorted(strange))
    assert [damage.message.split(":")[0] for damage in inventory.damaged] == [without_facts]
    assert inventory.partitions["t", 0][0].position == 5


def test_a_damaged_object_is_named_and_the_others_are_read() -> None:
    store = MemoryStore()
    put(store, [segment(0, 5), segment(9, 12)])
    put(store, [segment(0, 7)], partition=1)
    broken: Mapping[str, Mapping[str, str]] = {
        LAYOUT.segment_key(SegmentKey(topic="t", partition=0, base=5)): {"archiver-format": "1"},
        LAYOUT.segment_key(SegmentKey(topic="t", partition=2, base=0)): {"archiver-format": "2"},
        LAYOUT.segment_key(SegmentKey(topic="t", partition=3, base=1)): facts_of(0, 5).to_metadata(),
    }
    for key, metadata in broken.items():
        store.put_if_absent(key, b"", metadata, kind=ObjectKind.FACT)
    inventory = read_inventory(Archive(store, LAYOUT))
    assert [LAYOUT.segment_key(damage.key) for damage in inventory.damaged] == sorted(broken)
    assert [damage.message.partition(":")[0] for damage in inventory.damaged] == sorted(broken)
    assert inventory.partitions["t", 0][0].gaps == (Gap(first_offset=5, last_offset=8),)
    assert inventory.partitions["t", 0][1].position == 7


def test_a_newest_segment_without_facts_stops_a_writer() -> None:
    store = MemoryStore()
    put(store, [segment(0, 5)])
    store.put_if_absent(
        LAYOUT.segment_key(SegmentKey(topic="t", partition=0, base=5)), b"", {}, kind=ObjectKind.SEGMENT
    )
    with pytest.raises(CorruptSegmentError, match="the newest segment has no facts"):
        position_of(Archive(store, LAYOUT), "t", 0, 0)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            known_facts(segment(5, 7)).to_metadata() | {"archiver-next": "9999"},
            "its facts are not those that were written",
        ),
        (known_facts(segment(4, 7)).to_metadata(), "its facts cover 4..7, its name says otherwise"),
    ],
    ids=["changed", "of another object"],
)
def test_a_writer_does_not_go_on_where_changed_metadata_says(metadata: Mapping[str, str], message: str) -> None:
    store = MemoryStore()
    put(store, [segment(0, 5)])
    store.put_if_absent(
        LAYOUT.segment_key(SegmentKey(topic="t", partition=0, base=5)), b"", metadata, kind=ObjectKind.SEGMENT
    )
    with pytest.raises(CorruptSegmentError, match=message):
        position_of(Archive(store, LAYOUT), "t", 0, 0)


def test_strangers_do_not_move_the_position() -> None:
    store = MemoryStore()
    put(store, [segment(0, 5)])
    store.put_if_absent("p/topics/t/partition=0/zzz", b"", {}, kind=ObjectKind.FACT)
    assert position_of(Archive(store, LAYOUT), "t", 0, 0).next == 5


def test_the_epoch_is_that_of_the_segment_that_holds_the_end() -> None:
    store = MemoryStore()
    plain, merged = segment(5, 7), segment(0, 20, merged=True)
    store.put_if_absent(
        plain.object_key, b"x", replace(known_facts(plain), leader_epoch=3).to_metadata(), kind=ObjectKind.SEGMENT
    )
    assert position_of(Archive(store, LAYOUT), "t", 0, 0) == ArchivedEnd(
        base=5,
        next=7,
        leader_epoch=3,
        topic_id="t",
        cluster_id="c",
        key=plain.object_key,
        gap=Gap(first_offset=0, last_offset=4),
    )
    store.put_if_absent(
        merged.object_key, b"x", replace(known_facts(merged), leader_epoch=8).to_metadata(), kind=ObjectKind.SEGMENT
    )
    assert position_of(Archive(store, LAYOUT), "t", 0, 0).leader_epoch == 8


PLAIN, MERGED = False, True


@pytest.mark.parametrize(
    ("pile", "gap"),
    [
        ([(0, 5, PLAIN), (5, 7, PLAIN)], None),
        ([(0, 50, PLAIN), (5000, 5001, PLAIN)], (50, 4999)),
        ([(5000, 5001, PLAIN)], (0, 4999)),  # a sweep leaves that, too: who asks looks at what was swept
        ([(0, 50, MERGED), (50, 60, PLAIN)], None),
        ([(0, 10, PLAIN), (0, 50, MERGED), (10, 20, PLAIN), (50, 60, PLAIN)], None),
        ([(0, 50, MERGED), (50, 90, MERGED)], None),
        ([(0, 50, PLAIN), (50, 60, PLAIN), (0, 60, MERGED)], None),
        ([(0, 50, PLAIN), (70, 80, MERGED)], (50, 69)),
        ([(0, 50, MERGED), (70, 80, PLAIN)], (50, 69)),
    ],
)
def test_a_newest_segment_that_does_not_join_is_told(
    pile: list[tuple[int, int, bool]], gap: tuple[int, int] | None
) -> None:
    store = MemoryStore()
    put(store, [segment(base, end, merged=merged) for base, end, merged in pile])
    archive = Archive(store, LAYOUT)
    told = None if gap is None else Gap(first_offset=gap[0], last_offset=gap[1])
    assert position_of(archive, "t", 0, 0).gap == told
    plain = [base for base, _, merged in pile if not merged]
    for hint in plain[:-1]:
        assert position_of(archive, "t", 0, 0, hint) == position_of(archive, "t", 0, 0)


def test_a_segment_of_which_nothing_tells_where_it_ends_leaves_no_gap() -> None:
    """It is damaged, or an object of v1.0: `verify` says so, and a writer goes on."""
    store = MemoryStore()
    store.put_if_absent(
        LAYOUT.segment_key(SegmentKey(topic="t", partition=0, base=0)), b"", {}, kind=ObjectKind.SEGMENT
    )
    put(store, [segment(50, 60)])
    assert position_of(Archive(store, LAYOUT), "t", 0, 0).gap is None
