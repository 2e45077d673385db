"""The command line: each command = parse -> one call -> exit code. The only module that prints."""

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from archiver import __version__
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.memory import settle_memory

if TYPE_CHECKING:
    from archiver.config import ArchiverConfig
    from archiver.feed import Feed, PartitionReport
    from archiver.selection import Selection

FOLLOW_PAUSE_S = 5.0
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
    settle_memory()
    # numpy starts a thread a core for linear algebra, and nothing here does any: 0.15 s of CPU at each start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # noqa: TID251 - set, not read
    options = _parser().parse_args(arguments)
    from archiver.observe import set_up_logs

    if options.no_color:
        os.environ["NO_COLOR"] = "1"  # noqa: TID251 - set, not read
    set_up_logs(options.log_format, verbose=options.verbose)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ArchiverError as error:
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted; what is in the archive is whole, run the same command again")
        return 4
    except BrokenPipeError:
        return 0  # the reader of our output went away (`| head`)
    except Exception as error:  # noqa: BLE001 - a defect of ours: one line, and a file
        from archiver.defects import as_ours

        _complain(as_ours(error))
        return ArchiverError.exit_code


def run() -> NoReturn:
    """Be the program, and end at once: to take the interpreter apart takes half a second, and nothing comes of it."""
    exit_code = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        _complain(_cannot_be_written(error))
        exit_code = exit_code or ArchiverError.exit_code
    logging.shutdown()
    os._exit(exit_code)


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
    demo.add_argument("--records", type=_natural, default=200_000, help="how many records (default %(default)s)")

    backup = _command(commands, "backup", _backup, "archive topics, for ever or up to what is committed now")
    _add_config(backup)
    _add_format(backup)
    backup.add_argument("--until-end", action="store_true", help="stop at each partition's last stable offset of now")

    ls = _command(commands, "ls", _ls, "what the archive holds")
    _add_archive(ls)
    _add_format(ls)
    ls.add_argument("topic", nargs="?", metavar="TOPIC", help="show its partitions")
    ls.add_argument("--segments", action="store_true", help="with TOPIC: show each of its objects")

    cat = _command(commands, "cat", _cat, "print records as JSON lines, in order")
    _add_archive(cat)
    cat.add_argument("topic", metavar="TOPIC")
    cat.add_argument("--partition", type=_natural, help="one partition only")
    cat.add_argument("--from-offset", type=_natural, metavar="N", help="leave out what is below")
    cat.add_argument("--until-offset", type=_natural, metavar="N", help="leave out what is above")
    cat.add_argument(
        "--from", dest="from_time", metavar="TIME", help="leave out records that are older (2026-11-20T14:00:00Z)"
    )
    cat.add_argument("--until", dest="until_time", metavar="TIME", help="leave out records that are newer")
    _add_life(cat)
    cat.add_argument("--limit", type=_natural, metavar="N", help="stop after N records")
    cat.add_argument("--follow", action="store_true", help="go on with what is archived later, until Ctrl-C")

    inspect = _command(
        commands, "inspect", _inspect, "take one object apart: header, facts, blocks, and whether they agree"
    )
    _add_archive(inspect)
    _add_format(inspect)
    inspect.add_argument("object", metavar="OBJECT", help="s3://BUCKET/KEY, a key of the archive, or a file")

    verify = _command(commands, "verify", _verify, "is the archive whole?")
    _add_archive(verify)
    _add_format(verify)
    verify.add_argument(
        "--level",
        choices=("listing", "counts", "records"),
        default="listing",
        help="listing: names and facts (default); counts: the blocks of all objects; records: every record (both as a Spark job)",
    )
    verify.add_argument("--topics", metavar="REGEX", help="full-match regular expression (default: all)")
    verify.add_argument(
        "--against-kafka",
        action="store_true",
        help="also: what the cluster still has must be there (reads it, as a Spark job)",
    )
    verify.add_argument("--since", metavar="TIME", help="read only objects that were put since (2026-11-20T14:00:00Z)")

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

    _add_config_commands(commands)
    return parser


def _add_config_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    config = commands.add_parser("config", help="what the configuration says, and what it may say")
    ways = config.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = _command(ways, "show", _config_show, "the configuration that holds, secrets masked")
    _add_config(show)
    _add_format(show)
    reference = _command(ways, "reference", _config_reference, "every key: what it takes, its default, its meaning")
    _add_format(reference)


def _natural(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or above")
    return int(text)


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
    parser.add_argument("--no-color", action="store_true", help="no colors on a terminal; $NO_COLOR does the same")
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
        "--life",
        type=_natural,
        metavar="N",
        help="of a topic that was created again (default: the newest with records)",
    )


def _archive_config(options: argparse.Namespace) -> "ArchiverConfig":
    from archiver.config import config_from_url, load_config

    return load_config(options.config) if options.url is None else config_from_url(options.url)


# --- commands


def _demo(options: argparse.Namespace) -> int:
    from archiver.demo import run_demo

    run_demo(records=options.records, tell=lambda line: _print(line, flush=True))
    return 0


def _backup(options: argparse.Namespace) -> int:
    from archiver.config import failpoint
    from archiver.failpoints import arm

    arm(failpoint())
    return _back_up_until_end(options) if options.until_end else _back_up_for_ever(options)


def _back_up_for_ever(options: argparse.Namespace) -> int:
    from archiver.config import load_config
    from archiver.job import run_service
    from archiver.observe import Progress

    progress = Progress("backup", quiet=options.quiet, every_s=60.0)

    def notice(records: int, feeds: Collection["Feed"]) -> None:
        behind = sum(feed.pending_since_s is not None for feed in feeds)
        progress.tell(f"{len(feeds)} partitions, {records:,} records durable, {behind} partitions have more to come")

    try:
        records = run_service(load_config(options.config), notice)
    finally:
        progress.close()
    _print(f"{records:,} records archived; what was held is durable, the rest is in Kafka")
    return 0


def _back_up_until_end(options: argparse.Namespace) -> int:
    from archiver.config import load_config
    from archiver.job import run_backup
    from archiver.observe import Pace, Progress
    from archiver.printing import backup_lines, backup_row

    progress, pace = Progress("backup", quiet=options.quiet), Pace()

    def notice(reports: Sequence["PartitionReport"]) -> None:
        records = sum(report.written.records for report in reports)
        at_end = sum(report.position >= report.end_offset for report in reports)
        done = sum(report.position - report.from_offset for report in reports)
        how_far = pace.tell(done, sum(max(0, report.end_offset - report.from_offset) for report in reports))
        ends = f"{at_end} of {len(reports)} partitions at their end"
        progress.tell(", ".join(part for part in (f"{records:,} records durable", ends, how_far) if part))

    try:
        report, seconds = run_backup(load_config(options.config), notice)
    finally:
        progress.close()
    if options.format == "json":
        _print_json({"seconds": round(seconds, 3), "partitions": [backup_row(one) for one in report.partitions]})
    else:
        _print_lines(backup_lines(report.partitions, seconds))
    errors = [*report.problems, *(one.error for one in report.partitions if one.error is not None)]
    for error in errors:
        _complain(error)
    return max((error.exit_code for error in errors), default=0)


def _ls(options: argparse.Namespace) -> int:
    from archiver.holdings import survey
    from archiver.layout import Layout
    from archiver.printing import holding_lines, holding_row, segment_lines, segment_row
    from archiver.store import open_store

    if options.segments and options.topic is None:
        raise UsageError("--segments goes with a TOPIC: an archive has very many")
    config = _archive_config(options).storage
    store, prefix = open_store(config)
    found = survey(store, Layout(prefix), options.topic)
    if options.format == "json":
        segments = {"segments": [segment_row(one) for one in found.segments]} if options.segments else {}
        _print_json(
            {
                "holdings": [holding_row(one) for one in found.holdings],
                **segments,
                "strangers": found.strangers,
                "problems": found.problems,
            }
        )
    else:
        _print_lines(segment_lines(found.segments) if options.segments else holding_lines(found.holdings))
        if not found.holdings and not found.strangers:
            _complain(f"{config.url}: nothing is archived there yet; is it the right prefix?")
        _print_lines(f"stranger: {key}" for key in found.strangers)
    for problem in found.problems:
        _complain(problem)
    return NotWholeError.exit_code if found.problems else 0


def _cat(options: argparse.Namespace) -> int:
    from archiver.browse import find_topic
    from archiver.layout import Layout
    from archiver.records import follow_records, read_records
    from archiver.store import open_store

    store, prefix = open_store(_archive_config(options).storage)
    problems: list[str] = []

    def tell(problem: str) -> None:
        problems.append(problem)
        _complain(problem)

    if options.follow and options.life is not None:
        raise UsageError("--follow goes with the newest life: nothing comes to the others any more")
    layout, selection = Layout(prefix), _selection(options)
    if options.follow:
        records = follow_records(
            store,
            layout,
            options.topic,
            tell=tell,
            pause=lambda: threading.Event().wait(FOLLOW_PAUSE_S),
            partition=options.partition,
            selection=selection,
        )
    else:
        topic = find_topic(store, layout, options.topic, options.life, tell=tell)
        if topic.other_lives and options.life is None:
            others = ", ".join(map(str, topic.other_lives))
            _complain(f"{topic.topic}: this is its life {topic.life}; the archive also has life {others} (--life)")
        records = read_records(store, topic, tell=tell, partition=options.partition, selection=selection)
    try:
        for record in islice(records, options.limit):
            _print(json.dumps(record, ensure_ascii=False), flush=options.follow)
    except KeyboardInterrupt:
        if not options.follow:  # for which it is the end that was meant
            raise
    return NotWholeError.exit_code if problems else 0


def _selection(options: argparse.Namespace) -> "Selection":
    from archiver.config import parse_moment_ms
    from archiver.selection import Selection

    given = {
        "first_offset": options.from_offset,
        "last_offset": options.until_offset,
        "from_ms": None if options.from_time is None else parse_moment_ms("--from", options.from_time),
        "until_ms": None if options.until_time is None else parse_moment_ms("--until", options.until_time),
    }
    selection = Selection(**{name: number for name, number in given.items() if number is not None})
    if selection.is_empty:
        raise UsageError("the range ends before it begins; see --from-offset, --until-offset, --from and --until")
    return selection


def _inspect(options: argparse.Namespace) -> int:
    from archiver.config import config_from_url
    from archiver.job import inspect_object
    from archiver.printing import inspection_lines, inspection_row

    place = str(options.object)
    if Path(place).is_file():
        config = None
    elif place.startswith("s3://") and options.config is None and options.url is None:
        config = config_from_url("/".join(place.split("/")[:3]))
    else:
        config = _archive_config(options)
    found = inspect_object(config, place)
    if options.format == "json":
        _print_json(inspection_row(found))
    else:
        _print_lines(inspection_lines(found))
    problems = [check.problem for check in found.checks if check.problem]
    for problem in problems:
        _complain(problem)
    return NotWholeError.exit_code if problems else 0


def _verify(options: argparse.Namespace) -> int:
    from archiver.config import parse_moment_ms
    from archiver.job import run_verify
    from archiver.observe import Progress
    from archiver.printing import verify_lines, verify_row
    from archiver.verify import Level

    progress = Progress("verify", quiet=options.quiet)
    try:
        result = run_verify(
            _archive_config(options),
            Level(options.level),
            topics=options.topics,
            against_kafka=options.against_kafka,
            since_ms=None if options.since is None else parse_moment_ms("--since", options.since),
            notice=progress.tell,
        )
    finally:
        progress.close()
    if options.format == "json":
        _print_json(verify_row(result))
    else:
        _print_lines(verify_lines(result))
    for problem in [*result.problems, *(one.error for one in result.errors)]:
        _complain(problem)
    codes = [NotWholeError.exit_code] if result.problems else []
    return max([*codes, *(one.exit_code for one in result.errors)], default=0)


def _restore(options: argparse.Namespace) -> int:
    from archiver.config import load_target
    from archiver.job import run_restore_job
    from archiver.observe import Progress
    from archiver.printing import restore_lines, topic_row

    progress = Progress("restore", quiet=options.quiet)
    try:
        result = run_restore_job(
            _archive_config(options).storage,
            load_target(options.target),
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
                "topics": [topic_row(one) for one in result.topics],
            }
        )
    else:
        _print_lines(restore_lines(result))
    failed = [partition for topic in result.topics for partition in topic.errors]
    for partition in failed:
        _complain(partition.error)
    return max((partition.exit_code for partition in failed), default=0)


def _config_show(options: argparse.Namespace) -> int:
    from archiver.config import load_config
    from archiver.kafka.settings import KafkaSettings
    from archiver.reference import effective

    config = load_config(options.config)
    if config.kafka:
        KafkaSettings.parse(config.kafka, config.place_of_kafka)
    found = dict(effective(config))
    if options.format == "json":
        _print_json(found)
    else:
        _print_lines(f"{key}: {json.dumps(text, ensure_ascii=False)}" for key, text in found.items())
    return 0


def _config_reference(options: argparse.Namespace) -> int:
    from archiver.reference import KAFKA_KEYS, keys, reference_page

    if options.format == "json":
        rows = [
            {"key": row.key, "takes": row.kind, "default": row.default, "meaning": row.meaning}
            for row in keys()
            if row.key != "kafka.*"
        ]
        kafka = [
            {"key": f"kafka.{key}", "takes": "text", "default": default, "meaning": meaning}
            for key, default, meaning in KAFKA_KEYS
        ]
        _print_json([*rows, *kafka])
    else:
        _print(reference_page().rstrip())
    return 0


# --- printing


def _complain(problem: object) -> None:
    from archiver.observe import writes_json

    if writes_json():
        logging.getLogger("archiver").error("%s", problem)
    else:
        print(f"archiver: {problem}", file=sys.stderr)


def _print(text: str, *, flush: bool = False) -> None:
    try:
        print(text, flush=flush)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_be_written(error) from error


def _cannot_be_written(error: OSError) -> ArchiverError:
    return ArchiverError(f"the output could not be written: {error.strerror}; what is in the archive is whole")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        _print(line)


def _print_json(value: object) -> None:
    _print(json.dumps(value, indent=1))


if __name__ == "__main__":
    run()
