"""`archiver retention`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.options import add_config, add_format, add_run
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.spelling import MOST_LISTED, left_out_lines, moment, table_lines
from archiver.process.text import spell_count

if TYPE_CHECKING:
    from archiver.spark.retention import SweepResult
    from archiver.upkeep.retention.plan import TopicSweep

_ANY_PLAN: Final = True  # no text: an empty digest, as a script may give it, is none


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, run)
    add_config(parser)
    add_format(parser)
    parser.add_argument("--dry-run", action="store_true", help="tell what would be deleted and why, and delete nothing")
    parser.add_argument(
        "--yes",
        nargs="?",
        const=_ANY_PLAN,
        metavar="DIGEST",
        help="also delete where that is more of a topic than expected; with DIGEST, which --dry-run prints, nothing but what that plan has",
    )
    parser.add_argument("--topics", metavar="REGEX", help="topics whose whole name matches (default: all)")
    parser.add_argument(
        "--now", metavar="TIME", help="count ages from this time (2026-11-20T14:00:00Z); the future only with --dry-run"
    )


def agreement(yes: str | bool | None) -> tuple[bool, str]:
    """Return whether all that is planned may go, and by which plan alone, by the value of `--yes`. Raises UsageError."""
    from archiver.errors import UsageError

    if yes == "":
        raise UsageError("--yes: the digest is empty; `archiver retention --dry-run` prints one if something goes")
    return yes is _ANY_PLAN, yes if isinstance(yes, str) else ""


def run(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.config.load import load_config
    from archiver.config.quantities import parse_moment_ms
    from archiver.process.failpoints import arm
    from archiver.process.progress import Progress
    from archiver.spark.retention import SweepRequest, run_retention

    agreed, digest = agreement(options.yes)
    arm(failpoint())
    request = SweepRequest(
        is_dry_run=options.dry_run,
        agreed=agreed,
        digest=digest,
        now_ms=None if options.now is None else parse_moment_ms("--now", options.now),
        topics=options.topics,
    )
    with closing(Progress("retention", quiet=options.quiet)) as progress:
        result = run_retention(load_config(options.config), request, progress.report)
    if options.format == "json":
        print_json(retention_row(result))
    else:
        print_lines(retention_lines(result))
    for problem in _problems(result):
        complain(problem)
    return 0 if result.is_complete else 1


def _problems(result: "SweepResult") -> Iterator[str]:
    for topic in result.plan.topics:
        yield from (f"{one.topic}-{one.partition}: {one.error}" for one in topic.partitions if one.error)
    for swept in result.swept:
        yield from swept.refused
        if swept.stopped:
            yield f"{swept.topic}: the sweep stopped before its end: {swept.stopped}"


def retention_row(result: "SweepResult") -> dict[str, Any]:
    swept = {one.topic: one for one in result.swept}
    waiting = {one.topic for one in result.waiting}
    return {
        "made": moment(result.plan.made_ms),
        "now": moment(result.plan.now_ms),
        "digest": result.digest or None,
        "complete": result.is_complete,
        "not_planned": result.not_planned,
        "topics": [
            {
                "topic": one.topic,
                "limits": {"ms": one.terms.limits.ms, "bytes": one.terms.limits.bytes},
                "to_delete": len(list(one.going)),
                "deleted": len(swept[one.topic].deleted) if one.topic in swept else 0,
                "deleted_records": sum(gone.told.records for gone in swept[one.topic].deleted)
                if one.topic in swept
                else 0,
                "deleted_bytes": sum(gone.item.size for gone in swept[one.topic].deleted) if one.topic in swept else 0,
                "because": dict(one.deleted_because()),
                "kept_because": dict(one.kept_because()),
                "unforeseen_share": round(one.unforeseen_share, 4),
                "waits_for_yes": one.topic in waiting,
                "untimed": sum(part.untimed for part in one.partitions),
                "notes": list(_notes(one)),
            }
            for one in result.plan.topics
        ],
        "kept": [{"topic": one.topic, "why": one.why} for one in result.plan.kept],
        "problems": list(_problems(result)),
        "seconds": result.seconds,
    }


def retention_lines(result: "SweepResult") -> Iterator[str]:
    swept = {one.topic: one for one in result.swept}
    for kept in result.plan.kept[:MOST_LISTED]:
        yield f"{kept.topic}: nothing goes: {kept.why}"
    yield from left_out_lines(len(result.plan.kept) - MOST_LISTED, "topics of which nothing goes")
    for one in result.plan.topics:
        yield from _topic_lines(one)
    rows = [
        (
            one.topic,
            str(one.terms.limits),
            len(list(one.going)),
            len(swept[one.topic].deleted) if one.topic in swept else 0,
        )
        for one in result.plan.topics
    ]
    if rows:
        yield from table_lines(("topic", "keeps", "objects to delete", "deleted"), rows)
    for one in result.waiting:
        yield (
            f"{one.topic}: {one.unforeseen_share:.0%} of it would go that the last sweep's limits would have kept; nothing of it was"
            " deleted. If that is meant, add --yes"
        )
    if result.not_planned:
        yield f"{spell_count(result.not_planned, 'object')} may go by now that the plan does not have; the next sweep takes them"
    if result.digest:
        yield f"nothing was deleted; `archiver retention --yes {result.digest}` deletes just this, within an hour"


def _notes(topic: "TopicSweep") -> Iterator[str]:
    return (f"{one.topic}-{one.partition}: {note}" for one in topic.partitions for note in one.notes)


def _topic_lines(topic: "TopicSweep") -> Iterator[str]:
    for why, count in topic.deleted_because().items():
        yield f"{topic.topic}: {spell_count(count, 'object goes', 'objects go')}: {why}"
    for stays, count in topic.kept_because().items():
        yield f"{topic.topic}: {spell_count(count, 'object stays', 'objects stay')}: {stays}"
    yield from _notes(topic)
    untimed = sum(one.untimed for one in topic.partitions)
    if untimed:
        yield (
            f"{topic.topic}: {spell_count(untimed, 'object has', 'objects have')} records without a time, or of the future; it counts"
            " by when it was put"
        )
