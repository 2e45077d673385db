"""`archiver import`: its options, its run, and its two printers."""

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from archiver.cli.options import add_config, add_format, add_run, parser_of, pattern
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.imports.log_import import LogImportResult, PlannedPartition
    from archiver.imports.partition_import import Hole, ImportedPartition


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    logs = parser_of(ways, "kafka-log", "log directories of Kafka brokers, of any version from 0.8 on")
    add_run(logs, run)
    add_config(logs)
    add_format(logs)
    logs.add_argument(
        "source", nargs="+", type=Path, metavar="DIRECTORY", help="a log directory of a broker (log.dirs)"
    )
    logs.add_argument("--topics", metavar="REGEX", help="only the topics whose whole name matches")
    logs.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="TOPIC=NAME",
        help="archive a topic under another name; may be repeated",
    )
    logs.add_argument("--cluster-id", default="", metavar="ID", help="the cluster of logs without a meta.properties")
    logs.add_argument(
        "--committed-only",
        action="store_true",
        help="only the records that every replica had when the broker last noted it (replication-offset-checkpoint)",
    )
    logs.add_argument(
        "--undecided",
        choices=("leave-out", "include"),
        default="leave-out",
        help="records of transactions whose end is not in the log (default: leave-out)",
    )
    logs.add_argument(
        "--deleted", action="store_true", help="the topics that were being deleted, in place of the others"
    )
    logs.add_argument(
        "--shard",
        type=_shard,
        default=(1, 1),
        metavar="I/N",
        help="import only the Ith of N parts, beside other processes",
    )
    logs.add_argument(
        "--dry-run", action="store_true", help="scan the logs, show what would be imported, and write nothing"
    )


def _shard(text: str) -> tuple[int, int]:
    first, _, second = text.partition("/")
    if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second) <= 10_000):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 1/4")
    return int(first), int(second)


def run(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_archive
    from archiver.backup.reports.ledger import NO_LEDGER
    from archiver.backup.service.run_backup import sink_of, spool_of
    from archiver.config.environment import failpoint
    from archiver.config.load import load_config
    from archiver.imports.log_import import LogImportRequest, LogImportResult, check_archive, plan_import, run_import
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.restore.plan.request import parse_renames

    arm(failpoint())
    wanted = pattern("--topics", options.topics) if options.topics else None
    request = LogImportRequest(
        sources=options.source,
        wanted=lambda topic: wanted is None or wanted.fullmatch(topic) is not None,
        renames=parse_renames(options.rename),
        cluster_id=options.cluster_id,
        deleted=options.deleted,
        committed_only=options.committed_only,
        takes_undecided=options.undecided == "include",
        shard=options.shard[0],
        shards=options.shard[1],
    )
    if options.deleted and not options.rename:
        raise UsageError("--deleted needs --rename TOPIC=NAME: a topic of that name may be in the archive later")
    config, started_s = load_config(options.config), time.monotonic()
    archive = open_archive(config.storage)
    with closing(Progress("import", quiet=options.quiet)) as progress:
        plan = plan_import(request, progress.report)
        if options.dry_run:
            check_archive(archive, plan)
            result = LogImportResult(plan=plan)
        else:
            with spool_of(config) as spool:
                sink = sink_of(config, archive, spool, NO_LEDGER)
                result = run_import(plan, request, sink, Event().wait, progress.report)
    if options.format == "json":
        print_json(import_row(result, time.monotonic() - started_s))
    else:
        print_lines(import_lines(result))
    problems = list(_problems(result))
    for problem in problems:
        complain(problem)
    return NotWholeError.exit_code if problems else 0


def import_row(result: "LogImportResult", seconds: float) -> dict[str, Any]:
    plan = result.plan
    return {
        "seconds": round(seconds, 3),
        "cluster_id": plan.cluster_id,
        "planned": [_planned_row(one) for one in plan.partitions],
        "imported": [_imported_row(one) for one in result.partitions],
        "skipped": list(plan.skipped),
    }


def _planned_row(one: "PlannedPartition") -> dict[str, Any]:
    log = one.log
    return {
        "topic": one.topic,
        "partition": log.folder.partition,
        "topic_id": one.topic_id,
        "folder": str(log.folder.path),
        "files": len(log.folder.files),
        "bytes": log.folder.size,
        "offsets": [log.first, min(log.next, one.until)],
        "replicated_to": log.folder.replicated_to,
        "holes": [_hole_row(hole) for hole in one.holes],
        "lost": [str(path) for path in log.folder.lost],
        "filled": [[one.from_offset, one.until_offset, str(one.folder.path)] for one in log.fills],
        "damaged": [[str(one.file), one.start, one.end] for one in log.damages],
        "cut_bytes": log.cut_bytes,
    }


def _imported_row(one: "ImportedPartition") -> dict[str, Any]:
    return {
        "topic": one.source.topic,
        "partition": one.source.partition,
        "from_offset": one.from_offset,
        "next": one.next,
        "records": one.written.records,
        "segments": one.written.segments,
        "stored_bytes": one.written.stored_bytes,
        "holes": [_hole_row(hole) for hole in one.holes],
        "error": one.error or None,
    }


def _hole_row(hole: "Hole") -> dict[str, Any]:
    return {"until": hole.until, "cause": str(hole.cause), "why": hole.why}


def import_lines(result: "LogImportResult") -> Iterator[str]:
    planned = result.plan.partitions
    if result.partitions:
        yield from table_lines(
            ("topic", "partition", "offsets", "records", "segments", "stored"),
            [
                (
                    one.source.topic,
                    one.source.partition,
                    f"{one.from_offset}..{one.next}",
                    one.written.records,
                    one.written.segments,
                    spell_size(one.written.stored_bytes),
                )
                for one in result.partitions
            ],
        )
    else:
        yield from table_lines(
            ("topic", "partition", "offsets", "files", "size", "folder"),
            [
                (
                    one.topic,
                    one.log.folder.partition,
                    f"{one.log.first}..{min(one.log.next, one.until)}",
                    len(one.log.folder.files),
                    spell_size(one.log.folder.size),
                    str(one.log.folder.path),
                )
                for one in planned
            ],
        )
    for one in planned:
        for fill in one.log.fills:
            yield (
                f"note: {one.topic}-{one.log.folder.partition}: offsets {fill.from_offset} to {fill.until_offset - 1} are"
                f" unreadable there, and are taken from {fill.folder.path}"
            )
        behind = one.log.next - (one.log.folder.replicated_to or 0)
        if one.log.folder.replicated_to is not None and behind > 0 and one.log.next <= one.until:
            yield (
                f"note: {one.topic}-{one.log.folder.partition}: {spell_count(behind, 'offset')} from"
                f" {one.log.folder.replicated_to} on are not known to be committed (--committed-only leaves them out)"
            )
    for line in result.plan.skipped:
        yield f"note: {line}"


def _problems(result: "LogImportResult") -> Iterator[str]:
    planned: dict[tuple[str, int], set[int]] = {}  # the ends of holes, by partition
    for one in result.plan.partitions:
        name, holes = f"{one.topic}-{one.log.folder.partition}", one.holes
        planned[one.topic, one.log.folder.partition] = {hole.until for hole in holes}
        for hole in holes:
            if hole.cause != "expired":
                yield f"{name}: offsets up to {hole.until - 1} are left out: {hole.why}"
        yield from (f"{name}: {problem}" for problem in _problems_of_files(one))
    for done in result.partitions:
        known = planned[done.source.topic, done.source.partition]
        for hole in done.holes:
            if hole.until not in known:
                yield f"{done.source}: offsets up to {hole.until - 1} are left out: {hole.why}"
        if done.error:
            yield done.error


def _problems_of_files(one: "PlannedPartition") -> Iterator[str]:
    folder = one.log.folder
    if not folder.files:
        yield f"{folder.path} has no log file"
    end = max(one.log.next, folder.files[-1].base if folder.files else 0)
    if folder.replicated_to is not None and end < folder.replicated_to:
        yield f"its log ends at offset {end}, but records up to offset {folder.replicated_to - 1} were committed"
    if one.has_no_checkpoint:
        yield "its broker noted no replication-offset-checkpoint, so --committed-only imports nothing of it"
    for index in folder.lost:
        yield f"the log file of {index} is missing"
    if one.log.cut_bytes:
        yield f"the last {one.log.cut_bytes:,} bytes of its last file are no whole batch"
