"""Declares the metrics of a running backup, also used by instances; docs/metrics.md is generated from them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric

from archiver import __version__
from archiver.archive.notes.run_notes import RunKind
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.reports.ledger import Ledger
from archiver.process.output.declared_metrics import Declared, Labels, counters_of, drop_topics, family_of

RECORDS: Final = Declared("archiver_records_total", "counter", "Archived records.")
PAYLOAD_BYTES: Final = Declared("archiver_payload_bytes_total", "counter", "Bytes of archived keys and values.")
STORED_BYTES: Final = Declared("archiver_stored_bytes_total", "counter", "Stored bytes of the put objects.")
FETCHED_BYTES: Final = Declared(
    "archiver_fetched_bytes_total",
    "counter",
    "Bytes of fetched record batches, as compressed by the brokers.",
)
PUTS: Final = Declared("archiver_puts_total", "counter", "Archived segments, each with one put.")
PUT_SECONDS: Final = Declared(
    "archiver_put_duration_seconds", "histogram", "Time until a segment was archived, repeated puts included.", ()
)
RETRIES: Final = Declared(
    "archiver_retries_total",
    "counter",
    "Retries of an effect (put, fetch, commit, ...) after a temporary failure.",
    ("effect", "cause"),
)
HOLES: Final = Declared(
    "archiver_holes_total",
    "counter",
    "Ranges of missing offsets: deleted in Kafka (`expired`), before `backup.start` (`before-start`), or skipped (`unreadable`).",
    ("topic", "cause"),
)
HOLE_OFFSETS: Final = Declared(
    "archiver_hole_offsets_total", "counter", "Offsets in the holes of archiver_holes_total.", ("topic", "cause")
)
UNREADABLE_OFFSETS: Final = Declared(
    "archiver_unreadable_offsets_total",
    "counter",
    "Skipped offsets of unreadable batches (`backup.unreadable: skip`). Partitions without such a batch have no series.",
    ("topic", "partition"),
)
FAILURES: Final = Declared(
    "archiver_failures_total",
    "counter",
    "Stops of a partition with an error that a retry does not solve soon.",
    ("topic", "cause"),
)
BRANCHES: Final = Declared(
    "archiver_branches_total",
    "counter",
    "Logs that were truncated below the archive's end (unclean election).",
)
REBALANCES: Final = Declared(
    "archiver_rebalances_total", "counter", "Changes of this instance's partitions by its consumer group.", ()
)
COMMIT_FAILURES: Final = Declared(
    "archiver_commit_failures_total",
    "counter",
    "Failed group commits. Nothing is lost by one.",
    (),
)
LAG: Final = Declared(
    "archiver_lag_offsets",
    "gauge",
    "Offsets between the archive's end and the high watermark, all partitions together.",
)
LAG_MAX: Final = Declared("archiver_lag_max_offsets", "gauge", "The largest lag of a partition.")
RPO: Final = Declared(
    "archiver_rpo_seconds",
    "gauge",
    "Age of the oldest record that is not archived yet; 0: none. It grows while a partition cannot be asked.",
)
RETENTION_LEFT: Final = Declared(
    "archiver_retention_left_seconds",
    "gauge",
    "Time until retention.ms lets Kafka delete an unarchived record; negative: overdue; +Inf: no such record or limit. retention.bytes may delete earlier.",
)
TOPICS_GONE: Final = Declared(
    "archiver_topics_gone",
    "gauge",
    "1: the topic is archived, and Kafka no longer has it; until `archiver topics --accept-gone`, or the configuration excludes it.",
)
PARTITIONS: Final = Declared(
    "archiver_partitions",
    "gauge",
    "Assigned partitions of this instance. A topic that may not be described counts with its known partitions, or with 1.",
)
PARTITIONS_FAILING: Final = Declared(
    "archiver_partitions_failing",
    "gauge",
    "Failed ones of these, until a record is archived or Kafka has no more. Also all partitions of a topic that may not be described, and, while the group cannot be asked, all that this instance does not have. Retried fetches and puts count after 15 s.",
)
PARTITIONS_LEFT: Final = Declared(
    "archiver_partitions_left",
    "gauge",
    "Partitions of these that others archive: of a backup those with a current copy; of an instance those that it is not active for. They count in no lag and no age.",
)
OPEN_TRANSACTION_AGE: Final = Declared(
    "archiver_open_transaction_age_seconds",
    "gauge",
    "How long an open transaction has held back the archive (Kafka's last stable offset).",
    ("topic", "partition", "producer_id"),
)
BUILD: Final = Declared(
    "archiver_build_info",
    "gauge",
    "1, while a process answers. `kind`: `backup`, `compacted` (an instance), or `until-end`.",
    ("kind", "version"),
)
START: Final = Declared(
    "archiver_start_time_seconds",
    "gauge",
    "When the process started, by this machine's clock. Frequent changes show a service that fails and is restarted.",
    ("kind",),
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Declared))

_ASKED: Final = (REBALANCES, COMMIT_FAILURES)  # counted elsewhere
_CAUSES: Final = (HoleCause.EXPIRED, HoleCause.BEFORE_START, HoleCause.UNREADABLE)  # of the holes that a backup makes
# From a put of a small object in the same network to the 300 s after which a writer gives up.
_PUT_BOUNDS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Progress of an assigned partition at a scrape."""

    topic: str
    partition: int
    position: int  # everything below is durable
    high_watermark: int | None  # None: not known yet
    oldest_pending_ms: int | None  # timestamp of the oldest record that is known and not durable; None: no such record
    pending_since_s: float | None  # for how long records without a known timestamp are pending; None: none are
    retention_ms: int | None  # None: unlimited, or not known yet
    is_failing: bool
    is_left: bool = False  # to others: see PARTITIONS_LEFT
    is_opening: bool = False  # it has an age, and is not counted yet
    open_transactions: Sequence[tuple[int, float]] = ()  # producer id, age in seconds

    @property
    def lag_offsets(self) -> int | None:
        return None if self.high_watermark is None else max(0, self.high_watermark - self.position)

    def pending_age_s(self, now_ms: int) -> float | None:
        """Return the age of the oldest unwritten record; None without one. A timestamp in the future counts as age 0."""
        if self.oldest_pending_ms is None:
            return self.pending_since_s
        return max(0, now_ms - self.oldest_pending_ms) / 1000

    def retention_left_s(self, now_ms: int) -> float:
        age_s = self.pending_age_s(now_ms)
        return float("inf") if age_s is None or self.retention_ms is None else self.retention_ms / 1000 - age_s


class Metrics(Ledger):
    """The ledger of a backup (`archiver.backup.reports.ledger`), in a registry of its own.

    `state`, `gone` topics and the two counts of the group membership are called at each scrape, in its thread.
    """

    def __init__(
        self,
        state: Callable[[], Iterable[PartitionState]],
        clock_ms: Callable[[], int],
        *,
        kind: RunKind = RunKind.BACKUP,
        rebalances: Callable[[], int] = int,
        commit_failures: Callable[[], int] = int,
        gone: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._state = state
        self._clock_ms = clock_ms
        self._kind = kind
        self._started_ms = clock_ms()
        self._rebalances = rebalances
        self._commit_failures = commit_failures
        self._gone = gone
        self._lock = Lock()
        self.records = 0  # made durable, of all topics
        self.registry = CollectorRegistry()
        self.registry.register(self)  # before the counters: it begins them at zero
        self._counters = counters_of((one for one in METRICS if one not in _ASKED), self.registry)
        self._put_seconds = Histogram(
            PUT_SECONDS.name, PUT_SECONDS.meaning, buckets=_PUT_BOUNDS_S, registry=self.registry
        )

    def put(self, topic: str, *, records: int, payload_bytes: int, stored_bytes: int, seconds: float) -> None:
        with self._lock:
            self.records += records
        self._count(RECORDS, topic, by=records)
        self._count(PAYLOAD_BYTES, topic, by=payload_bytes)
        self._count(STORED_BYTES, topic, by=stored_bytes)
        self._count(PUTS, topic)
        self._put_seconds.observe(seconds)

    def hole(self, topic: str, partition: int, *, cause: str, offsets: int) -> None:
        if cause == HoleCause.UNREADABLE:
            self._count(UNREADABLE_OFFSETS, topic, str(partition), by=offsets)
        self._count(HOLES, topic, cause)
        self._count(HOLE_OFFSETS, topic, cause, by=offsets)

    def fetched(self, topic: str, fetched_bytes: int) -> None:
        self._count(FETCHED_BYTES, topic, by=fetched_bytes)

    def retried(self, effect: str, cause: str) -> None:
        self._count(RETRIES, effect, cause)

    def failed(self, topic: str, cause: str) -> None:
        self._count(FAILURES, topic, cause)

    def branched(self, topic: str) -> None:
        self._count(BRANCHES, topic)

    def _count(self, declared: Declared, *labels: str, by: int = 1) -> None:
        self._counters[declared].labels(*labels).inc(by)

    def collect(self) -> Iterator[Metric]:
        """Yield values computed at a scrape: gauges, and counts of others."""
        states = list(self._state())
        topics, gone = {state.topic for state in states}, frozenset(self._gone())
        self._begin_at_zero(topics)
        drop_topics(self._counters, gone - topics)
        values: dict[Declared, Mapping[Labels, float]] = {**_gauges(states, self._clock_ms())}
        values[REBALANCES] = {(): self._rebalances()}
        values[COMMIT_FAILURES] = {(): self._commit_failures()}
        values[TOPICS_GONE] = {(topic,): 1 for topic in gone}
        values[BUILD] = {(self._kind.value, __version__): 1}
        values[START] = {(self._kind.value,): self._started_ms / 1000}
        for declared in METRICS:
            if declared.kind == "gauge" or declared in _ASKED:
                yield family_of(declared, values.get(declared, {}))

    def _begin_at_zero(self, topics: Iterable[str]) -> None:
        """Show events without an occurrence as 0: Prometheus sees no increase from a missing series to 1."""
        for topic in topics:
            for declared in (RECORDS, PAYLOAD_BYTES, STORED_BYTES, FETCHED_BYTES, PUTS, BRANCHES):
                self._count(declared, topic, by=0)
            for declared in (HOLES, HOLE_OFFSETS):
                for cause in _CAUSES:
                    self._count(declared, topic, cause.value, by=0)


def _gauges(states: Iterable[PartitionState], now_ms: int) -> dict[Declared, dict[Labels, float]]:
    values: dict[Declared, dict[Labels, float]] = defaultdict(dict)
    by_topic: dict[str, list[PartitionState]] = defaultdict(list)
    for state in states:
        by_topic[state.topic].append(state)
        for producer_id, age_s in state.open_transactions:
            values[OPEN_TRANSACTION_AGE][state.topic, str(state.partition), str(producer_id)] = age_s
    for topic, held in by_topic.items():
        lags = [state.lag_offsets for state in held if state.lag_offsets is not None]
        if lags:  # an unknown lag has no series, rather than 0
            values[LAG][topic,] = sum(lags)
            values[LAG_MAX][topic,] = max(lags)
        own = [state for state in held if not state.is_left]
        if own:
            values[RPO][topic,] = max(state.pending_age_s(now_ms) or 0 for state in own)
            values[RETENTION_LEFT][topic,] = min(state.retention_left_s(now_ms) for state in own)
        values[PARTITIONS][topic,] = sum(not state.is_opening for state in held)
        values[PARTITIONS_FAILING][topic,] = sum(state.is_failing for state in held)
        values[PARTITIONS_LEFT][topic,] = len(held) - len(own)
    return values
