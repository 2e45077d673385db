"""Chooses how consumer group positions are kept, and takes the snapshots; backups archive `__consumer_offsets` themselves."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from archiver.archive.format.control import Fact, append_fact, latest_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import machine_now_ms
from archiver.archive.notes.topics import another_cluster
from archiver.config.model import PositionKeeping
from archiver.errors import (
    CorruptSegmentError,
    KafkaError,
    KafkaTemporaryError,
    TemporaryError,
)
from archiver.groups.positions.snapshots import snapshot_fact, stream_of, written_position
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicDescription
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC, Positions, positions_each, sees_all_groups
from archiver.kafka.records.fetch import FetchProblem, FetchTarget, fetch
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count
from archiver.process.running.workers import Workers
from archiver.process.values.json_values import as_number

log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0  # between two checks whether snapshots are due: the way of keeping may have changed
_LONGEST_PAUSE_S: Final = 10.0  # after failures
_MANY: Final = 200_000  # positions in one fact, about 80 bytes each: more cause a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionPolicy:
    """The configured recording of positions; `is_topic_excluded`: topics.exclude leaves the offsets topic out."""

    keep: PositionKeeping
    interval_ms: int
    is_topic_excluded: bool = False


class PositionKeeper:
    """Decides how positions are kept, and takes snapshots if needed. Several instances may do so at once."""

    def __init__(
        self,
        client: KafkaClient,
        policy: PositionPolicy,
        *,
        archive: Archive,
        pool: Workers,
        cluster_id: str,
        count_failure: Callable[[str, str], None] = lambda _what, _cause: None,
        clock_ms: Callable[[], int] = machine_now_ms,
    ) -> None:
        self._client = client
        self._policy = policy
        self._archive = archive
        self._pool = pool
        self._cluster_id = cluster_id
        self._count_failure = count_failure
        self._clock_ms = clock_ms
        self._logged = ""
        self._archives_topic = False
        self._refused: frozenset[str] = frozenset()
        self._failure = ""  # of the last snapshot, as it was logged
        self._has_warned_of_many = False
        self._has_warned_of_hidden = False
        self.takes_snapshots = policy.keep is PositionKeeping.SNAPSHOT

    # --- which way

    async def decide_way(self, topics: Mapping[str, TopicDescription]) -> bool:
        """Decide again how positions are kept; `topics`: all topics that this user sees. True: archive the offsets topic."""
        keep = self._policy.keep
        if keep in {PositionKeeping.OFF, PositionKeeping.SNAPSHOT}:
            return False
        try:
            obstacle = await self._obstacle(topics.get(OFFSETS_TOPIC))
        except KafkaTemporaryError as error:
            if self._logged:
                return self._archives_topic  # failing brokers are no reason for a change
            obstacle = str(error)
        self._archives_topic = obstacle is None
        self.takes_snapshots = obstacle is not None and keep is PositionKeeping.AUTO
        if obstacle is None:
            self._log_change(logging.INFO, f"positions of consumer groups are archived with {OFFSETS_TOPIC}")
        elif self.takes_snapshots:
            self._log_change(logging.INFO, f"positions of consumer groups are taken as snapshots: {obstacle}")
        else:
            self._log_change(logging.WARNING, f"positions of consumer groups are not kept yet: {obstacle}")
        return self._archives_topic

    async def _obstacle(self, topic: TopicDescription | None) -> str | None:
        """Return why the topic cannot or must not be archived; None: it can."""
        if self._policy.is_topic_excluded:
            return f"topics.exclude leaves {OFFSETS_TOPIC} out"
        if topic is None:
            return f"{OFFSETS_TOPIC} is not there before the first commit of a group, or this user may not describe it"
        if self._policy.keep is PositionKeeping.AUTO:
            try:
                await self._client.persist(lambda: self._try_to_read(topic))
            except KafkaError as error:
                return str(error)
        return None

    async def _try_to_read(self, topic: TopicDescription) -> None:
        """Read behind the end of the topic: returns no record, but an error if this user may not read. Describing needs another right."""
        name, partition = topic.name, min(topic.leaders, default=0)
        end = (await self._client.offsets([(name, partition)]))[name, partition].high_watermark
        node_id = await self._client.leader(name, partition)
        target = FetchTarget(topic=name, topic_id=topic.topic_id, partition=partition, offset=end)
        (answer,) = await fetch(
            self._client, node_id, [target], max_bytes=1, partition_bytes=1, max_wait_ms=0, min_bytes=0
        )
        if answer.error is FetchProblem.THROTTLED:
            raise KafkaTemporaryError(f"{name} could not be read: throttled by a quota")
        if answer.error is not None:
            self._client.forget_leaders(name)
            raise broker_error(answer.error_code, f"{name} could not be read", right=f"Read on topic {name}")

    def _log_change(self, level: int, text: str) -> None:
        if text != self._logged:
            log.log(level, "%s", text)
        self._logged = text

    # --- snapshots

    async def run(self) -> None:
        """Take a snapshot in each interval, shared by all instances, while snapshots are the way of keeping."""
        while True:
            pause_s = await self._turn() if self.takes_snapshots else _IDLE_S
            await asyncio.sleep(pause_s)  # the way of keeping may change meanwhile

    async def _turn(self) -> float:
        """Take a due snapshot. Returns the seconds until the next one; a failed snapshot is retried sooner."""
        interval_ms = self._policy.interval_ms
        try:
            newest_ms = await self.take_snapshot(interval_ms)
        except Exception as error:  # noqa: BLE001 - a failed snapshot stops no other work
            text = str(as_ours(error, "group positions"))
            if text != self._failure:
                log.warning("%s; the next snapshot of group positions may succeed", text)
            self._failure = text
            cause = error.cause if isinstance(error, TemporaryError) else type(error).__name__
            self._count_failure("group-positions", cause)
            return min(_LONGEST_PAUSE_S, interval_ms / 1000)
        if self._failure:
            log.warning("snapshots of group positions are taken again")
            self._failure = ""
        left_ms = newest_ms + interval_ms - self._clock_ms()
        return (left_ms if 0 < left_ms < interval_ms else interval_ms) / 1000

    async def take_snapshot(self, interval_ms: int = 0) -> int:
        """Note the positions of all groups, unless the newest fact has the same positions, or is younger than the interval.

        Returns the time of the newest fact.
        """
        begun_ms = self._clock_ms()
        stream = stream_of(begun_ms)
        latest = await self._pool.call(latest_fact, self._archive, stream)
        if latest is not None and _is_young(_time_ms(latest, stream), begun_ms, interval_ms):
            return _time_ms(latest, stream)
        fact = await self._read(begun_ms)

        def decide(newest: Fact | None) -> Fact | None:
            if newest is None:
                return fact
            if newest.get("cluster_id") != self._cluster_id:
                raise another_cluster(stream, newest.get("cluster_id"), self._cluster_id)
            is_told = all(newest.get(key) == fact[key] for key in ("groups", "missing"))
            return None if is_told or _is_young(_time_ms(newest, stream), begun_ms, interval_ms) else fact

        kept = await self._pool.call(append_fact, self._archive, stream, decide)
        return begun_ms if kept is None else _time_ms(kept, stream)

    async def _read(self, begun_ms: int) -> Fact:
        found, refused = await positions_each(self._client)
        await self._client.cluster_id()  # raises if another cluster returned these positions
        self.note_refused(found, refused)
        if not self._has_warned_of_hidden:
            await self._warn_of_hidden(found)
        groups = {group: _to_json(positions) for group, positions in found.items()}
        return snapshot_fact(self._cluster_id, begun_ms, self._clock_ms() - begun_ms, groups, sorted(refused))

    async def _warn_of_hidden(self, found: Mapping[str, Positions]) -> None:
        """Warn once if no group is visible: then a right is missing. A user who sees some groups may be meant to see no others."""
        if not await sees_all_groups(self._client):
            log.log(
                logging.INFO if found else logging.WARNING,
                "snapshots of group positions have %s; whether there are others is not known; grant this user Describe on the"
                " groups",
                f"the {spell_count(len(found), 'group')} that this user may describe" if found else "no group",
            )
        self._has_warned_of_hidden = True

    def note_refused(self, found: Mapping[str, Positions], refused: Mapping[str, Refusal]) -> None:
        """Warn once about each group whose positions cannot be read, and count it each time; warn once about very many positions."""
        for group, error in refused.items():
            self._count_failure("group-positions", type(error).__name__)
            if group not in self._refused:
                log.warning("%s; the snapshots leave it out", error)
        self._refused = frozenset(refused)
        count = sum(map(len, found.values()))
        if count > _MANY and not self._has_warned_of_many:
            self._has_warned_of_many = True
            log.warning(
                "%d positions of %d groups: each snapshot takes about %d MB; a longer backup.groups-interval makes fewer,"
                " backup.groups: topic needs none",
                count,
                len(found),
                count * 80 // 1_000_000,
            )


def _time_ms(fact: Fact, stream: str) -> int:
    try:
        return as_number(fact.get("time_ms"))
    except ValueError as error:
        raise CorruptSegmentError(
            f"control/{stream}: does not tell when the positions were taken: {error}; bring its older version back"
        ) from error


def _is_young(time_ms: int, now_ms: int, interval_ms: int) -> bool:
    """Return whether a fact is young; also if it is from the near future, since clocks of instances differ a little."""
    return abs(now_ms - time_ms) < interval_ms


def _to_json(positions: Positions) -> Fact:
    topics: dict[str, dict[str, Fact]] = {}
    for (topic, partition), position in positions.items():
        told = written_position(position.offset, position.leader_epoch, position.metadata)
        topics.setdefault(topic, {})[str(partition)] = told
    return topics
