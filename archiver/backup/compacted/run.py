"""Runs a process of an instance, from a configuration to its end: opens the parts, and closes what it opened."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

from archiver.archive.store_clock import since_boot_s
from archiver.backup.arrival import Arrival
from archiver.backup.compacted.instance_metrics import InstanceMetrics
from archiver.backup.compacted.instance_vitals import InstanceVitals
from archiver.backup.compacted.service import InstanceRequest, InstanceService
from archiver.backup.metrics import Metrics
from archiver.backup.metrics_server import MetricsServer
from archiver.backup.retry import persist
from archiver.backup.run import decoders, group_settings, request_of, spool_of
from archiver.config.model import ArchiverConfig
from archiver.errors import StoppedError, UsageError
from archiver.process.defects import sweep_defects
from archiver.process.signals import stop_on_signals, unless_stopped
from archiver.process.text import spell_count
from archiver.store.address import group_of


def run_instance(
    config: ArchiverConfig,
    name: str,
    *,
    begins_first: bool,
    notice: Callable[[str], None],
    say: Callable[[str], None],
) -> None:
    """Copy compacted topics as one of two instances, until stopped. Returns when held records are durable or dropped.

    `notice` is called every second with what the process is for its partitions, once it has some; `say` with each change, once.
    """
    refuse_stranger_instance(config, name)
    sweep_defects()

    vitals = InstanceVitals(config)
    ledger = Metrics(
        vitals.states,
        vitals.clock_ms,
        rebalances=vitals.rebalances,
        commit_failures=vitals.commit_failures,
        gone=vitals.gone_topics,
    )
    counts = InstanceMetrics(vitals.turns, vitals.standing, vitals.clock_ms, ledger.registry)

    async def run() -> None:
        stop, listen = stop_on_signals(), config.metrics.listen
        with ExitStack() as stack:
            if listen is not None:
                checks = {"is_healthy": vitals.heart.why_not_healthy, "is_ready": vitals.why_not_ready}
                stack.enter_context(MetricsServer(listen, ledger.registry, **checks))
            pool, spool = stack.enter_context(decoders()), stack.enter_context(spool_of(config))
            request = await unless_stopped(
                stop, persist("probe", lambda: request_of(config, spool, ledger, pool), ledger)
            )
            group = f"{group_of(config)}-{name}"
            service = InstanceService(
                InstanceRequest(
                    backup=replace(request, sink=replace(request.sink, clock=since_boot_s)),
                    config=config.compacted,
                    name=name,
                    begins_first=begins_first,
                    pin_ms=config.restores.pin_ms,
                    counts=counts,
                ),
                group_settings(config, group),
                pool,
            )
            vitals.attend(service)
            arrival = Arrival(config, group, say)

            def tell(roles: str) -> None:
                notice(f"{roles}; {spell_count(ledger.records, 'record')} durable")

            roles_at_end = ""

            async def report() -> None:
                nonlocal roles_at_end
                try:
                    while True:
                        arrival.note_state(service.held, service.membership, has_topics=bool(service.topics.described))
                        if service.held:
                            tell(vitals.spell_roles())
                        await asyncio.sleep(1.0)
                finally:
                    roles_at_end = vitals.spell_roles() if service.held else ""

            try:
                await service.run(stop, lambda client: [report(), *([] if listen is None else vitals.watch(client))])
            finally:
                if roles_at_end:  # held records are durable by now
                    tell(roles_at_end)

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
