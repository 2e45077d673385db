"""Options that several commands have, and the types of their values."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from archiver.cli.output import complain, write
from archiver.errors import ArchiverError, UsageError

if TYPE_CHECKING:
    from archiver.archive.copies.copied_topic import CopyChoice
    from archiver.config.model import ArchiverConfig

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no other name


EXIT_STATUS = """\
exit status:
  0  done
  1  failed
  2  usage or configuration
  3  the archive or a comparison is not whole
  4  temporary; a retry may help
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all other errors are."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message}; see {self.prog} --help")
        raise SystemExit(UsageError.exit_code)

    def format_help(self) -> str:
        from archiver.cli.examples import examples_of

        return f"{super().format_help()}{examples_of(self.prog)}"

    def _print_message(self, message: str, _: object = None) -> None:
        """Print a help text. argparse alone would ignore a failed write."""
        try:
            write(message.rstrip("\n"))
        except ArchiverError as error:
            complain(error)
            raise SystemExit(error.exit_code) from None


def parser_of(group: "Commands", name: str, summary: str) -> argparse.ArgumentParser:
    return group.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:].removesuffix('?')}{'?' if summary.endswith('?') else '.'}",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_run(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Set the function that runs the command, and add the options that every command has."""
    parser.set_defaults(command=run)
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="how logs are written")
    parser.add_argument("--verbose", action="store_true", help="also log successful steps")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--no-color", action="store_true", help="no colors on a terminal; $NO_COLOR does the same")


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how results are printed")


def add_config(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="the configuration (default: $ARCHIVER_CONFIG, then ./archive.yaml)",
    )
    parser.set_defaults(url=None)  # for archive_config, also where add_archive adds no --url


def add_archive(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    add_config(where)
    where.add_argument(
        "--url",
        metavar="s3://BUCKET/PREFIX",
        help="the archive, in place of a configuration file (endpoint: $AWS_ENDPOINT_URL)",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", required=True, type=Path, metavar="FILE", help="YAML file with the target's kafka: section"
    )


def add_life(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--life",
        type=natural,
        metavar="N",
        help="which life of a topic that was created again (default: the newest with records)",
    )


def add_copies(parser: argparse._ActionsContainer) -> None:
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--instance",
        type=instance,
        metavar="NAME",
        help="of compacted topics, read the newest complete copy of this instance (default: the copy that holds)",
    )
    whose.add_argument(
        "--history",
        action="store_true",
        help="of compacted topics, read what was archived under topics/, whatever copies there are",
    )


def copy_choice(options: argparse.Namespace) -> "CopyChoice":
    from archiver.archive.copies.copied_topic import CopyChoice

    return CopyChoice(instance=options.instance, is_history=options.history)


def instance(text: str) -> str:
    from archiver.archive.format.layout import is_instance

    if not is_instance(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of an instance: 1 to 64 of a-z A-Z 0-9 . _ -, and begins with a letter or a digit"
        )
    return text


def add_times(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--from",
        dest="from_time",
        metavar="TIME",
        help="leave out records that are older (2026-11-20T14:00:00Z, or -2h)",
    )
    parser.add_argument("--until", dest="until_time", metavar="TIME", help="leave out records that are newer")


def natural(text: str) -> int:
    from archiver.codec.selection import LAST_LONG

    if not text.isdecimal() or not text.isascii() or len(text) > len(str(LAST_LONG)) or int(text) > LAST_LONG:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 to {LAST_LONG}")
    return int(text)


def topic_name(text: str) -> str:
    from archiver.archive.format.layout import Layout, is_topic_name

    if is_topic_name(text):
        return text
    topic, life = Layout.parse_topic_directory(text) or ("", 0)
    hint = (
        f"it is life {life} of {topic}: give {topic}, and cat --life {life}"
        if topic
        else "1 to 249 of a-z A-Z 0-9 . _ -"
    )
    raise argparse.ArgumentTypeError(f"{text!r} is not the name of a topic; {hint}")


def pattern(option: str, text: str) -> re.Pattern[str]:
    """Parse the value of an option that is a regular expression."""
    if not text:  # written by a script with an unset variable
        raise UsageError(f"{option}: is empty; give a regular expression, or leave it out")
    try:
        return re.compile(text, re.DOTALL)  # names of groups may have line breaks
    except re.error as error:
        raise UsageError(f"{option}: {text!r} is no regular expression: {error}") from error


def size(text: str) -> int:
    from archiver.config.quantities import parse_size_bytes

    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


def duration(text: str) -> int:
    """Return milliseconds."""
    from archiver.config.quantities import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


def archive_config(options: argparse.Namespace) -> "ArchiverConfig":
    from archiver.config.load import config_from_url, load_config

    return load_config(options.config) if options.url is None else config_from_url(options.url)
