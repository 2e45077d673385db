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
from archiver.cli.output import complain, is_one_terminal, print_json, print_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count

if TYPE_CHECKING:
    from archiver.spark.verify import VerifyResult
    from archiver.upkeep.sampling import Sample


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run, "verify")
    add_archive(parser)
    add_format(parser)
    parser.add_argument(
        "--level",
        choices=("listing", "counts", "records"),
        help="listing: checks object names and metadata, reads no records (default without --sample); counts: the blocks of all objects; records: every record, default with --sample (both as a Spark job)",
    )
    parser.add_argument("--topics", metavar="REGEX", help="topics whose whole name matches (default: all)")
    add_copies(parser)
    parser.add_argument(
        "--against-kafka",
        action="store_true",
        help="also compare the archive with the records that the cluster still has (reads them, as a Spark job)",
    )
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--since", metavar="TIME", help="read only objects that were put since (2026-11-20T14:00:00Z)")
    some.add_argument(
        "--sample",
        metavar="PART",
        type=_sample,
        help="read only one part of the objects, another one each day (by the date, UTC): 5%%, or a size such as 50GiB; or the part"
        " that is given, such as 3/30",
    )


def _sample(text: str) -> "Sample":
    from archiver.upkeep.sampling import Sample

    try:
        return Sample.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


def run(options: argparse.Namespace) -> int:
    from archiver.config.quantities import parse_moment_ms

    config = archive_config(options)  # before the kernels are imported, which may compile them

    from archiver.process.output.progress import Progress
    from archiver.spark.verify import run_verify
    from archiver.upkeep.object_check import Level

    options.job.storage = config.storage
    given = {"level": options.level, "topics": options.topics, "since": options.since}
    options.job.facts["limits"] = {name: value for name, value in given.items() if value is not None}
    with closing(Progress("verify", quiet=options.quiet)) as progress:
        result = run_verify(
            config,
            Level(options.level or (Level.LISTING if options.sample is None else Level.RECORDS)),
            topics=options.topics,
            choice=copy_choice(options),
            against_kafka=options.against_kafka,
            since_ms=None if options.since is None else parse_moment_ms("--since", options.since),
            sample=options.sample,
            notice=progress.report,
        )
    if options.format == "json":
        print_json(verify_row(result))
    else:
        print_lines(verify_lines(result))
    for problem in _findings(result) if options.format == "json" or not is_one_terminal() else ():
        complain(problem)
    codes = [NotWholeError.exit_code] if result.problems else []
    return max([*codes, *(one.exit_code for one in result.errors)], default=0)


def _findings(result: "VerifyResult") -> list[str]:
    return [*result.problems, *(one.error for one in result.errors)]


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
        "part": None if result.part is None else str(result.part),
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
    yield from (f"finding: {one}" for one in _findings(result))
    read = f", {result.checked:,} of them read" if result.level != "listing" else ""
    read += "" if result.part is None else f" (part {result.part})"
    yield (
        f"{spell_count(listing.topics, 'topic')}, {spell_count(listing.partitions, 'partition')},"
        f" {spell_count(listing.records, 'record')} in {spell_count(len(listing.segments), 'object')}{read}:"
        f" {result.seconds:.1f} s"
    )
    if result.compared is not None:
        were = spell_count(result.compared, "record that Kafka still has was", "records that Kafka still has were")
        yield f"{were} compared"
    yield "whole" if result.is_whole else f"NOT WHOLE: {spell_count(len(_findings(result)), 'finding')}"
