"""`archiver compacted`: its commands."""

import argparse

from archiver.cli import compacted_accept, compacted_run, compacted_status
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
        ("accept", compacted_accept, "say that a log was meant to begin later, or to end earlier, than its copies"),
    ):
        module.add_options(parser_of(ways, name, summary))
