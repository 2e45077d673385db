"""`archiver verify`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from archiver.cli.jobs import add_job
from archiver.cli.options import (
    add_archive,
    add_copies,
    add_format,
    archive_config,
    copy_choice,
)
from archiver.cli.output import complain, print_json, print_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count

if TYPE_CHECKING:
    from archiver.spark.verify import VerifyResult


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run, "verify")
    add_archive(parser)
    add_format(parser)
    parser.add_argument(
        "--level",
        choices=("listing", "counts", "records"),
        default="listing",
        help="listing: checks object names and metadata, reads no records (default); counts: the blocks of all objects; records: every record (both as a Spark job)",
    )
    parser.add_argument("--topics", metavar="REGEX", help="topics whose whole name matches (default: all)")
    add_copies(parser)
    parser.add_argument(
        "--against-kafka",
        action="store_true",
        help="also compare the archive with the records that the cluster still has (reads them, as a Spark job)",
    )
    parser.add_argument("--since", metavar="TIME", help="read only objects that were put since (2026-11-20T14:00:00Z)")


def run(options: argparse.Namespace) -> int:
    from archiver.config.quantities import parse_moment_ms
    from archiver.process.output.progress import Progress
    from archiver.spark.verify import run_verify
    from archiver.upkeep.object_check import Level

    config = archive_config(options)
    options.job.storage = config.storage
    given = {"level": options.level, "topics": options.topics, "since": options.since}
    options.job.facts["limits"] = {name: value for name, value in given.items() if value is not None}
    with closing(Progress("verify", quiet=options.quiet)) as progress:
        result = run_verify(
            config,
            Level(options.level),
            topics=options.topics,
            choice=copy_choice(options),
            against_kafka=options.against_kafka,
            since_ms=None if options.since is None else parse_moment_ms("--since", options.since),
            notice=progress.report,
        )
    if options.format == "json":
        print_json(verify_row(result))
    else:
        print_lines(verify_lines(result))
    for problem in [*result.problems, *(one.error for one in result.errors)]:
        complain(problem)
    codes = [NotWholeError.exit_code] if result.problems else []
    return max([*codes, *(one.exit_code for one in result.errors)], default=0)


def verify_row(result: "VerifyResult") -> dict[str, Any]:
    listing = result.listing
    return {
        "level": result.level,
        "whole": result.is_whole,
        "topics": listing.topics,
        "partitions": listing.partitions,
        "segments": len(listing.segments),
        "records": listing.records,
        "checked": result.checked,
        "compared": result.compared,
        "seconds": result.seconds,
        "problems": result.problems,
        "errors": [one.error for one in result.errors],
        "notes": result.notes,
    }


def verify_lines(result: "VerifyResult") -> Iterator[str]:
    listing = result.listing
    for note in result.notes:
        yield f"note: {note}"
    read = f", {result.checked:,} of them read" if result.level != "listing" else ""
    yield (
        f"{spell_count(listing.topics, 'topic')}, {spell_count(listing.partitions, 'partition')},"
        f" {spell_count(listing.records, 'record')} in {spell_count(len(listing.segments), 'object')}{read}:"
        f" {result.seconds:.1f} s"
    )
    if result.compared is not None:
        were = spell_count(result.compared, "record that Kafka still has was", "records that Kafka still has were")
        yield f"{were} compared"
    count = len(result.problems) + len(result.errors)
    yield "whole" if result.is_whole else f"NOT WHOLE: {spell_count(count, 'finding')}"
