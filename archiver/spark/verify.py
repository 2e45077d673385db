"""`verify`: lists and checks the archive, and has Spark read its objects and Kafka's logs."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from archiver.archive.catalog import read_archive
from archiver.archive.handle import Archive, open_archive
from archiver.archive.segments import Segment
from archiver.codec.selection import EVERYTHING
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.errors import NotWholeError, UsageError
from archiver.kafka.settings import KafkaSettings
from archiver.process.progress import make_reporter
from archiver.process.text import spell_count
from archiver.restore.request import is_wanted
from archiver.spark.optional import spark_beside
from archiver.upkeep.verify import Level, ListingReport, check_control, check_listing, put_since

if TYPE_CHECKING:
    from archiver.upkeep.findings import Findings

StartSpark = Callable[[], Any]  # returns pyspark's context, when Spark has started


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What was looked at, and what is wrong with it; `errors` kept something from being looked at."""

    level: Level
    listing: ListingReport
    checked: int  # objects that were read
    compared: int | None  # records of Kafka's that were looked for in the archive; None: not asked
    problems: Sequence[str]
    notes: Sequence[str]
    errors: "Sequence[Findings]"
    seconds: float

    @property
    def is_whole(self) -> bool:
        return not self.problems and not self.errors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What came of reading objects."""

    findings: "Sequence[Findings]" = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What came of comparing the archive with Kafka. `records`: how many were compared; None: nothing was."""

    records: int | None = None
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    findings: "Sequence[Findings]" = ()


def run_verify(
    config: ArchiverConfig,
    level: Level,
    *,
    topics: str | None = None,
    since_ms: int | None = None,
    against_kafka: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> VerifyResult:
    """Look at the archive, as deep as the level says, and at the cluster; objects and logs are read by Spark."""
    started_s = time.monotonic()
    if since_ms is not None:
        _check_since(since_ms, level)
    archive = open_archive(config.storage)
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka) if against_kafka else None
    wanted = None if topics is None else partial(is_wanted, topics_regex=topics)
    checked, compared = _Checked(), _Compared()
    with ExitStack() as stack:
        start_spark = None
        if kafka is not None or level is not Level.LISTING:  # Spark starts while the archive is listed
            start_spark = stack.enter_context(spark_beside("verify", notice))
        listing = check_listing(archive, wanted, make_reporter("reading the archive's facts", notice, "objects"))
        nothing = _nothing(config.storage, topics) if listing.is_empty else None
        if nothing is not None and kafka is None:
            raise nothing
        control = check_control(archive) if level is Level.RECORDS else []
        if start_spark is not None and level is not Level.LISTING:
            checked = _check_objects(start_spark, config.storage, listing.segments, level, since_ms, notice)
        if start_spark is not None and kafka is not None:
            compared = _compare(start_spark, config, kafka, archive, wanted, nothing, notice)
    return _result(level, listing, control, checked, compared, time.monotonic() - started_s)


def _check_objects(
    start_spark: StartSpark,
    storage: StorageConfig,
    listed: Sequence[Segment],
    level: Level,
    since_ms: int | None,
    notice: Callable[[str], None],
) -> _Checked:
    """Have Spark read the listed objects, or those alone that were put since a time."""
    from archiver.spark.checks import check_on_spark  # noqa: PLC0415 - an extra that a backup does not need

    segments = listed if since_ms is None else put_since(listed, since_ms)
    notes = []
    if since_ms is not None and not segments:
        notes = [f"none of {spell_count(len(listed), 'object')} was read: none was put since"]
    spark = start_spark()
    report_progress = make_reporter(f"reading {spell_count(len(segments), 'object')}", notice)
    return _Checked(findings=check_on_spark(spark, storage, segments, level, report_progress), notes=notes)


def _compare(
    start_spark: StartSpark,
    config: ArchiverConfig,
    kafka: KafkaSettings,
    archive: Archive,
    wanted: Callable[[str], bool] | None,
    nothing: UsageError | None,
    notice: Callable[[str], None],
) -> _Compared:
    """Have Spark compare what the cluster still has with the archive.

    `nothing` is what to raise where the archive is empty: unless the cluster has topics that should be in it.
    """
    from archiver.spark.checks import compare_on_spark  # noqa: PLC0415 - an extra that a backup does not need
    from archiver.upkeep.compare import plan_compare  # noqa: PLC0415 - as above

    notice("looking at the cluster")
    try:
        archived = read_archive(archive, wanted=wanted, use=config.storage.index, reads=lambda _: EVERYTHING)
        plan = asyncio.run(plan_compare(config, kafka, archived, wanted))
    except NotWholeError as error:
        return _Compared(problems=[f"{error}; nothing was compared with Kafka"])
    if nothing is not None and not (plan.problems or plan.errors):
        raise nothing
    spark = start_spark()
    report_progress = make_reporter(f"comparing {spell_count(len(plan.tasks), 'partition')}", notice)
    findings = [*plan.errors, *compare_on_spark(spark, plan.tasks, report_progress)]
    return _Compared(
        records=sum(one.examined for one in findings), problems=plan.problems, notes=plan.notes, findings=findings
    )


def _result(
    level: Level,
    listing: ListingReport,
    control: Sequence[str],
    checked: _Checked,
    compared: _Compared,
    seconds: float,
) -> VerifyResult:
    findings = [*checked.findings, *compared.findings]
    found = sorted(problem for one in findings for problem in one.problems)
    return VerifyResult(
        level=level,
        listing=listing,
        checked=sum(one.examined for one in checked.findings),
        compared=compared.records,
        # What is damaged is found in more than one way: each problem is told once.
        problems=list(dict.fromkeys([*listing.problems, *control, *compared.problems, *found])),
        notes=[*listing.notes, *checked.notes, *compared.notes],
        errors=[one for one in findings if one.error],
        seconds=round(seconds, 3),
    )


def _check_since(since_ms: int, level: Level) -> None:
    if level is Level.LISTING:
        raise UsageError("--since goes with --level counts or records: a listing looks at everything in any case")
    if since_ms > time.time_ns() // 1_000_000:
        raise UsageError("--since: is in the future; nothing would be read")


def _nothing(storage: StorageConfig, topics: str | None) -> UsageError:
    if topics is None:
        return UsageError(f"{storage.url}: nothing is archived there; check storage.url")
    return UsageError(f"--topics {topics}: no topic of the archive matches; `archiver ls` shows what there is")
