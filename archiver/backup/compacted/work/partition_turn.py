"""Works on one assigned compacted partition: surveys storage, lets the turn decide, and carries out the decision."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from archiver.archive.copies.moments import LeftNote, Moment, MomentNote
from archiver.archive.copies.roles import Generation, RoleEntry, RoleLog, put_entry, read_newest_entry
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.notes.topics import PartitionSource
from archiver.backup.compacted.turn import freshness
from archiver.backup.compacted.turn.current_copy_check import CurrentCopyCheck
from archiver.backup.compacted.turn.reading import CopyFeedWatch
from archiver.backup.compacted.turn.turn_decisions import (
    PASSIVATE,
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
    StoredState,
    Tell,
    Turn,
    react,
    spell_role,
    would_begin,
)
from archiver.backup.compacted.turn.turn_schedule import StoredTimes, judge, share_of, turn_due_ms, turn_stagger_ms
from archiver.backup.compacted.work.copy_feeds import begun_moment, open_feed, progress_of, pump_of, resume, settle
from archiver.backup.compacted.work.instance_metrics import GIVEN_UP, LOOK_FAILURES, TURNS
from archiver.backup.compacted.work.turn_inputs import Parts, Terms
from archiver.backup.opening.role_watch import place_of
from archiver.backup.partition.feed import Feed
from archiver.backup.partition.log_agreement import CutLogCheck
from archiver.backup.reports.troubles import cause_of_failure
from archiver.errors import ArchiverError, CorruptSegmentError, StrangerError, TopicGoneError
from archiver.kafka.groups.group import Hint
from archiver.process.output.defects import as_ours
from archiver.process.running.failpoints import reach

log = logging.getLogger(__name__)

_MOST_LOOKS: Final = 20  # in a row, while each put an entry


class PartitionTurn:
    """`run` works until it is cancelled; `close` ends its feeds."""

    def __init__(
        self,
        parts: Parts,
        source: PartitionSource,
        terms: Callable[[], Terms],
        *,
        earlier: Sequence[int] = (),
        history_begin: int = 0,
        report_end: Callable[["PartitionTurn", ArchiverError], None],
    ) -> None:
        self.source = source
        self.place = place_of(source)
        self.turn = Turn(instance=parts.instance)
        self.readings: dict[int, CopyFeedWatch] = {}
        self.error: ArchiverError | None = None  # of the last survey
        self._parts = parts
        self._terms = terms
        stagger_ms = turn_stagger_ms(source.topic, source.partition, parts.times.length_ms)
        self._times = replace(parts.times, stagger_ms=stagger_ms)
        self._earlier = earlier  # the lives that this one continues
        self._history_begin = history_begin
        self._report_end = report_end
        self._left: dict[int, LeftNote] = {}  # of generations that were filled here earlier
        self._log: RoleLog | None = None  # None: without an entry
        self._first_seen_ms: int | None = None
        self.due_ms: int | None = None  # when the next copy is due, by the last survey
        self.failing_since_s: float | None = None  # the survey failed, or a generation could not be continued
        every_s = parts.times.takeover_ms / 1000  # the longest silence of an instance without consequences
        first_s = parts.sink.clock() + share_of(source.topic, source.partition, parts.times.takeover_ms) / 1000
        self.current_copy_check = CurrentCopyCheck(parts.catalog, self.place, first_s=first_s, every_s=every_s)
        self._cut_check = CutLogCheck(parts.client, source, clock=parts.sink.clock, patience_s=every_s)
        self._woken = asyncio.Event()
        self._was_told: tuple[object, ...] = ()

    @property
    def role_since_ms(self) -> int | None:
        """Put time of the entry that gave this instance its role for the partition."""
        entry = self._entry
        candidate = entry.candidate.number if entry is not None and entry.candidate is not None else None
        number = candidate if self.turn.role is Role.CATCH_UP or entry is None else entry.switched
        return self._first_seen_ms if self._log is None or number is None else self._log.put_ms(number)

    @property
    def _entry(self) -> RoleEntry | None:
        return None if self._log is None else self._log.entry

    @property
    def retention_ms(self) -> int | None:
        return self._terms().retention_ms

    # --- surveys

    def wake(self) -> None:
        """Survey the partition soon. On the loop only."""
        self._woken.set()

    def wake_by_hint(self) -> None:
        """Survey the partition soon, and check another instance's current copy, too: the hint may be about that."""
        if self.turn.holds is None:
            self.current_copy_check.hasten(self._parts.sink.clock())
        self.wake()

    async def run(self) -> None:
        is_woken = True
        while True:
            self._woken.clear()
            try:
                if is_woken or not await self._is_quiet():
                    await self._look_until_quiet()
                self.error = None
                self._parts.sink.troubles.note_works(("look", *self._key))
                if self.turn.is_all_filled and all(reading.feed.is_caught_up for reading in self.readings.values()):
                    self.failing_since_s = None
            except Exception as error:  # noqa: BLE001 - it is tried again, whatever it was
                found = as_ours(error, str(self.source))
                if str(found) != str(self.error):
                    line = f"{found}; looked at again in {self._parts.interval_s:.0f} s"
                    self._parts.sink.troubles.note(found, line, ("look", *self._key))
                self.error = found
                self._parts.counts.add(LOOK_FAILURES, self.source.topic)
                self._count_as_failing(found, self._parts.sink.clock())
                self._report_end(self, found)
            finally:
                resume(self._parts, self.readings.values())
            try:
                is_woken = await asyncio.wait_for(self._woken.wait(), self._parts.interval_s)
            except TimeoutError:
                is_woken = False

    async def _is_quiet(self) -> bool:
        """Return whether no work is due and the role log has not changed since the last survey, by a shared listing.

        No decision depends on it: in any other case the partition surveys by itself.
        """
        if self.error is not None or self.turn.candidacy is not None:
            return False
        role_log, entry = self._log, self._entry
        if entry is not None and entry.copy is not None and self.current_copy_check.is_due(self._parts.sink.clock()):
            return False
        known = {} if role_log is None else role_log.put_at
        if await self._parts.listings.numbers(self.place) != known:
            return False
        self._check_freshness()
        sight = StoredState(
            number=-1 if role_log is None else role_log.number,
            entry=entry,
            readers_end=0,
            has_history=False,
            dues=self._dues(),
        )
        _, effects = react(self.turn, Looked(sight))
        return not effects

    async def _look_until_quiet(self) -> None:
        for _ in range(_MOST_LOOKS):
            await settle(self._parts, list(self.readings.values()))
            seen = await self._look()
            if not await self._carry_out(self._tell(Looked(seen))):
                return
        raise ArchiverError(
            f"{self.source}: the role log got {_MOST_LOOKS} entries one after the other; look who writes it"
        )

    async def _look(self) -> StoredState:
        parts, place = self._parts, self.place
        now_s = parts.sink.clock()
        if self._first_seen_ms is None:
            self._first_seen_ms = parts.clock.earliest_ms(now_s)
        role_log = self._log = await parts.pool.call(read_newest_entry, parts.archive, place, self._log)
        self._check_freshness()
        entry = self._entry
        await self._look_over_holder(entry)
        candidate = entry.open_candidate if entry is not None else None
        ends: dict[int, CopyEnd] = {}
        readers_end = 0
        if entry is not None and candidate is not None and self._is_complete(candidate):
            # The end for readers is read first: the copy must reach it.
            given = await parts.pool.call(parts.catalog.end_for_readers, place, entry, self._history_begin)
            await self._cut_check.refuse_cut_log(given.archived)
            readers_end = given.offset
            state = await parts.pool.call(parts.catalog.look_over, place, candidate)
            ends[candidate.number] = CopyEnd(state.end, state.is_whole, state.has_expired)
            if not state.is_whole:
                self._give_up(candidate.number)
            if state.has_expired:  # an earlier process read it, and ended before its note
                self.readings[candidate.number].is_unsure = True
                self._tell(Broke(candidate.number))
        sight = StoredState(
            number=-1 if role_log is None else role_log.number,
            entry=entry,
            readers_end=readers_end,
            has_history=role_log is None
            and await parts.pool.call(parts.catalog.has_history, place, self._earlier, self._history_begin),
            ends=ends,
            dues=self._dues(),
        )
        if would_begin(self.turn, sight):
            sight = replace(sight, highest=await parts.pool.call(parts.catalog.highest_generation, place))
        return sight

    async def _look_over_holder(self, entry: RoleEntry | None) -> None:
        """Check the current copy if that is due: damage must be noticed even without other work."""
        parts, watch, now_s = self._parts, self.current_copy_check, self._parts.sink.clock()
        watch.note_holder(entry)
        if entry is not None and entry.copy is not None and watch.is_due(now_s):
            try:
                await parts.pool.call(watch.look, entry.copy, now_s, parts.clock.earliest_ms(now_s))
            except ArchiverError as error:
                line = f"{self.source}: the copy that is read could not be looked over: {error}"
                parts.sink.troubles.note(error, line, ("look", *self._key))

    def _give_up(self, generation: int) -> None:
        if self.turn.readings[generation].is_given_up:
            return
        log.error("%s: generation %d has a gap, or damage; it is begun anew", self.source, generation)
        self._parts.counts.add(GIVEN_UP, self.source.topic)
        self._tell(GaveUp(generation))

    def _is_complete(self, candidate: Generation) -> bool:
        """Return whether our candidate could take over now. If it never can, reads no object."""
        reading, is_own = self.turn.readings.get(candidate.number), candidate.instance == self._parts.instance
        return is_own and reading is not None and reading.is_complete and self.turn.may_hold(candidate.number)

    def _dues(self) -> Dues:
        self.due_ms = None
        if not self._terms().is_compacted:
            return Dues(is_turn_due=False, is_overdue=False, is_candidate_heard=True)
        parts = self._parts
        told = StoredTimes(
            now_ms=parts.clock.earliest_ms(parts.sink.clock()),
            first_seen_ms=self._first_seen_ms or 0,
            put_ms={} if self._log is None else {number: epoch_ms(at) for number, at in self._log.put_at.items()},
            heard_ms={one: epoch_ms(heard.heard_at) for one, heard in parts.notes.heard(self.place).items()},
            damaged_since_ms=self.current_copy_check.since_ms,
        )
        self.due_ms = turn_due_ms(self._entry, told, self._times, parts.instances)
        return judge(self._entry, told, self._times, parts.instances, begins_first=parts.begins_first)

    def _check_freshness(self) -> None:
        for reading in self.readings.values():
            reading.check_time()
            if reading.is_unsure:
                self._tell(Broke(reading.generation))

    def _tell(self, event: Event) -> tuple[Effect, ...]:
        self.turn, effects = react(self.turn, event)
        return effects

    # --- decisions

    async def _carry_out(self, effects: Sequence[Effect]) -> bool:
        """Carry out decisions, in this order. Returns whether an entry was put; the next survey shows the result."""
        self._announce()
        has_put, failed = False, None
        for effect in effects:
            match effect:
                case Close(generation):
                    self._close(generation)
                case Open(generation):
                    try:
                        await self._open(generation)
                    except ArchiverError as error:  # the other decisions do not depend on it
                        failed = error
                        self._note_failure(generation, error)
                case Tell(kind):
                    if kind == PASSIVATE:
                        self._parts.counts.add(TURNS, self.source.topic)
                    self._parts.publish(kind, self.place, self.turn.holds or 0)
                case Append(number, entry):
                    reach(f"role.{entry.type}.decided")
                    await self._parts.pool.call(put_entry, self._parts.archive, self.place, number, entry)
                    reach(f"role.{entry.type}.put")
                    has_put = True
        if failed is not None and not has_put:
            raise failed
        return has_put

    def _note_failure(self, generation: int, error: ArchiverError) -> None:
        """Give up a candidate with a damaged or foreign object: a retry would not help."""
        if isinstance(error, CorruptSegmentError | StrangerError):
            self._tell(GaveUp(generation))

    async def _open(self, generation: int) -> None:
        """Fill a generation from the end of its objects. If that fails, the next survey retries."""
        parts = self._parts
        pump = next((one for one in parts.pumps if self._key not in one.feeds), None)
        if pump is None:
            return
        begun = begun_moment(parts, self.place, generation, self._log, self._left.get(generation))
        reading = CopyFeedWatch(
            generation=generation,
            clock=parts.clock,
            now_s=parts.sink.clock,
            limit_ms=lambda: self._terms().kept_ms,
            tell=self._tell,
            wake=partial(_call, asyncio.get_running_loop(), self.wake),
            wants_end=lambda: self.turn.candidacy == generation and self.turn.may_hold(generation),
            may_put=lambda: self.turn.may_put(generation),
            fresh=freshness.begun(begun or Moment(0, 0)),
            is_unsure=begun is None,
            set_back_ms=parts.clock.set_back_ms,
        )
        feed = await open_feed(parts, self.source, self.place.copy_key(self._own(generation)), reading)
        reading.watch(feed)
        self.readings[generation] = reading
        self._tell(Opened(generation, feed.writer.objects_end, not reading.is_unsure))
        reading.note_set_back(feed)  # a copy that begins above offset 0 has nothing before: the log begins there
        reading.report_durable()
        pump.add(feed)
        reach("reading.opened")

    def _own(self, generation: int) -> Generation:
        return Generation(instance=self._parts.instance, number=generation)

    def notes(self) -> list[MomentNote]:
        """Return the progress of generations that are filled here."""
        return [MomentNote(**progress_of(self.place, reading)) for reading in self.readings.values()]

    def _leave(self, reading: CopyFeedWatch) -> None:
        """Stop filling a generation that another process continues: that one needs position and time of the last read."""
        del self.readings[reading.generation]
        left_ms = self._parts.clock.earliest_ms(self._parts.sink.clock())
        left = LeftNote(**progress_of(self.place, reading), left_ms=left_ms)
        self._left[reading.generation] = left
        self._parts.notes.remember(left)

    def _close(self, generation: int) -> None:
        reading = self.readings.pop(generation, None)
        if reading is not None:
            pump_of(self._parts, reading.feed).drop(reading.feed)
            reach("reading.closed")

    # --- ended feeds, and the end

    @property
    def _key(self) -> tuple[str, int]:
        return self.source.topic, self.source.partition

    def fills(self, feed: Feed) -> bool:
        return any(reading.feed is feed for reading in self.readings.values())

    def note_durable(self, feed: Feed) -> None:
        """Note durable records of a generation that is filled here: they end the failure of the partition."""
        if self.fills(feed):
            self.failing_since_s = None

    def note_ended(self, feed: Feed) -> None:
        """Note that a feed has failed: the generation continues at the next survey, at the end of its objects."""
        for generation, reading in list(self.readings.items()):
            if reading.feed is feed and feed.ending.error is not None:
                self._leave(reading)
                left = {number: one for number, one in self.turn.readings.items() if number != generation}
                self.turn = replace(self.turn, readings=left)
                self._note_failure(generation, feed.ending.error)
                line = f"{feed.ending.error}; generation {generation} continues at the next look"
                self._parts.sink.troubles.note(feed.ending.error, line, self._key)
                self._parts.sink.ledger.failed(self.source.topic, cause_of_failure(feed.ending.error))
                now_s = self._parts.sink.clock()
                self._count_as_failing(feed.ending.error, feed.unsaved_since_s(now_s) or now_s)
                self._report_end(self, feed.ending.error)

    def _count_as_failing(self, error: ArchiverError, since_s: float) -> None:
        """Count the partition as failing until a put succeeds, or a survey finds no work; not for a deleted topic."""
        if not isinstance(error, TopicGoneError):
            self.failing_since_s = self.failing_since_s or since_s

    def group_hint(self, archive_mark: str) -> Hint | None:
        """Return the stored end of the current copy, as a commit that shows its lag; None: it is not filled here."""
        reading = None if self.turn.holds is None else self.readings.get(self.turn.holds)
        if reading is None:
            return None
        return Hint(
            topic=self.source.topic,
            partition=self.source.partition,
            offset=reading.feed.writer.durable_position,
            base=None,
            archive=archive_mark,
            generation=reading.generation,
        )

    async def close(self, timeout_s: float) -> None:
        """Put held records, and end all feeds here."""
        for reading in self.readings.values():
            reading.wants_end = lambda: False
        feeds = [reading.feed for reading in self.readings.values()]
        fed = [(pump, [one for one in feeds if pump.feeds.get(one.key) is one]) for pump in self._parts.pumps]
        for dropped in await asyncio.gather(*(pump.close(mine, timeout_s) for pump, mine in fed)):
            for error in dropped:
                log.warning("%s", error)
        for reading in list(self.readings.values()):
            self._leave(reading)
        self.current_copy_check.forget()

    def let_go(self) -> None:
        """End all feeds here, because another process has the partition."""
        for reading in list(self.readings.values()):
            pump_of(self._parts, reading.feed).drop(reading.feed)
            self._leave(reading)
        self.current_copy_check.forget()

    def _announce(self) -> None:
        """Log the role of the partition, once."""
        turn = self.turn
        entry = turn.sight.entry if turn.sight is not None else None
        told = (turn.role, turn.holds, turn.candidacy, entry.holder if entry is not None else None)
        if told == self._was_told:
            return
        self._was_told = told
        log.info("%s: %s", self.source, spell_role(turn))


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(work)
