"""Every interleaving of two instances, and of what may happen to them, in worlds of two whole cycles and less: one complete copy stands."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from archiver.archive.roles import CompleteCopy, RoleEntry
from archiver.backup.compacted import turn as turns
from tests.support.compacted_world import HISTORY, Bounds, Model, Process, Record, Rules, Stored, World, begin_world
from tests.support.compacted_world import coverage as coverage_of
from tests.support.exploring import Explored, explore

_LETTERS = {"A": Record("A"), "B": Record("B"), "a": Record("A", True), "b": Record("B", True), "-": Record("")}
MANY = 5_000_000


def script(letters: str) -> tuple[Record, ...]:
    """Spell a log: a capital is a value of a key, a small letter its tombstone, a dash the marker of a transaction."""
    return tuple(_LETTERS[one] for one in letters)


def run(bounds: Bounds, rules: Rules | None = None, most: int = MANY, history: Sequence[Stored] = ()) -> Explored:
    return explore(Model(bounds, rules), begin_world(bounds, tuple(history)), most)


SMALL = {
    "a cycle over an idle log": Bounds(script=script("A"), written=1, entries=2, clock=0),
    "writes and cleaning": Bounds(script=script("AA"), written=1, entries=1, clock=0),
    "a log that ends in a marker": Bounds(script=script("A-"), written=2, entries=2, clock=0, crashes=0, late_puts=False),
    "a log without a record": Bounds(script=script("-"), written=0, entries=2, clock=0, crashes=0),
    "followers": Bounds(script=script("AA"), written=1, entries=1, clock=0, crashes=0, follower=True),
    "tombstones that go": Bounds(script=script("Aa"), written=1, entries=1, clock=3, crashes=0, processes=("a",)),
    "an object that somebody deletes": Bounds(script=script("AB"), written=2, entries=1, clock=0, chunk=1, losses=1, crashes=0),
    "two processes of one name": Bounds(script=script("A"), written=1, entries=1, clock=0, crashes=0, processes=("a", "a", "b")),
    "numbers that are freed": Bounds(script=script("A"), written=1, entries=2, clock=0, crashes=0, frees_numbers=True),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_complete_copy_stands_in_every_small_world(name: str) -> None:
    explored = run(SMALL[name])
    print(f"{name}: {explored.states:,} states, {explored.switches} switches")
    assert (explored.problem, explored.is_whole) == ("", True), "\n".join(explored.trail)
    assert explored.switches >= 1, "nobody ever took over"
