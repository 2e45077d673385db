"""`archiver query`: its options, its run, and its rows as text or JSON lines."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from archiver.cli.options import (
    add_archive,
    add_copies,
    add_format,
    add_life,
    add_run,
    add_times,
    archive_config,
)
from archiver.cli.output import complain, print_lines, write
from archiver.cli.spelling import table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import printable_json

if TYPE_CHECKING:
    from archiver.spark.table.query import QueryAnswer


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument(
        "sql", metavar="SQL", help='such as "SELECT partition, count(*) FROM `my-topic` GROUP BY partition"'
    )
    add_life(parser)
    add_copies(parser)
    parser.add_argument("--partitions", metavar="LIST", help="read only these partitions of each topic (0,3-5)")
    add_times(parser)
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        help="go on past damage, and report which offsets are missing; reads everything twice: first to find the damage",
    )


def run(options: argparse.Namespace) -> int:
    from archiver.config.quantities import parse_moment_ms
    from archiver.process.output.progress import Progress
    from archiver.spark.query import run_query

    times = {"from": options.from_time, "until": options.until_time}
    for name, text in times.items():
        if text is not None:
            parse_moment_ms(f"--{name}", text)
    given = {"life": options.life, "instance": options.instance, "partitions": options.partitions, **times}
    chosen = {name: str(value) for name, value in given.items() if value is not None}
    if options.history:
        chosen["history"] = "true"
    storage = archive_config(options).storage
    with (
        closing(Progress("query", quiet=options.quiet)) as progress,
        run_query(storage, options.sql, chosen, progress.report, skips_damage=options.skip_damaged) as answer,
    ):
        progress.close()
        for missing in answer.skipped:
            complain(f"skipped: {missing}")
        exit_code = NotWholeError.exit_code if answer.skipped else 0
        if options.format == "text":
            print_lines(table_lines(answer.columns, answer.rows, spell=str))
        else:
            for line in query_rows(answer):
                if not write(line):
                    break
    return exit_code


def query_rows(answer: "QueryAnswer") -> Iterator[str]:
    """Yield each row as a line of JSON."""
    doubled = sorted(name for name, count in Counter(answer.columns).items() if count > 1)
    if doubled:
        raise UsageError(f"two columns are called {', '.join(doubled)}; name them with AS, or take --format text")
    for row in answer.rows:
        yield printable_json(json.dumps(dict(zip(answer.columns, row, strict=True)), ensure_ascii=False))
