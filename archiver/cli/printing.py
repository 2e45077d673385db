"""Results as text and as rows for JSON: lines that a command prints."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from archiver.archive.segment_facts import SegmentFacts
from archiver.process.shell import spell_command
from archiver.process.text import spell_count
from archiver.process.text import spell_size as _size
from archiver.process.text import spell_table as _table

if TYPE_CHECKING:
    from archiver.archive.holdings import Holding, SegmentRow
    from archiver.restore.preview import RestorePreview
    from archiver.restore.report import RestoreResult, TopicReport
    from archiver.restore.task import TaskReport
    from archiver.spark.packing import PackedEnvironment
    from archiver.spark.verify import VerifyResult
    from archiver.upkeep.inspection import Inspection

# Of what an object says of itself: ours say less, and what is longer nobody reads on a terminal. JSON has all of it.
_MOST_ROWS: Final = 1000
_MOST_CHARACTERS: Final = 300
_MOST_NAMES: Final = 10
_NOTHING_ARCHIVED: Final = "nothing of {} is archived: either it had no record, or no backup could read it, which `archiver backup --until-end` says"


_ROWS_MEASURED = 1000
_WIDEST = 60  # characters that a column is filled up to


def holding_row(holding: "Holding") -> dict[str, Any]:
    row = {name: getattr(holding, name) for name in holding.__slots__}
    return row | {"last_put": None if holding.last_put is None else _put_moment(holding.last_put)}


def segment_row(row: "SegmentRow") -> dict[str, Any]:
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
        "put": None if segment.put_at is None else _put_moment(segment.put_at),
        "holes": [str(hole) for hole in facts.holes] if facts else [],
        "shadowed": row.is_shadowed,
    }


def segment_lines(rows: Sequence["SegmentRow"]) -> Iterator[str]:
    lines = []
    for row in rows:
        segment, facts = row.segment, row.segment.facts
        records, size, times, remarks = "?", "?", "?", ["v1.0"]
        if isinstance(facts, SegmentFacts):
            records, size = f"{facts.records:,}", _size(facts.bytes)
            times = " .. ".join(_moment(moment) for moment in (facts.min_timestamp, facts.max_timestamp))
            remarks = [f"hole {hole}" for hole in facts.holes]
        put = "" if segment.put_at is None else _put_moment(segment.put_at)
        lines.append((
            str(segment.key.partition), f"{facts.base}..{facts.next}", records, size, _size(segment.size), times, put,
            segment.object_key, ", ".join([*remarks, *(["shadowed"] if row.is_shadowed else [])]),
        ))  # fmt: skip
    yield from _table(("partition", "offsets", "records", "bytes", "stored", "time", "put", "object", ""), lines)


def holding_lines(holdings: Sequence["Holding"]) -> Iterator[str]:
    rows = [
        (
            one.topic + (f"@{one.life}" if one.life else ""),
            str(one.partitions if one.partition is None else one.partition),
            f"{one.first_offset}..{one.next_offset}",
            _counted(one, f"{one.records:,}"),
            _counted(one, _size(one.payload_bytes)),
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
        yield f"{_size(found.size)}, {found.schema}, {found.codec}"
    elif any(check.what == "control" for check in found.checks):
        yield f"{_size(found.size)}, an object beside the records"
    else:
        yield f"{_size(found.size)}, not an object of records that can be read"
    yield from _shortened([_cut(line) for line in found.text.splitlines()], "line")
    if found.schema or found.metadata:
        names = sorted({name[len("archiver-") :] for name in (*found.header, *found.metadata)})
        rows = [
            (name, found.metadata.get(f"archiver-{name}", "-"), found.header.get(f"archiver.{name}", "-"))
            for name in names[:_MOST_ROWS]
        ]
        table = [(_cut(name), _cut(one), "same" if one == other else _cut(other)) for name, one, other in rows]
        yield from _table(("fact", "metadata", "header"), table)
        yield from _left_out(len(names) - len(rows), "fact")
    if found.schema:
        yield f"{spell_count(found.block_count, 'block')}, {spell_count(found.records, 'record')}"
        blocks = [
            (str(number), f"{one.end:,}", f"{one.records:,}", _size(one.stored_bytes))
            for number, one in enumerate(found.blocks)
        ]
        yield from _table(("block", "ends at", "records", "stored"), blocks)
        yield from _left_out(found.block_count - len(blocks), "block")
    for check in found.checks:
        yield f"{check.what}: {check.outcome}"


def _shortened(lines: Sequence[str], what: str) -> Iterator[str]:
    yield from lines[:_MOST_ROWS]
    yield from _left_out(len(lines) - _MOST_ROWS, what)


def _left_out(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"... and {spell_count(count, f'more {what}')}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}... ({len(text):,} characters)"


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
        f"{spell_count(listing.topics, 'topic')}, {spell_count(listing.partitions, 'partition')},"
        f" {spell_count(listing.records, 'record')} in {spell_count(len(listing.segments), 'object')}{read}:"
        f" {result.seconds:.1f} s"
    )
    if result.compared is not None:
        were = spell_count(result.compared, "record that Kafka still has was", "records that Kafka still has were")
        yield f"{were} compared"
    count = len(result.problems) + len(result.errors)
    yield "whole" if result.is_whole else f"NOT WHOLE: {spell_count(count, 'finding')}"


def preview_row(preview: "RestorePreview") -> dict[str, Any]:
    return {
        "id": preview.restore_id,
        "topics": [
            {
                "source": topic.source,
                "life": topic.life,
                "target": topic.target,
                "state": _state(preview, topic.target),
                "records": topic.records,
                "repartition": topic.repartition,
                "stored_bytes": topic.stored_bytes,
                "nothing_archived": not topic.has_objects and not preview.is_partial,
                "partitions": [
                    {
                        "partition": one.partition,
                        "records": one.records,
                        "objects": len(one.parts),
                        "stored_bytes": one.stored_bytes,
                        "missing": one.missing,
                        "problem": one.problem,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in preview.topics
        ],
        "refused": preview.refused,
        "damage": preview.damage,
        "notes": preview.notes,
        "may_be_refused": preview.doubts,
        "effort": {name: getattr(preview.effort, name) for name in preview.effort.__slots__},
    }


def preview_lines(preview: "RestorePreview") -> Iterator[str]:
    rows = [
        (
            topic.source,
            str(topic.life),
            topic.target,
            str(len(topic.partitions)) + ("" if topic.repartition is None else f" into {topic.repartition}"),
            f"{topic.records:,}",
            _size(topic.stored_bytes),
            _state(preview, topic.target),
        )
        for topic in preview.topics
    ]
    yield from _table(("topic", "life", "target", "partitions", "records at most", "stored", "target is"), rows)
    effort = preview.effort
    yield (
        f"restore {preview.restore_id}: {spell_count(sum(topic.records for topic in preview.topics), 'record')} at most,"
        f" {spell_count(effort.gets, 'object')} to get, {spell_count(effort.batches, 'batch', 'batches')} to send,"
        f" {spell_count(effort.puts, 'small put')}; about {effort.seconds:.0f} s on this machine, if brokers and store"
        " keep up"
    )
    yield from (f"note: {note}" for note in preview.notes)
    for topic in preview.topics:
        if not topic.has_objects and not preview.is_partial:
            yield f"note: {topic.target}: {_NOTHING_ARCHIVED.format(topic.source)}"
    yield from (f"may be refused, by what is chosen of these records: {doubt}" for doubt in preview.doubts)
    yield "nothing was changed"


_THERE = {"empty": "there already", "append": "there already, and kept", "purge": "there already, and would be purged"}


def _state(preview: "RestorePreview", target: str) -> str:
    if target in preview.begun:
        return "begun with"
    return _THERE[preview.policy] if target in preview.existing else "new"


def restore_row(result: "RestoreResult") -> dict[str, Any]:
    return {
        "id": result.restore_id or None,
        "seconds": result.seconds,
        "filling_seconds": result.filling_seconds,
        "records": result.records,
        "filled": result.filled,
        "records_a_second": result.records_a_second,
        "bytes": result.bytes,
        "failure": None if result.failure is None else str(result.failure),
        "not_begun": result.not_begun,
        "topics": [topic_row(one) for one in result.topics],
    }


def topic_row(topic: "TopicReport") -> dict[str, Any]:
    return {
        "source": topic.source,
        "life": topic.life,
        "target": topic.target,
        "records": topic.records,
        "is_finished": topic.is_finished,
        "refusal": None if topic.refusal is None else str(topic.refusal),
        "retention_command": topic.retention_command,
        "strange_retention": topic.strange_retention,
        "left_out_configs": topic.left_out_configs,
        "appends": topic.appends,
        "nothing": topic.nothing,
        "retention": topic.retention,
        "expiring": None if topic.expiring is None else topic.expiring._asdict(),
        "oversized": topic.oversized,
        "left_out_filling": topic.left_out_filling,
        "partitions": [_task_row(one) for one in topic.partitions],
        "repartition": topic.repartition,
        "target_partitions": [_task_row(one) for one in topic.target_partitions],
    }


def _task_row(report: "TaskReport") -> dict[str, Any]:
    """Digests as text: they do not fit the numbers that most readers of JSON have."""
    row = {name: getattr(report, name) for name in report.__slots__}
    return row | {name: None if row[name] is None else f"{row[name]:016x}" for name in ("digest", "target_digest")}


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
            _outcome(topic, one),
        )
        for topic in topics
        for one in topic.partitions
    ]
    yield from _table(("topic", "target", "partition", "records", "already there", "digest", ""), rows)
    dealt = [
        (
            topic.target,
            str(one.partition),
            f"{one.records:,}",
            f"{one.digest:016x}",
            _outcome(topic, one),
        )
        for topic in topics
        for one in topic.target_partitions
    ]
    if dealt:
        yield from _table(("dealt by key into", "partition", "records", "digest", ""), dealt)
    rate = "" if result.records_a_second is None else f", {result.records_a_second:,.0f} a second"
    size = "" if result.bytes is None else f" of {_size(result.bytes)}"
    yield (
        f"restore {result.restore_id}: {spell_count(result.records, 'record')}{size},"
        f" {result.filled:,} of them filled and read back in {result.filling_seconds:.1f} s{rate};"
        f" {result.seconds:.1f} s with Spark's start"
    )
    for topic in topics:
        yield from _configs_lines(topic)
    if result.not_begun:
        names = ", ".join(result.not_begun[:_MOST_NAMES])
        more = len(result.not_begun) - _MOST_NAMES
        yield f"not begun: {names}{f' and {more:,} more' if more > 0 else ''}"


def _outcome(topic: "TopicReport", report: "TaskReport") -> str:
    if report.error:
        return "FAILED"
    if topic.nothing is not None:
        return topic.nothing
    expired = f", {spell_count(report.expired, 'offset')} of it expired since" if report.expired else ""
    return f"verified{', not whole' if report.missing else ''}{expired}"


def _configs_lines(topic: "TopicReport") -> Iterator[str]:
    """Tell which configs it has now, and what is left to set."""
    if topic.refusal is not None and topic.is_finished:
        yield f"{topic.target}: all of it is there, with the configs that were archived, but for those that this cluster refused"
    elif topic.refusal is not None:
        yield f"{topic.target}: all of it is there; its configs are still those of the filling, and nothing in it expires"
    elif not topic.is_finished and topic.appends:
        yield f"{topic.target}: not whole; what was there before is still there, and its configs are its own"
    elif not topic.is_finished:
        yield f"{topic.target}: not whole; its configs are still those of the filling, and nothing in it expires"
    if topic.nothing == "nothing archived":
        yield f"{topic.target}: {_NOTHING_ARCHIVED.format(topic.source)}"
    if topic.left_out_configs:
        yield f"{topic.target}: this cluster does not know {', '.join(topic.left_out_configs)}; not set"
    yield from (f"{topic.target}: {told}" for told in topic.left_out_filling)
    yield from _retention_lines(topic)


def _retention_lines(topic: "TopicReport") -> Iterator[str]:
    if topic.retention_command:
        now = f"{topic.retention} stays" if topic.retention else "retention is now unlimited"
        yield f"{topic.target}: {now}. To set the archived value, run:"
        yield f"  {topic.retention_command}"
    if topic.strange_retention:
        yield (
            f"{topic.target}: the archive has {', '.join(topic.strange_retention)} of {topic.source}, which no topic can have had,"
            f" so there is no command to set it; see who wrote control/topics/{topic.source}/, and bring its older version back"
        )
    if topic.expiring is not None:
        holds = "holds: it had none of its own" if topic.inherits_retention else "is set, as was archived"
        older = f"the brokers delete {topic.expiring} of the restored records, which are older"
        yield f"{topic.target}: {topic.retention} {holds}; {older if topic.expiring else 'no restored record is older'}"
    if topic.oversized:
        larger = spell_count(topic.oversized, "partition")
        yield f"{topic.target}: {larger} may be larger than that; the brokers then delete the oldest records there"


def packed_row(packed: "PackedEnvironment") -> dict[str, Any]:
    return {name: getattr(packed, name) for name in packed.__slots__} | {"path": str(packed.path)}


def packed_lines(packed: "PackedEnvironment") -> Iterator[str]:
    yield (
        f"{packed.path}: {_size(packed.stored_bytes)}, {_size(packed.unpacked_bytes)} unpacked,"
        f" {spell_count(packed.files, 'file')}, {spell_count(len(packed.packages), 'package')},"
        f" {spell_count(packed.kernels, 'compiled kernel')}"
    )
    yield f"archiver {packed.edition} for {packed.python}, sha256 {packed.sha256}"
    yield (
        f"give it to executors: {spell_command(['spark-submit', '--archives', f'{packed.path}#env'])}"
        ' --conf spark.pyspark.python=./env/bin/python ... "$(archiver spark-env entry)" restore ...'
    )


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Rows of a query as they come, as wide as the first of them need; what is wider later stands out."""
    lines = ([_cell(value) for value in row] for row in rows)
    seen = [[_line(name) for name in columns], *islice(lines, _ROWS_MEASURED)]
    widths = [min(_WIDEST, max(map(len, cells))) for cells in zip(*seen, strict=True)]
    for line in chain(seen, lines):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:  # noqa: ANN401 - any that JSON can hold
    match value:
        case None:
            return "NULL"
        case str():
            return _line(value)
        case {"utf8": str(text), **others} if not others:
            return _line(text)
        case {"base64": str(text), **others} if not others:
            return f"base64 {text}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _line(text: str) -> str:
    """Keep a text on its line, and a terminal from being told what to do."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text) if not text.isprintable() else text


def _put_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _moment(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # a timestamp may be any 64-bit value
