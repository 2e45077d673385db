"""`archiver groups translate`: its options, its run, and its two printers."""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.chosen_positions import add_restored_positions, check_files, restored_positions
from archiver.cli.options import add_archive, add_format, add_run, add_target
from archiver.cli.output import complain, print_json, print_line, print_lines
from archiver.cli.spelling import MOST_LISTED, left_out_lines, moment, moment_from, table_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count, spell_name

if TYPE_CHECKING:
    from archiver.groups.positions.archived_position import ArchivedPosition
    from archiver.groups.target.translation import Remark, TranslatedPosition
    from archiver.restore.groups.group_restore import GroupPlan, PlannedGroup

_MOST_REASONS: Final = 20
GIVE_AS_OF: Final = "give --as-of with that, or a later time"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    add_target(parser)
    add_restored_positions(parser)


def run(options: argparse.Namespace) -> int:
    import asyncio

    check_files(options)

    from archiver.restore.groups.group_restore import read_group_plan, read_positions

    archive, kafka, restore_id, asked = restored_positions(options)
    problems = list[str]()
    positions = read_positions(archive, asked, problems.append)
    plan = asyncio.run(read_group_plan(archive, kafka, restore_id, asked, positions, problems.append))
    if options.format == "json":
        print_json(plan_row(plan, problems))
    else:
        print_lines(plan_lines(plan))
        print_line("nothing was changed")
    if not plan.groups:
        complain("no group has an archived position as of then that --groups and --topics match")
    for problem in [*plan.warnings, *problems, *open_problems(plan)]:
        complain(problem)
    return NotWholeError.exit_code if problems or not plan.is_whole else 0


def open_problems(plan: "GroupPlan", of_other_moments: str = GIVE_AS_OF) -> Iterator[str]:
    """Yield a line for each reason why positions cannot be set. `of_other_moments`: advice on the time."""
    counts = Counter(one.told or str(one.reason) for one in plan.open)
    for why, count in counts.most_common(_MOST_REASONS):
        yield f"{spell_count(count, 'position')} cannot be translated: {why}"
    yield from left_out_lines(len(counts) - _MOST_REASONS, "reason")
    if any(str(one.reason) == "unknown" for one in plan.open):
        known = plan.known_from_ms
        yield (
            "there is no later time as of which these are known"
            if known is None
            else f"all of these are known as of {moment_from(known)} ({known}): {of_other_moments}"
        )
    if any(str(one.reason) == "ambiguous" for one in plan.open):
        yield (
            "ambiguous: the archive cannot tell in which of several topics of that name a group stood; set such a position with"
            " kafka-consumer-groups.sh --reset-offsets"
        )
    yield from (f"target {target}: {why}" for target, why in sorted(plan.restored.unreadable.items()))


# --- JSON


def plan_row(plan: "GroupPlan", problems: list[str]) -> dict[str, Any]:
    return {
        "restore": plan.restored.restore_id,
        "groups": [_group_row(group) for group in plan.groups],
        "archivers_groups": [one for one in plan.left_out if one],
        "unreadable_targets": dict(plan.restored.unreadable),
        "known_from_ms": plan.known_from_ms,
        "whole": plan.is_whole and not problems,
        "problems": problems,
    }


def _group_row(group: "PlannedGroup") -> dict[str, Any]:
    return {
        "group": group.group,
        "archived_group": group.source,
        "positions": [_position_row(one) for one in group.positions],
        "not_set": [_unset_row(one) for one in group.unset],
        "without_commit": [{"topic": topic, "partition": number} for topic, number in group.without_commit],
    }


def _place_row(one: "TranslatedPosition") -> dict[str, Any]:
    position = one.position
    return {
        "topic": position.topic,
        "life": None if position.life < 0 else position.life,
        "partition": position.partition,
        "committed": None if position.offset < 0 else position.offset,
        "removed_ms": None if position.removed_ms < 0 else position.removed_ms,
        "cause": str(position.cause) or None,
    }


def _position_row(one: "TranslatedPosition") -> dict[str, Any]:
    target = one.target
    return {
        **_place_row(one),
        "metadata": one.position.metadata,
        "target_topic": None if target is None else target.topic,
        "target_topic_id": None if target is None else target.topic_id,
        "target_partition": None if target is None else target.partition,
        "offset": one.offset,
        "remarks": [{"kind": str(remark.kind), "number": remark.number} for remark in one.remarks],
    }


def _unset_row(one: "TranslatedPosition") -> dict[str, Any]:
    known = one.position.known_from_ms
    return {
        **_place_row(one),
        "reason": str(one.reason),
        "told": one.told,
        "known_from_ms": None if known < 0 else known,
    }


# --- text


def plan_lines(plan: "GroupPlan") -> Iterator[str]:
    rows = [_cells(group, one) for group in plan.groups for one in group.positions]
    yield from table_lines(("group", "archived", "committed", "target", "offset", ""), rows)
    groups = sum(bool(group.positions) for group in plan.groups)
    yield f"{spell_count(len(rows), 'position')} of {spell_count(groups, 'group')}, in restore {plan.restored.restore_id}"
    yield from _list("not set", [line for group in plan.groups for line in _unset_lines(group)])
    yield from _list(
        "without a commit (a consumer begins there by its auto.offset.reset: latest skips what was restored)",
        [
            f"{spell_name(group.group)}: {topic}-{number}"
            for group in plan.groups
            for topic, number in group.without_commit
        ],
    )
    if own := [one for one in plan.left_out if one]:
        yield f"left out, as the archiver's own: {', '.join(own)}"


def _list(head: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{head}:"
        yield from (f"  {line}" for line in lines[:MOST_LISTED])
        yield from left_out_lines(len(lines) - MOST_LISTED, "line")


def _removal(position: "ArchivedPosition") -> str:
    """Spell when and why a position was removed, and its offset."""
    when = "" if position.removed_ms < 0 else f" at {moment(position.removed_ms)}"
    stood = f"stood at {position.offset}" if position.is_removed_value_known else "where it stood is not known"
    return f"{position.cause or 'unknown'}{when}, {stood}"


def _source_of(one: "TranslatedPosition") -> str:
    position = one.position
    life = f"@{position.life}" if position.life > 0 else ""
    return f"{position.topic}{life}-{position.partition}"


def _cells(group: "PlannedGroup", one: "TranslatedPosition") -> tuple[str, ...]:
    target = "" if one.target is None else f"{one.target.topic}-{one.target.partition}"
    remarks = "; ".join(_spelled(remark) for remark in one.remarks)
    return spell_name(group.group), _source_of(one), str(one.position.offset), target, str(one.offset), remarks


def _spelled(remark: "Remark") -> str:
    from archiver.groups.target.translation import Kind

    match remark.kind:
        case Kind.BEYOND:
            return f"{remark.kind}, by {spell_count(remark.number or 0, 'offset')}"
        case Kind.BRANCH:
            return f"{remark.kind} at offset {remark.number}"
        case Kind.EARLIER:
            return f"{remark.kind}; the other one is {remark.number}"
        case Kind.RAISED:
            return f"{remark.kind}: {spell_count(remark.number or 0, 'offset')} of the target are gone"
        case _:
            return str(remark.kind)


def _unset_lines(group: "PlannedGroup") -> Iterator[str]:
    for one in group.unset:
        known = one.position.known_from_ms
        since = f", known as of {moment_from(known)}" if str(one.reason) == "unknown" and known >= 0 else ""
        told = f": {one.told}" if one.told else ""
        if str(one.reason) == "removed":
            told = f", {_removal(one.position)}"
        yield f"{spell_name(group.group)}: {_source_of(one)}: {one.reason}{since}{told}"
