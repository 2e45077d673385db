"""The command line: each command = parse -> one call -> exit code. The only module that prints."""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver import __version__
from archiver.errors import ArchiverError, UsageError

if TYPE_CHECKING:
    from archiver.config import ArchiverConfig
    from archiver.holdings import Holding
    from archiver.job import RestoreResult
    from archiver.pump import PartitionReport
    from archiver.spark.restore import TopicReport

# Objects between two looks for garbage. Python's 700 took 6 % of a backup's CPU: imports and record work make no cycles.
_GARBAGE_THRESHOLD = 100_000

EXIT_STATUS = """\
exit status:
  0  done
  1  failed
  2  usage or configuration
  3  the archive or a comparison is not whole
  4  temporary; a retry may help
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    gc.set_threshold(_GARBAGE_THRESHOLD)
    options = _parser().parse_args(arguments)
    from archiver.observe import set_up_logs

    set_up_logs(options.log_format, verbose=options.verbose)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ArchiverError as error:
        print(f"archiver: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("archiver: interrupted; what is in the archive is whole, run the same command again", file=sys.stderr)
        return 4
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away (`| head`); Python would complain about it at exit
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="archiver",
        description="A lossless archive of Kafka topics in S3 as plain Avro, and its way back.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"archiver {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = _command(commands, "demo", _demo, "real broker, embedded S3: backup, disaster, restore, proof")
    demo.add_argument("--records", type=int, default=200_000, help="how many records (default %(default)s)")

    backup = _command(commands, "backup", _backup, "archive topics up to what is committed now")
    _add_config(backup)
    _add_format(backup)
    backup.add_argument(
        "--until-end", action="store_true", required=True, help="stop at each partition's last stable offset of now"
    )

    ls = _command(commands, "ls", _ls, "what the archive holds")
    _add_archive(ls)
    _add_format(ls)
    ls.add_argument("topic", nargs="?", metavar="TOPIC", help="show its partitions")

    cat = _command(commands, "cat", _cat, "print records as JSON lines, in order")
    _add_archive(cat)
    cat.add_argument("topic", metavar="TOPIC")
    cat.add_argument("--partition", type=int, help="one partition only")
    cat.add_argument("--from-offset", type=int, default=0, metavar="N", help="leave out what is below")
    _add_life(cat)
    cat.add_argument("--limit", type=int, metavar="N", help="stop after N records")

    restore = _command(commands, "restore", _restore, "bring topics back into a cluster, as a Spark job")
    _add_archive(restore)
    _add_format(restore)
    restore.add_argument(
        "--target", required=True, type=Path, metavar="FILE", help="YAML file with the target's kafka: section"
    )
    restore.add_argument("--topics", metavar="REGEX", help="full-match regular expression (default: all)")
    _add_life(restore)
    restore.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="restore a topic as another")
    restore.add_argument(
        "--id", help="name of this restore; with the same one it goes on where it was (default: made of the request)"
    )
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="how logs are written")
    parser.add_argument("--verbose", action="store_true", help="log what goes well, too")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how results are printed")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", metavar="FILE", type=Path, help="default: $ARCHIVER_CONFIG, then ./archive.yaml"
    )


def _add_archive(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument(
        "--url",
        metavar="s3://BUCKET/PREFIX",
        help="an archive, without a configuration file (endpoint: $AWS_ENDPOINT_URL)",
    )


def _add_life(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--life", type=int, metavar="N", help="of a topic that was created again (default: the newest with records)"
    )


def _archive_config(options: argparse.Namespace) -> "ArchiverConfig":
    from archiver.config import config_from_url, load_config

    return load_config(options.config) if options.url is None else config_from_url(options.url)


# --- commands


def _demo(options: argparse.Namespace) -> int:
    from archiver.demo import run_demo

    run_demo(records=options.records, tell=lambda line: print(line, flush=True))
    return 0


def _backup(options: argparse.Namespace) -> int:
    from archiver.config import load_config
    from archiver.job import run_backup
    from archiver.observe import Progress

    progress = Progress("backup", quiet=options.quiet)

    def notice(reports: Sequence["PartitionReport"]) -> None:
        records = sum(report.written.records for report in reports)
        done = sum(report.position >= report.end_offset for report in reports)
        progress.tell(f"{records:,} records durable, {done} of {len(reports)} partitions at their end")

    try:
        reports, seconds = run_backup(load_config(options.config), notice)
    finally:
        progress.close()
    if options.format == "json":
        _print_json({"seconds": round(seconds, 3), "partitions": [_backup_row(report) for report in reports]})
    else:
        _print_backup(reports, seconds)
    for report in reports:
        if report.error is not None:
            print(f"archiver: {report.error}", file=sys.stderr)
    return max((report.error.exit_code for report in reports if report.error is not None), default=0)


def _backup_row(report: "PartitionReport") -> dict[str, Any]:
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
        "error": None if report.error is None else str(report.error),
    }


def _print_backup(reports: Sequence["PartitionReport"], seconds: float) -> None:
    rows = [
        (
            report.source.topic,
            str(report.source.partition),
            f"{report.from_offset}..{report.position}",
            f"{report.written.records:,}",
            str(report.written.segments),
            _size(report.written.stored_bytes),
            ", ".join(f"hole {hole}" for hole in report.written.holes)
            + ("  open transaction" if report.open_transactions else "")
            + ("  FAILED" if report.error else ""),
        )
        for report in reports
    ]
    _print_table(("topic", "partition", "offsets", "records", "segments", "stored", ""), rows)
    records = sum(report.written.records for report in reports)
    rate = f", {records / seconds:,.0f} records/s" if seconds > 0 else ""
    print(f"{records:,} records archived in {seconds:.1f} s{rate}")


def _ls(options: argparse.Namespace) -> int:
    from archiver.holdings import list_partitions, list_topics
    from archiver.inventory import read_inventory
    from archiver.layout import Layout
    from archiver.store import open_store

    store, prefix = open_store(_archive_config(options).storage)
    wanted = options.topic
    inventory = read_inventory(store, Layout(prefix), lambda topic, _life: wanted in {None, topic})
    holdings = list_topics(inventory) if wanted is None else list_partitions(inventory, wanted)
    if wanted is not None and not holdings and not inventory.damaged:
        raise UsageError(f"topic {wanted} is not in the archive; `archiver ls` shows what is")
    if options.format == "json":
        rows = [{name: getattr(one, name) for name in one.__slots__} for one in holdings]
        _print_json(
            {
                "holdings": rows,
                "strangers": inventory.strangers,
                "damaged": [damage.message for damage in inventory.damaged],
            }
        )
    else:
        _print_holdings(holdings)
        for key in inventory.strangers:
            print(f"stranger: {key}")
    for damage in inventory.damaged:
        print(f"archiver: {damage.message}", file=sys.stderr)
    return 3 if inventory.damaged or any(one.gaps for one in holdings) else 0


def _print_holdings(holdings: Sequence["Holding"]) -> None:
    rows = [
        (
            one.topic + (f"@{one.life}" if one.life else ""),
            str(one.partitions if one.partition is None else one.partition),
            f"{one.first_offset}..{one.next_offset}",
            f"{one.records:,}",
            _size(one.payload_bytes),
            _size(one.stored_bytes),
            str(one.segments),
            f"{_moment(one.min_timestamp)} .. {_moment(one.max_timestamp)}",
            f"{one.holes} holes, {one.gaps} gaps, {one.shadowed} shadowed"
            if one.holes + one.gaps + one.shadowed
            else "",
        )
        for one in holdings
    ]
    which = "partition" if holdings and holdings[0].partition is not None else "partitions"
    _print_table(("topic", which, "offsets", "records", "bytes", "stored", "segments", "time", ""), rows)


def _cat(options: argparse.Namespace) -> int:
    from archiver.browse import find_topic, read_records
    from archiver.layout import Layout
    from archiver.store import open_store

    store, prefix = open_store(_archive_config(options).storage)
    topic = find_topic(store, Layout(prefix), options.topic, options.life)
    records = read_records(store, topic, partition=options.partition, from_offset=options.from_offset)
    for count, record in enumerate(records):
        if options.limit is not None and count >= options.limit:
            break
        print(json.dumps(record, ensure_ascii=False))
    return 0


def _restore(options: argparse.Namespace) -> int:
    from archiver.config import load_target
    from archiver.job import run_restore_job
    from archiver.observe import Progress

    progress = Progress("restore", quiet=options.quiet)
    try:
        result = run_restore_job(
            _archive_config(options).storage,
            load_target(options.target).kafka,
            topics=options.topics,
            renames=options.rename,
            restore_id=options.id,
            life=options.life,
            notice=progress.tell,
        )
    finally:
        progress.close()
    if options.format == "json":
        _print_json(
            {
                "id": result.restore_id,
                "seconds": result.seconds,
                "filling_seconds": result.filling_seconds,
                "topics": [_topic_row(one) for one in result.topics],
            }
        )
    else:
        _print_restore(result)
    failed = [partition for topic in result.topics for partition in topic.errors]
    for partition in failed:
        print(f"archiver: {partition.error}", file=sys.stderr)
    return max((partition.exit_code for partition in failed), default=0)


def _topic_row(topic: "TopicReport") -> dict[str, Any]:
    return {
        "source": topic.source,
        "target": topic.target,
        "records": topic.records,
        "retention_command": topic.retention_command,
        "left_out_configs": topic.left_out_configs,
        "partitions": [{name: getattr(one, name) for name in one.__slots__} for one in topic.partitions],
    }


def _print_restore(result: "RestoreResult") -> None:
    topics = result.topics
    rows = [
        (
            topic.source,
            topic.target,
            str(one.partition),
            f"{one.records:,}",
            f"{one.already_there:,}",
            f"{one.digest:016x}",
            "FAILED" if one.error else "verified",
        )
        for topic in topics
        for one in topic.partitions
    ]
    _print_table(("topic", "target", "partition", "records", "already there", "digest", ""), rows)
    records = sum(topic.records for topic in topics)
    print(
        f"restore {result.restore_id}: {records:,} records filled and read back in {result.filling_seconds:.1f} s,"
        f" {result.seconds:.1f} s with Spark's start"
    )
    for topic in topics:
        if topic.left_out_configs:
            print(f"{topic.target}: this cluster does not know {', '.join(topic.left_out_configs)}; not set")
        if topic.retention_command:
            print(
                f"{topic.target}: retention is unlimited, so that nothing restored expires. To set what was archived:"
            )
            print(f"  {topic.retention_command}")


# --- printing


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _moment(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # a timestamp may be any 64-bit value


if __name__ == "__main__":
    raise SystemExit(main())
