"""The commands: each takes what was typed, makes one call, tells what came of it, and returns the exit code."""

import argparse
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from archiver.cli.output import complain, complain_of, print_json, print_line, print_lines, write
from archiver.errors import NotWholeError, PredicateError, StoppedError, UsageError
from archiver.process.shell import can_be_typed, spell_command
from archiver.process.text import printable_json, spell_count

if TYPE_CHECKING:
    from archiver.backup.feed import Feed, PartitionReport
    from archiver.codec.selection import Selection
    from archiver.config.model import ArchiverConfig
    from archiver.restore.report import RestoreResult
    from archiver.restore.request import RestoreRequest

Value = TypeVar("Value")

FOLLOW_PAUSE_S = 5.0


def demo(options: argparse.Namespace) -> int:
    from archiver.demo import run_demo

    run_demo(records=options.records, tell=lambda line: write(line, flush=True))
    return 0


def backup(options: argparse.Namespace) -> int:
    from archiver.config.environment import failpoint
    from archiver.process.failpoints import arm

    if options.partitions and not options.until_end:
        raise UsageError("--partitions goes with --until-end, which tells of each when it ends")
    arm(failpoint())
    return _back_up_until_end(options) if options.until_end else _back_up_for_ever(options)


def _back_up_for_ever(options: argparse.Namespace) -> int:
    from archiver.backup.run import run_service
    from archiver.config.load import load_config
    from archiver.process.progress import Progress

    config = load_config(options.config)
    progress = Progress("backup", quiet=options.quiet, every_s=60.0)

    def notice(records: int, feeds: Collection["Feed"]) -> None:
        behind = sum(feed.pending_since_s is not None for feed in feeds)
        durable = f"{spell_count(len(feeds), 'partition')}, {spell_count(records, 'record')} durable"
        progress.tell(f"{durable}, {spell_count(behind, 'partition has', 'partitions have')} more to come")

    with closing(progress):
        result = run_service(config, notice, progress.say)
    dropped = sum(error.records for error in result.dropped)
    if options.format == "json":
        problems = [str(error) for error in result.dropped]
        print_json({"records": result.records, "dropped_records": dropped, "problems": problems})
    else:
        held = f"{spell_count(dropped, 'record')} that were held are dropped" if dropped else "what was held is durable"
        print_line(f"{spell_count(result.records, 'record')} archived; {held}, the rest is in Kafka")
    for error in result.dropped:
        complain(error)
    return max((error.exit_code for error in result.dropped), default=0)


def _back_up_until_end(options: argparse.Namespace) -> int:
    from archiver.backup.run import run_backup
    from archiver.cli.backup_outcome import outcome_lines, outcome_row
    from archiver.config.load import load_config
    from archiver.process.progress import Pace, Progress

    progress, pace = Progress("backup", quiet=options.quiet), Pace("offsets")

    def notice(reports: Sequence["PartitionReport"]) -> None:
        records = sum(report.written.records for report in reports)
        at_end = sum(report.position >= report.end_offset for report in reports)
        done = sum(report.position - report.from_offset for report in reports)
        how_far = pace.tell(done, sum(max(0, report.end_offset - report.from_offset) for report in reports))
        ends = f"{at_end:,} of {spell_count(len(reports), 'partition')} at the end"
        progress.tell(", ".join(part for part in (f"{spell_count(records, 'record')} durable", ends, how_far) if part))

    with closing(progress):
        report, seconds = run_backup(load_config(options.config), notice)
    if options.format == "json":
        print_json(outcome_row(report, seconds))
    else:
        print_lines(outcome_lines(report, seconds, by_partition=options.partitions))
    for error in report.errors:
        complain(error)
    return max((error.exit_code for error in report.errors), default=0)


def ls(options: argparse.Namespace) -> int:
    from archiver.archive.handle import open_archive
    from archiver.archive.holdings import survey
    from archiver.cli.printing import holding_lines, holding_row, segment_lines, segment_row

    if options.segments and options.topic is None:
        raise UsageError("--segments goes with a TOPIC: an archive has very many")
    config = _archive_config(options).storage
    archive = open_archive(config)
    found = survey(archive, options.topic)
    if options.format == "json":
        segments = {"segments": [segment_row(one) for one in found.segments]} if options.segments else {}
        print_json(
            {
                "holdings": [holding_row(one) for one in found.holdings],
                **segments,
                "strangers": found.strangers,
                "problems": found.problems,
            }
        )
    else:
        print_lines(segment_lines(found.segments) if options.segments else holding_lines(found.holdings))
        if not found.holdings and not found.strangers:
            complain(f"{config.url}: nothing is archived there yet; is it the right prefix?")
        print_lines(f"stranger: {key}" for key in found.strangers)
    for problem in found.problems:
        complain(problem)
    return NotWholeError.exit_code if found.problems else 0


def cat(options: argparse.Namespace) -> int:
    from archiver.archive.catalog import find_topic
    from archiver.archive.handle import open_archive
    from archiver.archive.plain_records import follow_records, json_pieces, read_records, wanted_of

    storage = _archive_config(options).storage
    archive = open_archive(storage)
    problems: list[str] = []

    def tell(problem: str) -> None:
        problems.append(problem)
        complain(problem)

    if options.follow and options.life is not None:
        raise UsageError("--follow goes with the newest life: nothing comes to the others any more")
    selection = _selection(options)
    if options.follow:
        records = follow_records(
            archive,
            options.topic,
            tell=tell,
            pause=lambda: threading.Event().wait(FOLLOW_PAUSE_S),
            partition=options.partition,
            selection=selection,
            use=storage.index,
        )
    else:
        reads = wanted_of(options.partition, selection)
        topic = find_topic(archive, options.topic, options.life, use=storage.index, reads=reads, tell=tell)
        if topic.other_lives and options.life is None:
            others = ", ".join(map(str, topic.other_lives))
            complain(f"{topic.topic}: this is its life {topic.life}; the archive also has life {others} (--life)")
        records = read_records(archive.store, topic, tell=tell, partition=options.partition, selection=selection)
    try:
        for record in islice(records, options.limit):
            if not all(write(printable_json(piece), end="") for piece in json_pieces(record)):
                break  # as with --limit: whoever reads this has enough
            if not write("", flush=options.follow):
                break
    except KeyboardInterrupt:
        if not options.follow:  # for which it is the end that was meant
            raise
    return NotWholeError.exit_code if problems else 0


def _selection(options: argparse.Namespace) -> "Selection":
    from archiver.codec.selection import Selection
    from archiver.config.quantities import parse_moment_ms

    given = {
        "first_offset": options.from_offset,
        "last_offset": options.until_offset,
        "from_ms": None if options.from_time is None else parse_moment_ms("--from", options.from_time),
        "until_ms": None if options.until_time is None else parse_moment_ms("--until", options.until_time),
    }
    selection = Selection(**{name: number for name, number in given.items() if number is not None})
    if selection.is_empty:
        raise UsageError("the range ends before it begins; see --from-offset, --until-offset, --from and --until")
    return selection


def inspect(options: argparse.Namespace) -> int:
    from archiver.cli.printing import inspection_lines, inspection_row
    from archiver.config.load import config_of_bucket
    from archiver.upkeep.inspection import inspect_object

    place = str(options.object)
    if Path(place).is_file():
        config = None
    elif place.startswith("s3://") and options.config is None and options.url is None:
        config = config_of_bucket("/".join(place.split("/")[:3]))
    else:
        config = _archive_config(options)
    found = inspect_object(config, place)
    if options.format == "json":
        print_json(inspection_row(found))
    else:
        print_lines(inspection_lines(found))
    problems = [check.problem for check in found.checks if check.problem]
    for problem in problems:
        complain(problem)
    return NotWholeError.exit_code if problems else 0


def verify(options: argparse.Namespace) -> int:
    from archiver.cli.printing import verify_lines, verify_row
    from archiver.config.quantities import parse_moment_ms
    from archiver.process.progress import Progress
    from archiver.spark.verify import run_verify
    from archiver.upkeep.verify import Level

    with closing(Progress("verify", quiet=options.quiet)) as progress:
        result = run_verify(
            _archive_config(options),
            Level(options.level),
            topics=options.topics,
            against_kafka=options.against_kafka,
            since_ms=None if options.since is None else parse_moment_ms("--since", options.since),
            notice=progress.tell,
        )
    if options.format == "json":
        print_json(verify_row(result))
    else:
        print_lines(verify_lines(result))
    for problem in [*result.problems, *(one.error for one in result.errors)]:
        complain(problem)
    codes = [NotWholeError.exit_code] if result.problems else []
    return max([*codes, *(one.exit_code for one in result.errors)], default=0)


def restore(options: argparse.Namespace) -> int:
    from archiver.cli.printing import restore_row
    from archiver.config.environment import failpoint
    from archiver.config.load import load_target
    from archiver.process.defects import as_ours
    from archiver.process.failpoints import arm
    from archiver.process.progress import Progress
    from archiver.restore.report import RestoreResult
    from archiver.spark.restore import run_restore_job

    if options.dry_run:
        return _preview_restore(options)
    arm(failpoint())
    begun: list[str] = []
    started_s = time.monotonic()
    with closing(Progress("restore", quiet=options.quiet)) as progress:

        def begin(restore_id: str) -> None:
            begun.append(restore_id)
            progress.say(f"restore {restore_id}: if it ends before it is done, the same command goes on")

        try:
            result = run_restore_job(
                _archive_config(options).storage,
                load_target(options.target),
                _restore_request(options),
                restore_id=options.id,
                notice=progress.tell,
                begin=begin,
            )
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - also a defect: a script waits for the JSON
            failure = StoppedError() if isinstance(error, KeyboardInterrupt) else as_ours(error)
            progress.close()  # it may tell once more how far it came, and the last line is the way on
            complain_of(failure)
            if begun and not isinstance(failure, PredicateError):
                complain(_way_on(options, begun[0], is_stopped=isinstance(failure, StoppedError)))
            if options.format == "json":
                seconds = round(time.monotonic() - started_s, 3)
                print_json(restore_row(RestoreResult.of_failure("".join(begun), seconds, failure)))
            return failure.exit_code
    return _tell_restored(options, result)


def _tell_restored(options: argparse.Namespace, result: "RestoreResult") -> int:
    from archiver.cli.printing import restore_lines, restore_row

    if options.format == "json":
        print_json(restore_row(result))
    else:
        print_lines(restore_lines(result))
    incomplete = [partition for topic in result.topics for partition in topic.partitions if partition.missing]
    for partition in incomplete:
        for missing in partition.missing:
            complain(f"skipped, not in {partition.target_topic}-{partition.partition}: {missing}")
    failed = [report for topic in result.topics for report in topic.errors]
    refusals = [topic.refusal for topic in result.topics if topic.refusal is not None]
    errors = refusals if result.failure is None else [*refusals, result.failure]
    for problem in dict.fromkeys((*(report.error for report in failed), *map(str, errors))):
        complain(problem)
    if failed or errors:
        complain(_way_on(options, result.restore_id))
    codes = [one.exit_code for one in failed] + [one.exit_code for one in errors]
    return max([*codes, *([NotWholeError.exit_code] if incomplete else [])], default=0)


def _way_on(options: argparse.Namespace, restore_id: str, *, is_stopped: bool = False) -> str:
    """Tell what to type to go on with a restore, whatever its options become meanwhile."""
    from archiver.config.environment import is_submitted

    named = [] if options.id is not None else ["--id", restore_id]
    words = ["archiver", *options.typed, *named]
    way = f"go on with: {spell_command(words)}"
    if is_submitted():
        way = f"submit it again with --id {restore_id}"
    elif not can_be_typed(words):  # what a terminal would show is another command
        way = f"go on with the same command, and --id {restore_id}"
    return f"restore {restore_id} is not done; {'' if is_stopped else 'when that is mended, '}{way}"


def _preview_restore(options: argparse.Namespace) -> int:
    from archiver.cli.printing import preview_lines, preview_row
    from archiver.config.load import load_target
    from archiver.errors import TargetError
    from archiver.process.progress import Progress
    from archiver.spark.preview import preview_restore

    config = _archive_config(options)
    with closing(Progress("restore", quiet=options.quiet)) as progress:
        found = preview_restore(
            config.storage,
            load_target(options.target),
            _restore_request(options),
            restore_id=options.id,
            select_topics=config.topics.select,
            notice=progress.tell,
        )
    if options.format == "json":
        print_json(preview_row(found))
    else:
        print_lines(preview_lines(found))
    for problem in [*found.refused, *found.damage, *found.problems]:
        complain(problem)
    for where, missing in found.missing:
        complain(f"would be skipped, not in {where}: {missing}")
    if found.refused:
        return TargetError.exit_code
    return NotWholeError.exit_code if found.damage or found.problems or found.missing else 0


def _predicate(text: str) -> str:
    """Refuse what a script makes of a variable that is not set: everything would come back."""
    if not text.strip():
        raise ValueError("is empty; give a predicate, or leave it out to have all records")
    return text


def _restore_request(options: argparse.Namespace) -> "RestoreRequest":
    from archiver.codec.selection import FIRST_LONG, LAST_LONG, TopicSelection, parse_offsets, parse_partitions
    from archiver.config.quantities import parse_moment_ms
    from archiver.restore.request import Existing, RestoreRequest, Retention, parse_patterns, parse_renames

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
        existing=Existing(options.existing),
        retention=Retention(options.retention),
        replication_factor=options.replication_factor,
        repartition=options.repartition,
        skips_damage=options.skip_damaged,
        first=options.first,
        purges_unread=options.purge_unread,
        reads_again=options.verify,
        **({} if options.batch_bytes is None else {"batch_bytes": options.batch_bytes}),
        rate_bytes=options.rate,
    )


def pack_spark_env(options: argparse.Namespace) -> int:
    from archiver.cli.printing import packed_lines, packed_row
    from archiver.process.progress import Progress
    from archiver.spark.packing import pack_environment

    with closing(Progress("pack", quiet=options.quiet)) as progress:
        packed = pack_environment(
            options.output,
            add=options.add,
            with_sql=not options.without_sql,
            overwrite=options.force,
            tell=progress.tell,
        )
    if options.format == "json":
        print_json(packed_row(packed))
    else:
        print_lines(packed_lines(packed))
    return 0


def print_spark_entry(_: argparse.Namespace) -> int:
    print_line(str(Path(__file__).resolve().parents[1] / "submit.py"))
    return 0


def query(options: argparse.Namespace) -> int:
    from archiver.cli.printing import table_lines
    from archiver.config.quantities import parse_moment_ms
    from archiver.process.progress import Progress
    from archiver.spark.query import run_query

    times = {"from": options.from_time, "until": options.until_time}
    for name, text in times.items():
        if text is not None:
            parse_moment_ms(f"--{name}", text)
    given = {"life": options.life, "instance": options.instance, "partitions": options.partitions, **times}
    chosen = {name: str(value) for name, value in given.items() if value is not None}
    storage = _archive_config(options).storage
    with (
        closing(Progress("query", quiet=options.quiet)) as progress,
        run_query(storage, options.sql, chosen, progress.tell, skips_damage=options.skip_damaged) as answer,
    ):
        progress.close()
        for missing in answer.skipped:
            complain(f"skipped: {missing}")
        exit_code = NotWholeError.exit_code if answer.skipped else 0
        if options.format == "text":
            print_lines(table_lines(answer.columns, answer.rows))
            return exit_code
        doubled = sorted(name for name, count in Counter(answer.columns).items() if count > 1)
        if doubled:
            raise UsageError(f"two columns are called {', '.join(doubled)}; name them with AS, or take --format text")
        for row in answer.rows:
            text = json.dumps(dict(zip(answer.columns, row, strict=True)), ensure_ascii=False)
            if not write(printable_json(text)):
                break
    return exit_code


def show_config(options: argparse.Namespace) -> int:
    from archiver.config.load import load_config
    from archiver.config.reference import shown_config, yaml_lines
    from archiver.kafka.settings import KafkaSettings
    from archiver.store.address import group_of

    config = load_config(options.config)
    if config.kafka:
        KafkaSettings.parse(config.kafka, config.place_of_kafka)
    found = shown_config(config, group_of(config))
    if options.format == "json":
        print_json(found)
    else:
        print_lines(yaml_lines(found))
    return 0


def print_config_reference(options: argparse.Namespace) -> int:
    from archiver.config.kafka_keys import KAFKA_KEYS
    from archiver.config.reference import keys, reference_page

    if options.format == "json":
        rows = [
            {"key": row.key, "takes": row.kind, "default": row.default, "meaning": row.meaning}
            for row in keys()
            if row.key != "kafka.*"
        ]
        kafka = [
            {"key": f"kafka.{key.name}", "takes": key.takes, "default": key.default, "meaning": key.describe()}
            for key in KAFKA_KEYS
        ]
        print_json([*rows, *kafka])
    else:
        print_lines(reference_page().rstrip().splitlines())
    return 0


def _archive_config(options: argparse.Namespace) -> "ArchiverConfig":
    from archiver.config.load import config_from_url, load_config

    return load_config(options.config) if options.url is None else config_from_url(options.url)
