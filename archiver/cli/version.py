"""`archiver version`: its options and its run. `archiver --version` prints the same without JSON."""

import argparse
import platform

from archiver import __version__
from archiver.cli.options import add_format, add_run
from archiver.cli.output import print_json, print_line


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    if options.format == "json":
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        print_line(f"archiver {__version__}")
    return 0
