"""The two printers of `archiver restore`: a line for each partition and the remaining steps, or all of it as JSON."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.groups_apply import groups_lines, groups_row
from archiver.cli.spelling import NOTHING_ARCHIVED, table_lines
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.restore.plan.task import TaskReport
    from archiver.restore.report.restore_report import RestoreResult, TopicReport


_MOST_NAMES: Final = 10


def restore_row(result: "RestoreResult", not_restored: Sequence[str] = ()) -> dict[str, Any]:
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
        "problems": result.problems,
        "topics": [topic_row(one) for one in result.topics],
        "groups": None if result.groups is None else groups_row(result.groups),
        "not_restored": not_restored,
    }


def topic_row(topic: "TopicReport") -> dict[str, Any]:
    return {
        "source": topic.source,
        "life": topic.life,
        "target": topic.target,
        "records": topic.records,
        "is_finished": topic.is_finished,
        "refusal": None if topic.finish.refusal is None else str(topic.finish.refusal),
        "retention_command": topic.retention_command,
        "strange_retention": topic.strange_retention,
        "left_out_configs": topic.finish.left_out,
        "appends": topic.appends,
        "nothing": topic.nothing,
        "retention": topic.finish.retention,
        "expiring": None if topic.finish.expiring is None else topic.finish.expiring._asdict(),
        "oversized": topic.finish.oversized,
        "left_out_filling": topic.left_out_filling,
        "partitions": [_task_row(one) for one in topic.partitions],
        "repartition": topic.repartition,
        "target_partitions": [_task_row(one) for one in topic.target_partitions],
    }


def _task_row(report: "TaskReport") -> dict[str, Any]:
    """Return a report of a task as JSON. Digests are texts: 64 bits do not fit the numbers of most readers of JSON."""
    row = {name: getattr(report, name) for name in report.__slots__}
    return row | {name: None if row[name] is None else f"{row[name]:016x}" for name in ("digest", "target_digest")}


def restore_lines(result: "RestoreResult", not_restored: Sequence[str] = ()) -> Iterator[str]:
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
    yield from table_lines(("topic", "target", "partition", "records", "already there", "digest", ""), rows)
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
        yield from table_lines(("dealt by key into", "partition", "records", "digest", ""), dealt)
    rate = "" if result.records_a_second is None else f", {result.records_a_second:,.0f} a second"
    size = "" if result.bytes is None else f" of {spell_size(result.bytes)}"
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
    if result.groups is not None:
        yield ""
        yield from groups_lines(result.groups)
    if not_restored:
        yield ""
        yield "did not come back from the archive's cluster (`archiver cluster diff` shows each row, `cluster apply` adds what it can):"
        yield from (f"  {line}" for line in not_restored)


def _outcome(topic: "TopicReport", report: "TaskReport") -> str:
    if report.error:
        return "FAILED"
    if topic.nothing is not None:
        return topic.nothing
    expired = f", {spell_count(report.expired, 'offset')} of it expired since" if report.expired else ""
    return f"verified{', not whole' if report.missing else ''}{expired}"


def _configs_lines(topic: "TopicReport") -> Iterator[str]:
    """Yield the configs of a topic now, and those that the user has still to set."""
    if topic.finish.refusal is not None and topic.is_finished:
        yield f"{topic.target}: all of it is there, with the configs that were archived, but for those that this cluster refused"
    elif topic.finish.refusal is not None:
        yield f"{topic.target}: all of it is there; its configs are still those of the filling, and nothing in it expires"
    elif not topic.is_finished and topic.appends:
        yield f"{topic.target}: not whole; what was there before is still there, and its configs are its own"
    elif not topic.is_finished:
        yield f"{topic.target}: not whole; its configs are still those of the filling, and nothing in it expires"
    if topic.nothing == "nothing archived":
        yield f"{topic.target}: {NOTHING_ARCHIVED.format(topic.source)}"
    if topic.finish.left_out:
        yield f"{topic.target}: this cluster does not know {', '.join(topic.finish.left_out)}; not set"
    yield from (f"{topic.target}: {told}" for told in topic.left_out_filling)
    yield from _retention_lines(topic)


def _retention_lines(topic: "TopicReport") -> Iterator[str]:
    if topic.retention_command:
        now = f"{topic.finish.retention} stays" if topic.finish.retention else "retention is now unlimited"
        yield f"{topic.target}: {now}. To set the archived value, run:"
        yield f"  {topic.retention_command}"
    if topic.strange_retention:
        yield (
            f"{topic.target}: the archive has {', '.join(topic.strange_retention)} of {topic.source}, which no topic can have had,"
            f" so there is no command to set it; see who wrote control/topics/{topic.source}/, and bring its older version back"
        )
    if topic.finish.expiring is not None:
        holds = "holds: it had none of its own" if topic.finish.inherits_retention else "is set"
        older = f"the brokers delete {topic.finish.expiring} of the restored records, which are older"
        yield f"{topic.target}: {topic.finish.retention} {holds}; {older if topic.finish.expiring else 'no restored record is older'}"
    if topic.finish.oversized:
        larger = spell_count(topic.finish.oversized, "partition")
        yield f"{topic.target}: {larger} may be larger than that; the brokers then delete the oldest records there"
