"""Positions from snapshots alone, as of any time."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import read_topic, record_cluster
from archiver.cli.groups_show import groups_lines, groups_row
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.errors import UsageError
from archiver.groups.log.lives import AMBIGUOUS, NOT_ARCHIVED
from archiver.groups.positions.shown import PositionFilter, ShownGroups, read_roots, show_groups
from archiver.store.port import ObjectKind
from tests.support.copied_topic import complete_copy, copy_place, role_entry
from tests.support.memory_store import MemoryStore
from tests.support.segments import facts_of

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


def snapshot(archive: Archive, at_ms: int, offset: int, missing: Sequence[str] = ("secret",), **groups: object) -> None:
    day = "2026-09-21" if at_ms < NOON_MS + DAY_MS // 2 else "2026-09-22"
    told = {"billing": {"orders": {"0": {"offset": offset, "metadata": "m"}}}, "idle": {}, **groups}
    fact = {"format": 1, "cluster_id": "c", "time_ms": at_ms, "duration_ms": 1, "groups": told, "missing": [*missing]}
    append_fact(archive, f"group-positions/{day}", lambda _: fact)


def archive_of() -> Archive:
    archive = Archive(MemoryStore(), Layout())
    record_cluster(archive, "c")
    return archive


def shown(
    archive: Archive, as_of_ms: int = LAST_LONG, groups: str = ".*", report: Callable[[str], None] = pytest.fail
) -> ShownGroups:
    wanted = PositionFilter(as_of_ms=as_of_ms, groups=re.compile(groups), topics=re.compile(".*"))
    return show_groups(archive, wanted, IndexUse.CHECK, report)


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


def test_between_two_snapshots_that_differ_both_are_told() -> None:
    archive = archive_of()
    record_topic(archive, topic="orders", topic_id="A", cluster_id="c", partitions=1, configs={}, seen_ms=1)
    snapshot(archive, NOON_MS, 10)
    snapshot(archive, NOON_MS + 60_000, 50, new={"orders": {"0": {"offset": 7}}})
    snapshot(archive, NOON_MS + DAY_MS, 40)  # the first one of the next day

    def between(at_ms: int) -> list[tuple[str, str, int, int, int, int]]:
        found = [one.position for one in shown(archive, at_ms).positions]
        return [(one.group, one.state, one.offset, one.at_ms, one.other_offset, one.other_ms) for one in found]

    assert between(NOON_MS) == [("billing", "set", 10, NOON_MS, -1, -1)]
    assert between(NOON_MS + 30_000) == [
        ("billing", "ambiguous", 10, NOON_MS, 50, NOON_MS + 60_000),
        ("new", "ambiguous", -1, -1, 7, NOON_MS + 60_000),
    ]
    assert ("billing", "ambiguous", 50, NOON_MS + 60_000, 40, NOON_MS + DAY_MS) in between(NOON_MS + 70_000)
    assert between(NOON_MS + DAY_MS + 5) == [("billing", "set", 40, NOON_MS + DAY_MS, -1, -1)]
    (old, _) = [one.position for one in shown(archive, NOON_MS + 30_000).positions]
    (back, _) = [one.position for one in shown(archive, NOON_MS + 70_000).positions]
    assert (old.earlier().offset, back.earlier().offset) == (10, 40)
    row = groups_row(shown(archive, NOON_MS + 30_000), [])["positions"][0]
    assert (row["offset"], row["snapshot_ms"], row["or_offset"], row["or_ms"]) == (10, NOON_MS, 50, NOON_MS + 60_000)
    assert "ambiguous: at 10, or already at 50, of " in "\n".join(groups_lines(shown(archive, NOON_MS + 30_000)))


def test_where_the_next_snapshot_misses_a_group_a_later_one_tells_or_it_is_unknown() -> None:
    """One out of reach of the first snapshot behind the time is not where it stood before."""
    archive = archive_of()
    slow = {name: {"orders": {"0": {"offset": 5}}} for name in ("soon", "secret", "late")}
    record_topic(archive, topic="orders", topic_id="A", cluster_id="c", partitions=1, configs={}, seen_ms=1)
    snapshot(archive, NOON_MS, 10, missing=(), **slow)
    for minute in (1, 2):
        snapshot(archive, NOON_MS + minute * 60_000, 10, missing=("soon", "secret", "late"))
    snapshot(archive, NOON_MS + 180_000, 10, missing=("secret", "late"), soon={"orders": {"0": {"offset": 7}}})
    snapshot(archive, NOON_MS + DAY_MS, 10, missing=("secret",), late={"orders": {"0": {"offset": 6}}})
    found = [one.position for one in shown(archive, NOON_MS + 30_000).positions]
    assert [(one.group, one.state, one.offset, one.other_offset) for one in found] == [
        ("billing", "set", 10, -1),
        ("late", "ambiguous", 5, 6),
        ("secret", "unknown", 5, -1),
        ("soon", "ambiguous", 5, 7),
    ]
    assert {one.position.state for one in shown(archive, NOON_MS).positions} == {"set"}


def test_names_and_metadata_may_be_as_long_as_kafka_takes_them() -> None:
    archive, most = archive_of(), "m" * (2**15 - 1)
    snapshot(archive, NOON_MS, 1, missing=(most,), **{most: {"orders": {"1": {"offset": 7, "metadata": most}}}})
    (position,) = [one.position for one in shown(archive, groups="m+").positions]
    assert (position.group, position.metadata, position.offset) == (most, most, 7)


def test_a_topic_that_is_not_archived_is_named_as_such_and_groups_are_chosen() -> None:
    archive = archive_of()
    snapshot(archive, NOON_MS, 1, other={"orders": {"1": {"offset": 7}}})
    assert told(shown(archive, groups="bill.*")) == [("billing", "orders", NOT_ARCHIVED, 1, "set")]
    assert shown(archive).snapshot_ms == NOON_MS


def test_a_snapshot_is_of_the_topic_that_had_the_name_then() -> None:
    archive, hour = archive_of(), 3_600_000
    for topic_id, seen_ms in (("a", NOON_MS - hour), ("b", NOON_MS + hour)):
        record_topic(
            archive, topic="orders", topic_id=topic_id, cluster_id="c", partitions=1, configs={}, seen_ms=seen_ms
        )
    for number, at_ms in enumerate([-2 * hour, -hour + 1, 0, hour + 60_000, 2 * hour]):
        snapshot(archive, NOON_MS + at_ms, number)
    assert told(shown(archive, NOON_MS - 2 * hour)) == [("billing", "orders", 0, 0, "set")]
    for number, at_ms in enumerate(
        [-hour + 1, 0, hour + 60_000], start=1
    ):  # clocks differ, and a third topic may have been
        assert told(shown(archive, NOON_MS + at_ms)) == [("billing", "orders", AMBIGUOUS, number, "ambiguous")]
    assert told(shown(archive)) == [("billing", "orders", 1, 4, "set")]
    record_topic(
        archive, topic="orders", topic_id="c", cluster_id="c", partitions=1, configs={}
    )  # as before seen_ms was
    assert told(shown(archive)) == [("billing", "orders", AMBIGUOUS, 4, "ambiguous")]


def test_what_is_no_snapshot_is_named_and_the_one_before_it_is_used() -> None:
    archive, problems = archive_of(), list[str]()
    append_fact(archive, "group-positions/2026-09-21", lambda _: {"format": 1, "time_ms": "noon"})
    append_fact(archive, "group-positions/never", lambda _: {"format": 1})
    found = shown(archive, report=problems.append)
    assert (found.positions, found.snapshot_ms, len(problems)) == ([], None, 2)
    assert "control/group-positions/never: is not named after a day" in problems[0]
    assert "control/group-positions/2026-09-21: number 0 is no snapshot of group positions" in problems[1]
    snapshot(archive, NOON_MS, 1)
    append_fact(archive, "group-positions/2026-09-21", lambda _: {"format": 1, "time_ms": "evening"})
    assert told(shown(archive, report=problems.append)) == [("billing", "orders", NOT_ARCHIVED, 1, "set")]


def test_groups_that_a_snapshot_misses_are_told_by_an_earlier_one() -> None:
    archive = archive_of()
    secret = {"secret": {"orders": {"0": {"offset": 7}}}}
    snapshot(archive, NOON_MS - 3, 1, missing=(), **secret, gone={"orders": {"0": {"offset": 1}}})
    snapshot(archive, NOON_MS - 2, 2)
    snapshot(archive, NOON_MS, 3, missing=("secret", "unheard"))
    found = shown(archive)
    assert told(found) == [
        ("billing", "orders", NOT_ARCHIVED, 3, "set"),
        ("secret", "orders", NOT_ARCHIVED, 7, "set"),
    ]
    assert [one.position.at_ms for one in found.positions] == [NOON_MS, NOON_MS - 3]
    assert found.missing == {"secret": NOON_MS - 3, "unheard": None}
    assert shown(archive, groups="sec.*").missing == {"secret": NOON_MS - 3}


def test_a_copy_tells_that_its_topic_was_there() -> None:
    """As what lies under `topics/` does."""
    archive = Archive(MemoryStore(), Layout())
    record_topic(archive, topic="t", topic_id="a", cluster_id="c", partitions=1, configs={})
    fact = read_topic(archive, "t")
    assert fact is not None
    facts = replace(facts_of(0, 10), max_timestamp=5 * 3_600_000)
    key = f"{copy_place('t', 0, 'a', 0)}t+0-{0:020}.data"
    archive.store.put_if_absent(key, b"x", facts.to_metadata(), kind=ObjectKind.SEGMENT)
    (root,) = read_roots(archive, {"t": fact}, IndexUse.CHECK)["t"]
    assert root.alive_ms is None  # nobody has said that this copy was complete
    key, content = role_entry("t", 0, 1, holder=complete_copy("a", 0, 10))
    archive.store.put_if_absent(key, content, {}, kind=ObjectKind.FACT)
    (root,) = read_roots(archive, {"t": fact}, IndexUse.CHECK)["t"]
    assert root.alive_ms == 4 * 3_600_000
