"""Writes the metrics of a job to a file for node_exporter's textfile collector. cli/jobs uses it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from archiver.errors import ArchiverError, UsageError
from archiver.process.output.declared_metrics import Declared, family_of

LAST_RUN: Final = Declared(
    "archiver_job_last_run_timestamp_seconds", "gauge", "When the job ended last, by this machine's clock.", ("kind",)
)
LAST_SUCCESS: Final = Declared(
    "archiver_job_last_success_timestamp_seconds",
    "gauge",
    "When the job ended last with exit code 0. A failed run keeps the value. Alert on its age: the file of a job that no longer runs stays.",
    ("kind",),
)
EXIT_CODE: Final = Declared("archiver_job_exit_code", "gauge", "Exit code of the last run.", ("kind",))
SECONDS: Final = Declared("archiver_job_duration_seconds", "gauge", "How long the last run took.", ("kind",))
JOB_METRICS: Final = (LAST_RUN, LAST_SUCCESS, EXIT_CODE, SECONDS)


def check_metrics_file(path: Path, kind: str) -> None:
    """Raise UsageError if the file cannot be written, or has the metrics of another job, whose alerts would end."""
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--metrics-file {path}: there is no folder {path.absolute().parent}")
    if path.is_dir():
        raise UsageError(f"--metrics-file {path}: is a folder; name a file *.prom in it")
    others = sorted(_values(path, LAST_RUN).keys() - {kind})
    if others:
        raise UsageError(f"--metrics-file {path}: has the metrics of {others[0]}; give each job a file of its own")


def write_metrics_file(path: Path, families: Sequence[Metric]) -> None:
    """Replace the file atomically."""
    registry = CollectorRegistry()
    registry.register(_Families(families))
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise ArchiverError(f"--metrics-file {path}: was not written: {error}; the job itself is done") from error


def job_families(path: Path, kind: str, *, now_s: float, seconds: float, exit_code: int) -> list[Metric]:
    """Return the metrics of a run. After a failure, the last success is that of the present file."""
    success_s = now_s if exit_code == 0 else _values(path, LAST_SUCCESS).get(kind)
    values = {LAST_RUN: now_s, LAST_SUCCESS: success_s, EXIT_CODE: exit_code, SECONDS: round(seconds, 3)}
    return [family_of(one, {(kind,): value} if value is not None else {}) for one, value in values.items()]


def _values(path: Path, wanted: Declared) -> dict[str, float]:
    """Return the values of a metric by kind of job, in a file of this module; none if it cannot be read."""
    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    samples = [sample for family in families if family.name == wanted.name for sample in family.samples]
    return {sample.labels["kind"]: sample.value for sample in samples if "kind" in sample.labels}


@dataclass(frozen=True, eq=False)
class _Families:
    """A collector of finished metrics."""

    families: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.families
