"""A world small enough to try everything that can happen in it: a broker that compacts, a store, and the processes of two instances.

Each step is one effect on the broker, on the store, or on the memory of one process. A process that is not scheduled is paused;
one that is scheduled again after others went on has woken up late; a crash takes its memory. The clock moves when it likes.

Nothing of the machine that is tried decides here what is right: `problem` judges by the whole history of the log, which no
process ever sees, and by what lies in the store.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.moments import Moment
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry
from archiver.backup.compacted.clearing.clearing_rules import is_needless
from archiver.backup.compacted.turn import freshness as fresh
from archiver.backup.compacted.turn import turn_decisions as turns

RETENTION = 2  # ticks that a tombstone is kept
HISTORY = ("topics/", 0)
ENDED_LIFE = ("a, in the life before", 0)  # the last complete copy of a life that has ended


class Record(NamedTuple):
    key: str  # empty: a transaction's marker
    is_tombstone: bool = False


class Stored(NamedTuple):
    """An object: of which generation, what it covers, and what it tells of records that it lacks."""

    generation: tuple[str, int]
    base: int
    next: int
    offsets: tuple[int, ...]
    until: int = 0  # below that lie the records that replaced those that it lacks; 0: it lacks none
    # Those of other generations that lack some, too, and were put first.
    after: frozenset[tuple[tuple[str, int], int]] = frozenset()
    has_expired: bool = False  # records behind one that was read expired before they were read


class Process(NamedTuple):
    """A process of an instance; what it remembers besides its turn is what it was given, and has not worked off yet."""

    instance: str
    turn: turns.Turn
    freshness: tuple[tuple[int, fresh.Freshness], ...] = ()
    buffers: tuple[tuple[int, int, int, tuple[int, ...], int], ...] = ()  # generation, base, position, offsets, until
    expired: tuple[int, ...] = ()  # generations whose buffer has a hole of expired records
    looked: tuple[int, RoleEntry | None] | None = None  # the newest entry was read, and nothing listed yet
    append: turns.Append | None = None
    answer: tuple[int, int, int, tuple[int, ...], int, bool] | None = None  # of a fetch: on its way


class World(NamedTuple):
    written: int  # so much of the script is in the log
    present: frozenset[int]  # offsets that compaction has left
    horizons: tuple[tuple[int, int], ...]  # of tombstones: offset, since when they may go
    clock: int
    entries: tuple[tuple[int, int, RoleEntry], ...]  # number, when it was put
    objects: frozenset[Stored]
    moments: tuple[tuple[tuple[str, int], Moment], ...]
    processes: tuple[Process, ...]
    clearing: tuple[Stored, ...]  # what a clearer has decided to delete: some process, at some time
    crashes: int  # still to come
    losses: int  # objects of a candidate that somebody deletes
    told_end: int  # the furthest end that readers were given
    shown: tuple[tuple[str, int], ...]  # by key, the newest record that readers were given
    log_start: int = 0  # retention has taken what lies below


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much of everything there is."""

    script: tuple[Record, ...]
    written: int
    entries: int
    clock: int
    crashes: int = 1
    losses: int = 0
    processes: tuple[str, ...] = ("a", "b")
    frees_numbers: bool = False
    follower: bool = False
    expires: int = 0  # up to where retention may take records
    chunk: int = 2
    late_puts: bool = True  # a process may pause between a fetch and its put
    is_turned: bool = False  # it begins when b has taken over


class Rules:
    """What a mutant gets wrong. The plain rules get nothing wrong."""

    def moment_at(self, asked: int, received: int) -> int:
        del received
        return asked

    def believes_leader(self, *, is_of_leader: bool) -> bool:
        return is_of_leader

    def event(self, event: turns.Event) -> turns.Event:
        return event

    def ends(self, objects: list[Stored]) -> turns.CopyEnd:
        return coverage(objects)

    def react(self, turn: turns.Turn, event: turns.Event) -> tuple[turns.Turn, tuple[turns.Effect, ...]]:
        return turns.react(turn, event)

    def after_put(self, process: Process, append: turns.Append, *, is_won: bool) -> Process:
        del append, is_won
        return process

    def lacks_until(self, until: int) -> int:
        return until

    def complete_to(self, entry: RoleEntry, listed: list[Stored]) -> int:
        return settled_to(_of(listed, _name(entry.holder) or HISTORY), 0)

    def to_clear(self, world: World, number: int, entry: RoleEntry, listed: list[Stored]) -> list[Stored]:
        """Decide on an entry, and on what is listed after it was read."""
        del world
        names = {one.generation for one in listed} - {ENDED_LIFE, HISTORY}
        if end_of_holder(entry, listed) is None:
            return []
        ends = {name: max(one.next for one in _of(listed, name)) for name in names}
        complete_to = self.complete_to(entry, listed)
        gone = {
            (a, n)
            for (a, n), end in ends.items()
            if is_needless(number, entry, Generation(instance=a, number=n), end=end, complete_to=complete_to)
        }
        return [one for one in listed if one.generation in gone]


def coverage(objects: list[Stored]) -> turns.CopyEnd:
    """Where objects end by the read rule, from offset 0 on, and whether nothing is missing between them."""
    reached, is_whole = 0, True
    for one in sorted(objects, key=lambda one: (one.base, one.next)):
        if one.base > reached:
            is_whole = False
            break
        reached = max(reached, one.next)
    return turns.CopyEnd(reached, is_whole, has_expired=any(one.has_expired for one in objects))


def settled_to(objects: list[Stored], start: int) -> int:
    """Up to where objects prove that each record is there, or a later one that replaced it, if that is so up to an offset."""
    reached, until, settled = start, 0, start
    for one in sorted(objects, key=lambda one: (one.base, -one.next)):
        if one.base > reached:
            break
        if one.next > reached:
            reached, until = one.next, max(until, one.until)
            settled = reached if until <= reached else settled
    return settled


def readers(objects: list[Stored], begin: int = 0) -> dict[int, Stored]:
    """By offset, the object that a reader of one generation takes, from an offset on."""
    reached, found = begin, dict[int, Stored]()
    for one in sorted(objects, key=lambda one: (one.base, -one.next)):
        if one.base <= reached < one.next:
            found |= dict.fromkeys(range(reached, one.next), one)
            reached = one.next
    return found


def _of(objects: "frozenset[Stored] | list[Stored]", generation: tuple[str, int]) -> list[Stored]:
    return [one for one in objects if one.generation == generation]


def _name(copy: object) -> tuple[str, int] | None:
    if isinstance(copy, CompleteCopy):
        return copy.generation.instance, copy.generation.number
    return HISTORY if copy == "topics/" else None


def end_of_holder(entry: RoleEntry | None, objects: "frozenset[Stored] | list[Stored]") -> int | None:
    """Where the holder alone ends; None when it is not whole."""
    name = _name(entry.holder) if entry else None
    if name is None or entry is None:
        return None
    end = coverage(_of(objects, name))
    promised = entry.holder.next if isinstance(entry.holder, CompleteCopy) else 0
    if not end.is_whole or end.next < promised:
        return None
    return max(end.next, entry.holder.position if isinstance(entry.holder, CompleteCopy) else 0)


@lru_cache(1 << 16)
def given(entry: RoleEntry | None, objects: frozenset[Stored]) -> tuple[int, Sequence[int]] | None:
    """What readers are given: up to where, and which offsets; None when the holder is not whole."""
    if entry is None or entry.holder is None:
        return 0, ()
    end = end_of_holder(entry, objects)
    name, behind = _name(entry.holder), _name(entry.replaced)
    if end is None or name is None:
        return None
    position = entry.holder.position if isinstance(entry.holder, CompleteCopy) else end
    chosen = readers(_of(objects, name))
    if behind is not None:
        settled = settled_to(_of(objects, name), position)
        former = readers(
            _of(objects, behind), min(one.base for one in _of(objects, behind)) if _of(objects, behind) else 0
        )
        chosen |= {
            at: one for at, one in former.items() if at >= settled and at in chosen and _is_first(one, chosen[at])
        }
        chosen |= {at: one for at, one in former.items() if at >= end}
    return max([end, *(at + 1 for at in chosen)]), sorted(at for at, one in chosen.items() if at in one.offsets)


def _is_first(former: Stored, held: Stored) -> bool:
    """Whether readers take the object of the copy before: it has all, or was put first, and the other one lacks some."""
    return held.until > 0 and (not former.until or (former.generation, former.base) in held.after)


def newest(world: World) -> tuple[int, RoleEntry] | None:
    return max(((number, entry) for number, _, entry in world.entries), default=None, key=lambda one: one[0])


def problem(world: World, script: tuple[Record, ...]) -> str:
    """What is wrong with what lies in the store: empty when all is right."""
    if not _of(world.objects, ENDED_LIFE):
        return "the last copy of an ended life is gone"
    found = newest(world)
    if found is None or found[1].holder is None:
        return ""
    entry = found[1]
    readers = given(entry, world.objects)
    if readers is None:
        return "what holds is not whole"
    end, offsets = readers
    if end < world.told_end:
        return f"readers are given all up to {end}, and were given all up to {world.told_end}"
    position = entry.holder.position if isinstance(entry.holder, CompleteCopy) else 0
    is_sure = not isinstance(entry.holder, CompleteCopy) or entry.holder.is_sure
    shown = dict(world.shown)
    now = _latest(script, offsets)
    for key in {record.key for record in script if record.key}:
        before = [at for at in range(position) if script[at].key == key]
        last = max([*before, shown.get(key, -1)])
        wrong = _wrong_of_key(script, key, last, now.get(key, -1), position, is_sure=is_sure) if last >= 0 else ""
        if wrong and not (last < world.log_start and not script[last].is_tombstone):
            return wrong
    return ""


def hides_expired(world: World) -> str:
    """Say so where the copy that is read counts as sure, though records expired before it had them."""
    found = newest(world)
    holder = None if found is None else found[1].holder
    is_sure = isinstance(holder, CompleteCopy) and holder.is_sure
    has_expired = any(one.has_expired for one in _of(world.objects, _name(holder) or HISTORY))
    return "records expired before the copy had them, and it counts as sure" if is_sure and has_expired else ""


def _wrong_of_key(script: tuple[Record, ...], key: str, last: int, has: int, position: int, *, is_sure: bool) -> str:
    """Say what is wrong with a key whose last record is at `last`, where readers are given the one at `has` (-1: none)."""
    if has >= last:
        return ""
    if script[last].is_tombstone:
        return f"{key} was deleted at {last}, and its value at {has} is back" if has >= 0 and is_sure else ""
    is_replaced = any(script[at].key == key for at in range(last + 1, position))
    return "" if is_replaced else f"the record of {key} at {last} is gone; there is one at {has}"


def _latest(script: tuple[Record, ...], offsets: Sequence[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for offset in offsets:
        found[script[offset].key] = max(offset, found.get(script[offset].key, -1))
    return found


def remember(world: World, script: tuple[Record, ...]) -> World:
    """Note what readers were given until now."""
    found = newest(world)
    readers = given(found[1], world.objects) if found else None
    if readers is None:
        return world
    shown = dict(world.shown)
    for key, offset in _latest(script, readers[1]).items():
        shown[key] = max(offset, shown.get(key, -1))
    return world._replace(told_end=max(world.told_end, readers[0]), shown=tuple(sorted(shown.items())))


def begin_world(bounds: Bounds, history: tuple[Stored, ...] = ()) -> World:
    return World(
        written=bounds.written,
        present=frozenset(at for at in range(bounds.written) if bounds.script[at].key),
        horizons=(),
        clock=0,
        entries=(),
        objects=frozenset((*history, Stored(ENDED_LIFE, 0, 1, (0,)))),
        moments=(),
        processes=tuple(Process(name, turns.Turn(instance=name)) for name in bounds.processes),
        clearing=(),
        crashes=bounds.crashes,
        losses=bounds.losses,
        told_end=0,
        shown=(),
    )


class Model:
    """All steps that can be taken in a world."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()
        self._ends: dict[tuple[frozenset[Stored], str, int], Mapping[int, turns.CopyEnd]] = {}

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._broker(world)
        yield from self._faults(world)
        yield from self._clear(world)
        for number, process in enumerate(world.processes):
            for name, changed, after in self._process(world, process):
                others = (*after.processes[:number], changed, *after.processes[number + 1 :])
                yield f"{process.instance}{number} {name}", after._replace(processes=others)

    # --- the broker

    def _broker(self, world: World) -> Iterator[tuple[str, World]]:
        script = self.bounds.script
        if world.written < len(script):
            offset = world.written
            present = world.present | ({offset} if script[offset].key else set())
            yield f"write {offset}", world._replace(written=offset + 1, present=present)
        if world.clock < self.bounds.clock:
            yield "tick", world._replace(clock=world.clock + 1)
        if world.log_start < min(self.bounds.expires, world.written):
            present = world.present - {world.log_start}
            horizons = tuple(one for one in world.horizons if one[0] in present)
            yield "expire", world._replace(log_start=world.log_start + 1, present=present, horizons=horizons)
        cleaned = self._cleaned(world)
        if cleaned != world:
            yield "clean", cleaned

    def _cleaned(self, world: World) -> World:
        script = self.bounds.script
        last = {script[at].key: at for at in sorted(world.present)}
        left = {at for at in world.present if last[script[at].key] == at}
        tombstones = [at for at in sorted(left) if script[at].is_tombstone]
        horizons = {at: dict(world.horizons).get(at, world.clock + RETENTION) for at in tombstones}
        left -= {at for at, due in horizons.items() if due <= world.clock}
        kept = tuple(sorted((at, due) for at, due in horizons.items() if at in left))
        return world._replace(present=frozenset(left), horizons=kept)

    # --- faults

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        if world.crashes:
            for number, process in enumerate(world.processes):
                fresh_one = Process(process.instance, turns.Turn(instance=process.instance))
                if process != fresh_one:
                    others = (*world.processes[:number], fresh_one, *world.processes[number + 1 :])
                    yield f"crash {number}", world._replace(processes=others, crashes=world.crashes - 1)
        if world.losses and not any(
            one.append for one in world.processes
        ):  # what goes after it was listed, nobody sees
            found = newest(world)
            candidate = found[1].open_candidate if found else None
            for one in world.objects:
                if candidate and one.generation == (candidate.instance, candidate.number):
                    yield f"lose {one}", world._replace(objects=world.objects - {one}, losses=world.losses - 1)
        if self.bounds.frees_numbers and len(world.entries) > 1:
            yield "free", world._replace(entries=world.entries[-1:])

    # --- a process

    def _process(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        if process.append is not None:
            yield self._put_entry(world, process)
            return
        if process.answer is not None:
            yield from self._received(world, process)
        else:
            yield from self._fetch(world, process)
        yield from self._put_objects(world, process)
        yield from self._store_moments(world, process)
        yield from self._look(world, process)

    def _look(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        if process.looked is not None:
            yield from self._see(world, process)
            return
        # A look that would show and decide nothing is left out: what it leads to later, a later look leads to as well.
        about_to = process._replace(looked=newest(world) or (-1, None))
        if any(after.append or _is_other(after, process) for _, after, _ in self._see(world, about_to)):
            yield "look", about_to, world

    def _see(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        assert process.looked is not None
        found, (number, entry) = newest(world), process.looked
        may_begin = found is None or found[0] + 1 < self.bounds.entries
        readers = given(entry, world.objects)
        ends = self._ends_of(world.objects, process.instance, number)
        sight = turns.StoredState(
            number=number,
            entry=entry,
            readers_end=readers[0] if readers else 0,
            has_history=bool(_of(world.objects, HISTORY)),
            ends=ends,
            dues=turns.Dues(
                is_turn_due=may_begin,
                is_overdue=may_begin,
                is_candidate_heard=not may_begin,
                begins_first=may_begin,
                may_try_again=may_begin,
            ),
        )
        seen = process.turn
        for generation in [one for one, end in ends.items() if end.has_expired and one in seen.readings]:
            seen, _ = self.rules.react(seen, turns.Broke(generation))
        for allowed in (True, False) if may_begin else (False,):
            dues = sight.dues if allowed else turns.Dues(is_turn_due=False, is_overdue=False, is_candidate_heard=True)
            turn, effects = self.rules.react(seen, turns.Looked(replace(sight, dues=dues)))
            if process.turn.sight is not None and (process.turn.sight.number, process.turn.sight.entry) == (
                number,
                entry,
            ):
                turn = replace(turn, sight=process.turn.sight)
            after = self._take(world, process._replace(turn=turn, looked=None), effects)
            yield f"see{'' if allowed else ' idle'}", after, world

    def _ends_of(self, objects: frozenset[Stored], instance: str, number: int) -> Mapping[int, turns.CopyEnd]:
        """Where the generations of an instance end. Most worlds differ in something else."""
        place = objects, instance, number
        if place not in self._ends:
            own = {one.generation[1] for one in objects if one.generation[0] == instance} | set(range(number + 1))
            self._ends[place] = {one: self.rules.ends(_of(objects, (instance, one))) for one in own}
        return self._ends[place]

    def _take(self, world: World, process: Process, effects: tuple[turns.Effect, ...]) -> Process:
        for effect in effects:
            match effect:
                case turns.Append():
                    process = process._replace(append=effect)
                case turns.Close(generation):
                    process = process._replace(
                        buffers=tuple(one for one in process.buffers if one[0] != generation),
                        freshness=tuple(one for one in process.freshness if one[0] != generation),
                        expired=tuple(one for one in process.expired if one != generation),
                        answer=None if process.answer and process.answer[0] == generation else process.answer,
                    )
                case turns.Open(generation):
                    process = self._open(world, process, generation)
                case turns.Tell():  # the other looks now and then anyhow
                    pass
        return process

    def _open(self, world: World, process: Process, generation: int) -> Process:
        end = coverage(_of(world.objects, (process.instance, generation)))
        stored = dict(world.moments).get((process.instance, generation))
        begun = next((at for number, at, _ in world.entries if number == generation), 0)
        state = fresh.begun(stored or Moment(begun, 0))
        turn, _ = self.rules.react(process.turn, turns.Opened(generation, end.next, True))
        if not end.is_whole:
            turn, _ = self.rules.react(turn, turns.GaveUp(generation))
        return process._replace(
            turn=turn,
            freshness=(*process.freshness, (generation, state)),
            buffers=(*process.buffers, (generation, end.next, end.next, (), 0)),
        )

    def _fetch(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        for generation, base, position, held, until in process.buffers:
            if position < world.log_start:
                yield self._skip(world, process, (generation, base, world.log_start, held, until))
                continue
            ends = [(world.written, True)]
            if self.bounds.follower:
                ends += [(old, False) for old in range(position, world.written)]
            for last_stable, is_leader in ends:
                stop = min(position + self.bounds.chunk, last_stable)
                offsets = tuple(at for at in sorted(world.present) if position <= at < stop)
                answer = (generation, max(position, stop), last_stable, offsets, world.clock, is_leader)
                asked = process._replace(answer=answer)
                if self.bounds.clock:
                    yield f"fetch {generation} {last_stable}", asked, world
                    continue
                for name, after, stored in self._received(world, asked):  # time alone can come between
                    if stored != world or after != process:
                        yield f"{name} {last_stable}", after, stored

    def _skip(
        self, world: World, process: Process, after: tuple[int, int, int, tuple[int, ...], int]
    ) -> tuple[str, Process, World]:
        """Go on where the log begins: what lay before has expired."""
        generation, _, position, held, _ = after
        buffers = tuple(after if one[0] == generation else one for one in process.buffers)
        turn, _ = self.rules.react(process.turn, turns.FetchEvent(generation, position, world.written + 1, False))
        process = process._replace(buffers=buffers, turn=turn)
        if held or _of(world.objects, (process.instance, generation)):
            turn, _ = self.rules.react(turn, self.rules.event(turns.Broke(generation)))
            process = process._replace(turn=turn, expired=tuple(sorted({*process.expired, generation})))
        return f"skip {generation}", process, world

    def _received(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        name, after, _ = self._receive(world, process)
        puts = [] if self.bounds.late_puts else list(self._put_objects(world, after))
        yield from ((f"{name} and {put}", done, stored) for put, done, stored in puts)
        if not puts:
            yield name, after, world

    def _receive(self, world: World, process: Process) -> tuple[str, Process, World]:
        assert process.answer is not None
        generation, position, last_stable, offsets, asked, is_leader = process.answer
        process = process._replace(answer=None)
        buffers = (
            (generation, one[1], position, (*one[3], *offsets), self._lacks(one, position, offsets, last_stable))
            if one[0] == generation
            else one
            for one in process.buffers
        )
        process = process._replace(buffers=tuple(buffers))
        believed = self.rules.believes_leader(is_of_leader=is_leader)
        event = self.rules.event(turns.FetchEvent(generation, position, last_stable, believed))
        turn, _ = self.rules.react(process.turn, event)
        if believed:
            at = self.rules.moment_at(asked, world.clock)
            answer = fresh.Answer(at, world.clock, last_stable, position, RETENTION)
            process, turn = self._freshened(process, turn, generation, lambda one: fresh.note_answer(one, answer))
        else:
            process, turn = self._freshened(
                process, turn, generation, lambda one: fresh.note_limit(one, world.clock, RETENTION)
            )
        return f"receive {generation}", process._replace(turn=turn), world

    def _lacks(
        self, buffer: tuple[int, int, int, tuple[int, ...], int], position: int, offsets: tuple[int, ...], stable: int
    ) -> int:
        """Below which offset those records lie that replaced what a broker left out of its answers."""
        asked = range(buffer[2], position)
        return (
            max(buffer[4], stable)
            if any(self.bounds.script[at].key for at in asked if at not in offsets)
            else buffer[4]
        )

    def _freshened(
        self, process: Process, turn: turns.Turn, generation: int, change: Callable[[fresh.Freshness], fresh.Freshness]
    ) -> tuple[Process, turns.Turn]:
        states = tuple((number, change(one) if number == generation else one) for number, one in process.freshness)
        if any(number == generation and one.is_broken for number, one in states):
            turn, _ = self.rules.react(turn, turns.Broke(generation))
        return process._replace(freshness=states), turn

    def _put_objects(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        for generation, base, position, offsets, until in process.buffers:
            if base == position or not process.turn.may_put(generation):
                continue
            name = (process.instance, generation)
            reading = process.turn.readings[generation]
            objects, following, durable = world.objects, reading.next, position
            if offsets:
                lacks_until, has_expired = self.rules.lacks_until(until), generation in process.expired
                stored = Stored(name, base, offsets[-1] + 1, offsets, lacks_until, has_expired=has_expired)
                mine = self._object(world, stored)
                there = [one for one in _of(objects, name) if one.base == base]
                mine = there[0] if there else mine
                objects, following = objects | {mine}, mine.next
                if there and mine.next != offsets[-1] + 1:
                    durable = mine.next
            buffers = tuple(
                (generation, following if offsets else base, position, (), 0 if offsets else until)
                if one[0] == generation
                else one
                for one in process.buffers
            )
            if durable != position:  # another process of this instance was first: read on from where its object ends
                buffers = tuple(
                    (generation, durable, durable, (), 0) if one[0] == generation else one for one in process.buffers
                )
                turn = self._moved_back(process.turn, generation, durable)
            elif not offsets:
                if reading.durable == position:
                    continue
                turn, _ = self.rules.react(process.turn, turns.Put(generation, position, following))
            else:
                turn, _ = self.rules.react(process.turn, turns.Put(generation, position, following))
            expired = tuple(one for one in process.expired if one != generation or not offsets)
            process_after = process._replace(turn=turn, buffers=buffers, expired=expired)
            process_after, turn = self._freshened(
                process_after, turn, generation, partial(fresh.note_durable, durable=durable)
            )
            yield f"put {generation}", process_after._replace(turn=turn), world._replace(objects=objects)

    def _object(self, world: World, one: Stored) -> Stored:
        """Note what an object lacks, and which objects were put before it that lack some, too. What it covers may lack nothing."""
        lacks = any(self.bounds.script[at].key for at in range(one.base, one.next) if at not in one.offsets)
        if not lacks or not one.until:
            return one._replace(until=0)
        before = (other for other in world.objects if other.until and other.generation != one.generation)
        return one._replace(
            after=frozenset(
                (other.generation, other.base) for other in before if other.base < one.next and one.base < other.next
            )
        )

    def _moved_back(self, turn: turns.Turn, generation: int, position: int) -> turns.Turn:
        reading = turn.readings[generation]
        moved = replace(
            reading, position=position, durable=position, next=max(reading.next, position), complete_at=None
        )
        return replace(turn, readings={**turn.readings, generation: moved})

    def _store_moments(self, world: World, process: Process) -> Iterator[tuple[str, Process, World]]:
        for generation, state in process.freshness:
            key = (process.instance, generation)
            stored = dict(world.moments)
            if not state.is_broken and stored.get(key) != state.durable and state.durable.at_ms >= 0:
                before = stored.get(key)
                if before is None or before.at_ms < state.durable.at_ms:
                    stored[key] = state.durable
                    yield f"moment {generation}", process, world._replace(moments=tuple(sorted(stored.items())))

    def _put_entry(self, world: World, process: Process) -> tuple[str, Process, World]:
        assert process.append is not None
        number, entry = process.append
        is_won = all(taken != number for taken, _, _ in world.entries)
        after = world
        if is_won:
            after = world._replace(
                entries=tuple(sorted((*world.entries, (number, world.clock, entry)), key=lambda one: one[0]))
            )
        changed = self.rules.after_put(process._replace(append=None), process.append, is_won=is_won)
        return f"append {number} {entry.type}", changed._replace(looked=None), after

    def _clear(self, world: World) -> Iterator[tuple[str, World]]:
        if world.clearing:
            yield "clear", world._replace(clearing=(), objects=world.objects - set(world.clearing))
            return
        found = newest(world)
        going = self.rules.to_clear(world, *found, sorted(world.objects)) if found else []
        if going:
            yield "decide to clear", world._replace(clearing=tuple(going))


def _is_other(one: Process, other: Process) -> bool:
    same = one.turn.readings == other.turn.readings and role_of(one.turn) == role_of(other.turn)
    return not same or one._replace(turn=other.turn) != other


def role_of(turn: turns.Turn) -> tuple[int | None, int | None, int | None, bool]:
    """What a process still needs of its last look."""
    return turn.holds, turn.candidacy, turn.switching, turn.holds is not None and turn.may_put(turn.holds)


class Keys:
    """Gives worlds short keys. Worlds from which the same can follow have the same key."""

    def __init__(self, bounds: Bounds) -> None:
        self._has_time = bounds.clock > 0  # else no copy becomes unsure, whatever was noted when
        self._needs_old_entries = bounds.clock > 0 or bounds.frees_numbers
        self._numbers: dict[object, int] = {}
        self._known: dict[int, tuple[object, int]] = {}

    def key(self, world: World) -> object:
        entries = world.entries if self._needs_old_entries else world.entries[-1:]
        return (
            world[:4],
            tuple((number, at, self._number(entry)) for number, at, entry in entries),
            world.objects,
            world.moments if self._has_time else (),
            tuple(self._process(one) for one in world.processes),
            world[8:],
        )

    def _process(self, process: Process) -> object:
        readings = tuple((number, self._number(one)) for number, one in sorted(process.turn.readings.items()))
        looked = process.looked and (process.looked[0], self._number(process.looked[1]))
        append = process.append and (process.append.number, self._number(process.append.entry))
        freshness = process.freshness if self._has_time else ()
        others = process.buffers, freshness, process.expired
        return process.instance, role_of(process.turn), readings, others, looked, append, process.answer

    def _number(self, value: object) -> int:
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._numbers.setdefault(value, len(self._numbers)))
        return known[1]


_TURN = (
    "a0 look",
    "a0 see",
    "a0 moment",
    "b1 look",
    "b1 see",
    "b1 receive",
    "b1 moment",
    "b1 look",
    "b1 see",
    "b1 append",
)


def turned_world(bounds: Bounds) -> World:
    """a has filled a copy, and b's has just taken its place, which a has not seen yet."""
    first = entries.begin(None, 0, "a", has_history=False)
    copy = CompleteCopy(generation=Generation(instance="a", number=0), next=1, position=1, is_sure=True)
    held = entries.switch(first, 1, copy)
    told = ((0, 0, first), (1, 0, held), (2, 0, entries.begin(held, 2, "b", has_history=False)))
    world, model = begin_world(bounds), Model(bounds)
    world = world._replace(entries=told, objects=world.objects | {Stored(("a", 0), 0, 1, (0,))})
    for step in _TURN:
        world = next(after for name, after in model.steps(world) if name.startswith(step))
    return world
