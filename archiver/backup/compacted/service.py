"""A process of an instance, until it is stopped: its assigned partitions, and what they share."""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.handle import Archive
from archiver.archive.moments import (
    FORGOTTEN_AFTER_MS,
    GenerationPlace,
    HeardMoment,
    LeftNote,
    MomentNote,
    NotedLimits,
    NoteName,
    clear_old_moments,
    first_note,
    moment_stream,
    put_moments,
    read_moments,
)
from archiver.archive.roles import Generation, RolePlace
from archiver.archive.store_clock import StoreClock, since_boot_s
from archiver.archive.topics import PartitionSource
from archiver.backup.compacted.clearer import Clearer
from archiver.backup.compacted.coordination import Coordination
from archiver.backup.compacted.dues import TurnTimes, turn_stagger_ms
from archiver.backup.compacted.events import CoordinationEvent
from archiver.backup.compacted.group_hints import GroupHints
from archiver.backup.compacted.instance_metrics import InstanceMetrics
from archiver.backup.compacted.partition_turn import PartitionTurn
from archiver.backup.compacted.role_listings import RoleListings
from archiver.backup.compacted.taken_topics import TakenTopics
from archiver.backup.compacted.turn import Role
from archiver.backup.compacted.turn_parts import Parts
from archiver.backup.compacted.whole_objects import WholeObjects
from archiver.backup.feed import Feed
from archiver.backup.group_worker import RELEASE_S, GroupWorker
from archiver.backup.pump import Pump
from archiver.backup.request import STOP_S, BackupRequest, pump_of
from archiver.backup.troubles import Dependency
from archiver.config.model import CompactedConfig
from archiver.errors import ArchiverError, CutBackError, StoreError, StoreTemporaryError
from archiver.kafka.cluster import TopicPartition
from archiver.kafka.group import GroupSettings, Hint
from archiver.kafka.settings import KafkaSettings
from archiver.process.defects import as_ours
from archiver.process.failpoints import reach
from archiver.process.json_values import LARGEST
from archiver.process.signals import unless_stopped
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

_NOTE_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequest:
    """The instance, and whether it begins copies where none exists."""

    backup: BackupRequest
    config: CompactedConfig
    name: str
    begins_first: bool
    pin_ms: int  # so long the copies stay that an unfinished restore reads
    counts: InstanceMetrics


class InstanceService(GroupWorker):
    """A process of an instance."""

    def __init__(self, request: InstanceRequest, group: GroupSettings, pool: Workers) -> None:
        super().__init__(request.backup, group, pool)
        # The clock of the sink is `since_boot_s`: also of what a machine sleeps through, the store knows.
        self._request = request
        self._config = request.config
        self._notes = Workers(2, "moments")  # must not wait behind what takes long
        self._clock = StoreClock()
        self._limits = _limits_of(self._config)
        self._next_note = first_note()
        self._uncleared = ""  # why old moments could not be deleted
        self._has_warned_uncleared = False
        # Generations that this process has left, and for how long it notes them.
        self._left: dict[GenerationPlace, tuple[LeftNote, float]] = {}
        self._heard: Mapping[RolePlace, Mapping[Generation, HeardMoment]] = {}
        self.held: set[TopicPartition] = set()
        self.turns: dict[TopicPartition, PartitionTurn] = {}
        self._hinted_again_s: dict[TopicPartition, float] = {}  # from when on a hint wakes a partition again
        self._hints = GroupHints(lambda: {key: turn.held for key, turn in self.turns.items()}, group.archive)
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._whole = WholeObjects()
        self.in_question: Collection[RolePlace] = ()  # whose copies are not cleared, for now

    @property
    def archive(self) -> Archive:
        return self._sink.archive

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
        await unless_stopped(stop, self._persist("archive", self._note_moments))
        others = [name for name in self._config.instances if name != self._request.name]
        self._coordination = Coordination(self._backup.kafka, others=others)
        stack.push_async_callback(self._coordination.close)
        await unless_stopped(stop, self._coordination.start())
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
        self.topics = self._topics_taken()

    def _loops(self) -> Sequence[Awaitable[None]]:
        return [
            self._clients[1].refuse_another_cluster(),
            self._keep_noting(),
            self._follow_hints(),
            self._keep_clearing(),
            *(self._face_ends(pump) for pump in self.pumps),
        ]

    def _topics_taken(self) -> TakenTopics:
        return TakenTopics(
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
            whole=self._whole,
            clock=self._clock,
            heard=lambda place: self._heard.get(place, {}),
            publish=self._publish,
            counts=self._request.counts,
        )

    async def _leave(self) -> None:
        """Put held records, note how far they were read, and leave the group."""
        turns, hints = list(self.turns.values()), self._hints.take()
        for task in [*self._running.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*(turn.close(STOP_S) for turn in turns))
        with suppress(ArchiverError, TimeoutError):
            await asyncio.wait_for(self._note_moments(), _NOTE_S)
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

    # --- partitions come and go

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        self.held |= set(partitions)
        for key in partitions:
            self._see_to(key)

    def _see_to(self, key: TopicPartition) -> None:
        """Have a held partition worked on, in the life that it has now."""
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
            stagger_ms=turn_stagger_ms(key[0], key[1], self._config.length_ms),
            report_end=self._note_end,
        )
        self.turns[key] = turn
        self._running[key] = asyncio.get_running_loop().create_task(turn.run())

    def _take(self, key: TopicPartition) -> PartitionTurn | None:
        """Stop looking at a partition. Returns the work to end."""
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
            self._remember(turn)

    async def release(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        # The commit is for people: role logs and objects have everything.
        hints = self._hints.take(partitions)
        self.held -= set(partitions)
        closing = [turn for key in partitions if (turn := self._take(key)) is not None]
        await asyncio.gather(*(turn.close(RELEASE_S) for turn in closing))
        for turn in closing:
            self._remember(turn)
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
        """Continue in a child life: the log was truncated, and its copies are another history now."""
        key = (turn.source.topic, turn.source.partition)
        try:
            self.topics.facts[key[0]] = await self._opener.record_cut(turn.source)
        except ArchiverError as error:
            log.warning("%s", error)
            return
        self._see_to(key)

    # --- notes between processes

    async def _keep_noting(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            self.membership.commit(self._hints.take())
            try:
                await self._note_moments()
                self.troubles.note_works("moments", Dependency.STORE)
            except (ArchiverError, TimeoutError) as error:
                line = f"{error!r}; moments are noted again in {self._config.interval_ms / 1000:.0f} s"
                self.troubles.note(as_ours(error, "moments"), line, "moments")

    async def _note_moments(self) -> None:
        """Note how far each generation was read, and read what the others have noted."""
        moments, left = self._moments()
        archive, name, note = self._sink.archive, self._request.name, self._next_note
        self._next_note = note.following
        await self._notes.call(self._put_moments, note, moments, left)
        heard: dict[RolePlace, dict[Generation, HeardMoment]] = {}
        for one in self._config.instances:
            for (place, number), told in (await self._notes.call(read_moments, archive, one)).items():
                heard.setdefault(place, {})[Generation(instance=one, number=number)] = told
        self._heard = heard
        try:
            await self._notes.call(clear_old_moments, archive, name, *note, self.now_ms())
        except (StoreError, StoreTemporaryError) as error:  # only space is lost
            # An outage is reported by what needs the store. So this is a missing right, if it fails again while all else works.
            if str(error) == self._uncleared and not self._has_warned_uncleared and not self.troubles.is_any:
                self._has_warned_uncleared = True
                log.warning("%s; what it has noted of its reading before stays", error)
            self._uncleared = str(error)

    async def _keep_clearing(self) -> None:
        """Clear former copies of partitions for which this process is active."""
        clearer = Clearer(
            self.archive,
            self.client,
            self._config,
            pin_ms=self._request.pin_ms,
            whole=self._whole,
            facts=lambda: self.topics.facts,
            counts=self._request.counts,
        )
        while True:
            await asyncio.sleep(clearer.pause_s)
            places = frozenset(turn.place for turn in self.turns.values() if turn.turn.role is Role.ACTIVE)
            try:
                report = await clearer.clear(places, self.now_ms(), lambda: bool(self.turns))
                self.in_question = report.alarms.keys()
            except Exception as error:  # noqa: BLE001 - a failed clearing must not stop copies
                failure = as_ours(error, "clearing")
                self.troubles.note(failure, f"{failure}; copies are cleared later", "clearing", stops_puts=False)
            else:
                self.troubles.note_works("clearing")

    def _moments(self) -> tuple[list[MomentNote], list[LeftNote]]:
        """Return the progress of this process's generations, and of those that it has left unless others have noted more."""
        told = [turn.notes() for turn in self.turns.values()]
        moments = [note for filled, _ in told for note in filled]
        working = {note.place for note in moments}
        now_s = since_boot_s()
        self._left = {
            place: (note, until_s)
            for place, (note, until_s) in self._left.items()
            if now_s < until_s and place not in working and not self._has_gone_on(place, note)
        }
        left = {note.place: note for note, _ in self._left.values()}
        left |= {note.place: note for _, notes in told for note in notes}
        return moments, list(left.values())

    def _has_gone_on(self, place: GenerationPlace, note: MomentNote) -> bool:
        heard = self._heard.get(place[0], {}).get(Generation(instance=self._request.name, number=place[1]))
        return heard is not None and heard.moment is not None and heard.moment.at_ms > (note.at_ms or 0)

    def _remember(self, turn: PartitionTurn) -> None:
        """Keep noting the progress of a left partition, until its new process notes more."""
        until_s = since_boot_s() + FORGOTTEN_AFTER_MS / 1000
        self._left |= {note.place: (note, until_s) for note in turn.notes()[1]}

    def _put_moments(self, note: NoteName, moments: Sequence[MomentNote], left: Sequence[LeftNote]) -> None:
        """Put moments, and learn the store's clock from them."""
        archive, name, begun_s = self._sink.archive, self._request.name, since_boot_s()
        noted_ms = self._clock.earliest_now_ms() if self._clock.is_known else None
        if not put_moments(archive, name, *note, moments, left, noted_ms=noted_ms, limits=self._limits):
            return
        reach("moments.put")
        ended_s, stream = since_boot_s(), moment_stream(name, note.process)
        for item in archive.store.list(archive.layout.fact_key(stream, note.number)):
            self._clock.note(begun_s, ended_s, item.last_modified)

    def _publish(self, kind: str, place: RolePlace, generation: int) -> None:
        """Have the other instance's processes look at a role log now."""
        event = CoordinationEvent(
            kind=kind,
            instance=self._request.name,
            place=place,
            generation=generation,
            timestamp_ms=self.now_ms(),
        )
        self._request.counts.sent_hint(kind)
        self._spawn(self._coordination.tell([event]))

    async def _follow_hints(self) -> None:
        while True:
            self._wake_by_hints(await self._coordination.hints())

    def _wake_by_hints(self, places: Collection[RolePlace]) -> None:
        """Wake the turns of partitions, each once an interval: it looks by itself as often."""
        now_s = since_boot_s()
        for place in places:
            key = (place.topic, place.partition)
            turn = self.turns.get(key)
            if turn is not None and now_s >= self._hinted_again_s.get(key, 0.0):
                self._hinted_again_s[key] = now_s + self._config.interval_ms / 1000
                self._request.counts.received_hint()
                turn.wake_by_hint()


def _limits_of(config: CompactedConfig) -> NotedLimits:
    return NotedLimits(
        length_ms=config.length_ms,
        takeover_ms=min(config.takeover_ms, LARGEST),
        margin_ms=None if config.margin_ms is None else min(config.margin_ms, LARGEST),
        clear_delay_ms=min(config.clear_delay_ms, LARGEST),
        keep_generations=min(config.keep_generations, LARGEST),
    )
