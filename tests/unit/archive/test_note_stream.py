"""docs/format.md §8: notes of one kind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from archiver.archive.format.control import append_fact, latest_fact
from archiver.archive.format.fact_model import BoundedText, Number
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.format.note_stream import Noted, NoteKind
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.notes.applied_limits import AppliedLimits, LimitSource, change_applied
from archiver.archive.notes.holds import Hold, add_hold, release_hold
from archiver.archive.notes.policies import NotedPolicy, note_policy
from archiver.archive.notes.swept import Noting, OffsetRanges, SweptPlace, add_swept, note_going, take_back_swept
from archiver.archive.notes.topic_changes import accept_gone, record_branch, record_ends, record_topic
from archiver.archive.notes.topics import Branch
from archiver.errors import CorruptSegmentError
from archiver.groups.positions.snapshots import snapshot_fact, stream_of
from archiver.imports.filling.import_note import note_positions
from archiver.upkeep.retention.planning.kept_plans import keep_plan
from tests.support.memory_store import MemoryStore
from tests.support.racing_store import LossyStore, RacingStore

LAYOUT = Layout("p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    name: BoundedText
    count: Number


KIND = NoteKind(Counter, "a counter", "count again", lambda one: f"counters/{one.name}")


def plus_one(before: Counter | None) -> Counter:
    return Counter(name="a", count=1) if before is None else replace(before, count=before.count + 1)


def next_of(name: str, before: Counter | None) -> Counter:
    return replace(plus_one(before), name=name)


def test_each_update_sees_the_note_before_it() -> None:
    stream = KIND.at(Archive(MemoryStore(), LAYOUT), "counters/a")
    assert stream.read() is None
    assert stream.update(plus_one) == Counter(name="a", count=1)
    assert stream.update(plus_one) == stream.read() == Counter(name="a", count=2)
    assert [(one.number, one.value.count) for one in stream.history()] == [(0, 1), (1, 2)]
    assert isinstance(next(iter(stream.history())), Noted)
    assert stream.update(lambda before: before) == stream.update(lambda _: None) == Counter(name="a", count=2)
    assert stream.keys_of_old(1) == [LAYOUT.fact_key("counters/a", 0)]


def test_update_is_decided_again_on_the_note_of_a_faster_writer() -> None:
    store = RacingStore(lambda: KIND.at(Archive(store, LAYOUT), "counters/a").update(plus_one))
    assert KIND.at(Archive(store, LAYOUT), "counters/a").update(plus_one) == Counter(name="a", count=2)


def test_update_keeps_members_that_the_model_does_not_know() -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    later: dict[str, Any] = {"format": 1, "name": "a", "count": 7, "later": {"x": [1]}}
    append_fact(archive, "counters/a", lambda _: later)
    KIND.at(archive, "counters/a").update(plus_one)
    assert latest_fact(archive, "counters/a") == {**later, "count": 8}


def test_read_all_returns_the_newest_note_of_each_stream() -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    for name in ("a", "b", "a"):
        KIND.at(archive, f"counters/{name}").update(partial(next_of, name))
    found = KIND.read_all(archive, "counters")
    assert {stream: one.count for stream, one in found.items()} == {"counters/a": 2, "counters/b": 1}


@pytest.mark.parametrize(
    ("note", "why"),
    [
        ({"format": 1, "name": "b", "count": 1}, "it names something else than its key"),
        ({"format": 1, "name": "a", "count": -1}, "-1 where a number of at least 0 was to come"),
    ],
    ids=["of another stream", "wrong"],
)
def test_a_damaged_note_is_named_and_nothing_is_put_behind_it(note: dict[str, Any], why: str) -> None:
    archive = Archive(MemoryStore(), LAYOUT)
    append_fact(archive, "counters/a", lambda _: note)
    for read in (KIND.at(archive, "counters/a").read, lambda: KIND.at(archive, "counters/a").update(plus_one)):
        with pytest.raises(CorruptSegmentError) as raised:
            read()
        assert str(raised.value) == f"p/control/counters/a/: invalid note of a counter: {why}; count again"
    with pytest.raises(CorruptSegmentError, match=r"p/control/counters/a/000000\.json:"):
        list(KIND.at(archive, "counters/a").history())


PLACE = SweptPlace("orders", 0, 0)
HOLD = Hold(name="h", topics="*", reason="", by="me", added_ms=1)
LIMITS = AppliedLimits(topic="orders", life=0, whose=LimitSource.TOPIC, ms=1, bytes=None, floor_ms=0)
POLICY = NotedPolicy(topic="orders", topic_id="A", effective={"retention.ms": "1"}, since_ms=1)
RANGES = OffsetRanges(((0, 5),))
CUT = Branch(offset=3, leader_epoch=1)


def nothing(_: Archive) -> None:
    pass


def note_topic(archive: Archive) -> None:
    record_topic(archive, topic="orders", topic_id="A", cluster_id="c", partitions=1, configs={})


def note_positions_of_a(archive: Archive) -> None:
    note_positions(archive, "c", {"a": {"orders": {0: 5}}})


def snapshot_ahead(archive: Archive) -> None:
    ahead = snapshot_fact("c", machine_now_ms() + 60_000, 0, {}, [])
    append_fact(archive, stream_of(machine_now_ms()), lambda _: ahead)


@pytest.mark.parametrize(
    ("prepare", "change"),
    [
        pytest.param(nothing, lambda archive: add_hold(archive, HOLD), id="add a hold"),
        pytest.param(
            lambda archive: add_hold(archive, HOLD),
            lambda archive: release_hold(archive, "h", by="me", now_ms=9),
            id="release a hold",
        ),
        pytest.param(nothing, lambda archive: note_policy(archive, POLICY), id="first policy"),
        pytest.param(
            lambda archive: note_policy(archive, replace(POLICY, effective={})),
            lambda archive: note_policy(archive, POLICY),
            id="next policy",
        ),
        pytest.param(nothing, lambda archive: change_applied(archive, LIMITS.stream, lambda _: LIMITS), id="limits"),
        pytest.param(nothing, lambda archive: add_swept(archive, PLACE, RANGES), id="swept"),
        pytest.param(nothing, lambda archive: note_going(archive, PLACE, RANGES, Noting("run", 5, 1)), id="going"),
        pytest.param(
            lambda archive: add_swept(archive, PLACE, RANGES),
            lambda archive: take_back_swept(archive, PLACE, OffsetRanges(((0, 2),))),
            id="taken back",
        ),
        pytest.param(nothing, lambda archive: keep_plan(archive, 1, ["a"]), id="plan of a sweep"),
        pytest.param(nothing, note_positions_of_a, id="positions of groups"),
        pytest.param(snapshot_ahead, note_positions_of_a, id="positions of groups, behind another clock"),
        pytest.param(nothing, note_topic, id="topic"),
        pytest.param(note_topic, lambda archive: accept_gone(archive, "orders"), id="accepted gone"),
        pytest.param(note_topic, lambda archive: record_ends(archive, "orders", {0: 5}, {0: 1}, 7), id="ends"),
        pytest.param(
            note_topic,
            lambda archive: record_branch(archive, topic="orders", partition=0, parent=0, branch=CUT),
            id="branch",
        ),
    ],
)
def test_each_change_recognises_its_own_note_after_a_lost_answer(
    prepare: Callable[[Archive], object], change: Callable[[Archive], object]
) -> None:
    """The store puts each note and answers that something was there already."""
    before = MemoryStore()
    prepare(Archive(before, LAYOUT))
    store = LossyStore(raises=False)
    store.objects |= before.objects
    change(Archive(store, LAYOUT))
    assert len(store.objects) == len(before.objects) + 1
