"""The plan of a restore as control facts: whole or not at all, none of them too large, and as earlier versions wrote it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from archiver.archive.copies.archived_topic import ArchivedTopic, CopyRange
from archiver.archive.copies.roles import Generation
from archiver.archive.format.control import append_fact, encode_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.index.inventory import arrange
from archiver.archive.reading.lost_control import lost_control_objects
from archiver.archive.segments.partition_segments import Segment
from archiver.archive.segments.parts import Chosen, FactsOfParts, ObjectPart, ObjectParts
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.selection import Selection
from archiver.errors import CorruptSegmentError, NotWholeError, StoreTemporaryError
from archiver.process.values.columns import Chain, Texts
from archiver.restore.plan import noted_plan
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan, plan_restore
from archiver.store.port import Body, ObjectKind
from archiver.upkeep.control_check import check_control
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

LAYOUT = Layout("archive")
TERMS = RestoreRequest().terms
OBJECTS = 95


def plan_of(objects: int = OBJECTS, partitions: int = 2, problem: str = "") -> TopicPlan:
    """Each partition goes on in a second life: its objects are of two directories."""

    def segment(life: int, number: int, base: int) -> Segment:
        key = SegmentKey(topic="orders", life=life, partition=number, base=base)
        facts = replace(facts_of(base, base + 10), records=1 + base % 7)
        return Segment(key=key, object_key=LAYOUT.segment_key(key), size=base, etag="e", facts=facts)

    half = objects // 2
    found = {
        number: arrange([segment(0, number, 10 * at) for at in range(half)]).then(
            arrange([segment(1, number, 10 * at) for at in range(half, objects)]).from_offset(10 * half + 3)
        )
        for number in range(partitions)
    }
    topic = ArchivedTopic(
        topic="orders", life=1, fact=None, partitions=found, damaged={1: [problem] if problem else []}, other_lives=()
    )
    return plan_restore([topic], {"orders": "copy"})[0]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted_plan, "_MOST_WHOLE", 50)
    monkeypatch.setattr(noted_plan, "_PIECE", 20)


def note(store: MemoryStore, plan: TopicPlan) -> TopicPlan:
    return RestoreNotes(Archive(store, LAYOUT), "mine", "cluster").note_plans([plan], {"copy": "A"}, TERMS)["copy"]


def noted(store: MemoryStore) -> TopicPlan | None:
    return RestoreNotes(Archive(store, LAYOUT), "mine", "cluster").plans({"copy": "A"}, TERMS).get("copy")


@pytest.mark.parametrize("objects", [0, 10, OBJECTS])
def test_what_is_noted_is_what_is_read(objects: int) -> None:
    store, plan = MemoryStore(), plan_of(objects)
    assert note(store, plan) == plan
    assert noted(store) == plan
    assert note(store, plan) == plan
    # 0 to 46 and 47 to 94 in pieces of 20, of each partition, and the fact that names them.
    assert len(store.objects) == (1 if objects < OBJECTS else 1 + 2 * 6)


def _with_copies(*stretches: CopyRange) -> TopicPlan:
    plan = plan_of()
    return replace(plan, partitions=(replace(plan.partitions[0], copies=stretches), *plan.partitions[1:]))


def test_whose_objects_are_read_is_noted() -> None:
    store = MemoryStore()
    blue = Generation(instance="blue", number=4)
    plan = _with_copies(CopyRange(blue, 0, 0, 5), CopyRange(None, 1, 7))
    note(store, plan)
    assert noted(store) == plan
    assert (plan.is_copied, plan_of().is_copied) == (True, False)
    assert plan.pins[0].stretches == plan.partitions[0].copies
    assert plan.pins[1].stretches == (CopyRange(None, 1, 0),)


@pytest.mark.parametrize(
    "row",
    [["../x", 1, 0, 0, None], ["a", None, 0, 0, None], ["a", 1, 0, 0], ["a", 1, -1, 0, None], [5, 1, 0, 0, None], 7],
)
def test_copies_that_cannot_be_are_no_plan(row: object) -> None:
    plan = _with_copies(CopyRange(Generation(instance="a", number=1), 0, 0))
    archive = Archive(MemoryStore(), LAYOUT)
    fact = dict(noted_plan.plan_to_fact(archive, "restores/mine/copy/plan", plan))
    fact["partitions"] = [{**fact["partitions"][0], "copies": [row]}, *fact["partitions"][1:]]
    with pytest.raises(NotWholeError, match="not a plan of a restore"):
        noted_plan.plan_from_fact(archive, "restores/mine/copy/plan", fact)


def test_no_fact_has_more_than_a_piece() -> None:
    store = MemoryStore()
    note(store, plan_of(2_000))
    facts = [json.loads(found.body) for found in store.objects.values()]
    assert max(fact.get("objects", 0) for fact in facts) == 20
    assert max(len(found.body) for found in store.objects.values()) < 20_000  # of the fact that names 200 pieces


class DyingStore(MemoryStore):
    """The process is killed before, or right behind, the n-th put."""

    def __init__(self, at: int, *, is_done: bool) -> None:
        super().__init__()
        self.left, self.is_done = at, is_done

    def put_if_absent(self, key: str, body: Body, metadata: Mapping[str, str], *, kind: ObjectKind) -> str | None:
        self.left -= 1
        if not self.left and not self.is_done:
            raise StoreTemporaryError("killed")
        etag = super().put_if_absent(key, body, metadata, kind=kind)
        if not self.left:
            raise StoreTemporaryError("killed")
        return etag


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", range(1, 14))
@pytest.mark.parametrize("later", [OBJECTS, 120])
def test_a_plan_counts_when_it_is_whole(at: int, is_done: bool, later: int) -> None:
    """Whoever comes then plans what the archive has by then; of what was left half done nothing holds, or is in the way."""
    store, plan = DyingStore(at, is_done=is_done), plan_of()
    with pytest.raises(StoreTemporaryError):
        note(store, plan)
    is_whole = at == 13 and is_done
    assert noted(store) == (plan if is_whole else None)
    assert note(store, plan_of(later)) == (plan if is_whole else plan_of(later))
    assert noted(store) == (plan if is_whole else plan_of(later))


def test_the_same_plan_puts_the_same_pieces() -> None:
    store = DyingStore(6, is_done=True)
    with pytest.raises(StoreTemporaryError):
        note(store, plan_of())
    note(store, plan_of())
    assert len(store.objects) == 13


@pytest.mark.parametrize("are_columns", [False, True])
def test_chosen_records_are_noted_in_pieces_too(are_columns: bool) -> None:
    plan = plan_of()
    parts: Sequence[ObjectPart] = [
        ObjectPart(f"k{at}", at, None, at + 1, LAYOUT.chosen_key("mine", "copy", 0, f"{at:024x}"))
        for at in range(OBJECTS)
    ]
    if are_columns:
        stem, digests = LAYOUT.chosen_stem("mine", "copy", 0), Texts.of([f"{at:024x}" for at in range(OBJECTS)])
        one, other = cast("Chain[ObjectPart]", plan.partitions[0].parts).blocks
        assert isinstance(one, ObjectParts)
        assert isinstance(other, ObjectParts)
        cut = len(one)
        first, second = digests.only(slice(0, cut)), digests.only(slice(cut, OBJECTS))
        parts = Chain([one.with_chosen(Chosen(stem, first)), other.with_chosen(Chosen(stem, second))])
    chosen = PartitionPlan(
        partition=0, parts=parts, stored_bytes=1, records=OBJECTS, selection=Selection(), selection_digest="d",
        facts=FactsOfParts.of(list(plan.partitions[0].facts)),
    )  # fmt: skip
    plan = replace(plan, partitions=(chosen, plan.partitions[1]))
    store = MemoryStore()
    note(store, plan)
    found = noted(store)
    assert found == plan
    assert found is not None
    assert found.is_chosen
    problems = lost_control_objects(Archive(store, LAYOUT), {})
    told = [one.partition(":")[0] for one in problems]
    assert told == [LAYOUT.chosen_key("mine", "copy", 0, f"{at:024x}") for at in range(OBJECTS)]
    assert [part.chosen_key for part in found.partitions[0].parts] == told
    blocks = cast("Chain[ObjectPart]", found.partitions[0].parts).blocks
    assert {isinstance(block, ObjectParts) for block in blocks} == {are_columns}


def test_a_missing_or_damaged_piece_is_reported() -> None:
    store = MemoryStore()
    note(store, plan_of())
    assert check_control(Archive(store, LAYOUT)) == []
    key = next(key for key in store.objects if "/plan/1-" in key)
    found = store.objects[key]
    store.objects[key] = replace(found, body=found.body.replace(b"orders", b"others"))
    with pytest.raises(CorruptSegmentError, match=r"/plan/1-.*does not say what was written"):
        noted(store)
    assert len(check_control(Archive(store, LAYOUT))) == 1
    del store.objects[key]
    with pytest.raises(NotWholeError, match=r"/plan/1-.*is gone"):
        noted(store)
    problems = lost_control_objects(Archive(store, LAYOUT), {})
    assert problems == [f"{key}: is gone; bring it back from the bucket's versions"]


def test_a_lost_piece_of_an_earlier_plan_is_reported() -> None:
    """A restore that continues reads all of its plans."""
    store = MemoryStore()
    archive = Archive(store, LAYOUT)
    note(store, plan_of())
    append_fact(archive, "restores/mine/copy/plan", lambda latest: {**(latest or {}), "partitions": []})
    assert lost_control_objects(archive, {}) == []
    key = next(key for key in store.objects if "/plan/1-" in key)
    del store.objects[key]
    assert lost_control_objects(archive, {}) == [f"{key}: is gone; bring it back from the bucket's versions"]


def test_a_replaced_piece_is_reported() -> None:
    """One that is whole, with a digest of its own: its name tells that it is not the one."""
    store = MemoryStore()
    note(store, plan_of())
    first, second, *_ = (key for key in store.objects if "/plan/1-" in key)
    store.objects[first] = store.objects[second]
    with pytest.raises(NotWholeError, match="is not what it is named after"):
        noted(store)


def test_a_piece_is_no_larger_than_pieces_are() -> None:
    """One number may stand for all objects of a piece, however many it says they are."""
    store = MemoryStore()
    note(store, plan_of())
    fact = json.loads(next(found.body for key, found in store.objects.items() if key.endswith("/plan/000000.json")))
    del fact["sha256"]
    piece = {"format": 1, "objects": 10**12, "stem": "x", "base": "0", "named_next": "0", "from_offset": "0"}
    piece |= dict.fromkeys(("until_offset", "next_offset", *PartFacts._fields), "1")
    content = encode_fact(piece)
    name = f"0-{hashlib.sha256(content).hexdigest()[:24]}"
    store.put_if_absent(LAYOUT.fact_key(f"restores/mine/copy/plan/{name}", 0), content, {}, kind=ObjectKind.FACT)
    fact["partitions"][0]["pieces"] = [name]
    append_fact(Archive(store, LAYOUT), "restores/mine/copy/plan", lambda _: fact)
    with pytest.raises(NotWholeError, match="1000000000000 objects in a piece"):
        noted(store)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"target": "live"}, "of target 'live'"),
        ({"partitions": [{"partition": 0, "pieces": ["../../live/plan/0-" + "0" * 24]}]}, "is no piece of partition 0"),
        ({"partitions": [{"partition": 0, "pieces": ["1-" + "0" * 24]}]}, "is no piece of partition 0"),
        ({"partitions": [{"partition": 0, "parts": [["k", 0, None, 1, None, [True] * 7]], "facts": []}]}, "TypeError"),
    ],
)  # fmt: skip
def test_a_plan_names_its_own_target_and_pieces(change: dict[str, object], told: str) -> None:
    store = MemoryStore()
    note(store, plan_of(10))
    append_fact(Archive(store, LAYOUT), "restores/mine/copy/plan", lambda latest: {**(latest or {}), **change})
    with pytest.raises(NotWholeError, match=rf"control/restores/mine/copy/plan: not a plan of a restore .*{told}"):
        noted(store)
