"""`archiver import`: its formats with their options, its run, and its two printers."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from archiver.cli.jobs import add_job
from archiver.cli.options import add_config, add_format, parser_of, pattern
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_size

if TYPE_CHECKING:
    from archiver.imports.filling.foreign_import import ForeignPartition
    from archiver.imports.filling.import_run import ImportPlan, ImportRequest, ImportResult, PlannedPartition
    from archiver.imports.filling.partition_fill import ImportedPartition, ImportHole

Report = Callable[[str], None]
Wanted = Callable[[str], bool]


class _Format(NamedTuple):
    """A format of the input: its own options, and how an import of it is planned."""

    summary: str
    source: str  # help of its arguments
    cluster: str  # help of --cluster-id
    add_options: Callable[[argparse.ArgumentParser], None]
    plan: Callable[[argparse.Namespace, "dict[str, Any]", Report], "tuple[ImportRequest, ImportPlan]"]


def _foreign(
    kind: str, find: "Callable[[argparse.Namespace, Wanted], Sequence[ForeignPartition]]"
) -> Callable[..., Any]:
    """Return how an import of another tool's files is planned; `find` finds their partitions."""

    def plan(
        options: argparse.Namespace, asked: "dict[str, Any]", report: Report
    ) -> "tuple[ImportRequest, ImportPlan]":
        from archiver.imports.filling.foreign_import import plan_foreign
        from archiver.imports.filling.import_run import ImportRequest

        request = ImportRequest(**asked)
        found = find(options, request.wanted)
        return request, plan_foreign(kind, found, request, report, reads_all=options.dry_run)

    return plan


def _add_no_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: this format has no options of its own."""


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--committed-only",
        action="store_true",
        help="only the records that every replica had when the broker last noted it (replication-offset-checkpoint)",
    )
    parser.add_argument(
        "--undecided",
        choices=("leave-out", "include"),
        default="leave-out",
        help="records of transactions whose end is not in the log (default: leave-out)",
    )
    parser.add_argument(
        "--deleted", action="store_true", help="the topics that were being deleted, in place of the others"
    )


def _plan_logs(
    options: argparse.Namespace, asked: "dict[str, Any]", report: Report
) -> "tuple[ImportRequest, ImportPlan]":
    from archiver.imports.logs.log_import import LogImportRequest, plan_import

    request = LogImportRequest(
        deleted=options.deleted,
        committed_only=options.committed_only,
        takes_undecided=options.undecided == "include",
        **asked,
    )
    if options.deleted and not options.rename:
        raise UsageError("--deleted needs --rename TOPIC=NAME: a topic of that name may be in the archive later")
    return request, plan_import(request, report)


def _find_osodevops(options: argparse.Namespace, wanted: Wanted) -> "Sequence[ForeignPartition]":
    from archiver.imports.tools.osodevops import find_partitions

    return find_partitions(options.source, wanted)


def _add_avro_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layout", choices=("trivadis", "kafka-data-keep"), required=True, help="the tool that wrote the files"
    )
    parser.add_argument(
        "--empty-is-null",
        action="store_true",
        help="import empty keys and values as null: trivadis wrote nulls so",
    )


def _find_avro(options: argparse.Namespace, wanted: Wanted) -> "Sequence[ForeignPartition]":
    from archiver.imports.tools.avro_layouts import find_partitions

    return find_partitions(options.source, wanted, layout=options.layout, empty_is_null=options.empty_is_null)


def _add_kafka_07_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-positions",
        action="store_true",
        help="give each record a header with its byte position in the log, which was its offset (kafka-0.7-position)",
    )


def _find_kafka_07(options: argparse.Namespace, wanted: Wanted) -> "Sequence[ForeignPartition]":
    from archiver.imports.tools.kafka_07 import find_partitions

    return find_partitions(options.source, wanted, keeps_positions=options.keep_positions)


def _find_kafka_backup(options: argparse.Namespace, wanted: Wanted) -> "Sequence[ForeignPartition]":
    from archiver.imports.tools.kafka_backup import find_partitions

    return find_partitions(options.source, wanted)


_OF_ITS_FILES: Final = "the cluster whose records these are: its id, or any name for it"
FORMATS: Final = {
    "kafka-log": _Format(
        "log directories of Kafka brokers, of any version from 0.8 on",
        "a log directory of a broker (log.dirs)",
        "the cluster of logs without a meta.properties",
        _add_log_options,
        _plan_logs,
    ),
    "kafka-0.7": _Format(
        "log directories of Kafka 0.6 and 0.7",
        "a log directory of a broker (log.dir)",
        _OF_ITS_FILES,
        _add_kafka_07_options,
        _foreign("kafka-0.7", _find_kafka_07),
    ),
    "osodevops": _Format(
        "archives of osodevops/kafka-backup",
        "a local copy of an archive: the folder with its manifest.json",
        "the cluster, in place of the manifest's source_cluster_id",
        _add_no_options,
        _foreign("osodevops", _find_osodevops),
    ),
    "avro": _Format(
        "Avro files of TrivadisPF/kafka-backup or kafka-data-keep",
        "a local copy of the files: a folder with those of one or more topics",
        _OF_ITS_FILES,
        _add_avro_options,
        _foreign("avro", _find_avro),
    ),
    "kafka-backup": _Format(
        "files of itadventurer/kafka-backup, a Kafka Connect sink",
        "the target.dir of the sink, which has a folder for each topic",
        _OF_ITS_FILES,
        _add_no_options,
        _foreign("kafka-backup", _find_kafka_backup),
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for kind, one in FORMATS.items():
        _add_format(parser_of(ways, kind, one.summary), kind, one)


def _add_format(parser: argparse.ArgumentParser, kind: str, one: _Format) -> None:
    add_job(parser, run)
    parser.set_defaults(kind=kind)
    add_config(parser)
    add_format(parser)
    parser.add_argument("source", nargs="+", type=Path, metavar="DIRECTORY", help=one.source)
    parser.add_argument("--topics", metavar="REGEX", help="only the topics whose whole name matches")
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="TOPIC=NAME",
        help="archive a topic under another name; may be repeated",
    )
    parser.add_argument("--cluster-id", default="", metavar="ID", help=one.cluster)
    one.add_options(parser)
    parser.add_argument(
        "--shard",
        type=_shard,
        default=(1, 1),
        metavar="I/N",
        help="import only the Ith of N parts, beside other processes",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="read the input, show what would be imported, and write nothing"
    )


def _shard(text: str) -> tuple[int, int]:
    first, _, second = text.partition("/")
    if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second) <= 10_000):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 1/4")
    return int(first), int(second)


def run(options: argparse.Namespace) -> int:
    from archiver.config.load import load_config

    config, started_s = load_config(options.config), time.monotonic()  # before the kernels are imported

    from archiver.archive.format.handle import open_archive
    from archiver.backup.reports.ledger import NO_LEDGER
    from archiver.backup.service.run_backup import sink_of, spool_of
    from archiver.config.environment import failpoint
    from archiver.imports.filling.import_run import ImportResult, check_archive, run_import
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm

    arm(failpoint())
    archive = open_archive(config.storage)
    with closing(Progress("import", quiet=options.quiet)) as progress:
        request, plan = FORMATS[options.kind].plan(options, _asked(options), progress.report)
        if options.dry_run:
            check_archive(archive, plan)
            result = ImportResult(plan=plan, is_dry_run=True)
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
    return exit_code(result, problems)


def exit_code(result: "ImportResult", problems: Sequence[str]) -> int:
    """Return the highest code of a failed partition, or of what is left out."""
    return max([NotWholeError.exit_code if problems else 0, *(one.exit_code for one in result.partitions)])


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a request that all formats have."""
    from archiver.restore.plan.request import parse_renames

    wanted = pattern("--topics", options.topics) if options.topics else None
    return {
        "sources": options.source,
        "wanted": lambda topic: wanted is None or wanted.fullmatch(topic) is not None,
        "renames": parse_renames(options.rename),
        "cluster_id": options.cluster_id,
        "shard": options.shard[0],
        "shards": options.shard[1],
    }


def import_row(result: "ImportResult", seconds: float) -> dict[str, Any]:
    plan = result.plan
    return {
        "seconds": round(seconds, 3),
        "cluster_id": plan.cluster_id,
        "planned": [_planned_row(one) for one in plan.partitions],
        "imported": [_imported_row(one) for one in result.partitions],
        "notes": list(plan.notes),
    }


def _planned_row(one: "PlannedPartition") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "topic_id": one.topic_id,
        "folder": one.place,
        "files": len(one.files),
        "bytes": _size(one),
        "offsets": one.offsets,
        "holes": [_hole_row(hole) for hole in one.holes],
        "notes": list(one.notes),
        **one.details,
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


def _hole_row(hole: "ImportHole") -> dict[str, Any]:
    return {"until": hole.until, "cause": str(hole.cause), "why": hole.why}


def _size(one: "PlannedPartition") -> int:
    return sum(path.stat().st_size for path in one.files)


def import_lines(result: "ImportResult") -> Iterator[str]:
    planned = result.plan.partitions
    if not result.is_dry_run:
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
                    one.partition,
                    "" if one.offsets is None else f"{one.offsets[0]}..{one.offsets[1]}",
                    len(one.files),
                    spell_size(_size(one)),
                    one.place,
                )
                for one in planned
            ],
        )
    for line in (*(note for one in planned for note in one.notes), *result.plan.notes):
        yield f"note: {line}"


def _problems(result: "ImportResult") -> Iterator[str]:
    planned: dict[tuple[str, int], set[ImportHole]] = {}
    for one in result.plan.partitions:
        planned[one.topic, one.partition] = set(one.holes)
        yield from _hole_lines(f"{one.topic}-{one.partition}", one.holes)
        yield from one.problems
    for done in result.partitions:
        known = planned[done.source.topic, done.source.partition]
        yield from _hole_lines(str(done.source), [hole for hole in done.holes if hole not in known])
        if done.error:
            yield done.error


def _hole_lines(name: str, holes: "Sequence[ImportHole]") -> Iterator[str]:
    for hole in holes:
        if hole.cause != "expired":
            yield f"{name}: {f'offsets up to {hole.until - 1} are left out: ' if hole.until else ''}{hole.why}"
