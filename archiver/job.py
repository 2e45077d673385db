"""From a configuration to a running command: opens the parts, and closes what it opened."""

import asyncio
import gc
import logging
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver.backup import BackupReport, BackupRequest, back_up_until_end
from archiver.browse import read_archive, topic_names
from archiver.codec.compression import BlockCodec
from archiver.config import ArchiverConfig, GroupPositions, StorageConfig, TargetConfig
from archiver.errors import NotWholeError, StoppedError, UsageError
from archiver.feed import Feed, PartitionReport
from archiver.inspection import Inspection, take_apart
from archiver.kafka.client import KafkaClient
from archiver.kafka.group import GroupSettings
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.kafka.settings import KafkaSettings
from archiver.layout import Layout
from archiver.observe import NO_LEDGER, Ledger, Pace
from archiver.patience import persist
from archiver.positions import PositionPolicy
from archiver.restore import (
    ArchivedTopic,
    RestorePlan,
    RestoreRequest,
    check_restore_id,
    is_wanted,
    plan_restore,
)
from archiver.segment import SegmentLimits
from archiver.shutdown import stop_on_signals, unless_stopped
from archiver.store import open_store, probe_put_if_absent
from archiver.verify import Level, Listing, check_control, check_listing, put_since
from archiver.vigil import Vigil
from archiver.workers import Workers, workers
from archiver.writer import Archive

if TYPE_CHECKING:
    from archiver.metrics import Metrics
    from archiver.service import Service
    from archiver.spark.compare import ComparePlan
    from archiver.spark.restore import TopicReport
    from archiver.spark.tasks import Findings

log = logging.getLogger(__name__)

_MOST_WORKERS = 24  # when a store hangs
_DECODE_SHARE = 16  # of the memory, for one thread's records; a table of as much may come on top
_SPOOL_SHARE = 0.8  # of what is free: what is fetched already comes on top
_SPOOL_PREFIX = "archiver-spool-"


def run_backup(
    config: ArchiverConfig, notice: Callable[[Sequence[PartitionReport]], None]
) -> tuple[BackupReport, float]:
    """Archive up to the end of now. Returns what became of it, and the seconds it took."""
    started_s = time.monotonic()

    async def run() -> BackupReport:
        stop = stop_on_signals()
        with _workers() as pool, _spool(config.backup.spool.dir) as spool:
            request = await unless_stopped(stop, _request(config, spool, NO_LEDGER, pool))
            return await back_up_until_end(request, pool, stop, notice)

    return asyncio.run(run()), time.monotonic() - started_s


def run_service(config: ArchiverConfig, notice: Callable[[int, Collection[Feed]], None]) -> int:
    """Archive for ever, as a member of a group. Returns when a signal has come, and what was held is durable: how many records.

    `notice` is told now and then how many records became durable, and what is being worked on.
    """
    from archiver.metrics import Metrics  # noqa: PLC0415 - 60 ms that no other command needs
    from archiver.metrics_server import MetricsServer  # noqa: PLC0415
    from archiver.service import Service  # noqa: PLC0415 - as above, with librdkafka
    from archiver.vitals import Vitals  # noqa: PLC0415

    vitals = Vitals()
    metrics = Metrics(
        vitals.states, vitals.clock_ms, rebalances=vitals.rebalances, commit_failures=vitals.commit_failures
    )

    async def run() -> None:
        stop = stop_on_signals()
        with ExitStack() as stack:
            if config.metrics.listen is not None:
                checks = {"is_healthy": vitals.why_not_healthy, "is_ready": vitals.why_not_ready}
                stack.enter_context(MetricsServer(config.metrics.listen, metrics, **checks))
            pool = stack.enter_context(_workers())
            spool = stack.enter_context(_spool(config.backup.spool.dir))
            request = await unless_stopped(
                stop, persist("probe", lambda: _request(config, spool, metrics, pool), metrics)
            )
            service = Service(request, _group(config), pool)
            vitals.attend(service)
            await service.run(stop, lambda client: [_tell(service, metrics, notice), *vitals.watch(client)])

    with suppress(StoppedError):
        asyncio.run(run())
    return metrics.records


async def _tell(service: "Service", metrics: "Metrics", notice: Callable[[int, Collection[Feed]], None]) -> None:
    while True:
        notice(metrics.records, list(service.feeds.values()))
        await asyncio.sleep(1.0)


def _group(config: ArchiverConfig) -> GroupSettings:
    return GroupSettings(
        group=config.backup.group,
        protocol=config.backup.group_protocol,
        session_timeout_ms=config.backup.session_timeout_ms,
        refresh_ms=config.topics.refresh_ms,
    )


def _workers() -> AbstractContextManager[Workers]:
    return workers((os.cpu_count() or 1) + 2, "writer", most=_MOST_WORKERS)


async def _request(config: ArchiverConfig, spool: Path, ledger: Ledger, pool: Workers) -> BackupRequest:
    """Open the archive, and see that it can be written to without harm."""
    if not config.topics.include:
        raise UsageError("topics.include: is missing; list the topics to archive, as regular expressions")
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka)
    store, prefix = await pool.call(open_store, config.storage)  # who gives the credentials may be slow
    layout = Layout(prefix)
    await pool.call(probe_put_if_absent, store, layout)
    gc.freeze()  # what the imports made stays until the end: no need to look through it again and again
    backup = config.backup
    return BackupRequest(
        kafka=kafka,
        select_topics=config.topics.select,
        archive=Archive(
            store=store,
            layout=layout,
            limits=_limits(config),
            age_s=backup.segment.age_ms / 1000 or math.inf,
            spool=spool,
            clock=time.monotonic,
            # The brokers may have given an instance up that they have not heard for that long: half of it, to be sure.
            vigil=Vigil(backup.session_timeout_ms / 2000),
            ledger=ledger,
            decode_bytes=backup.memory_bytes // _DECODE_SHARE,
        ),
        positions=_positions(config),
        memory_bytes=backup.memory_bytes,
        spool_bytes=min(backup.spool.bytes, int(shutil.disk_usage(spool).free * _SPOOL_SHARE)),
        rate_bytes=backup.rate_bytes,
        start=backup.start,
    )


def _positions(config: ArchiverConfig) -> PositionPolicy:
    backup, topics = config.backup, config.topics
    is_excluded = not topics.model_copy(update={"include": (OFFSETS_TOPIC,)}).select([OFFSETS_TOPIC])
    if is_excluded and backup.groups is GroupPositions.TOPIC:
        raise UsageError(f"backup.groups: topic is to archive {OFFSETS_TOPIC}, and topics.exclude leaves it out")
    return PositionPolicy(keep=backup.groups, interval_ms=backup.groups_interval_ms, is_topic_excluded=is_excluded)


def _limits(config: ArchiverConfig) -> SegmentLimits:
    backup = config.backup
    return SegmentLimits(
        uncompressed_bytes=backup.segment.bytes,
        records=backup.segment.records,
        codec=BlockCodec(backup.codec),
        level=backup.level,
    )


@contextmanager
def _spool(directory: Path | None) -> Iterator[Path]:
    spool = _make_spool(directory)
    try:
        yield spool
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def _make_spool(directory: Path | None) -> Path:
    """Make a directory for this process, and sweep those that crashed ones left: Kafka has what is in them."""
    parent = Path(directory or tempfile.gettempdir())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for stale in parent.glob(f"{_SPOOL_PREFIX}*"):
            owner = stale.name.removeprefix(_SPOOL_PREFIX).partition("-")[0]
            if owner.isdecimal() and not _is_alive(int(owner)):
                shutil.rmtree(stale, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{_SPOOL_PREFIX}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise UsageError(
            f"backup.spool.dir {parent}: {error.strerror}; name a directory that can be written"
        ) from error


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """What a restore did."""

    restore_id: str
    seconds: float
    filling_seconds: float  # without Spark's start
    topics: "Sequence[TopicReport]"


def inspect_object(config: ArchiverConfig | None, place: str) -> Inspection:
    """Take an object apart: a file, an s3:// address, or a key of the configured archive."""
    name = place.rpartition("/")[2]
    path = Path(place)
    if path.is_file():
        return take_apart(path.read_bytes(), {}, Layout.parse_segment_name(name), place)
    if config is None:
        raise UsageError(f"{place}: no such file; for an object give s3://BUCKET/KEY, or a key with -c or --url")
    if place.startswith("s3://") and not place.startswith(f"s3://{config.storage.bucket}/"):
        raise UsageError(f"{place}: is not in the bucket {config.storage.bucket} of the configuration; leave -c out")
    store, _ = open_store(config.storage)
    key = place.removeprefix(f"s3://{config.storage.bucket}/")
    found = store.get(key)
    if found is None:
        raise UsageError(f"s3://{config.storage.bucket}/{key}: there is no such object")
    return take_apart(*found, Layout.parse_segment_name(name), key)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What was looked at, and what is wrong with it; `errors` kept something from being looked at."""

    level: Level
    listing: Listing
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
    if since_ms is not None and level is Level.LISTING:
        raise UsageError("--since goes with --level counts or records: a listing looks at everything in any case")
    storage = config.storage
    store, prefix = open_store(storage)
    layout = Layout(prefix)
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka) if against_kafka else None
    wanted = None if topics is None else partial(is_wanted, topics_regex=topics)
    checks: Sequence[Findings] = ()
    comparisons: Sequence[Findings] = ()
    plan: ComparePlan | None = None
    with ExitStack() as stack:
        # It starts beside the listing.
        start_spark = None
        if kafka is not None or level is not Level.LISTING:
            start_spark = stack.enter_context(_spark("verify"))
        notice("reading the archive's facts")
        listing = check_listing(store, layout, wanted)
        control = check_control(store, layout) if level is Level.RECORDS else []
        if start_spark is not None and level is not Level.LISTING:
            from archiver.spark.verify import check_on_spark  # noqa: PLC0415 - an extra that a backup does not need

            segments = listing.segments if since_ms is None else put_since(listing.segments, since_ms)
            notice(f"reading {len(segments)} objects")
            tell = _tell_of(f"reading {len(segments)} objects", notice)
            checks = check_on_spark(start_spark(), storage, segments, level, tell)
        if start_spark is not None and kafka is not None:
            from archiver.spark.compare import compare_on_spark, plan_compare  # noqa: PLC0415 - as above

            notice("looking at the cluster")
            try:
                archive = read_archive(store, layout, wanted=wanted)
            except NotWholeError as error:
                control.append(f"{error}; nothing was compared with Kafka")
            else:
                plan = asyncio.run(plan_compare(storage, kafka, config.topics, archive, wanted or (lambda _: True)))
                what = f"comparing {len(plan.tasks)} partitions"
                notice(what)
                compared = compare_on_spark(start_spark(), plan.tasks, _tell_of(what, notice))
                comparisons = [*plan.errors, *compared]
    reports: list[Findings] = [*checks, *comparisons]
    found = sorted(problem for report in reports for problem in report.problems)
    return VerifyResult(
        level=level,
        listing=listing,
        checked=sum(report.looked_at for report in checks),
        compared=sum(report.looked_at for report in comparisons) if plan is not None else None,
        problems=[*listing.problems, *control, *(plan.problems if plan is not None else ()), *found],
        notes=[*listing.notes, *(plan.notes if plan is not None else ())],
        errors=[report for report in reports if report.error],
        seconds=round(time.monotonic() - started_s, 3),
    )


def _tell_of(what: str, notice: Callable[[str], None]) -> Callable[[int, int], None]:
    pace = Pace()

    def tell(done: int, total: int) -> None:
        notice(f"{what}: {pace.tell(done, total)}")

    return tell


def run_restore_job(
    storage: StorageConfig,
    target: TargetConfig,
    *,
    topics: str | None,
    renames: Sequence[str],
    restore_id: str | None,
    life: int | None = None,
    notice: Callable[[str], None],
) -> RestoreResult:
    """Plan a restore from what the archive holds now, and carry it out."""
    started_s = time.monotonic()
    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    request = RestoreRequest.parse(topics, renames, life)
    if restore_id is not None:
        check_restore_id(restore_id)
    store, prefix = open_store(storage)
    layout = Layout(prefix)

    def plan(wave: Mapping[str, str]) -> RestorePlan:
        notice(f"reading the archive of {len(wave)} topics")
        archived = read_archive(store, layout, life=life, wanted=wave.__contains__)
        _tell_other_lives(archived)
        return plan_restore(archived, wave)

    targets = request.targets(
        topic_names(store, layout)
    )  # what is refused is refused before Spark takes seconds to start
    with _spark("restore") as start_spark:
        from archiver.spark.restore import run_restore  # noqa: PLC0415 - an extra that a backup does not need

        notice("looking at the target")
        cluster_id, existing = asyncio.run(_look_at_target(kafka, targets.values()))
        name = restore_id or request.default_id(storage.url, cluster_id)
        reports, filling_s = run_restore(
            map(plan, request.waves(targets, existing)),
            start_spark,
            restore_id=name,
            storage=storage,
            kafka=kafka,
            notice=notice,
        )
    seconds = round(time.monotonic() - started_s, 3)
    return RestoreResult(restore_id=name, seconds=seconds, filling_seconds=round(filling_s, 3), topics=reports)


@contextmanager
def _spark(command: str) -> Iterator[Callable[[], Any]]:
    """Start Spark beside what the block does first."""
    try:
        from archiver.spark.session import open_context  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{command} needs Spark ({error.name} is missing): pip install 'kafka-archiver[spark]'"
        ) from error
    with open_context(f"archiver {command}") as start_spark:
        yield start_spark


def _tell_other_lives(archived: Iterable[ArchivedTopic]) -> None:
    for topic in archived:
        if topic.other_lives:
            others = ", ".join(map(str, topic.other_lives))
            log.warning(
                "%s: this is its life %d; the archive also has life %s (--life)", topic.topic, topic.life, others
            )


async def _look_at_target(kafka: KafkaSettings, topics: Iterable[str]) -> tuple[str, Collection[str]]:
    """Return the cluster's id, and which of the topics it has."""
    async with KafkaClient(kafka) as client:
        return await client.cluster_id(), await client.describe_topics(topics)
