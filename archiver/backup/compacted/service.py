"""A process of an instance, until it is stopped: the partitions that the instance's group gives it, and what they share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from archiver.archive.cluster_topics import COORDINATION_TOPIC, find_cluster_topics
from archiver.archive.moments import (
    HeardMoment,
    MomentNote,
    clear_old_moments,
    moment_stream,
    put_moments,
    read_moments,
)
from archiver.archive.role_logs import list_copied_topics
from archiver.archive.roles import Generation, RolePlace
from archiver.archive.store_clock import StoreClock, since_boot_s
from archiver.archive.topics import POLICY, TOMBSTONES_KEPT, PartitionSource, TopicFact, list_known_topics, says_compact
from archiver.backup.compacted.clearer import Clearer
from archiver.backup.compacted.coordination import Coordination
from archiver.backup.compacted.dues import TurnTimes, turn_stagger_ms
from archiver.backup.compacted.events import CoordinationEvent
from archiver.backup.compacted.partition_turn import PartitionTurn, Parts, Terms
from archiver.backup.compacted.turn import Role
from archiver.backup.opener import OPENERS
from archiver.backup.owner_on_loop import RELEASE_S, OwnerOnLoop
from archiver.backup.pump import Pump
from archiver.backup.request import STOP_S, BackupRequest, opener_of, pump_of
from archiver.backup.retry import persist
from archiver.config.model import CompactedConfig
from archiver.errors import ArchiverError, CutBackError, StrangerError
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicDescription, TopicPartition
from archiver.kafka.group import GroupSettings, Hint
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.kafka.membership import Membership
from archiver.process.failpoints import reach
from archiver.process.signals import unless_stopped
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_LEAVE_S: Final = 3.0
_LEFT_OUT: Final = frozenset({OFFSETS_TOPIC, COORDINATION_TOPIC})


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """Which instance this is, and whether it begins where nobody has begun."""

    backup: BackupRequest
    config: CompactedConfig
    name: str
    begins_first: bool
    pin_ms: int  # so long the copies stay that an unfinished restore reads


class InstanceService:
    """`run` returns when it was stopped; everything held is durable or dropped by then."""

    def __init__(self, request: InstanceRequest, group: GroupSettings, pool: Workers, process: str) -> None:
        self._request = request
        self._config = request.config
        self._sink = (
            request.backup.sink
        )  # its clock is `since_boot_s`: also of what a machine sleeps through, the store knows
        self._group = group
        self._pool = pool
        self._process = process  # a name of its own, under which it notes its moments
        self._openers = Workers(OPENERS, "opener", most=4 * OPENERS)
        self._notes = Workers(2, "moments")  # must not wait behind what takes long
        self._clock = StoreClock()
        self._number = 0  # of the next moments
        self._heard: Mapping[RolePlace, Mapping[Generation, HeardMoment]] = {}
        self.membership = Membership(request.backup.kafka, group, OwnerOnLoop(self))
        self.topics: dict[str, TopicDescription] = {}
        self._facts: dict[str, TopicFact] = {}
        self._terms: dict[str, Terms] = {}
        self.held: set[TopicPartition] = set()
        self.turns: dict[TopicPartition, PartitionTurn] = {}
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the life of a process

    async def run(self, stop: asyncio.Event, watch: Callable[[], Sequence[Awaitable[None]]] = lambda: ()) -> None:
        async with AsyncExitStack() as stack:
            clients = [await unless_stopped(stop, self._connect(stack)) for _ in range(2)]
            self._client = clients[0]
            cluster_id = await unless_stopped(stop, self._persist("the cluster", self._client.cluster_id))
            self._cluster_id = cluster_id
            self._opener = opener_of(self._request.backup, self._client, self._openers, cluster_id)
            await unless_stopped(stop, self._persist("archive", self._opener.take_possession))
            await unless_stopped(stop, self._persist("archive", self._note_moments))
            self._coordination = Coordination(self._request.backup.kafka)
            stack.push_async_callback(self._coordination.close)
            await unless_stopped(stop, self._coordination.start())
            half = replace(
                self._request.backup,
                memory_bytes=self._request.backup.memory_bytes // 2,
                spool_bytes=self._request.backup.spool_bytes // 2,
            )
            pumps = [
                await stack.enter_async_context(pump_of(half, client, self._pool, on_durable=lambda _: None))
                for client in clients
            ]
            self._pumps = pumps
            self._parts = self._shared(pumps)
            await unless_stopped(stop, self._persist("topics", self._refresh_topics))
            self.membership.start(sorted(self.topics))
            loops = [
                self._keep_topics_fresh(),
                self._keep_noting(),
                self._follow_hints(),
                self._keep_clearing(),
                *(self._face_ends(pump) for pump in pumps),
                *watch(),
            ]
            try:
                await unless_stopped(stop, _all(loops))
            finally:
                await self._leave()

    def _shared(self, pumps: Sequence[Pump]) -> Parts:
        config = self._config
        return Parts(
            instance=self._request.name,
            instances=config.instances,
            begins_first=self._request.begins_first,
            times=TurnTimes(length_ms=config.length_ms, takeover_ms=config.takeover_ms),
            interval_s=config.interval_ms / 1000,
            client=self._client,
            pumps=pumps,
            sink=self._sink,
            pool=self._openers,
            clock=self._clock,
            heard=lambda place: self._heard.get(place, {}),
            publish=self._publish,
        )

    async def _connect(self, stack: AsyncExitStack) -> KafkaClient:
        # Only a leader tells where the log ends (rule W, and what is complete): no follower is asked.
        settings = replace(self._request.backup.kafka, client_rack="")
        return await self._persist("the cluster", lambda: stack.enter_async_context(KafkaClient(settings)))

    async def _persist(self, what: str, work: Callable[[], Awaitable[Value]]) -> Value:
        return await persist(what, work, self._sink.ledger)

    async def _leave(self) -> None:
        """Put what is held, say how far it was read, and leave the group."""
        turns = list(self.turns.values())
        for task in [*self._running.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*(turn.close(STOP_S) for turn in turns))
        with suppress(ArchiverError, TimeoutError):
            await asyncio.wait_for(self._note_moments(), _LEAVE_S)
        leaver = Workers(1, "leave")
        if not await leaver.call(self.membership.close, [], _LEAVE_S):
            log.info("the group was not left in time; it will miss this process after the session timeout")

    # --- topics

    async def _refresh_topics(self) -> None:
        """List the included topics, record what has changed, and take those that are compacted."""
        topics = self._request.backup.topics
        known = await self._openers.call(list_known_topics, self._sink.archive)
        seen = await find_cluster_topics(self._client, topics, topics.select(known))
        names = set(topics.select(seen.found)) - _LEFT_OUT
        recorder = self._opener.topics
        configs = await recorder.learn_configs([seen.found[name] for name in names])
        # These were compacted once: instances go on until the history holds again.
        copied = self.topics.keys() | await self._openers.call(list_copied_topics, self._sink.archive)
        taken: dict[str, TopicDescription] = {}
        for name in sorted(names):
            topic = seen.found[name]
            effective = configs.found[name].effective if name in configs.found else {}
            policy = effective.get(POLICY)
            if policy is None or not topic.topic_id:
                if name in self.topics and topic.topic_id:
                    taken[name] = topic  # unknown is no change
                continue
            is_now = says_compact(policy)
            if not is_now and name not in copied:
                continue
            fact = await recorder.try_to_record(topic, configs)
            if isinstance(fact, StrangerError):
                raise fact
            if isinstance(fact, ArchiverError):
                log.warning("%s", fact)
                continue
            taken[name] = topic
            self._facts[name] = fact
            self._terms[name] = Terms(is_compacted=is_now, kept_ms=self._kept_ms(effective))
        for name in sorted(taken.keys() ^ self.topics.keys()):
            log.info("topic %s %s", name, "is taken by the instances" if name in taken else "is gone, or left out now")
        self.topics = taken

    def _kept_ms(self, effective: Mapping[str, str]) -> int:
        """Return how long a reading may take: as long as tombstones are kept, less the margin."""
        told = effective.get(TOMBSTONES_KEPT, "0")
        kept_ms = int(told) if told.isascii() and told.isdigit() else 0
        margin_ms = self._config.margin_ms
        return max(0, kept_ms - (kept_ms // 10 if margin_ms is None else margin_ms))

    async def _keep_topics_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._group.refresh_ms / 1000)
            try:
                await self._refresh_topics()
            except StrangerError:
                raise
            except (ArchiverError, TimeoutError) as error:
                log.warning("%r; topics are looked for again in %.0f s", error, self._group.refresh_ms / 1000)
                continue
            self.membership.subscribe(sorted(self.topics))
            for key in list(self.held):
                self._see_to(key)

    # --- partitions come and go

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        self.held |= set(partitions)
        for key in partitions:
            self._see_to(key)

    def _see_to(self, key: TopicPartition) -> None:
        """Have a held partition worked on, in the life that it has now."""
        topic, fact = self.topics.get(key[0]), self._facts.get(key[0])
        if topic is None or fact is None or key not in self.held or key[1] not in topic.partitions:
            return
        life = fact.life_of_partition(topic.topic_id, key[1])
        source = PartitionSource(
            topic=topic.name,
            partition=key[1],
            life=life.life,
            topic_id=topic.topic_id,
            cluster_id=self._cluster_id,
        )
        running = self.turns.get(key)
        if running is not None and running.source == source:
            return
        if running is not None:
            self._end(key)
        branch = life.branches.get(key[1])
        turn = PartitionTurn(
            self._parts,
            source,
            lambda: self._terms[key[0]],
            history_begin=0 if branch is None else branch.offset,
            stagger_ms=turn_stagger_ms(key[0], key[1], self._config.length_ms),
            report_end=self._note_end,
        )
        self.turns[key] = turn
        self._running[key] = asyncio.get_running_loop().create_task(turn.run())

    def _take(self, key: TopicPartition) -> PartitionTurn | None:
        """Stop looking at a partition. Returns what has still to be ended of it."""
        task, turn = self._running.pop(key, None), self.turns.pop(key, None)
        if task is not None:
            task.cancel()
        return turn

    def _end(self, key: TopicPartition) -> None:
        turn = self._take(key)
        if turn is not None:
            turn.let_go()

    async def release(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        """Put what is held of partitions that go to others. Nothing is committed: role logs and objects tell all."""
        self.held -= set(partitions)
        closing = [turn for key in partitions if (turn := self._take(key)) is not None]
        await asyncio.gather(*(turn.close(RELEASE_S) for turn in closing))
        return []

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        self.held -= set(partitions)
        for key in partitions:
            self._end(key)

    async def _face_ends(self, pump: Pump) -> None:
        while True:
            feed = await pump.next_ended()
            turn = self.turns.get(feed.key)
            if turn is not None and turn.fills(feed):
                turn.note_ended(feed)

    def _note_end(self, turn: PartitionTurn, error: ArchiverError) -> None:
        if isinstance(error, CutBackError):
            self._spawn(self._branch_off(turn))

    async def _branch_off(self, turn: PartitionTurn) -> None:
        """Go on in a child life: the log was cut back, and what was copied of it is another history now."""
        key = (turn.source.topic, turn.source.partition)
        try:
            self._facts[key[0]] = await self._opener.record_cut(turn.source)
        except ArchiverError as error:
            log.warning("%s", error)
            return
        self._see_to(key)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what processes tell each other

    async def _keep_noting(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            try:
                await self._note_moments()
            except (ArchiverError, TimeoutError) as error:
                log.warning("%r; moments are noted again in %.0f s", error, self._config.interval_ms / 1000)

    async def _note_moments(self) -> None:
        """Note how far each generation was read, and read what the others have noted."""
        moments = [
            MomentNote(
                topic=turn.place.topic,
                life=turn.place.life,
                partition=turn.place.partition,
                generation=generation,
                at_ms=None if (moment := reading.moment()) is None else moment.at_ms,
                last_stable=0 if moment is None else moment.last_stable,
            )
            for turn in self.turns.values()
            for generation, reading in turn.readings.items()
        ]
        archive, name, number = self._sink.archive, self._request.name, self._number
        self._number += 1
        await self._notes.call(self._put_moments, number, moments)
        heard: dict[RolePlace, dict[Generation, HeardMoment]] = {}
        for one in self._config.instances:
            for (place, number), told in (await self._notes.call(read_moments, archive, one)).items():
                heard.setdefault(place, {})[Generation(instance=one, number=number)] = told
        self._heard = heard
        now_ms = self._clock.earliest_now_ms()
        await self._notes.call(clear_old_moments, archive, name, self._process, number, now_ms)

    async def _keep_clearing(self) -> None:
        """Clear what is read no more of the partitions that this process is active for."""
        clearer = Clearer(
            self._sink.archive, self._client, self._config, pin_ms=self._request.pin_ms, facts=lambda: self._facts
        )
        while True:
            await asyncio.sleep(clearer.pause_s)
            places = frozenset(turn.place for turn in self.turns.values() if turn.turn.role is Role.ACTIVE)
            try:
                await clearer.clear(places, self._clock.earliest_now_ms(), lambda: bool(self.turns))
            except (ArchiverError, TimeoutError) as error:
                log.warning("%r; copies are cleared later", error)

    def _put_moments(self, number: int, moments: Sequence[MomentNote]) -> None:
        """Put moments, and learn from them what the store's clock says."""
        archive, name, begun_s = self._sink.archive, self._request.name, since_boot_s()
        if not put_moments(archive, name, self._process, number, moments):
            return
        reach("moments.put")
        ended_s, stream = since_boot_s(), moment_stream(name, self._process)
        for item in archive.store.list(archive.layout.fact_key(stream, number)):
            self._clock.note(begun_s, ended_s, item.last_modified)

    def _publish(self, kind: str, place: RolePlace, generation: int) -> None:
        """Have the other instance's processes look at a role log now."""
        event = CoordinationEvent(
            kind=kind,
            instance=self._request.name,
            place=place,
            generation=generation,
            timestamp_ms=self._clock.earliest_now_ms(),
        )
        self._spawn(self._coordination.tell([event]))

    async def _follow_hints(self) -> None:
        while True:
            for place in await self._coordination.hints():
                turn = self.turns.get((place.topic, place.partition))
                if turn is not None:
                    turn.wake()


async def _all(loops: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*loops)
