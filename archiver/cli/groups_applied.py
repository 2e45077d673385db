"""Prints groups that were set or rolled back: a table, JSON, and the next step for each position that was left alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.spelling import table_lines
from archiver.config.quantities import spell_exact_duration
from archiver.process.output.text import spell_count, spell_name, spell_some

if TYPE_CHECKING:
    from archiver.groups.target.application_decisions import ApplicationReport, Decision, GroupReport
    from archiver.kafka.groups.group_positions import GroupPosition

_NO_POSITION: Final = "none"
_MOST_NAMED: Final = 10  # positions of a group in a complaint; the table has all
# The advice on a position that was not changed, by its outcome.
_NEXT_STEPS: Final = {
    "the group has members": "stop its consumers, and run the same command again",
    "stands elsewhere": "consumers may have run on, or others have set it; it is not moved back",
    "the group has moved": "it has gone on elsewhere since, so none of its positions is changed",
    "an earlier run has set it otherwise": "to have it elsewhere, run `archiver groups rollback` first",
    "the topic is another one now": "the topic was deleted, or created again; nothing is known of its offsets",
    "not set": "run the same command again",
}


def applied_row(report: "ApplicationReport") -> dict[str, Any]:
    return {
        "id": report.restore_id,
        "is_rollback": report.is_rollback,
        "is_dry_run": report.is_dry_run,
        "positions_expire_after_ms": report.expiry_ms,
        "groups": [_group_row(one) for one in report.groups],
    }


def _group_row(one: "GroupReport") -> dict[str, Any]:
    return {
        "group": one.group,
        "source_group": one.source_group,
        "refusal": one.refusal or None,
        "skipped": None,
        "error": None if one.error is None else str(one.error),
        "positions": [
            {
                "topic": position.topic,
                "partition": position.partition,
                "before": _position_row(position.before),
                "wanted": _position_row(position.wanted),
                "after": _position_row(position.after),
                "outcome": str(position.outcome),
            }
            for position in one.positions
        ],
    }


def _position_row(position: "GroupPosition | None") -> dict[str, Any] | None:
    return None if position is None else {"offset": position.offset, "metadata": position.metadata}


def applied_lines(report: "ApplicationReport") -> Iterator[str]:
    before, wanted = ("was set to", "back to") if report.is_rollback else ("before", "wanted")
    head = ("group", "topic", "partition", before, wanted, "now" if report.is_dry_run else "after", "")
    rows = [_cells(report, group, one) for group in report.groups for one in group.positions]
    yield from table_lines(head, rows)
    yield f"{spell_count(len(rows), 'position')} of {spell_count(len(report.groups), 'group')}, of restore {report.restore_id}"
    if report.is_dry_run:
        yield "nothing was changed"
    if any(one.outcome.is_done for group in report.groups for one in group.positions):
        yield from _warnings(report)


def _cells(report: "ApplicationReport", group: "GroupReport", one: "Decision") -> tuple[str, ...]:
    outcome = str(one.outcome)
    if outcome == "set":
        outcome = ("would be set" if report.is_dry_run else "set") + (" back" if report.is_rollback else "")
    return (
        spell_name(group.group),
        one.topic,
        str(one.partition),
        _offset(one.before),
        _offset(one.wanted),
        _offset(one.after),
        outcome,
    )


def _offset(position: "GroupPosition | None") -> str:
    return _NO_POSITION if position is None else str(position.offset)


def _spelled(position: "GroupPosition | None") -> str:
    return "no position" if position is None else f"at {position.offset}"


def _warnings(report: "ApplicationReport") -> Iterator[str]:
    yield "consumers that were given their partitions (assign) are in no group that brokers know: stop them yourself"
    told = "1w by default; these brokers do not tell theirs"
    if report.expiry_ms is not None:
        told = spell_exact_duration(report.expiry_ms)
    yield f"brokers forget the positions of a group that nobody joins for so long (offsets.retention.minutes: {told})"


def applied_complaints(report: "ApplicationReport") -> Iterator[str]:
    """Yield a line for each unchanged or failed group, and for each unchanged position."""
    for group in report.groups:
        if group.refusal:
            yield group.refusal
        if group.error is not None:
            text, name = str(group.error), f"group {spell_name(group.group)}"
            yield text if name in text else f"{name}: {text}"
        yield from _left_lines(group)


def _left_lines(group: "GroupReport") -> Iterator[str]:
    """Yield a line for each outcome without a change: its positions, and what to do next."""
    by_outcome: dict[str, list[str]] = {}
    for one in group.positions:
        if not one.outcome.is_done:
            place = f"{one.topic}-{one.partition} ({_spelled(one.after)})"
            by_outcome.setdefault(str(one.outcome), []).append(place)
    for outcome, places in by_outcome.items():
        yield f"group {spell_name(group.group)}, left as it is: {spell_some(places, _MOST_NAMED)}: {outcome}; {_NEXT_STEPS[outcome]}"
