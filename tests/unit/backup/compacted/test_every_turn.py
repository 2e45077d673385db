"""Every interleaving of two instances, and of what may happen to them, in worlds of two whole cycles and less: one complete copy stands."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from archiver.archive.copies.roles import CompleteCopy, RoleEntry
from archiver.backup.compacted.turn import turn_decisions as turns
from tests.support.compacted_world import (
    Bounds,
    Model,
    Process,
    Record,
    Rules,
    Stored,
    World,
    begin_world,
    coverage,
    end_of_holder,
    turned_world,
)
from tests.support.exploring import Explored, explore

_LETTERS = {"A": Record("A"), "B": Record("B"), "a": Record("A", True), "b": Record("B", True), "-": Record("")}
MANY = 5_000_000


def script(letters: str) -> tuple[Record, ...]:
    """Spell a log: a capital is a value of a key, a small letter its tombstone, a dash the marker of a transaction."""
    return tuple(_LETTERS[one] for one in letters)


def run(bounds: Bounds, rules: Rules | None = None, most: int = MANY, history: Sequence[Stored] = ()) -> Explored:
    start = turned_world(bounds) if bounds.is_turned else begin_world(bounds, tuple(history))
    return explore(Model(bounds, rules), start, most)


SMALL = {
    "a cycle over an idle log": Bounds(script=script("A"), written=1, entries=2, clock=0),
    "writes and cleaning": Bounds(script=script("AA"), written=1, entries=1, clock=0),
    "a log that ends in a marker": Bounds(
        script=script("A-"), written=2, entries=2, clock=0, crashes=0, late_puts=False
    ),
    "a log without a record": Bounds(script=script("-"), written=0, entries=1, clock=0, crashes=0),
    "a log without a record, one entry more": Bounds(script=script("-"), written=0, entries=2, clock=0, crashes=0),
    "followers": Bounds(script=script("AA"), written=1, entries=1, clock=0, crashes=0, follower=True),
    "tombstones that go": Bounds(
        script=script("Aa"), written=1, entries=1, clock=2, crashes=0, processes=("a",), late_puts=False
    ),
    "an object that somebody deletes": Bounds(
        script=script("AB"), written=2, entries=1, clock=0, chunk=1, losses=1, crashes=0
    ),
    "records that expire": Bounds(
        script=script("AaB"), written=1, entries=2, clock=0, expires=2, chunk=1, processes=("a",), late_puts=False
    ),
    "two processes of one name": Bounds(
        script=script("A"), written=1, entries=1, clock=0, crashes=0, processes=("a", "a", "b")
    ),
    "numbers that are freed": Bounds(script=script("A"), written=1, entries=2, clock=0, crashes=0, frees_numbers=True),
    "a tail that a switch hides": Bounds(
        script=script("BABA"), written=1, entries=3, clock=0, crashes=0, late_puts=False, is_turned=True
    ),
}


# They have tens of thousands of states.
FAR = {"a log without a record, one entry more", "a generation used again", "the moment after the answer"}


def near_and_far(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in FAR else name for name in names]


@pytest.mark.timeout(600)  # the largest takes 20 s of CPU
@pytest.mark.parametrize("name", near_and_far(SMALL))
def test_a_complete_copy_stands_in_every_small_world(name: str) -> None:
    explored = run(SMALL[name])
    print(f"{name}: {explored.states:,} states, {explored.switches} switches")
    assert (explored.problem, explored.is_whole) == ("", True), "\n".join(explored.trail)
    assert explored.switches >= 1, "nobody ever took over"


# --- deliberately broken copies: each is found out


class CompleteByPosition(Rules):
    """A copy is complete wherever it has come to: the leader need not have said that this is the end."""

    def event(self, event: turns.Event) -> turns.Event:
        return event._replace(last_stable=event.position) if isinstance(event, turns.FetchEvent) else event


class NextForPosition(Rules):
    """A copy has come as far as its last object."""

    def react(self, turn: turns.Turn, event: turns.Event) -> tuple[turns.Turn, tuple[turns.Effect, ...]]:
        if isinstance(event, turns.Put) and event.durable > event.next:
            return turn, ()
        return turns.react(turn, event)


class BelievedNumber(Rules):
    """An entry counts as soon as it was put. What goes is decided on what a process believes."""

    def after_put(self, process: Process, append: turns.Append, *, is_won: bool) -> Process:
        sight = process.turn.sight
        if not is_won or sight is None:
            return process
        return process._replace(
            turn=replace(process.turn, sight=replace(sight, number=append.number, entry=append.entry))
        )

    def to_clear(self, world: World, number: int, entry: RoleEntry, listed: list[Stored]) -> list[Stored]:
        del number, entry
        sights = [process.turn.sight for process in world.processes]
        going = (
            super(BelievedNumber, self).to_clear(world, one.number, one.entry, listed)
            for one in sights
            if one and one.entry
        )
        return next(filter(None, going), [])


class BelievesWhatItSaw(BelievedNumber):
    """What goes is decided on an old look, but on a look."""

    def after_put(self, process: Process, append: turns.Append, *, is_won: bool) -> Process:
        del append, is_won
        return process


class ReusedGeneration(Rules):
    """The next generation has the number of the first."""

    def react(self, turn: turns.Turn, event: turns.Event) -> tuple[turns.Turn, tuple[turns.Effect, ...]]:
        turn, effects = turns.react(turn, event)
        return turn, tuple(self._reusing(one) for one in effects)

    def _reusing(self, effect: turns.Effect) -> turns.Effect:
        if not isinstance(effect, turns.Append) or effect.entry.type != "begin" or effect.entry.candidate is None:
            return effect
        candidate = replace(effect.entry.candidate, number=0)
        return effect._replace(entry=replace(effect.entry, candidate=candidate))


class ClearsDirectory(Rules):
    """Where one generation may go, the instance's directory goes."""

    def to_clear(self, world: World, number: int, entry: RoleEntry, listed: list[Stored]) -> list[Stored]:
        instances = {one.generation[0] for one in super().to_clear(world, number, entry, listed)}
        return [one for one in listed if one.generation[0] in instances]


class NewestObject(Rules):
    """A copy reaches to where its newest object ends."""

    def ends(self, objects: list[Stored]) -> turns.CopyEnd:
        return turns.CopyEnd(max((one.next for one in objects), default=0), is_whole=True)


class FollowersEnd(Rules):
    """Any replica may say where the log ends."""

    def believes_leader(self, *, is_of_leader: bool) -> bool:
        del is_of_leader
        return True


class MomentAfterwards(Rules):
    """The moment is when the answer came."""

    def moment_at(self, asked: int, received: int) -> int:
        del asked
        return received


class OverlooksHoles(Rules):
    """What an earlier process has read past a hole is as good as anything."""

    def ends(self, objects: list[Stored]) -> turns.CopyEnd:
        return coverage(objects)._replace(has_expired=False)


class ClearsEndedLife(Rules):
    """What another life has left may go as well."""

    def to_clear(self, world: World, number: int, entry: RoleEntry, listed: list[Stored]) -> list[Stored]:
        del world, number
        return [one for one in listed if isinstance(entry.holder, CompleteCopy) and "life" in one.generation[0]]


class ClearsBeyondHolder(Rules):
    """What the holder has replaced goes, also where it has more than the holder."""

    def to_clear(self, world: World, number: int, entry: RoleEntry, listed: list[Stored]) -> list[Stored]:
        del world, number
        if not isinstance(entry.holder, CompleteCopy):
            return []
        held = {(one.instance, one.number) for one in (entry.holder.generation, entry.candidate) if one}
        return [one for one in listed if one.generation not in held and "life" not in one.generation[0]]


class TellsNothing(Rules):
    """An object does not tell that it lacks records: a copy counts as having all up to its end."""

    def lacks_until(self, until: int) -> int:
        del until
        return 0


class ClearsBeforeSettled(Rules):
    """A copy is needless where the holder has been."""

    def complete_to(self, entry: RoleEntry, listed: list[Stored]) -> int:
        return end_of_holder(entry, listed) or 0


_CYCLES = Bounds(script=script("A"), written=1, entries=4, clock=0, crashes=0, late_puts=False)
_FREED = Bounds(script=script("A"), written=1, entries=2, clock=0, crashes=0, frees_numbers=True)
_TAIL = Bounds(script=script("AB"), written=1, entries=3, clock=0, crashes=0, late_puts=False, processes=("a", "b"))
_LOST = Bounds(script=script("AB"), written=2, entries=1, clock=0, crashes=0, losses=1, chunk=1)

MUTANTS = {
    "complete by position": (CompleteByPosition(), Bounds(script=script("AA"), written=2, entries=1, clock=0, chunk=1)),
    "a number believed": (BelievedNumber(), _FREED),
    "a generation used again": (ReusedGeneration(), _CYCLES),
    "clearing by directory": (ClearsDirectory(), replace(_CYCLES, entries=3)),
    "the newest object for coverage": (NewestObject(), _LOST),
    "a follower's end": (FollowersEnd(), SMALL["followers"]),
    "the moment after the answer": (MomentAfterwards(), replace(SMALL["tombstones that go"], clock=3)),
    "a hole overlooked": (OverlooksHoles(), SMALL["records that expire"]),
    "clearing an ended life": (ClearsEndedLife(), SMALL["a cycle over an idle log"]),
    "clearing beyond the holder": (ClearsBeyondHolder(), replace(_TAIL, processes=("a",))),
    "objects that tell of nothing": (TellsNothing(), SMALL["a tail that a switch hides"]),
    "clearing what is needed": (ClearsBeforeSettled(), SMALL["a tail that a switch hides"]),
}


@pytest.mark.parametrize("name", near_and_far(MUTANTS))
def test_a_broken_copy_is_found_out(name: str) -> None:
    rules, bounds = MUTANTS[name]
    explored = run(bounds, rules)
    print(f"{name}: {explored.problem} ({explored.states:,} states)", *explored.trail, sep="\n  ")
    assert explored.problem


def test_a_log_that_ends_in_a_marker_turns_by_its_position() -> None:
    explored = run(SMALL["a log that ends in a marker"], NextForPosition())
    assert (explored.problem, explored.switches) == ("", 0)


@pytest.mark.long
def test_a_clearer_may_sleep_on_what_it_saw() -> None:
    explored = run(_FREED, BelievesWhatItSaw())
    assert (explored.problem, explored.is_whole) == ("", True)


LARGE = {
    "two cycles": replace(_CYCLES, crashes=1),
    "two cycles with pauses": replace(_CYCLES, late_puts=True),
    "a tail": _TAIL,
    "a tail, with pauses": replace(_TAIL, late_puts=True),
    "tombstones that go, with pauses": replace(SMALL["tombstones that go"], clock=3, late_puts=True),
    "tombstones that go, with a crash": replace(SMALL["tombstones that go"], clock=3, crashes=1),
}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE)
def test_a_complete_copy_stands_in_every_large_world(name: str) -> None:
    explored = run(LARGE[name])
    print(f"{name}: {explored.states:,} states, {explored.switches} switches")
    assert (explored.problem, explored.is_whole) == ("", True), "\n".join(explored.trail)
    assert explored.switches >= (2 if LARGE[name].entries > 1 else 1)
