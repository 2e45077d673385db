"""Positions as of a time against brokers that are simulated (tests/support/simulated_offsets.py), and by hand."""

from collections.abc import Sequence

import pytest

from archiver.codec.selection import LAST_LONG
from archiver.groups.log.doubts import Doubt, Survivors
from archiver.groups.log.lives import AMBIGUOUS, NOT_ARCHIVED, Root
from archiver.groups.positions.archived_position import UNKNOWN_MS, ArchivedPosition, Cause, State
from archiver.groups.positions.positions_as_of import positions_as_of
from tests.support import simulated_backups
from tests.support.commit_frames import Row, commit_value, position_key, text
from tests.support.simulated_offsets import (
    MINUTE_MS,
    Archived,
    NotedTransactions,
    Place,
    Simulated,
    World,
    Written,
    archived_log,
    draw_world,
    simulate,
    value_with_id,
)

REMOVED = {State.REMOVED, State.TOPIC_DELETED}


def place_of(one: ArchivedPosition) -> Place:
    return one.group, one.topic, one.partition


def check_true(simulated: Simulated, archived: Archived, until_ms: int) -> list[ArchivedPosition]:
    """Everything that is told for sure is true, and nothing is told twice."""
    found = list(positions_as_of(archived.logs(until_ms), simulated.roots()))
    true = simulated.truth(until_ms, archived.ends)
    assert len({(place_of(one), one.life) for one in found}) == len(found)
    for one in found:
        if one.is_between:  # the lower one skips nothing
            what = place_of(one), simulated.true_life(one.topic, one.life)
            assert what in true, one
            assert true[what].state is not State.REMOVED or one.removed_at >= 0, one  # as the last one in its topic
            assert one.earlier().offset <= true[what].offset, one
        if one.state in {State.UNKNOWN, State.AMBIGUOUS}:
            continue
        if one.life == AMBIGUOUS:
            assert one.state is State.REMOVED
            assert one.offset == -1
            continue
        if one.life == NOT_ARCHIVED:
            continue
        what = place_of(one), simulated.true_life(one.topic, one.life)
        if one.offset == -1:
            assert one.state is State.REMOVED
            assert what not in true or true[what].state in REMOVED, one
            continue
        if what not in true:  # without its time a commit counts, and may be later than its removal, by another clock
            assert one.state is State.REMOVED, one
            assert one.at_ms < 0, one
            continue
        told = true[what]
        assert one.offset == told.offset or (one.state is State.REMOVED and one.is_stale), one
        assert (one.state is State.SET) == (told.state is State.SET), one
        if one.state is State.TOPIC_DELETED and told.state is State.REMOVED:
            check_last(archived, what[1], one)
    if not (simulated.world.has_skew or simulated.world.lacks_times):
        check_known_again(simulated, archived, found)
    return found


def check_last(archived: Archived, life: int, one: ArchivedPosition) -> None:
    """What was not removed with its topic, and is offered, was removed as the last one in it, as far as the archive has it."""
    behind = [
        row
        for rows in archived.kept
        for row in rows
        if row.place is not None and row.place[1] == one.topic and row.life == life and row.committed >= 0
        if row.stamp_ms > one.removed_ms + MINUTE_MS
    ]
    assert not behind, (one, behind)


def check_known_again(simulated: Simulated, archived: Archived, found: Sequence[ArchivedPosition]) -> None:
    for one in [one for one in found if one.state is State.UNKNOWN and one.known_from_ms != UNKNOWN_MS][:3]:
        later = positions_as_of(archived.logs(one.known_from_ms), simulated.roots())
        states = {each.life: each.state for each in later if place_of(each) == place_of(one)}
        assert states.get(one.life, State.AMBIGUOUS) is not State.UNKNOWN, one
        assert {one.life, AMBIGUOUS} & states.keys(), one  # of fewer rows less may be told of their lives


def check_nothing_left_out(
    simulated: Simulated, archived: Archived, until_ms: int, found: list[ArchivedPosition]
) -> None:
    """What stands is told, at least as unknown, if the archive has any row of it."""
    told = {(place_of(one), one.life) for one in found}
    unsure = {place_of(one) for one in found if one.state is State.UNKNOWN or one.life == AMBIGUOUS}
    rows = {row.place for kept in archived.kept for row in kept}
    lives = {
        (topic, simulated.true_life(topic, root.life)): root.life
        for topic, roots in simulated.roots().items()
        for root in roots
    }
    for (place, life), truth in simulated.truth(until_ms, archived.ends).items():
        if truth.state is State.SET and place in rows and (place[1], life) in lives:
            assert (place, lives[place[1], life]) in told or place in unsure, (place, truth)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(150))
def test_what_is_told_is_true_and_nothing_is_left_out(seed: int) -> None:
    simulated = simulate(seed, draw_world(seed))
    archived = simulated.archive()
    for until_ms in [*simulated.times[::6], LAST_LONG]:
        found = check_true(simulated, archived, until_ms)
        check_nothing_left_out(simulated, archived, until_ms, found)


@pytest.mark.parametrize("seed", range(60))
def test_where_nothing_is_missing_and_topics_live_once_all_is_known(seed: int) -> None:
    world = World(
        is_seen_late=seed % 2 == 0, has_skew=seed % 3 == 0, has_ids=["no", "yes", "late"][seed % 3], recreates=False
    )
    simulated = simulate(seed, world)
    archived = simulated.archive()
    for until_ms in [*simulated.times[::6], LAST_LONG]:
        found = check_true(simulated, archived, until_ms)
        assert not [one for one in found if one.state in {State.UNKNOWN, State.AMBIGUOUS}]
        assert {place_of(one) for one in found} == {place for place, _ in simulated.truth(until_ms, archived.ends)}
    assert not [one for one in positions_as_of(archived.logs(), {}) if one.life != NOT_ARCHIVED]


# --- commits in transactions


def count_between(seed: int) -> int:
    """Compare with what is true, and count positions of which two offsets are told."""
    simulated = simulate(seed, World(has_transactions=True, recreates=False))
    archived = simulated.archive()
    between = 0
    for until_ms in [*simulated.times[::3], LAST_LONG]:
        found = check_true(simulated, archived, until_ms)
        check_nothing_left_out(simulated, archived, until_ms, found)
        rows = [row for log in simulated.logs for row in log]
        waiting = {row.place for row in rows if 0 <= until_ms - row.stamp_ms < 4 * 3_600_000 and row.committed >= 0}
        unsure = [one for one in found if one.state in {State.UNKNOWN, State.AMBIGUOUS}]
        assert {place_of(one) for one in unsure} <= waiting  # no marker takes longer
        assert until_ms < LAST_LONG or not unsure
        between += sum(one.is_between for one in unsure)
    return between


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_commit_in_a_transaction_counts_from_its_marker_on(first: int) -> None:
    assert sum(map(count_between, range(first, first + 10))) > 0


def test_that_test_notices_transactions_that_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotedTransactions, "ranges", lambda *_: [])
    with pytest.raises(AssertionError):
        sum(map(count_between, range(10)))


def test_the_time_of_each_commit_of_one_that_waits_for_its_marker() -> None:
    rows = [(0, "g", 10, 1_000, -1), (3, "g", 100, 2_000, 5_000), (6, "h", 7, 2_500, -1)]
    written = [
        Written((group, "x", 0), position_key(group, "x", 0), commit_value(offset), at, ms, 0, offset, counts_ms=counts)
        for at, group, offset, ms, counts in rows
    ]
    roots = {"x": [Root(0, "A", 0)]}

    def told(until_ms: int) -> dict[str, tuple[State, int, int]]:
        log = archived_log(0, written, [], 9, until_ms)
        return {one.group: (one.state, one.offset, one.other_offset) for one in positions_as_of([log], roots)}

    assert told(1_500) == {"g": (State.SET, 10, -1)}
    assert told(3_000) == {"g": (State.AMBIGUOUS, 10, 100), "h": (State.SET, 7, -1)}
    assert told(5_000) == told(LAST_LONG) == {"g": (State.SET, 100, -1), "h": (State.SET, 7, -1)}


# --- backups that read a log that is compacted


def check_dying(seeds: range) -> None:
    for seed in seeds:
        simulated = simulate(seed, World(dies=True, has_skew=seed % 2 == 0, recreates=seed % 3 == 0))
        archived = simulated.archive()
        for until_ms in [*simulated.times[::6], LAST_LONG]:
            found = check_true(simulated, archived, until_ms)
            check_nothing_left_out(simulated, archived, until_ms, found)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_where_backups_died_half_way_what_is_told_is_true(first: int) -> None:
    check_dying(range(first, first + 10))


def test_that_test_notices_survivors_that_are_taken_for_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Survivors, "are_archived", lambda *_: True)
    with pytest.raises(AssertionError):
        check_dying(range(60))


def test_of_an_idle_log_that_was_compacted_and_read_to_its_end_all_is_known() -> None:
    """As far as the first object lacks nothing: nothing tells how old the records before it were."""
    lacking = 0
    for seed in range(40):
        simulated = simulate(seed, World(recreates=False))
        logs, doubts, ends = [], [], []
        for log in simulated.logs:
            idle = simulated_backups.Run(len(log), len(log), simulated.now_ms + 20 * HOUR)
            kept, found, end = simulated_backups.read_log_in_runs(simulated.drawn, log, [idle], untouched=3)
            logs.append(kept)
            doubts.append(found)
            ends.append(end)
            lacking += len(log) - len(kept)
        told = check_true(simulated, Archived(simulated, logs, doubts, ends), LAST_LONG)
        # Where one was removed with its topic, the value before that may have been taken.
        assert not [one for one in told if one.state is State.UNKNOWN and one.removed_at == -1]
    assert lacking > 200


@pytest.mark.parametrize("seed", range(30))
def test_topic_ids_of_commits_decide(seed: int) -> None:
    simulated = simulate(seed, World(has_ids="yes", is_seen_late=True), steps=80)
    archived = simulated.archive()
    found = check_true(simulated, archived, LAST_LONG)
    assert all(one.life != AMBIGUOUS and one.state is not State.UNKNOWN for one in found)
    seen = {
        (place, life)
        for place, life in simulated.truth(LAST_LONG, archived.ends)
        if simulated.lives[place[1]][life].seen_ms is not None
    }
    told = {(place_of(one), simulated.true_life(one.topic, one.life)) for one in found if one.life >= 0}
    assert told == seen


def test_most_is_known_of_topics_that_are_created_again() -> None:
    """Else the other tests would pass a program that knows nothing."""
    states = [
        (truth.state, one.state)
        for simulated in (simulate(seed, World()) for seed in range(60))
        for archived in [simulated.archive()]
        for true in [simulated.truth(LAST_LONG, archived.ends)]
        for one in check_true(simulated, archived, LAST_LONG)
        for truth in [true.get((place_of(one), simulated.true_life(one.topic, one.life) if one.life >= 0 else -1))]
        if truth is not None
    ]
    kept = {state: [told for truth, told in states if truth is state] for state in State}
    assert kept[State.SET].count(State.SET) > 0.8 * len(kept[State.SET]) > 0
    assert kept[State.TOPIC_DELETED].count(State.TOPIC_DELETED) > 0.6 * len(kept[State.TOPIC_DELETED]) > 0


# --- by hand


def row(group: str, offset: int | None, at_ms: int, topic_id: int | None = None) -> Row:
    value = None if offset is None else commit_value(offset)
    if topic_id is not None:
        value = value_with_id(offset or 0, topic_id)
    return position_key(group, "x", 0), value, at_ms


HOUR = 3_600_000
ONE = [Root(0, "", None)]
TWO = [Root(0, "", 10 * HOUR), Root(1, "", 20 * HOUR)]


def told_of(
    rows: Sequence[Row],
    until_ms: int,
    *doubts: Doubt,
    roots: Sequence[Root] = ONE,
    end: int | None = None,
    others: Sequence[Row] = (),
) -> list[ArchivedPosition]:
    """Every third offset has a row; `others` are those of another partition."""
    logs = [
        archived_log(
            number,
            [
                Written(None, key or b"", value, 3 * place, at_ms, 0, 0)
                for place, (key, value, at_ms) in enumerate(these)
            ],
            doubts if number == 0 else (),
            end if end is not None and number == 0 else 3 * len(these),
            until_ms,
        )
        for number, these in enumerate([rows, others])
    ]
    return list(positions_as_of(logs, {"x": roots}))


def states_of(found: Sequence[ArchivedPosition]) -> dict[str, tuple[State, int]]:
    assert len({one.group for one in found}) == len(found)
    return {one.group: (one.state, one.offset) for one in found}


def lives_of(found: Sequence[ArchivedPosition]) -> set[tuple[str, int, State, int]]:
    return {(one.group, one.life, one.state, one.offset) for one in found}


def test_what_compaction_may_have_taken_is_unknown_and_never_none() -> None:
    minute = MINUTE_MS
    rows = [row("a", 1, 10 * minute), row("b", 2, 20 * minute), row("a", 3, 50 * minute), row("c", 4, 60 * minute)]
    eaten = Doubt(1, 2, needs_later=True)  # a record between the first two
    known = {"a": (State.SET, 1), "b": (State.SET, 2)}
    assert states_of(told_of(rows, 30 * minute)) == known
    found = told_of(rows, 30 * minute, eaten)
    assert states_of(found) == known | {"a": (State.UNKNOWN, 1), "c": (State.UNKNOWN, -1)}
    assert {one.group: one.known_from_ms for one in found} == {"a": 50 * minute, "b": UNKNOWN_MS, "c": 60 * minute}
    last = {"a": (State.SET, 3), "b": (State.SET, 2), "c": (State.SET, 4)}
    assert states_of(told_of(rows, LAST_LONG, eaten)) == last


def test_what_is_missing_for_another_cause_may_be_a_removal() -> None:
    rows = [row("a", 1, 10), row("b", 2, 20)]
    assert states_of(told_of(rows, LAST_LONG, Doubt(1, 2, needs_later=False))) == {
        "a": (State.UNKNOWN, 1),
        "b": (State.SET, 2),
    }
    assert states_of(told_of(rows, LAST_LONG, Doubt(4, 5, needs_later=False))) == {
        "a": (State.UNKNOWN, 1),
        "b": (State.UNKNOWN, 2),
    }


def test_a_removal_whose_commit_is_missing_is_told() -> None:
    assert states_of(told_of([row("a", None, 10)], LAST_LONG)) == {"a": (State.REMOVED, -1)}
    rows = [row("a", None, 10), row("b", 3, 11)]
    assert states_of(told_of(rows, LAST_LONG, Doubt(1, 2, needs_later=False)))["a"] == (State.UNKNOWN, -1)
    deleted = [row("b", 3, 5), row("a", None, 10), row("b", None, 11)]  # both with their topic
    assert states_of(told_of(deleted, LAST_LONG)) == {"a": (State.UNKNOWN, -1), "b": (State.TOPIC_DELETED, 3)}


def test_what_ended_with_its_topic_is_told_from_what_ended_before() -> None:
    later = 10 * MINUTE_MS
    rows = [row("a", 1, 10), row("b", 5, 20), row("a", None, 30), row("b", None, later)]
    assert states_of(told_of(rows, LAST_LONG)) == {"a": (State.REMOVED, 1), "b": (State.TOPIC_DELETED, 5)}
    together = [*rows[:2], row("a", None, later - 10), row("b", None, later)]
    assert states_of(told_of(together, LAST_LONG)) == {"a": (State.TOPIC_DELETED, 1), "b": (State.TOPIC_DELETED, 5)}
    again = [*together, row("b", 6, later + 1)]
    assert {state for state, _ in states_of(told_of(again, LAST_LONG)).values()} == {State.REMOVED, State.SET}
    under_way = [row("a", 1, 10), row("a", None, later), row("b", 5, later + 1), row("b", None, later + 2)]
    assert states_of(told_of(under_way, LAST_LONG)) == {"a": (State.REMOVED, 1), "b": (State.TOPIC_DELETED, 5)}
    missing = Doubt(1, 2, needs_later=True)
    assert states_of(told_of([row("a", 1, 10), row("a", None, 20)], LAST_LONG, missing)) == {"a": (State.UNKNOWN, 1)}


def test_what_stands_elsewhere_shows_that_the_topic_was_not_deleted() -> None:
    rows, later = [row("a", 1, 10), row("a", None, 10 * MINUTE_MS)], 20 * MINUTE_MS
    stands = [row("b", 2, 5), (position_key("z", "other", 0), commit_value(1), later)]
    assert states_of(told_of(rows, LAST_LONG, others=stands))["a"] == (State.REMOVED, 1)
    assert states_of(told_of(rows, LAST_LONG, others=stands[:1]))["a"] == (State.REMOVED, 1)  # there nobody came since
    # The topic was created again, so nothing can stand there: the archive of that partition ends before the removal.
    found = lives_of(
        told_of(
            [row("a", 1, 9 * HOUR), row("a", None, 12 * HOUR)],
            LAST_LONG,
            roots=TWO,
            others=[row("b", 2, 9 * HOUR), row("b", 3, 11 * HOUR)],
        )
    )
    assert found == {("a", 0, State.TOPIC_DELETED, 1), ("b", 0, State.SET, 3)}


def test_what_the_topic_outlived_was_not_removed_with_it() -> None:
    rows = [row("a", 1, 10), row("a", None, 10 * MINUTE_MS)]
    alive = [Root(0, "", 5, alive_ms=12 * MINUTE_MS)]
    assert states_of(told_of(rows, LAST_LONG, roots=alive)) == {"a": (State.REMOVED, 1)}


def test_causes_are_shown() -> None:
    day = 86_400_000
    group = b"\0\2" + text("g")
    rows = [
        *(row(name, 1, 10) for name in "abgk"),
        row("a", None, 8 * day),
        row("g", None, day),
        (group, None, day),
        row("b", None, day),
        row("k", None, 20 * day),
        row("s", 1, 20 * day),
    ]
    causes = {one.group: one.cause for one in told_of(rows, LAST_LONG)}
    assert causes == {
        "a": Cause.EXPIRED,
        "g": Cause.GROUP_DELETED,
        "b": Cause.UNKNOWN,
        "k": Cause.EXPIRED,
        "s": Cause.NONE,
    }
    assert {one.cause for one in told_of([row("a", 1, 10), row("a", None, 20)], LAST_LONG)} == {Cause.TOPIC_DELETED}


def test_times_that_do_not_rise_cut_by_time_and_decide_by_order() -> None:
    rows = [row("a", 1, 10), row("a", 2, 200_000), row("a", 3, 20), row("b", 1, 400_000)]
    assert states_of(told_of(rows, 30)) == {"a": (State.SET, 3)}
    # Behind a record that is too late there are others that are not: what is missing there counts.
    behind = [row("a", 1, 10), row("b", 2, 200_000), row("b", 3, 20)]
    assert states_of(told_of(behind, 30, Doubt(4, 5, needs_later=False)))["a"] == (State.UNKNOWN, 1)
    assert states_of(told_of(behind[:2], 30, Doubt(4, 5, needs_later=False), end=9))["a"] == (State.SET, 1)


def test_a_record_without_a_time_is_unknown_as_of_a_time_alone() -> None:
    rows = [row("a", 1, 10), row("b", 1, 11), row("a", 2, -1), row("c", 1, 20), row("c", None, -1)]
    assert states_of(told_of(rows, 30)) == {
        "a": (State.UNKNOWN, 2),
        "b": (State.SET, 1),
        "c": (State.UNKNOWN, 1),
    }
    assert states_of(told_of(rows, LAST_LONG))["a"] == (State.SET, 2)
    assert told_of(rows, LAST_LONG)[-1].state in {State.REMOVED, State.TOPIC_DELETED}  # at no known time, and yet


# --- lives


def test_what_stood_when_a_life_was_there_is_of_that_life() -> None:
    rows = [row("a", 1, 9 * HOUR), row("a", 2, 12 * HOUR), row("a", None, 15 * HOUR), row("a", 3, 19 * HOUR)]
    end = [(position_key("z", "other", 0), commit_value(1), 30 * HOUR)]
    found = lives_of(told_of([*rows, *end], LAST_LONG, roots=TWO))
    assert {one for one in found if one[0] == "a"} == {("a", 0, State.TOPIC_DELETED, 2), ("a", 1, State.SET, 3)}
    assert ("a", 0, State.SET, 2) in lives_of(told_of([*rows, *end], 13 * HOUR, roots=TWO))


def test_a_removal_without_a_commit_is_of_what_stands_around_it() -> None:
    around = [row("b", 1, 9 * HOUR), row("a", None, 11 * HOUR), row("b", 2, 12 * HOUR), row("b", None, 13 * HOUR)]
    found = lives_of(told_of([*around, row("c", None, 14 * HOUR)], LAST_LONG, roots=TWO))
    assert ("a", 0, State.REMOVED, -1) in found
    assert ("c", AMBIGUOUS, State.REMOVED, -1) in found  # of any topic that had the name


def test_an_id_that_the_archive_does_not_have_is_of_a_topic_without_one() -> None:
    assert [one.life for one in told_of([row("a", 1, 10, topic_id=7)], LAST_LONG)] == [0]
    named = [Root(0, "other", 5)]
    assert [one.life for one in told_of([row("a", 1, 10, topic_id=7)], LAST_LONG, roots=named)] == [NOT_ARCHIVED]
    (one,) = told_of([row("a", 1, 12 * HOUR, topic_id=7)], LAST_LONG, roots=TWO)
    assert one.state is State.AMBIGUOUS
    assert one.life == AMBIGUOUS
    half = [Root(0, "other", 10 * HOUR), Root(1, "", 20 * HOUR)]
    for at_ms, life in ((9, AMBIGUOUS), (12, AMBIGUOUS), (21, 1)):
        rows = [row("a", 1, at_ms * HOUR, topic_id=7), row("a", 2, (at_ms + 2) * HOUR, topic_id=7)]
        (one,) = told_of(rows, LAST_LONG, roots=half)
        assert one.life == life


def test_what_may_be_missing_in_another_life_is_unknown_there() -> None:
    rows = [row("a", 1, 9 * HOUR), row("a", None, 12 * HOUR), row("b", 1, 30 * HOUR)]
    found = lives_of(told_of(rows, LAST_LONG, Doubt(4, 5, needs_later=False), roots=TWO))
    assert ("a", 1, State.UNKNOWN, -1) in found
    rows = [row("b", 1, 30 * HOUR), row("a", 1, 31 * HOUR)]
    found = lives_of(told_of(rows, LAST_LONG, Doubt(1, 2, needs_later=True), roots=TWO))
    assert {("a", 1, State.SET, 1), ("a", 0, State.UNKNOWN, -1)} <= found
