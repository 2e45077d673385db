"""The HTTP endpoint of a backup that ends, `--until-end`: for as long as it runs."""

import asyncio
import errno
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from archiver.backup.ledger import Ledger
from archiver.backup.metrics import Metrics
from archiver.backup.metrics_server import MetricsServer
from archiver.backup.until_end import Attend
from archiver.backup.vitals import Vitals
from archiver.errors import UsageError

log = logging.getLogger(__name__)


@contextmanager
def serve_run(listen: str) -> Iterator[tuple[Ledger, Attend]]:
    """Serve the metrics of a run, and its health. To be entered on the event loop.

    A listen address that is taken is logged, and the run goes on: most often a backup that runs until stopped has it.
    """
    vitals = Vitals()
    metrics = Metrics(vitals.states, vitals.clock_ms)
    checks = {"is_healthy": vitals.heart.why_not_healthy, "is_ready": vitals.why_not_ready}
    with ExitStack() as stack:
        try:
            stack.enter_context(MetricsServer(listen, metrics.registry, **checks))
        except UsageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
            log.warning("%s; this run goes on without an endpoint", error)
        beating = asyncio.create_task(vitals.heart.beat())
        stack.callback(beating.cancel)
        yield metrics, vitals.attend_run
