"""Declares the metrics that only the process of an instance has; it also has those of a backup."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from archiver.backup.compacted.clearing.alarms import AlarmKind
from archiver.backup.compacted.turn.turn_decisions import ACTIVATE, PASSIVATE, Role
from archiver.process.output.declared_metrics import Declared, Labels, counters_of, drop_topics, family_of

if TYPE_CHECKING:
    from archiver.backup.compacted.work.partition_turn import PartitionTurn

_BY_ROLE: Final = ("topic", "role")

ROLES: Final = Declared(
    "archiver_compacted_partitions",
    "gauge",
    "Assigned partitions by role: `active`, `catch-up`, `passive`, or `unknown` before the first look.",
    _BY_ROLE,
)
ROLE_AGE: Final = Declared(
    "archiver_compacted_role_age_seconds",
    "gauge",
    "Longest time since its instance took this role for a partition.",
    _BY_ROLE,
)
TURN_LEFT: Final = Declared(
    "archiver_compacted_turn_left_seconds",
    "gauge",
    "Shortest time until the next copy of an active partition is due; negative: overdue.",
)
POSITION: Final = Declared(
    "archiver_compacted_position_offsets",
    "gauge",
    "End of the stored records of its generations, summed: `active` of current copies, `catch-up` of the next ones.",
    _BY_ROLE,
)
COPY_LAG: Final = Declared(
    "archiver_compacted_lag_offsets",
    "gauge",
    "Offsets between there and the high watermark, summed.",
    _BY_ROLE,
)
UNSURE: Final = Declared(
    "archiver_compacted_unsure",
    "gauge",
    "Generations of these that may have missed a deletion: they were read too slowly for `delete.retention.ms`.",
    _BY_ROLE,
)
GENERATIONS: Final = Declared(
    "archiver_compacted_generations",
    "gauge",
    "Existing generations of active partitions, by the last listing.",
)
GENERATION_BYTES: Final = Declared("archiver_compacted_generation_bytes", "gauge", "Bytes of their objects.")
ALARMS: Final = Declared(
    "archiver_compacted_alarms",
    "gauge",
    "Partitions with an alarm of this kind in `archiver compacted status`. Alarms about an instance have an empty `topic`.",
    ("topic", "kind"),
)
TURNS: Final = Declared("archiver_compacted_turns_total", "counter", "Copies of this process that became current.")
GIVEN_UP: Final = Declared(
    "archiver_compacted_given_up_total",
    "counter",
    "Generations that are begun again, because objects of them are gone or damaged.",
)
LOOK_FAILURES: Final = Declared(
    "archiver_compacted_look_failures_total",
    "counter",
    "Failed looks at a partition's role log or its copies; retried after `compacted.interval`.",
)
CLEARED_OBJECTS: Final = Declared(
    "archiver_compacted_cleared_objects_total", "counter", "Deleted objects of former copies."
)
CLEARED_BYTES: Final = Declared("archiver_compacted_cleared_bytes_total", "counter", "Bytes of these objects.")
CLEARING_FAILURES: Final = Declared(
    "archiver_compacted_clearing_failures_total",
    "counter",
    "Denied or failed requests of a clearing; it is retried.",
    (),
)
HINTS_SENT: Final = Declared(
    "archiver_compacted_hints_sent_total", "counter", "Events for the other instance.", ("event",)
)
HINTS_RECEIVED: Final = Declared(
    "archiver_compacted_hints_received_total",
    "counter",
    "Events of others in the coordination topic, about assigned partitions.",
    (),
)

INSTANCE_METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Declared))
_FROM_ZERO: Final = (TURNS, GIVEN_UP, LOOK_FAILURES, CLEARED_OBJECTS, CLEARED_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCounts:
    """The last known state in storage, by topic."""

    generations: Mapping[str, int]
    bytes: Mapping[str, int]
    alarms: Mapping[tuple[str, AlarmKind], int]


NOTHING_SEEN: Final = CopyCounts(generations={}, bytes={}, alarms={})


class InstanceMetrics:
    """Counts events of a process, from any thread. `turns`, `standing` and `gone` topics are called at each scrape."""

    def __init__(
        self,
        turns: Callable[[], Iterable["PartitionTurn"]] = tuple,
        standing: Callable[[], CopyCounts] = lambda: NOTHING_SEEN,
        clock_ms: Callable[[], int] = int,
        registry: CollectorRegistry | None = None,
        gone: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._turns = turns
        self._standing = standing
        self._clock_ms = clock_ms
        self._gone = gone
        self.registry = registry or CollectorRegistry()
        self.registry.register(self)  # before the counters: it begins them at zero
        self._counters = counters_of(INSTANCE_METRICS, self.registry)

    def add(self, declared: Declared, *labels: str, by: int = 1) -> None:
        counter = self._counters[declared]
        (counter.labels(*labels) if labels else counter).inc(by)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        turns = list(self._turns())
        topics = {turn.source.topic for turn in turns}
        values = {**_gauges(turns, self._clock_ms()), **_of_standing(self._standing(), topics)}
        self._begin_at_zero(topics)
        drop_topics(self._counters, frozenset(self._gone()) - topics)
        for declared in INSTANCE_METRICS:
            if declared.kind == "gauge":
                yield family_of(declared, values.get(declared, {}))

    def _begin_at_zero(self, topics: Iterable[str]) -> None:
        """Show events without an occurrence as 0: Prometheus sees no increase from a missing series to 1."""
        for topic in topics:
            for declared in _FROM_ZERO:
                self.add(declared, topic, by=0)
        for event in (ACTIVATE, PASSIVATE):
            self.add(HINTS_SENT, event, by=0)


def _gauges(turns: Iterable["PartitionTurn"], now_ms: int) -> dict[Declared, dict[Labels, float]]:
    values: dict[Declared, dict[Labels, float]] = defaultdict(dict)
    for turn in turns:
        topic, present, holds = turn.source.topic, turn.turn.role, turn.turn.holds
        for role in Role:  # all of them: a missing series is no 0
            _sum(values[ROLES], (topic, role.value), present is role)
        if turn.role_since_ms is not None:
            ages, age_s = values[ROLE_AGE], (now_ms - turn.role_since_ms) / 1000
            ages[topic, present.value] = max(age_s, ages.get((topic, present.value), 0.0))
        if present is Role.ACTIVE and turn.due_ms is not None:
            left, left_s = values[TURN_LEFT], (turn.due_ms - now_ms) / 1000
            left[topic,] = min(left_s, left.get((topic,), left_s))
        for number, reading in dict(turn.readings).items():
            labels = (topic, (Role.ACTIVE if number == holds else Role.CATCH_UP).value)
            position, high_watermark = reading.feed.writer.durable_position, reading.feed.high_watermark
            _sum(values[POSITION], labels, position)
            _sum(values[UNSURE], labels, reading.is_unsure)
            if high_watermark is not None:
                _sum(values[COPY_LAG], labels, max(0, high_watermark - position))
    return values


def _sum(values: dict[Labels, float], labels: Labels, more: float) -> None:
    values[labels] = values.get(labels, 0) + more


def _of_standing(standing: CopyCounts, topics: Iterable[str]) -> dict[Declared, dict[Labels, float]]:
    alarms: dict[Labels, float] = {(topic, kind.value): 0 for topic in topics for kind in AlarmKind}
    alarms |= {(topic, kind.value): count for (topic, kind), count in standing.alarms.items()}
    return {
        GENERATIONS: {(topic,): count for topic, count in standing.generations.items()},
        GENERATION_BYTES: {(topic,): size for topic, size in standing.bytes.items()},
        ALARMS: alarms,
    }
