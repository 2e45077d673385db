"""Rule W over time: whoever reads fast enough lacks no tombstone, and whoever may lack one says so."""

import random

import pytest

from archiver.archive.copies.moments import Moment
from archiver.backup.compacted.turn import freshness
from archiver.backup.compacted.turn.freshness import Answer, Freshness, begun, note_answer, note_durable, note_limit

LIMIT_MS = 100
BEGUN = begun(Moment(0, 0))


def answer(
    asked_ms: int, last_stable: int, position: int, *, received_ms: int | None = None, limit_ms: int = LIMIT_MS
) -> Answer:
    return Answer(asked_ms, asked_ms + 1 if received_ms is None else received_ms, last_stable, position, limit_ms)


def after(*answers: Answer, state: Freshness = BEGUN) -> Freshness:
    for one in answers:
        state = note_answer(state, one)
    return state


def test_a_moment_is_reached_when_all_that_it_tells_was_read() -> None:
    state = after(answer(10, 50, 20), answer(60, 70, 49))
    assert (state.reached, state.ahead) == (Moment(0, 0), Moment(10, 50))
    state = after(answer(90, 80, 50), state=state)
    assert (state.reached, state.is_broken) == (Moment(10, 50), False)


def test_reading_on_for_longer_than_tombstones_are_kept_breaks_it_for_good() -> None:
    state = after(answer(10, 50, 20), answer(99, 50, 40))
    assert state.is_broken
    assert after(answer(101, 50, 50), state=state).is_broken


def test_an_idle_log_stays_fresh() -> None:
    state = after(*(answer(at, 50, 50) for at in range(0, 1_000, 90)))
    assert (state.is_broken, state.reached) == (False, Moment(990, 50))


def test_the_smallest_limit_since_the_last_moment_counts() -> None:
    state = note_limit(after(answer(0, 50, 20)), 10, 30)
    assert after(answer(40, 50, 50), state=state).is_broken
    # What was smaller before the moment that was reached last no longer matters.
    state = after(answer(5, 50, 50), answer(20, 60, 60), state=note_limit(BEGUN, 1, 30))
    assert not after(answer(90, 60, 60), state=state).is_broken


def test_a_moment_is_durable_when_all_below_it_is_in_storage() -> None:
    state = note_durable(after(answer(10, 50, 50)), 49)
    assert state.durable == Moment(0, 0)
    state = note_durable(after(answer(20, 60, 60), state=state), 50)
    assert state.durable == Moment(10, 50)


@pytest.mark.parametrize("seed", range(300))
def test_against_a_log_whose_tombstones_go(seed: int) -> None:
    """Draw when a tombstone is written, cleaned and gone, and when the log is read: without a breach, it was read."""
    draw = random.Random(seed)
    written_ms = draw.randint(0, 400)
    gone_ms = (
        written_ms + draw.randint(0, 50) + LIMIT_MS
    )  # its value went with the first pass, it goes with a later one
    now_ms, position, state, has_read = 0, 0, BEGUN, False
    while now_ms < 1_000 and not state.is_broken:
        asked_ms = now_ms
        served_ms = asked_ms + draw.randint(0, 10)
        last_stable = 10 if served_ms < written_ms else 20  # the tombstone is at 10
        read_to = min(last_stable, position + draw.choice([0, 5, 20]))
        if position <= 10 < read_to:
            has_read |= served_ms < gone_ms
        position = read_to
        now_ms = served_ms + draw.randint(0, 40)
        state = note_answer(state, Answer(asked_ms, now_ms, last_stable, position, LIMIT_MS))
        if position > 10 and not has_read:
            assert state.is_broken
        now_ms += draw.randint(0, 60)


def never_too_long(fresh: Freshness, *_: int) -> Freshness:
    return fresh


def test_the_seeds_meet_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed finds out a rule that never breaks."""
    monkeypatch.setattr(freshness, "note_limit", never_too_long)
    with pytest.raises(AssertionError):
        list(map(test_against_a_log_whose_tombstones_go, range(300)))
