"""`archiver retention --last` and `--history`: show the reports of sweeps in the archive; their run, and their printers."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from archiver.cli.options import archive_config
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import MOST_LISTED, left_out_lines, moment, table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.archive.notes.sweeps import SweepReport, SweptTopic


def run_reports(options: argparse.Namespace) -> int:
    """Print the last report, or a line for each. The exit code is that of this command: the sweeps have had their own."""
    from archiver.archive.format.handle import open_archive
    from archiver.archive.notes.sweeps import read_last_report, read_reports

    names = ("dry_run", "yes", "topics", "without_kafka", "now", "metrics_file")
    others = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in {None, False}]
    if others:
        shown = "--last" if options.last else "--history"
        raise UsageError(f"{shown} only shows earlier sweeps; {' and '.join(others)} cannot go with it")
    archive = open_archive(archive_config(options).storage)
    if options.history is not None:
        return _print_history(options, list(read_reports(archive, options.history)))
    report = read_last_report(archive)
    if options.format == "json":
        print_json(last_row(report))
    else:
        print_lines(last_lines(report))
    return 0


def _print_history(options: argparse.Namespace, found: Sequence["SweepReport | NotWholeError"]) -> int:
    reports = [one for one in found if not isinstance(one, NotWholeError)]
    if options.format == "json":
        print_json({"sweeps": [last_row(one) for one in reports]})
    else:
        print_lines(history_lines(reports))
    unreadable = [one for one in found if isinstance(one, NotWholeError)]
    for error in unreadable:
        complain(error)
    return NotWholeError.exit_code if unreadable else 0


def history_lines(reports: Sequence["SweepReport"]) -> Iterator[str]:
    """Yield a line for each sweep, the oldest first."""
    if not reports:
        yield "no sweep has put a report yet"
        return
    rows = [
        (
            moment(one.begun_ms),
            f"{one.took_ms / 1000:.0f} s",
            sum(topic.objects for topic in one.topics.values()),
            sum(topic.records for topic in one.topics.values()),
            spell_size(sum(topic.bytes for topic in one.topics.values())),
            sum(kind.objects for kind in one.control.values()),
            ", ".join(_remarks(one)),
        )
        for one in reports
    ]
    columns = ("begun", "took", "objects deleted", "records", "bytes", "control objects", "remark")
    yield from table_lines(columns, rows)


def _remarks(report: "SweepReport") -> Iterator[str]:
    stopped = sum(1 for one in report.topics.values() if one.stopped)
    counted = [
        (len(report.waiting), "topic waits for --yes", "topics wait for --yes"),
        (stopped, "topic stopped", "topics stopped"),
        (report.refused, "delete refused", "deletes refused"),
        (report.failed, "part unreadable", "parts unreadable"),
    ]
    return (spell_count(*one) for one in counted if one[0])


def last_row(report: "SweepReport | None") -> dict[str, Any]:
    if report is None:
        return {"begun": None}
    return {
        "begun": moment(report.begun_ms),
        "seconds": report.took_ms / 1000,
        "complete": report.is_complete,
        "without_kafka": report.without_kafka,
        "topics": [
            {
                "topic": name,
                "deleted": one.objects,
                "deleted_records": one.records,
                "deleted_bytes": one.bytes,
                "because": dict(one.deleted_because),
                "kept_because": dict(one.kept_because),
                "waits_for_yes": name in report.waiting,
                "stopped": one.stopped or None,
            }
            for name, one in sorted(report.topics.items())
        ],
        "kept": [{"topic": name, "why": why} for name, why in sorted(report.kept.items())],
        "control": [
            {
                "kind": kind,
                "deleted_groups": one.groups,
                "deleted": one.objects,
                "deleted_bytes": one.bytes,
                "kept_because": dict(one.kept_because),
            }
            for kind, one in report.control.items()
        ],
        "refused": report.refused,
        "failures": report.failed,
        "problems": list(report.problems),
    }


def last_lines(report: "SweepReport | None") -> Iterator[str]:
    if report is None:
        yield "no sweep has put a report yet"
        return
    if report.without_kafka:
        yield "the last sweep asked no cluster: it used the limits of retention.fixed"
    for name, why in sorted(report.kept.items())[:MOST_LISTED]:
        yield f"{name}: nothing was deleted: {why}"
    yield from left_out_lines(len(report.kept) - MOST_LISTED, "topics without deletions")
    reasons = [line for name, one in sorted(report.topics.items()) for line in _reason_lines(name, one)]
    yield from reasons[:MOST_LISTED]
    yield from left_out_lines(len(reasons) - MOST_LISTED, "reasons")
    rows = [
        (name, one.objects, one.records, one.bytes, _remark(report, name))
        for name, one in sorted(report.topics.items())
    ]
    if rows:
        yield from table_lines(("topic", "objects deleted", "records", "bytes", "remark"), rows)
    told = [(kind, one.groups, one.objects, one.bytes) for kind, one in report.control.items() if one.objects]
    if told:
        yield from table_lines(("control objects", "groups deleted", "objects deleted", "bytes"), told)
    yield from report.problems
    end = [
        f"the last sweep began {moment(report.begun_ms)}, and took {report.took_ms / 1000:.0f} s",
        f"the store refused {spell_count(report.refused, 'delete')}" if report.refused else "",
        f"{spell_count(report.failed, 'part')} of the archive could not be listed, asked or read whole"
        if report.failed
        else "",
    ]
    yield "; ".join(filter(None, end))


def _reason_lines(name: str, topic: "SweptTopic") -> Iterator[str]:
    for why, count in topic.deleted_because.items():
        yield f"{name}: {spell_count(count, 'object was deleted', 'objects were deleted')}: {why}"
    for why, count in topic.kept_because.items():
        yield f"{name}: {spell_count(count, 'object was kept', 'objects were kept')}: {why}"


def _remark(report: "SweepReport", name: str) -> str:
    stopped = report.topics[name].stopped
    if stopped:
        return f"stopped: {stopped}"
    return "waits for --yes" if name in report.waiting else ""
