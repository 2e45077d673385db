"""Declarations of metrics, and the prometheus_client counters and families built from them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter has a second series, *_created

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Labels = ("topic",)


def counters_of(metrics: Iterable[Declared], registry: CollectorRegistry) -> dict[Declared, Counter]:
    """Register the counters of these metrics."""
    return {
        one: Counter(one.name, one.meaning, one.labels, registry=registry) for one in metrics if one.kind == "counter"
    }


def drop_topics(counters: Mapping[Declared, Counter], topics: Collection[str]) -> None:
    """Remove the series of these topics."""
    for declared, counter in counters.items() if topics else ():
        if "topic" in declared.labels:
            for labels in [sample.labels for family in counter.collect() for sample in family.samples]:
                if labels["topic"] in topics:
                    counter.remove(*(labels[name] for name in declared.labels))


def family_of(declared: Declared, values: Mapping[Labels, float]) -> Metric:
    of_kind = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
    family = of_kind(declared.name, declared.meaning, labels=declared.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family
