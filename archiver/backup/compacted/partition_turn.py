"""One compacted partition in this process's hands: it looks at storage, lets the turn decide, and carries out what was decided."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from archiver.archive.handle import Archive
from archiver.archive.inventory import position_of_copy
from archiver.archive.moments import HeardMoment, Moment
from archiver.archive.roles import (
    CompleteCopy,
    Generation,
    RoleLog,
    RolePlace,
    put_entry,
    read_role_log,
)
from archiver.archive.segment_facts import HoleCause
from archiver.archive.store_clock import epoch_ms
from archiver.archive.topics import PartitionSource
from archiver.backup.compacted import freshness
from archiver.backup.compacted.dues import Told, TurnTimes, judge
from archiver.backup.compacted.reading import Clock, OpenReading
from archiver.backup.compacted.sights import ReadersEnd, copy_key, end_of_readers, has_history, look_over_copy
from archiver.backup.compacted.turn import (
    Append,
    Broke,
    Close,
    CopyEnd,
    Dues,
    Effect,
    Event,
    GaveUp,
    Looked,
    Open,
    Opened,
    Role,
    Sight,
    Tell,
    Turn,
    react,
)
from archiver.backup.feed import Feed
from archiver.backup.log_agreement import is_cut_below
from archiver.backup.partition_writer import PartitionWriter, refuse_stranger
from archiver.backup.pump import Pump
from archiver.backup.role_watch import place_of
from archiver.backup.segment_home import CopyHome
from archiver.backup.segment_sink import SegmentSink
from archiver.errors import ArchiverError, CutBackError
from archiver.kafka.client import KafkaClient
from archiver.process.backoff import Backoff
from archiver.process.defects import as_ours
from archiver.process.failpoints import reach
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

_MOST_LOOKS: Final = 20  # one after the other, while each put an entry
_SETTLE_S: Final = 60.0  # so long a candidate that has come to the end stands still for its puts
_STEP_S: Final = 0.02
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the topic's configs say now."""

    is_compacted: bool
    kept_ms: int  # how long tombstones are kept, less the margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all partitions of a process share."""

    instance: str
    instances: Sequence[str]
    begins_first: bool
    times: TurnTimes  # but for the stagger
    interval_s: float
    client: KafkaClient
    pumps: Sequence[Pump]  # a partition has a feed in each, where two of its generations are filled
    sink: SegmentSink
    pool: Workers
    clock: Clock
    heard: Callable[[RolePlace], Mapping[Generation, HeardMoment]]  # what processes noted of its generations
    publish: Callable[[str, RolePlace, int], None]

    @property
    def archive(self) -> Archive:
        return self.sink.archive


class PartitionTurn:
    """`run` works until it is cancelled; `close` ends what it fills."""

    def __init__(
        self,
        parts: Parts,
        source: PartitionSource,
        terms: Callable[[], Terms],
        *,
        history_begin: int = 0,
        stagger_ms: int = 0,
        report_end: Callable[["PartitionTurn", ArchiverError], None],
    ) -> None:
        self.source = source
        self.place = place_of(source)
        self.turn = Turn(instance=parts.instance)
        self.readings: dict[int, OpenReading] = {}
        self.error: ArchiverError | None = None  # of the last look
        self._parts = parts
        self._terms = terms
        self._times = replace(parts.times, stagger_ms=stagger_ms)
        self._history_begin = history_begin
        self._report_end = report_end
        self._log = RoleLog(None, {})
        self._first_seen_ms: int | None = None
        self._woken = asyncio.Event()
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._open_again_s = 0.0
        self._was_told: tuple[object, ...] = ()

    # --- from look to look

    def wake(self) -> None:
        """Have the partition looked at soon. On the loop only."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._look_until_quiet()
                self.error = None
            except Exception as error:  # noqa: BLE001 - it is tried again, whatever it was
                found = as_ours(error, str(self.source))
                if str(found) != str(self.error):
                    log.warning("%s; looked at again in %.0f s", found, self._parts.interval_s)
                self.error = found
                self._report_end(self, found)
            finally:
                self._resume()
            try:
                await asyncio.wait_for(self._woken.wait(), self._parts.interval_s)
            except TimeoutError:
                continue

    async def _look_until_quiet(self) -> None:
        for _ in range(_MOST_LOOKS):
            await self._settle()
            seen = await self._look()
            if not await self._carry_out(self._tell(Looked(seen))):
                return
        raise ArchiverError(
            f"{self.source}: the role log got {_MOST_LOOKS} entries one after the other; look who writes it"
        )

    async def _look(self) -> Sight:
        parts, place = self._parts, self.place
        now_s = parts.sink.clock()
        if self._first_seen_ms is None:
            self._first_seen_ms = parts.clock.earliest_ms(now_s)
        role_log = self._log = await parts.pool.call(read_role_log, parts.archive, place, self._log.newest)
        self._check_freshness()
        entry = None if role_log.newest is None else role_log.newest.entry
        candidate = entry.open_candidate if entry is not None else None
        ends: dict[int, CopyEnd] = {}
        readers_end = 0
        if entry is not None and candidate is not None and self._is_complete(candidate):
            # What readers are given is asked for first: the copy must reach it.
            given = await parts.pool.call(end_of_readers, parts.archive, place, entry, self._history_begin)
            await self._refuse_cut_log(given)
            readers_end = given.offset
            end = await parts.pool.call(look_over_copy, parts.archive, place, candidate)
            ends[candidate.number] = end
            if not end.is_whole:
                log.error("%s: generation %d has a gap, or damage; it is begun anew", self.source, candidate.number)
                self._tell(GaveUp(candidate.number))
        is_first = role_log.newest is None
        return Sight(
            number=-1 if role_log.newest is None else role_log.newest.number,
            entry=entry,
            readers_end=readers_end,
            has_history=is_first and await parts.pool.call(self._has_history),
            ends=ends,
            dues=self._dues(role_log),
        )

    async def _refuse_cut_log(self, given: ReadersEnd) -> None:
        """Raise CutBackError where the log is not the one that readers are given: a copy of it belongs to another life.

        Whoever reads on behind the cut finds that out by itself. Who began anew, with no other at work, reads no such place.
        """
        for archived in given.archived:
            if await is_cut_below(self._parts.client, self._key, archived):
                raise CutBackError(
                    f"{self.source}: what readers are given of it reaches offset {archived.next}, and the log there is not the one"
                    " that was read: the log was cut back"
                )

    def _has_history(self) -> bool:
        return self._history_begin > 0 or has_history(self._parts.archive, self.place)

    def _is_complete(self, candidate: Generation) -> bool:
        reading = self.turn.readings.get(candidate.number)
        return candidate.instance == self._parts.instance and reading is not None and reading.is_complete

    def _dues(self, role_log: RoleLog) -> Dues:
        if not self._terms().is_compacted:
            return Dues(is_turn_due=False, is_overdue=False, is_candidate_heard=True)
        parts = self._parts
        told = Told(
            now_ms=parts.clock.earliest_ms(parts.sink.clock()),
            first_seen_ms=self._first_seen_ms or 0,
            put_ms={number: epoch_ms(at) for number, at in role_log.put_at.items()},
            heard_ms={one: epoch_ms(heard.heard_at) for one, heard in parts.heard(self.place).items()},
        )
        entry = None if role_log.newest is None else role_log.newest.entry
        return judge(entry, told, self._times, parts.instances, begins_first=parts.begins_first)

    def _check_freshness(self) -> None:
        for reading in self.readings.values():
            reading.check_time()
            if reading.is_unsure:
                self._tell(Broke(reading.generation))

    async def _settle(self) -> None:
        """Have all that a candidate holds put, which stands still because it has come to the end; and tell what is in storage."""
        until_s = self._parts.sink.clock() + _SETTLE_S
        for reading in list(self.readings.values()):
            feed = reading.feed
            while feed.is_paused and not feed.ended.is_set() and (feed.is_busy or feed.writer.holds_records):
                if feed.put_again_at_s is not None or self._parts.sink.clock() > until_s:
                    break
                feed.writer.close_early()
                self._pump_of(feed).advance(feed)
                await asyncio.sleep(_STEP_S)
            reading.report_durable()

    def _resume(self) -> None:
        for reading in self.readings.values():
            if reading.feed.is_paused:
                reading.feed.is_paused = False
                reading.try_again_s = self._parts.sink.clock() + self._parts.interval_s
                self._pump_of(reading.feed).advance(reading.feed)

    def _tell(self, event: Event) -> tuple[Effect, ...]:
        self.turn, effects = react(self.turn, event)
        return effects

    # --- what was decided

    async def _carry_out(self, effects: Sequence[Effect]) -> bool:
        """Do what was decided, in this order. Returns whether an entry was put: whatever came of it, the next look tells."""
        self._announce()
        has_put = False
        for effect in effects:
            match effect:
                case Close(generation):
                    self._close(generation)
                case Open(generation):
                    await self._open(generation)
                case Tell(kind):
                    self._parts.publish(kind, self.place, self.turn.holds or 0)
                case Append(number, entry):
                    reach(f"role.{entry.type}.decided")
                    await self._parts.pool.call(put_entry, self._parts.archive, self.place, number, entry)
                    reach(f"role.{entry.type}.put")
                    has_put = True
        return has_put

    async def _open(self, generation: int) -> None:
        """Fill a generation from where its objects end. If that fails, the next look wants it again."""
        parts = self._parts
        pump = next((one for one in parts.pumps if self._key not in one.feeds), None)
        if pump is None or parts.sink.clock() < self._open_again_s:
            return
        begun = self._begun(generation)
        reading = OpenReading(
            generation=generation,
            clock=parts.clock,
            now_s=parts.sink.clock,
            limit_ms=lambda: self._terms().kept_ms,
            tell=self._tell,
            wake=self._wake_from_anywhere(),
            wants_end=lambda: self.turn.candidacy == generation,
            may_put=lambda: self.turn.may_put(generation),
            fresh=freshness.begun(begun or Moment(0, 0)),
            is_unsure=begun is None,
        )
        feed = await self._feed(generation, reading)
        reading.watch(feed)
        self.readings[generation] = reading
        self._tell(Opened(generation, feed.writer.objects_end, not reading.is_unsure))
        self._tell_position(reading)
        pump.add(feed)
        reach("reading.opened")

    def _tell_position(self, reading: OpenReading) -> None:
        """A copy that begins above offset 0 has nothing before: the log begins there."""
        reading.note_set_back(reading.feed)
        reading.report_durable()

    def _begun(self, generation: int) -> Moment | None:
        """Return the moment from which a generation goes on; None: it broke the rule, and that holds for good."""
        entry = self._log.newest.entry if self._log.newest is not None else None
        copy = entry.holder if entry is not None else None
        if isinstance(copy, CompleteCopy) and copy.generation == self._own(generation) and not copy.is_sure:
            return None
        heard = self._parts.heard(self.place).get(self._own(generation))
        if heard is None:
            put_at = self._log.put_at.get(generation)  # before that, nothing of it was read
            return None if put_at is None else Moment(epoch_ms(put_at), 0)
        return heard.moment

    def _own(self, generation: int) -> Generation:
        return Generation(instance=self._parts.instance, number=generation)

    async def _feed(self, generation: int, reading: OpenReading) -> Feed:
        parts, source = self._parts, self.source
        copy = copy_key(self.place, self._own(generation))
        end = await parts.pool.call(position_of_copy, parts.archive, copy)
        if end.key:
            refuse_stranger(source, end.key, topic_id=end.topic_id, cluster_id=end.cluster_id)
        home = CopyHome(parts.archive, copy)
        writer = PartitionWriter(source, end, parts.sink, confirm=reading.refuse_put, home=home)
        if not end.key:
            log_start = (await parts.client.offsets([self._key]))[self._key].log_start
            if log_start > 0:  # a clearing looks at it: a copy that begins lower has more
                writer.skip(log_start, HoleCause.EXPIRED, is_news=False)
        return Feed(writer=writer)

    def _wake_from_anywhere(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        return lambda: _call(loop, self.wake)

    def _close(self, generation: int) -> None:
        reading = self.readings.pop(generation, None)
        if reading is not None:
            self._pump_of(reading.feed).drop(reading.feed)
            reach("reading.closed")

    # --- feeds that end, and the end

    @property
    def _key(self) -> tuple[str, int]:
        return self.source.topic, self.source.partition

    def _pump_of(self, feed: Feed) -> Pump:
        return next((one for one in self._parts.pumps if one.feeds.get(feed.key) is feed), self._parts.pumps[0])

    def fills(self, feed: Feed) -> bool:
        return any(reading.feed is feed for reading in self.readings.values())

    def note_ended(self, feed: Feed) -> None:
        """Take in that a feed has ended with an error: the generation goes on after a pause, where its objects end."""
        for generation, reading in list(self.readings.items()):
            if reading.feed is feed and feed.error is not None:
                del self.readings[generation]
                left = {number: one for number, one in self.turn.readings.items() if number != generation}
                self.turn = replace(self.turn, readings=left)
                pause_s = self._backoff.next_s()
                self._open_again_s = self._parts.sink.clock() + pause_s
                log.warning("%s; generation %d is gone on with in %.0f s", feed.error, generation, pause_s)
                self._report_end(self, feed.error)

    def note_durable(self) -> None:
        self._backoff.reset()

    async def close(self, timeout_s: float) -> None:
        """Put what is held, and end all that is filled here."""
        for reading in self.readings.values():
            reading.wants_end = lambda: False
        feeds = [reading.feed for reading in self.readings.values()]
        for pump in self._parts.pumps:
            mine = [feed for feed in feeds if pump.feeds.get(feed.key) is feed]
            for error in await pump.close(mine, timeout_s):
                log.warning("%s", error)
        self.readings.clear()

    def let_go(self) -> None:
        """End all that is filled here, for somebody else has the partition."""
        for reading in self.readings.values():
            self._pump_of(reading.feed).let_go(reading.feed)
        self.readings.clear()

    def _announce(self) -> None:
        """Log what has become of the partition, once."""
        turn = self.turn
        entry = turn.sight.entry if turn.sight is not None else None
        told = (turn.role, turn.holds, turn.candidacy, entry.holder if entry is not None else None)
        if told == self._was_told:
            return
        self._was_told = told
        what = {
            Role.ACTIVE: f"this instance is active, with generation {turn.holds}",
            Role.CATCH_UP: f"this instance catches up, in generation {turn.candidacy}",
            Role.PASSIVE: "this instance is passive",
            Role.UNKNOWN: "nothing is known yet",
        }[turn.role]
        also = f"; it makes the next copy, too, in generation {turn.candidacy}" if turn.holds and turn.candidacy else ""
        log.info("%s: %s%s", self.source, what, also)


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(work)
