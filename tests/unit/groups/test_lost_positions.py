"""The last positions in a topic that was deleted before the newest snapshot: those of the last snapshot that has any."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.format.control import append_fact, is_as_written
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.groups.log.lives import Root
from archiver.groups.positions import lost_positions
from archiver.groups.positions.archived_position import ArchivedPosition, State
from archiver.groups.positions.lost_positions import find_lost_positions
from archiver.groups.positions.snapshots import Snapshot, SnapshotReader
from tests.support.memory_store import MemoryStore

Groups = Mapping[str, Mapping[str, Mapping[int, int]]]
MINUTE_MS, DAY_MS = 60_000, 24 * 3_600_000
DAY = "1970-01-01"
ONE_LIFE = {"t": [Root(0, "", None)]}


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryStore(), Layout())


def snap(archive: Archive, minute: int, groups: Groups, missing: Sequence[str] = (), day: str = DAY) -> None:
    spelled = {
        group: {
            topic: {str(number): {"offset": offset} for number, offset in some.items()} for topic, some in told.items()
        }
        for group, told in groups.items()
    }
    fact: dict[str, Any] = {"format": 1, "time_ms": minute * MINUTE_MS, "groups": spelled, "missing": list(missing)}
    append_fact(archive, f"group-positions/{day}", lambda _: fact)


Found = tuple[list[ArchivedPosition], dict[str, int]]


def find(archive: Archive, roots: Mapping[str, list[Root]] = ONE_LIFE, root: int = 0) -> Found:
    def refuse(problem: str) -> None:
        raise AssertionError(problem)

    return find_lost_positions(archive, {("t", root)}, roots, 2**62, refuse)


def told(found: Found) -> list[tuple[str, int, int, State]]:
    return [(one.group, one.partition, one.offset, one.state) for one in found[0]]


def test_those_of_the_last_snapshot_that_has_any(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1}}, "h": {"t": {0: 9}}})
    snap(archive, 2, {"g": {"t": {0: 5, 3: 7}}, "h": {"other": {0: 9}}})
    snap(archive, 3, {"g": {"other": {0: 9}}, "h": {}})
    snap(archive, 4, {"g": {"other": {0: 11}}, "h": {}})
    found = find(archive)
    # h lost its position between two snapshots in which g moved: nobody knows whether that was the topic's end.
    assert told(found) == [
        ("g", 0, 5, State.TOPIC_DELETED),
        ("g", 3, 7, State.TOPIC_DELETED),
        ("h", 0, 9, State.UNKNOWN),
    ]
    assert {one.at_ms for one in found[0] if one.group == "g"} == {2 * MINUTE_MS}
    assert not found[1]


def test_a_snapshot_that_was_taken_while_the_positions_went(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1, 1: 2}}, "h": {"t": {0: 9}}})
    snap(archive, 2, {"g": {"t": {1: 2}}, "h": {}})
    snap(archive, 3, {"g": {}, "h": {}})
    assert told(find(archive)) == [
        ("g", 0, 1, State.TOPIC_DELETED),
        ("g", 1, 2, State.TOPIC_DELETED),
        ("h", 0, 9, State.TOPIC_DELETED),
    ]


def test_a_group_that_did_not_tell_is_unknown(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1}}, "h": {"t": {0: 7}}, "i": {}})
    snap(archive, 2, {"g": {"t": {0: 1}}}, missing=["h", "i"])
    snap(archive, 3, {"g": {"t": {0: 2}}}, missing=["h", "i"])
    snap(archive, 4, {"g": {}, "h": {}, "i": {}})
    assert told(find(archive)) == [("g", 0, 2, State.TOPIC_DELETED), ("h", 0, 7, State.UNKNOWN)]


def test_a_topic_in_which_nobody_ever_stood(archive: Archive) -> None:
    snap(archive, 1, {"g": {"other": {0: 1}}})
    assert find(archive) == ([], {})


def test_a_position_of_another_life_does_not_count(archive: Archive) -> None:
    roots = {"t": [Root(0, "old", 0, 12 * MINUTE_MS), Root(1, "new", 20 * MINUTE_MS)]}
    snap(archive, 5, {"g": {"t": {0: 1}}})
    snap(archive, 9, {"g": {"t": {0: 2}}})
    snap(archive, 30, {"g": {"t": {0: 3}}})
    assert told(find(archive, roots)) == [("g", 0, 2, State.TOPIC_DELETED)]
    assert told(find(archive, roots, root=1)) == [("g", 0, 3, State.TOPIC_DELETED)]
    snap(archive, 15, {"g": {"t": {0: 8}}}, day="1970-01-02")  # between the two: it may be of either
    assert told(find(archive, roots))[0][2:] == (8, State.AMBIGUOUS)


def test_snapshots_that_are_out_of_reach(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_positions, "_MOST_READ", 3)
    snap(archive, 1, {"g": {"t": {0: 1}}})
    later = DAY_MS // MINUTE_MS
    for minute in range(4):
        snap(archive, later + minute, {"g": {}}, day="1970-01-02")
    assert find(archive) == ([], {"t": MINUTE_MS})
    never = find_lost_positions(archive, {("never", 0)}, {"never": [Root(0, "", None)]}, 2**62, lambda _: None)
    assert never == ([], {})


def test_a_snapshot_that_cannot_be_read_is_told(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1}}})
    append_fact(archive, f"group-positions/{DAY}", lambda _: {"format": 1})
    problems: list[str] = []
    found = find_lost_positions(archive, {("t", 0)}, ONE_LIFE, 2**62, problems.append)
    assert (told(found), len(problems)) == ([("g", 0, 1, State.TOPIC_DELETED)], 1)


def test_a_position_that_ended_days_before_the_others_is_unknown(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1}}, "h": {"t": {0: 7}}})
    snap(archive, 2, {"g": {"t": {0: 1}}})
    snap(archive, 4, {"g": {}})  # so long the positions in a topic take to go
    assert told(find(archive)) == [("g", 0, 1, State.TOPIC_DELETED), ("h", 0, 7, State.TOPIC_DELETED)]
    archive = Archive(MemoryStore(), Layout())
    snap(archive, 1, {"g": {"t": {0: 1}}, "h": {"t": {0: 7}}})
    snap(archive, 2, {"g": {"t": {0: 1}}})
    snap(archive, 22 * DAY_MS // MINUTE_MS, {"g": {}}, day="1970-01-23")
    assert told(find(archive)) == [("g", 0, 1, State.TOPIC_DELETED), ("h", 0, 7, State.UNKNOWN)]


def test_a_group_that_vanished_as_another_appeared_is_unknown(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1}}})
    snap(archive, 2, {"h": {"t": {0: 9}}})
    snap(archive, 3, {"h": {}})
    assert told(find(archive)) == [("g", 0, 1, State.UNKNOWN), ("h", 0, 9, State.TOPIC_DELETED)]


def test_what_ended_in_a_topic_that_was_still_there_is_none(archive: Archive) -> None:
    snap(archive, 1, {"g": {"t": {0: 1}}})
    snap(archive, 2, {"g": {}})
    for alive_ms, state in ((3 * MINUTE_MS, [State.TOPIC_DELETED]), (3 * MINUTE_MS + 1, [])):
        found = find(archive, {"t": [Root(0, "", 0, alive_ms)]})
        assert [one.state for one in found[0]] == state


def test_a_group_missing_from_the_last_snapshot_is_unknown(archive: Archive) -> None:
    """And the topic may have been deleted, or not, when nobody was asked any more."""
    snap(archive, 1, {"g": {"t": {0: 1}}, "h": {"t": {0: 2}}})
    snap(archive, 2, {"h": {}}, missing=["g"])
    wanted = [("g", 0, 1, State.UNKNOWN), ("h", 0, 2, State.TOPIC_DELETED)]
    assert told(find(archive, {"t": [Root(0, "", 0, 10 * MINUTE_MS)]})) == wanted
    snap(archive, 60, {"h": {}}, missing=["g"])
    snap(archive, 61, {"g": {}, "h": {}})
    assert told(find(archive)) == wanted


def test_snapshots_are_read_back_only_to_when_the_topic_was_there(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_positions, "_MOST_READ", 3)
    for minute in range(5):
        snap(archive, minute, {"g": {"other": {0: minute}}})
    reads: list[int] = []
    take = lost_positions._Search.take

    def noted(search: lost_positions._Search, snapshot: Snapshot) -> None:
        reads.append(snapshot.time_ms)
        take(search, snapshot)

    monkeypatch.setattr(lost_positions._Search, "take", noted)
    assert not find(archive, {"t": [Root(0, "", 0, 10 * MINUTE_MS)]})[0]
    assert reads == [4 * MINUTE_MS]


def test_a_snapshot_that_names_no_topic_is_read_without_its_groups(archive: Archive) -> None:
    """The same but for the groups, also with names that look like members; what was changed by others is read whole."""
    hostile = '\n "time_ms": 7,\n "missing": [],'
    groups = {hostile: {"other": {0: 1}}, "g": {"time_ms": {0: 2}, "missing": {1: 3}}}
    snap(archive, 5, groups, missing=['\n "duration_ms": 9,', "[", "]\n ]", "ü"])
    snap(archive, 6, {})
    stream = f"group-positions/{DAY}"
    whole = list(SnapshotReader(archive, 2**62, pytest.fail).newest_first())
    light = list(SnapshotReader(archive, 2**62, pytest.fail, {"t"}).newest_first())
    assert light == [replace(one, groups={}) for one in whole]
    assert list(SnapshotReader(archive, 2**62, pytest.fail, {"other"}).newest_first()) == [whole[0], whole[1]]
    content, _ = archive.store.get(archive.layout.fact_key(stream, 0)) or (b"", {})
    assert is_as_written(content)
    for changed in (content.replace(b"300000", b"300001"), content.replace(b'"sha256"', b'"sha257"')):
        assert not is_as_written(changed)
