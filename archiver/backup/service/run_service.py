"""Runs a group worker (backup service or compacted instance) until a signal, with its metrics and health endpoint."""

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from archiver.archive.notes.run_notes import RunKind
from archiver.backup.reports.ledger import Ledger
from archiver.backup.reports.metrics import Metrics, PartitionState
from archiver.backup.reports.metrics_server import MetricsServer
from archiver.backup.service.backup_service import Service
from archiver.backup.service.group_worker import GroupWorker, persist
from archiver.backup.service.heartbeats import Heartbeats
from archiver.backup.service.request import BackupRequest
from archiver.backup.service.run_backup import decoders, request_of, spool_of
from archiver.backup.service.until_end import Attend
from archiver.backup.service.vitals import Vitals, WorkerVitals
from archiver.config.model import ArchiverConfig, GroupProtocol
from archiver.errors import ArchiverError, DroppedError, StoppedError, UsageError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group import GroupSettings
from archiver.process.output.progress import spell_seconds
from archiver.process.output.text import spell_count
from archiver.process.running.signals import stop_on_signals, unless_stopped
from archiver.process.running.workers import Workers
from archiver.store.address import archive_mark, group_of

log = logging.getLogger(__name__)

Worker = TypeVar("Worker", bound=GroupWorker)

_REPORT_EVERY_S = 2.0
_SILENT_S = 5.0  # a healthy group assigns partitions within a few seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The result of a backup that ran until stopped."""

    records: int
    dropped: Sequence[DroppedError]  # number of held records that could not be put in time
    lasting: Sequence[ArchiverError] = ()  # permanent failures at the end

    @property
    def problems(self) -> Sequence[ArchiverError]:
        return [*self.dropped, *self.lasting]


def run_service(
    config: ArchiverConfig,
    notice: Callable[[int, Sequence[PartitionState], int], None],
    say: Callable[[str], None] = lambda _: None,
) -> ServiceResult:
    """Archive until stopped, as a member of a group. Returns after a signal, when held records are durable or dropped.

    `notice` is called regularly with the number of durable records, the partitions, and the time; `say` once for each change.
    """
    vitals = Vitals()
    metrics = metrics_of(vitals, RunKind.BACKUP)
    group = group_of(config)
    heartbeats = Heartbeats(config, RunKind.BACKUP, vitals)
    made: list[Service] = []

    def make(request: BackupRequest, pool: Workers) -> Service:
        made.append(Service(request, group_settings(config, group), pool))
        return made[0]

    def watch(service: Service, client: KafkaClient) -> Sequence[Awaitable[None]]:
        def report() -> None:
            notice(metrics.records, list(vitals.states()), vitals.clock_ms())

        beats = heartbeats.run(service.archive)
        return [report_state(service, config, group, say, report), beats, *vitals.watch(client)]

    run_worker(config, vitals, metrics, make, watch)
    if made and not made[0].dropped:
        heartbeats.end()
    dropped, lasting = (made[0].dropped, made[0].problems) if made else ((), ())
    return ServiceResult(records=metrics.records, dropped=dropped, lasting=lasting)


@contextmanager
def serve_run(listen: str) -> Iterator[tuple[Ledger, Attend]]:
    """Serve the metrics of a run, and its health. To be entered on the event loop.

    An occupied listen address is logged, and the run continues: usually a running backup service has it.
    """
    vitals = Vitals()
    metrics = Metrics(vitals.states, vitals.clock_ms, kind=RunKind.UNTIL_END)
    checks = {"is_healthy": vitals.heart.why_not_healthy, "is_ready": vitals.why_not_ready}
    with ExitStack() as stack:
        try:
            stack.enter_context(MetricsServer(listen, metrics.registry, **checks))
        except UsageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
            log.warning("%s; this run goes on without an endpoint", error)
        stack.callback(asyncio.create_task(vitals.heart.beat()).cancel)
        yield metrics, vitals.attend_run


def metrics_of(vitals: WorkerVitals[Worker], kind: RunKind) -> Metrics:
    return Metrics(
        vitals.states,
        vitals.clock_ms,
        kind=kind,
        rebalances=vitals.rebalances,
        commit_failures=vitals.commit_failures,
        gone=vitals.gone_topics,
    )


def run_worker(
    config: ArchiverConfig,
    vitals: WorkerVitals[Worker],
    metrics: Metrics,
    make: Callable[[BackupRequest, Workers], Worker],
    watch: Callable[[Worker, KafkaClient], Sequence[Awaitable[None]]],
) -> None:
    """Run the worker that `make` returns, with its endpoint, until a signal. `watch` returns other work for its loop."""

    async def run() -> None:
        stop, listen = stop_on_signals(), config.metrics.listen
        with ExitStack() as stack:
            stack.callback(asyncio.create_task(vitals.heart.beat()).cancel)  # also while it waits for store and brokers
            if listen is not None:
                checks = {"is_healthy": vitals.heart.why_not_healthy, "is_ready": vitals.why_not_ready}
                stack.enter_context(MetricsServer(listen, metrics.registry, **checks))
            pool, spool = stack.enter_context(decoders()), stack.enter_context(spool_of(config))
            request = await unless_stopped(
                stop, persist("probe", lambda: request_of(config, spool, metrics, pool), metrics)
            )
            worker = make(request, pool)
            vitals.attend(worker)
            await worker.run(stop, lambda client: watch(worker, client))

    with suppress(StoppedError):
        asyncio.run(run())


async def report_state(
    worker: GroupWorker, config: ArchiverConfig, group: str, say: Callable[[str], None], report: Callable[[], None]
) -> None:
    """Report the assignment, and before that what it waits for, once each; call `report` every two seconds."""
    waits_since_s, is_said = time.monotonic(), False
    while not worker.held:
        if not worker.topic_names or worker.membership.error is not None:  # another line reports the problem
            waits_since_s = time.monotonic()
        elif not is_said and time.monotonic() - waits_since_s >= _SILENT_S:
            is_said = True
            say(_waiting(config, group))
        report()
        await asyncio.sleep(_REPORT_EVERY_S)
    topics = {topic for topic, _ in worker.held}
    what = f"{spell_count(len(worker.held), 'partition')} of {spell_count(len(topics), 'topic')}"
    say(f"archiving {what} into {config.storage.url}, as a member of group {group}")
    while True:
        report()
        await asyncio.sleep(_REPORT_EVERY_S)


def _waiting(config: ArchiverConfig, group: str) -> str:
    longest = f"{spell_seconds(config.backup.session_timeout_ms / 1000)} (backup.session-timeout)"
    if config.backup.group_protocol is GroupProtocol.CONSUMER:
        longest = "the session timeout of the brokers"
    return (
        f"group {group} has no partition for this instance yet: other instances have all, or one that ended without leaving"
        f" the group holds its partitions for up to {longest}"
    )


def group_settings(config: ArchiverConfig, group: str) -> GroupSettings:
    return GroupSettings(
        group=group,
        protocol=config.backup.group_protocol,
        session_timeout_ms=config.backup.session_timeout_ms,
        refresh_ms=config.topics.refresh_ms,
        archive=archive_mark(config.storage),
    )
