"""docs/format.md §14: what of a partition is missing, and what a sweep took, against what single offsets say; and what readers tell."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.index_generations import append_to_index
from archiver.archive.index.inventory import Gap, Inventory, PartitionInventory, arrange, problems_of, read_inventory
from archiver.archive.notes.swept import OffsetRanges, Range, SweptPlace, add_swept
from archiver.archive.notes.topic_changes import record_branch, record_topic
from archiver.archive.notes.topics import Branch, record_cluster
from archiver.archive.reading.catalog import find_topic
from archiver.archive.reading.holdings import summarize
from archiver.archive.reading.plain_records import read_records
from archiver.archive.segments.entries import IndexEntry
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.segment_facts import Bounds
from archiver.store.port import ObjectKind
from archiver.upkeep.verify import check_listing
from tests.support.memory_store import MemoryStore
from tests.support.records import Rec
from tests.support.segments import SOURCE, facts_of, written

LAYOUT = Layout("p")
OFFSETS = 30
KEY = SegmentKey(topic=SOURCE.topic, partition=SOURCE.partition, base=0)
PLACE = SweptPlace(SOURCE.topic, 0, SOURCE.partition)
NAME = f"{SOURCE.topic}-{SOURCE.partition}"


def segment(base: int, following: int, *, is_old: bool = False) -> Segment:
    key = SegmentKey(topic="t", partition=0, base=base)
    facts = Bounds(base=base, first=base, last=following - 1) if is_old else facts_of(base, following)
    return Segment(key=key, object_key=LAYOUT.segment_key(key), size=1, etag="e", facts=facts)


lengths = st.tuples(st.integers(0, OFFSETS - 1), st.integers(1, 8))
plain_piles = st.lists(lengths, max_size=6, unique_by=lambda one: one[0]).map(
    lambda rows: [segment(base, base + length) for base, length in rows]
)
mixed_piles = st.lists(st.tuples(lengths, st.booleans()), max_size=6, unique_by=lambda one: one[0][0]).map(
    lambda rows: [segment(base, base + length, is_old=old) for (base, length), old in rows]
)
swept_ranges = st.lists(st.tuples(st.integers(0, 45), st.integers(0, 45)), max_size=4).map(OffsetRanges.of)


def offsets_of(gaps: Iterable[Gap]) -> list[int]:
    return [offset for gap in gaps for offset in range(gap.first_offset, gap.last_offset + 1)]


def taken(ranges: OffsetRanges) -> set[int]:
    return {offset for start, stop in ranges.ranges for offset in range(start, stop)}


def held(pile: list[Segment]) -> set[int]:
    return {offset for one in pile for offset in range(one.facts.base, one.facts.next)}


def read(inventory: PartitionInventory) -> list[int]:
    return [
        offset for one in inventory.readable for offset in range(max(one.from_offset, one.segment.facts.base), one.next)
    ]


def uncovered(pile: list[Segment]) -> set[int]:
    """An archive that begins with an object of v1.0 begins where the log did."""
    first = min(pile, key=lambda one: one.facts.base, default=None)
    start = first.facts.base if first is not None and isinstance(first.facts, Bounds) else 0
    return set(range(start, max(held(pile), default=-1) + 1)) - held(pile)


def check(inventory: PartitionInventory, *, missing: set[int], swept: set[int], present: set[int]) -> None:
    assert sorted(offsets_of(inventory.gaps)) == sorted(missing)
    assert sorted(offsets_of(inventory.swept)) == sorted(swept)
    assert read(inventory) == sorted(present)


@settings(max_examples=60)
@given(mixed_piles, swept_ranges, swept_ranges, st.integers(0, 40), st.integers(0, 40))
def test_of_what_no_segment_has_each_offset_is_missing_or_swept(
    pile: list[Segment], ranges: OffsetRanges, others: OffsetRanges, start: int, stop: int
) -> None:
    whole = arrange(pile)
    found = whole.without_swept(ranges)
    swept, missing, present = uncovered(pile) & taken(ranges), uncovered(pile) - taken(ranges), held(pile)
    check(found, missing=missing, swept=swept, present=present)
    assert (found.shadowed, found.overlaps, found.end) == (whole.shadowed, whole.overlaps, whole.end)
    for gap in (*found.gaps, *found.swept):
        (within,) = (one for one in whole.gaps if one.first_offset <= gap.first_offset <= one.last_offset)
        assert gap == replace(within, first_offset=gap.first_offset, last_offset=gap.last_offset)
    above, below = set(range(start, 99)), set(range(stop))
    check(found.from_offset(start), missing=missing & above, swept=swept & above, present=present & above)
    check(found.below(stop), missing=missing & below, swept=swept & below, present=present & below)
    both = above & below
    check(found.from_offset(start).below(stop), missing=missing & both, swept=swept & both, present=present & both)
    twice = found.without_swept(others)
    check(twice, missing=missing - taken(others), swept=swept | (missing & taken(others)), present=present)
    assert found.position == (min(missing) if missing else whole.end)


def test_last_objects_that_the_index_remembers_were_not_swept() -> None:
    """Whatever a note says: a sweep leaves the newest object, so this is a loss."""
    found = arrange([segment(10, 20)]).reaching(40, is_remembered=True).without_swept(OffsetRanges(((0, 40),)))
    assert (offsets_of(found.gaps), offsets_of(found.swept)) == ([*range(20, 40)], [*range(10)])
    (problem,) = problems_of("t", 0, found, ())
    assert problem.startswith("t-0: offsets 20-39 are missing from the archive")


@st.composite
def lineages(draw: st.DrawFn) -> list[tuple[int, int, int | None]]:
    bounds = sorted(draw(st.sets(st.integers(1, OFFSETS), max_size=2)))
    return [(life, *ends) for life, ends in enumerate(zip([0, *bounds], [*bounds, None], strict=True))]


@settings(max_examples=60)
@given(lineages(), st.lists(st.tuples(plain_piles, swept_ranges), min_size=3, max_size=3))
def test_through_lives_each_offset_is_read_or_missing_or_swept(
    lineage: list[tuple[int, int, int | None]], by_life: list[tuple[list[Segment], OffsetRanges]]
) -> None:
    partitions = {("t", life): {0: arrange(pile).without_swept(ranges)} for life, (pile, ranges) in enumerate(by_life)}
    joined, _ = Inventory(partitions=partitions, strangers=(), damaged=()).join("t", 0, lineage)
    missing, swept, present = set[int](), set[int](), set[int]()
    for life, start, until in lineage:
        pile, ranges = by_life[life]
        window = set(range(start, max(held(pile), default=-1) + 1 if until is None else until))
        present |= held(pile) & window
        swept |= uncovered(pile) & taken(ranges) & window
        missing |= window - present - swept
    check(joined, missing=missing, swept=swept, present=present)


# --- what readers tell


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """Four objects of one partition, 0 to 96, and an index that knows them."""
    made, entries = MemoryStore(), []
    for base in (0, 24, 48, 72):
        records = [Rec(base + at, 1000 + at, 0, b"k", b"value") for at in range(20)]
        content, facts = written(tmp_path, records, base)
        key = replace(KEY, base=base)
        etag = made.put_if_absent(LAYOUT.segment_key(key), content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
        assert etag
        entries.append(IndexEntry(key, len(content), etag, facts))
    append_to_index(Archive(made, LAYOUT), entries)
    record_cluster(Archive(made, LAYOUT), "c")
    record_topic(
        Archive(made, LAYOUT),
        topic=SOURCE.topic,
        topic_id=SOURCE.topic_id,
        cluster_id="c",
        partitions=4,
        configs={},
    )
    return made


def lose(store: MemoryStore, *bases: int, life: int = 0) -> None:
    store.delete([LAYOUT.segment_key(replace(KEY, base=base, life=life)) for base in bases])


def sweep(store: MemoryStore, *ranges: Range, life: int = 0) -> None:
    add_swept(Archive(store, LAYOUT), PLACE._replace(life=life), OffsetRanges.of(ranges))


def note(offsets: str) -> str:
    return f"{NAME}: offsets {offsets} are no longer in the archive: a retention sweep took them"


def told_problems(store: MemoryStore) -> list[str]:
    """By each reader the same."""
    archive = Archive(store, LAYOUT)
    verified, summary = check_listing(archive), summarize(archive, None)
    found = read_inventory(archive).partitions[SOURCE.topic, 0][SOURCE.partition]
    assert list(summary.problems) == list(verified.problems)
    assert problems_of(SOURCE.topic, SOURCE.partition, found, ()) == list(verified.problems)
    return list(verified.problems)


def told_notes(store: MemoryStore) -> list[str]:
    archive = Archive(store, LAYOUT)
    topic = find_topic(archive, SOURCE.topic)
    assert list(topic.notes) == list(summarize(archive, None).notes)
    assert [one for one in check_listing(archive).notes if "sweep" in one] == list(topic.notes)
    return list(topic.notes)


def test_what_was_swept_is_a_note_and_no_problem(store: MemoryStore) -> None:
    sweep(store, (0, 48))
    assert (told_problems(store), told_notes(store)) == ([], [])  # it is still there
    lose(store, 0, 24)
    assert (told_problems(store), told_notes(store)) == ([], [note("0-47")])


def test_cat_beside_a_sweep_prints_one_line_for_all_that_went_meanwhile(store: MemoryStore) -> None:
    topic = find_topic(Archive(store, LAYOUT), SOURCE.topic)
    before = len(list(read_records(store, topic, report_problem=print)))
    sweep(store, (0, 48))
    lose(store, 0, 24)
    problems: list[str] = []
    read = list(read_records(store, topic, report_problem=problems.append))
    assert 0 < len(read) < before
    (line,) = problems
    assert line.startswith(
        f"{NAME}: {LAYOUT.segment_key(KEY)}: was listed, and is gone: a retention sweep took all objects"
    )
    lose(store, 48)  # a loss is named all the same
    problems.clear()
    list(read_records(store, topic, report_problem=problems.append))
    assert [
        LAYOUT.segment_key(replace(KEY, base=base)) in told for base, told in zip((0, 48), problems, strict=True)
    ] == [
        True,
        True,
    ]


def test_a_loss_beside_what_was_swept_is_a_problem(store: MemoryStore) -> None:
    sweep(store, (0, 24))
    lose(store, 0, 48)
    (problem,) = told_problems(store)
    assert problem.startswith(f"{NAME}: offsets 48-71 are missing from the archive; ")
    assert told_notes(store) == [note("0-23")]


def test_another_partition_life_or_topic_was_not_swept(store: MemoryStore) -> None:
    for place in (PLACE._replace(life=1), PLACE._replace(partition=30), PLACE._replace(topic=f"{SOURCE.topic}.x")):
        add_swept(Archive(store, LAYOUT), place, OffsetRanges.of([(0, 96)]))
    lose(store, 0)
    (problem,) = told_problems(store)
    assert problem.startswith(f"{NAME}: offsets 0-23 are missing from the archive; ")
    assert told_notes(store) == []


def test_while_a_swept_fact_is_damaged_all_counts_as_lost(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    sweep(store, (0, 24))
    lose(store, 0)
    key = LAYOUT.fact_key(PLACE.stream, 0)
    body = store.objects[key].body.replace(b"24", b"94")
    store.objects[key] = replace(store.objects[key], body=body)
    with caplog.at_level(logging.WARNING, "archiver.archive.index.inventory"):
        found = read_inventory(Archive(store, LAYOUT)).partitions[SOURCE.topic, 0][SOURCE.partition]
    assert ([str(gap) for gap in found.gaps], found.swept) == (["0-23"], ())
    (told,) = (one.getMessage() for one in caplog.records)
    assert told.startswith(f"{key}: does not say what was written")
    assert told.endswith(f"; what is missing of {SOURCE.topic} counts as lost")
    problems = check_listing(Archive(store, LAYOUT)).problems
    assert any(one.startswith(f"{NAME}: offsets 0-23 are missing from the archive") for one in problems)


def test_a_sweep_that_took_the_tail_of_a_parent_leaves_no_loss(store: MemoryStore, tmp_path: Path) -> None:
    """The log was cut back at 40: what the parent had above, and below, went; but for its last object."""
    archive = Archive(store, LAYOUT)
    branch = Branch(offset=40, leader_epoch=1)
    life, _ = record_branch(archive, topic=SOURCE.topic, partition=SOURCE.partition, parent=0, branch=branch)
    content, facts = written(tmp_path, [Rec(40 + at, 5000, 0, b"k", b"v") for at in range(9)], 40)
    key = LAYOUT.segment_key(replace(KEY, life=life, base=40))
    assert store.put_if_absent(key, content, facts.to_metadata(), kind=ObjectKind.SEGMENT)
    lose(store, 24, 48)
    assert len(find_topic(archive, SOURCE.topic).partitions[SOURCE.partition].gaps) == 1
    sweep(store, (24, 72))
    joined = find_topic(archive, SOURCE.topic).partitions[SOURCE.partition]
    assert (joined.gaps, [str(gap) for gap in joined.swept]) == ((), ["24-39"])
    assert check_listing(archive).problems == []


def test_what_was_swept_of_many_partitions_is_one_line_of_a_topic(store: MemoryStore) -> None:
    for base in (0, 24, 48, 72):
        of_one, of_other = (LAYOUT.segment_key(replace(KEY, partition=number, base=base)) for number in (3, 1))
        store.objects[of_other] = store.objects[of_one]
    for partition in (1, 3):
        add_swept(Archive(store, LAYOUT), PLACE._replace(partition=partition), OffsetRanges.of([(0, 24)]))
        store.delete([LAYOUT.segment_key(replace(KEY, partition=partition))])
    (line,) = find_topic(Archive(store, LAYOUT), SOURCE.topic).notes
    assert line == f"{SOURCE.topic}: retention sweeps took records of 2 partitions; they are no longer in the archive"
    assert len(summarize(Archive(store, LAYOUT), None).notes) == 2
