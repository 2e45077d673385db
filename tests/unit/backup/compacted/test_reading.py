"""How fresh a generation is that a process fills, by the store's clock, also where that is set back."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.copies.moments import Moment
from archiver.archive.format.store_clock import StoreClock, epoch_ms, from_epoch_ms
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.compacted.turn import freshness
from archiver.backup.compacted.turn.reading import CopyFeedWatch, HeldBackError
from archiver.backup.compacted.turn.turn_decisions import Broke, Event

HOUR_S = 3600.0
BEGIN = from_epoch_ms(1_800_000_000_000)


class Machine:
    """A process's clock, and the store's, which goes beside it until it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ahead_s = 0.0
        self.clock = StoreClock(lambda: self.now_s)
        self.put()

    def put(self) -> None:
        self.clock.note(self.now_s, self.now_s, BEGIN + timedelta(seconds=self.now_s + self.ahead_s))


def open_reading(machine: Machine) -> CopyFeedWatch:
    reading = CopyFeedWatch(
        generation=0,
        clock=machine.clock,
        now_s=lambda: machine.now_s,
        limit_ms=lambda: 10 * 3_600_000,
        tell=lambda _: None,
        wake=lambda: None,
        wants_end=lambda: False,
        may_put=lambda: True,
        fresh=freshness.begun(Moment(epoch_ms(BEGIN), 0)),
        is_unsure=False,
    )
    reading.feed = cast("Any", SimpleNamespace(source="t-0", writer=SimpleNamespace(durable_position=0)))
    return reading


@pytest.mark.parametrize(("is_set_back", "is_looked_at"), [(False, True), (True, True), (True, False)])
def test_a_clock_that_is_set_back_gives_no_more_time_to_read(is_set_back: bool, is_looked_at: bool) -> None:
    machine = Machine()
    reading = open_reading(machine)
    assert not reading.check_time()
    machine.now_s = 6 * HOUR_S
    machine.ahead_s = -5 * HOUR_S if is_set_back else 0.0
    machine.put()
    assert not is_looked_at or not reading.check_time()
    reading.refuse_put(cast("Any", None))  # nothing is refused yet
    machine.now_s = 10.1 * HOUR_S
    with pytest.raises(HeldBackError):
        reading.refuse_put(cast("Any", SimpleNamespace(facts=SimpleNamespace(base=0, next=1))))
    assert reading.check_time()


def test_a_moment_after_the_clock_was_set_back_counts_by_the_clock_as_it_is_now() -> None:
    machine = Machine()
    reading = open_reading(machine)
    machine.now_s, machine.ahead_s = 6 * HOUR_S, -5 * HOUR_S
    machine.put()
    moment = reading.moment()
    assert moment is not None
    assert epoch_ms(BEGIN) - 5.1 * HOUR_S * 1000 <= moment.at_ms <= epoch_ms(BEGIN) - 5 * HOUR_S * 1000
    reading.fresh = freshness.begun(Moment(machine.clock.earliest_now_ms(), 0))
    machine.now_s += 9.5 * HOUR_S
    assert not reading.check_time()


@pytest.mark.parametrize(
    ("cause", "newest_base", "holds_records", "breaks"),
    [
        (HoleCause.EXPIRED, 0, False, True),
        (HoleCause.EXPIRED, None, True, True),
        (HoleCause.EXPIRED, None, False, False),  # the log begins there
        (HoleCause.UNREADABLE, 0, False, False),  # told as lost records
    ],
)
def test_records_that_expired_behind_those_that_were_read_make_a_copy_unsure_before_anything_else_is_put(
    cause: HoleCause, newest_base: int | None, *, holds_records: bool, breaks: bool
) -> None:
    reading, told = open_reading(Machine()), list[Event]()
    reading.tell = told.append
    writer = SimpleNamespace(durable_position=0, newest_base=newest_base, holds_records=holds_records)
    reading.feed = cast("Any", SimpleNamespace(source="t-0", writer=writer))
    reading.note_skip(reading.feed, cause)
    assert (reading.is_unsure, reading.moment() is None, told) == (breaks, breaks, [Broke(0)] if breaks else [])
