"""Metrics file and note of a command that a schedule may run. All such commands add it by `add_job`."""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archiver.cli.options import add_run
from archiver.cli.output import forget_complaints, last_complaints
from archiver.errors import ArchiverError, ForeignArchiveError, StoreError, StoreTemporaryError, UsageError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from archiver.archive.notes.run_notes import Outcome
    from archiver.config.model import StorageConfig

Run = Callable[[argparse.Namespace], int]


class Job:
    """A running job. Without `storage` it puts no note: a dry run, or a run that has not begun.

    `facts`: members of its note; `families`: its own metrics, besides those of every job.
    """

    # No dataclass: their module takes longer to load than a help page takes to print.
    def __init__(self, metrics_file: Path | None, name: str, kind: str = "") -> None:
        self.metrics_file = metrics_file
        self.name = name  # in its metrics
        self.kind = kind
        self.storage: StorageConfig | None = None
        self.facts: dict[str, Any] = {}
        self.families: list[Metric] = []
        self.is_noted = False
        self.started_s = time.monotonic()

    def note(self, outcome: "Outcome") -> None:
        """Put the note of this run into the archive; a failure is logged."""
        from archiver.archive.format.handle import archive_of
        from archiver.archive.notes.run_notes import RunKind, RunNote, as_problems, put_run_note

        if self.storage is not None and self.kind:
            took_ms = round(1000 * (time.monotonic() - self.started_s))
            kind = RunKind(self.kind)
            facts = {**self.facts, "problems": as_problems(self.facts.get("problems", last_complaints()))}
            made = RunNote(kind=kind, outcome=outcome, took_ms=took_ms, **facts)
            problem = put_run_note(archive_of(self.storage), made)
            if problem:
                import logging

                logging.getLogger(__name__).warning("%s", problem)
            self.is_noted = True


def add_job(parser: argparse.ArgumentParser, run: Run, kind: str = "") -> None:
    """Set the function that runs a job, and add its options. `kind`: of its note; empty: it puts none."""
    add_run(parser, partial(_run_job, run, kind or parser.prog.partition(" ")[2], kind))
    parser.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write the run's metrics there at its end, for node_exporter's textfile collector (FILE is *.prom)",
    )


def _run_job(run: Run, name: str, kind: str, options: argparse.Namespace) -> int:
    path: Path | None = options.metrics_file
    if path is not None:
        from archiver.process.output.job_metrics import check_metrics_file

        check_metrics_file(path, name)
    forget_complaints()  # of an earlier command of this process
    options.job = job = Job(path, name, kind)
    try:
        exit_code = run(options)
    except ArchiverError as error:
        # Its note would wait for the same store, or lie in another cluster's archive; or nothing has begun.
        is_wrong = isinstance(error, UsageError) and not job.is_noted
        if is_wrong or isinstance(error, ForeignArchiveError | StoreError | StoreTemporaryError):
            job.storage = None
        _end(job, error.exit_code, str(error))
        raise
    _end(job, exit_code)
    return exit_code


def _end(job: Job, exit_code: int, problem: str = "") -> None:
    if job.storage is not None:
        from archiver.archive.notes.run_notes import Outcome

        if problem:
            job.facts["problems"] = (problem,)
        job.note(Outcome.FAILED if exit_code else Outcome.DONE)
    if job.metrics_file is not None:
        from archiver.archive.format.store_clock import machine_now_ms
        from archiver.process.output.job_metrics import job_families, write_metrics_file

        seconds = time.monotonic() - job.started_s
        now_s = machine_now_ms() / 1000
        own = job_families(job.metrics_file, job.name, now_s=now_s, seconds=seconds, exit_code=exit_code)
        write_metrics_file(job.metrics_file, [*job.families, *own])
