"""Positions as of a time against a broker that is simulated with dictionaries: topics that come, go and come again."""

import base64
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from archiver.codec.selection import LAST_LONG
from archiver.groups.archived_log import ArchivedLog
from archiver.groups.archived_position import ArchivedPosition, State
from archiver.groups.commit_log import CommitLog
from archiver.groups.doubts import Doubt, Doubts
from archiver.groups.lives import AMBIGUOUS, NOT_ARCHIVED, Root
from archiver.groups.positions import PositionsAsOf
from tests.support.offset_commits import spell_topic_id
from tests.unit.groups.test_episodes import Row, commit_value, frame_of, position_key

GROUPS, TOPICS, PARTITIONS = "abcd", "xy", 2
Place = tuple[str, str, int]  # group, topic, partition


@dataclass
class Standing:
    """Where a group stands, in one of the topics of a name."""

    life: int
    offset: int
    state: State = State.SET


@dataclass
class Simulated:
    """Two partitions of the offsets topic, and what is true."""

    drawn: random.Random
    has_ids: bool
    now_ms: int = 1_000_000
    rows: list[list[Row]] = field(default_factory=lambda: [[], []])
    roots: dict[str, list[Root]] = field(default_factory=lambda: {name: [] for name in TOPICS})
    exists: set[str] = field(default_factory=set)
    true: dict[tuple[Place, int], Standing] = field(default_factory=dict)
    history: list[tuple[int, dict[tuple[Place, int], Standing]]] = field(default_factory=list)

    def step(self) -> None:
        self.now_ms += self.drawn.randrange(200_000, 900_000)
        kind, topic = (
            self.drawn.choice(["commit"] * 8 + ["delete", "create", "remove", "group"]),
            self.drawn.choice(TOPICS),
        )
        group, partition = self.drawn.choice(GROUPS), self.drawn.randrange(PARTITIONS)
        if kind == "create" and topic not in self.exists:
            self.exists.add(topic)
            seen_ms = self.now_ms + self.drawn.randrange(60_000)
            life = len(self.roots[topic])
            self.roots[topic].append(
                Root(life, spell_topic_id(bytes(15) + bytes([life + 1])) if self.has_ids else "", seen_ms)
            )
            self.now_ms += 120_000
        elif kind == "delete" and topic in self.exists:
            self.exists.discard(topic)
            self._remove([key for key in self._standing() if key[0][1] == topic], State.TOPIC_DELETED)
        elif kind == "commit" and topic in self.exists:
            self._commit((group, topic, partition), self.drawn.randrange(100))
        elif kind == "remove":
            self._remove(self.drawn.sample(self._standing(), min(1, len(self._standing()))), State.REMOVED)
        elif kind == "group":
            self._remove([key for key in self._standing() if key[0][0] == group], State.REMOVED)
        self.history.append((self.now_ms, {key: replace(one) for key, one in self.true.items()}))

    def _standing(self) -> list[tuple[Place, int]]:
        return [key for key, one in self.true.items() if one.state is State.SET]

    def _commit(self, place: Place, offset: int) -> None:
        life = len(self.roots[place[1]]) - 1
        self.true[place, life] = Standing(life, offset)
        topic_id = self.roots[place[1]][life].topic_id
        self._log(place, commit_value(offset) if not topic_id else value_with_id(offset, topic_id))

    def _remove(self, keys: Sequence[tuple[Place, int]], state: State) -> None:
        for place, life in keys:
            self.true[place, life].state = state
            self._log(place, None)

    def _log(self, place: Place, value: bytes | None) -> None:
        self.rows[ord(place[0]) % 2].append((position_key(*place), value, self.now_ms))

    def logs(self, until_ms: int, doubts: Sequence[Doubt] = ()) -> list[ArchivedLog]:
        return [_archived(number, rows, until_ms, doubts) for number, rows in enumerate(self.rows)]


def value_with_id(offset: int, topic_id: str) -> bytes:
    raw = base64.urlsafe_b64decode(f"{topic_id}==")
    return struct.pack(">hqi", 4, offset, -1) + b"\1" + struct.pack(">q", 1000) + b"\1\0\x10" + raw


def _archived(number: int, rows: Sequence[Row], until_ms: int, doubts: Sequence[Doubt]) -> ArchivedLog:
    log = CommitLog(until_ms)
    log.add(frame_of(rows, 0))
    later = [3 * place for place, (_, _, at_ms) in enumerate(rows) if at_ms > until_ms]
    return ArchivedLog(
        partition=number,
        rows=log.finish(),
        doubts=Doubts(sorted(doubts)),
        cut=min(later, default=3 * len(rows)),
        next=3 * len(rows),
        first_ms=None,
        last_ms=None,
    )


def simulate(seed: int, *, has_ids: bool = False, steps: int = 40) -> Simulated:
    found = Simulated(random.Random(seed), has_ids)
    for _ in range(steps):
        found.step()
    return found


def place_of(one: ArchivedPosition) -> Place:
    return one.group, one.topic, one.partition


@pytest.mark.parametrize("seed", range(100))
def test_what_is_told_is_true_and_nothing_is_left_out(seed: int) -> None:
    simulated = simulate(seed)
    for at_ms, true in simulated.history[::3]:
        found = list(PositionsAsOf(simulated.logs(at_ms), simulated.roots))
        told = {(place_of(one), one.life): one for one in found}
        assert len(told) == len(found)
        for (place, life), one in told.items():
            if life == AMBIGUOUS:
                assert len(simulated.roots[place[1]]) > 1
            if one.state is State.AMBIGUOUS:
                continue
            standing = true[place, life]
            assert one.offset == standing.offset, (place, life)
            # A position that was the last of its topic to be removed looks like the topic's deletion.
            assert one.state is standing.state or {one.state, standing.state} == {State.REMOVED, State.TOPIC_DELETED}
            if standing.state is State.SET:
                assert one.state is State.SET
        for place, life in true:
            assert (place, life) in told or (place, AMBIGUOUS) in told


@pytest.mark.parametrize("seed", range(10))
def test_of_a_topic_that_was_never_created_again_nothing_is_ambiguous(seed: int) -> None:
    simulated = simulate(seed)
    single = {name for name, roots in simulated.roots.items() if len(roots) == 1}
    found = list(PositionsAsOf(simulated.logs(LAST_LONG), simulated.roots))
    assert not [one for one in found if one.topic in single and one.life != 0]
    assert not [one for one in PositionsAsOf(simulated.logs(LAST_LONG), {}) if one.life != NOT_ARCHIVED]


def told_of(rows: Sequence[Row], until_ms: int, *doubts: Doubt) -> dict[str, tuple[State, int]]:
    log = _archived(0, rows, until_ms, doubts)
    return {one.group: (one.state, one.offset) for one in PositionsAsOf([log], {"x": [Root(0, "", None)]})}


def row(group: str, offset: int | None, at_ms: int) -> Row:
    return position_key(group, "x", 0), None if offset is None else commit_value(offset), at_ms


def test_what_compaction_may_have_taken_is_unknown_and_never_none() -> None:
    rows = [row("a", 1, 10), row("b", 2, 20), row("a", 3, 50), row("c", 4, 60)]
    eaten = Doubt(1, 2, needs_later=True)  # a record between the first two
    assert told_of(rows, 30) == {"a": (State.SET, 1), "b": (State.SET, 2)}
    assert told_of(rows, 30, eaten) == {"a": (State.UNKNOWN, 1), "b": (State.SET, 2), "c": (State.UNKNOWN, -1)}
    assert told_of(rows, LAST_LONG, eaten) == {"a": (State.SET, 3), "b": (State.SET, 2), "c": (State.SET, 4)}


def test_what_is_missing_for_another_cause_may_be_a_removal() -> None:
    rows = [row("a", 1, 10), row("b", 2, 20)]
    assert told_of(rows, LAST_LONG, Doubt(1, 2, needs_later=False)) == {"a": (State.UNKNOWN, 1), "b": (State.SET, 2)}
    assert told_of(rows, LAST_LONG, Doubt(4, 9, needs_later=False)) == {
        "a": (State.UNKNOWN, 1),
        "b": (State.UNKNOWN, 2),
    }


def test_a_position_that_ended_with_its_topic_is_known_by_the_commit_before() -> None:
    rows = [row("a", 1, 10), row("a", None, 20), row("b", 5, 21), row("b", None, 22)]
    assert told_of(rows, LAST_LONG) == {"a": (State.REMOVED, 1), "b": (State.TOPIC_DELETED, 5)}
    assert told_of(rows[:2], LAST_LONG, Doubt(1, 2, needs_later=True)) == {"a": (State.UNKNOWN, 1)}


@pytest.mark.parametrize("seed", range(10))
def test_topic_ids_of_commits_decide(seed: int) -> None:
    simulated = simulate(seed, has_ids=True, steps=80)
    found = list(PositionsAsOf(simulated.logs(LAST_LONG), simulated.roots))
    assert all(one.life != AMBIGUOUS for one in found)
    assert {(place_of(one), one.life) for one in found} == set(simulated.true)
