"""Runs a backup that ends (`--until-end`); for every backup, opens and probes the archive and builds the request."""

import asyncio
import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from archiver.archive.format.handle import Archive, open_archive
from archiver.archive.segments.block_budget import DecodingBudget
from archiver.archive.segments.probe import probe_store
from archiver.archive.segments.segment_writer import SegmentLimits
from archiver.archive.segments.spool import Spool, open_spool
from archiver.backup.partition.feed import PartitionReport
from archiver.backup.partition.segment_sink import SegmentSink
from archiver.backup.reports.ledger import NO_LEDGER, Ledger
from archiver.backup.service.request import BackupRequest
from archiver.backup.service.until_end import Attend, BackupReport, back_up_until_end
from archiver.codec.compression import BlockCodec
from archiver.config.model import ArchiverConfig, PositionKeeping
from archiver.errors import UsageError
from archiver.groups.positions.keeper import PositionPolicy
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.signals import stop_on_signals, unless_stopped
from archiver.process.running.silence import SilenceCounter
from archiver.process.running.workers import Workers, workers

_DECODING_SHARE = 5 / 8  # share of the memory for decoding; an eighth is for fetches, the rest for open segments


def run_backup(
    config: ArchiverConfig, notice: Callable[[Sequence[PartitionReport]], None]
) -> tuple[BackupReport, float]:
    """Archive everything committed at the start. Returns a report of each partition, and the duration in seconds."""
    started_s = time.monotonic()

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
        return NO_LEDGER, lambda *_: ()
    from archiver.backup.service.run_service import serve_run  # noqa: PLC0415 - 60 ms that a run without an endpoint has not to pay

    return stack.enter_context(serve_run(config.metrics.listen))


def decoders() -> AbstractContextManager[Workers]:
    return workers((os.cpu_count() or 1) + 2, "decoder")


def spool_of(config: ArchiverConfig) -> AbstractContextManager[Spool]:
    return open_spool(config.backup.spool.dir, config.backup.spool.bytes)


async def request_of(config: ArchiverConfig, spool: Spool, ledger: Ledger, pool: Workers) -> BackupRequest:
    """Open the archive, and check that it can be written to without harm."""
    if not config.topics.include:
        raise UsageError("topics.include: is missing; list the topics to archive, as regular expressions")
    kafka = KafkaSettings.of(config)
    archive = await pool.call(open_archive, config.storage)  # the provider of credentials may be slow
    await pool.call(probe_store, archive)
    gc.freeze()  # objects of imports stay until the end: garbage collection need not traverse them again and again
    backup = config.backup
    return BackupRequest(
        kafka=kafka,
        topics=config.topics,
        place_of_include=config.place_of_include,
        sink=sink_of(config, archive, spool, ledger),
        positions=_positions(config),
        memory_bytes=backup.memory_bytes,
        spool_bytes=spool.most_bytes,
        rate_bytes=backup.rate_bytes,
        start=backup.start,
        leaves_copied=config.compacted.enabled,
    )


def sink_of(config: ArchiverConfig, archive: Archive, spool: Spool, ledger: Ledger) -> SegmentSink:
    """Make what all writers of this process share."""
    backup = config.backup
    return SegmentSink(
        archive=archive,
        limits=_limits(config),
        age_s=backup.segment.age_ms / 1000 or math.inf,
        spool=spool,
        clock=time.monotonic,
        # Brokers give an instance up after the session timeout without a heartbeat: half of it counts as silence, to be sure.
        silence_counter=SilenceCounter(backup.session_timeout_ms / 2000),
        ledger=ledger,
        decoding=DecodingBudget(int(backup.memory_bytes * _DECODING_SHARE)),
        most_batch_bytes=backup.batch.bytes,
        unreadable=backup.unreadable,
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
