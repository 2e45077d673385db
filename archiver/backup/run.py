"""Runs a backup of either kind, from a configuration to its end: opens the parts, and closes what it opened."""

import asyncio
import gc
import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archiver.archive.block_budget import DecodingBudget
from archiver.archive.handle import open_archive
from archiver.archive.probe import probe_store
from archiver.archive.segment_writer import SegmentLimits
from archiver.archive.spool import Spool, open_spool
from archiver.backup.feed import Feed, PartitionReport
from archiver.backup.ledger import NO_LEDGER, Ledger
from archiver.backup.request import BackupRequest
from archiver.backup.retry import persist
from archiver.backup.segment_sink import BatchPolicy, SegmentSink
from archiver.backup.until_end import Attend, BackupReport, attend_nothing, back_up_until_end
from archiver.codec.compression import BlockCodec
from archiver.config.model import ArchiverConfig, PositionKeeping
from archiver.errors import DroppedError, StoppedError, UsageError
from archiver.groups.keeper import PositionPolicy
from archiver.kafka.group import GroupSettings
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.kafka.settings import KafkaSettings
from archiver.process.defects import sweep_defects
from archiver.process.signals import stop_on_signals, unless_stopped
from archiver.process.silence import SilenceCounter
from archiver.process.workers import Workers, workers
from archiver.store.address import archive_mark, group_of

if TYPE_CHECKING:
    from archiver.backup.arrival import Arrival
    from archiver.backup.metrics import Metrics
    from archiver.backup.service import Service

_DECODING_SHARE = 5 / 8  # share of the memory for decoding; an eighth is for fetches, the rest for open segments
_DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """What a backup has done that ran until stopped."""

    records: int
    dropped: Sequence[DroppedError]  # held records at the end that could not be put in time


def run_backup(
    config: ArchiverConfig, notice: Callable[[Sequence[PartitionReport]], None]
) -> tuple[BackupReport, float]:
    """Archive everything committed at the start. Returns a report of each partition, and the duration in seconds."""
    started_s = time.monotonic()
    sweep_defects()

    async def run() -> BackupReport:
        stop = stop_on_signals()
        with ExitStack() as stack:
            ledger, attend = _observed(config, stack)
            pool, spool = stack.enter_context(decoders()), stack.enter_context(spool_of(config))
            request = await unless_stopped(stop, request_of(config, spool, ledger, pool))
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
    """Archive until stopped, as a member of a group. Returns after a signal, when held records are durable or dropped.

    `notice` is called now and then with the number of durable records and the feeds at work; `say` with each change, once.
    """
    from archiver.backup.arrival import Arrival  # noqa: PLC0415 - with the service
    from archiver.backup.metrics import Metrics  # noqa: PLC0415 - 60 ms that no other command needs
    from archiver.backup.metrics_server import MetricsServer  # noqa: PLC0415
    from archiver.backup.service import Service  # noqa: PLC0415 - as above, with librdkafka
    from archiver.backup.vitals import Vitals  # noqa: PLC0415

    vitals = Vitals()
    metrics = Metrics(
        vitals.states,
        vitals.clock_ms,
        rebalances=vitals.rebalances,
        commit_failures=vitals.commit_failures,
        gone=vitals.gone_topics,
    )

    async def run() -> Sequence[DroppedError]:
        stop = stop_on_signals()
        with ExitStack() as stack:
            if config.metrics.listen is not None:
                checks = {"is_healthy": vitals.heart.why_not_healthy, "is_ready": vitals.why_not_ready}
                stack.enter_context(MetricsServer(config.metrics.listen, metrics.registry, **checks))
            pool = stack.enter_context(decoders())
            spool = stack.enter_context(spool_of(config))
            request = await unless_stopped(
                stop, persist("probe", lambda: request_of(config, spool, metrics, pool), metrics)
            )
            group = group_of(config)
            service = Service(request, group_settings(config, group), pool)
            vitals.attend(service)
            with suppress(StoppedError):
                await service.run(
                    stop,
                    lambda client: [
                        _report_state(service, metrics, notice, Arrival(config, group, say)),
                        _sweep_daily(pool),
                        *vitals.watch(client),
                    ],
                )
            return service.dropped

    dropped: Sequence[DroppedError] = ()
    with suppress(StoppedError):  # a stop before the service existed
        dropped = asyncio.run(run())
    return ServiceResult(records=metrics.records, dropped=dropped)


async def _report_state(
    service: "Service",
    metrics: "Metrics",
    notice: Callable[[int, Collection[Feed]], None],
    arrival: "Arrival",
) -> None:
    while True:
        arrival.note_state(service.held, service.membership, has_topics=bool(service.topics))
        notice(metrics.records, list(service.feeds.values()))
        await asyncio.sleep(1.0)


async def _sweep_daily(pool: Workers) -> None:
    while True:
        await pool.call(sweep_defects)
        await asyncio.sleep(_DAY_S)


def group_settings(config: ArchiverConfig, group: str) -> GroupSettings:
    return GroupSettings(
        group=group,
        protocol=config.backup.group_protocol,
        session_timeout_ms=config.backup.session_timeout_ms,
        refresh_ms=config.topics.refresh_ms,
        archive=archive_mark(config.storage),
    )


def decoders() -> AbstractContextManager[Workers]:
    return workers((os.cpu_count() or 1) + 2, "decoder")


def spool_of(config: ArchiverConfig) -> AbstractContextManager[Spool]:
    return open_spool(config.backup.spool.dir, config.backup.spool.bytes)


async def request_of(config: ArchiverConfig, spool: Spool, ledger: Ledger, pool: Workers) -> BackupRequest:
    """Open the archive, and check that it can be written to without harm."""
    if not config.topics.include:
        raise UsageError("topics.include: is missing; list the topics to archive, as regular expressions")
    kafka = KafkaSettings.parse(config.kafka, config.place_of_kafka)
    archive = await pool.call(open_archive, config.storage)  # the provider of credentials may be slow
    await pool.call(probe_store, archive)
    gc.freeze()  # objects of imports stay until the end: garbage collection need not traverse them again and again
    backup = config.backup
    return BackupRequest(
        kafka=kafka,
        topics=config.topics,
        place_of_include=config.place_of_include,
        sink=SegmentSink(
            archive=archive,
            limits=_limits(config),
            age_s=backup.segment.age_ms / 1000 or math.inf,
            spool=spool,
            clock=time.monotonic,
            # Brokers give an instance up after the session timeout without a heartbeat: half of it counts as silence, to be sure.
            silence_counter=SilenceCounter(backup.session_timeout_ms / 2000),
            ledger=ledger,
            decoding=DecodingBudget(int(backup.memory_bytes * _DECODING_SHARE)),
            batches=BatchPolicy(most_bytes=backup.batch.bytes, unreadable=backup.unreadable),
        ),
        positions=_positions(config),
        memory_bytes=backup.memory_bytes,
        spool_bytes=spool.most_bytes,
        rate_bytes=backup.rate_bytes,
        start=backup.start,
        leaves_copied=config.compacted.enabled,
    )


def _positions(config: ArchiverConfig) -> PositionPolicy:
    backup, topics = config.backup, config.topics
    is_excluded = not topics.model_copy(update={"include": (OFFSETS_TOPIC,)}).select([OFFSETS_TOPIC])
    if is_excluded and backup.groups is PositionKeeping.TOPIC:
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
