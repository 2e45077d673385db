"""From a configuration to a running command: opens the parts, and closes what it opened."""

import asyncio
import gc
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver.archive.archived_topic import ArchivedTopic
from archiver.archive.block_budget import DecodingRoom
from archiver.archive.catalog import read_archive, read_known, topic_names
from archiver.archive.index import read_index
from archiver.archive.layout import Layout
from archiver.archive.probe import probe_store
from archiver.archive.segment import SegmentLimits
from archiver.archive.spool import Spool, open_spool
from archiver.backup.feed import Feed, PartitionReport
from archiver.backup.partition_writer import Archive, BatchPolicy
from archiver.backup.retry import persist
from archiver.backup.until_end import Attend, BackupReport, BackupRequest, attend_nothing, back_up_until_end
from archiver.codec.compression import BlockCodec
from archiver.codec.selection import EVERYTHING
from archiver.config.model import ArchiverConfig, GroupPositions, StorageConfig, TargetConfig
from archiver.errors import ArchiverError, DroppedError, NotWholeError, StoppedError, UsageError
from archiver.groups.keeper import PositionPolicy
from archiver.groups.own_group import own_group
from archiver.kafka.client import KafkaClient
from archiver.kafka.group import GroupSettings
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.kafka.settings import KafkaSettings
from archiver.process.defects import sweep_defects
from archiver.process.logs import NO_LEDGER, Ledger, Pace
from archiver.process.signals import stop_on_signals, unless_stopped
from archiver.process.silence import Vigil
from archiver.process.spelling import spell_count
from archiver.process.workers import Workers, workers
from archiver.restore.plan import (
    Effort,
    RestorePlan,
    TopicPlan,
    check_partitions,
    effort_of,
    plan_restore,
    tell_unreadable,
    with_mended,
)
from archiver.restore.request import Existing, RestoreRequest, check_restore_id, is_wanted
from archiver.store.address import archive_mark
from archiver.store.s3 import open_store
from archiver.upkeep.inspection import Inspection, take_apart, take_control_apart
from archiver.upkeep.verify import Level, Listing, check_control, check_listing, control_problem, put_since

if TYPE_CHECKING:
    from archiver.backup.arrival import Arrival
    from archiver.backup.metrics import Metrics
    from archiver.backup.service import Service
    from archiver.restore.purge import Purge
    from archiver.spark.restore import TopicReport
    from archiver.spark.table.query import Answer
    from archiver.upkeep.compare import ComparePlan
    from archiver.upkeep.findings import Findings

log = logging.getLogger(__name__)

_DECODING_SHARE = 5 / 8  # of the memory; an eighth is for what was fetched, the rest for open segments
_DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """What a backup has done that was stopped."""

    records: int
    dropped: Sequence[DroppedError]  # what it held at the end, and could not put in time


def run_backup(
    config: ArchiverConfig, notice: Callable[[Sequence[PartitionReport]], None]
) -> tuple[BackupReport, float]:
    """Archive up to the end of now. Returns what became of it, and the seconds it took."""
    started_s = time.monotonic()
    sweep_defects()

    async def run() -> BackupReport:
        stop = stop_on_signals()
        with ExitStack() as stack:
            ledger, attend = _observed(config, stack)
            pool, spool = stack.enter_context(_workers()), stack.enter_context(_spool(config))
            request = await unless_stopped(stop, _request(config, spool, ledger, pool))
            return await back_up_until_end(request, pool, stop, notice, attend)

    return asyncio.run(run()), time.monotonic() - started_s


def _observed(config: ArchiverConfig, stack: ExitStack) -> tuple[Ledger, Attend]:
    if config.metrics.listen is None:
        return NO_LEDGER, attend_nothing
    from archiver.backup.run_endpoint import serve_run  # noqa: PLC0415 - 60 ms that a run without an endpoint has not to pay

    return stack.enter_context(serve_run(config.metrics.listen))


def run_service(
    config: ArchiverConfig,
    notice: Callable[[int, Collection[Feed]], None],
    say: Callable[[str], None] = lambda _: None,
) -> ServiceResult:
    """Archive for ever, as a member of a group. Returns when a signal has come, and what was held is durable or dropped.

    `notice` is told now and then how many records became durable, and what is being worked on; `say` what changes once.
    """
    from archiver.backup.arrival import Arrival  # noqa: PLC0415 - with the service
    from archiver.backup.metrics import Metrics  # noqa: PLC0415 - 60 ms that no other command needs
    from archiver.backup.metrics_server import MetricsServer  # noqa: PLC0415
    from archiver.backup.service import Service  # noqa: PLC0415 - as above, with librdkafka
    from archiver.backup.vitals import Vitals  # noqa: PLC0415

    vitals = Vitals()
    metrics = Metrics(
        vitals.states, vitals.clock_ms, rebalances=vitals.rebalances, commit_failures=vitals.commit_failures
    )

    async def run() -> Sequence[DroppedError]:
        stop = stop_on_signals()
        with ExitStack() as stack:
            if config.metrics.listen is not None:
                checks = {"is_healthy": vitals.why_not_healthy, "is_ready": vitals.why_not_ready}
                stack.enter_context(MetricsServer(config.metrics.listen, metrics, **checks))
            pool = stack.enter_context(_workers())
            spool = stack.enter_context(_spool(config))
            request = await unless_stopped(
                stop, persist("probe", lambda: _request(config, spool, metrics, pool), metrics)
            )
            mark = archive_mark(config.storage)
            group = await unless_stopped(
                stop, persist("group", lambda: _own_group(config, mark, request, pool), metrics)
            )
            service = Service(request, _group(config, group, mark), pool)
            vitals.attend(service)
            with suppress(StoppedError):
                await service.run(
                    stop,
                    lambda client: [
                        _tell(service, metrics, notice, Arrival(config, group, say)),
                        _sweep_daily(pool),
                        *vitals.watch(client),
                    ],
                )
            return service.dropped

    dropped: Sequence[DroppedError] = ()
    with suppress(StoppedError):  # before there was a service
        dropped = asyncio.run(run())
    return ServiceResult(records=metrics.records, dropped=dropped)


async def _tell(
    service: "Service",
    metrics: "Metrics",
    notice: Callable[[int, Collection[Feed]], None],
    arrival: "Arrival",
) -> None:
    while True:
        arrival.look(service)
        notice(metrics.records, list(service.feeds.values()))
        await asyncio.sleep(1.0)


async def _sweep_daily(pool: Workers) -> None:
    while True:
        await pool.call(sweep_defects)
        await asyncio.sleep(_DAY_S)


async def _own_group(config: ArchiverConfig, mark: str, request: BackupRequest, pool: Workers) -> str:
    if config.backup.group is not None:
        return config.backup.group
    async with KafkaClient(request.kafka) as client:
        return await own_group(client, request.archive.store, request.archive.layout, pool, config, mark)


def _group(config: ArchiverConfig, group: str, mark: str) -> GroupSettings:
    return GroupSettings(
        group=group,
        protocol=config.backup.group_protocol,
        session_timeout_ms=config.backup.session_timeout_ms,
        refresh_ms=config.topics.refresh_ms,
        archive=mark,
    )


def _workers() -> AbstractContextManager[Workers]:
    return workers((os.cpu_count() or 1) + 2, "decoder")


def _spool(config: ArchiverConfig) -> AbstractContextManager[Spool]:
    return open_spool(config.backup.spool.dir, config.backup.spool.bytes)


async def _request(config: ArchiverConfig, spool: Spool, ledger: Ledger, pool: Workers) -> BackupRequest:
    """Open the archive, and see that it can be written to without harm."""
    if not config.topics.include:
        raise UsageError("topics.include: is missing; list the topics to archive, as regular expressions")
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka)
    store, prefix = await pool.call(open_store, config.storage)  # who gives the credentials may be slow
    layout = Layout(prefix)
    await pool.call(probe_store, store, layout)
    gc.freeze()  # what the imports made stays until the end: no need to look through it again and again
    backup = config.backup
    return BackupRequest(
        kafka=kafka,
        topics=config.topics,
        place_of_include=config.place_of_include,
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
            decoding=DecodingRoom(int(backup.memory_bytes * _DECODING_SHARE)),
            batches=BatchPolicy(most_bytes=backup.batch.bytes, unreadable=backup.unreadable),
        ),
        positions=_positions(config),
        memory_bytes=backup.memory_bytes,
        spool_bytes=spool.most_bytes,
        rate_bytes=backup.rate_bytes,
        start=backup.start,
        unproven=config.topics.unproven,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """What a restore did."""

    restore_id: str  # empty: it ended before it was known
    seconds: float
    filling_seconds: float  # without Spark's start
    topics: "Sequence[TopicReport]"
    failure: ArchiverError | None = None  # what kept it from going on with the others
    not_begun: Sequence[str] = ()  # those, by their targets

    @classmethod
    def of_failure(cls, restore_id: str, seconds: float, failure: ArchiverError) -> "RestoreResult":
        """Return that of a restore that has ended before it could tell of any topic."""
        return cls(restore_id=restore_id, seconds=seconds, filling_seconds=0.0, topics=(), failure=failure)

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def filled(self) -> int:
        """How many of them were not on the target before this run."""
        return sum(one.records - one.already_there for topic in self.topics for one in topic.partitions)

    @property
    def records_a_second(self) -> float | None:
        """How fast this run has filled and read back; None: it had nothing to fill."""
        return round(self.filled / self.filling_seconds, 1) if self.filled and self.filling_seconds else None

    @property
    def bytes(self) -> int | None:
        """Of keys and values; None: not counted of all partitions."""
        sizes = [one.bytes for topic in self.topics for one in topic.partitions]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


def inspect_object(config: ArchiverConfig | None, place: str) -> Inspection:
    """Take an object apart: a file, an s3:// address, or a key of the configured archive."""
    name = place.rpartition("/")[2]
    path = Path(place)
    if path.is_file():
        return take_apart(path.read_bytes(), None, Layout.parse_segment_name(name), place)
    if config is None:
        raise UsageError(f"{place}: no such file; for an object give s3://BUCKET/KEY, or a key with -c or --url")
    bucket = f"s3://{config.storage.bucket}/"
    if place.startswith("s3://") and not f"{place}/".startswith(bucket):
        raise UsageError(f"{place}: is not in the bucket {config.storage.bucket} of the configuration; leave -c out")
    key = place.removeprefix(bucket)
    if not name or key.startswith("s3://") or not _is_utf8(key):
        raise UsageError(f"{place}: names no object; `archiver ls TOPIC --segments` shows their keys")
    store, prefix = open_store(config.storage)
    found = store.get(key)
    if found is None:
        whole = f"; keys of this archive begin with {prefix}/" if prefix and not key.startswith(f"{prefix}/") else ""
        raise UsageError(f"s3://{config.storage.bucket}/{key}: there is no such object{whole}")
    layout = Layout(prefix)
    if not prefix and not key.startswith(layout.control_root):  # an address alone does not tell where the prefix ends
        layout = Layout(key.partition("/control/")[0].strip("/"))
    if key.startswith(layout.control_root):
        return take_control_apart(*found, control_problem(layout, key, *found))
    return take_apart(*found, Layout.parse_segment_name(name), key)


def _is_utf8(text: str) -> bool:
    """Tell whether a text of the command line can be sent at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    if since_ms is not None:
        _check_since(since_ms, level)
    storage = config.storage
    store, prefix = open_store(storage)
    layout = Layout(prefix)
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
            start_spark = stack.enter_context(_spark("verify", notice))
        listing = check_listing(store, layout, wanted, _tell_of("reading the archive's facts", notice, "objects"))
        if listing.is_empty and kafka is None:
            raise _nothing(storage, topics)
        control = check_control(store, layout) if level is Level.RECORDS else []
        if start_spark is not None and level is not Level.LISTING:
            from archiver.spark.verify import check_on_spark  # noqa: PLC0415 - an extra that a backup does not need

            segments = listing.segments if since_ms is None else put_since(listing.segments, since_ms)
            if since_ms is not None and not segments:
                unread = [f"none of {spell_count(len(listing.segments), 'object')} was read: none was put since"]
            spark = start_spark()
            tell = _tell_of(f"reading {spell_count(len(segments), 'object')}", notice)
            checks = check_on_spark(spark, storage, segments, level, tell)
        if start_spark is not None and kafka is not None:
            from archiver.spark.verify import compare_on_spark  # noqa: PLC0415
            from archiver.upkeep.compare import plan_compare  # noqa: PLC0415 - as above

            notice("looking at the cluster")
            try:
                archive = read_archive(store, layout, wanted=wanted, use=storage.index, reads=lambda _: EVERYTHING)
                plan = asyncio.run(plan_compare(config, kafka, archive, wanted))
            except NotWholeError as error:
                control.append(f"{error}; nothing was compared with Kafka")
            else:
                if listing.is_empty and not (plan.problems or plan.errors):
                    raise _nothing(storage, topics)
                spark = start_spark()
                tell = _tell_of(f"comparing {spell_count(len(plan.tasks), 'partition')}", notice)
                compared = compare_on_spark(spark, plan.tasks, tell)
                comparisons = [*plan.errors, *compared]
    reports: list[Findings] = [*checks, *comparisons]
    found = sorted(problem for report in reports for problem in report.problems)
    return VerifyResult(
        level=level,
        listing=listing,
        checked=sum(report.looked_at for report in checks),
        compared=sum(report.looked_at for report in comparisons) if plan is not None else None,
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


def _tell_of(what: str, notice: Callable[[str], None], unit: str = "") -> Callable[[int, int], None]:
    """Without a unit what is told is shares of Spark's work, of which nobody knows the size."""
    notice(what)
    pace = Pace(unit)

    def tell(done: int, total: int) -> None:
        notice(f"{what}: {pace.tell(done, total)}")

    return tell


def _tell_asked(notice: Callable[[str], None]) -> Callable[[int, int], None]:
    """Tell of objects that are asked for their facts: that can take long, and where nobody else writes it may be spared."""
    tell: Callable[[int, int], None] | None = None

    def tell_asked(done: int, total: int) -> None:
        nonlocal tell
        tell = tell or _tell_of(
            f"asking {spell_count(total, 'object')} for the facts that decide what is read (storage.index)", notice
        )
        tell(done, total)

    return tell_asked


_NOT_TRIED = (
    "--where was tried on no record: one that it cannot be worked out for ends the restore, before anything is changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePreview:
    """What a restore would do, and why it could not."""

    restore_id: str
    topics: Sequence[TopicPlan]
    begun: Collection[str]  # targets that an earlier run has begun with, by the plan it made
    existing: Collection[str]  # targets that are there
    policy: Existing  # what becomes of those
    is_partial: bool  # only some of what is archived was asked for
    refused: Sequence[str]
    damage: Sequence[str]  # why targets are not purged, as was read
    notes: Sequence[str]  # what was perhaps mistyped, and what is not known before the restore
    doubts: Sequence[str]  # what may be refused, by what --where or --latest-per-key choose
    effort: Effort

    @property
    def problems(self) -> list[str]:
        """Why partitions would not be restored, though the others are."""
        return [one.problem for topic in self.topics for one in topic.partitions if one.problem]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """What would be skipped, and of which target partition; what tasks meet comes on top."""
        return [
            (f"{topic.target}-{one.partition}", missing)
            for topic in self.topics
            for one in topic.partitions
            for missing in one.missing
        ]


def preview_restore(
    storage: StorageConfig,
    target: TargetConfig,
    request: RestoreRequest,
    *,
    restore_id: str | None,
    select_topics: Callable[[Iterable[str]], Sequence[str]] = lambda _: (),
    notice: Callable[[str], None] = lambda _: None,
) -> RestorePreview:
    """Plan a restore and check its targets. Changes nothing, and needs Spark for a predicate, and for what a purge reads before.

    `select_topics` chooses the names that the configuration at hand has a backup archive.
    """
    from archiver.restore.claims import RestoreNotes  # noqa: PLC0415 - of a restore alone, as below
    from archiver.restore.targets import Targets  # noqa: PLC0415
    from archiver.restore.unarchived import ArchivedLogs  # noqa: PLC0415

    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    if restore_id is not None:
        check_restore_id(restore_id)
    store, prefix = open_store(storage)
    layout = Layout(prefix)
    wave = request.targets(topic_names(store, layout))
    if request.where:
        with _spark("restore --dry-run --where", notice) as start_spark:
            from archiver.spark.choose import check_predicate  # noqa: PLC0415 - an extra that a backup does not need

            check_predicate(start_spark(), request.where)

    unreadable: list[str] = []

    def plan(some: Mapping[str, str], life: int | None) -> RestorePlan:
        archived = read_archive(
            store,
            layout,
            life=life,
            wanted=some.__contains__,
            use=storage.index,
            reads=request.wanted.of,
            tell_asked=_tell_asked(notice),
        )
        unreadable.extend(tell_unreadable(archived, request))
        return plan_restore(archived, some, request)

    async def look() -> "tuple[RestorePreview, Purge]":
        async with KafkaClient(kafka) as client:
            cluster_id = await client.cluster_id()
            name = restore_id or request.default_id(storage.url, cluster_id)
            notes = RestoreNotes(store, layout, name, cluster_id)
            targets = Targets(kafka, notes, request, ArchivedLogs(store, layout, cluster_id))
            noted, unplanned = await targets.planned(client, wave)
            begun = targets.believed(noted, plan)
            topics = with_mended(begun.plans, [*plan(unplanned, request.life).topics, *begun.fresh])
            check_partitions(topics, request)
            verdict = await targets.judge(client, topics)
            preview = RestorePreview(
                restore_id=name,
                topics=sorted(topics, key=lambda topic: topic.source),
                begun={topic.target for topic in begun.plans},
                existing=(await client.describe_topics(wave.values())).keys(),
                policy=request.existing,
                is_partial=request.is_partial,
                refused=verdict.problems,
                damage=(),
                notes=[
                    *request.notes(wave),
                    *_archived_copies(select_topics, wave),
                    *([_NOT_TRIED] if request.where else []),
                    *dict.fromkeys(unreadable),
                    *begun.notes,
                    *verdict.losses,
                    *verdict.notes,
                ],
                doubts=verdict.doubts,
                effort=effort_of(topics, request, os.cpu_count() or 1, verdict.limits),
            )
            return preview, verdict.purge

    preview, purge = asyncio.run(look())
    if preview.refused or request.purges_unread or not purge.topic_ids:
        return preview
    return _read_before_purge(storage, request, preview, purge, notice)


def _read_before_purge(
    storage: StorageConfig,
    request: RestoreRequest,
    preview: RestorePreview,
    purge: "Purge",
    notice: Callable[[str], None],
) -> RestorePreview:
    """Read what is to be in the place of purged topics, as the restore does before it deletes them."""
    from archiver.restore.purge import damage_problems  # noqa: PLC0415 - of a restore alone

    topics = [topic for topic in preview.topics if topic.target in purge.topic_ids]
    with _spark("restore --dry-run --purge-target", notice) as start_spark:
        from archiver.spark.proof import read_whole  # noqa: PLC0415 - an extra that a backup does not need

        spark = start_spark()
        tell = _tell_of("reading whole what is to be in the place of what is purged", notice)
        reading = read_whole(spark, storage, topics, purge, tell)
    problems = damage_problems(topics, reading, purge, skips_damage=request.skips_damage)
    if problems:
        return replace(preview, damage=problems)
    found: dict[tuple[str, int], list[str]] = {}
    for one in reading.damage:
        found.setdefault((one.target, one.partition), []).append(one.message)
    return replace(preview, topics=[_with_missing(topic, found) for topic in preview.topics])


def _with_missing(topic: TopicPlan, found: Mapping[tuple[str, int], Sequence[str]]) -> TopicPlan:
    """Add what would be skipped to what the plan knew to be missing."""
    return replace(
        topic,
        partitions=tuple(
            replace(one, missing=(*one.missing, *found.get((topic.target, one.partition), ())))
            for one in topic.partitions
        ),
    )


def _archived_copies(
    select_topics: Callable[[Iterable[str]], Sequence[str]], targets: Mapping[str, str]
) -> Sequence[str]:
    """Tell of copies under other names that would go into the archive a second time."""
    copies = select_topics([target for source, target in targets.items() if source != target])
    if not copies:
        return ()
    first, *others = copies
    more = f" and {spell_count(len(others), 'more target')}" if others else ""
    told = f"{first}{more}: topics.include matches the name, and a backup with this configuration archives what is restored"
    return [f"{told}; leave it out by topics.exclude, or choose another name"]


def run_restore_job(
    storage: StorageConfig,
    target: TargetConfig,
    request: RestoreRequest,
    *,
    restore_id: str | None,
    notice: Callable[[str], None],
    begin: Callable[[str], None] = lambda _: None,
) -> RestoreResult:
    """Plan a restore from what the archive holds now, and carry it out. `begin` is told its id as soon as that is known."""
    started_s = time.monotonic()
    kafka = KafkaSettings.parse(target.kafka, target.place_of_kafka)
    if restore_id is not None:
        check_restore_id(restore_id)
    store, prefix = open_store(storage)
    layout = Layout(prefix)

    def plan(wave: Mapping[str, str], life: int | None) -> RestorePlan:
        """Plan in a life; None: in that which was asked for."""
        notice(f"reading the archive of {spell_count(len(wave), 'topic')}")
        archived = read_archive(
            store,
            layout,
            life=request.life if life is None else life,
            wanted=wave.__contains__,
            known=known,
            use=storage.index,
            reads=request.wanted.of,
            tell_asked=_tell_asked(notice),
        )
        _tell_other_lives(archived, is_asked_for=request.life is not None)
        for note in tell_unreadable(archived, request):
            log.warning("%s", note)
        planned = plan_restore(archived, wave, request)
        if wave.keys() == targets.keys():  # else a topic that an earlier run has planned may have them
            check_partitions(planned.topics, request)
        return planned

    # What is refused is refused before Spark takes seconds to start.
    targets = request.targets(topic_names(store, layout))
    for note in request.notes(targets):
        log.warning("%s", note)
    with _spark("restore", notice) as start_spark:
        from archiver.spark.restore import RestoreJob, run_restore  # noqa: PLC0415 - an extra that a backup does not need

        notice("looking at the target")
        cluster_id, existing = asyncio.run(_look_at_target(kafka, targets.values()))
        job = RestoreJob(
            restore_id=restore_id or request.default_id(storage.url, cluster_id),
            request=request,
            storage=storage,
            kafka=kafka,
            cluster_id=cluster_id,
            existing=existing,
        )
        begin(job.restore_id)
        waves = request.waves(targets, existing, lambda: read_index(store, layout).sizes())
        # One that cannot be read is met before anything is created, whatever wave it is for.
        known = read_known(store, layout, targets.__contains__) if len(waves) > 1 else None
        facts = {} if known is None else known.newest
        partitions = {targets[name]: request.repartition or fact.partitions for name, fact in facts.items() if fact}
        outcome = run_restore(job, waves, partitions, plan, start_spark, notice)
    return RestoreResult(
        restore_id=job.restore_id,
        seconds=round(time.monotonic() - started_s, 3),
        filling_seconds=round(outcome.filling_s, 3),
        topics=outcome.topics,
        failure=outcome.failure,
        not_begun=outcome.not_begun,
    )


@contextmanager
def _spark(command: str, notice: Callable[[str], None], *, with_sql: bool = False) -> Iterator[Callable[[], Any]]:
    """Start Spark beside what the block does first. What it gets waits for that, and says so the first time."""
    try:
        from archiver.spark.session import open_context, open_session  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{command} needs Spark ({error.name} is missing): pip install 'kafka-archiver[spark]'"
        ) from error
    with (open_session if with_sql else open_context)(f"archiver {command}") as start_spark:
        is_told = False

        def wait_for_spark() -> Any:  # noqa: ANN401 - pyspark's, an extra
            nonlocal is_told
            if not is_told:  # on a machine that is busy it takes half a minute
                notice("starting Spark")
            is_told = True
            return start_spark()

        yield wait_for_spark


def _tell_other_lives(archived: Iterable[ArchivedTopic], *, is_asked_for: bool) -> None:
    for topic in archived:
        if topic.other_lives and not is_asked_for:
            others = ", ".join(map(str, topic.other_lives))
            log.warning(
                "%s: this is its life %d; the archive also has life %s (--life)", topic.topic, topic.life, others
            )


async def _look_at_target(kafka: KafkaSettings, topics: Iterable[str]) -> tuple[str, Collection[str]]:
    """Return the cluster's id, and which of the topics it has."""
    async with KafkaClient(kafka) as client:
        return await client.cluster_id(), await client.describe_topics(topics)


@contextmanager
def run_query(
    storage: StorageConfig,
    sql: str,
    options: Mapping[str, str],
    notice: Callable[[str], None],
    *,
    skips_damage: bool = False,
) -> "Iterator[Answer]":
    """Run one SQL query over topics; its rows come for as long as the block lasts. `options` are those of the data source."""
    with _spark("query", notice, with_sql=True) as start_spark:
        from archiver.spark.table.query import ask  # noqa: PLC0415 - an extra that a backup does not need

        store, prefix = open_store(storage)
        topics = topic_names(store, Layout(prefix))
        spark = start_spark()
        notice("looking for damage" if skips_damage else "planning")
        yield ask(spark, storage, topics, sql, options, skips_damage=skips_damage)
