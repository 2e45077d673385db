"""How it is printed what became of the groups of a restore."""

import json

import pytest

from archiver.cli.groups_applied import _NEXT_STEPS
from archiver.cli.groups_apply import complain_of_groups, groups_lines, groups_row
from archiver.cli.options import pattern
from archiver.cli.spelling import moment_from
from archiver.errors import NotWholeError, UsageError
from archiver.groups.positions.archived_position import State
from archiver.groups.target.application_decisions import ApplicationReport, PositionOutcome
from archiver.restore.groups.group_restore import GroupPlan, GroupRestore
from tests.unit.cli.test_groups_applied import group, report
from tests.unit.restore.test_group_restore import planned, position, topic_of


def restored(plan: GroupPlan, applied: ApplicationReport | None = None, *problems: str) -> GroupRestore:
    return GroupRestore(plan=plan, report=applied or report(group(PositionOutcome.SET)), problems=problems)


def test_the_plan_comes_before_what_was_done() -> None:
    plan = planned([position("g"), position("g", topic="other")], topic_of())
    lines = list(groups_lines(restored(plan)))
    assert lines[0].split() == ["group", "archived", "committed", "target", "offset"]
    assert lines[1].split() == ["g", "orders-0", "3", "back-0", "1", "exact"]
    assert "1 position of 1 group, in restore mine" in lines
    assert "  g: other-0: topic not restored" in lines
    assert lines[lines.index("") + 1].split() == ["group", "topic", "partition", "before", "wanted", "after"]
    row = groups_row(restored(plan))
    assert (set(row), row["plan"]["whole"], row["applied"]["id"]) == ({"plan", "applied"}, True, "r1")
    json.dumps(row)


def test_complaints_come_in_order_and_make_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = planned(
        [position("g", state=State.UNKNOWN, known_from_ms=1_000)], topic_of(), unreadable={"t": "no plan"}
    )
    found = restored(unknown, report(group(PositionOutcome.MOVED)), "an object is damaged")
    assert found.exit_code == NotWholeError.exit_code
    assert groups_row(found)["plan"]["problems"] == ["an object is damaged"]
    complain_of_groups(found)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "archiver: an object is damaged"
    assert [line.removeprefix("archiver: ") for line in others] == [
        "1 position cannot be translated: unknown",
        "all of these are known as of 1970-01-01T00:00:01Z (1000): give --as-of with that, or a later time",
        "target t: no plan",
        "group g, left as it is: orders-0 (at 9): stands elsewhere; " + _NEXT_STEPS["stands elsewhere"],
    ]
    complain_of_groups(found, "do this")
    assert "as of 1970-01-01T00:00:01Z (1000): do this" in capsys.readouterr().err
    complain_of_groups(restored(planned([], topic_of()), report()))
    assert "no group that --groups matches has an archived position; none was set" in capsys.readouterr().err


def test_a_moment_to_be_typed_is_never_the_second_before() -> None:
    assert [moment_from(at_ms) for at_ms in (1000, 1001, 1999)] == [
        "1970-01-01T00:00:01Z",
        *["1970-01-01T00:00:02Z"] * 2,
    ]


@pytest.mark.parametrize("text", ["", "("])
def test_what_is_no_expression_is_refused_before_anything_else(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--groups: "):
        pattern("--groups", text)
