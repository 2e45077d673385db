"""The line of a running service: what fails, and how old the oldest record is that is not durable."""

from collections.abc import Mapping
from dataclasses import replace

from archiver.backup.reports.metrics import PartitionState
from archiver.cli.backup import service_progress

STATE = PartitionState(
    topic="t",
    partition=0,
    position=5,
    high_watermark=5,
    oldest_pending_ms=None,
    pending_since_s=None,
    retention_ms=None,
    is_failing=False,
)
NOW_MS = 1_700_000_000_000


def states(*changes: Mapping[str, object]) -> list[PartitionState]:
    return [replace(STATE, partition=at, **change) for at, change in enumerate(changes)]  # type: ignore[arg-type]


def test_an_idle_service_is_not_behind() -> None:
    assert (
        service_progress(7, states({}, {}), NOW_MS) == "2 partitions, 7 records durable, 0 partitions have more to come"
    )


def test_failing_partitions_are_named_and_the_oldest_record_has_an_age() -> None:
    found = states(
        {"is_failing": True, "pending_since_s": 12.0},
        {"oldest_pending_ms": NOW_MS - 75_000},
        {"is_left": True, "is_failing": True, "pending_since_s": 900.0},
        *[{"is_failing": True}] * 4,
    )
    assert service_progress(0, found, NOW_MS) == (
        "6 partitions, 5 failing (t-0, t-3, t-4 and 2 more), 1 min 15 s behind, 0 records durable, 2 partitions have more to come"
    )
