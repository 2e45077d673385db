"""`archiver cluster`: ACLs, quotas, SCRAM users and configs of the archive's cluster; its options, its runs, and its printers."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import add_archive, add_format, add_run, add_target, archive_config, parser_of
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment, table_lines
from archiver.errors import NotWholeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from archiver.archive.notes.cluster_metadata import NotedPart
    from archiver.kafka.topics.cluster_parts import Part
    from archiver.upkeep.cluster_changes import ClusterDiff

_PARTS: Final = ("acls", "quotas", "users", "broker-configs", "topic-configs")  # as Part spells them
_PASSWORDS: Final = (
    "users: brokers do not return passwords, so the archive has none; set a new one for each of these users: kafka-configs"
    " --alter --entity-type users --entity-name USER --add-config 'SCRAM-SHA-512=[password=...]'"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    shown = parser_of(ways, "show", "show the metadata that backups have noted")
    add_run(shown, run_show)
    compared = parser_of(ways, "diff", "compare a target with the noted metadata, and show what apply would add")
    add_run(compared, partial(_compare, applies=False))
    applied = parser_of(ways, "apply", "add missing rows to a target; changes and deletes nothing")
    add_run(applied, partial(_compare, applies=True))
    for one in (shown, compared, applied):
        add_archive(one)
        add_format(one)
        if one is not shown:
            add_target(one)
        one.add_argument("--part", action="append", choices=_PARTS, help="only this part (may be repeated)")
        one.add_argument(
            "--as-of", metavar="TIME", help="by the notes of this time (2026-11-20T14:00:00Z; default: the newest)"
        )


def run_show(options: argparse.Namespace) -> int:
    noted = _noted(options)
    if options.format == "json":
        print_json({"parts": [noted_row(part, one) for part, one in noted.items()]})
    else:
        print_lines(line for part, one in noted.items() for line in _noted_lines(part, one))
    return NotWholeError.exit_code if any(one.found.unread is not None for one in noted.values()) else 0


def _noted(options: argparse.Namespace) -> "Mapping[Part, NotedPart]":
    from archiver.archive.format.handle import open_archive
    from archiver.archive.notes.cluster_metadata import read_noted_parts
    from archiver.config.quantities import parse_moment_ms
    from archiver.kafka.topics.cluster_parts import Part
    from archiver.process.values.json_values import LARGEST

    until_ms = LARGEST if options.as_of is None else parse_moment_ms("--as-of", options.as_of)
    parts = [Part(name) for name in _PARTS if name in (options.part or _PARTS)]
    return read_noted_parts(open_archive(archive_config(options).storage), parts, until_ms)


def noted_row(part: "Part", one: "NotedPart") -> dict[str, Any]:
    rows = [dict(zip(part.columns, row, strict=True)) for row in one.found.rows]
    noted = moment(one.put_ms) if one.put_ms else None
    return {"part": part, "noted": noted, "unread": one.found.unread, "rows": rows}


def _noted_lines(part: "Part", one: "NotedPart") -> "Iterator[str]":
    noted = f", noted {moment(one.put_ms)}" if one.put_ms else ""
    yield f"{part}{noted}: {one.found.unread or f'{len(one.found.rows):,}'}"
    if one.found.rows:
        yield from table_lines(part.columns, one.found.rows)
    yield ""


def _compare(options: argparse.Namespace, *, applies: bool) -> int:
    from archiver.config.load import load_target
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.upkeep.cluster_changes import RowState, diff_cluster

    target = load_target(options.target)
    kafka = KafkaSettings.of(target)
    diff = diff_cluster(kafka, _noted(options), applies=applies)
    if options.format == "json":
        print_json(diff_row(diff, is_applied=applies))
    else:
        print_lines(_diff_lines(diff, is_applied=applies))
    for line in diff.unknown:
        complain(line)
    if any(one.part == "users" for one in diff.of(RowState.BY_HAND)):
        complain(_PASSWORDS)
    left = diff.of(RowState.BY_HAND, RowState.DIFFERS, *(() if applies else (RowState.ADDED,)))
    return NotWholeError.exit_code if left or diff.unknown else 0


def _diff_lines(diff: "ClusterDiff", *, is_applied: bool) -> "Iterator[str]":
    from archiver.upkeep.cluster_changes import RowState

    rows = [
        (
            one.part,
            "added" if is_applied and one.state is RowState.ADDED else one.state,
            " ".join(cell for cell in one.row if cell),
            one.on_target or "",
        )
        for one in diff.changes
    ]
    yield from table_lines(("part", "is", "row", "on the target"), rows)


def diff_row(diff: "ClusterDiff", *, is_applied: bool) -> dict[str, Any]:
    return {
        "changes": [
            {
                "part": one.part,
                "state": one.state.name.lower(),
                "row": dict(zip(one.part.columns, one.row, strict=True)),
                "on_target": one.on_target,
            }
            for one in diff.changes
        ],
        "unknown": diff.unknown,
        "is_applied": is_applied,
    }
