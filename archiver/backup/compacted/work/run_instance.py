"""Runs a process of an instance, from a configuration to its end."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from archiver.archive.format.store_clock import since_boot_s
from archiver.archive.notes.run_notes import RunKind
from archiver.backup.compacted.work.instance_metrics import InstanceMetrics
from archiver.backup.compacted.work.instance_service import InstanceRequest, InstanceService
from archiver.backup.compacted.work.instance_vitals import InstanceVitals
from archiver.backup.service.heartbeats import Heartbeats
from archiver.backup.service.request import BackupRequest
from archiver.backup.service.run_service import group_settings, metrics_of, report_state, run_worker
from archiver.config.model import ArchiverConfig
from archiver.errors import UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.process.output.text import spell_count
from archiver.process.running.workers import Workers
from archiver.store.address import group_of


def run_instance(
    config: ArchiverConfig,
    name: str,
    *,
    begins_first: bool,
    notice: Callable[[str], None],
    say: Callable[[str], None],
) -> None:
    """Copy compacted topics as one of two instances until stopped. Returns when held records are durable or dropped.

    `notice` is called every second with the roles of the process, once it has partitions; `say` once for each change.
    """
    refuse_stranger_instance(config, name)
    vitals = InstanceVitals(config)
    metrics = metrics_of(vitals, RunKind.COMPACTED)
    counts = InstanceMetrics(vitals.turns, vitals.standing, vitals.clock_ms, metrics.registry, vitals.gone_topics)
    heartbeats = Heartbeats(config, RunKind.COMPACTED, vitals, instance=name, next_ms=vitals.next_turn_ms)
    group = f"{group_of(config)}-{name}"
    roles_at_end = ""

    def make(request: BackupRequest, pool: Workers) -> InstanceService:
        asked = InstanceRequest(
            backup=replace(request, sink=replace(request.sink, clock=since_boot_s)),
            config=config.compacted,
            name=name,
            begins_first=begins_first,
            pin_ms=config.restores.pin_ms,
            counts=counts,
        )
        return InstanceService(asked, group_settings(config, group), pool)

    def tell(roles: str) -> None:
        notice(f"{roles}; {spell_count(metrics.records, 'record')} durable")

    async def report(service: InstanceService) -> None:
        nonlocal roles_at_end

        def tell_roles() -> None:
            if service.held:
                tell(vitals.spell_roles())

        try:
            await report_state(service, config, group, say, tell_roles)
        finally:
            roles_at_end = vitals.spell_roles() if service.held else ""

    def watch(service: InstanceService, client: KafkaClient) -> Sequence[Awaitable[None]]:
        beats = heartbeats.run(service.archive)
        return [report(service), beats, *([] if config.metrics.listen is None else vitals.watch(client))]

    try:
        run_worker(config, vitals, metrics, make, watch)
        heartbeats.end()
    finally:
        if roles_at_end:  # held records are durable by now
            tell(roles_at_end)


def refuse_stranger_instance(config: ArchiverConfig, name: str) -> None:
    """Raise UsageError unless this instance is one of the configured ones."""
    if not config.compacted.enabled:
        raise UsageError(
            "compacted.enabled: is false; set it to true, with compacted.instances, for both instances alike"
        )
    if name not in config.compacted.instances:
        raise UsageError(
            f"--instance {name}: is none of compacted.instances, {' and '.join(config.compacted.instances)}; both instances"
            " run with the same configuration"
        )
