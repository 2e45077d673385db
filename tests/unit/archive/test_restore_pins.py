"""Which copies unfinished restores read, by the notes that restores themselves write."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from archiver.archive.copies.archived_topic import CopyRange
from archiver.archive.copies.roles import Generation
from archiver.archive.format.control import append_fact, encode_fact, latest_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import CopyKey, Layout, SegmentKey
from archiver.archive.restores.restore_pins import RestorePins
from archiver.archive.segments.parts import PART_COLUMNS, FactsOfParts, ObjectParts
from archiver.archive.segments.segment_facts import PartFacts
from archiver.codec.selection import Selection
from archiver.kafka.records.produce import ProducerIdentity
from archiver.restore.plan.claim_stream import partition_claims
from archiver.restore.plan.claims import Contents, PartitionClaim
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import PartitionPlan, TopicPlan
from archiver.store.port import ObjectKind
from tests.support.memory_store import MemoryStore

LAYOUT = Layout("p")
COPY = CopyKey(instance="a", topic="orders", life=1, partition=3, generation=7)
OTHER = replace(COPY, partition=4)
FACTS = PartFacts(is_exact=True, records=2, min_timestamp=5, max_timestamp=7, bytes=9, source_bytes=9, largest_record=5)


def key_in(copy: CopyKey, base: int) -> str:
    return LAYOUT.copied_segment_key(copy, base)


def stretch_of(copy: CopyKey, from_offset: int = 0) -> CopyRange:
    return CopyRange(Generation(instance=copy.instance, number=copy.generation), copy.life, from_offset)


def plan_of(*copies: Sequence[CopyRange], objects: int = 1) -> TopicPlan:
    """Of partitions 3, 4 and so on."""
    return TopicPlan(
        source="orders",
        life=1,
        target="back",
        partitions=tuple(
            PartitionPlan(
                partition=number,
                copies=tuple(stretches),
                records=1,
                stored_bytes=1,
                selection=Selection(),
                selection_digest="d" * 64,
                parts=columns_of(COPY, objects),
                facts=FactsOfParts.of([FACTS] * objects),
                problem="",
                missing=(),
            )
            for number, stretches in enumerate(copies, COPY.partition)
        ),
        final_configs={},
        archived_retention={},
        appends=False,
        repartition=None,
    )


def columns_of(copy: CopyKey, count: int) -> ObjectParts:
    base = np.arange(count, dtype=np.int64)
    columns = dict.fromkeys(PART_COLUMNS, base) | {"named_next": base * 0, "rewrite": base * 0}
    return ObjectParts(key_in(copy, 0)[: -len("00000000000000000000.data")], *columns.values())


def noted(plan: TopicPlan, *, is_finished: bool = False) -> Archive:
    archive = Archive(MemoryStore(), LAYOUT)
    notes = RestoreNotes(archive, "mine", "c")
    notes.note_plans([plan], {"back": "T"}, RestoreRequest().terms)
    if is_finished:
        finish(archive, plan)
    return archive


def verify(archive: Archive, plan: TopicPlan, *, start_offset: int = 0, further: int = 0) -> None:
    """Note of each partition what a restore notes that has read it back. `further`: so many records more than were planned."""
    for one in plan.partitions:
        claims = partition_claims(archive, "mine", "c", "back", one.partition)
        identity = ProducerIdentity(producer_id=7, epoch=0)
        claims.put(
            PartitionClaim(
                target_cluster_id="c",
                target_topic_id="T",
                start_offset=start_offset,
                selection_digest=one.selection_digest,
                identity=identity,
            )
        )
        claims.note_verified("T", Contents(records=len(one.parts) * FACTS.records + further, digest=0, bytes=1))


def finish(archive: Archive, plan: TopicPlan) -> None:
    verify(archive, plan)
    RestoreNotes(archive, "mine", "c").note_finished({"back": "T"})


HISTORY = CopyRange(None, 1, 0)


@pytest.mark.parametrize("objects", [1, 6_000])
def test_the_copies_of_a_plan_are_found(objects: int) -> None:
    """The holder's, and what is read behind its end; those under `topics/` are no copy. Large plans are noted in pieces."""
    tail = replace(COPY, instance="b", generation=4)
    first = [stretch_of(COPY)._replace(until_offset=7), stretch_of(tail, 7)]
    found = RestorePins(noted(plan_of(first, [stretch_of(OTHER)], [HISTORY], [], objects=objects))).read(0)
    assert (found.restores, found.unreadable) == ({COPY: ("mine",), tail: ("mine",), OTHER: ("mine",)}, ())


def test_a_finished_restore_pins_nothing_and_one_of_history_neither() -> None:
    plan = plan_of([stretch_of(COPY)])
    assert RestorePins(noted(plan, is_finished=True)).read(0).restores == {}
    assert RestorePins(noted(plan_of([HISTORY]))).read(0).restores == {}


def test_a_plan_is_read_once_and_only_while_it_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = noted(plan_of([stretch_of(COPY)]))
    pins, asked, get = RestorePins(archive), list[str](), archive.store.get

    def count(key: str, *bounds: Any) -> object:  # noqa: ANN401 - as `get` has them
        asked.append(key)
        return get(key, *bounds)

    monkeypatch.setattr(archive.store, "get", count)
    assert pins.read(2**50).restores == {}
    assert asked == []
    assert [len(pins.read(0).restores) for _ in range(3)] == [1, 1, 1]
    assert len(asked) == 1


def test_a_plan_without_its_pieces_still_tells_the_copies() -> None:
    archive = noted(plan_of([stretch_of(COPY)], objects=6_000))
    archive.store.delete([item.key for item in archive.store.list("p/control/restores/mine/back/plan/3-")])
    assert RestorePins(archive).read(0).restores == {COPY: ("mine",)}


@pytest.mark.parametrize(
    "wrong", [["a", 7, 1], [None, None, 0, 0, "x"], ["no/name", 7, 1, 0, None], [7, 7, 1, 0, None], {}]
)
def test_a_plan_that_does_not_tell_its_copies_is_told(wrong: object) -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    plan = {"format": 1, "source": "orders", "partitions": [{"partition": 3, "copies": [wrong]}]}
    archive.store.put_if_absent(
        LAYOUT.fact_key("restores/mine/back/plan", 0), encode_fact(plan), {}, kind=ObjectKind.FACT
    )
    found = RestorePins(archive).read(0)
    assert found.restores == {}
    assert found.unreadable[0].startswith(
        "control/restores/mine/back/plan: does not tell which objects a restore reads"
    )


def plan_of_objects(objects: int = 3, source: str = "orders") -> TopicPlan:
    """Of one partition under `topics/`, with objects at 0, 1 and so on."""
    base = np.arange(objects, dtype=np.int64)
    columns = dict.fromkeys(PART_COLUMNS, base) | {"named_next": base * 0, "rewrite": base * 0}
    parts = ObjectParts(segment_key(0)[: -len("00000000000000000000.data")], *columns.values())
    whole = plan_of([], objects=objects)
    (partition,) = whole.partitions
    return replace(whole, source=source, partitions=(replace(partition, parts=parts),))


def segment_key(base: int) -> str:
    return LAYOUT.segment_key(SegmentKey(topic="orders", life=1, partition=3, base=base))


@pytest.mark.parametrize("objects", [3, 6_000])
def test_the_objects_of_a_plan_are_pinned_and_no_others(objects: int) -> None:
    """Large plans are noted in pieces. Objects of copies lie elsewhere: no sweep of a topic takes them."""
    found = RestorePins(noted(plan_of_objects(objects))).read_objects(0)
    assert found.objects == {"orders": {3: frozenset(map(segment_key, range(objects)))}}
    assert (found.of_unread, found.unreadable) == ({}, ())
    assert RestorePins(noted(plan_of([stretch_of(COPY)]))).read_objects(0).objects == {}


def test_a_plan_of_objects_is_read_once_until_its_restore_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep asks before each batch."""
    archive = noted(plan_of_objects(6_000))
    pins, asked, get = RestorePins(archive), list[str](), archive.store.get

    def count(key: str, *bounds: Any) -> object:  # noqa: ANN401 - as `get` has them
        asked.append(key)
        return get(key, *bounds)

    monkeypatch.setattr(archive.store, "get", count)
    assert [len(pins.read_objects(0).objects["orders"][3]) for _ in range(3)] == [6_000] * 3
    assert len(asked) == len(set(asked))
    finish(archive, plan_of_objects(6_000))
    assert pins.read_objects(0).objects == {}
    many = len(asked)
    assert pins.read_objects(0).restores == frozenset()
    assert len(asked) == many  # nor is a finished one


def test_two_restores_of_a_partition_pin_what_either_reads() -> None:
    archive = noted(plan_of_objects(3))
    RestoreNotes(archive, "other", "c").note_plans([plan_of_objects(5)], {"back": "T"}, RestoreRequest().terms)
    assert RestorePins(archive).read_objects(0).objects == {"orders": {3: frozenset(map(segment_key, range(5)))}}


def test_a_finished_or_old_plan_pins_no_object() -> None:
    assert RestorePins(noted(plan_of_objects(), is_finished=True)).read_objects(0).objects == {}
    assert RestorePins(noted(plan_of_objects())).read_objects(2**50).objects == {}


def test_a_plan_whose_pieces_are_gone_pins_its_whole_topic() -> None:
    archive = noted(plan_of_objects(6_000))
    archive.store.delete([item.key for item in archive.store.list("p/control/restores/mine/back/plan/3-")])
    found = RestorePins(archive).read_objects(0)
    assert (found.objects, list(found.of_unread), found.unreadable) == ({}, ["orders"], ())
    assert found.of_unread["orders"].startswith("mine (control/restores/mine/back/plan does not tell what of it: ")


@pytest.mark.parametrize("source", [{}, {"source": 7}, {"source": ""}, {"source": "orders"}])
def test_a_plan_that_cannot_be_read_is_told(source: dict[str, object]) -> None:
    """With its topic, where it tells that; else nobody knows what the restore reads."""
    archive = Archive(MemoryStore(), LAYOUT)
    plan = {"format": 1, **source, "partitions": [{"partition": 3, "parts": [7]}]}
    archive.store.put_if_absent(
        LAYOUT.fact_key("restores/mine/back/plan", 0), encode_fact(plan), {}, kind=ObjectKind.FACT
    )
    found = RestorePins(archive).read_objects(0)
    assert found.objects == {}
    assert (list(found.of_unread), len(found.unreadable)) == (
        (["orders"], 0) if source.get("source") == "orders" else ([], 1)
    )


@pytest.mark.parametrize("end", [{}, {"target_topic_id": "T"}, {"target_cluster_id": "c"}, {"target_topic_id": "U"}])
def test_an_end_that_does_not_name_the_target_of_the_plan_lifts_no_pin(end: dict[str, str]) -> None:
    """Whoever may put a note could else let a sweep delete what an unfinished restore reads."""
    for plan in (plan_of_objects(), plan_of([stretch_of(COPY)])):
        archive = noted(plan)
        verify(archive, plan)
        append_fact(archive, "restores/mine/back/finished", lambda _: {"format": 1, **end})
        pins = RestorePins(archive)
        assert pins.read_objects(0).restores == {"mine"}
        assert pins.read(0).restores == ({COPY: ("mine",)} if plan.partitions[0].copies else {})


def test_an_end_before_all_is_verified_lifts_no_pin_and_neither_does_one_whose_target_has_lost_records() -> None:
    plan = plan_of_objects()
    archive = noted(plan)
    RestoreNotes(archive, "mine", "c").note_finished({"back": "T"})
    pins = RestorePins(archive)
    assert pins.read_objects(0).objects.keys() == {"orders"}
    verify(archive, plan)
    assert pins.read_objects(0).objects == {}
    claims = partition_claims(archive, "mine", "c", "back", COPY.partition)
    claim = claims.latest("T")
    assert claim is not None
    claims.forget_verified(claim)
    assert pins.read_objects(0).objects.keys() == {"orders"}


def test_an_end_of_brokers_without_topic_ids_lifts_no_pin() -> None:
    """Another topic may have the name by now. The pin goes with its time."""
    plan, archive = plan_of_objects(), Archive(MemoryStore(), LAYOUT)
    notes = RestoreNotes(archive, "mine", "c")
    notes.note_plans([plan], {"back": ""}, RestoreRequest().terms)
    notes.note_finished({"back": ""})
    assert RestorePins(archive).read_objects(0).restores == {"mine"}


PLANS = [plan_of_objects(), plan_of_objects(6_000), plan_of([stretch_of(COPY)])]


def is_pinned(archive: Archive) -> bool:
    pins = RestorePins(archive)
    objects, copies = pins.read_objects(0), pins.read(0)
    assert (objects.restores, objects.unreadable, copies.unreadable) in [({"mine"}, (), ()), (frozenset(), (), ())]
    return bool(objects.restores)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("start_offset", "further", "pinned"), [(0, 0, False), (0, -1, True), (0, 1, True), (1, 0, True)]
)
def test_a_claim_that_does_not_fit_the_plan_lifts_no_pin(
    plan: TopicPlan, start_offset: int, further: int, pinned: bool
) -> None:
    """Whoever may put a claim could else have a sweep delete what the restore still reads."""
    archive = noted(plan)
    verify(archive, plan, start_offset=start_offset, further=further)
    RestoreNotes(archive, "mine", "c").note_finished({"back": "T"})
    assert is_pinned(archive) == pinned


@pytest.mark.parametrize("plan", [plan_of_objects(), plan_of([stretch_of(COPY)])])
def test_a_later_plan_that_names_less_lifts_no_pin(plan: TopicPlan) -> None:
    archive = noted(plan)
    fact = latest_fact(archive, "restores/mine/back/plan")
    assert fact is not None
    less = [{**fact["partitions"][0], "parts": [], "facts": []}]
    append_fact(archive, "restores/mine/back/plan", lambda _: {**fact, "partitions": less})
    pins = RestorePins(archive)
    assert pins.read_objects(0) == RestorePins(noted(plan)).read_objects(0)
    assert pins.read(0) == RestorePins(noted(plan)).read(0)


@pytest.mark.parametrize("change", ["partitions", "objects", "target"])
def test_a_later_plan_with_an_end_and_claims_lifts_no_pin_of_an_earlier_one(change: str) -> None:
    """A forged plan names fewer partitions or objects, or another target, and claims and end fit that one."""
    plan = plan_of([stretch_of(COPY)], [stretch_of(OTHER)])
    archive, topic_id = noted(plan), "U" if change == "target" else "T"
    fact = latest_fact(archive, "restores/mine/back/plan")
    assert fact is not None
    first, second = fact["partitions"]
    partitions = {
        "partitions": [first],
        "objects": [{**first, "parts": [], "facts": []}, {**second, "parts": [], "facts": []}],
        "target": [first, second],
    }[change]
    forged = {**fact, "partitions": partitions, "target_topic_id": topic_id}
    append_fact(archive, "restores/mine/back/plan", lambda _: forged)
    records = 0 if change == "objects" else FACTS.records
    for one in partitions:
        ids = {"format": 1, "target_cluster_id": "c", "target_topic_id": topic_id}
        claim = {**ids, "start_offset": 0, "verified": {"records": records}}
        append_fact(archive, f"restores/mine/back/{one['partition']}", lambda _, claim=claim: claim)  # type: ignore[misc]
    RestoreNotes(archive, "mine", "c").note_finished({"back": topic_id})
    pins = RestorePins(archive)
    assert pins.read_objects(0).restores == {"mine"}
    assert pins.read(0).restores == {COPY: ("mine",), OTHER: ("mine",)}


def test_a_partition_that_was_refused_counts_by_the_plan_that_mends_it() -> None:
    plan = plan_of([stretch_of(COPY)], [stretch_of(OTHER)])
    first, second = plan.partitions
    archive = noted(replace(plan, partitions=(first, replace(second, parts=(), facts=(), problem="lost"))))
    assert is_pinned(archive)
    RestoreNotes(archive, "mine", "c").note_plans([plan], {"back": "T"}, RestoreRequest().terms)
    finish(archive, plan)
    assert not is_pinned(archive)


@pytest.mark.parametrize(("records", "pinned"), [(2, False), (1, True)])
def test_a_repartitioned_target_is_finished_when_all_sources_were_verified(records: int, pinned: bool) -> None:
    plan = replace(plan_of([stretch_of(COPY)], [stretch_of(OTHER)]), repartition=3)
    archive = noted(plan)
    ids = {"format": 1, "target_cluster_id": "c", "target_topic_id": "T"}
    sources = {"3": {"records": 2}, "4": {"records": records}}
    claim = {**ids, "start_offsets": [0] * 3, "verified": {"sources": sources, "targets": [{}] * 3}}
    append_fact(archive, "restores/mine/back/repartition", lambda _: claim)
    RestoreNotes(archive, "mine", "c").note_finished({"back": "T"})
    assert is_pinned(archive) == pinned
