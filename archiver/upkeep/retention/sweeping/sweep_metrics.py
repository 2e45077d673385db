"""Declares the metrics of one sweep, which `--metrics-file` writes beside those of every job."""

from collections.abc import Mapping
from typing import Final

from prometheus_client.metrics_core import Metric

from archiver.archive.notes.sweeps import SweepReport
from archiver.process.output.declared_metrics import Declared, Labels, family_of

LAST_RUN: Final = Declared(
    "archiver_sweep_last_run_timestamp_seconds",
    "gauge",
    "When the last finished sweep was planned, by the store's clock.",
    (),
)
SECONDS: Final = Declared("archiver_sweep_duration_seconds", "gauge", "How long it took.", ())
OBJECTS: Final = Declared("archiver_sweep_deleted_objects", "gauge", "Objects that it deleted.")
RECORDS: Final = Declared("archiver_sweep_deleted_records", "gauge", "Records in them.")
BYTES: Final = Declared("archiver_sweep_deleted_bytes", "gauge", "Stored bytes of them.")
TOPICS: Final = Declared(
    "archiver_sweep_topics",
    "gauge",
    "Topics: `swept`; of these `waiting` for an agreement, and `stopped` (configs changed, another cluster was asked, or objects are of another topic than their life); `kept`, of which nothing could be deleted. `archiver retention --last` names them with reasons.",
    ("state",),
)
REFUSED: Final = Declared("archiver_sweep_refused_deletes", "gauge", "Deletes that the store refused.", ())
FAILED: Final = Declared(
    "archiver_sweep_failures",
    "gauge",
    "Topics, partitions and kinds of control objects that could not be read or listed, and damaged objects that cover others: nothing of them was deleted.",
    (),
)
SWEEP_METRICS: Final = (LAST_RUN, SECONDS, OBJECTS, RECORDS, BYTES, TOPICS, REFUSED, FAILED)


def sweep_families(report: SweepReport) -> list[Metric]:
    """Return the metrics of one sweep."""
    values = _values_of(report)
    return [family_of(declared, values[declared]) for declared in SWEEP_METRICS]


def _values_of(report: SweepReport) -> Mapping[Declared, Mapping[Labels, float]]:
    topics = report.topics
    return {
        LAST_RUN: {(): report.begun_ms / 1000},
        SECONDS: {(): report.took_ms / 1000},
        OBJECTS: {(name,): one.objects for name, one in topics.items()},
        RECORDS: {(name,): one.records for name, one in topics.items()},
        BYTES: {(name,): one.bytes for name, one in topics.items()},
        TOPICS: {
            ("swept",): len(topics),
            ("waiting",): len(report.waiting),
            ("stopped",): sum(bool(one.stopped) for one in topics.values()),
            ("kept",): len(report.kept),
        },
        REFUSED: {(): report.refused},
        FAILED: {(): report.failed},
    }
