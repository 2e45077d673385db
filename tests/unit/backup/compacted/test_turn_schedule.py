"""What the clock allows in a turn: when the next generation is due, and who may begin it."""

from dataclasses import replace

import pytest

from archiver.archive.copies import role_entries as entries
from archiver.archive.copies.roles import CompleteCopy, Generation, RoleEntry
from archiver.backup.compacted.turn.turn_decisions import Dues
from archiver.backup.compacted.turn.turn_schedule import FIRST_TAKEOVER_MS, StoredTimes, TurnTimes, judge

DAY_MS, HOUR_MS = 24 * 3_600_000, 3_600_000
TIMES = TurnTimes(length_ms=7 * DAY_MS, takeover_ms=HOUR_MS)
A0 = Generation(instance="a", number=0)
FIRST = entries.begin(None, 0, "a", has_history=False)
HELD = entries.switch(FIRST, 1, CompleteCopy(generation=A0, next=5, position=5, is_sure=True))
HEARD = StoredTimes(now_ms=DAY_MS, first_seen_ms=0, put_ms={0: 0, 1: 1_000}, heard_ms={A0: DAY_MS})


def judged(entry: RoleEntry | None, told: StoredTimes, instances: tuple[str, ...] = ("a", "b")) -> Dues:
    return judge(entry, told, TIMES, instances, begins_first=False)


def test_before_the_first_entry() -> None:
    told = replace(HEARD, now_ms=FIRST_TAKEOVER_MS - 1)
    assert (judged(None, told).is_turn_due, judged(None, told).is_overdue) == (True, False)
    assert judged(None, replace(told, now_ms=FIRST_TAKEOVER_MS)).is_overdue


@pytest.mark.parametrize(
    ("age_ms", "is_due", "is_overdue"), [(0, False, False), (1, True, False), (HOUR_MS + 1, True, True)]
)
def test_a_turn_that_is_over(age_ms: int, is_due: bool, is_overdue: bool) -> None:
    now_ms = 1_000 + 7 * DAY_MS - 1 + age_ms
    found = judged(HELD, replace(HEARD, now_ms=now_ms, heard_ms={A0: now_ms}))
    assert (found.is_turn_due, found.is_overdue) == (is_due, is_overdue)


def test_a_holder_that_is_silent_damaged_or_not_named() -> None:
    assert not judged(HELD, HEARD).is_turn_due
    assert judged(HELD, replace(HEARD, heard_ms={A0: DAY_MS - HOUR_MS - 1})).is_turn_due
    assert judged(HELD, replace(HEARD, damaged_since_ms=DAY_MS)).is_turn_due
    assert judged(HELD, HEARD, instances=("b", "c")).is_turn_due


def test_an_unsure_holder_is_due_at_once_and_then_once_a_turn() -> None:
    broke = entries.unsure(HELD, 2, "a")
    told = replace(HEARD, put_ms={0: 0, 1: 1_000, 2: DAY_MS - 1})
    assert judged(broke, told).is_turn_due
    tried = entries.begin(broke, 3, "b", has_history=False)
    assert not judged(tried, replace(told, put_ms={**told.put_ms, 3: DAY_MS})).is_turn_due


def test_a_candidate_is_heard_until_it_is_silent() -> None:
    told = replace(HEARD, put_ms={0: DAY_MS - HOUR_MS}, heard_ms={})
    assert judged(FIRST, told).is_candidate_heard
    assert not judged(FIRST, replace(told, now_ms=DAY_MS + 1)).is_candidate_heard
    assert judged(FIRST, replace(told, now_ms=DAY_MS + 1, heard_ms={A0: DAY_MS})).is_candidate_heard
    assert not judged(FIRST, told, instances=("b",)).is_candidate_heard


def test_a_candidate_may_be_tried_again_once_a_turn() -> None:
    tried = entries.begin(HELD, 2, "b", has_history=False)
    told = replace(HEARD, put_ms={0: 0, 1: 1_000, 2: DAY_MS}, now_ms=8 * DAY_MS - 1)
    assert not judged(tried, told).may_try_again
    assert judged(tried, replace(told, now_ms=8 * DAY_MS)).may_try_again
    unknown = replace(
        told, now_ms=8 * DAY_MS, put_ms={0: 0}, first_seen_ms=DAY_MS + 1
    )  # it may have been begun just then
    assert not judged(tried, unknown).may_try_again
    assert not judged(HELD, replace(told, now_ms=80 * DAY_MS)).may_try_again


def test_a_candidate_in_vain_is_tried_again_at_once_where_the_holder_is_damaged_and_once() -> None:
    tried = entries.begin(HELD, 2, "b", has_history=False)
    told = replace(HEARD, put_ms={0: 0, 1: 1_000, 2: DAY_MS}, now_ms=DAY_MS + 1, damaged_since_ms=DAY_MS + 1)
    assert judged(tried, told).may_try_again
    again = entries.begin(tried, 3, "b", has_history=False)
    assert not judged(again, replace(told, put_ms={**told.put_ms, 3: DAY_MS + 1}, now_ms=3 * DAY_MS)).may_try_again
