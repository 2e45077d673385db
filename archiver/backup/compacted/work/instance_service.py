"""The service of an instance: works on its assigned partitions until stopped, and owns their shared parts."""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.copies.copy_catalog import CopyCatalog
from archiver.archive.copies.roles import RolePlace
from archiver.archive.format.store_clock import StoreClock, since_boot_s
from archiver.archive.notes.topics import PartitionSource
from archiver.backup.compacted.turn.events import CoordinationEvent
from archiver.backup.compacted.turn.role_listings import RoleListings
from archiver.backup.compacted.turn.turn_decisions import Role
from archiver.backup.compacted.turn.turn_schedule import TurnTimes
from archiver.backup.compacted.work.clearer import Clearer
from archiver.backup.compacted.work.coordination import Coordination
from archiver.backup.compacted.work.instance_metrics import HINTS_RECEIVED, HINTS_SENT, InstanceMetrics
from archiver.backup.compacted.work.instance_topics import InstanceTopics
from archiver.backup.compacted.work.partition_turn import PartitionTurn
from archiver.backup.compacted.work.progress_notes import ProgressNotes
from archiver.backup.compacted.work.turn_inputs import Parts
from archiver.backup.partition.feed import Feed
from archiver.backup.partition.pump import Pump
from archiver.backup.reports.troubles import Dependency
from archiver.backup.service.group_worker import RELEASE_S, GroupWorker
from archiver.backup.service.request import STOP_S, BackupRequest, pump_of
from archiver.config.model import CompactedConfig
from archiver.errors import ArchiverError, CutBackError, with_text
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group import GroupSettings, Hint
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.defects import as_ours
from archiver.process.running.signals import unless_stopped
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_NOTE_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """The instance, and whether it begins copies where none exists."""

    backup: BackupRequest
    config: CompactedConfig
    name: str
    begins_first: bool
    pin_ms: int  # how long copies stay that an unfinished restore reads
    counts: InstanceMetrics


class InstanceService(GroupWorker):
    """A process of an instance."""

    def __init__(self, request: InstanceRequest, group: GroupSettings, pool: Workers) -> None:
        super().__init__(request.backup, group, pool)
        # The clock of the sink is `since_boot_s`: the store's clock continues while a machine sleeps.
        self._request = request
        self._config = request.config
        self._clock = StoreClock()
        self._notes = ProgressNotes(self.archive, request.name, request.config, self._clock)
        self.held: set[TopicPartition] = set()
        self.turns: dict[TopicPartition, PartitionTurn] = {}
        self._hinted_again_s: dict[TopicPartition, float] = {}  # time from which a hint wakes a partition again
        self._committed: dict[TopicPartition, Hint] = {}
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._catalog = CopyCatalog(self._sink.archive)
        self.in_question: Collection[RolePlace] = ()  # partitions whose copies are not cleared for now

    def now_ms(self) -> int:
        """Return a time that the store's clock has surely reached."""
        return self._clock.earliest_now_ms()

    # --- the life of a process

    def _kafka(self) -> KafkaSettings:
        # Only a leader knows the end of the log (rule W, and completeness): no follower is asked.
        return replace(self._backup.kafka, client_rack="")

    async def _prepare(self, stop: asyncio.Event, stack: AsyncExitStack) -> None:
        second = await self._connect(stop, stack)
        second.belong_to(self._cluster_id)
        self._clients = [self.client, second]
        await unless_stopped(stop, self._persist("archive", self._note))
        others = [name for name in self._config.instances if name != self._request.name]
        listener = await self._connect(stop, stack)
        self._coordination = Coordination(listener, self._backup.kafka, self._openers, others)
        half = replace(
            self._backup,
            memory_bytes=self._backup.memory_bytes // 2,
            spool_bytes=self._backup.spool_bytes // 2,
        )
        self.pumps = [
            await stack.enter_async_context(pump_of(half, client, self._pool, on_durable=self._note_durable))
            for client in self._clients
        ]
        self._parts = self._shared(self.pumps)
        self.topics = self._instance_topics()

    def _loops(self) -> Sequence[Awaitable[None]]:
        return [
            self._clients[1].refuse_another_cluster(),
            self._keep_noting(),
            self._follow_hints(),
            self._keep_clearing(),
            *(self._face_ends(pump) for pump in self.pumps),
        ]

    def _instance_topics(self) -> InstanceTopics:
        return InstanceTopics(
            request=self._backup,
            client=self.client,
            recorder=self._opener.topics,
            pool=self._openers,
            margin_ms=self._config.margin_ms,
            gone=self.gone,
        )

    def _shared(self, pumps: Sequence[Pump]) -> Parts:
        config = self._config
        return Parts(
            instance=self._request.name,
            instances=config.instances,
            begins_first=self._request.begins_first,
            times=TurnTimes(length_ms=config.length_ms, takeover_ms=config.takeover_ms),
            interval_s=config.interval_ms / 1000,
            client=self.client,
            pumps=pumps,
            sink=self._sink,
            pool=self._openers,
            listings=RoleListings(
                self._sink.archive, self._openers, self._sink.clock, interval_s=config.interval_ms / 1000
            ),
            catalog=self._catalog,
            clock=self._clock,
            notes=self._notes,
            publish=self._publish,
            counts=self._request.counts,
        )

    async def _leave(self) -> None:
        """Put held records, note the progress, and leave the group."""
        turns, hints = list(self.turns.values()), self._moved_hints(self.turns)
        for task in [*self._running.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*(turn.close(STOP_S) for turn in turns))
        with suppress(ArchiverError, TimeoutError):
            await asyncio.wait_for(self._note(), _NOTE_S)
        await self._leave_group(hints)

    # --- topics

    @property
    def topic_names(self) -> Collection[str]:
        return self.topics.described

    @property
    def why_no_topics(self) -> str:
        return "no compacted topic of the cluster matches topics.include"

    async def _refresh_topics(self) -> None:
        await self.topics.refresh()

    async def _follow_topics(self) -> None:
        for key in list(self.held):
            self._see_to(key)

    # --- assignment

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        self.held |= set(partitions)
        for key in partitions:
            self._see_to(key)

    def _see_to(self, key: TopicPartition) -> None:
        """Begin work on an assigned partition, in its present life."""
        topic, fact = self.topics.described.get(key[0]), self.topics.facts.get(key[0])
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
            lambda: self.topics.terms[key[0]],
            earlier=[one.life for one in fact.lineage(life.life, key[1]) if one.life != life.life],
            history_begin=0 if branch is None else branch.offset,
            report_end=self._note_end,
        )
        self.turns[key] = turn
        self._running[key] = asyncio.get_running_loop().create_task(turn.run())

    def _take(self, key: TopicPartition) -> PartitionTurn | None:
        """Stop surveys of a partition. Returns the work to end."""
        self.troubles.forget(key)
        self.troubles.forget(("look", *key))
        task, turn = self._running.pop(key, None), self.turns.pop(key, None)
        if task is not None:
            task.cancel()
        return turn

    def _end(self, key: TopicPartition) -> None:
        turn = self._take(key)
        if turn is not None:
            turn.let_go()

    async def release(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        # The commit is for people: role logs and objects have all state.
        hints = self._moved_hints(partitions)
        self.held -= set(partitions)
        closing = [turn for key in partitions if (turn := self._take(key)) is not None]
        await asyncio.gather(*(turn.close(RELEASE_S) for turn in closing))
        return hints

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

    def _note_durable(self, feed: Feed) -> None:
        turn = self.turns.get(feed.key)
        if turn is not None:
            turn.note_durable(feed)

    def _note_end(self, turn: PartitionTurn, error: ArchiverError) -> None:
        if isinstance(error, CutBackError):
            self._spawn(self._branch_off(turn))

    async def _branch_off(self, turn: PartitionTurn) -> None:
        """Continue in a child life after a truncation: the existing copies have another history."""
        key = (turn.source.topic, turn.source.partition)
        try:
            self.topics.facts[key[0]] = await self._opener.record_cut(turn.source)
        except ArchiverError as error:
            log.warning("%s", error)
            return
        self._see_to(key)

    def _moved_hints(self, partitions: Iterable[TopicPartition]) -> Sequence[Hint]:
        """Return the ends of current copies that moved since their last commit to the group. No decision depends on them."""
        turns = {key: self.turns[key] for key in sorted(partitions) if key in self.turns}
        found = {key: hint for key, turn in turns.items() if (hint := turn.group_hint(self._group.archive)) is not None}
        moved = {key: hint for key, hint in found.items() if hint != self._committed.get(key)}
        self._committed |= moved
        return list(moved.values())

    # --- notes between processes

    async def _keep_noting(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            self.membership.commit(self._moved_hints(self.turns))
            try:
                await self._note()
                self.troubles.note_works("moments", Dependency.STORE)
            except (ArchiverError, TimeoutError) as error:
                failed = with_text(error)
                line = f"{failed}; moments are noted again in {self._config.interval_ms / 1000:.0f} s"
                self.troubles.note(failed, line, "moments")

    async def _note(self) -> None:
        await self._notes.note([note for turn in self.turns.values() for note in turn.notes()])

    async def _keep_clearing(self) -> None:
        """Clear former copies of the partitions that this process is active for."""
        clearer = Clearer(
            self.archive,
            self.client,
            self._config,
            pin_ms=self._request.pin_ms,
            catalog=self._catalog,
            facts=lambda: self.topics.facts,
            counts=self._request.counts,
        )
        while True:
            await asyncio.sleep(clearer.pause_s)
            places = frozenset(turn.place for turn in self.turns.values() if turn.turn.role is Role.ACTIVE)
            try:
                report = await clearer.clear(places, self.now_ms(), lambda: bool(self.turns))
            except Exception as error:  # noqa: BLE001 - a failed clearing must not stop copies
                failure: ArchiverError | None = as_ours(error, "clearing")
            else:
                self.in_question = report.alarms.keys()
                failure = next(iter(report.unread), None)
            if failure is not None:
                self.troubles.note(failure, f"{failure}; copies are cleared later", "clearing", stops_puts=False)
            else:
                self.troubles.note_works("clearing")

    def _publish(self, kind: str, place: RolePlace, generation: int) -> None:
        """Send a hint to the other instance's processes to read a role log now."""
        event = CoordinationEvent(
            kind=kind,
            instance=self._request.name,
            place=place,
            generation=generation,
            timestamp_ms=self.now_ms(),
        )
        self._request.counts.add(HINTS_SENT, kind)
        self._spawn(self._coordination.tell(event))

    async def _follow_hints(self) -> None:
        while True:
            self._wake_by_hints(await self._coordination.hints())

    def _wake_by_hints(self, places: Collection[RolePlace]) -> None:
        """Wake the turns of partitions, each once an interval: as often as they survey by themselves."""
        now_s = since_boot_s()
        for place in places:
            key = (place.topic, place.partition)
            turn = self.turns.get(key)
            if turn is not None and now_s >= self._hinted_again_s.get(key, 0.0):
                self._hinted_again_s[key] = now_s + self._config.interval_ms / 1000
                self._request.counts.add(HINTS_RECEIVED)
                turn.wake_by_hint()
