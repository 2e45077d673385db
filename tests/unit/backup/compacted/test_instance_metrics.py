"""What a process of an instance counts and shows at a scrape, beside what a backup shows."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from archiver.backup.compacted.clearing.alarms import AlarmKind
from archiver.backup.compacted.turn.turn_decisions import PASSIVATE, Role
from archiver.backup.compacted.work.instance_metrics import (
    CLEARED_BYTES,
    CLEARED_OBJECTS,
    CLEARING_FAILURES,
    GIVEN_UP,
    HINTS_RECEIVED,
    HINTS_SENT,
    INSTANCE_METRICS,
    LOOK_FAILURES,
    NOTHING_SEEN,
    TURNS,
    CopyCounts,
    InstanceMetrics,
)
from archiver.backup.reports.metrics import METRICS, Metrics
from tests.unit.backup.test_metrics import Series, at, scrape, series_of

NOW_MS = 1_700_000_000_000


def turn(
    role: Role,
    *fills: SimpleNamespace,
    holds: int | None = None,
    since_ms: int | None = None,
    due_ms: int | None = None,
) -> Any:  # noqa: ANN401
    """A partition's turn: its readings have the numbers 1, 2."""
    return SimpleNamespace(
        source=SimpleNamespace(topic="orders"),
        turn=SimpleNamespace(role=role, holds=holds),
        role_since_ms=since_ms,
        due_ms=due_ms,
        readings=dict(enumerate(fills, 1)),
    )


def fill(position: int, *, high_watermark: int | None = None, is_unsure: bool = False) -> SimpleNamespace:
    feed = SimpleNamespace(writer=SimpleNamespace(durable_position=position), high_watermark=high_watermark)
    return SimpleNamespace(feed=feed, is_unsure=is_unsure)


def shown(turns: Sequence[Any], counts: InstanceMetrics | None = None, standing: CopyCounts = NOTHING_SEEN) -> Series:
    metrics = counts or InstanceMetrics(lambda: turns, lambda: standing, lambda: NOW_MS)
    return series_of(metrics.registry)


def test_roles_are_counted_and_those_of_none_are_0() -> None:
    series = shown([turn(Role.ACTIVE), turn(Role.ACTIVE), turn(Role.CATCH_UP)])
    counted = {
        role.value: series[at("archiver_compacted_partitions", topic="orders", role=role.value)] for role in Role
    }
    assert counted == {"unknown": 0, "passive": 0, "catch-up": 1, "active": 2}


def test_the_oldest_role_and_the_soonest_turn_are_shown() -> None:
    turns = [
        turn(Role.ACTIVE, since_ms=NOW_MS - 5_000, due_ms=NOW_MS + 9_000),
        turn(Role.ACTIVE, since_ms=NOW_MS - 7_000, due_ms=NOW_MS - 2_000),
        turn(Role.ACTIVE, since_ms=NOW_MS - 6_000, due_ms=NOW_MS + 1_000),
        turn(Role.PASSIVE, since_ms=NOW_MS - 99_000, due_ms=NOW_MS - 99_000),
    ]
    series = shown(turns)
    assert series[at("archiver_compacted_role_age_seconds", topic="orders", role="active")] == 7
    assert series[at("archiver_compacted_role_age_seconds", topic="orders", role="passive")] == 99
    assert series[at("archiver_compacted_turn_left_seconds", topic="orders")] == -2


def test_generations_that_are_filled_are_summed_up_by_what_they_are_for() -> None:
    two = (fill(70, high_watermark=100), fill(10, high_watermark=100, is_unsure=True))
    series = shown([turn(Role.ACTIVE, *two, holds=1), turn(Role.ACTIVE, fill(5), holds=1)])

    def both(name: str) -> list[float]:
        return [series[at(f"archiver_compacted_{name}", topic="orders", role=role)] for role in ("active", "catch-up")]

    assert both("position_offsets") == [75, 10]
    assert both("lag_offsets") == [30, 90]
    assert both("unsure") == [0, 1]


def test_events_are_counted_from_0_on() -> None:
    counts = InstanceMetrics(lambda: [turn(Role.PASSIVE)])
    names = ("turns", "given_up", "look_failures", "cleared_objects", "cleared_bytes")
    before = shown([], counts)
    assert [before[at(f"archiver_compacted_{name}_total", topic="orders")] for name in names] == [0] * 5
    assert before[at("archiver_compacted_hints_sent_total", event="ACTIVATE")] == 0
    for declared in (TURNS, GIVEN_UP, LOOK_FAILURES):
        counts.add(declared, "orders")
    counts.add(CLEARED_OBJECTS, "orders", by=3)
    counts.add(CLEARED_BYTES, "orders", by=700)
    counts.add(CLEARING_FAILURES, by=2)
    counts.add(HINTS_SENT, PASSIVATE)
    counts.add(HINTS_RECEIVED)
    after = shown([], counts)
    assert [after[at(f"archiver_compacted_{name}_total", topic="orders")] for name in names] == [1, 1, 1, 3, 700]
    assert after[at("archiver_compacted_clearing_failures_total")] == 2
    assert after[at("archiver_compacted_hints_sent_total", event="PASSIVATE")] == 1
    assert after[at("archiver_compacted_hints_received_total")] == 1


def test_counts_of_a_topic_go_when_kafka_no_longer_has_it() -> None:
    turns = [turn(Role.PASSIVE)]
    counts = InstanceMetrics(lambda: turns, gone=lambda: ["orders"])
    counts.add(TURNS, "orders")
    assert shown([], counts)[at("archiver_compacted_turns_total", topic="orders")] == 1
    turns.clear()
    assert {name for name, _ in shown([], counts)} == {
        f"archiver_compacted_{name}_total" for name in ("clearing_failures", "hints_sent", "hints_received")
    }


def test_each_alarm_has_a_series_and_those_of_an_instance_have_no_topic() -> None:
    standing = CopyCounts(
        generations={"orders": 3},
        bytes={"orders": 900},
        alarms={("orders", AlarmKind.DAMAGED): 2, ("", AlarmKind.UNHEARD): 1},
    )
    series = shown([turn(Role.ACTIVE)], standing=standing)
    kinds = {kind: series[at("archiver_compacted_alarms", topic="orders", kind=kind.value)] for kind in AlarmKind}
    assert kinds == dict.fromkeys(AlarmKind, 0) | {AlarmKind.DAMAGED: 2}
    assert series[at("archiver_compacted_alarms", topic="", kind="unheard")] == 1
    assert series[at("archiver_compacted_generations", topic="orders")] == 3
    assert series[at("archiver_compacted_generation_bytes", topic="orders")] == 900


def test_no_metric_is_declared_twice() -> None:
    names = [metric.name for metric in (*METRICS, *INSTANCE_METRICS)]
    assert len(set(names)) == len(names)
    both = Metrics(list, lambda: NOW_MS)
    InstanceMetrics(registry=both.registry)
    assert {name for name, _ in scrape(both)} <= {*names, "archiver_put_duration_seconds_bucket"} | {
        f"archiver_put_duration_seconds_{end}" for end in ("sum", "count")
    }
