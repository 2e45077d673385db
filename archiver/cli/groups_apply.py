"""`archiver groups apply`: its options, its run, and the two printers of the result for a restore's groups."""

import argparse
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from archiver.cli.chosen_positions import add_restored_positions, check_files, restored_positions
from archiver.cli.groups_applied import applied_complaints, applied_lines, applied_row
from archiver.cli.groups_translate import GIVE_AS_OF, open_problems, plan_lines, plan_row
from archiver.cli.options import add_archive, add_format, add_run, add_target
from archiver.cli.output import complain, print_json, print_lines

if TYPE_CHECKING:
    from archiver.restore.groups.group_restore import GroupRestore


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    add_target(parser)
    add_restored_positions(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would be set; change nothing")


def run(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm

    check_files(options)

    from archiver.restore.groups.group_restore import read_positions, restore_groups

    arm(failpoint())
    archive, kafka, restore_id, asked = restored_positions(options)
    problems = list[str]()
    with closing(Progress("groups", quiet=options.quiet)) as progress:
        positions = read_positions(archive, asked, problems.append)
        found = restore_groups(
            archive, kafka, restore_id, asked, positions, problems, progress.report, is_dry_run=options.dry_run
        )
    if options.format == "json":
        print_json(groups_row(found))
    else:
        print_lines(groups_lines(found))
    complain_of_groups(found)
    return found.exit_code


def complain_of_groups(found: "GroupRestore", of_other_moments: str = GIVE_AS_OF) -> None:
    """Report unset positions, and why. `of_other_moments`: advice on positions that are known as of another time."""
    if not found.plan.groups:
        complain("no group that --groups matches has an archived position; none was set")
    for problem in [
        *found.plan.warnings,
        *found.problems,
        *open_problems(found.plan, of_other_moments),
        *applied_complaints(found.report),
    ]:
        complain(problem)


def groups_row(found: "GroupRestore") -> dict[str, Any]:
    return {"plan": plan_row(found.plan, list(found.problems)), "applied": applied_row(found.report)}


def groups_lines(found: "GroupRestore") -> Iterator[str]:
    yield from plan_lines(found.plan)
    yield ""
    yield from applied_lines(found.report)
