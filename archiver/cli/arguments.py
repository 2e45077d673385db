"""What can be typed: commands, their arguments, and what each may be."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from archiver import __version__
from archiver.cli import commands, topics
from archiver.cli.output import complain, write
from archiver.errors import ArchiverError, UsageError

if TYPE_CHECKING:
    _Group = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no other name

EXIT_STATUS = """\
exit status:
  0  done
  1  failed
  2  usage or configuration
  3  the archive or a comparison is not whole
  4  temporary; a retry may help
"""


class _Parser(argparse.ArgumentParser):
    """Says in a line what it does not understand, as all else does."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message}; see {self.prog} --help")
        raise SystemExit(UsageError.exit_code)

    def _print_message(self, message: str, _: object = None) -> None:
        """Print a help; argparse overlooks that it cannot."""
        try:
            write(message.rstrip("\n"))
        except ArchiverError as error:
            complain(error)
            raise SystemExit(error.exit_code) from None


def build_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="archiver",
        description="A lossless archive of Kafka topics in S3 as plain Avro, and its way back.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"archiver {__version__}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = _command(group, "demo", commands.demo, "real broker, embedded S3: backup, disaster, restore, proof")
    demo.add_argument("--records", type=_natural, default=200_000, help="how many records (default %(default)s)")

    backup = _command(group, "backup", commands.backup, "archive topics, until stopped or up to what is committed now")
    _add_config(backup)
    _add_format(backup)
    backup.add_argument("--until-end", action="store_true", help="archive what is committed at the start, then exit")
    backup.add_argument(
        "--partitions",
        action="store_true",
        help="with --until-end: a line for each partition that changed, not each topic",
    )

    listed = _command(group, "topics", topics.run, topics.SUMMARY)
    _add_config(listed)
    _add_format(listed)

    ls = _command(group, "ls", commands.ls, "what the archive holds")
    _add_archive(ls)
    _add_format(ls)
    ls.add_argument("topic", nargs="?", type=_topic, metavar="TOPIC", help="show its partitions")
    ls.add_argument("--segments", action="store_true", help="with TOPIC: show each of its objects")

    cat = _command(group, "cat", commands.cat, "print records as JSON lines, in order")
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
        group, "inspect", commands.inspect, "take one object apart: header, facts, blocks, and whether they agree"
    )
    _add_archive(inspect)
    _add_format(inspect)
    inspect.add_argument("object", metavar="OBJECT", help="s3://BUCKET/KEY, a key of the archive, or a file")

    verify = _command(group, "verify", commands.verify, "is the archive whole?")
    _add_archive(verify)
    _add_format(verify)
    verify.add_argument(
        "--level",
        choices=("listing", "counts", "records"),
        default="listing",
        help="listing: object names and metadata (default); counts: the blocks of all objects; records: every record (both as a Spark job)",
    )
    verify.add_argument("--topics", metavar="REGEX", help="full-match regular expression (default: all)")
    verify.add_argument(
        "--against-kafka",
        action="store_true",
        help="also: what the cluster still has must be there (reads it, as a Spark job)",
    )
    verify.add_argument("--since", metavar="TIME", help="read only objects that were put since (2026-11-20T14:00:00Z)")

    _add_restore(group)
    _add_query(group)
    _add_spark_env_commands(group)
    _add_config_commands(group)
    return parser


def _add_restore(group: "_Group") -> None:
    restore = _command(group, "restore", commands.restore, "bring topics back into a cluster, as a Spark job")
    _add_archive(restore)
    _add_format(restore)
    restore.add_argument(
        "--target", required=True, type=Path, metavar="FILE", help="YAML file with the target's kafka: section"
    )
    restore.add_argument(
        "--dry-run", action="store_true", help="show the plan, and what would be refused; change nothing"
    )
    restore.add_argument(
        "--id", help="name of this restore; with the same one it goes on where it was (default: made of the request)"
    )
    _add_chosen_records(restore.add_argument_group("which records"))
    _add_target_topics(restore.add_argument_group("into which topics"))
    _add_ways_to_restore(restore.add_argument_group("how"))


def _add_chosen_records(restore: "argparse._ArgumentGroup") -> None:
    restore.add_argument("--topics", metavar="REGEX", help="full-match regular expression (default: all)")
    _add_life(restore)
    restore.add_argument("--partitions", metavar="LIST", help="only these (0,3-5); the others are there, and empty")
    restore.add_argument(
        "--offsets",
        metavar="LIST",
        help="only these, both ends inclusive (0:100-200,1:50-); other partitions are empty",
    )
    _add_times(restore)
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
    restore.add_argument(
        "--skip-damaged", action="store_true", help="restore what can be read, and report which offsets are missing"
    )


def _add_target_topics(restore: "argparse._ArgumentGroup") -> None:
    restore.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="restore a topic as another")
    restore.add_argument(
        "--rename-regex",
        action="append",
        default=[],
        metavar="REGEX=NEW",
        help=r"the same for all names that match; NEW may have groups (\1)",
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
        help="a target that exists, and that this restore did not make, is deleted with its records and created again",
    )
    restore.add_argument(
        "--purge-unread",
        action="store_true",
        help="with --purge-target, delete without having read whole what is to be in its place: damage is found too late then",
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
    restore.add_argument(
        "--retention",
        choices=("unlimited", "largest", "archived"),
        default="unlimited",
        help="of restored topics in the end (default unlimited: brokers soon delete what is older than a limit; largest: the"
        " largest limit that the cluster takes, where it refuses unlimited)",
    )


def _add_ways_to_restore(restore: "argparse._ArgumentGroup") -> None:
    restore.add_argument("--first", metavar="REGEX", help="topics that go before all others (largest first otherwise)")
    restore.add_argument(
        "--verify",
        action="store_true",
        help="read back and compare also what an earlier run has; what this one fills, it reads back in any case",
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


def _add_spark_env_commands(group: "_Group") -> None:
    spark_env = _parser_of(
        group, "spark-env", "for spark-submit: an environment for executors, and what the driver runs"
    )
    ways = spark_env.add_subparsers(title="commands", metavar="COMMAND", required=True)
    pack = _command(
        ways,
        "pack",
        commands.pack_spark_env,
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
    _command(ways, "entry", commands.print_spark_entry, "print the path of the file that spark-submit runs")


def _add_query(group: "_Group") -> None:
    query = _command(group, "query", commands.query, "run SQL over topics, each a table under its name, as a Spark job")
    _add_archive(query)
    _add_format(query)
    query.add_argument(
        "sql", metavar="SQL", help='such as "SELECT partition, count(*) FROM `my-topic` GROUP BY partition"'
    )
    _add_life(query)
    query.add_argument(
        "--instance",
        metavar="NAME",
        help="read what this instance has copied of compacted topics (no version writes copies yet)",
    )
    query.add_argument("--partitions", metavar="LIST", help="read these only, of each topic (0,3-5)")
    _add_times(query)
    query.add_argument(
        "--skip-damaged",
        action="store_true",
        help="read all twice: first for damage, then what is left, and report which offsets are missing",
    )


def _add_config_commands(group: "_Group") -> None:
    config = _parser_of(group, "config", "what the configuration says, and what it may say")
    ways = config.add_subparsers(title="commands", metavar="COMMAND", required=True)
    show = _command(ways, "show", commands.show_config, "the configuration that holds, secrets masked")
    _add_config(show)
    _add_format(show)
    reference = _command(
        ways, "reference", commands.print_config_reference, "every key: what it takes, its default, its meaning"
    )
    _add_format(reference)


def _natural(text: str) -> int:
    from archiver.codec.selection import LAST_LONG

    if not text.isdecimal() or not text.isascii() or len(text) > len(str(LAST_LONG)) or int(text) > LAST_LONG:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 to {LAST_LONG}")
    return int(text)


def _topic(text: str) -> str:
    from archiver.archive.layout import Layout, is_topic_name

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
    from archiver.config.quantities import parse_size_bytes

    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


def _parser_of(group: "_Group", name: str, summary: str) -> argparse.ArgumentParser:
    return group.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:].removesuffix('?')}{'?' if summary.endswith('?') else '.'}",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _command(
    group: "_Group",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
) -> argparse.ArgumentParser:
    parser = _parser_of(group, name, summary)
    parser.set_defaults(command=run)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="how logs are written")
    parser.add_argument("--verbose", action="store_true", help="also log successful steps")
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


def _add_life(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--life",
        type=_natural,
        metavar="N",
        help="of a topic that was created again (default: the newest with records)",
    )


def _add_times(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--from", dest="from_time", metavar="TIME", help="leave out records that are older (2026-11-20T14:00:00Z)"
    )
    parser.add_argument("--until", dest="until_time", metavar="TIME", help="leave out records that are newer")
