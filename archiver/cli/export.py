"""`archiver export`: its options, its run, and its two printers."""

import argparse
import re
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver.cli.options import add_archive, add_format, add_run, archive_config, parser_of
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_size

if TYPE_CHECKING:
    from archiver.archive.format.handle import Archive
    from archiver.config.model import IndexUse
    from archiver.groups.positions.archived_position import ArchivedPosition
    from archiver.imports.tools.kafka_backup_export import ExportResult


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    files = parser_of(ways, "kafka-backup", "topics of the archive, as files of itadventurer/kafka-backup")
    add_run(files, run)
    add_archive(files)
    add_format(files)
    files.add_argument("target", type=Path, metavar="DIRECTORY", help="a new or an empty directory")
    files.add_argument(
        "--topics", metavar="REGEX", help="full-match regular expression (default: all but those that begin with __)"
    )


def run(options: argparse.Namespace) -> int:
    storage, started_s = archive_config(options).storage, time.monotonic()  # before the kernels are imported

    from archiver.archive.format.handle import open_archive
    from archiver.imports.tools.kafka_backup_export import ExportRequest, run_export
    from archiver.process.output.progress import Progress

    archive = open_archive(storage)
    problems: list[str] = []
    request = ExportRequest(target=options.target, topics=options.topics)
    with closing(Progress("export", quiet=options.quiet)) as progress:
        positions = _positions(archive, storage.index, problems)
        result = run_export(archive, request, positions, storage.index, progress.report)
    if options.format == "json":
        print_json(export_row(result, time.monotonic() - started_s))
    else:
        print_lines(export_lines(result))
    for line in (*result.notes, *problems, *result.problems):
        complain(line)
    return NotWholeError.exit_code if problems or result.problems else 0


def _positions(archive: "Archive", use: "IndexUse", problems: list[str]) -> "Collection[ArchivedPosition]":
    """Return the newest positions of groups; none if the archive has none."""
    from archiver.codec.selection import LAST_LONG
    from archiver.groups.positions.shown import PositionFilter, show_groups

    every = re.compile(".*", re.DOTALL)
    try:
        found = show_groups(
            archive, PositionFilter(as_of_ms=LAST_LONG, groups=every, topics=every), use, problems.append
        )
    except UsageError:  # nothing of groups is archived
        return ()
    return [one.position for one in found.positions]


def export_row(result: "ExportResult", seconds: float) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 3),
        "exported": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "records": one.records,
                "bytes": one.written_bytes,
                "segments": one.segments,
                "groups": one.groups,
            }
            for one in result.partitions
        ],
    }


def export_lines(result: "ExportResult") -> Iterator[str]:
    yield from table_lines(
        ("topic", "partition", "records", "segments", "size", "groups"),
        [
            (one.topic, one.partition, one.records, one.segments, spell_size(one.written_bytes), one.groups)
            for one in result.partitions
        ],
    )
