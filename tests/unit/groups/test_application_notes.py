"""Notes of groups: what is put is read, for names of any kind; and what others have put is refused."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from archiver.archive.format.control import append_fact, read_history
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.reading.lost_control import lost_control_objects
from archiver.errors import CorruptSegmentError, TemporaryError
from archiver.groups.target.application_notes import ApplicationNotes, GroupNote, NotedMove
from archiver.kafka.groups.group_positions import GroupPosition
from archiver.restore.plan.restore_notes import RestoreNotes
from tests.support.memory_store import MemoryStore

BEFORE = GroupPosition(offset=2**63 - 1, leader_epoch=2**31 - 1, metadata="x\0y")
WANTED = GroupPosition(offset=0, metadata="m" * 32_767)
IDS = {"orders": "id", "payments": ""}


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout("prefix"))


def notes_of(archive: Archive, cluster: str = "cluster") -> ApplicationNotes:
    return ApplicationNotes(archive, "r1", cluster)


def move(before: GroupPosition | None = BEFORE, wanted: GroupPosition = WANTED) -> NotedMove:
    return NotedMove.of(before, wanted)


@pytest.mark.parametrize("group", ["billing", "", "a/../b@c+ü\n\0 ", "x" * 32_767, "000000.json"])
def test_what_is_noted_is_read(archive: Archive, group: str) -> None:
    notes = notes_of(archive)
    put = notes.put(None, group, "source", {("orders", 3): move(), ("payments", 0): move(None)}, IDS)
    assert notes_of(archive).read([group]) == notes_of(archive).read() == ({group: put}, {})
    found = put.move(("orders", 3), "id")
    assert found is not None
    assert (found.stood, found.goal) == (BEFORE, WANTED)
    assert put.move(("orders", 3), "another") is put.move(("orders", 4), "id") is put.move(("x", 3), "id") is None
    digest = hashlib.sha256(group.encode()).hexdigest()
    (key,) = [item.key for item in archive.store.list("")]
    assert key == f"prefix/control/restores/r1/@groups/{digest}/000000.json"


def test_later_notes_have_the_earlier_ones_but_those_of_topics_that_went(archive: Archive) -> None:
    notes = notes_of(archive)
    first = notes.put(None, "g", "s", {("orders", 0): move(), ("payments", 0): move()}, IDS)
    second = notes.put(first, "g", "s", {("orders", 1): move(None)}, IDS)
    assert second.move(("orders", 0), "id") == move()
    again = notes.put(second, "g", "s", {("orders", 2): move(None)}, {"orders": "id of a new one"})
    assert again.topics["orders"].partitions.keys() == {2}
    assert again.topics["payments"] == first.topics["payments"]
    assert notes_of(archive).read(["g"]) == ({"g": again}, {})
    assert notes.put(again, "g", "s", {("orders", 2): move(None)}, {"orders": "id of a new one"}) == again
    assert len(list(read_history(archive, notes.stream("g")))) == 3


def test_notes_of_another_cluster_do_not_hide_those_of_this_one(archive: Archive) -> None:
    ours = notes_of(archive).put(None, "g", "s", {("orders", 0): move()}, IDS)
    notes_of(archive, "theirs").put(None, "g", "s", {("orders", 0): move(None)}, IDS)
    assert notes_of(archive).read(["g"]) == ({"g": ours}, {})
    assert notes_of(archive, "nobody's").read() == ({}, {})
    after = notes_of(archive).put(ours, "g", "s", {("orders", 1): move()}, IDS)
    assert notes_of(archive).read(["g"]) == ({"g": after}, {})


def test_of_two_runs_at_once_the_second_one_is_told(archive: Archive) -> None:
    notes_of(archive).put(None, "g", "s", {("orders", 0): move()}, IDS)
    with pytest.raises(TemporaryError, match="group g: another run of restore r1"):
        notes_of(archive).put(None, "g", "s", {("orders", 0): move(None)}, IDS)
    # Two that want the same do the same.
    assert notes_of(archive).put(None, "g", "s", {("orders", 0): move()}, IDS).move(("orders", 0), "id") == move()


GOOD: Mapping[str, Any] = {
    "format": 1,
    "target_cluster_id": "cluster",
    "group": "g",
    "source_group": "s",
    "topics": {
        "orders": {"topic_id": "id", "partitions": {"0": {"before": None, "wanted": {"offset": 1, "metadata": ""}}}}
    },
}
POSITION = {"offset": 1, "leader_epoch": 0, "metadata": ""}


def with_member(path: str, value: object) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(GOOD))
    *steps, last = path.split(".")
    at = found
    for step in steps:
        at = at[step]
    at[last] = value
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("group", "another group"),
        ("topics.a/b", GOOD["topics"]["orders"]),
        ("topics.orders.topic_id", 3),
        ("topics.orders.partitions.-1", GOOD["topics"]["orders"]["partitions"]["0"]),
        ("topics.orders.partitions.2147483648", GOOD["topics"]["orders"]["partitions"]["0"]),
        ("topics.orders.partitions.0.wanted.offset", -1),
        ("topics.orders.partitions.0.wanted.offset", True),
        ("topics.orders.partitions.0.wanted.metadata", "m" * 32_768),
        ("topics.orders.partitions.0.before", {**POSITION, "leader_epoch": 2**31}),
        ("topics.orders.partitions.0.applied", 1),
        ("topics.orders.partitions.0.as_of_ms", -1),
    ],
)
def test_what_cannot_be_is_refused(archive: Archive, path: str, value: object) -> None:
    notes = notes_of(archive)
    append_fact(archive, notes.stream("g"), lambda _: with_member(path, value))
    (found,) = notes.read(["g"])[1].values()
    assert isinstance(found, CorruptSegmentError)
    assert re.match(r"control/restores/r1/@groups/[0-9a-f]{64}: is ", str(found))


def test_a_fact_that_can_be_is_taken(archive: Archive) -> None:
    """The cases above are refused for what they change."""
    append_fact(archive, notes_of(archive).stream("g"), lambda _: with_member("of_a_later_version", 1))
    (note,) = notes_of(archive).read()[0].values()
    assert isinstance(note, GroupNote)


def test_notes_are_missed_with_their_restore_and_do_not_disturb_it(archive: Archive) -> None:
    notes = notes_of(archive)
    first = notes.put(None, "g", "s", {("orders", 0): move()}, IDS)
    notes.put(first, "g", "s", {("orders", 1): move()}, IDS)
    notes.put(None, "finished", "s", {("orders", 1): move()}, IDS)
    assert RestoreNotes(archive, "r1", "cluster").claims({"orders": "id"}) == {"orders": {}}
    assert RestoreNotes(archive, "r2", "cluster").begun_by_others({"orders": "id"}) == {}
    assert lost_control_objects(archive, {}) == []
    store = archive.store
    assert isinstance(store, MemoryStore)
    key = f"prefix/control/{notes.stream('g')}/000000.json"
    del store.objects[key]
    assert lost_control_objects(archive, {}) == [f"{key}: is gone; bring it back from the bucket's versions"]
