"""`archiver compacted`: its commands."""

import argparse

from archiver.cli import compacted_run
from archiver.cli.options import parser_of


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module, summary in (
        ("run", compacted_run, "keep compacted topics, as one of two instances that take turns"),
    ):
        module.add_options(parser_of(ways, name, summary))
