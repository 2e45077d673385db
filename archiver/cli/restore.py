"""`archiver restore`: its options, its run, and the command to continue it. Its printers are in restore_report."""

import argparse
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

from archiver.cli.chosen_positions import add_group_renames, add_groups_removed, group_request
from archiver.cli.groups_apply import complain_of_groups
from archiver.cli.jobs import add_job
from archiver.cli.options import (
    add_archive,
    add_copies,
    add_format,
    add_life,
    add_target,
    add_times,
    archive_config,
    natural,
    pattern,
    size,
)
from archiver.cli.output import complain, complain_of, print_json, print_lines
from archiver.cli.restore_list import add_ways
from archiver.cli.restore_preview import preview
from archiver.cli.restore_report import restore_lines, restore_row
from archiver.errors import NotWholeError, PredicateError, StoppedError, UsageError
from archiver.process.output.shell import can_be_typed, spell_command
from archiver.process.output.text import spell_some

if TYPE_CHECKING:
    from archiver.config.model import ArchiverConfig, TargetConfig
    from archiver.restore.groups.group_restore import GroupPlan, GroupRequest
    from archiver.restore.plan.request import RestoreRequest
    from archiver.restore.report.restore_report import RestoreResult


Value = TypeVar("Value")
_MOST_NAMED: Final = 10
# Another --until would be another restore.
_OTHER_MOMENTS = "`archiver groups apply --restore {} --as-of` that, or a later time, sets them"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_job(parser, run, "restore")
    add_archive(parser)
    add_format(parser)
    add_target(parser, required=False)  # not for `list` and `show`
    parser.add_argument(
        "--dry-run", action="store_true", help="show the plan, and what would be refused; change nothing"
    )
    parser.add_argument(
        "--id",
        help="name of this restore; a restore with the same name goes on where it was (default: made of the request)",
    )
    _add_chosen_records(parser.add_argument_group("which records"))
    _add_target_topics(parser.add_argument_group("into which topics"))
    _add_groups(parser.add_argument_group("consumer groups"))
    _add_ways_to_restore(parser.add_argument_group("how"))
    add_ways(parser)


def _add_chosen_records(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--topics", metavar="REGEX", help="topics whose whole name matches (default: all)")
    add_life(group)
    group.add_argument(
        "--partitions", metavar="LIST", help="only these (0,3-5); the other partitions are created, and stay empty"
    )
    group.add_argument(
        "--offsets",
        metavar="LIST",
        help="only these, both ends inclusive (0:100-200,1:50-); other partitions stay empty",
    )
    add_times(group)
    group.add_argument(
        "--where",
        metavar="SQL",
        help="only records for which this holds: a predicate of Spark SQL over topic, partition, offset, timestamp,"
        " timestampMs, timestampType, key, value, headers",
    )
    add_copies(group)
    group.add_argument(
        "--latest-per-key",
        action=argparse.BooleanOptionalAction,
        help="of the records that are left, the last one with each key, as compaction would leave them; and all without a key"
        " (default: where a copy of a compacted topic is read)",
    )
    group.add_argument(
        "--skip-damaged", action="store_true", help="restore what can be read, and report which offsets are missing"
    )


def _add_target_topics(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="restore a topic under another name"
    )
    group.add_argument(
        "--rename-regex",
        action="append",
        default=[],
        metavar="REGEX=NEW",
        help=r"the same for all names that match; NEW may have groups (\1)",
    )
    existing = group.add_mutually_exclusive_group()
    existing.add_argument(
        "--into-existing",
        dest="existing",
        action="store_const",
        const="append",
        default="empty",
        help="keep a target that exists, and put the records behind its own",
    )
    existing.add_argument(
        "--purge-target",
        dest="existing",
        action="store_const",
        const="purge",
        help="delete a target that exists with its records, and create it again (never one that this restore has made)",
    )
    group.add_argument(
        "--purge-unread",
        action="store_true",
        help="with --purge-target: delete the topic without having read what is to be in its place; damage is found too late then",
    )
    group.add_argument(
        "--replication-factor",
        type=natural,
        metavar="N",
        help="replicas of topics that the restore creates (default: the cluster's)",
    )
    group.add_argument(
        "--repartition",
        type=natural,
        metavar="N",
        help="restore into N partitions, by key as Kafka's Java client does; records without a key in turn",
    )
    group.add_argument(
        "--retention",
        choices=("unlimited", "largest", "archived"),
        default="unlimited",
        help="retention that restored topics keep (default unlimited, because brokers soon delete records that are older than"
        " a limit; largest: the largest limit that the cluster takes, where it refuses unlimited)",
    )
    group.add_argument(
        "--target-config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a config of the finished topic in place of the archived one; NAME= leaves the archived one out",
    )


def _add_groups(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--groups",
        metavar="REGEX",
        help="when all topics are whole, set the groups whose whole name matches to where they stood: as of --until, else of the"
        " newest commit that is archived",
    )
    add_group_renames(group)
    add_groups_removed(group)
    group.add_argument("--groups-approximate", action="store_true", help=argparse.SUPPRESS)  # refused


def _add_ways_to_restore(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--first", metavar="REGEX", help="restore these topics before all others (default: the largest first)"
    )
    group.add_argument(
        "--verify",
        action="store_true",
        help="also read back and compare what an earlier run has verified; what this run fills is read back in any case",
    )
    group.add_argument(
        "--batch-bytes",
        type=size,
        metavar="SIZE",
        help="uncompressed size of the records in a batch (default 4MB, at most 16MiB); as it is sent, a batch of several records has at most 1MB",
    )
    group.add_argument(
        "--rate", type=size, default=0, metavar="SIZE", help="send at most so many bytes a second, all tasks together"
    )


def run(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.config.load import load_target

    if options.target is None:
        raise UsageError(
            "--target is missing: name a YAML file with the target's kafka: section; see archiver restore --help"
        )
    config, target = archive_config(options), load_target(options.target)  # before the kernels are imported

    from archiver.process.output.defects import as_ours
    from archiver.process.output.progress import Progress
    from archiver.process.running.failpoints import arm
    from archiver.restore.report.restore_report import RestoreResult
    from archiver.spark.restore import run_restore_job

    request = restore_request(options)
    groups = _groups_request(config, options, request)
    if options.dry_run:
        return preview(options, request, groups)
    arm(failpoint())
    begun: list[str] = []
    started_s = time.monotonic()
    with closing(Progress("restore", quiet=options.quiet)) as progress:

        def begin(restore_id: str) -> None:
            begun.append(restore_id)
            _note_begun(options, config, restore_id)
            again = "the same command goes on"
            if options.is_resolved:  # a relative time means another one by then
                again = f"this goes on: {spell_command(['archiver', *options.typed])}"
            progress.announce(f"restore {restore_id}: if it ends before it is done, {again}")

        try:
            result = run_restore_job(
                config.storage,
                target,
                request,
                restore_id=options.id,
                notice=progress.report,
                begin=begin,
                groups=groups,
            )
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - also a defect: a script waits for the JSON
            failure = StoppedError() if isinstance(error, KeyboardInterrupt) else as_ours(error)
            progress.close()  # closing may print a last line of progress: print the next command after it
            complain_of(failure)
            if begun and not isinstance(failure, PredicateError):
                complain(_way_on(options, begun[0], is_stopped=isinstance(failure, StoppedError)))
            if options.format == "json":
                seconds = round(time.monotonic() - started_s, 3)
                print_json(restore_row(RestoreResult.of_failure("".join(begun), seconds, failure)))
            return failure.exit_code
    return _print_result(options, result, _not_restored(config, target, result))


def _not_restored(config: "ArchiverConfig", target: "TargetConfig", result: "RestoreResult") -> list[str]:
    """Return what else the archive's cluster had, if the target is another one."""
    from archiver.archive.format.handle import open_archive
    from archiver.kafka.login.settings import KafkaSettings
    from archiver.upkeep.cluster_changes import missing_lines

    restored = {topic.source for topic in result.topics}
    kafka = KafkaSettings.of(target)
    return missing_lines(open_archive(config.storage), kafka, restored)


def _note_begun(options: argparse.Namespace, config: "ArchiverConfig", restore_id: str) -> None:
    """Note in the archive that a restore has begun: a killed one puts no note at its end."""
    from archiver.archive.notes.run_notes import Outcome

    options.job.storage = config.storage
    options.job.facts["name"] = restore_id
    options.job.note(Outcome.RUNNING)


def _groups_request(
    config: "ArchiverConfig", options: argparse.Namespace, request: "RestoreRequest"
) -> "GroupRequest | None":
    """Return the groups to set; None: no groups. Raises UsageError."""
    if options.groups_approximate or (options.groups is not None and request.repartition is not None):
        from archiver.restore.groups.group_restore import RESET_BY_TIME

        refused = "--groups-approximate" if options.groups_approximate else "--groups with --repartition"
        raise UsageError(f"{refused} is not supported: restore without --groups, then {RESET_BY_TIME}")
    if options.groups is None:
        given = {"--rename-group": options.rename_group, "--groups-removed": options.groups_removed}
        for name in filter(given.__getitem__, given):
            raise UsageError(f"{name}: goes with --groups")
        return None
    from archiver.groups.positions.shown import PositionFilter

    wanted = PositionFilter(
        as_of_ms=request.wanted.until_ms, groups=pattern("--groups", options.groups), topics=pattern("--groups", ".*")
    )
    return group_request(config, options, wanted)


def _print_result(options: argparse.Namespace, result: "RestoreResult", not_restored: list[str]) -> int:
    if options.format == "json":
        print_json(restore_row(result, not_restored))
    else:
        print_lines(restore_lines(result, not_restored))
    if options.groups is not None and result.groups is None:
        complain(f"no group was set{'' if result.is_filled else ': that comes when all topics are whole'}")
    if result.groups is not None:
        complain_of_groups(result.groups, of_other_moments=_OTHER_MOMENTS.format(result.restore_id))
        for line in _without_groups(result.groups.plan, {topic.source for topic in result.topics}, result.restore_id):
            complain(line)
    incomplete = [partition for topic in result.topics for partition in topic.partitions if partition.missing]
    for partition in incomplete:
        for missing in partition.missing:
            complain(f"skipped, not in {partition.target_topic}-{partition.partition}: {missing}")
    failed = [report for topic in result.topics for report in topic.errors]
    refusals = [topic.finish.refusal for topic in result.topics if topic.finish.refusal is not None]
    errors = refusals if result.failure is None else [*refusals, result.failure]
    for problem in dict.fromkeys((*(report.error for report in failed), *map(str, errors), *result.problems)):
        complain(problem)
    if failed or errors:
        complain(_way_on(options, result.restore_id))
    codes = [one.exit_code for one in failed] + [one.exit_code for one in errors]
    groups_code = 0 if result.groups is None else result.groups.exit_code
    return max([*codes, *([NotWholeError.exit_code] if incomplete or result.problems else []), groups_code])


def _without_groups(plan: "GroupPlan", topics: AbstractSet[str], restore_id: str) -> Iterator[str]:
    """Name the restored topics without any known position of a group."""
    told = {one.position.topic for group in plan.groups for one in (*group.positions, *group.unset)}
    if silent := sorted(topics - told):
        yield (
            f"no group that was asked for has a position in {spell_some(silent, _MOST_NAMED)}, as of then. If groups had some"
            f" before: `archiver groups show --as-of TIME` shows them, and `archiver groups apply --restore {restore_id} --as-of TIME`"
            " sets them"
        )


def _way_on(options: argparse.Namespace, restore_id: str, *, is_stopped: bool = False) -> str:
    """Print how to continue an unfinished restore. With its id it continues, whatever its options mean by then."""
    from archiver.config.environment import is_submitted

    named = [] if options.id is not None else ["--id", restore_id]
    words = ["archiver", *options.typed, *named]
    way = f"go on with: {spell_command(words)}"
    if is_submitted():
        way = f"submit it again with --id {restore_id}"
    elif not can_be_typed(words):  # the printed command would differ from the typed one
        way = f"go on with the same command, and --id {restore_id}"
    return f"restore {restore_id} is not done; {'' if is_stopped else 'when that is mended, '}{way}"


def _predicate(text: str) -> str:
    """Refuse an empty predicate: a script makes one from an unset variable, and every record would be restored."""
    if not text.strip():
        raise ValueError("is empty; give a predicate, or leave it out to have all records")
    return text


def restore_request(options: argparse.Namespace) -> "RestoreRequest":
    from archiver.codec.selection import FIRST_LONG, LAST_LONG, TopicSelection, parse_offsets, parse_partitions
    from archiver.config.quantities import parse_moment_ms
    from archiver.restore.plan.request import (
        Existing,
        RestoreRequest,
        Retention,
        parse_patterns,
        parse_renames,
        parse_target_configs,
    )

    def parsed(option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from error

    given = options.from_time, options.until_time
    from_ms = FIRST_LONG if given[0] is None else parse_moment_ms("--from", given[0])
    until_ms = LAST_LONG if given[1] is None else parse_moment_ms("--until", given[1])
    if from_ms > until_ms:
        raise UsageError("the range ends before it begins; see --from and --until")
    return RestoreRequest(
        topics=options.topics,
        renames=parse_renames(options.rename),
        patterns=parse_patterns(options.rename_regex),
        life=options.life,
        wanted=TopicSelection(
            partitions=parsed("--partitions", options.partitions, parse_partitions),
            offsets=parsed("--offsets", options.offsets, parse_offsets),
            from_ms=from_ms,
            until_ms=until_ms,
        ),
        where=parsed("--where", options.where, _predicate) or "",
        is_latest_per_key=options.latest_per_key,
        instance=options.instance,
        is_history=options.history,
        existing=Existing(options.existing),
        retention=Retention(options.retention),
        replication_factor=options.replication_factor,
        target_configs=parse_target_configs(options.target_config),
        repartition=options.repartition,
        skips_damage=options.skip_damaged,
        first=options.first,
        purges_unread=options.purge_unread,
        reads_again=options.verify,
        **({} if options.batch_bytes is None else {"batch_bytes": options.batch_bytes}),
        rate_bytes=options.rate,
    )
