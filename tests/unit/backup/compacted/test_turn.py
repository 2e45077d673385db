"""Single decisions of a turn, which take longer to come about than every interleaving of a small world goes on."""

from dataclasses import replace

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry
from archiver.backup.compacted.turn import turn_decisions as turns
from archiver.backup.compacted.turn.turn_schedule import StoredTimes, TurnTimes, judge

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
TIMES = TurnTimes(length_ms=7 * DAY_MS, takeover_ms=HOUR_MS)
DUE = turns.Dues(is_turn_due=True, is_overdue=True, is_candidate_heard=True)


def copy(instance: str, number: int, *, is_sure: bool = True) -> CompleteCopy:
    generation = Generation(instance=instance, number=number)
    return CompleteCopy(generation=generation, next=5, position=5, is_sure=is_sure)


def caught_up(*, is_holder_sure: bool) -> RoleEntry:
    """a/0 holds, and b/2 was begun."""
    first = entries.begin(None, 0, "a", has_history=False)
    held = entries.switch(first, 1, copy("a", 0, is_sure=is_holder_sure))
    return entries.begin(held, 2, "b", has_history=False)


def look(entry: RoleEntry, dues: turns.Dues, *, is_sure: bool) -> tuple[turns.Effect, ...]:
    """What b does, whose generation 2 has all of the log."""
    sight = turns.StoredState(
        number=2, entry=entry, readers_end=5, has_history=False, ends={2: turns.CopyEnd(9, is_whole=True)}, dues=dues
    )
    turn, _ = turns.react(turns.Turn(instance="b"), turns.Looked(sight))
    for event in (turns.Opened(2, 0, is_sure), turns.FetchEvent(2, 9, 9, is_of_leader=True), turns.Put(2, 9, 9)):
        turn, _ = turns.react(turn, event)
    return turns.react(turn, turns.Looked(sight))[1]


def test_a_candidate_that_missed_tombstones_is_tried_again_and_no_more_than_once_a_turn() -> None:
    entry = caught_up(is_holder_sure=True)
    assert look(entry, DUE, is_sure=False) == ()
    (effect,) = look(entry, replace(DUE, may_try_again=True), is_sure=False)
    assert isinstance(effect, turns.Append)
    assert (effect.entry.type, effect.entry.candidate) == ("begin", Generation(instance="b", number=3))


@pytest.mark.parametrize(("is_sure", "is_holder_sure"), [(True, True), (False, False)])
def test_a_candidate_that_may_hold_takes_over_however_long_that_took(is_sure: bool, is_holder_sure: bool) -> None:
    (effect,) = look(caught_up(is_holder_sure=is_holder_sure), replace(DUE, may_try_again=True), is_sure=is_sure)
    assert isinstance(effect, turns.Append)
    assert effect.entry.type == "switch"


def test_each_try_in_vain_doubles_the_pause() -> None:
    entry, pauses = caught_up(is_holder_sure=True), []
    put_ms = {0: 0, 1: 1, 2: 10 * DAY_MS}
    for number in range(3, 13):
        begun_ms = put_ms[number - 1]

        def may_try(
            day: int, told_ms: dict[int, int] = put_ms, entry: RoleEntry = entry, begun: int = begun_ms
        ) -> bool:
            told = StoredTimes(now_ms=begun + day * DAY_MS, first_seen_ms=0, put_ms=told_ms, heard_ms={})
            return judge(entry, told, TIMES, ("a", "b"), begins_first=False).may_try_again

        days = next(days for days in range(10_000) if may_try(days))
        pauses.append(days // 7)
        put_ms = {**put_ms, number: begun_ms + days * DAY_MS}
        entry = entries.begin(entry, number, "b", has_history=False)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]
