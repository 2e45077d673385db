"""`archiver retention`: its options, its run, and its two printers."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from archiver.cli.jobs import add_job
from archiver.cli.options import add_archive, add_format, natural
from archiver.cli.output import complain, print_json, print_lines
from archiver.cli.retention_last import run_reports
from archiver.cli.spelling import MOST_LISTED, left_out_lines, moment, table_lines
from archiver.process.output.shell import spell_command
from archiver.process.output.text import spell_count, spell_size

if TYPE_CHECKING:
    from archiver.config.model import ArchiverConfig
    from archiver.upkeep.retention.planning.sweep_plan import TopicSweep
    from archiver.upkeep.retention.sweeping.sweep_result import SweepResult

_MOST_RANGES: Final = 10  # of a partition that a line names: holds may leave many
_MOST_SWEEPS: Final = 100
_ANY_PLAN: Final = True  # no text: a script may give an empty digest, which is none
_COMMAND: Final = ("archiver", "retention")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run, "retention")
    add_archive(parser)
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
        "--without-kafka",
        action="store_true",
        help="ask no cluster, and go by retention.fixed of the configuration: it takes also what the brokers still have",
    )
    parser.add_argument(
        "--now", metavar="TIME", help="count ages from this time (2026-11-20T14:00:00Z); the future only with --dry-run"
    )
    reports = parser.add_mutually_exclusive_group()
    reports.add_argument("--last", action="store_true", help="sweep nothing; show what the last sweep did")
    reports.add_argument(
        "--history",
        nargs="?",
        type=natural,
        const=_MOST_SWEEPS,
        metavar="N",
        help=f"sweep nothing; show the last N sweeps (default: {_MOST_SWEEPS}; 0: all that have a report), a line each",
    )


def agreement(yes: str | bool | None) -> tuple[bool, str]:
    """Return whether all planned deletes are agreed to, and the agreed plan, by the value of `--yes`. Raises UsageError."""
    from archiver.errors import UsageError

    if yes == "":
        raise UsageError("--yes: the digest is empty; `archiver retention --dry-run` prints one if something goes")
    return yes is _ANY_PLAN, yes if isinstance(yes, str) else ""


def run(options: argparse.Namespace) -> int:
    if options.last or options.history is not None:
        return run_reports(options)
    return _run_sweep(options)


def _run_sweep(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.config.load import found_file, load_config
    from archiver.config.quantities import parse_moment_ms
    from archiver.errors import UsageError

    if options.url is not None:
        raise UsageError(
            "--url goes with --last or --history: a sweep needs the limits of a configuration; give it with -c"
        )
    agreed, digest = agreement(options.yes)
    if options.dry_run and options.yes is not None:
        raise UsageError("--dry-run deletes nothing; --yes cannot go with it")
    file = options.config or found_file()
    config = load_config(file)  # before the kernels are imported, which may compile them

    from archiver.archive.notes.run_notes import MOST_NAMED
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.spark.retention import run_retention
    from archiver.upkeep.retention.sweeping.run_sweep import SweepRequest
    from archiver.upkeep.retention.sweeping.sweep_metrics import sweep_families
    from archiver.upkeep.retention.sweeping.sweep_result import report_of

    arm(failpoint())
    request = SweepRequest(
        is_dry_run=options.dry_run,
        agreed=agreed,
        digest=digest,
        now_ms=None if options.now is None else parse_moment_ms("--now", options.now),
        topics=options.topics,
        without_kafka=options.without_kafka,
    )
    if options.dry_run:
        options.job.metrics_file = None
    else:
        options.job.storage = config.storage
        options.job.facts["limits"] = _limits(config, options)
    with closing(Progress("retention", quiet=options.quiet)) as progress:
        result = run_retention(config, request, progress.report)
    options.job.facts["holds"] = tuple(result.holds[:MOST_NAMED])
    if options.format == "json":
        print_json(retention_row(result))
    else:
        print_lines(retention_lines(result, _command(file, options.topics)))
    for problem in _problems(result):
        complain(problem)
    if options.job.metrics_file is not None:
        options.job.families = sweep_families(report_of(result))
    return result.exit_code


def _limits(config: "ArchiverConfig", options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the sweep, for its note."""
    from archiver.config.quantities import spell_exact_duration

    kept = {
        "retention.floor": spell_exact_duration(config.retention.floor_ms),
        "retention.min-object-age": spell_exact_duration(config.retention.min_object_age_ms),
    }
    return kept if options.topics is None else {**kept, "topics": options.topics}


def _command(file: Path | None, topics: str | None) -> list[str]:
    """Return the words of a command that plans the same sweep again."""
    words = [*_COMMAND] if file is None else [*_COMMAND, "-c", str(file)]
    return words if topics is None else [*words, f"--topics={topics}"]


def _problems(result: "SweepResult") -> Iterator[str]:
    from archiver.upkeep.retention.sweeping.sweep_result import failures_of

    yield from dict.fromkeys(one.stop for one in result.plan.kept if one.stop)
    yield from failures_of(result)
    for swept in result.swept:
        yield from swept.refused
        if swept.stopped:
            yield f"{swept.topic}: the sweep stopped before its end: {swept.stopped}"
    yield from result.debris_swept.refused
    more = result.debris_swept.refusals - len(result.debris_swept.refused)
    if more:
        yield f"{spell_count(more, 'more delete')} failed"


def _noted_lines(result: "SweepResult") -> Iterator[str]:
    if result.newly_noted > 0:
        topics = spell_count(result.newly_noted, "topic")
        yield (
            f"this sweep has noted what {topics} {'keeps' if result.newly_noted == 1 else 'keep'} by now; if a topic keeps less"
            " some day, its noted limits count for retention.grace more"
        )


def retention_row(result: "SweepResult") -> dict[str, Any]:
    done = result.done_by_topic()
    waiting = {one.name for one in result.waiting}
    return {
        "made": moment(result.plan.made_ms),
        "now": moment(result.plan.now_ms),
        "digest": result.digest or None,
        "complete": result.is_complete,
        "without_kafka": result.plan.without_kafka,
        "not_planned": result.not_planned,
        "newly_noted": result.newly_noted,
        "topics": [
            {
                "topic": one.name,
                "limits_of": str(one.terms.whose),
                "limits": {"ms": one.terms.limits.ms, "bytes": one.terms.limits.bytes},
                "floor_ms": one.terms.limits.floor_ms,
                "to_delete": sum(part.objects for part in one.partitions),
                "records_to_delete": one.records,
                "bytes_to_delete": one.bytes,
                "partitions": _partition_rows(one),
                "deleted": len(done[one.name].deleted),
                "deleted_records": done[one.name].records,
                "deleted_bytes": done[one.name].bytes,
                "because": dict(one.deleted_because()),
                "kept_because": dict(one.kept_because()),
                "unforeseen_share": round(one.unforeseen_share, 4),
                "waits_for_yes": one.name in waiting,
                "untimed": sum(part.untimed for part in one.partitions),
                "notes": list(_notes(one)),
            }
            for one in result.plan.topics
        ],
        "kept": [{"topic": one.topic, "why": one.why} for one in result.plan.kept],
        "control": _control_rows(result),
        "problems": list(_problems(result)),
        "seconds": result.seconds,
    }


def retention_lines(result: "SweepResult", command: Sequence[str] = _COMMAND) -> Iterator[str]:
    done = result.done_by_topic()
    if result.plan.without_kafka:
        yield "this run asked no cluster: it goes by retention.fixed, and takes also what the brokers still have"
    for kept in result.plan.kept[:MOST_LISTED]:
        yield f"{kept.topic}: nothing goes: {kept.why}"
    yield from left_out_lines(len(result.plan.kept) - MOST_LISTED, "topics of which nothing goes")
    for one in result.plan.topics:
        yield from _topic_lines(one)
    if result.is_dry_run:
        ranges = [line for one in result.plan.topics for line in _range_lines(one)]
        yield from ranges[:MOST_LISTED]
        yield from left_out_lines(len(ranges) - MOST_LISTED, "partitions of which something goes")
    rows = [
        (
            one.name,
            str(one.terms.limits),
            sum(part.objects for part in one.partitions),
            one.records,
            spell_size(one.bytes),
            len(done[one.name].deleted),
        )
        for one in result.plan.topics
    ]
    if rows:
        yield from table_lines(("topic", "keeps", "objects to delete", "records", "stored", "deleted"), rows)
    elif not result.plan.kept:
        yield "the archive has no topic to sweep"
    yield from _control_lines(result)
    yield from _noted_lines(result)
    yield from _agreement_lines(result, command)


def _agreement_lines(result: "SweepResult", command: Sequence[str]) -> Iterator[str]:
    """Print the deletions that need an agreement, and the command for it."""
    end = (
        "a sweep leaves it as it is without --yes"
        if result.is_dry_run
        else "nothing of it was deleted. If that is meant, add --yes"
    )
    for one in result.waiting:
        why = f"{one.unforeseen_share:.0%} of it would go that the limits of before would have kept"
        if one.is_by_notes:
            why += ". Nobody has agreed to limits for it yet, and only notes in the archive say that cleanup.policy is delete"
        yield f"{one.name}: {why}; {end}"
    if result.not_planned:
        yield f"{spell_count(result.not_planned, 'object')} may go by now that the plan does not have; the next sweep takes them"
    if result.digest:
        option = ["--without-kafka"] if result.plan.without_kafka else []
        agreeing = spell_command([*command, *option, "--yes", result.digest])
        what = "what of this may go by then" if result.plan.now_ms > result.plan.made_ms else "just this"
        yield f"nothing was deleted; `{agreeing}` deletes {what}, within an hour"
    elif result.is_dry_run and (result.plan.objects or result.debris.going):
        yield "nothing was deleted; this is too much to be agreed on by a digest: look at a part with --topics, or agree to all with --yes"


def _control_rows(result: "SweepResult") -> list[dict[str, Any]]:
    """One row for each kind of control objects with deleted or kept ones."""
    done = result.debris_swept
    kinds = dict.fromkeys([*(one.kind for one in result.debris.going), *result.debris.staying])
    return [
        {
            "kind": kind,
            "groups_to_delete": sum(one.kind is kind for one in result.debris.going),
            "to_delete": sum(one.objects for one in result.debris.going if one.kind is kind),
            "deleted_groups": done.groups[kind],
            "deleted": done.objects[kind],
            "deleted_bytes": done.bytes[kind],
            "kept_because": dict(result.debris.staying.get(kind, {})),
        }
        for kind in kinds
    ]


def _control_lines(result: "SweepResult") -> Iterator[str]:
    rows = _control_rows(result)
    for row in rows:
        for why, count in row["kept_because"].items():
            yield f"{row['kind']}: {spell_count(count, 'stays', 'stay')}: {why}"
    names = ("groups_to_delete", "to_delete", "deleted")
    told = [(row["kind"], *(row[name] for name in names)) for row in rows if row["to_delete"]]
    if told:
        yield from table_lines(("control objects", "groups to delete", "objects to delete", "deleted"), told)
    yield from result.debris_swept.left[:MOST_LISTED]
    yield from left_out_lines(len(result.debris_swept.left) - MOST_LISTED, "groups that stay")


def _partition_rows(topic: "TopicSweep") -> list[dict[str, Any]]:
    """One row for each partition with deleted offsets."""
    return [
        {
            "partition": one.partition,
            "to_delete": len(one.going),
            "offsets": [list(span) for span in one.offsets.ranges],
        }
        for one in topic.partitions
        if one.going
    ]


def _range_lines(topic: "TopicSweep") -> Iterator[str]:
    for one in topic.partitions:
        if one.going:
            spelled = ", ".join(f"{start}-{stop - 1}" for start, stop in one.offsets.ranges[:_MOST_RANGES])
            more = "" if len(one.offsets.ranges) <= _MOST_RANGES else ", and more above"
            yield f"{topic.name}-{one.partition}: offsets {spelled}{more} go"


def _notes(topic: "TopicSweep") -> Iterator[str]:
    return (f"{one.topic}-{one.partition}: {note}" for one in topic.partitions for note in one.notes)


def _topic_lines(topic: "TopicSweep") -> Iterator[str]:
    for why, count in topic.deleted_because().items():
        yield f"{topic.name}: {spell_count(count, 'object goes', 'objects go')}: {why}"
    for stays, count in topic.kept_because().items():
        yield f"{topic.name}: {spell_count(count, 'object stays', 'objects stay')}: {stays}"
    yield from _notes(topic)
    untimed = sum(one.untimed for one in topic.partitions)
    if untimed:
        yield (
            f"{topic.name}: {spell_count(untimed, 'object has', 'objects have')} records without a time, or of the future; it counts"
            " by when it was put"
        )
