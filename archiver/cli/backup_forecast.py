"""`archiver backup --dry-run`: its run, and its two printers."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import table_lines
from archiver.errors import ArchiverError, UsageError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.backup.reports.forecast import BackupForecast


def run_forecast(options: argparse.Namespace) -> int:
    from archiver.backup.reports.forecast import forecast_backup
    from archiver.config.load import load_with_optional_storage

    config, has_storage = load_with_optional_storage(options.config)
    if not config.topics.include:
        raise UsageError("topics.include: is missing; list the topics to archive, as regular expressions")
    found = forecast_backup(config, has_storage=has_storage)
    if options.format == "json":
        print_json(forecast_row(found))
    else:
        print_lines(forecast_lines(found))
    for problem in (*found.notes, *found.errors):
        complain(problem)
    return ArchiverError.exit_code if found.errors else 0


def forecast_row(found: "BackupForecast") -> dict[str, Any]:
    sums = {name: sum(getattr(one, name) for one in found.topics) for name in ("offsets", "bytes")}
    return asdict(found) | sums


def forecast_lines(found: "BackupForecast") -> Iterator[str]:
    rows = [
        (
            one.topic,
            f"{one.behind} of {one.partitions}",
            f"{one.offsets:,}",
            spell_size(one.bytes),
            "new" if one.is_new else "",
        )
        for one in found.topics
        if one.offsets
    ]
    if rows:
        yield from table_lines(("topic", "partitions", "records at most", "bytes in Kafka, about", ""), rows)
    offsets, size = sum(one.offsets for one in found.topics), sum(one.bytes for one in found.topics)
    idle = len(found.topics) - len(rows)
    rest = f"; {spell_count(idle, 'topic')} would have nothing new" if idle else ""
    yield (
        f"a backup would archive at most {spell_count(offsets, 'record')}, about {spell_size(size)} as Kafka keeps them, of"
        f" {spell_count(len(rows), 'topic')}{rest}; nothing was archived"
    )
