"""`verify`: lists and checks the archive, and has Spark read its objects and Kafka's logs."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from archiver.archive.catalog import read_archive
from archiver.archive.handle import open_archive
from archiver.codec.selection import ALL_RECORDS
from archiver.config.model import ArchiverConfig, StorageConfig
from archiver.errors import NotWholeError, UsageError
from archiver.kafka.settings import KafkaSettings
from archiver.process.progress import make_reporter
from archiver.process.text import spell_count
from archiver.restore.request import is_wanted
from archiver.spark.optional import spark_beside
from archiver.upkeep.verify import Level, ListingReport, check_control, check_listing, put_since

if TYPE_CHECKING:
    from archiver.upkeep.compare import ComparePlan
    from archiver.upkeep.findings import Findings


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
    storage = config.storage
    archive = open_archive(storage)
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka) if against_kafka else None
    wanted = None if topics is None else partial(is_wanted, topics_regex=topics)
    checks: Sequence[Findings] = ()
    comparisons: Sequence[Findings] = ()
    plan: ComparePlan | None = None
    unread: Sequence[str] = ()
    with ExitStack() as stack:
        # It starts beside the listing.
        start_spark = None
        if kafka is not None or level is not Level.LISTING:
            start_spark = stack.enter_context(spark_beside("verify", notice))
        listing = check_listing(archive, wanted, make_reporter("reading the archive's facts", notice, "objects"))
        if listing.is_empty and kafka is None:
            raise _nothing(storage, topics)
        control = check_control(archive) if level is Level.RECORDS else []
        if start_spark is not None and level is not Level.LISTING:
            from archiver.spark.checks import check_on_spark  # noqa: PLC0415 - an extra that a backup does not need

            segments = listing.segments if since_ms is None else put_since(listing.segments, since_ms)
            if since_ms is not None and not segments:
                unread = [f"none of {spell_count(len(listing.segments), 'object')} was read: none was put since"]
            spark = start_spark()
            tell = make_reporter(f"reading {spell_count(len(segments), 'object')}", notice)
            checks = check_on_spark(spark, storage, segments, level, tell)
        if start_spark is not None and kafka is not None:
            from archiver.spark.checks import compare_on_spark  # noqa: PLC0415
            from archiver.upkeep.compare import plan_compare  # noqa: PLC0415 - as above

            notice("looking at the cluster")
            try:
                archived = read_archive(archive, wanted=wanted, use=storage.index, reads=lambda _: ALL_RECORDS)
                plan = asyncio.run(plan_compare(config, kafka, archived, wanted))
            except NotWholeError as error:
                control.append(f"{error}; nothing was compared with Kafka")
            else:
                if listing.is_empty and not (plan.problems or plan.errors):
                    raise _nothing(storage, topics)
                spark = start_spark()
                tell = make_reporter(f"comparing {spell_count(len(plan.tasks), 'partition')}", notice)
                compared = compare_on_spark(spark, plan.tasks, tell)
                comparisons = [*plan.errors, *compared]
    reports: list[Findings] = [*checks, *comparisons]
    found = sorted(problem for report in reports for problem in report.problems)
    return VerifyResult(
        level=level,
        listing=listing,
        checked=sum(report.examined for report in checks),
        compared=sum(report.examined for report in comparisons) if plan is not None else None,
        # What is damaged is met by more than one look.
        problems=list(
            dict.fromkeys([*listing.problems, *control, *(plan.problems if plan is not None else ()), *found])
        ),
        notes=[*listing.notes, *unread, *(plan.notes if plan is not None else ())],
        errors=[report for report in reports if report.error],
        seconds=round(time.monotonic() - started_s, 3),
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
