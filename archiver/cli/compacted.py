"""`archiver compacted`: its commands."""

import argparse

from archiver.cli import compacted_clear, compacted_run, compacted_status
from archiver.cli.options import parser_of


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module, summary in (
        ("run", compacted_run, "keep compacted topics, as one of two instances that take turns"),
        (
            "status",
            compacted_status,
            "who is active, which copies stand, what is next, and what somebody should look at",
        ),
        ("clear", compacted_clear, "delete copies of a partition that only its log keeps"),
    ):
        module.add_options(parser_of(ways, name, summary))
    compacted_clear.add_refused_options(parser_of(ways, "accept", "no command any more: see clear"))
