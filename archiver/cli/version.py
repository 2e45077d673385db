"""`archiver version`: its options and its run. `archiver --version` prints the version alone."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from archiver import __version__
from archiver.cli.options import add_format, add_run
from archiver.cli.output import print_json, print_line

# The packages whose versions decide how bytes are read and written.
_PACKAGES: Final = ("confluent-kafka", "aiokafka", "numba", "fastavro", "boto3", "botocore", "pyspark")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_format(parser)


def run(options: argparse.Namespace) -> int:
    found = {"python": platform.python_version()} | {name: _version_of(name) for name in _PACKAGES}
    if options.format == "json":
        print_json({"version": __version__, **found})
        return 0
    print_line(f"archiver {__version__}")
    for name, number in found.items():
        print_line(f"{name} {number or '(not installed)'}")
    return 0


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
