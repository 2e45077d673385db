"""`archiver ls`: its options, its run, and its printers: of each topic or partition, and of single objects."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import (
    add_archive,
    add_copies,
    add_format,
    add_run,
    archive_config,
    copy_choice,
    topic_name,
)
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import put_moment, table_lines
from archiver.errors import NotWholeError, UsageError
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.archive.reading.holdings import ArchiveSummary, Holding, SegmentRow


_SORTED_BY: Final = {
    "records": "records", "bytes": "payload_bytes", "stored": "stored_bytes", "time": "max_timestamp", "put": "last_put"
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_archive(parser)
    add_format(parser)
    parser.add_argument("topic", nargs="?", type=topic_name, metavar="TOPIC", help="show the partitions of this topic")
    add_copies(parser)
    parser.add_argument(
        "--sort",
        choices=("name", *_SORTED_BY),
        default="name",
        help="order of the rows; all but names: the largest first",
    )
    parser.add_argument("--segments", action="store_true", help="with TOPIC: show each of its objects")


def run(options: argparse.Namespace) -> int:
    from archiver.archive.format.handle import open_archive
    from archiver.archive.reading.holdings import summarize

    if options.segments and options.topic is None:
        raise UsageError("--segments needs a TOPIC: an archive may have millions of objects")
    config = archive_config(options).storage
    archive = open_archive(config)
    found = summarize(archive, options.topic, copy_choice(options))
    if options.sort != "name":

        def rank(one: "Holding") -> tuple[bool, Any]:
            value = getattr(one, _SORTED_BY[options.sort])
            return value is not None, value

        found = replace(found, holdings=sorted(found.holdings, key=rank, reverse=True))
    if options.format == "json":
        print_json(summary_row(found, with_segments=options.segments))
    else:
        print_lines(segment_lines(found.segments) if options.segments else holding_lines(found.holdings))
        if not found.holdings and not found.strangers:
            complain(f"{config.url}: nothing is archived there yet; is it the right prefix?")
        print_lines(f"stranger: {key}" for key in found.strangers)
    for problem in (*found.notes, *found.problems):
        complain(problem)
    return NotWholeError.exit_code if found.problems else 0


def summary_row(found: "ArchiveSummary", *, with_segments: bool) -> dict[str, Any]:
    segments = {"segments": [segment_row(one) for one in found.segments]} if with_segments else {}
    return {
        "holdings": [holding_row(one) for one in found.holdings],
        "totals": totals_of(found.holdings),
        **segments,
        "strangers": found.strangers,
        "problems": found.problems,
        "notes": found.notes,
    }


def holding_row(holding: "Holding") -> dict[str, Any]:
    row = {name: getattr(holding, name) for name in holding.__slots__}
    return row | {"last_put": None if holding.last_put is None else put_moment(holding.last_put)}


def totals_of(holdings: Sequence["Holding"]) -> dict[str, int]:
    partitions: dict[tuple[str, int, int | None], int] = {}  # a partition may have a history and a copy
    for one in holdings:
        which, count = (one.topic, one.life, one.partition), 1 if one.partition is not None else one.partitions
        partitions[which] = max(count, partitions.get(which, 0))
    return {
        "topics": len({one.topic for one in holdings}),
        "partitions": sum(partitions.values()),
        "segments": sum(one.segments for one in holdings),
        "records": sum(one.records for one in holdings),
        "payload_bytes": sum(one.payload_bytes for one in holdings),
        "stored_bytes": sum(one.stored_bytes for one in holdings),
    }


def segment_row(row: "SegmentRow") -> dict[str, Any]:
    from archiver.archive.segments.segment_facts import SegmentFacts

    segment, bounds = row.segment, row.segment.facts
    facts = bounds if isinstance(bounds, SegmentFacts) else None
    return {
        "key": segment.object_key,
        "topic": segment.key.topic,
        "life": segment.key.life,
        "partition": segment.key.partition,
        "base": bounds.base,
        "first": bounds.first,
        "last": bounds.last,
        "next": bounds.next,
        "records": facts and facts.records,
        "tombstones": facts and facts.tombstones,
        "bytes": facts and facts.bytes,
        "stored_bytes": segment.size,
        "min_timestamp": facts and facts.min_timestamp,
        "max_timestamp": facts and facts.max_timestamp,
        "put": None if segment.put_at is None else put_moment(segment.put_at),
        "holes": [str(hole) for hole in facts.holes] if facts else [],
        "shadowed": row.is_shadowed,
    }


def holding_lines(holdings: Sequence["Holding"]) -> Iterator[str]:
    from archiver.config.quantities import spell_time

    has_copies = any(one.copy for one in holdings)
    rows = [
        (
            one.topic + (f"@{one.life}" if one.life else ""),
            str(one.partitions if one.partition is None else one.partition),
            f"{one.first_offset}..{one.next_offset}",
            _counted(one, f"{one.records:,}"),
            _counted(one, spell_size(one.payload_bytes)),
            spell_size(one.stored_bytes),
            str(one.segments),
            " .. ".join(spell_time(at) for at in (one.min_timestamp, one.max_timestamp) if at is not None),
            "" if one.last_put is None else put_moment(one.last_put),
            *([one.copy] if has_copies else []),
            _remarks(one),
        )
        for one in holdings
    ]
    which = "partition" if holdings and holdings[0].partition is not None else "partitions"
    copies = ["read from"] if has_copies else []
    yield from table_lines(
        (
            "topic",
            which,
            "offsets" if which == "partition" else "offsets, at most",
            "records",
            "bytes",
            "stored",
            "segments",
            "time",
            "last put",
            *copies,
            "",
        ),
        rows,
    )
    if len(holdings) > 1:
        sums = totals_of(holdings)
        yield (
            f"{spell_count(sums['topics'], 'topic')}, {spell_count(sums['partitions'], 'partition')}:"
            f" {spell_count(sums['records'], 'record')} of {spell_size(sums['payload_bytes'])}, in"
            f" {spell_count(sums['segments'], 'segment')} of {spell_size(sums['stored_bytes'])}"
        )


def _counted(holding: "Holding", known: str) -> str:
    if not holding.uncounted:
        return known
    return "?" if holding.uncounted == holding.segments else f"{known} + ?"


def _remarks(holding: "Holding") -> str:
    if holding.is_empty:
        return "empty"
    counted = [
        (holding.holes, "hole", "holes"),
        (holding.unreadable, "of them unreadable", "of them unreadable"),
        (holding.gaps, "gap", "gaps"),
        (holding.shadowed, "shadowed", "shadowed"),
        (holding.damaged, "damaged", "damaged"),
        (holding.uncounted, "of v1.0", "of v1.0"),
    ]
    return ", ".join(spell_count(*one) for one in counted if one[0])


def segment_lines(rows: Iterable["SegmentRow"]) -> Iterator[str]:
    from archiver.config.quantities import spell_time

    lines = []
    for row in map(segment_row, rows):
        records, size, times, remarks = "?", "?", "?", ["v1.0"]
        if row["records"] is not None:
            records, size = f"{row['records']:,}", spell_size(row["bytes"])
            times = " .. ".join(spell_time(row[name]) for name in ("min_timestamp", "max_timestamp"))
            remarks = [f"hole {hole}" for hole in row["holes"]]
        lines.append((
            str(row["partition"]), f"{row['base']}..{row['next']}", records, size, spell_size(row["stored_bytes"]), times,
            row["put"] or "", row["key"], ", ".join([*remarks, *(["shadowed"] if row["shadowed"] else [])]),
        ))  # fmt: skip
    yield from table_lines(("partition", "offsets", "records", "bytes", "stored", "time", "put", "object", ""), lines)
