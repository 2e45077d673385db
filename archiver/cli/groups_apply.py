"""`archiver groups apply`: its options, its run, and the two printers of the result for a restore's groups."""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from archiver.cli.chosen_positions import (
    add_restored_positions,
    group_request,
    wanted_positions,
)
from archiver.cli.groups_applied import applied_complaints, applied_lines, applied_row
from archiver.cli.groups_translate import GIVE_AS_OF, open_problems, plan_lines, plan_row
from archiver.cli.options import add_archive, add_format, add_run, add_target, archive_config
from archiver.cli.output import complain, print_json, print_lines
from archiver.process.output.text import spell_count

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
    from archiver.archive.format.handle import open_archive
    from archiver.config.environment import failpoint
    from archiver.config.load import load_target
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.restore.groups.group_restore import GroupRestore, apply_group_plan, read_group_plan, read_positions
    from archiver.restore.groups.unmatched_groups import unmatched_problem
    from archiver.restore.plan.request import check_restore_id

    arm(failpoint())
    asked, target = (
        group_request(archive_config(options), options, wanted_positions(options)),
        load_target(options.target),
    )
    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    archive, problems = open_archive(asked.config.storage), list[str]()
    with closing(Progress("groups", quiet=options.quiet)) as progress:
        positions = read_positions(archive, asked, problems.append)
        plan = asyncio.run(
            read_group_plan(
                archive, kafka, check_restore_id(options.restore, "--restore"), asked, positions, problems.append
            )
        )
        if not plan.groups and (problem := unmatched_problem(archive, asked, plan.restored.sources)):
            problems.append(problem)
        plan, report = asyncio.run(
            apply_group_plan(
                archive,
                kafka,
                plan,
                in_groups(progress.report),
                as_of_ms=asked.as_of_ms,
                is_dry_run=options.dry_run,
            )
        )
    return print_groups(
        GroupRestore(plan=plan, report=report, problems=tuple(problems)), as_json=options.format == "json"
    )


def in_groups(report: Callable[[str], None]) -> Callable[[int, int], None]:
    """Make a reporter of the number of finished groups."""
    return lambda done, total: report(f"{done:,} of {spell_count(total, 'group')}")


def print_groups(found: "GroupRestore", *, as_json: bool) -> int:
    """Print the resulting groups, report unchanged ones, and return the exit code."""
    if as_json:
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
