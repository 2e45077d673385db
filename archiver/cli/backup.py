"""`archiver backup`: its options, its two ways to run (until stopped, until the end), and two printers for each."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.jobs import add_job
from archiver.cli.options import add_config, add_format
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import table_lines
from archiver.errors import UsageError
from archiver.process.output.progress import spell_seconds
from archiver.process.output.text import spell_count, spell_size, spell_some

if TYPE_CHECKING:
    from archiver.backup.partition.feed import PartitionReport
    from archiver.backup.reports.metrics import PartitionState
    from archiver.backup.service.run_service import ServiceResult
    from archiver.backup.service.until_end import BackupReport
    from archiver.config.model import ArchiverConfig

    Reports = Sequence[PartitionReport]

_MOST_NAMED: Final = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run, "until-end")
    add_config(parser)
    add_format(parser)
    parser.add_argument("--until-end", action="store_true", help="archive what is committed at the start, then exit")
    parser.add_argument(
        "--dry-run", action="store_true", help="tell which topics, records and bytes it would archive; archive nothing"
    )
    parser.add_argument(
        "--partitions",
        action="store_true",
        help="with --until-end: print a line for each partition that changed, not for each topic",
    )


def run(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.process.running.failpoints import arm

    if options.partitions and not options.until_end:
        raise UsageError("--partitions goes with --until-end, which tells of each when it ends")
    if options.metrics_file is not None and not options.until_end:
        raise UsageError("--metrics-file goes with --until-end; a service has metrics.listen")
    if options.dry_run:
        from archiver.cli.backup_forecast import run_forecast

        return run_forecast(options)
    arm(failpoint())
    return _back_up_until_end(options) if options.until_end else _back_up_until_stopped(options)


def _back_up_until_stopped(options: argparse.Namespace) -> int:
    from archiver.config.load import load_config

    config = load_config(options.config)  # before the kernels are imported, which may compile them

    from archiver.backup.service.run_service import run_service
    from archiver.process.output.progress import Progress

    progress = Progress("backup", quiet=options.quiet, every_s=60.0)

    def notice(records: int, states: Sequence["PartitionState"], now_ms: int) -> None:
        progress.report(service_progress(records, states, now_ms))

    with closing(progress):
        result = run_service(config, notice, progress.announce)
    if options.format == "json":
        print_json(service_row(result))
    else:
        print_lines(service_lines(result))
    for error in result.problems:
        complain(error)
    return max((error.exit_code for error in result.problems), default=0)


def _back_up_until_end(options: argparse.Namespace) -> int:
    from archiver.config.load import load_config

    config = load_config(options.config)  # as above

    from archiver.backup.service.run_backup import run_backup
    from archiver.process.output.progress import Eta, Progress

    progress, eta = Progress("backup", quiet=options.quiet), Eta("offsets")

    def notice(reports: Sequence["PartitionReport"]) -> None:
        records = sum(report.written.records for report in reports)
        at_end = sum(report.position >= report.end_offset for report in reports)
        done = sum(report.position - report.from_offset for report in reports)
        how_far = eta.spell(done, sum(max(0, report.end_offset - report.from_offset) for report in reports))
        ends = f"{at_end:,} of {spell_count(len(reports), 'partition')} at the end"
        progress.report(
            ", ".join(part for part in (f"{spell_count(records, 'record')} durable", ends, how_far) if part)
        )

    with closing(progress):
        options.job.storage = config.storage
        report, seconds = run_backup(config, notice)
    if options.format == "json":
        print_json(backup_row(report, seconds))
    else:
        print_lines(backup_lines(report, seconds, by_partition=options.partitions))
    for error in report.errors:
        complain(error)
    _note_reached(options, config, report)
    return max((error.exit_code for error in report.errors), default=0)


def service_progress(records: int, states: Sequence["PartitionState"], now_ms: int) -> str:
    """Spell how far a service is: what fails, and the age of the oldest record that is not durable."""
    ours = [one for one in states if not one.is_left]
    failing = [f"{one.topic}-{one.partition}" for one in ours if one.is_failing]
    ages_s = [age_s for one in ours if (age_s := one.pending_age_s(now_ms)) is not None]
    parts = [
        spell_count(len(ours), "partition"),
        f"{len(failing):,} failing ({spell_some(failing, _MOST_NAMED)})" if failing else "",
        f"{spell_seconds(max(ages_s))} behind" if ages_s else "",
        f"{spell_count(records, 'record')} durable",
        f"{spell_count(len(ages_s), 'partition has', 'partitions have')} more to come",
    ]
    return ", ".join(filter(None, parts))


def _note_reached(options: argparse.Namespace, config: "ArchiverConfig", report: "BackupReport") -> None:
    """Tell the run's note how far it came, and call `backup.heartbeat.url` if nothing failed."""
    from archiver.backup.service.heartbeats import call_heartbeat, limits_of

    reached_ms = None if report.errors else report.begun_ms
    options.job.facts |= {
        "partitions": len(report.partitions),
        "durable_through_ms": reached_ms,
        "limits": limits_of(config),
    }
    if config.backup.heartbeat.url and not report.errors:
        problem = call_heartbeat(config.backup.heartbeat.url)
        if problem:
            complain(problem)


def service_row(result: "ServiceResult") -> dict[str, Any]:
    return {
        "records": result.records,
        "dropped_records": sum(error.records for error in result.dropped),
        "problems": [str(error) for error in result.problems],
    }


def service_lines(result: "ServiceResult") -> Iterator[str]:
    dropped = sum(error.records for error in result.dropped)
    held = "what was held is durable, the rest is in Kafka"
    if dropped:
        held = f"Kafka still has the rest, with {spell_count(dropped, 'record')} that could not be put in time: the next run takes them"
    yield f"{spell_count(result.records, 'record')} archived; {held}"


def backup_row(report: "BackupReport", seconds: float) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 3),
        "summary": _summary(report),
        "partitions": [_partition_row(one) for one in report.partitions],
        "left_to_instances": [{"topic": topic, "partition": number} for topic, number in report.left],
    }


def backup_lines(report: "BackupReport", seconds: float, *, by_partition: bool) -> Iterator[str]:
    """List the changes. Idle topics are only counted: a cluster has thousands of idle partitions."""
    topics = _by_topic(report.partitions)
    changed = {name: some for name, reports in topics.items() if (some := [one for one in reports if _changed(one)])}
    if changed and by_partition:
        yield from table_lines(
            ("topic", "partition", "offsets", "records", "segments", "stored", ""),
            [_partition_cells(one) for some in changed.values() for one in some],
        )
    elif changed:
        yield from table_lines(
            ("topic", "partitions", "records", "segments", "stored", ""),
            [_topic_cells(name, some, len(topics[name])) for name, some in changed.items()],
        )
    records = sum(one.written.records for one in report.partitions)
    rate = f", {records / seconds:,.0f} records/s" if records and seconds > 0 else ""
    idle = len(topics) - len(changed)
    rest = f"; {spell_count(idle, 'topic')} had nothing new" if idle else ""
    yield f"{spell_count(records, 'record')} archived in {seconds:.1f} s{rate}{rest}"
    for topic, left in groupby(report.left, lambda one: one[0]):
        numbers = [str(number) for _, number in left]
        what = f"partition{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}"
        yield f"{topic}: {what} left to the instances that keep copies of compacted topics"


def _by_topic(reports: "Reports") -> Mapping[str, "Reports"]:
    return {name: list(some) for name, some in groupby(reports, lambda one: one.source.topic)}


def _changed(report: "PartitionReport") -> bool:
    """Return whether to print a line. A new position alone is not enough: markers and aborted records move it in every run."""
    return bool(report.written.segments or report.written.holes or report.open_transactions or report.error)


def _topic_cells(name: str, changed: "Reports", partitions: int) -> Sequence[str]:
    holes = sum(len(one.written.holes) for one in changed)
    held_back = sum(bool(one.open_transactions) for one in changed)
    failed = sum(one.error is not None for one in changed)
    remarks = [
        spell_count(holes, "hole") if holes else "",
        spell_count(held_back, "open transaction") if held_back else "",
        f"{failed} FAILED" if failed else "",
    ]
    return name, f"{len(changed)} of {partitions}", *_sums(changed), ", ".join(filter(None, remarks))


def _partition_cells(report: "PartitionReport") -> Sequence[str]:
    remarks = [
        *(f"hole {hole}" for hole in report.written.holes),
        "open transaction" if report.open_transactions else "",
        "FAILED" if report.error else "",
    ]
    offsets = f"{report.from_offset}..{report.position}"
    number = str(report.source.partition)
    return report.source.topic, number, offsets, *_sums([report]), ", ".join(filter(None, remarks))


def _sums(reports: "Reports") -> tuple[str, str, str]:
    written = [one.written for one in reports]
    return (
        f"{sum(one.records for one in written):,}",
        f"{sum(one.segments for one in written):,}",
        spell_size(sum(one.stored_bytes for one in written)),
    )


def _summary(report: "BackupReport") -> dict[str, Any]:
    reports = report.partitions
    changed = [one for one in reports if _changed(one)]
    written = [one.written for one in reports]
    return {
        "topics": len(_by_topic(reports)),
        "topics_changed": len(_by_topic(changed)),
        "partitions": len(reports),
        "partitions_changed": len(changed),
        "partitions_left": len(report.left),
        "partitions_failed": sum(one.error is not None for one in reports),
        "records": sum(one.records for one in written),
        "bytes": sum(one.payload_bytes for one in written),
        "stored_bytes": sum(one.stored_bytes for one in written),
        "segments": sum(one.segments for one in written),
        "holes": sum(len(one.holes) for one in written),
        "open_transactions": sum(len(one.open_transactions) for one in reports),
        "dropped_records": sum(one.dropped_records for one in reports),
        "errors": [str(error) for error in report.errors],
    }


def _partition_row(report: "PartitionReport") -> dict[str, Any]:
    return {
        "topic": report.source.topic,
        "life": report.source.life,
        "partition": report.source.partition,
        "from_offset": report.from_offset,
        "position": report.position,
        "end_offset": report.end_offset,
        "records": report.written.records,
        "bytes": report.written.payload_bytes,
        "stored_bytes": report.written.stored_bytes,
        "segments": report.written.segments,
        "put_retries": report.written.put_retries,
        "holes": [str(hole) for hole in report.written.holes],
        "open_transactions": [
            {"producer_id": one.producer_id, "transactional_id": one.transactional_id, "start_offset": one.start_offset}
            for one in report.open_transactions
        ],
        "dropped_records": report.dropped_records,
        "error": None if report.error is None else str(report.error),
    }
