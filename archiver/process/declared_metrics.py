"""The declaration of a metric: its name, kind, meaning and labels; and the family that Prometheus is shown of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Labels = ("topic",)


def family_of(declared: Declared, values: Mapping[Labels, float]) -> Metric:
    of_kind = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
    family = of_kind(declared.name, declared.meaning, labels=declared.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family
