"""Positions from snapshots alone, as of any time; and which word holds where a log has a position, too."""

import re

import pytest

from archiver.archive.control import append_fact
from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.archive.topics import record_cluster, record_topic
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.errors import CorruptSegmentError, UsageError
from archiver.groups.archived_position import ArchivedPosition, State
from archiver.groups.episodes import NO_ROW
from archiver.groups.lives import AMBIGUOUS, NOT_ARCHIVED
from archiver.groups.shown import PositionFilter, ShownGroups, _holds, show_groups
from tests.support.memory_store import MemoryStore

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


def snapshot(archive: Archive, at_ms: int, offset: int, **groups: object) -> None:
    day = "2026-09-21" if at_ms < NOON_MS + DAY_MS // 2 else "2026-09-22"
    told = {"billing": {"orders": {"0": {"offset": offset, "metadata": "m"}}}, "idle": {}, **groups}
    fact = {"format": 1, "cluster_id": "c", "time_ms": at_ms, "duration_ms": 1, "groups": told, "missing": ["secret"]}
    append_fact(archive, f"group-positions/{day}", lambda _: fact)


def archive_of() -> Archive:
    archive = Archive(MemoryStore(), Layout())
    record_cluster(archive, "c")
    return archive


def shown(archive: Archive, as_of_ms: int = LAST_LONG, groups: str = ".*") -> ShownGroups:
    wanted = PositionFilter(as_of_ms=as_of_ms, groups=re.compile(groups), topics=re.compile(".*"))
    return show_groups(archive, wanted, IndexUse.CHECK, pytest.fail)


def told(found: ShownGroups) -> list[tuple[str, str, int, int, str]]:
    return [
        (one.position.group, one.position.topic, one.position.life, one.position.offset, one.position.state)
        for one in found.positions
    ]


def test_the_newest_snapshot_as_of_a_time_holds() -> None:
    archive = archive_of()
    snapshot(archive, NOON_MS, 1)
    snapshot(archive, NOON_MS + 60_000, 2)
    snapshot(archive, NOON_MS + 30_000, 3)  # by a writer whose clock is behind
    snapshot(archive, NOON_MS + DAY_MS, 4)
    times = (NOON_MS, NOON_MS + 59_999, NOON_MS + 60_000, NOON_MS + DAY_MS - 1, NOON_MS + DAY_MS, LAST_LONG)
    assert [shown(archive, at_ms).positions[0].position.offset for at_ms in times] == [1, 3, 2, 2, 4, 4]
    with pytest.raises(UsageError, match="nothing of consumer groups is archived up to then"):
        shown(archive, NOON_MS - 1)


def test_a_topic_that_is_not_archived_is_named_as_such_and_groups_are_chosen() -> None:
    archive = archive_of()
    snapshot(archive, NOON_MS, 1, other={"orders": {"1": {"offset": 7}}})
    assert told(shown(archive, groups="bill.*")) == [("billing", "orders", NOT_ARCHIVED, 1, "set")]
    assert shown(archive).snapshot_ms == NOON_MS


def test_a_snapshot_is_of_the_topic_that_had_the_name_then() -> None:
    archive = archive_of()
    snapshot(archive, NOON_MS, 1)
    for topic_id, seen_ms in (("a", NOON_MS - 5), ("b", NOON_MS + 5)):
        record_topic(
            archive, topic="orders", topic_id=topic_id, cluster_id="c", partitions=1, configs={}, seen_ms=seen_ms
        )
    snapshot(archive, NOON_MS + 60_000, 2)
    assert told(shown(archive, NOON_MS)) == [("billing", "orders", 0, 1, "set")]
    assert told(shown(archive)) == [("billing", "orders", 1, 2, "set")]
    record_topic(
        archive, topic="orders", topic_id="c", cluster_id="c", partitions=1, configs={}
    )  # as before seen_ms was
    assert told(shown(archive)) == [("billing", "orders", AMBIGUOUS, 2, "ambiguous")]


def test_what_is_no_snapshot_is_named() -> None:
    archive = archive_of()
    append_fact(archive, "group-positions/2026-09-21", lambda _: {"format": 1, "time_ms": "noon"})
    with pytest.raises(CorruptSegmentError, match=r"control/group-positions/2026-09-21: is no snapshot"):
        shown(archive)


def position(offset: int, commit_ms: int, state: State = State.SET, removed_ms: int = NO_ROW) -> ArchivedPosition:
    return ArchivedPosition("g", "t", 0, 0, state, offset, -1, "", commit_ms, 0, removed_ms)


@pytest.mark.parametrize(
    ("by_log", "holds"),
    [
        (None, True),
        (position(-1, -1, State.UNKNOWN), True),
        (position(5, 10), True),  # the log ends before the snapshot
        (position(7, 10), False),  # both say the same: the log tells more
        (position(5, 30), False),  # committed since
        (position(5, 10, State.REMOVED, removed_ms=15), False),
    ],
)
def test_the_later_word_holds(by_log: ArchivedPosition | None, holds: bool) -> None:
    assert _holds(position(7, -1), 20, by_log) is holds
