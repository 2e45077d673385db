"""`archiver spark-env`: packs an environment for executors, and names the file that spark-submit runs."""

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver.cli.options import (
    add_format,
    add_run,
    parser_of,
)
from archiver.cli.output import print_json, print_line, print_lines
from archiver.process.output.shell import spell_command
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.spark.session.packing import PackedEnvironment


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    pack = parser_of(ways, "pack", "pack this Python's archiver and all it needs, for spark-submit --archives FILE#env")
    add_run(pack, run_pack)
    add_format(pack)
    pack.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("archiver-env.tar.gz"),
        metavar="FILE",
        help="the .tar.gz to write (default %(default)s)",
    )
    pack.add_argument("--force", action="store_true", help="replace a file that is there")
    pack.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="DISTRIBUTION",
        help="another installed distribution, with what it needs, such as the one of a token_provider",
    )
    pack.add_argument(
        "--without-sql", action="store_true", help="leave pandas and pyarrow out: enough for restore and verify"
    )
    add_run(parser_of(ways, "entry", "print the path of the file that spark-submit runs"), run_entry)


def run_pack(options: argparse.Namespace) -> int:
    from archiver.process.output.progress import Progress
    from archiver.spark.session.packing import pack_environment

    with closing(Progress("pack", quiet=options.quiet)) as progress:
        packed = pack_environment(
            options.output,
            add=options.add,
            with_sql=not options.without_sql,
            overwrite=options.force,
            report_step=progress.report,
        )
    if options.format == "json":
        print_json(packed_row(packed))
    else:
        print_lines(packed_lines(packed))
    return 0


def run_entry(_: argparse.Namespace) -> int:
    print_line(str(Path(__file__).resolve().parents[1] / "submit.py"))
    return 0


def packed_row(packed: "PackedEnvironment") -> dict[str, Any]:
    return {name: getattr(packed, name) for name in packed.__slots__} | {"path": str(packed.path)}


def packed_lines(packed: "PackedEnvironment") -> Iterator[str]:
    yield (
        f"{packed.path}: {spell_size(packed.stored_bytes)}, {spell_size(packed.unpacked_bytes)} unpacked,"
        f" {spell_count(packed.files, 'file')}, {spell_count(len(packed.packages), 'package')},"
        f" {spell_count(packed.kernels, 'compiled kernel')}"
    )
    yield f"archiver {packed.edition} for {packed.python}, sha256 {packed.sha256}"
    yield (
        f"give it to executors: {spell_command(['spark-submit', '--archives', f'{packed.path}#env'])}"
        ' --conf spark.pyspark.python=./env/bin/python ... "$(archiver spark-env entry)" restore ...'
    )
