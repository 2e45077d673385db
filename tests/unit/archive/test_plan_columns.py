"""Columns of segments, readings and parts tell what objects did, one by one: on any archive, damaged, overlapping, of v1.0, in lives."""

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.copies.archived_topic import ArchivedTopic, wanted_readings
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.inventory import PartitionInventory, arrange, read_inventory
from archiver.archive.segments.partition_segments import Segment, Segments
from archiver.archive.segments.parts import parts_within
from archiver.archive.segments.segment_facts import Bounds, Hole, HoleCause, SegmentFacts
from archiver.codec.selection import LAST_LONG, Selection, TopicSelection
from archiver.process.values.columns import Texts
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan, plan_restore
from archiver.restore.plan.target_limits import _records_within
from archiver.spark.table.scan import grouped
from archiver.store.port import ObjectKind
from tests.support import plain_plan
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAYOUT = Layout("p")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
OFFSETS = 50
small = st.integers(0, OFFSETS)
times = st.integers(-2, 30)


@st.composite
def segments(draw: st.DrawFn, life: int = 0) -> Segment:
    base, more = draw(small), draw(st.integers(1, OFFSETS))
    following, is_old = base + more, draw(st.booleans())
    named = draw(st.booleans()) and not is_old
    key = SegmentKey(topic="t", life=life, partition=3, base=base, next=following if named else None)
    first = draw(st.integers(base, following - 1))
    last = draw(st.integers(first, following - 1))
    facts: SegmentFacts | Bounds = Bounds(base=base, first=first, last=last)
    if not is_old:
        earliest = draw(times)
        facts = replace(
            facts_of(base, following),
            first=first,
            last=last,
            records=draw(st.integers(1, last - first + 1)),
            min_timestamp=earliest,
            max_timestamp=earliest + draw(st.integers(0, 9)),
            bytes=draw(st.integers(0, 2**40)),
            source_bytes=draw(st.integers(0, 2**33)),
            largest_record=draw(st.integers(0, 70_000)),
            leader_epoch=draw(st.integers(-1, 2)),
            digest=draw(st.integers(0, LAST_LONG)),
            sha256=draw(st.sampled_from(["0" * 64, "ab" * 32, "AB" * 32, "no digest", "é"])),
            holes=draw(st.sampled_from([(), (Hole(first_offset=base, last_offset=base, cause=HoleCause.EXPIRED),)])),
        )
    return Segment(
        key=key,
        object_key=LAYOUT.segment_key(key),
        size=draw(st.integers(0, 2**34)),
        etag=draw(st.sampled_from(["", "d41d8cd98f00b204e9800998ecf8427e", "d41d8cd98f00b204e9800998ecf8427e-2", "x"])),
        put_at=draw(st.sampled_from([None, MOMENT, MOMENT + timedelta(microseconds=7)])),
        facts=facts,
    )


def piles(life: int = 0) -> st.SearchStrategy[list[Segment]]:
    return st.lists(segments(life), max_size=9, unique_by=lambda one: (one.key.base, one.key.next))


selections = st.builds(
    Selection,
    first_offset=small,
    last_offset=st.one_of(st.just(LAST_LONG), st.integers(0, 2 * OFFSETS)),
    from_ms=st.one_of(st.just(-(2**63)), times),
    until_ms=st.one_of(st.just(LAST_LONG), times),
)


@given(piles())
def test_segments_are_what_they_were_made_of(pile: list[Segment]) -> None:
    if pile:
        found = Segments.of(pile)
        assert list(found) == pile
        assert list(found.object_keys()) == [one.object_key for one in pile]
        assert found == pile
        assert list(found[::2]) == pile[::2]
        assert found[-1] == pile[-1]


@given(piles(), small, small)
def test_the_walk_is_that_over_objects(pile: list[Segment], start: int, end: int) -> None:
    found, plain = arrange(pile), plain_plan.walk(pile)
    assert list(found.readable) == list(plain.readable)
    assert list(found.shadowed) == list(plain.shadowed)
    assert tuple((one.first_offset, one.last_offset, one.is_certain) for one in found.gaps) == plain.gaps
    assert (
        tuple((one.first_offset, one.last_offset, one.read, one.left_out) for one in found.overlaps) == plain.overlaps
    )
    assert list(found.from_offset(start).readable) == plain_plan.above(plain.readable, start)
    assert list(found.until_offset(end).readable) == plain_plan.below(plain.readable, end)
    both = plain_plan.above(plain_plan.below(plain.readable, end), start)
    assert list(found.until_offset(end).from_offset(start).readable) == both


@given(piles(), piles(life=1), small, selections, st.booleans())
def test_a_plan_is_that_of_objects(
    parent: list[Segment], child: list[Segment], branch: int, selection: Selection, skips: bool
) -> None:
    """Of a life that goes on from another, for any selection: the same parts, facts and digest, so that begun restores go on."""
    found = arrange(parent).until_offset(branch).then(arrange(child).from_offset(branch))
    plain = [
        *plain_plan.below(plain_plan.walk(parent).readable, branch),
        *plain_plan.above(plain_plan.walk(child).readable, branch),
    ]
    plan = plan_of(found, selection, skips)
    wanted = plain_plan.wanted(plain, selection)
    parts = [plain_plan.part_of(one, selection) for one in wanted]
    assert list(plan.parts) == parts
    assert list(plan.facts) == [plain_plan.facts_of(part, one) for part, one in zip(parts, wanted, strict=True)]
    assert plan.selection_digest == plain_plan.digest_of(wanted, selection)
    assert plan.stored_bytes == sum(one.segment.size for one in wanted)
    assert plan.records == sum(one.records for one in plan.facts)
    limit = max(1, plan.stored_bytes // 3)
    assert [list(group) for group in grouped(wanted_readings(found.readable, selection), limit)] == (
        plain_plan.groups_of(wanted, limit)
    )


def plan_of(found: PartitionInventory, selection: Selection, skips: bool) -> PartitionPlan:
    wanted = TopicSelection(
        offsets={3: (selection.first_offset, selection.last_offset)},
        from_ms=selection.from_ms,
        until_ms=selection.until_ms,
    )
    topic = ArchivedTopic(topic="t", life=1, fact=None, partitions={3: found}, damaged={}, other_lives=())
    return plan_restore([topic], {"t": "t"}, RestoreRequest(wanted=wanted, skips_damage=skips))[0].partitions[3]


@given(piles(), selections, times, times)
def test_records_of_a_time_are_counted_as_of_objects(
    pile: list[Segment], selection: Selection, first_ms: int, last_ms: int
) -> None:
    plan = plan_of(arrange(pile), selection, skips=False)
    topic = TopicPlan(source="t", life=0, target="t", partitions=(plan,), final_configs={}, archived_retention={})
    found = _records_within(topic, first_ms, last_ms)
    counts = [plain_plan.times_within(one, selection, first_ms, last_ms) for one in plan.facts]
    assert found == (sum(least for least, _ in counts), sum(most for _, most in counts))


def test_a_task_is_sent_its_partition_alone() -> None:
    """Columns are those of a whole topic directory: each task that took all of them along would cost as much."""
    store = MemoryStore()
    for number in range(20):
        for at in range(50):
            key = SegmentKey(topic="t", partition=number, base=10 * at)
            store.put_if_absent(
                LAYOUT.segment_key(key), b"x", facts_of(10 * at, 10 * at + 10).to_metadata(), kind=ObjectKind.SEGMENT
            )
    partitions = read_inventory(Archive(store, LAYOUT)).partitions["t", 0]
    readings = partitions[7].readable
    sent = pickle.dumps(readings)
    assert pickle.loads(sent) == readings
    assert len(sent) < 20_000
    parts = parts_within(readings, Selection())
    assert pickle.loads(pickle.dumps(parts)) == parts
    assert len(pickle.dumps(parts)) < 3_000


@given(st.lists(st.lists(st.text("0123456789abcdefAé", max_size=6), max_size=4), max_size=4))
def test_texts_are_kept_whatever_they_are(several: list[list[str]]) -> None:
    pieces = [Texts.of(texts) for texts in several]
    assert [list(one) for one in pieces] == several
    if pieces:
        joined = Texts.join(pieces)
        assert list(joined) == [text for texts in several for text in texts]
        assert joined.are(joined).all()
        assert joined.are_empty().tolist() == [not text for text in joined]
        if joined.padded().isascii():
            assert list(Texts.unpad(joined.padded(), joined.width)) == list(joined)
