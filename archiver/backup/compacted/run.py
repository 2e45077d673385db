"""Runs a process of an instance, from a configuration to its end: opens the parts, and closes what it opened."""

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import replace

from archiver.archive.store_clock import since_boot_s
from archiver.backup.compacted.instance_metrics import InstanceMetrics
from archiver.backup.compacted.instance_vitals import InstanceVitals
from archiver.backup.compacted.service import InstanceRequest, InstanceService
from archiver.backup.metrics import Metrics
from archiver.backup.metrics_server import MetricsServer
from archiver.backup.retry import persist
from archiver.backup.run import decoders, own_group_of, request_of, spool_of
from archiver.config.model import ArchiverConfig
from archiver.errors import StoppedError, UsageError
from archiver.kafka.group import GroupSettings
from archiver.process.defects import sweep_defects
from archiver.process.signals import stop_on_signals, unless_stopped
from archiver.store.address import archive_mark


def run_instance(config: ArchiverConfig, name: str, *, begins_first: bool) -> None:
    """Keep compacted topics as one of two instances, until stopped. Returns when what was held is durable or dropped."""
    refuse_stranger_instance(config, name)
    sweep_defects()

    vitals = InstanceVitals(config)
    counts = InstanceMetrics(vitals.turns, vitals.standing, vitals.clock_ms)
    ledger = Metrics(
        vitals.states,
        vitals.clock_ms,
        rebalances=vitals.rebalances,
        commit_failures=vitals.commit_failures,
        others=[counts.collect],
    )

    async def run() -> None:
        stop, listen = stop_on_signals(), config.metrics.listen
        with ExitStack() as stack:
            if listen is not None:
                checks = {"is_healthy": vitals.heart.why_not_healthy, "is_ready": vitals.why_not_ready}
                stack.enter_context(MetricsServer(listen, ledger, **checks))
            pool, spool = stack.enter_context(decoders()), stack.enter_context(spool_of(config))
            request = await unless_stopped(
                stop, persist("probe", lambda: request_of(config, spool, ledger, pool), ledger)
            )
            mark = archive_mark(config.storage)
            group = await unless_stopped(
                stop, persist("group", lambda: own_group_of(config, mark, request, pool), ledger)
            )
            service = InstanceService(
                InstanceRequest(
                    backup=replace(request, sink=replace(request.sink, clock=since_boot_s)),
                    config=config.compacted,
                    name=name,
                    begins_first=begins_first,
                    pin_ms=config.restores.pin_ms,
                    counts=counts,
                ),
                GroupSettings(
                    group=f"{group}-{name}",
                    protocol=config.backup.group_protocol,
                    session_timeout_ms=config.backup.session_timeout_ms,
                    refresh_ms=config.topics.refresh_ms,
                    archive=mark,
                ),
                pool,
            )
            vitals.attend(service)
            await service.run(stop, lambda client: [] if listen is None else vitals.watch(client))

    with suppress(StoppedError):
        asyncio.run(run())


def refuse_stranger_instance(config: ArchiverConfig, name: str) -> None:
    """Raise UsageError unless the configuration has instances, and this is one of them."""
    if not config.compacted.enabled:
        raise UsageError(
            "compacted.enabled: is false; set it to true, with compacted.instances, for both instances alike"
        )
    if name not in config.compacted.instances:
        raise UsageError(
            f"--instance {name}: is none of compacted.instances, {' and '.join(config.compacted.instances)}; both instances"
            " run with the same configuration"
        )
