"""Runs `verify`: lists and checks the archive, and has Spark read its objects and Kafka's logs."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from archiver.upkeep.verify import ListingReport, check_listing, put_since

if TYPE_CHECKING:
    from archiver.upkeep.compare import CompareTask


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
    against_kafka: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> VerifyResult:
    """Check the archive at the given level, and compare it with the cluster; Spark reads objects and logs."""
    started_s = time.monotonic()
    if since_ms is not None:
        _check_since(since_ms, level)
    archive = open_archive(config.storage)
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka) if against_kafka else None
    wanted = None if topics is None else partial(is_wanted, topics_regex=topics)
    objects, comparison = _Objects(), _Comparison()
    with _spark_for(notice, is_needed=kafka is not None or level is not Level.LISTING) as start_spark:
        listing = check_listing(
            archive,
            wanted,
            make_reporter("reading the archive's facts", notice, "objects"),
            choice,
            reads_records=level is Level.RECORDS and since_ms is None,
        )
        if listing.is_empty and kafka is None:
            raise _nothing(config.storage, topics)
        control = [*check_control(archive), *check_folds(archive)] if level is Level.RECORDS else []
        unarchived = [] if choice.is_history else list(topics_without_archive(archive, config, wanted))
        if level is not Level.LISTING:
            objects = _check_objects(start_spark, config.storage, listing, level, since_ms, notice)
        if kafka is not None:
            notice("looking at the cluster")
            comparison = _plan_comparison(config, archive, kafka, wanted, choice)
            if listing.is_empty and not (comparison.problems or comparison.findings):
                raise _nothing(config.storage, topics)
            comparison = _compare(start_spark, comparison, notice)
            comparison = comparison._replace(notes=[*comparison.notes, *_make_due(archive, comparison.findings)])
    reports: list[Findings] = [*objects.findings, *comparison.findings]
    found = sorted(problem for report in reports for problem in report.problems)
    return VerifyResult(
        level=level,
        listing=listing,
        checked=sum(report.examined for report in objects.findings),
        compared=comparison.records,
        # The same damage may be found more than once.
        problems=list(dict.fromkeys([*listing.problems, *unarchived, *control, *comparison.problems, *found])),
        notes=[*listing.notes, *objects.notes, *comparison.notes],
        errors=[report for report in reports if report.error],
        seconds=round(time.monotonic() - started_s, 3),
    )


class _Objects(NamedTuple):
    """The result of reading objects."""

    findings: Sequence[Findings] = ()
    notes: Sequence[str] = ()


class _Comparison(NamedTuple):
    """The comparison with Kafka, and its result."""

    tasks: "Sequence[CompareTask] | None" = None  # None: nothing could be compared
    findings: Sequence[Findings] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def records(self) -> int | None:
        return None if self.tasks is None else sum(report.examined for report in self.findings)


_StartSpark = Callable[[], Any]


@contextmanager
def _spark_for(notice: Callable[[str], None], *, is_needed: bool) -> Iterator[_StartSpark]:
    """Start Spark in the background of the listing, if it is needed."""
    if not is_needed:
        yield lambda: None
        return
    with spark_in_background("verify", notice) as start_spark:
        yield start_spark


def _check_objects(
    start_spark: _StartSpark,
    storage: StorageConfig,
    listing: ListingReport,
    level: Level,
    since_ms: int | None,
    notice: Callable[[str], None],
) -> _Objects:
    from archiver.spark.session.tasks import run_on_spark  # noqa: PLC0415 - an extra that a backup does not need

    segments = listing.segments if since_ms is None else put_since(listing.segments, since_ms)
    notes = []
    if since_ms is not None and not segments:
        notes = [f"none of {spell_count(len(listing.segments), 'object')} was read: none was put since"]
    spark = start_spark()
    report_progress = make_reporter(f"reading {spell_count(len(segments), 'object')}", notice)
    tasks = list(check_tasks(storage, segments, level, listing.covered))
    return _Objects(run_on_spark(spark, tasks, run_check, lambda task: len(task.segments), report_progress), notes)


def _plan_comparison(
    config: ArchiverConfig,
    archive: Archive,
    kafka: KafkaSettings,
    wanted: Callable[[str], bool] | None,
    choice: CopyChoice,
) -> _Comparison:
    from archiver.upkeep.compare import plan_compare  # noqa: PLC0415 - of a comparison alone

    compared = wanted if choice.instance is None else copied_by(archive, choice, wanted).__contains__
    try:
        archived = read_archive(
            archive,
            wanted=compared,
            choice=choice,
            use=config.storage.index,
            reads=lambda _: ALL_RECORDS,
        )
        plan = asyncio.run(plan_compare(config, kafka, archived, compared))
    except NotWholeError as error:
        return _Comparison(problems=[f"{error}; nothing was compared with Kafka"])
    return _Comparison(plan.tasks, plan.errors, plan.problems, plan.notes)


def _compare(start_spark: _StartSpark, planned: _Comparison, notice: Callable[[str], None]) -> _Comparison:
    from archiver.spark.session.tasks import run_on_spark  # noqa: PLC0415 - an extra that a backup does not need
    from archiver.upkeep.compare import run_compare  # noqa: PLC0415 - of a comparison alone

    if planned.tasks is None:
        return planned
    spark = start_spark()
    report_progress = make_reporter(f"comparing {spell_count(len(planned.tasks), 'partition')}", notice)
    # The largest are compared first.
    compared = run_on_spark(
        spark, planned.tasks, run_compare, lambda task: task.log.end - task.log.start, report_progress
    )
    return planned._replace(findings=[*planned.findings, *compared])


def _make_due(archive: Archive, findings: Sequence[Findings]) -> Iterator[str]:
    """Schedule the next copy for each copy with keys that Kafka no longer has; yield a line on each."""
    for copy in (report.outdated for report in findings if report.outdated is not None):
        from archiver.backup.compacted.turn.outdated import make_next_due  # noqa: PLC0415 - where there are instances

        name = f"{copy.topic}-{copy.partition}"
        try:
            is_due = make_next_due(archive, copy)
        except ArchiverError as error:
            yield f"{name}: that its next copy is due could not be noted: {error}; allow PutObject on control/roles/"
            continue
        yield f"{name}: the next copy is due" if is_due else f"{name}: others write its role log; run this again"


def _check_since(since_ms: int, level: Level) -> None:
    if level is Level.LISTING:
        raise UsageError("--since goes with --level counts or records: a listing looks at everything in any case")
    if since_ms > machine_now_ms():
        raise UsageError("--since: is in the future; nothing would be read")


def _nothing(storage: StorageConfig, topics: str | None) -> UsageError:
    if topics is None:
        return UsageError(f"{storage.url}: nothing is archived there; check storage.url")
    return UsageError(f"--topics {topics}: no topic of the archive matches; `archiver ls` shows what there is")
