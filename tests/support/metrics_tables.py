"""The tables of docs/metrics.md: the metrics that the program declares."""

from collections.abc import Iterable, Mapping
from typing import Final

from archiver.backup.compacted.work.instance_metrics import INSTANCE_METRICS
from archiver.backup.reports.metrics import METRICS
from archiver.process.output.declared_metrics import Declared
from archiver.process.output.job_metrics import JOB_METRICS
from archiver.upkeep.retention.sweeping.sweep_metrics import SWEEP_METRICS
from tests.support.brokers import REPOSITORY
from tests.support.pages import with_table

PAGE: Final = REPOSITORY / "docs" / "metrics.md"
_DECLARED: Final[Mapping[str, Iterable[Declared]]] = {
    "metrics": METRICS,
    "instance-metrics": INSTANCE_METRICS,
    "sweep-metrics": SWEEP_METRICS,
    "job-metrics": JOB_METRICS,
}


def metrics_page() -> str:
    """The page with the tables of now."""
    page = PAGE.read_text(encoding="utf-8")
    for mark, declared in _DECLARED.items():
        rows = [f"| `{one.name}` | {_type_of(one)} | {one.meaning} |" for one in declared]
        page = with_table(page, mark, "\n".join(["| name | type (labels) | meaning |", "| --- | --- | --- |", *rows]))
    return page


def _type_of(one: Declared) -> str:
    return f"{one.kind} ({', '.join(one.labels)})" if one.labels else one.kind


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
