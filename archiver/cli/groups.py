"""`archiver groups`: its commands; and of `show` the run, and the two printers."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from archiver.cli import groups_apply, groups_fold, groups_rollback, groups_translate
from archiver.cli.chosen_positions import add_chosen_positions, wanted_positions
from archiver.cli.options import add_archive, add_format, add_run, archive_config, parser_of
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment
from archiver.errors import NotWholeError
from archiver.process.text import spell_count, spell_table

if TYPE_CHECKING:
    from archiver.groups.archived_log import ArchivedLog
    from archiver.groups.shown import ShownGroups, ShownPosition


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = parser_of(ways, "show", "where consumer groups stood, by the archive alone")
    add_run(show, run_show)
    add_archive(show)
    add_format(show)
    add_chosen_positions(show)
    translate = parser_of(ways, "translate", "where consumer groups are to stand on the target of a restore")
    groups_translate.add_options(translate)
    apply = parser_of(ways, "apply", "set groups of a target to where they stood, through the maps of a restore")
    groups_apply.add_options(apply)
    rollback = parser_of(ways, "rollback", "set groups of a target back to where they stood before they were set")
    groups_rollback.add_options(rollback)
    fold = parser_of(ways, "fold", "put together what older records of group positions still say")
    groups_fold.add_options(fold)


def run_show(options: argparse.Namespace) -> int:
    from archiver.archive.handle import open_archive
    from archiver.groups.shown import show_groups

    storage = archive_config(options).storage
    problems: list[str] = []
    found = show_groups(open_archive(storage), wanted_positions(options), storage.index, problems.append)
    if options.format == "json":
        print_json(groups_row(found, problems))
    else:
        print_lines(groups_lines(found))
    for problem in problems:
        complain(problem)
    return NotWholeError.exit_code if problems else 0


def groups_row(found: "ShownGroups", problems: list[str]) -> dict[str, Any]:
    return {
        "positions": [position_row(one) for one in found.positions],
        "offsets_partitions": [_log_row(log) for log in found.logs],
        "snapshot_ms": found.snapshot_ms,
        "problems": problems,
    }


def position_row(one: "ShownPosition") -> dict[str, Any]:
    position = one.position
    return {
        "group": position.group,
        "topic": position.topic,
        "life": None if position.life < 0 else position.life,
        "partition": position.partition,
        "state": str(position.state),
        "offset": None if position.offset < 0 else position.offset,
        "leader_epoch": None if position.leader_epoch < 0 else position.leader_epoch,
        "metadata": position.metadata,
        "committed_ms": None if position.commit_ms < 0 else position.commit_ms,
        "removed_ms": None if position.removed_ms < 0 else position.removed_ms,
        "lag": one.lag,
        "source": one.source,
    }


def _log_row(log: "ArchivedLog") -> dict[str, Any]:
    return {
        "partition": log.partition,
        "next": log.next,
        "first_ms": log.first_ms,
        "last_ms": log.last_ms,
        "other_records": log.rows.others,
    }


def groups_lines(found: "ShownGroups") -> Iterator[str]:
    yield from spell_table(
        ("group", "topic", "partition", "offset", "lag", "committed", "from", ""),
        [_position_cells(one) for one in found.positions],
    )
    groups = len({one.position.group for one in found.positions})
    yield f"{spell_count(len(found.positions), 'position')} of {spell_count(groups, 'group')}"
    for log in found.logs:
        if log.last_ms is not None:
            yield f"__consumer_offsets-{log.partition}: archived up to offset {log.next}, of {moment(log.last_ms)}"
    if found.snapshot_ms is not None:
        yield f"the newest snapshot of positions is of {moment(found.snapshot_ms)}"


def _position_cells(one: "ShownPosition") -> tuple[str, ...]:
    position = one.position
    topic = position.topic + (f"@{position.life}" if position.life > 0 else "")
    remarks = [] if position.state == "set" else [str(position.state)]
    return (
        position.group,
        topic,
        str(position.partition),
        "?" if position.offset < 0 else str(position.offset),
        "" if one.lag is None else f"{one.lag:,}",
        "" if position.commit_ms < 0 else moment(position.commit_ms),
        one.source,
        ", ".join([*remarks, *(["its topic is not archived"] if position.life == -1 else [])]),
    )
