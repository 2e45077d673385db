"""The store's clock as a process knows it: what it tells holds whatever the true time is within what could be seen."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.archive.format.store_clock import StoreClock, agreed_now_ms, epoch_ms
from archiver.errors import StoreError
from tests.support.memory_store import FIRST_MOMENT, MemoryStore

BEGIN = datetime(2026, 11, 20, 14, tzinfo=UTC)


class Machine:
    """A machine's clock, and a store's that is ahead of it by some time, and runs a little slower or faster."""

    def __init__(self, ahead_s: float = 0, rate: float = 1) -> None:
        self.now_s = 1000.0
        self.ahead_s = ahead_s
        self.rate = rate
        self.clock = StoreClock(lambda: self.now_s)

    @property
    def store_now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.ahead_s + (self.now_s - 1000) * self.rate)

    def put(self, before_s: float = 0, after_s: float = 0) -> None:
        started_s = self.now_s
        self.now_s += before_s
        told = self.store_now.replace(microsecond=0)
        self.now_s += after_s
        self.clock.note(started_s, self.now_s, told)

    def check(self) -> None:
        assert self.clock.earliest_now_ms() <= self.store_now.timestamp() * 1000 <= self.clock.latest_now_ms()


def test_nothing_is_known_before_a_put() -> None:
    clock = StoreClock()
    assert not clock.is_known
    with pytest.raises(LookupError, match="before an object was put"):
        clock.earliest_now_ms()
    with pytest.raises(LookupError, match="before an object was put"):
        clock.latest_now_ms()


def test_whole_seconds_and_the_time_of_the_put_are_the_doubt() -> None:
    machine = Machine(ahead_s=0.9)
    machine.put(before_s=2, after_s=0.5)
    assert machine.clock.is_known
    assert machine.clock.earliest_now_ms() == epoch_ms(BEGIN) + 2000
    assert epoch_ms(BEGIN) + 2000 + 3500 <= machine.clock.latest_now_ms() <= epoch_ms(BEGIN) + 2000 + 3510


STEPS = st.lists(
    st.tuples(st.floats(0, 90), st.floats(0, 4), st.floats(0, 4)), min_size=1, max_size=20
)  # a pause; before and after the store's answer was made


@given(st.floats(-1e6, 1e6), st.floats(0.9995, 1.0005), STEPS)
def test_the_bounds_hold(ahead_s: float, rate: float, steps: list[tuple[float, float, float]]) -> None:
    machine = Machine(ahead_s, rate)
    for pause_s, before_s, after_s in steps:
        machine.put(before_s, after_s)
        machine.check()
        machine.now_s += pause_s
        machine.check()


@given(st.floats(0.9995, 1.0005), STEPS)
def test_more_puts_never_tell_less(rate: float, steps: list[tuple[float, float, float]]) -> None:
    machine = Machine(rate=rate)
    machine.put()
    for pause_s, before_s, after_s in steps:
        machine.now_s += pause_s
        started_s = machine.now_s
        machine.now_s += before_s
        told = machine.store_now.replace(microsecond=0)
        machine.now_s += after_s
        doubt_ms = machine.clock.latest_now_ms() - machine.clock.earliest_now_ms()
        machine.clock.note(started_s, machine.now_s, told)
        assert machine.clock.latest_now_ms() - machine.clock.earliest_now_ms() <= doubt_ms + 2  # whole milliseconds


@pytest.mark.parametrize("step_s", [-7200, -5, 5, 7200])
def test_a_store_whose_clock_was_set_is_believed(step_s: int) -> None:
    machine = Machine()
    machine.put()
    machine.now_s += 10
    machine.ahead_s += step_s
    machine.put(after_s=0.25)
    machine.check()


@pytest.mark.parametrize("minutes", [-14, 14])
def test_the_store_may_be_some_minutes_ahead_of_the_machine_or_behind(minutes: int) -> None:
    store = MemoryStore()
    store.ahead = timedelta(minutes=minutes)
    assert agreed_now_ms(store) == epoch_ms(FIRST_MOMENT + timedelta(minutes=minutes))


@pytest.mark.parametrize(("ahead", "said"), [(40, "2026-02-10T00:00:00.000Z"), (-1, "2025-12-31T00:00:00.000Z")])
def test_a_store_that_is_far_from_the_machine_tells_no_time_for_deletes(ahead: int, said: str) -> None:
    store = MemoryStore()
    store.ahead = timedelta(days=ahead)
    with pytest.raises(StoreError, match=rf"^the store's clock says {said}, and this machine's 2026-01-01T00:00:00"):
        agreed_now_ms(store)
