"""Results as text and as rows for JSON: lines that archiver.cli prints."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archiver.feed import PartitionReport
    from archiver.holdings import Holding, SegmentRow
    from archiver.inspection import Inspection
    from archiver.job import RestoreResult, VerifyResult
    from archiver.spark.restore import TopicReport


def backup_row(report: "PartitionReport") -> dict[str, Any]:
    return {
        "topic": report.source.topic,
        "life": report.source.life,
        "partition": report.source.partition,
        "from_offset": report.from_offset,
        "position": report.position,
        "end_offset": report.end_offset,
        "records": report.written.records,
        "bytes": report.written.payload_bytes,
        "stored_bytes": report.written.stored_bytes,
        "segments": report.written.segments,
        "put_retries": report.written.put_retries,
        "holes": [str(hole) for hole in report.written.holes],
        "open_transactions": [
            {"producer_id": one.producer_id, "transactional_id": one.transactional_id, "start_offset": one.start_offset}
            for one in report.open_transactions
        ],
        "error": None if report.error is None else str(report.error),
    }


def backup_lines(reports: Sequence["PartitionReport"], seconds: float) -> Iterator[str]:
    rows = [
        (
            report.source.topic,
            str(report.source.partition),
            f"{report.from_offset}..{report.position}",
            f"{report.written.records:,}",
            str(report.written.segments),
            _size(report.written.stored_bytes),
            ", ".join(f"hole {hole}" for hole in report.written.holes)
            + ("  open transaction" if report.open_transactions else "")
            + ("  FAILED" if report.error else ""),
        )
        for report in reports
    ]
    yield from _table(("topic", "partition", "offsets", "records", "segments", "stored", ""), rows)
    records = sum(report.written.records for report in reports)
    rate = f", {records / seconds:,.0f} records/s" if seconds > 0 else ""
    yield f"{records:,} records archived in {seconds:.1f} s{rate}"


def holding_row(holding: "Holding") -> dict[str, Any]:
    row = {name: getattr(holding, name) for name in holding.__slots__}
    return row | {"last_put": None if holding.last_put is None else _put_moment(holding.last_put)}


def segment_row(row: "SegmentRow") -> dict[str, Any]:
    segment, facts = row.segment, row.segment.facts
    return {
        "key": segment.object_key,
        "topic": segment.key.topic,
        "life": segment.key.life,
        "partition": segment.key.partition,
        "base": facts.base,
        "first": facts.first,
        "last": facts.last,
        "next": facts.next,
        "records": facts.records,
        "tombstones": facts.tombstones,
        "bytes": facts.bytes,
        "stored_bytes": segment.size,
        "min_timestamp": facts.min_timestamp,
        "max_timestamp": facts.max_timestamp,
        "put": None if segment.put_at is None else _put_moment(segment.put_at),
        "holes": [str(hole) for hole in facts.holes],
        "shadowed": row.is_shadowed,
    }


def segment_lines(rows: Sequence["SegmentRow"]) -> Iterator[str]:
    lines = []
    for row in rows:
        segment, facts = row.segment, row.segment.facts
        times = " .. ".join(_moment(moment) for moment in (facts.min_timestamp, facts.max_timestamp))
        remarks = [*(f"hole {hole}" for hole in facts.holes), *(["shadowed"] if row.is_shadowed else [])]
        put = "" if segment.put_at is None else _put_moment(segment.put_at)
        lines.append((
            str(segment.key.partition), f"{facts.base}..{facts.next}", f"{facts.records:,}", _size(facts.bytes),
            _size(segment.size), times, put, segment.object_key, ", ".join(remarks),
        ))  # fmt: skip
    yield from _table(("partition", "offsets", "records", "bytes", "stored", "time", "put", "object", ""), lines)


def holding_lines(holdings: Sequence["Holding"]) -> Iterator[str]:
    rows = [
        (
            one.topic + (f"@{one.life}" if one.life else ""),
            str(one.partitions if one.partition is None else one.partition),
            f"{one.first_offset}..{one.next_offset}",
            f"{one.records:,}",
            _size(one.payload_bytes),
            _size(one.stored_bytes),
            str(one.segments),
            " .. ".join(_moment(moment) for moment in (one.min_timestamp, one.max_timestamp) if moment is not None),
            "" if one.last_put is None else _put_moment(one.last_put),
            _remarks(one),
        )
        for one in holdings
    ]
    which = "partition" if holdings and holdings[0].partition is not None else "partitions"
    yield from _table(
        ("topic", which, "offsets", "records", "bytes", "stored", "segments", "time", "last put", ""), rows
    )


def _remarks(holding: "Holding") -> str:
    if holding.is_empty:
        return "empty"
    counted = [
        (holding.holes, "hole" if holding.holes == 1 else "holes"),
        (holding.gaps, "gap" if holding.gaps == 1 else "gaps"),
        (holding.shadowed, "shadowed"),
        (holding.damaged, "damaged"),
    ]
    return ", ".join(f"{count} {name}" for count, name in counted if count)


def inspection_row(found: "Inspection") -> dict[str, Any]:
    return {
        "size": found.size,
        "schema": found.schema,
        "codec": found.codec,
        "records": found.records,
        "header": found.header,
        "metadata": found.metadata,
        "blocks": [
            {"end": block.end, "records": block.records, "stored_bytes": block.stored_bytes} for block in found.blocks
        ],
        "checks": {check.what: check.problem or "ok" for check in found.checks},
    }


def inspection_lines(found: "Inspection") -> Iterator[str]:
    yield f"{_size(found.size)}, {found.schema or 'no schema that is known'}, {found.codec or 'no codec that is known'}"
    names = sorted({name[len("archiver-") :] for name in (*found.header, *found.metadata)})
    rows = [
        (name, found.metadata.get(f"archiver-{name}", "-"), found.header.get(f"archiver.{name}", "-")) for name in names
    ]
    yield from _table(
        ("fact", "metadata", "header"), [(name, one, "same" if one == other else other) for name, one, other in rows]
    )
    yield f"{len(found.blocks):,} blocks, {found.records:,} records"
    blocks = [
        (str(number), f"{one.end:,}", f"{one.records:,}", _size(one.stored_bytes))
        for number, one in enumerate(found.blocks)
    ]
    yield from _table(("block", "ends at", "records", "stored"), blocks)
    for check in found.checks:
        yield f"{check.what}: {'DAMAGED' if check.problem else 'ok'}"


def verify_row(result: "VerifyResult") -> dict[str, Any]:
    listing = result.listing
    return {
        "level": result.level,
        "whole": result.is_whole,
        "topics": listing.topics,
        "partitions": listing.partitions,
        "segments": len(listing.segments),
        "records": listing.records,
        "checked": result.checked,
        "compared": result.compared,
        "seconds": result.seconds,
        "problems": result.problems,
        "errors": [one.error for one in result.errors],
        "notes": result.notes,
    }


def verify_lines(result: "VerifyResult") -> Iterator[str]:
    listing = result.listing
    for note in result.notes:
        yield f"note: {note}"
    read = f", {result.checked:,} of them read" if result.level != "listing" else ""
    yield (
        f"{listing.topics:,} topics, {listing.partitions:,} partitions, {listing.records:,} records in"
        f" {len(listing.segments):,} objects{read}: {result.seconds:.1f} s"
    )
    if result.compared is not None:
        yield f"{result.compared:,} records that Kafka still has were compared"
    yield "whole" if result.is_whole else f"NOT WHOLE: {len(result.problems) + len(result.errors)} findings"


def topic_row(topic: "TopicReport") -> dict[str, Any]:
    return {
        "source": topic.source,
        "target": topic.target,
        "records": topic.records,
        "retention_command": topic.retention_command,
        "left_out_configs": topic.left_out_configs,
        "partitions": [{name: getattr(one, name) for name in one.__slots__} for one in topic.partitions],
    }


def restore_lines(result: "RestoreResult") -> Iterator[str]:
    topics = result.topics
    rows = [
        (
            topic.source,
            topic.target,
            str(one.partition),
            f"{one.records:,}",
            f"{one.already_there:,}",
            f"{one.digest:016x}",
            "FAILED" if one.error else "verified",
        )
        for topic in topics
        for one in topic.partitions
    ]
    yield from _table(("topic", "target", "partition", "records", "already there", "digest", ""), rows)
    records = sum(topic.records for topic in topics)
    yield (
        f"restore {result.restore_id}: {records:,} records filled and read back in {result.filling_seconds:.1f} s,"
        f" {result.seconds:.1f} s with Spark's start"
    )
    for topic in topics:
        if not topic.is_finished:
            yield f"{topic.target}: not whole; its configs are still those of the filling, and nothing in it expires"
        if topic.left_out_configs:
            yield f"{topic.target}: this cluster does not know {', '.join(topic.left_out_configs)}; not set"
        if topic.retention_command:
            yield f"{topic.target}: retention is unlimited, so that nothing restored expires. To set what was archived:"
            yield f"  {topic.retention_command}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _put_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _moment(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # a timestamp may be any 64-bit value
