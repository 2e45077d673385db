"""What metrics and `/readyz` say of a service whose broker or store is away: time is driven by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from archiver.backup.reports.metrics import PartitionState
from archiver.backup.reports.troubles import Troubles
from archiver.backup.service.assignment import Assignment
from archiver.backup.service.vitals import Vitals
from archiver.errors import KafkaTemporaryError, StoreError
from tests.support.feeds import feed_of
from tests.support.segments import SOURCE
from tests.unit.backup.test_feed import answer

KEY = ("t", 0)


class World:
    """A service with one partition; no thread, no loop."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.feed = feed_of(replace(SOURCE, topic="t", partition=0), position=10)
        self.assigned = Assignment(since_s=self.now_s)
        self.membership = SimpleNamespace(shut_out_s=0.0, error=None, is_member=True)
        self.client = SimpleNamespace(silent_s=None)
        self.troubles = Troubles(lambda: self.now_s)
        self.vitals = Vitals(clock=lambda: self.now_s, clock_ms=lambda: 1_700_000_000_000)
        service: Any = SimpleNamespace(
            feeds={KEY: self.feed}, held={KEY: self.assigned}, topics={"t": None}, topic_names=["t"], refused=SimpleNamespace(topics={}),
            is_ready=True,
            membership=self.membership, client=self.client, troubles=self.troubles,
        )  # fmt: skip
        self.service = service
        self.vitals.attend(service)

    def state(self) -> PartitionState:
        (state,) = self.vitals.states()
        return state


def test_the_age_grows_while_the_broker_is_away() -> None:
    world = World()
    world.feed.note_answer(answer(10), world.now_s)
    assert world.state().pending_age_s(0) is None
    world.now_s += 600
    assert world.state().pending_age_s(0) == 600
    world.service.feeds = {}  # it ended with an error, and waits to be opened again
    world.assigned.fail(KafkaTemporaryError("refused"), world.now_s, world.feed.unsaved_since_s(world.now_s))
    world.now_s += 60
    assert world.state().pending_age_s(0) == 660


def test_a_partition_that_is_opened_again_keeps_its_age() -> None:
    """Nothing falls to 0 until the first answer."""
    world = World()
    world.service.feeds = {}
    world.service.held = {KEY: Assignment(since_s=world.now_s, unsaved_since_s=world.now_s - 40)}
    world.now_s += 2
    state = world.state()
    assert (state.pending_age_s(0), state.is_failing, state.is_opening) == (42, False, True)


def test_a_partition_fails_from_its_first_failure_until_something_is_durable() -> None:
    world = World()
    world.feed.note_answer(answer(20), world.now_s)
    world.assigned.fail(StoreError("denied"), world.now_s, None)
    assert world.state().is_failing  # though it is open again
    world.assigned.note_durable()
    assert not world.state().is_failing


def test_readiness_tells_of_a_broker_that_is_away() -> None:
    world = World()
    assert world.vitals.why_not_ready() is None
    world.client.silent_s = 5.0  # an election
    assert world.vitals.why_not_ready() is None
    world.client.silent_s = 20.0
    assert world.vitals.why_not_ready() == "cannot reach Kafka since 2023-11-14T22:13:00Z"
    world.client.silent_s, world.membership.is_member = 5.0, False
    assert world.vitals.why_not_ready() == "cannot reach Kafka since 2023-11-14T22:13:15Z"
    world.client.silent_s = None
    assert world.vitals.why_not_ready() == "not in the group yet"


def test_readiness_tells_of_a_store_that_is_away() -> None:
    world = World()
    world.troubles.note(StoreError("InvalidAccessKeyId: unknown key"), "", KEY, is_quiet=True)
    assert world.vitals.why_not_ready() is None
    world.now_s += 31
    why = world.vitals.why_not_ready()
    assert why is not None
    assert "InvalidAccessKeyId" in why
