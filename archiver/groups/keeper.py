"""How the positions of consumer groups are kept: by archiving their own topic, or as facts (docs/format.md §8)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from archiver.archive.control import FORMAT, Fact, append_fact, latest_fact
from archiver.archive.handle import Archive
from archiver.archive.layout import Layout
from archiver.config.model import PositionKeeping
from archiver.errors import CorruptSegmentError, KafkaError, KafkaTemporaryError, StrangerError, TemporaryError
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import Refusal, TopicDescription
from archiver.kafka.codes import broker_error
from archiver.kafka.fetch import FetchProblem, FetchTarget, fetch
from archiver.kafka.group_positions import OFFSETS_TOPIC, Positions, positions_each, sees_all_groups
from archiver.process.defects import as_ours
from archiver.process.json_values import as_number
from archiver.process.text import spell_count
from archiver.process.workers import Workers
from archiver.store.port import ObjectStore

log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0  # at whether it is our turn yet: the way of keeping may have changed
_LONGEST_PAUSE_S: Final = 10.0  # after trouble
_MANY: Final = 200_000  # positions of one fact, at about 80 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionPolicy:
    """What the configuration says. The topic is one that `topics.exclude` spares, or not."""

    keep: PositionKeeping
    interval_ms: int
    is_topic_excluded: bool = False


class PositionKeeper:
    """Decides how positions are kept, and takes the snapshots where they are kept so. Several instances may do so at once."""

    def __init__(
        self,
        client: KafkaClient,
        policy: PositionPolicy,
        *,
        store: ObjectStore,
        layout: Layout,
        pool: Workers,
        cluster_id: str,
        note_trouble: Callable[[str, str], None] = lambda _what, _cause: None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._policy = policy
        self._store = store
        self._layout = layout
        self._pool = pool
        self._cluster_id = cluster_id
        self._note_trouble = note_trouble
        self._clock_ms = clock_ms
        self._wait = wait
        self._told = ""
        self._archives_topic = False
        self._refused: frozenset[str] = frozenset()
        self._told_many = False
        self._told_hidden = False
        self.takes_snapshots = policy.keep is PositionKeeping.SNAPSHOT

    # --- which way

    async def look(self, topics: Mapping[str, TopicDescription]) -> bool:
        """Decide again. `topics` are all that are visible. True: the offsets topic is to be archived."""
        keep = self._policy.keep
        if keep in {PositionKeeping.OFF, PositionKeeping.SNAPSHOT}:
            return False
        try:
            obstacle = await self._obstacle(topics.get(OFFSETS_TOPIC))
        except KafkaTemporaryError as error:
            if self._told:
                return self._archives_topic  # brokers in trouble are no reason to change anything
            obstacle = str(error)
        self._archives_topic = obstacle is None
        self.takes_snapshots = obstacle is not None and keep is PositionKeeping.AUTO
        if obstacle is None:
            self._tell(logging.INFO, f"positions of consumer groups are archived with {OFFSETS_TOPIC}")
        elif self.takes_snapshots:
            self._tell(logging.INFO, f"positions of consumer groups are taken as snapshots: {obstacle}")
        else:
            self._tell(logging.WARNING, f"positions of consumer groups are not kept yet: {obstacle}")
        return self._archives_topic

    async def _obstacle(self, topic: TopicDescription | None) -> str | None:
        """Why the topic cannot be archived, or shall not."""
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
        """Read behind the end: nothing comes, but whether we may. To describe a topic is another permission."""
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

    def _tell(self, level: int, text: str) -> None:
        if text != self._told:
            log.log(level, "%s", text)
        self._told = text

    # --- snapshots

    async def run(self) -> None:
        """Take a snapshot each interval, of all instances together, for as long as they are taken."""
        while True:
            await self._wait(await self._turn() if self.takes_snapshots else _LOOK_S)

    async def _turn(self) -> float:
        """Do what is due; the seconds until something is again. Whatever goes wrong is tried again."""
        interval_ms = self._policy.interval_ms
        try:
            newest_ms = await self.take_snapshot(interval_ms)
        except Exception as error:  # noqa: BLE001 - a snapshot that fails stops nothing else
            log.warning("%s; the next snapshot of group positions may do", as_ours(error, "group positions"))
            cause = error.cause if isinstance(error, TemporaryError) else type(error).__name__
            self._note_trouble("group-positions", cause)
            return min(_LONGEST_PAUSE_S, interval_ms / 1000)
        left_ms = newest_ms + interval_ms - self._clock_ms()
        return (left_ms if 0 < left_ms < interval_ms else interval_ms) / 1000

    async def take_snapshot(self, interval_ms: int = 0) -> int:
        """Write down where all groups stand, unless a fact says so already, or one is younger than the interval.

        Returns the time of the newest fact.
        """
        begun_ms = self._clock_ms()
        stream = f"group-positions/{datetime.fromtimestamp(begun_ms / 1000, UTC):%Y-%m-%d}"
        latest = await self._pool.call(latest_fact, Archive(self._store, self._layout), stream)
        if latest is not None and _is_young(_time_ms(latest, stream), begun_ms, interval_ms):
            return _time_ms(latest, stream)
        fact = await self._read(begun_ms)

        def decide(newest: Fact | None) -> Fact | None:
            if newest is None:
                return fact
            if newest.get("cluster_id") != self._cluster_id:
                raise StrangerError(
                    f"{stream}: this archive belongs to cluster {newest.get('cluster_id')}, and this is {self._cluster_id};"
                    " give each cluster its own prefix in storage.url"
                )
            is_told = all(newest.get(key) == fact[key] for key in ("groups", "missing"))
            return None if is_told or _is_young(_time_ms(newest, stream), begun_ms, interval_ms) else fact

        kept = await self._pool.call(append_fact, Archive(self._store, self._layout), stream, decide)
        return begun_ms if kept is None else _time_ms(kept, stream)

    async def _read(self, begun_ms: int) -> Fact:
        found, refused = await positions_each(self._client)
        self.make_reporter(found, refused)
        if not self._told_hidden:
            await self._tell_of_hidden(found)
        return {
            "format": FORMAT,
            "cluster_id": self._cluster_id,
            "time_ms": begun_ms,
            "duration_ms": self._clock_ms() - begun_ms,
            "groups": {group: _to_json(positions) for group, positions in found.items()},
            "missing": sorted(refused),
        }

    async def _tell_of_hidden(self, found: Mapping[str, Positions]) -> None:
        """Once. Who sees no group lacks a right; who sees some was perhaps meant to see no others."""
        if not await sees_all_groups(self._client):
            log.log(
                logging.INFO if found else logging.WARNING,
                "snapshots of group positions have %s; whether there are others is not known; grant this user Describe on the"
                " groups",
                f"the {spell_count(len(found), 'group')} that this user may describe" if found else "no group",
            )
        self._told_hidden = True

    def make_reporter(self, found: Mapping[str, Positions], refused: Mapping[str, Refusal]) -> None:
        """Each group that does not tell is named once, and counted each time."""
        for group, error in refused.items():
            self._note_trouble("group-positions", type(error).__name__)
            if group not in self._refused:
                log.warning("%s; the snapshots leave it out", error)
        self._refused = frozenset(refused)
        count = sum(map(len, found.values()))
        if count > _MANY and not self._told_many:
            self._told_many = True
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
    """Clocks of instances differ a little: a fact from the near future is young, too."""
    return abs(now_ms - time_ms) < interval_ms


def _to_json(positions: Positions) -> Fact:
    topics: dict[str, dict[str, Fact]] = {}
    for (topic, partition), position in positions.items():
        told: dict[str, int | str] = {"offset": position.offset}
        if position.leader_epoch >= 0:
            told["leader_epoch"] = position.leader_epoch
        if position.metadata:
            told["metadata"] = position.metadata
        topics.setdefault(topic, {})[str(partition)] = told
    return topics
