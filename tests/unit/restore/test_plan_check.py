"""What of a noted plan is believed: what can have become of an archive since passes, and whatever else differs does not."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from archiver.archive.copies.archived_topic import ArchivedTopic
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.inventory import PartitionInventory, arrange
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.parts import Chosen, FactsOfParts, ObjectPart, ObjectParts
from archiver.archive.segments.segment_facts import PartFacts
from archiver.errors import NotWholeError, UsageError
from archiver.process.values.columns import Chain, Numbers, Texts
from archiver.restore.plan.plan_check import PlanCheck
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan, plan_restore
from tests.support.segments import facts_of

LAYOUT = Layout("archive")
REQUEST = RestoreRequest()
OBJECTS, HALF = 40, 20


def segment(life: int, base: int, following: int, *, is_merged: bool = False) -> Segment:
    key = SegmentKey(topic="orders", life=life, partition=0, base=base, next=following if is_merged else None)
    facts = replace(facts_of(base, following), records=1 + base % 7)
    return Segment(key=key, object_key=LAYOUT.segment_key(key), size=base, etag="e", facts=facts)


def plan_of(older: Sequence[Segment], newer: Sequence[Segment]) -> TopicPlan:
    """A partition that goes on in a second life."""
    found: PartitionInventory = arrange(older).until_offset(10 * HALF).then(arrange(newer).from_offset(10 * HALF))
    topic = ArchivedTopic(topic="orders", life=1, fact=None, partitions={0: found}, damaged={}, other_lives=())
    return plan_restore([topic], {"orders": "copy"})[0]


def plain(life: int, first: int, stop: int) -> list[Segment]:
    return [segment(life, 10 * at, 10 * at + 10) for at in range(first, stop)]


def believed(noted: TopicPlan, present: TopicPlan, request: RestoreRequest = REQUEST) -> TopicPlan:
    return PlanCheck(LAYOUT, "mine", request).check_plan(noted, present)


def with_rows(plan: TopicPlan, rows: Sequence[tuple[ObjectPart, PartFacts]]) -> TopicPlan:
    """As a plan of few objects is read: object by object."""
    facts = FactsOfParts.of([facts for _, facts in rows])
    partition = replace(
        plan.partitions[0],
        parts=tuple(part for part, _ in rows),
        facts=facts,
        records=sum(one.records for one in facts),
    )
    return replace(plan, partitions=(partition,))


def rows_of(plan: TopicPlan) -> list[tuple[ObjectPart, PartFacts]]:
    partition = plan.partitions[0]
    return list(zip(partition.parts, partition.facts, strict=True))


WHOLE = plan_of(plain(0, 0, HALF), plain(1, HALF, OBJECTS))


@pytest.mark.parametrize("are_rows", [False, True])
def test_what_became_of_an_archive_since_is_no_lie(are_rows: bool) -> None:
    noted = with_rows(WHOLE, rows_of(WHOLE)) if are_rows else WHOLE
    check = PlanCheck(LAYOUT, "mine", REQUEST)
    assert believed(noted, WHOLE) == noted
    # It went on; some objects are gone; some were merged, and the plain ones are not read any more.
    longer = plan_of(plain(0, 0, HALF), plain(1, HALF, OBJECTS + 5))
    assert believed(noted, longer) == noted
    (told,) = check.check_plans([noted], lambda _wave, _life, _pins: [longer]).notes
    records = sum(1 + 10 * at % 7 for at in range(OBJECTS, OBJECTS + 5))
    assert f"has 5 objects with {records} records behind that" in told
    gone = plan_of([*plain(0, 0, 3), *plain(0, 6, HALF)], plain(1, HALF, OBJECTS))
    assert believed(noted, gone).partitions[0].parts == noted.partitions[0].parts
    merged = [segment(1, 10 * (HALF + 4), 10 * (HALF + 9), is_merged=True)]
    shorter = plan_of(plain(0, 0, HALF), [*plain(1, HALF, HALF + 4), *merged, *plain(1, HALF + 9, OBJECTS)])
    assert believed(noted, shorter).partitions[0].parts == noted.partitions[0].parts


@pytest.mark.sampled(50)
@pytest.mark.parametrize("seed", range(100))
def test_no_other_difference_passes(seed: int) -> None:
    """One value of one object is another, or some objects are not there, or there twice, or in another order."""
    rng = random.Random(seed)
    rows = rows_of(WHOLE)
    at = rng.randrange(len(rows) - 1)
    part, facts = rows[at]
    number = rng.randrange(1, 10)
    wrong: list[ObjectPart] = [
        replace(part, from_offset=part.from_offset + number),
        replace(part, until_offset=part.from_offset + number),
        replace(part, next_offset=(part.next_offset or 0) - number),
        replace(part, next_offset=(part.next_offset or 0) + number),
        replace(part, object_key=part.object_key.replace("+0-", "+1-")),
        replace(part, object_key=part.object_key.replace("topics/orders", "topics/others")),
        replace(part, object_key=part.object_key.replace("archive/", "other/")),
        replace(part, object_key=f"archive/topics/orders@2/partition=0/{part.object_key.rpartition('/')[2]}"),
    ]
    other = rng.randrange(len(rows))
    field = rng.choice(PartFacts._fields)
    forgeries = [
        *([*rows[:at], (one, facts), *rows[at + 1 :]] for one in wrong),
        [*rows[:at], (part, facts._replace(**{field: not facts.is_exact if field == "is_exact" else number + 100})), *rows[at + 1 :]],  # type: ignore[arg-type]
        [*rows[:at], *rows[at + 1 :]],
        [*rows[:at], *rows[at + number :]] if at + number < len(rows) else rows[1:],
        [*rows[:at], *rows[at:], *rows[at:]],
        [*rows[:at], (replace(part, next_offset=None), facts), *rows[at:]],
        [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]],
        [*rows, rows[other]],
    ]  # fmt: skip
    for forged in forgeries:
        for plan in (with_rows(WHOLE, forged), with_columns(WHOLE, forged)):
            with pytest.raises(NotWholeError, match=r"plan/ \(the newest\): .*not noted that"):
                believed(plan, WHOLE)


def with_columns(plan: TopicPlan, rows: Sequence[tuple[ObjectPart, PartFacts]]) -> TopicPlan:
    """As pieces of a large plan are read."""
    found = with_rows(plan, rows)
    runs = groupby((part for part, _ in rows), lambda part: part.object_key[:-25])
    blocks = [ObjectParts(stem, *map(np.array, zip(*map(_columns, run), strict=True))) for stem, run in runs]
    return replace(found, partitions=(replace(found.partitions[0], parts=Chain(blocks)),))


def _columns(part: ObjectPart) -> tuple[int, ...]:
    return int(part.object_key[-25:-5]), 0, 0, part.from_offset, part.until_offset or 0, part.next_offset or 0


def test_chosen_records_are_some_of_those_that_are_planned() -> None:
    request = RestoreRequest(where="true")
    block = ObjectParts(LAYOUT.segment_stem("orders", 1, 0), *_narrowed())
    stem = LAYOUT.chosen_stem("mine", "copy", 0)
    chosen = block.with_chosen(Chosen(stem, Texts.of([f"{at:024x}" for at in range(len(block))])))
    facts = FactsOfParts.of([PartFacts(True, 1, 0, 0, 1, 1, 1)] * len(block))
    partition = PartitionPlan(
        partition=0, parts=chosen, stored_bytes=1, records=len(block), selection=WHOLE.partitions[0].selection,
        selection_digest="d", facts=facts,
    )  # fmt: skip
    plan = replace(WHOLE, partitions=(partition,))
    assert believed(plan, WHOLE, request).partitions[0].parts == chosen
    elsewhere = chosen.with_chosen(Chosen(LAYOUT.chosen_stem("mine", "other", 0), Texts.of(["0" * 24] * len(block))))
    more = FactsOfParts.of([PartFacts(True, 100, 0, 0, 1, 1, 1)] * len(block))
    none = FactsOfParts.of([PartFacts(True, 0, 0, 0, 0, 0, 0)] * len(block))
    for forged in (
        replace(partition, parts=elsewhere),
        replace(partition, facts=more, records=100 * len(block)),
        replace(partition, facts=none, records=0),
        replace(partition, parts=block),
    ):
        with pytest.raises(NotWholeError, match="not noted that"):
            believed(replace(plan, partitions=(forged,)), WHOLE, request)
    with pytest.raises(NotWholeError, match="chosen otherwise than was asked for"):
        believed(plan, WHOLE)


def _narrowed() -> Sequence[Numbers]:
    block = Chain([WHOLE.partitions[0].parts]).blocks[1]
    assert isinstance(block, ObjectParts)
    return [column[3:15:3] for column in block.columns]


def stray(
    rows: Sequence[tuple[ObjectPart, PartFacts]], at: int, **changes: object
) -> list[tuple[ObjectPart, PartFacts]]:
    """Another object in the place of all from one on."""
    part = replace(rows[at][0], **changes)  # type: ignore[arg-type]
    return [*rows[:at], (part, rows[at][1])]


def test_no_object_that_is_not_read_stands_for_others() -> None:
    """By its own facts it is whole: of a branch that was left, shadowed, or one that does not tell where it ends."""
    rows = rows_of(WHOLE)
    last = rows[-1][0].next_offset
    elsewhere = LAYOUT.segment_key(SegmentKey(topic="orders", life=0, partition=0, base=10 * HALF))
    shadowed = LAYOUT.segment_key(SegmentKey(topic="orders", life=1, partition=0, base=10 * HALF + 4))
    for forged, told in (
        (stray(rows, 5, object_key=rows[5][0].object_key.replace("50.data", "51.data"), from_offset=51, until_offset=last, next_offset=None), "does not tell where"),
        (stray(rows, HALF, object_key=elsewhere, next_offset=last), "in the place of others"),
        (stray(rows, HALF, object_key=shadowed, from_offset=10 * HALF + 4, next_offset=last), "in the place of others"),
    ):  # fmt: skip
        for plan in (with_rows(WHOLE, forged), *([with_columns(WHOLE, forged)] if forged[-1][0].next_offset else [])):
            with pytest.raises(NotWholeError, match=told):
                believed(plan, WHOLE)


def test_what_is_missing_is_not_hidden_by_a_plan_without_it() -> None:
    """An object was gone when the restore began, and its partition refused; somebody says that it was not."""
    gone = plan_of([*plain(0, 0, 3), *plain(0, 4, HALF)], plain(1, HALF, OBJECTS))
    assert "offsets 30-39 are missing" in gone.partitions[0].problem
    hidden = replace(gone, partitions=(replace(gone.partitions[0], problem=""),))
    with pytest.raises(NotWholeError, match="offsets 30-39 are missing"):
        believed(hidden, gone)
    skipping = RestoreRequest(skips_damage=True)
    skipped = replace(gone, partitions=(replace(gone.partitions[0], problem="", missing=("offsets 30-39",)),))
    untold = replace(skipped, partitions=(replace(skipped.partitions[0], missing=()),))
    assert believed(skipped, skipped, skipping).partitions[0].missing
    with pytest.raises(NotWholeError, match="offsets 30-39"):
        believed(untold, skipped, skipping)
    assert (
        believed(WHOLE, gone).partitions[0].parts == WHOLE.partitions[0].parts
    )  # it was there then: whoever reads it tells that it is gone


def test_as_many_records_as_the_objects_have() -> None:
    (partition,) = WHOLE.partitions
    with pytest.raises(NotWholeError, match=f"has {partition.records + 1} records, not those of its objects"):
        believed(replace(WHOLE, partitions=(replace(partition, records=partition.records + 1),)), WHOLE)


def test_no_merged_object_ends_where_it_begins() -> None:
    """Of one that is gone by now nothing else tells."""
    gone = plan_of([*plain(0, 0, 5), *plain(0, 6, HALF)], plain(1, HALF, OBJECTS))
    older, newer = Chain([WHOLE.partitions[0].parts]).blocks
    assert isinstance(older, ObjectParts)
    for named, is_believed in ((0, True), (60, True), (50, False), (40, False)):
        base, following, *others = (column.copy() for column in older.columns)
        following[5] = named
        parts = Chain([ObjectParts(older.stem, base, following, *others), newer])
        noted = replace(WHOLE, partitions=(replace(WHOLE.partitions[0], parts=parts),))
        if is_believed:
            assert believed(noted, gone).partitions[0].parts == parts
        else:
            with pytest.raises(NotWholeError, match=r"has offsets 50-59 of .* where they cannot be"):
                believed(noted, gone)


def test_a_plan_of_another_topic_is_refused() -> None:
    check = PlanCheck(LAYOUT, "mine", REQUEST)
    check.check_command(WHOLE, "orders")
    with pytest.raises(UsageError, match="restore mine into copy was begun with topic orders, not with payments"):
        check.check_command(WHOLE, "payments")


def test_only_lives_that_are_read_are_believed() -> None:
    """Objects of the newest one may all be gone; of another one, they are none of this plan's."""
    assert believed(WHOLE, plan_of(plain(0, 0, HALF), [])).partitions[0].parts == WHOLE.partitions[0].parts
    with pytest.raises(NotWholeError, match="is of a life that is not read"):
        believed(WHOLE, plan_of([], plain(1, HALF, OBJECTS)))
