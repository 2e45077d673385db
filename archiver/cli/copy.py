"""`archiver copy`: its options, its run, and its two printers."""

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver.cli.jobs import add_job
from archiver.cli.options import add_archive, add_format, archive_config
from archiver.cli.output import complain, print_json, print_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.config.model import StorageConfig
    from archiver.upkeep.copying import CopyResult

_S3 = "s3://"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="s3://BUCKET/PREFIX|FILE",
        help="the second archive: an address at the same store, or a YAML file with a storage: section, for another store, region"
        " or profile",
    )


def run(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_patient_archive
    from archiver.config.environment import failpoint
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.upkeep.copying import copy_archive

    storage, started_s = archive_config(options).storage, time.monotonic()
    second = _second(storage, options.to)
    arm(failpoint())
    with closing(Progress("copy", quiet=options.quiet)) as progress:
        result = copy_archive(open_patient_archive(storage), open_patient_archive(second), progress.report)
    if options.format == "json":
        print_json(copy_row(result, time.monotonic() - started_s))
    else:
        print_lines(copy_lines(result, second.url))
    for problem in result.problems:
        complain(problem)
    return NotWholeError.exit_code if result.problems else 0


def _second(first: "StorageConfig", to: str) -> "StorageConfig":
    """Return the storage of the second archive. Raises UsageError if one archive is below the other."""
    from archiver.archive.format.layout import Layout
    from archiver.config.load import config_from_url, load_config
    from archiver.store.client import configured_endpoint

    if to.startswith(_S3):
        second = first.model_copy(update={"url": config_from_url(to).storage.url})
    else:
        second = load_config(Path(to)).storage
    is_same_bucket = (configured_endpoint(first), first.bucket) == (configured_endpoint(second), second.bucket)
    shorter, longer = sorted((Layout(first.prefix).root, Layout(second.prefix).root), key=len)
    if is_same_bucket and longer.startswith(shorter):
        raise UsageError(f"--to {second.url}: overlaps with {first.url}; give another bucket or prefix")
    return second


def copy_row(result: "CopyResult", seconds: float) -> dict[str, Any]:
    return {
        "objects": result.objects,
        "bytes": result.bytes,
        "whole": not result.problems,
        "seconds": round(seconds, 3),
        "problems": result.problems,
    }


def copy_lines(result: "CopyResult", url: str) -> Iterator[str]:
    yield f"{spell_count(result.objects, 'object')} of {spell_size(result.bytes)} copied to {url}"
    yield (
        f"NOT WHOLE: {spell_count(len(result.problems), 'finding')}" if result.problems else "nothing is missing there"
    )
