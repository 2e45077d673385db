"""What is counted stays, what is shown is right at the moment of the scrape."""

import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from archiver import __version__
from archiver.backup.reports.ledger import Ledger
from archiver.backup.reports.metrics import METRICS, Metrics, PartitionState

NOW_MS = 1_700_000_000_000

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def partition(topic: str = "orders", nr: int = 0, **changes: Any) -> PartitionState:  # noqa: ANN401 - its fields
    quiet: dict[str, Any] = {
        "position": 100,
        "high_watermark": 100,
        "oldest_pending_ms": None,
        "pending_since_s": None,
        "retention_ms": None,
        "is_failing": False,
    }
    return PartitionState(topic=topic, partition=nr, **quiet | changes)


def metrics_of(states: Sequence[PartitionState], **more: Any) -> Metrics:  # noqa: ANN401 - as Metrics has them
    return Metrics(lambda: states, lambda: NOW_MS, **more)


def scrape(metrics: Metrics) -> Series:
    return series_of(metrics.registry)


def series_of(registry: CollectorRegistry) -> Series:
    body = generate_latest(registry)
    samples = [sample for family in parse(body.decode()) for sample in family.samples]
    series = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(series) == len(samples), "a series twice: Prometheus would refuse the whole scrape"
    return series


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def names(series: Series) -> set[str]:
    return {name for name, _ in series}


def count_everything(ledger: Ledger) -> None:
    ledger.put("orders", records=7, payload_bytes=700, stored_bytes=300, seconds=0.2)
    ledger.put("orders", records=3, payload_bytes=300, stored_bytes=200, seconds=400.0)
    ledger.fetched("orders", 450)
    ledger.fetched("orders", 50)
    ledger.hole("orders", 3, cause="expired", offsets=12)
    ledger.hole("orders", 3, cause="expired", offsets=30)
    ledger.retried("put", "StoreTemporaryError")
    ledger.failed("orders", "CorruptBatchError")
    ledger.branched("orders")


COUNTED = {
    at("archiver_records_total", topic="orders"): 10,
    at("archiver_payload_bytes_total", topic="orders"): 1000,
    at("archiver_stored_bytes_total", topic="orders"): 500,
    at("archiver_fetched_bytes_total", topic="orders"): 500,
    at("archiver_puts_total", topic="orders"): 2,
    at("archiver_put_duration_seconds_count"): 2,
    at("archiver_put_duration_seconds_sum"): 400.2,
    at("archiver_holes_total", topic="orders", cause="expired"): 2,
    at("archiver_hole_offsets_total", topic="orders", cause="expired"): 42,
    at("archiver_retries_total", effect="put", cause="StoreTemporaryError"): 1,
    at("archiver_failures_total", topic="orders", cause="CorruptBatchError"): 1,
    at("archiver_branches_total", topic="orders"): 1,
}


def test_everything_is_counted() -> None:
    metrics = metrics_of([])
    count_everything(metrics)
    assert scrape(metrics).items() >= COUNTED.items()


def test_counters_stay_and_gauges_go_with_the_partitions() -> None:
    held = [partition()]
    metrics = metrics_of(held)
    count_everything(metrics)
    assert at("archiver_partitions", topic="orders") in scrape(metrics)
    held.clear()
    after = scrape(metrics)
    assert after.items() >= COUNTED.items()
    of_the_process = {"archiver_build_info", "archiver_start_time_seconds"}
    assert not names(after) & {metric.name for metric in METRICS if metric.kind == "gauge"} - of_the_process


def test_series_of_a_topic_go_when_kafka_no_longer_has_it() -> None:
    held, gone = [partition(), partition("payments")], list[str]()
    metrics = metrics_of(held, gone=lambda: gone)
    for topic in ("orders", "payments"):
        metrics.put(topic, records=7, payload_bytes=1, stored_bytes=1, seconds=1)
        metrics.hole(topic, 3, cause="unreadable", offsets=1)
        metrics.failed(topic, "TopicGoneError")
    before = of_orders(scrape(metrics))
    gone.append("orders")
    assert of_orders(scrape(metrics)) == before | {at("archiver_topics_gone", topic="orders")}
    del held[0]
    assert of_orders(scrape(metrics)) == {at("archiver_topics_gone", topic="orders")}
    assert scrape(metrics)[at("archiver_records_total", topic="payments")] == 7
    assert metrics.records == 14
    gone.clear()
    held.append(partition())  # the topic was created again
    assert of_orders(scrape(metrics)) == of_orders(scrape(metrics_of([partition()])))


def of_orders(series: Series) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {one for one in series if ("topic", "orders") in one[1]}


def test_two_ledgers_share_nothing() -> None:
    count_everything(metrics_of([]))
    assert at("archiver_records_total", topic="orders") not in scrape(metrics_of([]))


def test_what_has_not_happened_yet_is_0_so_that_an_alarm_sees_the_first_time() -> None:
    metrics = metrics_of([partition()])
    first = [at("archiver_branches_total", topic="orders"), at("archiver_holes_total", topic="orders", cause="expired")]
    assert [scrape(metrics)[series] for series in first] == [0, 0]
    count_everything(metrics)
    assert [scrape(metrics)[series] for series in first] == [1, 2]


def test_put_durations_fall_into_cumulative_buckets() -> None:
    metrics = metrics_of([])
    for seconds in (0.05, 0.2, 299.0, 301.0):
        metrics.put("orders", records=1, payload_bytes=1, stored_bytes=1, seconds=seconds)
    series = scrape(metrics)
    bounds = ("0.05", "0.1", "0.25", "60.0", "300.0", "+Inf")
    assert [series[at("archiver_put_duration_seconds_bucket", le=le)] for le in bounds] == [1, 1, 2, 2, 3, 4]


def test_counts_of_the_membership_are_asked_at_each_scrape() -> None:
    rebalances = iter((3, 4))
    metrics = metrics_of([], rebalances=lambda: next(rebalances), commit_failures=lambda: 2)
    assert scrape(metrics)[at("archiver_rebalances_total")] == 3
    again = scrape(metrics)
    assert again[at("archiver_rebalances_total")] == 4
    assert again[at("archiver_commit_failures_total")] == 2


@pytest.mark.parametrize(
    ("pending", "rpo_s"),
    [
        pytest.param([{}], 0, id="nothing-pending"),
        pytest.param([{"oldest_pending_ms": NOW_MS - 2500}], 2.5, id="by-timestamp"),
        pytest.param([{"pending_since_s": 40.0}], 40, id="no-timestamp-yet"),
        pytest.param([{"oldest_pending_ms": NOW_MS - 2500, "pending_since_s": 40.0}], 2.5, id="timestamp-wins"),
        pytest.param([{"oldest_pending_ms": NOW_MS + 9000}], 0, id="producer-clock-ahead"),
        pytest.param([{"oldest_pending_ms": 0}], NOW_MS / 1000, id="timestamp-0-is-a-timestamp"),
        pytest.param(
            [{"oldest_pending_ms": NOW_MS - 1000}, {}, {"pending_since_s": 7.0}], 7, id="oldest-of-partitions"
        ),
    ],
)
def test_rpo(pending: list[dict[str, Any]], rpo_s: float) -> None:
    metrics = metrics_of([partition(nr=nr, **changes) for nr, changes in enumerate(pending)])
    assert scrape(metrics)[at("archiver_rpo_seconds", topic="orders")] == rpo_s


@pytest.mark.parametrize(
    ("partitions", "left_s"),
    [
        pytest.param([{"retention_ms": 60_000}], math.inf, id="nothing-pending"),
        pytest.param([{"oldest_pending_ms": NOW_MS - 5000}], math.inf, id="unlimited"),
        pytest.param([{"oldest_pending_ms": NOW_MS - 5000, "retention_ms": 60_000}], 55, id="limited"),
        pytest.param([{"oldest_pending_ms": NOW_MS - 70_000, "retention_ms": 60_000}], -10, id="overdue"),
        pytest.param([{"oldest_pending_ms": NOW_MS, "retention_ms": 0}], 0, id="retention-0-is-a-limit"),
        pytest.param([{"pending_since_s": 15.0, "retention_ms": 60_000}], 45, id="no-timestamp-yet"),
        pytest.param(
            [
                {"oldest_pending_ms": NOW_MS - 1000, "retention_ms": 60_000},
                {"oldest_pending_ms": NOW_MS - 8000, "retention_ms": 60_000},
                {"retention_ms": 60_000},
            ],
            52,
            id="nearest-of-partitions",
        ),
    ],
)
def test_retention_left(partitions: list[dict[str, Any]], left_s: float) -> None:
    metrics = metrics_of([partition(nr=nr, **changes) for nr, changes in enumerate(partitions)])
    assert scrape(metrics)[at("archiver_retention_left_seconds", topic="orders")] == left_s


def test_lag_is_of_the_partitions_whose_end_is_known() -> None:
    held = [
        partition(nr=0, position=100, high_watermark=130),
        partition(nr=1, position=100, high_watermark=107),
        partition(nr=2, high_watermark=None),
        partition(nr=3, position=100, high_watermark=90),  # the log was cut back: behind nothing
        partition("unseen", high_watermark=None),
    ]
    series = scrape(metrics_of(held))
    assert series[at("archiver_lag_offsets", topic="orders")] == 37
    assert series[at("archiver_lag_max_offsets", topic="orders")] == 30
    assert at("archiver_lag_offsets", topic="unseen") not in series


def test_partitions_are_counted_per_topic() -> None:
    held = [partition(nr=0), partition(nr=1, is_failing=True), partition("payments", is_failing=True)]
    series = scrape(metrics_of(held))
    for topic, count, failing in (("orders", 2, 1), ("payments", 1, 1)):
        assert series[at("archiver_partitions", topic=topic)] == count
        assert series[at("archiver_partitions_failing", topic=topic)] == failing


def test_open_transactions_are_named_until_they_end() -> None:
    held = [partition(nr=4, open_transactions=[(77, 12.5), (78, 3.0)])]
    metrics = metrics_of(held)
    name = "archiver_open_transaction_age_seconds"
    series = scrape(metrics)
    assert series[at(name, topic="orders", partition="4", producer_id="77")] == 12.5
    assert series[at(name, topic="orders", partition="4", producer_id="78")] == 3
    held[:] = [partition(nr=4)]
    assert name not in names(scrape(metrics))


def test_series_do_not_grow_with_partitions() -> None:
    few, many = (metrics_of([partition(nr=nr) for nr in range(count)]) for count in (1, 2000))
    assert scrape(few).keys() == scrape(many).keys()


def test_state_is_asked_once_a_scrape() -> None:
    asked: list[None] = []

    def state() -> list[PartitionState]:
        asked.append(None)
        return [partition()]

    scrape(Metrics(state, lambda: NOW_MS))
    assert len(asked) == 1


def test_build_and_start_are_named() -> None:
    found = scrape(metrics_of([]))
    assert found[at("archiver_build_info", kind="backup", version=__version__)] == 1
    assert found[at("archiver_start_time_seconds", kind="backup")] == NOW_MS / 1000


def test_openmetrics_has_every_metric() -> None:
    metrics = metrics_of([partition(open_transactions=[(77, 12.5)])])
    count_everything(metrics)
    families = parse_openmetrics(generate_openmetrics(metrics.registry).decode())  # type: ignore[no-untyped-call]
    assert {family.name for family in families} == {metric.name.removesuffix("_total") for metric in METRICS}


def test_the_command_line_does_not_pay_for_it() -> None:
    code = "import sys, archiver.cli.main, archiver.cli.commands; archiver.cli.commands.build_parser().format_help(); print('prometheus_client' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "False\n"


def test_partitions_that_are_left_count_as_such_alone() -> None:
    left = partition(nr=1, high_watermark=None, is_left=True)
    series = scrape(metrics_of([partition(pending_since_s=7.0, retention_ms=10_000), left]))
    assert series[at("archiver_partitions", topic="orders")] == 2
    assert series[at("archiver_partitions_left", topic="orders")] == 1
    assert series[at("archiver_partitions_failing", topic="orders")] == 0
    assert series[at("archiver_rpo_seconds", topic="orders")] == 7
    assert series[at("archiver_retention_left_seconds", topic="orders")] == 3
    alone = scrape(metrics_of([left]))
    assert alone[at("archiver_partitions_left", topic="orders")] == 1
    assert not {"archiver_rpo_seconds", "archiver_lag_offsets", "archiver_retention_left_seconds"} & names(alone)
