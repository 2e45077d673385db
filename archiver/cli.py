"""The command line: each command = parse -> one call -> exit code. The only module that prints."""

import argparse
import io
import json
import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from archiver import __version__
from archiver.errors import ArchiverError, NotWholeError, StoppedError, UsageError
from archiver.interrupt import INTERRUPTED, leave
from archiver.memory import settle_memory
from archiver.printable import printable, printable_json

if TYPE_CHECKING:
    from archiver.config import ArchiverConfig
    from archiver.feed import Feed, PartitionReport
    from archiver.restore_request import RestoreRequest
    from archiver.selection import Selection

Value = TypeVar("Value")

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
    set_up_logs(options.log_format, verbose=options.verbose, quiet=options.quiet)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        with _interruptible():
            return command(options)
    except ArchiverError as error:
        for line in str(error).split("\n") if error.has_lines else [error]:
            _complain(line)
        return error.exit_code
    except KeyboardInterrupt:
        _complain(INTERRUPTED)
        return StoppedError.exit_code
    except Exception as error:  # noqa: BLE001 - a defect of ours: one line, and a file
        from archiver.defects import as_ours

        _complain(as_ours(error))
        return ArchiverError.exit_code


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C be a KeyboardInterrupt while a command runs, so that what was begun is put away."""
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, leave)


def run() -> NoReturn:
    """Be the program, and end at once: to take the interpreter apart takes half a second, and nothing comes of it."""
    _open_streams()
    try:
        exit_code = main()
    except SystemExit as done:  # argparse, after --help and after what it does not understand
        exit_code = int(done.code or 0)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        _complain(_cannot_be_written(error))
        exit_code = exit_code or ArchiverError.exit_code
    logging.shutdown()
    os._exit(exit_code)


def _open_streams() -> None:
    """Have a place to write to where there is none (`>&-`), and one spelling: a record may hold any character, and JSON is UTF-8."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


class _Parser(argparse.ArgumentParser):
    """Says in a line what it does not understand, as all else does."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{message}; see {self.prog} --help")
        raise SystemExit(UsageError.exit_code)

    def _print_message(self, message: str, _: object = None) -> None:
        """Print a help; argparse overlooks that it cannot."""
        try:
            _write(message.rstrip("\n"))
        except ArchiverError as error:
            _complain(error)
            raise SystemExit(error.exit_code) from None


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
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
    ls.add_argument("topic", nargs="?", type=_topic, metavar="TOPIC", help="show its partitions")
    ls.add_argument("--segments", action="store_true", help="with TOPIC: show each of its objects")

    cat = _command(commands, "cat", _cat, "print records as JSON lines, in order")
    _add_archive(cat)
    cat.add_argument("topic", type=_topic, metavar="TOPIC")
    cat.add_argument("--partition", type=_natural, help="one partition only")
    cat.add_argument("--from-offset", type=_natural, metavar="N", help="leave out what is below")
    cat.add_argument("--until-offset", type=_natural, metavar="N", help="leave out what is above")
    _add_times(cat)
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

    _add_restore(commands)
    _add_query(commands)
    _add_spark_env_commands(commands)
    _add_config_commands(commands)
    return parser


def _add_restore(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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
        "--rename-regex",
        action="append",
        default=[],
        metavar="REGEX=NEW",
        help=r"the same for all names that match; NEW may have groups (\1)",
    )
    restore.add_argument("--partitions", metavar="LIST", help="only these (0,3-5); the others are there, and empty")
    restore.add_argument(
        "--offsets",
        metavar="LIST",
        help="only these, both ends inclusive (0:100-200,1:50-); other partitions are empty",
    )
    restore.add_argument(
        "--from", dest="from_time", metavar="TIME", help="leave out records that are older (2026-11-20T14:00:00Z)"
    )
    restore.add_argument("--until", dest="until_time", metavar="TIME", help="leave out records that are newer")
    restore.add_argument(
        "--where",
        metavar="SQL",
        help="only records for which this holds: a predicate of Spark SQL over topic, partition, offset, timestamp,"
        " timestampMs, timestampType, key, value, headers",
    )
    restore.add_argument(
        "--latest-per-key",
        action="store_true",
        help="of what is left, the last record with each key, as compaction would leave it; and all without a key",
    )
    existing = restore.add_mutually_exclusive_group()
    existing.add_argument(
        "--into-existing",
        dest="existing",
        action="store_const",
        const="append",
        default="empty",
        help="a target that exists is kept as it is, and the records go behind its own",
    )
    existing.add_argument(
        "--purge-target",
        dest="existing",
        action="store_const",
        const="purge",
        help="a target that exists, and that this restore did not make, is deleted with its records and created anew",
    )
    restore.add_argument(
        "--retention",
        choices=("unlimited", "archived"),
        default="unlimited",
        help="of restored topics in the end (default unlimited: brokers soon delete what is older than a limit)",
    )
    restore.add_argument(
        "--replication-factor",
        type=_natural,
        metavar="N",
        help="of topics that the restore creates (default: the cluster's)",
    )
    restore.add_argument(
        "--repartition",
        type=_natural,
        metavar="N",
        help="into so many partitions, by key as Kafka's Java client does; records without a key in turn",
    )
    restore.add_argument("--first", metavar="REGEX", help="topics that go before all others (largest first otherwise)")
    restore.add_argument(
        "--skip-damaged", action="store_true", help="restore what can be read, and report which offsets are missing"
    )
    restore.add_argument(
        "--batch-bytes",
        type=_size,
        metavar="SIZE",
        help="of records in a batch, uncompressed (default 4MB, at most 16MiB); what is sent of it has at most 1MB",
    )
    restore.add_argument(
        "--rate", type=_size, default=0, metavar="SIZE", help="most bytes a second, of all tasks together"
    )
    restore.add_argument(
        "--verify",
        action="store_true",
        help="read back and compare also what an earlier run has; what this one fills, it reads back in any case",
    )
    restore.add_argument(
        "--dry-run", action="store_true", help="show the plan, and what would be refused; change nothing"
    )
    restore.add_argument(
        "--id", help="name of this restore; with the same one it goes on where it was (default: made of the request)"
    )


def _add_spark_env_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    spark_env = _parser_of(
        commands, "spark-env", "for spark-submit: an environment for executors, and what the driver runs"
    )
    ways = spark_env.add_subparsers(title="commands", metavar="COMMAND", required=True)
    pack = _command(
        ways,
        "pack",
        _spark_env_pack,
        "pack this Python's archiver and all it needs, for spark-submit --archives FILE#env",
    )
    _add_format(pack)
    pack.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("archiver-env.tar.gz"),
        metavar="FILE",
        help="a .tar.gz (default %(default)s)",
    )
    pack.add_argument("--force", action="store_true", help="replace a file that is there")
    pack.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="DISTRIBUTION",
        help="another installed one, with what it needs, such as that of a token_provider",
    )
    pack.add_argument(
        "--without-sql", action="store_true", help="leave pandas and pyarrow out: enough for restore and verify"
    )
    _command(ways, "entry", _spark_env_entry, "print the path of the file that spark-submit runs")


def _add_query(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    query = _command(commands, "query", _query, "run SQL over topics, each a table under its name, as a Spark job")
    _add_archive(query)
    _add_format(query)
    query.add_argument(
        "sql", metavar="SQL", help='such as "SELECT partition, count(*) FROM `my-topic` GROUP BY partition"'
    )
    _add_life(query)
    query.add_argument("--partitions", metavar="LIST", help="read these only, of each topic (0,3-5)")
    _add_times(query)
    query.add_argument(
        "--skip-damaged",
        action="store_true",
        help="read all twice: first for damage, then what is left, and report which offsets are missing",
    )


def _add_config_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    config = _parser_of(commands, "config", "what the configuration says, and what it may say")
    ways = config.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = _command(ways, "show", _config_show, "the configuration that holds, secrets masked")
    _add_config(show)
    _add_format(show)
    reference = _command(ways, "reference", _config_reference, "every key: what it takes, its default, its meaning")
    _add_format(reference)


def _natural(text: str) -> int:
    from archiver.selection import LAST_LONG

    if not text.isdecimal() or not text.isascii() or len(text) > len(str(LAST_LONG)) or int(text) > LAST_LONG:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 to {LAST_LONG}")
    return int(text)


def _topic(text: str) -> str:
    from archiver.layout import Layout, is_topic_name

    if is_topic_name(text):
        return text
    topic, life = Layout.parse_topic_directory(text) or ("", 0)
    hint = (
        f"it is life {life} of {topic}: give {topic}, and cat --life {life}"
        if topic
        else "1 to 249 of a-z A-Z 0-9 . _ -"
    )
    raise argparse.ArgumentTypeError(f"{text!r} is not the name of a topic; {hint}")


def _size(text: str) -> int:
    from archiver.config import parse_size_bytes

    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser_of(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:].removesuffix('?')}{'?' if summary.endswith('?') else '.'}",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
) -> argparse.ArgumentParser:
    parser = _parser_of(commands, name, summary)
    parser.set_defaults(command=run)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="how logs are written")
    parser.add_argument("--verbose", action="store_true", help="log what goes well, too")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--no-color", action="store_true", help="no colors on a terminal; $NO_COLOR does the same")
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how results are printed")


def _add_config(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "-c", "--config", metavar="FILE", type=Path, help="default: $ARCHIVER_CONFIG, then ./archive.yaml"
    )


def _add_archive(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    _add_config(where)
    where.add_argument(
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


def _add_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="from_time", metavar="TIME", help="leave out records that are older (2026-11-20T14:00:00Z)"
    )
    parser.add_argument("--until", dest="until_time", metavar="TIME", help="leave out records that are newer")


def _archive_config(options: argparse.Namespace) -> "ArchiverConfig":
    from archiver.config import config_from_url, load_config

    return load_config(options.config) if options.url is None else config_from_url(options.url)


# --- commands


def _demo(options: argparse.Namespace) -> int:
    from archiver.demo import run_demo

    run_demo(records=options.records, tell=lambda line: _write(line, flush=True))
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
            if not _write(printable_json(json.dumps(record, ensure_ascii=False)), flush=options.follow):
                break  # as with --limit: whoever reads this has enough
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
    from archiver.config import config_of_bucket
    from archiver.job import inspect_object
    from archiver.printing import inspection_lines, inspection_row

    place = str(options.object)
    if Path(place).is_file():
        config = None
    elif place.startswith("s3://") and options.config is None and options.url is None:
        config = config_of_bucket("/".join(place.split("/")[:3]))
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
    from archiver.config import failpoint, load_target
    from archiver.failpoints import arm
    from archiver.job import run_restore_job
    from archiver.observe import Progress
    from archiver.printing import restore_lines, topic_row

    if options.dry_run:
        return _preview_restore(options)
    arm(failpoint())
    progress = Progress("restore", quiet=options.quiet)
    try:
        result = run_restore_job(
            _archive_config(options).storage,
            load_target(options.target),
            _restore_request(options),
            restore_id=options.id,
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
                "records": result.records,
                "filled": result.filled,
                "records_a_second": result.records_a_second,
                "bytes": result.bytes,
                "topics": [topic_row(one) for one in result.topics],
            }
        )
    else:
        _print_lines(restore_lines(result))
    incomplete = [partition for topic in result.topics for partition in topic.partitions if partition.missing]
    for partition in incomplete:
        for missing in partition.missing:
            _complain(f"skipped, not in {partition.target_topic}-{partition.partition}: {missing}")
    failed = [report for topic in result.topics for report in topic.errors]
    refusals = [topic.refusal for topic in result.topics if topic.refusal is not None]
    for problem in (*(report.error for report in failed), *refusals):
        _complain(problem)
    codes = [one.exit_code for one in failed] + [one.exit_code for one in refusals]
    return max([*codes, *([NotWholeError.exit_code] if incomplete else [])], default=0)


def _preview_restore(options: argparse.Namespace) -> int:
    from archiver.config import load_target
    from archiver.errors import TargetError
    from archiver.job import preview_restore
    from archiver.printing import preview_lines, preview_row

    found = preview_restore(
        _archive_config(options).storage,
        load_target(options.target),
        _restore_request(options),
        restore_id=options.id,
    )
    if options.format == "json":
        _print_json(preview_row(found))
    else:
        _print_lines(preview_lines(found))
    for problem in [*found.refused, *found.problems]:
        _complain(problem)
    for where, missing in found.missing:
        _complain(f"would be skipped, not in {where}: {missing}")
    if found.refused:
        return TargetError.exit_code
    return NotWholeError.exit_code if found.problems or found.missing else 0


def _predicate(text: str) -> str:
    """Refuse what a script makes of a variable that is not set: everything would come back."""
    if not text.strip():
        raise ValueError("is empty; give a predicate, or leave it out to have all records")
    return text


def _restore_request(options: argparse.Namespace) -> "RestoreRequest":
    from archiver.config import parse_moment_ms
    from archiver.restore_request import Existing, RestoreRequest, Retention, parse_patterns, parse_renames
    from archiver.selection import FIRST_LONG, LAST_LONG, TopicSelection, parse_offsets, parse_partitions

    def parsed(option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from error

    given = options.from_time, options.until_time
    from_ms = FIRST_LONG if given[0] is None else parse_moment_ms("--from", given[0])
    until_ms = LAST_LONG if given[1] is None else parse_moment_ms("--until", given[1])
    if from_ms > until_ms:
        raise UsageError("the range ends before it begins; see --from and --until")
    return RestoreRequest(
        topics=options.topics,
        renames=parse_renames(options.rename),
        patterns=parse_patterns(options.rename_regex),
        life=options.life,
        wanted=TopicSelection(
            partitions=parsed("--partitions", options.partitions, parse_partitions),
            offsets=parsed("--offsets", options.offsets, parse_offsets),
            from_ms=from_ms,
            until_ms=until_ms,
        ),
        where=parsed("--where", options.where, _predicate) or "",
        is_latest_per_key=options.latest_per_key,
        existing=Existing(options.existing),
        retention=Retention(options.retention),
        replication_factor=options.replication_factor,
        repartition=options.repartition,
        skips_damage=options.skip_damaged,
        first=options.first,
        reads_again=options.verify,
        **({} if options.batch_bytes is None else {"batch_bytes": options.batch_bytes}),
        rate_bytes=options.rate,
    )


def _spark_env_pack(options: argparse.Namespace) -> int:
    from archiver.observe import Progress
    from archiver.printing import packed_lines, packed_row
    from archiver.spark_env import pack_environment

    progress = Progress("pack", quiet=options.quiet)
    try:
        packed = pack_environment(
            options.output,
            add=options.add,
            with_sql=not options.without_sql,
            overwrite=options.force,
            tell=progress.tell,
        )
    finally:
        progress.close()
    if options.format == "json":
        _print_json(packed_row(packed))
    else:
        _print_lines(packed_lines(packed))
    return 0


def _spark_env_entry(_: argparse.Namespace) -> int:
    _print(str(Path(__file__).resolve().with_name("submit.py")))
    return 0


def _query(options: argparse.Namespace) -> int:
    from archiver.config import parse_moment_ms
    from archiver.job import run_query
    from archiver.observe import Progress
    from archiver.printing import table_lines

    given = {
        "life": options.life,
        "partitions": options.partitions,
        "from": None if options.from_time is None else parse_moment_ms("--from", options.from_time),
        "until": None if options.until_time is None else parse_moment_ms("--until", options.until_time),
    }
    chosen = {name: str(value) for name, value in given.items() if value is not None}
    progress = Progress("query", quiet=options.quiet)
    try:
        storage = _archive_config(options).storage
        with run_query(storage, options.sql, chosen, progress.tell, skips_damage=options.skip_damaged) as answer:
            progress.close()
            for missing in answer.skipped:
                _complain(f"skipped: {missing}")
            exit_code = NotWholeError.exit_code if answer.skipped else 0
            if options.format == "text":
                _print_lines(table_lines(answer.columns, answer.rows))
                return exit_code
            doubled = sorted(name for name, count in Counter(answer.columns).items() if count > 1)
            if doubled:
                raise UsageError(
                    f"two columns are called {', '.join(doubled)}; name them with AS, or take --format text"
                )
            for row in answer.rows:
                text = json.dumps(dict(zip(answer.columns, row, strict=True)), ensure_ascii=False)
                if not _write(printable_json(text)):
                    break
    finally:
        progress.close()
    return exit_code


def _config_show(options: argparse.Namespace) -> int:
    from archiver.config import load_config
    from archiver.kafka.settings import KafkaSettings
    from archiver.reference import effective, yaml_lines

    config = load_config(options.config)
    if config.kafka:
        KafkaSettings.parse(config.kafka, config.place_of_kafka)
    found = dict(effective(config))
    if options.format == "json":
        _print_json(found)
    else:
        _print_lines(yaml_lines(found))
    return 0


def _config_reference(options: argparse.Namespace) -> int:
    from archiver.kafka_keys import KAFKA_KEYS
    from archiver.reference import keys, reference_page

    if options.format == "json":
        rows = [
            {"key": row.key, "takes": row.kind, "default": row.default, "meaning": row.meaning}
            for row in keys()
            if row.key != "kafka.*"
        ]
        kafka = [
            {"key": f"kafka.{key.name}", "takes": key.takes, "default": key.default, "meaning": key.describe()}
            for key in KAFKA_KEYS
        ]
        _print_json([*rows, *kafka])
    else:
        _print_lines(reference_page().rstrip().splitlines())
    return 0


# --- printing


def _complain(problem: object) -> None:
    from archiver.observe import writes_json

    if writes_json():
        logging.getLogger("archiver").error("%s", problem)
        return
    with suppress(OSError):  # nobody hears it, or the disk is full; the exit code says it, too
        print(f"archiver: {printable(str(problem))}", file=sys.stderr)


def _print(line: str) -> bool:
    """Print one line, whatever is in it: names of objects and topics come from elsewhere."""
    return _write(printable(line))


def _write(text: str, *, flush: bool = False) -> bool:
    """Print as it is. False when nobody reads any more (`| head`): what is printed from then on is lost, and the exit code stays what it is."""
    try:
        print(text, flush=flush)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    except OSError as error:
        raise _cannot_be_written(error) from error
    return True


def _cannot_be_written(error: OSError) -> ArchiverError:
    return ArchiverError(f"the output could not be written: {error.strerror}; what is in the archive is whole")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        if not _print(line):
            return


def _print_json(value: object) -> None:
    _write("\n".join(printable_json(line) for line in json.dumps(value, indent=1).split("\n")))


if __name__ == "__main__":
    run()
