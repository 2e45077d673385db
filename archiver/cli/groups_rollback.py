"""`archiver groups rollback`: its options, and its run. Its printers are in groups_applied."""

import argparse
import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from archiver.cli.chosen_positions import check_files
from archiver.cli.groups_applied import applied_complaints, applied_lines, applied_row
from archiver.cli.options import add_archive, add_format, add_run, add_target, archive_config, pattern
from archiver.cli.output import complain, print_json, print_lines

if TYPE_CHECKING:
    from archiver.groups.target.application_decisions import ApplicationReport


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    add_target(parser)
    parser.add_argument("--restore", required=True, metavar="ID", help="the restore whose groups were set")
    parser.add_argument("--groups", metavar="REGEX", default=".*", help="full-match regular expression (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="show what would be set back; change nothing")


def run(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_archive
    from archiver.config.environment import failpoint
    from archiver.config.load import load_target

    check_files(options)

    from archiver.groups.target.application import roll_back_positions
    from archiver.kafka.brokers.client import KafkaClient
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.restore.plan.request import check_restore_id

    restore_id = check_restore_id(options.restore, "--restore")
    groups = pattern("--groups", options.groups)
    target = load_target(options.target)
    kafka = KafkaSettings.of(target)
    archive = open_archive(archive_config(options).storage)
    arm(failpoint())
    with closing(Progress("groups", quiet=options.quiet)) as progress:

        async def roll_back() -> "ApplicationReport":
            async with KafkaClient(kafka) as client:
                return await roll_back_positions(
                    client, archive, restore_id, groups, progress.report, is_dry_run=options.dry_run
                )

        found = asyncio.run(roll_back())
    if options.format == "json":
        print_json(applied_row(found))
    else:
        print_lines(applied_lines(found))
    for problem in applied_complaints(found):
        complain(problem)
    return found.exit_code
