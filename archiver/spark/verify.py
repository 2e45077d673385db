"""Runs `verify`: lists and checks the archive, and has Spark read its objects and Kafka's logs."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from archiver.archive.copies.copied_topic import BY_ROLES, CopyChoice, copied_by
from archiver.archive.copies.missing_copies import topics_without_archive
from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.reading.catalog import is_wanted, read_archive
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.errors import ArchiverError, NotWholeError, UsageError
from archiver.groups.positions.fold_proof import check_folds
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.progress import make_reporter
from archiver.process.output.text import spell_count
from archiver.spark.session.background_start import spark_in_background
from archiver.upkeep.control_check import check_control
from archiver.upkeep.object_check import Findings, Level, check_tasks, run_check
from archiver.upkeep.sampling import Sample, SamplePart
from archiver.upkeep.verify import ListingReport, check_listing, put_since

if TYPE_CHECKING:
    from archiver.archive.segments.partition_segments import Segment
    from archiver.upkeep.compare import ComparePlan, CompareTask

Task = TypeVar("Task")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The checked objects and their problems; `errors` prevented checks."""

    level: Level
    listing: ListingReport
    checked: int  # objects that were read
    compared: int | None  # Kafka's records that were compared with the archive; None: not requested
    problems: Sequence[str]
    notes: Sequence[str]
    errors: Sequence[Findings]
    seconds: float
    part: SamplePart | None = None  # of a sample; None: all objects were read

    @property
    def is_whole(self) -> bool:
        return not self.problems and not self.errors


def run_verify(
    config: ArchiverConfig,
    level: Level,
    *,
    topics: str | None = None,
    choice: CopyChoice = BY_ROLES,
    since_ms: int | None = None,
    sample: Sample | None = None,
    against_kafka: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> VerifyResult:
    """Check the archive at the given level, and compare it with the cluster; Spark reads objects and logs."""
    started_s = time.monotonic()
    _check_choice(since_ms, sample, level)
    archive = open_archive(config.storage)
    kafka = KafkaSettings.of(config) if against_kafka else None
    wanted = None if topics is None else partial(is_wanted, topics_regex=topics)
    examined, compared = list[Findings](), list[Findings]()
    plan: ComparePlan | None = None
    needs_spark = kafka is not None or level is not Level.LISTING
    with spark_in_background("verify", notice) if needs_spark else nullcontext(lambda: None) as start_spark:
        listing = check_listing(
            archive,
            wanted,
            make_reporter("reading the archive's facts", notice, "objects"),
            choice,
            reads_records=level is Level.RECORDS and since_ms is None,
        )
        if listing.is_empty and kafka is None:
            raise _nothing(config.storage, topics)
        part = None if sample is None else sample.part(listing.segments, machine_now_ms())
        control = _check_notes(archive, level, part)
        unarchived = [] if choice.is_history else list(topics_without_archive(archive, config, wanted))
        segments, notes = _chosen(listing, since_ms, part)
        if level is not Level.LISTING:
            tasks = list(check_tasks(config.storage, segments, level, listing.covered))
            told = f"reading {spell_count(len(segments), 'object')}"
            examined = _run_tasks(start_spark, tasks, run_check, lambda task: len(task.segments), told, notice)
        if kafka is not None:
            notice("looking at the cluster")
            plan = _plan_comparison(config, archive, kafka, wanted, choice)
            if listing.is_empty and not (plan.problems or plan.errors):
                raise _nothing(config.storage, topics)
            compared = _compare(start_spark, plan.tasks, notice)
            notes += [*plan.notes, *_make_due(archive, compared)]
    reports = [*examined, *(() if plan is None else plan.errors), *compared]
    found = sorted(problem for report in reports for problem in report.problems)
    return VerifyResult(
        level=level,
        listing=listing,
        checked=sum(report.examined for report in examined),
        compared=None if plan is None else sum(report.examined for report in compared),
        problems=list(  # the same damage may be found more than once
            dict.fromkeys([*listing.problems, *unarchived, *control, *(() if plan is None else plan.problems), *found])
        ),
        notes=[*listing.notes, *notes],
        errors=[report for report in reports if report.error],
        seconds=round(time.monotonic() - started_s, 3),
        part=part,
    )


def _check_notes(archive: Archive, level: Level, part: SamplePart | None) -> list[str]:
    """Check all objects below `control/` at level `records`; a sample does so with its first part."""
    is_due = level is Level.RECORDS and (part is None or part.number == 1)
    return [*check_control(archive), *check_folds(archive)] if is_due else []


def _chosen(
    listing: ListingReport, since_ms: int | None, part: SamplePart | None
) -> "tuple[Sequence[Segment], list[str]]":
    """Return the objects to read, and a note if none is."""
    found, why = listing.segments, ""
    if since_ms is not None:
        found, why = put_since(found, since_ms), "none was put since"
    elif part is not None:
        found, why = part.choose(found), f"none is in part {part}"
    told = f"none of {spell_count(len(listing.segments), 'object')} was read: {why}"
    return found, [told] if why and not found else []


def _run_tasks(
    start_spark: Callable[[], Any],
    tasks: Sequence[Task],
    run: Callable[[Task], Findings],
    weigh: Callable[[Task], int],
    what: str,
    notice: Callable[[str], None],
) -> list[Findings]:
    from archiver.spark.session.tasks import run_on_spark  # noqa: PLC0415 - an extra that a backup does not need

    return run_on_spark(start_spark(), tasks, run, weigh, make_reporter(what, notice))


def _compare(
    start_spark: Callable[[], Any], tasks: "Sequence[CompareTask]", notice: Callable[[str], None]
) -> list[Findings]:
    from archiver.upkeep.compare import run_compare  # noqa: PLC0415 - of a comparison alone

    told = f"comparing {spell_count(len(tasks), 'partition')}"
    # The largest are compared first.
    return _run_tasks(start_spark, tasks, run_compare, lambda task: task.log.end - task.log.start, told, notice)


def _plan_comparison(
    config: ArchiverConfig,
    archive: Archive,
    kafka: KafkaSettings,
    wanted: Callable[[str], bool] | None,
    choice: CopyChoice,
) -> "ComparePlan":
    from archiver.upkeep.compare import ComparePlan, plan_compare  # noqa: PLC0415 - of a comparison alone

    compared = wanted if choice.instance is None else copied_by(archive, choice, wanted).__contains__
    try:
        archived = read_archive(
            archive,
            wanted=compared,
            choice=choice,
            use=config.storage.index,
            reads=lambda _: ALL_RECORDS,
        )
        return asyncio.run(plan_compare(config, kafka, archived, compared))
    except NotWholeError as error:
        problems = [f"{error}; nothing was compared with Kafka"]
        return ComparePlan(tasks=(), problems=problems, notes=(), errors=())


def _make_due(archive: Archive, findings: Sequence[Findings]) -> Iterator[str]:
    """Schedule the next copy for each copy with keys that Kafka no longer has; yield a line on each."""
    for copy in (report.outdated for report in findings if report.outdated is not None):
        from archiver.backup.compacted.work.outdated import make_next_due  # noqa: PLC0415 - where there are instances

        name = f"{copy.topic}-{copy.partition}"
        try:
            is_due = make_next_due(archive, copy)
        except ArchiverError as error:
            yield f"{name}: that its next copy is due could not be noted: {error}; allow PutObject on control/roles/"
            continue
        yield f"{name}: the next copy is due" if is_due else f"{name}: others write its role log; run this again"


def _check_choice(since_ms: int | None, sample: Sample | None, level: Level) -> None:
    if level is Level.LISTING and (since_ms is not None or sample is not None):
        option = "--sample" if since_ms is None else "--since"
        raise UsageError(f"{option} goes with --level counts or records: a listing looks at everything in any case")
    if since_ms is not None and since_ms > machine_now_ms():
        raise UsageError("--since: is in the future; nothing would be read")


def _nothing(storage: StorageConfig, topics: str | None) -> UsageError:
    if topics is None:
        return UsageError(f"{storage.url}: nothing is archived there; check storage.url")
    return UsageError(f"--topics {topics}: no topic of the archive matches; `archiver ls` shows what there is")
