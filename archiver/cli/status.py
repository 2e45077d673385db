"""`archiver status`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import add_archive, add_format, add_run, archive_config
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import moment, table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.progress import spell_seconds
from archiver.process.output.text import spell_count, spell_some

if TYPE_CHECKING:
    from archiver.upkeep.run_status import KindStatus, RunStatus

_DEFAULT_MS: Final = 3_600_000
_MOST_NAMED: Final = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument(
        "--max-age",
        action="append",
        default=[],
        metavar="[KIND=]AGE",
        help="how far a backup may be behind (default 1h), or how old the last success of a kind of run may be (verify=26h);"
        " can be repeated. Other jobs are late at twice the time between their last two successes, at least 48h",
    )
    parser.add_argument(
        "--against-kafka", action="store_true", help="also name the topics of the cluster that no backup includes"
    )


def parse_ages(texts: Sequence[str]) -> dict[str, int]:
    """Parse the largest ages by kind of run, in ms; "": of a backup's oldest unwritten record. Raises UsageError."""
    from archiver.archive.notes.run_notes import RunKind
    from archiver.config.quantities import parse_duration_ms

    ages = {"": _DEFAULT_MS}
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
    if options.format == "json":
        print_json(status_row(status, left_out))
    else:
        print_lines(status_lines(status, left_out))
    for line in status.late:
        complain(line)
    return NotWholeError.exit_code if status.late else 0


def status_row(status: "RunStatus", left_out: Sequence[str] | None) -> dict[str, Any]:
    return {
        "now": moment(status.now_ms),
        "working": not status.late,
        "durable_through": _moment(status.durable_through_ms),
        "runs": [_kind_row(one) for one in status.kinds],
        "late": status.late,
        "holds": _holds(status),
        "unfinished_restores": list(status.unfinished),
        "topics_gone": _gone(status),
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


def _holds(status: "RunStatus") -> list[str] | None:
    """Return the holds in force at the last sweep; None: unknown."""
    from archiver.archive.notes.run_notes import RunKind

    swept = status.of(RunKind.RETENTION)
    return None if swept is None or not swept.notes else list(swept.notes[-1].holds)


def _gone(status: "RunStatus") -> list[str]:
    return sorted({name for one in status.kinds for note in one.notes for name in note.gone})


def status_lines(status: "RunStatus", left_out: Sequence[str] | None) -> Iterator[str]:
    rows = [
        (
            str(one.kind),
            "never"
            if one.last_success_ms is None
            else f"{spell_seconds((status.now_ms - one.last_success_ms) / 1000)} ago",
            str(one.last.outcome),
            "" if one.durable_through_ms is None else moment(one.durable_through_ms),
            "" if one.partitions is None else str(one.partitions),
            "" if one.next_ms is None else moment(one.next_ms),
            "late" if one.late else "",
        )
        for one in status.kinds
    ]
    if rows:
        yield from table_lines(("run", "last success", "state", "durable through", "partitions", "next", ""), rows)
    through_ms = status.durable_through_ms
    if through_ms is not None:
        yield f"everything that Kafka had until {moment(through_ms)} is archived: {spell_seconds((status.now_ms - through_ms) / 1000)} behind"
    for line in dict.fromkeys(
        line for one in status.kinds if not one.late for note in one.notes for line in note.problems
    ):
        yield f"note: {line}"
    holds, gone = _holds(status), _gone(status)
    if holds:
        yield f"{spell_count(len(holds), 'hold')} in force at the last sweep: {spell_some(holds, _MOST_NAMED)}"
    if status.unfinished:
        yield f"unfinished: restore {spell_some(list(status.unfinished), _MOST_NAMED)}"
    if gone:
        yield f"Kafka no longer has {spell_some(gone, _MOST_NAMED)}; `archiver topics --accept-gone TOPIC` accepts that"
    if left_out:
        yield f"no backup includes {spell_count(len(left_out), 'topic')}: {spell_some(list(left_out), _MOST_NAMED)}"
    yield f"{len(status.late)} late" if status.late else "nothing is late"
