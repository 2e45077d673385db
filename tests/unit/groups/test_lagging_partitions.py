"""Partitions of `__consumer_offsets` that are archived only in part: what is known of groups there, and what is said."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.notes.topic_changes import record_ends
from archiver.archive.notes.topics import LogEnd, read_topic
from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_until import offsets_partition
from archiver.groups.positions.archived_position import State
from archiver.upkeep.verify import check_listing
from tests.support.topic_notes import note_of, topic_of
from tests.unit.groups.test_shown_log import HOUR, NEW_YEAR_MS, OFFSETS, LogArchive, commit

GROUPS = {offsets_partition(name, 3): name for name in "abcdef"}  # one of each partition


def archive_with(spool: Path, ends: Mapping[int, int], archived: Mapping[int, int] | None = None) -> LogArchive:
    """Of three partitions the first two have a commit; the logs of all were noted, an hour before."""
    archive = LogArchive(spool, offsets_partitions=3)
    record_ends(archive.handle, OFFSETS, ends, archived or dict.fromkeys(ends, 0), NEW_YEAR_MS - HOUR)
    for partition in (0, 1):
        archive.put(OFFSETS, [commit(GROUPS[partition], 10, 1_000)], partition=partition)
    return archive


def told(archive: LogArchive, problems: list[str], as_of_ms: int = LAST_LONG) -> dict[str, tuple[State, int]]:
    return {
        one.position.group: (one.position.state, one.position.offset)
        for one in archive.shown(as_of_ms, problems).positions
    }


def test_what_reaches_its_end_is_known_however_long_it_was_idle(tmp_path: Path) -> None:
    archive, problems = archive_with(tmp_path, {0: 1, 1: 1, 2: 0}), list[str]()
    archive.put(OFFSETS, [commit(GROUPS[0], 11, 9 * HOUR)], base=1)
    assert told(archive, problems) == {GROUPS[0]: (State.SET, 11), GROUPS[1]: (State.SET, 10)}
    assert problems == []
    assert check_listing(archive.handle).problems == []


def test_where_the_log_is_held_back_positions_are_unknown_behind_the_newest_archived_record(tmp_path: Path) -> None:
    archive, problems = archive_with(tmp_path, {0: 1, 1: 3, 2: 0}), list[str]()
    assert told(archive, problems) == {GROUPS[0]: (State.SET, 10), GROUPS[1]: (State.UNKNOWN, 10)}
    (problem,) = problems
    assert "1 partition is archived only in part: 1 (archived up to offset 1, of 2026-01-01" in problem
    assert "its log ended at offset 3 at" in problem
    assert "groups may be missing" in problem
    assert told(archive, [], NEW_YEAR_MS + 1_001)[GROUPS[1]] == (State.UNKNOWN, 10)
    earlier = list[str]()
    assert told(archive, earlier, NEW_YEAR_MS + 1_000)[GROUPS[1]] == (State.SET, 10)
    assert earlier == []
    assert check_listing(archive.handle).problems == [problem.replace(", of 2026-01-01T00:00:01.000Z", "")]


@pytest.mark.parametrize("ends", [{0: 1, 1: 1, 2: 5}, {0: 1, 1: 1}])
def test_a_partition_that_was_not_reached_may_lack_groups(ends: Mapping[int, int], tmp_path: Path) -> None:
    archive, problems = archive_with(tmp_path, ends), list[str]()
    assert told(archive, problems) == {GROUPS[0]: (State.SET, 10), GROUPS[1]: (State.SET, 10)}
    (problem,) = problems
    assert "archived only in part: 2 (archived up to offset 0; " in problem


def test_until_the_last_time_when_all_was_archived_all_is_known(tmp_path: Path) -> None:
    archive = archive_with(tmp_path, {0: 1, 1: 1, 2: 0})
    at_ms = NEW_YEAR_MS + 5 * HOUR
    record_ends(archive.handle, OFFSETS, {0: 1, 1: 1, 2: 0}, {0: 1, 1: 1, 2: 0}, at_ms - HOUR)  # no news: not noted
    record_ends(archive.handle, OFFSETS, {0: 1, 1: 4, 2: 0}, {0: 1, 1: 1, 2: 0}, at_ms)
    record_ends(archive.handle, OFFSETS, {0: 1, 1: 6, 2: 2}, {0: 1, 1: 1, 2: 0}, at_ms + HOUR)
    fact = read_topic(archive.handle, OFFSETS)
    assert fact is not None
    assert fact.ends == {
        0: LogEnd(offset=1, at_ms=at_ms + HOUR, whole_ms=at_ms + HOUR),
        1: LogEnd(offset=6, at_ms=at_ms + HOUR, whole_ms=NEW_YEAR_MS - HOUR),
        2: LogEnd(offset=2, at_ms=at_ms + HOUR, whole_ms=at_ms),
    }
    assert topic_of(note_of(fact)) == fact
    problems = list[str]()
    told(archive, problems, at_ms)
    assert "archived only in part: 1 (" in problems[0]
    told(archive, later := list[str](), at_ms + 1)
    assert "2 partitions are archived only in part: 1 (" in later[0]


def test_a_later_snapshot_is_taken_instead(tmp_path: Path) -> None:
    archive, problems = archive_with(tmp_path, {0: 1, 1: 3, 2: 7}), list[str]()
    groups = {GROUPS[1]: {"orders": {"0": {"offset": 900}}}, GROUPS[2]: {"orders": {"0": {"offset": 5}}}}
    groups[GROUPS[0]] = {"orders": {"0": {"offset": 10}}}
    time_ms = NEW_YEAR_MS + 30_000
    fact = {"format": 1, "cluster_id": "c", "time_ms": time_ms, "duration_ms": 1, "groups": groups, "missing": []}
    append_fact(archive.handle, "group-positions/2026-01-01", lambda _: fact)
    wanted = {GROUPS[0]: (State.SET, 10), GROUPS[1]: (State.SET, 900), GROUPS[2]: (State.SET, 5)}
    assert told(archive, problems) == wanted
    assert problems == []
    assert told(archive, problems, NEW_YEAR_MS + 20_000)[GROUPS[1]] == (State.UNKNOWN, 10)
    assert len(problems) == 1
