"""What a dry run counts of groups: what would be set, what not, and why."""

import pytest

from archiver.groups.log.lives import AMBIGUOUS
from archiver.groups.positions.archived_position import PositionSource, State
from archiver.groups.target.translation import Reason
from archiver.kafka.groups.group_positions import ListedGroup
from archiver.restore.groups.group_preview import GroupPreview, count_positions
from tests.unit.restore.test_group_restore import position

WHOLE = {("orders", 0), ("orders", 1)}


def test_positions_are_counted_by_what_becomes_of_them() -> None:
    positions = [
        position("a"),
        position("a", partition=1),
        position("a", partition=2),  # not whole, or not there
        position("a", partition=1, state=State.UNKNOWN),
        position("a", topic="other", state=State.UNKNOWN),
        position("a", topic="other"),
        position("a", life=1),
        position("b", state=State.REMOVED),
        position("c"),
    ]
    listed = {
        "z": ListedGroup("consumer", "Stable"),
        "b": ListedGroup("consumer", "Stable"),
        "a": ListedGroup("", "Empty"),
    }
    found = count_positions(positions, {"orders": 0}, WHOLE, {"c": "z"}, listed)
    assert found == [
        GroupPreview(
            group="a",
            source="a",
            positions=2,
            unset={Reason.REFUSED: 1, Reason.UNKNOWN: 1, Reason.NOT_RESTORED: 2, Reason.ANOTHER_LIFE: 1},
            has_members=False,
        ),
        GroupPreview(
            group="b",
            source="b",
            positions=0,
            unset={Reason.REMOVED: 1},
            has_members=True,
            removed=(position("b", state=State.REMOVED),),
        ),
        GroupPreview(group="z", source="c", positions=1, unset={}, has_members=True),
    ]
    assert [one.is_open for one in found] == [True, False, True]


@pytest.mark.parametrize("kind", ["share", "connect"])
def test_a_group_of_a_kind_without_positions_would_not_be_set(kind: str) -> None:
    listed = {"a": ListedGroup(kind, "Empty")}
    (found,) = count_positions([position("a")], {"orders": 0}, WHOLE, {}, listed)
    assert (found.takes_positions, found.is_open) == (False, True)
    (other,) = count_positions([position("a", topic="other")], {"orders": 0}, WHOLE, {}, listed)
    assert not other.is_open


@pytest.mark.parametrize(
    ("at_offset", "source", "why"),
    [
        (5, PositionSource.LOG, Reason.ANOTHER_LIFE),
        (9, PositionSource.LOG, Reason.AMBIGUOUS),
        (-1, PositionSource.SNAPSHOT, Reason.AMBIGUOUS),
    ],
)
def test_what_is_ambiguous_is_counted_as_the_restore_will_tell_it(
    at_offset: int, source: PositionSource, why: Reason
) -> None:
    known = position("a", at_offset=7)
    other = position("a", offset=1, state=State.AMBIGUOUS, life=AMBIGUOUS, at_offset=at_offset, source=source)
    (found,) = count_positions([other, known], {"orders": 0}, WHOLE, {}, {})
    assert (found.positions, found.unset, found.is_open) == (1, {why: 1}, why is Reason.AMBIGUOUS)
    (of_another,) = count_positions([other, known._replace(partition=1)], {"orders": 0}, WHOLE, {}, {})
    assert of_another.unset == {Reason.AMBIGUOUS: 1}
    (not_whole,) = count_positions([other, known], {"orders": 0}, set(), {}, {})
    assert not_whole.unset == {Reason.AMBIGUOUS: 1, Reason.REFUSED: 1}
