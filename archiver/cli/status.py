"""`archiver status`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import add_archive, add_format, add_run, archive_config
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment, table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.progress import spell_seconds
from archiver.process.output.text import spell_count, spell_some

if TYPE_CHECKING:
    from archiver.upkeep.run_status import KindStatus, RunStatus

_MOST_NAMED: Final = 10
_COLUMNS: Final = {
    "run": "kind",
    "last success": "last_success",
    "state": "outcome",
    "durable through": "durable_through",
    "partitions": "partitions",
    "next": "next",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument(
        "--max-age",
        action="append",
        default=[],
        metavar="[KIND=]AGE",
        help="how far a backup may be behind (default of a service: 1h), or how old the last success of a kind of run may be (verify=26h);"
        " can be repeated. Other jobs are late at twice the time between their last two successes, at least 48h",
    )
    parser.add_argument(
        "--against-kafka", action="store_true", help="also name the topics of the cluster that no backup includes"
    )


def parse_ages(texts: Sequence[str]) -> dict[str, int]:
    """Parse the largest ages by kind of run, in ms; "": of a backup's oldest unwritten record. Raises UsageError."""
    from archiver.archive.notes.run_notes import RunKind
    from archiver.config.quantities import parse_duration_ms

    ages = dict[str, int]()
    for text in texts:
        kind, is_named, age = text.rpartition("=")
        kinds = [str(one) for one in RunKind]
        if is_named and kind not in kinds:
            raise UsageError(f"--max-age {text}: {kind!r} is no kind of run: {', '.join(kinds)}")
        try:
            ages[kind] = parse_duration_ms(age)
        except ValueError as error:
            raise UsageError(f"--max-age {text}: {error}") from error
    return ages


def run(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_archive
    from archiver.archive.format.store_clock import machine_now_ms
    from archiver.upkeep.run_status import read_status

    ages, config = parse_ages(options.max_age), archive_config(options)
    if options.against_kafka and options.url is not None:
        raise UsageError("--against-kafka needs the configuration of the backup; give -c FILE in place of --url")
    status = read_status(open_archive(config.storage), machine_now_ms(), ages)
    left_out = None
    if options.against_kafka:
        from archiver.archive.notes.cluster_topics import ArchivingState, survey_topics

        rows = survey_topics(config).rows
        left_out = [one.topic for one in rows if one.standing is ArchivingState.NOT_INCLUDED]
    row = status_row(status, left_out)
    if options.format == "json":
        print_json(row)
    else:
        print_lines(status_lines(row))
    for line in status.late:
        complain(line)
    return NotWholeError.exit_code if status.late else 0


def status_row(status: "RunStatus", left_out: Sequence[str] | None) -> dict[str, Any]:
    from archiver.archive.notes.run_notes import RunKind

    through_ms, sweeps = status.durable_through_ms, status.of(RunKind.RETENTION)
    current = [
        one for one in status.kinds if one.alive or not one.kind.is_service
    ]  # what a dead service knew may be past
    return {
        "now": moment(status.now_ms),
        "working": not status.late,
        "durable_through": _moment(through_ms),
        "seconds_behind": None if through_ms is None else (status.now_ms - through_ms) / 1000,
        "runs": [_kind_row(one) for one in status.kinds],
        "late": status.late,
        "holds": list(sweeps.notes[-1].holds) if sweeps and sweeps.notes else None,
        "unfinished_restores": status.unfinished,
        "topics_gone": sorted({name for one in current for note in one.notes for name in note.gone}),
        "topics_not_included": left_out,
    }


def _kind_row(one: "KindStatus") -> dict[str, Any]:
    return {
        "kind": str(one.kind),
        "last_success": _moment(one.last_success_ms),
        "last_note": moment(one.last.put_ms),
        "outcome": str(one.last.outcome),
        "processes": one.alive if one.kind.is_service else None,
        "partitions": one.partitions,
        "durable_through": _moment(one.durable_through_ms),
        "next": _moment(one.next_ms),
        "late": one.late or None,
        "problems": [line for note in one.notes for line in note.problems],
        "versions": sorted({note.version for note in one.notes}),
        "limits": [dict(note.limits) for note in one.notes],
    }


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else moment(at_ms)


def status_lines(row: Mapping[str, Any]) -> Iterator[str]:
    runs = row["runs"]
    is_silent = [one["processes"] == 0 and one["outcome"] == "running" for one in runs]  # no process puts notes
    shown = [{**one, "outcome": "silent"} if silent else one for one, silent in zip(runs, is_silent, strict=True)]
    cells = [["" if one[name] is None else one[name] for name in _COLUMNS.values()] for one in shown]
    if runs:
        yield from table_lines(list(_COLUMNS), cells)
    if row["durable_through"]:
        behind = spell_seconds(row["seconds_behind"])
        yield f"all records that Kafka had until {row['durable_through']} are archived: {behind} behind"
    for line in dict.fromkeys(line for one in runs if not one["late"] for line in one["problems"]):
        yield f"note: {line}"
    if holds := row["holds"]:
        yield f"{spell_count(len(holds), 'hold')} in force at the last sweep: {spell_some(holds, _MOST_NAMED)}"
    if unfinished := row["unfinished_restores"]:
        yield f"unfinished: restore {spell_some(unfinished, _MOST_NAMED)}"
    if gone := row["topics_gone"]:
        yield f"Kafka no longer has {spell_some(gone, _MOST_NAMED)}; `archiver topics --accept-gone TOPIC` accepts that"
    if left_out := row["topics_not_included"]:
        yield f"no backup includes {spell_count(len(left_out), 'topic')}: {spell_some(left_out, _MOST_NAMED)}"
    yield f"{len(row['late'])} late" if row["late"] else "nothing is late"
