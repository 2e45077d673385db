"""`archiver groups fold`: its options, its run, and its two printers."""

import argparse
from typing import TYPE_CHECKING, Any

from archiver.cli.jobs import add_job
from archiver.cli.options import add_archive, add_format, archive_config
from archiver.cli.output import complain, print_json, print_line
from archiver.errors import FalseFactsError, NotWholeError
from archiver.process.output.text import spell_count

if TYPE_CHECKING:
    from archiver.groups.log.folding import FoldPlan, MadeFold


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run_fold_command)
    add_archive(parser)
    add_format(parser)
    parser.add_argument("--dry-run", action="store_true", help="tell what there is to fold, and write nothing")


def run_fold_command(options: argparse.Namespace) -> int:
    storage = archive_config(options).storage  # before the kernels are imported, which may compile them

    from archiver.archive.format.handle import open_archive
    from archiver.archive.reading.catalog import find_topic
    from archiver.config.environment import failpoint
    from archiver.groups.log.folding import plan_folds, run_fold
    from archiver.groups.log.folds import Folds
    from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
    from archiver.process.running.failpoints import arm

    arm(failpoint())
    archive, problems = open_archive(storage), list[str]()
    topic = find_topic(archive, OFFSETS_TOPIC, use=storage.index, report_problem=problems.append)
    rows = []
    folds = Folds.of(archive, problems.append)
    for plan in plan_folds(topic, folds):  # one after the other: each may need memory for all its positions
        made, refusal = None, plan.refusal
        if plan.is_due and not options.dry_run:
            try:
                made = run_fold(folds, plan)
            except (NotWholeError, FalseFactsError) as error:
                refusal = str(error)
        rows.append(fold_row(plan, made, refusal))
        if options.format == "text":
            print_line(fold_line(rows[-1]))
    if options.format == "json":
        print_json({"partitions": rows, "problems": problems})
    for problem in problems:
        complain(problem)
    is_whole = not problems and all(row["state"] != "refused" for row in rows)
    return 0 if is_whole else NotWholeError.exit_code


def fold_row(plan: "FoldPlan", made: "MadeFold | None", refusal: str) -> dict[str, Any]:
    due = "folded" if made is not None else "to fold"
    row: dict[str, Any] = {
        "partition": plan.partition,
        "life": plan.life,
        "state": "refused" if refusal else due if plan.is_due else "nothing new",
        "from": plan.start,
        "next": plan.next,
        "objects": plan.objects,
    }
    if refusal:
        row["reason"] = refusal
    if made is not None:
        row |= {"read": made.read, "records": made.facts.records, "bytes": made.size_bytes, "key": made.key}
        row |= {"doubts": len(made.facts.doubts)}
    return row


def fold_line(row: dict[str, Any]) -> str:
    name = f"__consumer_offsets-{row['partition']}"
    match row["state"]:
        case "refused":
            return f"{name}: not folded: {row['reason'].removeprefix(f'{name}: ')}"
        case "nothing new":
            return f"{name}: nothing new since offset {row['from']}"
        case "to fold":
            return f"{name}: offsets {row['from']}-{row['next'] - 1} can be folded, of {spell_count(row['objects'], 'object')}"
        case _:
            doubts = f"; {spell_count(row['doubts'], 'range')} of offsets stay in doubt" if row["doubts"] else ""
            return (
                f"{name}: folded up to offset {row['next']}: {spell_count(row['records'], 'record')} of"
                f" {row['bytes']:,} bytes in {row['key']}{doubts}"
            )
