"""The table of commands: for each its module, which is imported only when the command is typed, and its summary."""

import argparse
from importlib import import_module
from typing import Final

from archiver import __version__
from archiver.cli.options import EXIT_STATUS, Parser, parser_of

# Each module has `add_options(parser)`, which also sets the function to run.
COMMANDS: Final = {
    "demo": ("demo", "real broker, embedded S3: backup, disaster, restore, proof"),
    "backup": ("backup", "archive topics, until stopped or up to what is committed now"),
    "status": ("status", "is it working? last runs, how far behind, what is late"),
    "topics": ("topics", "which topics of the cluster are archived, and why the others are not"),
    "ls": ("ls", "what the archive holds"),
    "cat": ("cat", "print records as JSON lines, in order"),
    "compacted": ("compacted", "copies of compacted topics, which two instances make by turns"),
    "groups": ("groups", "where consumer groups stood, by the archive; and setting them on a target"),
    "import": ("import_", "log directories of Kafka brokers, or files of another tool, into the archive"),
    "export": ("export", "topics of the archive, as files of another tool"),
    "inspect": ("inspect", "take one object apart: header, facts, blocks, and whether they agree"),
    "report": ("report", "one HTML page: what is archived over time, what is missing, what it costs"),
    "verify": ("verify", "is the archive whole?"),
    "copy": ("copy", "keep a second archive: copies what it lacks"),
    "restore": ("restore", "bring topics back into a cluster, as a Spark job"),
    "drill": ("drill", "prove a restore: a sample into scratch topics, compared, and deleted again"),
    "retention": ("retention", "delete what topics keep no longer, as a Spark job"),
    "cluster": (
        "cluster",
        "noted ACLs, quotas, users and configs of the cluster: show, compare with a target, add there",
    ),
    "hold": ("hold", "records that no retention sweep may delete"),
    "query": ("query", "run SQL over topics, each a table under its name, as a Spark job"),
    "spark-env": ("spark_env", "for spark-submit: an environment for executors, and what the driver runs"),
    "completion": ("completion", "print the script with which bash or zsh completes commands and options"),
    "config": ("config", "what the configuration says, and what it may say"),
    "version": ("version", "which version this is"),
}


def build_parser(typed: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with the options of the typed command; None: of all commands. The others have their summaries alone."""
    parser: argparse.ArgumentParser = Parser(
        prog="archiver",
        description="A lossless archive of Kafka topics in S3 as plain Avro, and its way back.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"archiver {__version__}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = parser_of(group, name, summary)
        if typed is None or typed == name:
            import_module(f"archiver.cli.{module}").add_options(command)
    return parser
