"""The backup service: opens assigned partitions, retries failed ones, and releases revoked ones, until stopped."""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

from archiver.archive.notes.cluster_topics import (
    ClusterTopics,
    explain_unmatched,
    find_cluster_topics,
    refuse_without_ids,
)
from archiver.archive.notes.topics import list_known_topics, read_topic
from archiver.backup.opening.role_watch import place_of
from archiver.backup.partition.feed import LASTING_FAILURE_S, Feed
from archiver.backup.reports.troubles import cause_of_failure
from archiver.backup.service.assignment import FIRST_PAUSE_S, Assignment
from archiver.backup.service.cluster_notes import note_cluster_regularly
from archiver.backup.service.commits import Commits
from archiver.backup.service.group_worker import RELEASE_S, GroupWorker
from archiver.backup.service.refused_topics import RefusedTopics
from archiver.backup.service.request import STOP_S, BackupRequest, indexer_of, keeper_of, pump_of
from archiver.errors import (
    ArchiverError,
    CutBackError,
    DroppedError,
    LostTopicIdError,
    StrangerError,
    TopicGoneError,
)
from archiver.kafka.brokers.cluster import TopicDescription, TopicPartition
from archiver.kafka.groups.group import GroupSettings, Hint
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.output.defects import as_ours
from archiver.process.output.text import spell_count
from archiver.process.running.failpoints import reach
from archiver.process.running.signals import unless_stopped
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_HINTS_S = 5.0
_RECORD_S = 60.0
_NOTES_OF_TOPICS = "notes of topics"


class Service(GroupWorker):
    """One instance of the backup."""

    def __init__(self, request: BackupRequest, group: GroupSettings, pool: Workers) -> None:
        super().__init__(request, group, pool)
        self._indexer = indexer_of(request)
        self.commits = Commits(
            self.membership.commit, archive=group.archive, age_s=self._sink.age_s, clock=self._sink.clock
        )
        self._has_warned_of_others = False  # other archives that commit to this group
        self.topics: dict[str, TopicDescription] = {}
        self.refused = RefusedTopics(self._sink.ledger, self._sink.clock)
        self._known: set[str] = set()  # included topics that were archived, or listed here
        self._unmatched: Collection[int] = ()  # entries of topics.include that match nothing, by number
        self.feeds: Mapping[TopicPartition, Feed] = {}
        self.dropped: list[DroppedError] = []  # at the end
        self.problems: Sequence[ArchiverError] = ()  # at the end
        self.held: dict[TopicPartition, Assignment] = {}
        self._failed: dict[TopicPartition, Assignment] = {}  # to be opened again

    # --- the life of an instance

    async def _prepare(self, stop: asyncio.Event, stack: AsyncExitStack) -> None:
        self._positions = keeper_of(self._backup, self.client, self._openers, self._cluster_id)
        self._known |= await unless_stopped(stop, self._persist("archive", self._known_topics))
        self._pump = await stack.enter_async_context(
            pump_of(self._backup, self.client, self._pool, on_durable=self._note_durable)
        )
        self.feeds = self._pump.feeds
        self._doom = self._loop.create_future()

    def _loops(self) -> Sequence[Awaitable[None]]:
        ends = self._opener.offsets_log_ends
        return [
            self._doom,
            self._face_ends(),
            self._open_again(),
            self.commits.run(),
            self._positions.run(),
            note_cluster_regularly(self.client, self._sink.archive, self._openers),
            ends.watch(self.feeds, self._sink.age_s, self._sink.clock, self.troubles),
            self._indexer.run(),
        ]

    async def _leave(self) -> None:
        """Put held records, and leave the group. Records that are not durable in time are dropped: the next owner fetches them again."""
        held, put_before = dict(self.held), {feed: feed.reported_base for feed in self._pump.feeds.values()}
        self.held.clear()
        self.dropped = await self._pump.close(list(put_before), STOP_S)
        self.dropped += [feed.ending.dropped for feed in self._pump.ended_now() if feed.ending.dropped is not None]
        for feed, base in put_before.items():
            if feed.reported_base != base and feed.key in held:  # what failed before works again
                held[feed.key].note_durable()
        self.problems = self._lasting_problems(held.values())
        reach("stop.flushed")
        await asyncio.gather(self._leave_group(self.commits.all_hints()), self._indexer.finish())
        for task in list(self._tasks):
            task.cancel()

    def _lasting_problems(self, held: Collection[Assignment]) -> Sequence[ArchiverError]:
        """Return the problems that block archiving until an operator acts, and objects that contradict the log: each once."""
        failed = [assigned.lasting_error for assigned in held]
        is_shut_out = self.membership.shut_out_s >= LASTING_FAILURE_S
        found = [*self._opener.findings.values(), *failed, self.membership.error if is_shut_out else None]
        return list({str(error): error for error in found if error is not None and not error.retriable}.values())

    # --- topics

    @property
    def topic_names(self) -> Collection[str]:
        return self.topics

    @property
    def why_no_topics(self) -> str:
        refused = [str(one.error) for one in self.refused.topics.values()]
        return "; ".join(refused) or "no topic of the cluster matches topics.include"

    async def _refresh_topics(self) -> None:
        topics = self._backup.topics
        seen = await find_cluster_topics(self.client, topics, topics.select(self._known))
        seen = await self._openers.call(refuse_without_ids, self._sink.archive, seen)
        found, refused = seen.found, seen.refused
        self._known |= found.keys()
        self._warn_of_unmatched(seen)
        before = self.topics
        self.refused.note(
            {name: refused[name] for name in topics.select(refused)},
            lambda name: before[name].partitions if name in before else (0,),
        )
        await self.gone.look(topics.select(self._known), seen)
        names = set(topics.select(found)) | (self.topics.keys() & refused.keys())
        if OFFSETS_TOPIC not in refused and await self._positions.decide_way(found):
            names.add(OFFSETS_TOPIC)
        now = {name: found.get(name) or self.topics[name] for name in names}
        for name in sorted(now.keys() ^ self.topics.keys()):
            log.info("topic %s %s", name, "is archived from now on" if name in now else "is gone, or left out now")
        self.topics = now

    async def _known_topics(self) -> frozenset[str]:
        return await self._openers.call(list_known_topics, self._sink.archive)

    def _warn_of_unmatched(self, seen: ClusterTopics) -> None:
        """Warn of each entry of topics.include that matches nothing: once, as long as that lasts."""
        before, self._unmatched = self._unmatched, seen.unmatched(self._backup.topics)
        news = [number for number in self._unmatched if number not in before]
        for line in explain_unmatched(self._backup.topics, news, self._backup.place_of_include):
            log.warning("%s", line)

    async def _follow_topics(self) -> None:
        await self._record_changes()
        await self._replace_recreated()
        await self._follow_role_logs()

    async def _record_changes(self) -> None:
        held = {topic for topic, _ in self.held}
        topics = [topic for name, topic in self.topics.items() if name in held and name not in self.refused.topics]
        recorder = self._opener.topics
        configs = await recorder.learn_configs(topics)

        changed = [topic for topic in topics if recorder.has_changed(topic, configs)]
        async with asyncio.timeout(_RECORD_S):
            recorded = await asyncio.gather(*(recorder.try_to_record(topic, configs) for topic in changed))
        failed = [one for one in recorded if isinstance(one, ArchiverError)]
        for error in failed:
            self.troubles.note(error, str(error), _NOTES_OF_TOPICS, stops_puts=False)
        if not failed:
            self.troubles.note_works(_NOTES_OF_TOPICS)

    async def _replace_recreated(self) -> None:
        """Open partitions of recreated topics again. Fetches notice most of them, but not if brokers serve by name."""
        for feed in list(self._pump.feeds.values()):
            topic = self.topics.get(feed.key[0])
            is_known = topic is not None and topic.name not in self.refused.topics
            if topic is not None and is_known and topic.topic_id != feed.source.topic_id:
                await self._close([feed])
                self._begin([feed.key])

    async def _follow_role_logs(self) -> None:
        """Leave partitions with a current copy to the instances, and open those that no instance has any longer."""
        roles = self._opener.roles
        held: dict[str, list[int]] = {}
        for topic, number in self.held:
            held.setdefault(topic, []).append(number)
        copied = await roles.list_topics()
        left = {topic for (topic, _), assigned in self.held.items() if assigned.is_left}
        looked_at = held.keys() & self.topics.keys() & (held.keys() if copied is None else copied | left)
        dividing = [self._divide(self.topics[name], held[name]) for name in sorted(looked_at)]
        outcomes = await asyncio.gather(*dividing, return_exceptions=True)
        await roles.take_back({place_of(feed.source): feed.writer.durable_position for feed in self.feeds.values()})
        for error in filter(None, outcomes):  # no topic waits for another
            raise error

    async def _divide(self, topic: TopicDescription, numbers: Sequence[int]) -> None:
        fact = await self._openers.call(read_topic, self._sink.archive, topic.name)
        left = await self._opener.roles.find_left(fact, topic.topic_id, numbers) if fact is not None else frozenset()
        closing = [feed for number in left if (feed := self.feeds.get((topic.name, number))) is not None]
        await self._close(closing)
        for assigned in [self.held[feed.key] for feed in closing if feed.key in self.held]:
            assigned.leave()
        back = [(topic.name, number) for number in numbers if number not in left]
        back = [key for key in back if key in self.held and self.held[key].is_left]
        for key in back:
            self.held[key].come_back(self._sink.clock())
        if back:
            self._begin(back)

    # --- assigned partitions

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        now_s = self._sink.clock()
        self.held |= {key: Assignment(since_s=now_s) for key in partitions}
        self._begin(partitions, with_hints=True)

    def _begin(self, partitions: Iterable[TopicPartition], *, with_hints: bool = False) -> None:
        self._spawn(self._open({key: self.held[key] for key in partitions if key in self.held}, with_hints))

    async def _open(self, wanted: Mapping[TopicPartition, Assignment], with_hints: bool) -> None:
        """Open partitions; retry those that cannot be opened."""

        def take(feed: Feed) -> None:
            self._add(feed, wanted[feed.key])

        def refuse(keys: Collection[TopicPartition], error: ArchiverError) -> None:
            self._fail({key: wanted[key] for key in keys}, error)

        def leave(keys: Collection[TopicPartition]) -> None:
            for key in keys:
                wanted[key].leave()

        try:
            hints = await self._hints(wanted) if with_hints else {}
            for key, hint in hints.items():
                wanted[key].archived_to = hint.offset
            await self._opener.open_all(wanted.keys(), take, refuse, leave, hints=hints)
        except StrangerError as error:
            if not self._doom.done():
                self._doom.set_exception(error)
        except Exception as error:  # noqa: BLE001 - it is tried again, whatever it was
            self._fail(wanted, as_ours(error, "partitions could not be opened"))

    def _add(self, feed: Feed, assigned: Assignment) -> None:
        if self.held.get(feed.key) is assigned and feed.key not in self.feeds:
            assigned.is_gone = assigned.is_left = False
            feed.pending_since_s = assigned.unknown_since_s
            assigned.unsaved_since_s = None
            self._pump.add(feed)

    async def _hints(self, wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, Hint]:
        """Ask the group for hints. They save long listings; without them, opening only takes longer."""
        partitions = list(wanted)
        asked = self._openers.call(self.membership.committed, partitions)
        try:
            hints = await asyncio.wait_for(asked, _HINTS_S)
        except (ArchiverError, TimeoutError) as error:
            self._sink.ledger.retried("hints", type(error).__name__)
            return {}
        others = [key for key, hint in hints.items() if hint.archive not in {"", self._group.archive}]
        if others and not self._has_warned_of_others:
            self._has_warned_of_others = True
            log.warning(
                "group %s: another archive has committed the positions of %s, %s-%d first. If a backup of it runs, too,"
                " each has only a share of the partitions: give them groups of their own (backup.group)",
                self._group.group,
                spell_count(len(others), "partition"),
                *min(others),
            )
        return {key: hint for key, hint in hints.items() if key not in others}

    # --- revoked partitions

    async def release(self, partitions: Sequence[TopicPartition]) -> list[Hint]:
        for key in partitions:
            self.held.pop(key, None)
            self.troubles.forget(key)
        await self._close([feed for key in partitions if (feed := self._pump.feeds.get(key))])
        reach("revoked.flushed")
        return self.commits.take(partitions)

    async def _close(self, feeds: Sequence[Feed]) -> None:
        for error in await self._pump.close(feeds, RELEASE_S):
            log.warning("%s", error)

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        for key in partitions:
            self.held.pop(key, None)
            self.troubles.forget(key)
            if (feed := self._pump.feeds.get(key)) is not None:
                self._pump.drop(feed)
        self.commits.take(partitions)

    # --- failed partitions

    def _note_durable(self, feed: Feed) -> None:
        if self.feeds.get(feed.key) is not feed:  # its put outlasted the assignment: another instance commits by now
            return
        assigned = self.held.get(feed.key)
        if assigned is not None:
            assigned.note_durable()
        self.commits.note(feed)

    async def _face_ends(self) -> None:
        while True:
            feed = await self._pump.next_ended()
            assigned = self.held.get(feed.key)
            if assigned is None:
                continue
            assigned.archived_to, assigned.since_s = feed.writer.durable_position, self._sink.clock()
            assigned.unsaved_since_s = feed.unsaved_since_s(assigned.since_s)
            if isinstance(feed.ending.error, CutBackError):
                self._spawn(self._branch_off(feed, assigned))
            elif feed.ending.error is not None:
                self._fail({feed.key: assigned}, feed.ending.error, assigned.unsaved_since_s)

    async def _branch_off(self, feed: Feed, assigned: Assignment) -> None:
        """Continue after a truncation, with a pause before: a log may be truncated repeatedly before anything is archived."""
        await asyncio.sleep(assigned.pause_s())
        if self.held.get(feed.key) is not assigned:
            return
        try:
            self._add(await self._opener.branch_off(feed), assigned)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail({feed.key: assigned}, as_ours(error, feed.source), feed.pending_since_s)

    def _fail(
        self, failed: Mapping[TopicPartition, Assignment], error: ArchiverError, pending_since_s: float | None = None
    ) -> None:
        """Log why partitions are not archived, and open them again after a pause. Only their removal is final."""
        still_ours = [key for key, assigned in failed.items() if self.held.get(key) is assigned]
        now_s = self._sink.clock()
        pauses_s = [failed[key].fail(error, now_s, pending_since_s) for key in still_ours]
        self._failed |= {key: failed[key] for key in still_ours}
        if not isinstance(error, TopicGoneError):
            for topic, _ in still_ours:
                self._sink.ledger.failed(topic, cause_of_failure(error))
        if still_ours:
            line = f"{error}; {_named(still_ours)} tried again in {min(pauses_s):.0f} s"
            lasts_s = max(now_s - (failed[key].failing_since_s or now_s) for key in still_ours)
            is_quiet = isinstance(error, LostTopicIdError) and lasts_s < LASTING_FAILURE_S
            self.troubles.note(error, line, *still_ours, level=_level(error), is_quiet=is_quiet)

    async def _open_again(self) -> None:
        """Open failed partitions again, together: a thousand partitions of a topic ask about it only once."""
        while True:
            await asyncio.sleep(FIRST_PAUSE_S / 2)
            now_s = self._sink.clock()
            for feed in self.feeds.values():
                if feed.is_caught_up and feed.key in self.held:
                    self.held[feed.key].note_durable()
            due = {key: assigned for key, assigned in self._failed.items() if assigned.open_again_at_s <= now_s}
            for key in due:
                del self._failed[key]
            still_ours = [key for key, assigned in due.items() if self.held.get(key) is assigned]
            if still_ours:
                self._begin(still_ours)


def _level(error: ArchiverError) -> int:
    if isinstance(error, TopicGoneError):
        return logging.INFO
    return logging.WARNING if error.retriable else logging.ERROR


def _named(partitions: Sequence[TopicPartition]) -> str:
    topic, number = min(partitions)
    others = f" and {spell_count(len(partitions) - 1, 'more partition')} are" if len(partitions) > 1 else " is"
    return f"{topic}-{number}{others}"
