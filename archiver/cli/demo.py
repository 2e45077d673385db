"""`archiver demo`: its options, and its run."""

import argparse

from archiver.cli.options import (
    add_run,
    natural,
)
from archiver.cli.output import write


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    parser.add_argument("--records", type=natural, default=200_000, help="how many records (default %(default)s)")


def run(options: argparse.Namespace) -> int:
    from archiver.demo import run_demo

    run_demo(records=options.records, print_text=lambda line: write(line, flush=True))
    return 0
