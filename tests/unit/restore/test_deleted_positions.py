"""Restored topics that were deleted before the newest snapshot, beside a log of `__consumer_offsets` that ends earlier."""

import re
from collections.abc import Mapping, Sequence

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.notes.topic_changes import record_topic
from archiver.codec.selection import LAST_LONG
from archiver.config.model import IndexUse
from archiver.groups.positions.archived_position import ArchivedPosition, State
from archiver.groups.positions.shown import PositionFilter, show_groups
from archiver.restore.groups.removed_positions import with_lost_positions
from tests.support.commit_frames import commit_value, position_key
from tests.support.offsets_archive import OffsetsArchive, refuse_problem
from tests.support.records import Rec

MINUTE_MS = 60_000
ANY = re.compile(".*")


@pytest.fixture
def offsets() -> OffsetsArchive:
    """A log in which group g stood at 5 of topic t, and which ends after two minutes."""
    found = OffsetsArchive()
    record_topic(found.archive, topic="t", topic_id="T", cluster_id="c", partitions=1, configs={})
    records = [
        Rec(number, (number + 1) * MINUTE_MS, 0, position_key("g", topic, 0), commit_value(5))
        for number, topic in enumerate(("t", "other"))
    ]
    found.put(records, 2)
    return found


def snap(offsets: OffsetsArchive, minute: int, groups: Mapping[str, Mapping[str, int]]) -> None:
    spelled = {
        group: {topic: {"0": {"offset": offset}} for topic, offset in some.items()} for group, some in groups.items()
    }
    fact = {"format": 1, "time_ms": minute * MINUTE_MS, "groups": spelled, "missing": []}
    append_fact(offsets.archive, "group-positions/1970-01-01", lambda _: fact)


def told(offsets: OffsetsArchive) -> Sequence[tuple[str, int, State]]:
    asked, use = PositionFilter(as_of_ms=LAST_LONG, groups=ANY, topics=ANY), IndexUse.CHECK
    shown = [one.position for one in show_groups(offsets.archive, asked, use, refuse_problem).positions]
    found: Sequence[ArchivedPosition] = with_lost_positions(
        offsets.archive, asked, use, shown, {("t", 0)}, refuse_problem
    )
    return [(one.group, one.offset, one.state) for one in found if one.topic == "t"]


def test_the_last_snapshot_that_has_it_tells(offsets: OffsetsArchive) -> None:
    snap(offsets, 10, {"g": {"t": 8, "other": 5}})
    snap(offsets, 11, {"g": {"other": 5}})
    assert told(offsets) == [("g", 8, State.TOPIC_DELETED)]


def test_where_no_snapshot_has_it_the_position_of_the_log_was_removed(offsets: OffsetsArchive) -> None:
    snap(offsets, 11, {"g": {"other": 5}})
    assert told(offsets) == [("g", 5, State.REMOVED)]


def test_where_another_group_stands_it_was_not_the_topic_that_ended(offsets: OffsetsArchive) -> None:
    snap(offsets, 10, {"g": {"t": 8, "other": 5}})
    snap(offsets, 11, {"g": {"other": 5}, "h": {"t": 9}})
    assert told(offsets) == [("g", 5, State.REMOVED), ("h", 9, State.SET)]
