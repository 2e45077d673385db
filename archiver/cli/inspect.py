"""`archiver inspect`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import (
    add_archive,
    add_format,
    add_run,
    archive_config,
)
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import MOST_LISTED, left_out_lines, table_lines
from archiver.errors import NotWholeError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.upkeep.inspection import Inspection


_MOST_CHARACTERS: Final = 200


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument("object", metavar="OBJECT", help="s3://BUCKET/KEY, a key of the archive, or a file")


def run(options: argparse.Namespace) -> int:
    from archiver.config.load import config_of_bucket

    place = str(options.object)
    if Path(place).is_file():
        config = None
    elif place.startswith("s3://") and options.config is None and options.url is None:
        config = config_of_bucket("/".join(place.split("/")[:3]))
    else:
        config = archive_config(options)

    from archiver.upkeep.inspection import inspect_object  # may compile kernels

    found = inspect_object(config, place)
    if options.format == "json":
        print_json(inspection_row(found))
    else:
        print_lines(inspection_lines(found))
    problems = [check.problem for check in found.checks if check.problem]
    for problem in problems:
        complain(problem)
    return NotWholeError.exit_code if problems else 0


def inspection_row(found: "Inspection") -> dict[str, Any]:
    return {
        "size": found.size,
        "schema": found.schema,
        "codec": found.codec,
        "records": found.records,
        "header": found.header,
        "metadata": found.metadata,
        "block_count": found.block_count,
        "blocks": [
            {"end": block.end, "records": block.records, "stored_bytes": block.stored_bytes} for block in found.blocks
        ],
        "text": found.text,
        "checks": {check.what: check.problem or check.outcome for check in found.checks},
    }


def inspection_lines(found: "Inspection") -> Iterator[str]:
    if found.schema:
        yield f"{spell_size(found.size)}, {found.schema}, {found.codec}"
    elif any(check.what == "control" for check in found.checks):
        yield f"{spell_size(found.size)}, an object beside the records"
    else:
        yield f"{spell_size(found.size)}, not an object of records that can be read"
    yield from _shortened([_cut(line) for line in found.text.splitlines()], "line")
    if found.schema or found.metadata:
        names = sorted({name[len("archiver-") :] for name in (*found.header, *found.metadata)})
        rows = [
            (name, found.metadata.get(f"archiver-{name}", "-"), found.header.get(f"archiver.{name}", "-"))
            for name in names[:MOST_LISTED]
        ]
        table = [(_cut(name), _cut(one), "same" if one == other else _cut(other)) for name, one, other in rows]
        yield from table_lines(("fact", "metadata", "header"), table)
        yield from left_out_lines(len(names) - len(rows), "fact")
    if found.schema:
        yield f"{spell_count(found.block_count, 'block')}, {spell_count(found.records, 'record')}"
        blocks = [
            (str(number), f"{one.end:,}", f"{one.records:,}", spell_size(one.stored_bytes))
            for number, one in enumerate(found.blocks)
        ]
        yield from table_lines(("block", "ends at", "records", "stored"), blocks)
        yield from left_out_lines(found.block_count - len(blocks), "block")
    for check in found.checks:
        yield f"{check.what}: {check.outcome}"


def _shortened(lines: Sequence[str], what: str) -> Iterator[str]:
    yield from lines[:MOST_LISTED]
    yield from left_out_lines(len(lines) - MOST_LISTED, what)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}... ({len(text):,} characters)"
