"""`archiver restore list` and `restore show`: the restores that have notes in the archive. Their runs, and their printers."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import add_archive, add_format, add_run, archive_config, parser_of
from archiver.cli.output import print_json, print_lines
from archiver.cli.spelling import moment, table_lines
from archiver.process.output.text import spell_count, spell_size, spell_some

if TYPE_CHECKING:
    from archiver.restore.report.noted_restores import NotedRestore, PlannedTopic

_MOST_NAMED: Final = 3


def add_ways(parser: argparse.ArgumentParser) -> None:
    """Add the two commands; without one of them `restore` restores."""
    ways = parser.add_subparsers(title="other commands", metavar="[list | show ID]", required=False)
    listed = parser_of(ways, "list", "list the restores that have notes in the archive")
    add_run(listed, run_list)
    add_archive(listed)
    add_format(listed)
    shown = parser_of(ways, "show", "show the planned and the finished topics of one restore")
    add_run(shown, run_show)
    add_archive(shown)
    add_format(shown)
    shown.add_argument("shown", metavar="ID")


def run_list(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_archive
    from archiver.restore.report.noted_restores import list_restores

    found = list_restores(open_archive(archive_config(options).storage))
    if options.format == "json":
        print_json({"restores": [list_row(one) for one in found]})
    else:
        print_lines(list_lines(found))
    return 0


def run_show(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from archiver.archive.format.handle import open_archive
    from archiver.restore.report.noted_restores import read_restore

    restore, topics = read_restore(open_archive(archive_config(options).storage), options.shown)
    if options.format == "json":
        print_json(list_row(restore) | {"topics": [asdict(one) for one in topics]})
    else:
        print_lines(show_lines(restore, topics))
    return 0


def list_row(restore: "NotedRestore") -> dict[str, Any]:
    return {
        "id": restore.restore_id,
        "begun": moment(restore.begun_ms),
        "last_note": moment(restore.last_ms),
        "targets": sorted(restore.planned),
        "finished_targets": sorted(restore.finished),
        "is_finished": restore.is_finished,
    }


def list_lines(restores: Sequence["NotedRestore"]) -> Iterator[str]:
    if not restores:
        yield "the archive has no notes of a restore"
        return
    rows = [
        (
            one.restore_id,
            moment(one.begun_ms),
            moment(one.last_ms),
            spell_some(sorted(one.planned), _MOST_NAMED),
            f"{len(one.planned.keys() & one.finished)} of {spell_count(len(one.planned), 'topic')}",
        )
        for one in restores
    ]
    yield from table_lines(("id", "begun", "last note", "into", "finished"), rows)


def show_lines(restore: "NotedRestore", topics: Sequence["PlannedTopic"]) -> Iterator[str]:
    rows = [
        (
            one.source + (f"@{one.life}" if one.life else ""),
            one.target,
            str(one.partitions),
            f"{one.records:,}",
            spell_size(one.stored_bytes),
            one.cluster_id,
            "finished" if one.target in restore.finished else "not finished",
        )
        for one in topics
    ]
    yield from table_lines(("topic", "into", "partitions", "records", "stored", "cluster", ""), rows)
    yield from list_lines([restore])
    if not restore.is_finished:
        yield f"to continue it, run the same command again with --id {restore.restore_id}"
