"""Where both a log and a snapshot tell of a position, the later word holds; and nobody is believed who cannot know."""

import random
from collections.abc import Mapping, Sequence

import pytest

from archiver.codec.selection import LAST_LONG
from archiver.groups.log.archived_until import ArchivedUntil, offsets_partition
from archiver.groups.log.lives import AMBIGUOUS, Root
from archiver.groups.log.position_rows import NO_ROW
from archiver.groups.positions.archived_position import ArchivedPosition, PositionSource, State
from archiver.groups.positions.joined_positions import join_positions
from archiver.groups.positions.positions_as_of import positions_as_of
from archiver.groups.positions.snapshots import GroupSnapshot, SnapshotPosition, Snapshots
from tests.support.simulated_offsets import draw_world, simulate

HOUR = 3_600_000
AT_MS = 10 * HOUR  # of the snapshot
ROOTS = {"x": [Root(0, "", 0)]}
Told = list[tuple[State, int, PositionSource]]


def position(state: State, offset: int, life: int = 0, removed_at: int = NO_ROW, group: str = "g") -> ArchivedPosition:
    return ArchivedPosition(group, "x", life, 0, state, offset, -1, "", 5, 7, NO_ROW, removed_at=removed_at)


def snapshots(
    groups: Mapping[str, Mapping[int, int]], missing: Mapping[str, int | None] | None = None, at_ms: int = AT_MS
) -> Snapshots:
    """Of each group, by partition, its offset."""
    told = {
        group: GroupSnapshot(
            time_ms=at_ms,
            duration_ms=0,
            topics={"x": {number: SnapshotPosition(offset=offset) for number, offset in positions.items()}},
        )
        for group, positions in groups.items()
    }
    return Snapshots(newest_ms=at_ms, groups=told, missing=missing or {})


def joined(
    by_log: Sequence[ArchivedPosition],
    snapshot: Snapshots,
    end_ms: int | None,
    roots: Mapping[str, Sequence[Root]] = ROOTS,
) -> Told:
    """`end_ms`: of the newest record in the partition of group `g`; None: it is not archived."""
    partition = offsets_partition("g", 50)
    assert partition is not None
    ends = ArchivedUntil(partitions=50, last_ms={} if end_ms is None else {partition: end_ms, (partition + 1) % 50: 0})
    return [(one.state, one.offset, one.source) for one in join_positions(by_log, snapshot, ends, roots)]


STANDS = snapshots({"g": {0: 7}})
SET_BY_SNAPSHOT = [(State.SET, 7, PositionSource.SNAPSHOT)]


@pytest.mark.parametrize(
    "by_log",
    [
        [],
        [position(State.SET, 5)],
        [position(State.UNKNOWN, -1)],
        [position(State.AMBIGUOUS, 5, life=AMBIGUOUS)],
        [position(State.REMOVED, 5, removed_at=9)],  # committed again
        [position(State.REMOVED, -1, removed_at=9)],
        [position(State.TOPIC_DELETED, 5, removed_at=9)],
    ],
)
def test_a_snapshot_behind_the_end_of_the_log_holds(by_log: Sequence[ArchivedPosition]) -> None:
    assert joined(by_log, STANDS, AT_MS - HOUR) == SET_BY_SNAPSHOT
    assert joined(by_log, STANDS, None) == SET_BY_SNAPSHOT
    assert joined(by_log, STANDS, -1) == SET_BY_SNAPSHOT  # archived, and nothing of it can be read


@pytest.mark.parametrize("end_ms", [AT_MS + 60_001, AT_MS + HOUR])
@pytest.mark.parametrize(
    "one",
    [
        position(State.SET, 5),
        position(State.UNKNOWN, -1),
        position(State.UNKNOWN, 5),
        position(State.REMOVED, -1, removed_at=9),
        position(State.TOPIC_DELETED, 5, removed_at=9),
        position(State.AMBIGUOUS, 5, life=AMBIGUOUS),
    ],
)
def test_a_log_that_ends_no_earlier_holds_also_where_it_does_not_know(end_ms: int, one: ArchivedPosition) -> None:
    assert joined([one], STANDS, end_ms) == [(one.state, one.offset, PositionSource.LOG)]
    assert joined([one], snapshots({}), end_ms) == [(one.state, one.offset, PositionSource.LOG)]


@pytest.mark.parametrize("end_ms", [AT_MS - 60_000, AT_MS, AT_MS + 60_000])
def test_within_a_minute_log_and_snapshot_must_agree(end_ms: int) -> None:
    """Nobody knows then which of the two is the later word."""
    stands, removed = position(State.SET, 5), position(State.REMOVED, 5, removed_at=9)
    ended = position(State.TOPIC_DELETED, 5, removed_at=9)
    assert joined([position(State.SET, 7)], STANDS, end_ms) == [(State.SET, 7, PositionSource.LOG)]
    for one in (stands, removed, ended):
        assert joined([one], STANDS, end_ms) == [(State.UNKNOWN, 5, PositionSource.LOG)]
    for without in (snapshots({}), snapshots({"g": {1: 3}})):
        found = joined([stands], without, end_ms)
        assert found[0] == (State.UNKNOWN, 5, PositionSource.LOG)
        for one in (removed, ended):
            assert joined([one], without, end_ms)[0] == (one.state, 5, PositionSource.LOG)
    assert joined([stands], snapshots({}, {"g": None}), end_ms) == [(State.SET, 5, PositionSource.LOG)]


def test_within_a_minute_an_earlier_life_is_as_it_was() -> None:
    roots = {"x": [Root(0, "", 0), Root(1, "", 8 * HOUR)]}
    ended, stands = position(State.TOPIC_DELETED, 5, removed_at=9), position(State.SET, 7, life=1)
    kept = (State.TOPIC_DELETED, 5, PositionSource.LOG)
    assert joined([ended, stands], STANDS, AT_MS, roots) == [kept, (State.SET, 7, PositionSource.LOG)]
    assert joined([ended], STANDS, AT_MS, roots) == [kept, (State.UNKNOWN, 7, PositionSource.SNAPSHOT)]


def test_what_only_a_snapshot_has_is_unknown_where_the_log_ends_later() -> None:
    assert joined([], STANDS, AT_MS + HOUR) == [(State.UNKNOWN, 7, PositionSource.SNAPSHOT)]


def test_the_log_tells_more_of_the_same_commit() -> None:
    assert joined([position(State.SET, 7)], STANDS, AT_MS - HOUR) == [(State.SET, 7, PositionSource.LOG)]


def test_a_later_snapshot_without_the_position_ends_it() -> None:
    one, removed = position(State.SET, 5), position(State.REMOVED, 5, removed_at=9)
    assert joined([one], snapshots({"g": {1: 3}}), AT_MS - HOUR)[0] == (State.REMOVED, 5, PositionSource.SNAPSHOT)
    # Whoever took the snapshot may not have seen the group.
    assert joined([one], snapshots({}), AT_MS - HOUR) == [(State.UNKNOWN, 5, PositionSource.SNAPSHOT)]
    assert joined([removed], snapshots({}), AT_MS - HOUR) == [(State.REMOVED, 5, PositionSource.LOG)]
    assert joined([one], snapshots({}, {"g": None}), AT_MS - HOUR) == [(State.SET, 5, PositionSource.LOG)]


def test_where_the_partition_is_not_known_it_may_be_any_that_is_archived() -> None:
    for ends in (ArchivedUntil(partitions=None, last_ms={3: AT_MS}), ArchivedUntil(partitions=2, last_ms={3: AT_MS})):
        found = list(join_positions([position(State.UNKNOWN, -1)], STANDS, ends, ROOTS))
        assert [one.state for one in found] == [State.UNKNOWN]


def test_a_position_in_an_earlier_life_stays_beside_the_snapshot_of_a_later_one() -> None:
    roots = {"x": [Root(0, "", 0), Root(1, "", 8 * HOUR)]}
    ended = position(State.TOPIC_DELETED, 5, removed_at=9)
    assert joined([ended], STANDS, HOUR, roots) == [(State.TOPIC_DELETED, 5, PositionSource.LOG), *SET_BY_SNAPSHOT]
    assert joined([position(State.SET, 5)], STANDS, HOUR, roots) == [
        (State.UNKNOWN, 5, PositionSource.SNAPSHOT),
        *SET_BY_SNAPSHOT,
    ]
    unsure = {"x": [Root(0, "", 0), Root(1, "", 12 * HOUR)]}
    found = joined([position(State.SET, 7)], STANDS, HOUR, unsure)
    assert found == [(State.AMBIGUOUS, 7, PositionSource.SNAPSHOT)]  # one line: another topic may have the same offset
    assert {state for state, _, _ in joined([ended], STANDS, HOUR, unsure)} == {State.AMBIGUOUS}


def test_groups_lie_where_java_puts_them() -> None:
    """`Utils.abs("...".hashCode()) % 50`, as Kafka's own GroupMetadataManager has it."""
    wanted = {"": 0, "g": 3, "billing": 9, "ü": 2, "polygenelubricants": 0, "🐢": 21}
    assert {group: offsets_partition(group, 50) for group in wanted} == wanted
    assert offsets_partition("\udcff", 50) is None


@pytest.mark.sampled(50)
@pytest.mark.parametrize("number", range(100))
def test_what_is_told_is_true_by_the_log_or_by_the_snapshot(number: int) -> None:
    """A snapshot was taken at some moment, which leaves groups out, and misses some; the archive of the log ends at another."""
    drawn, simulated = random.Random(number), simulate(number, draw_world(number))
    archived, moment = simulated.archive(), drawn.randrange(len(simulated.times))
    at_ms, stood, hidden = simulated.times[moment], simulated.stood[moment], drawn.choice(["", "a", "bc"])
    groups: dict[str, dict[str, dict[int, SnapshotPosition]]] = {
        group: {} for group in {row[0] for row in stood} - {*hidden}
    }
    for (group, topic, partition), (_, offset) in stood.items():
        if group not in hidden:
            groups[group].setdefault(topic, {})[partition] = SnapshotPosition(offset=offset)
    told = {group: GroupSnapshot(time_ms=at_ms, duration_ms=0, topics=topics) for group, topics in groups.items()}
    snapshot = Snapshots(newest_ms=at_ms, groups=told, missing={"b": None} if "b" in hidden else {})
    logs, roots = archived.logs(), simulated.roots()
    ends = ArchivedUntil(partitions=2, last_ms={log.partition: log.last_ms or -1 for log in logs})
    found = list(join_positions(positions_as_of(logs, roots), snapshot, ends, roots))
    true = simulated.truth(LAST_LONG, archived.ends)
    assert len({(one.group, one.topic, one.partition, one.life) for one in found}) == len(found)
    for one in found:
        if one.state in {State.UNKNOWN, State.AMBIGUOUS} or one.life < 0:
            continue
        place, life = (one.group, one.topic, one.partition), simulated.true_life(one.topic, one.life)
        ends_before = (ends.of(one.group) or -1) + 60_000 < at_ms
        if one.state is State.SET and (one.source is PositionSource.SNAPSHOT or (ends_before and one.group in told)):
            assert stood[place] == (life, one.offset)
        elif one.source is PositionSource.SNAPSHOT:
            assert one.state is State.REMOVED
            assert stood.get(place, (-1, -1))[0] != life
        else:
            assert one.state is not State.SET or true[place, life] == (State.SET, one.offset, -1)
            assert one.state is not State.TOPIC_DELETED or stood.get(place, (-1, -1))[0] != life or not ends_before
