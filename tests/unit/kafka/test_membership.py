"""Whether a member counts as one, for each order of librdkafka's callbacks. The consumer and the brokers' answers are scripted."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from archiver.config.model import GroupProtocol
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups import membership as module
from archiver.kafka.groups.group import GroupSettings, Hint
from archiver.kafka.groups.membership import Membership
from archiver.kafka.login.settings import KafkaSettings

PATIENCE_S = 100.0
DENIED = ClientError(
    ClientError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error: Group authorization failed"
)


class Scripted:
    """librdkafka's consumer, the brokers' answers about the group, and the owner of the partitions."""

    def __init__(self) -> None:
        self.member_id = "me"
        self.listed, self.state = ["another"], ConsumerGroupState.STABLE
        self.asked = 0
        self.events: list[str] = []
        self._steps: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._properties: dict[str, Any] = {}
        self._calls: dict[str, Callable[..., None]] = {}
        self.consumers = 0
        self.may_close = threading.Event()
        self.may_close.set()
        group = GroupSettings(group="g", protocol=GroupProtocol.CLASSIC, session_timeout_ms=6000, refresh_ms=1000)
        settings = KafkaSettings.parse({"bootstrap.servers": "127.0.0.1:9"})
        self.membership = Membership(settings, group, self, retry_s=0.01, admission_s=0.0)

    # --- what librdkafka does next, inside poll

    def assign(self, *numbers: int) -> None:
        self._call("on_assign", numbers)

    def revoke(self, *numbers: int) -> None:
        self._call("on_revoke", numbers)

    def lose(self, *numbers: int) -> None:
        self._call("on_lost", numbers)

    def fail(self, error: ClientError) -> None:
        self._do(lambda: self._properties["error_cb"](error))

    def _call(self, name: str, numbers: Sequence[int]) -> None:
        rows = [ClientPartition("t", number) for number in numbers]
        self._do(lambda: self._calls[name](self, rows))

    def _do(self, step: Callable[[], object]) -> None:
        done = threading.Event()

        def act() -> None:
            step()
            done.set()

        self._steps.put(act)
        assert done.wait(PATIENCE_S)

    def until_asked(self) -> None:
        """Wait until the brokers have answered twice, the second time after what was done before."""
        before = self.asked
        until(lambda: self.asked >= before + 2, "the brokers are asked about the group")

    # --- the consumer

    def consumer(self, properties: dict[str, Any]) -> "Scripted":
        self._properties = properties
        self.consumers += 1
        return self

    def subscribe(self, _: list[str], **calls: Callable[..., None]) -> None:
        self._calls = calls

    def poll(self, _: float) -> None:
        try:
            self._steps.get(timeout=0.001)()
        except queue.Empty:
            return

    def memberid(self) -> str:
        return self.member_id

    def incremental_assign(self, partitions: list[ClientPartition]) -> None: ...
    def incremental_unassign(self, partitions: list[ClientPartition]) -> None: ...
    def pause(self, partitions: list[ClientPartition]) -> None: ...

    def close(self) -> None:
        assert self.may_close.wait(PATIENCE_S)

    # --- the client that asks about the group

    def admin(self, _: dict[str, Any]) -> "Scripted":
        return self

    def describe_consumer_groups(self, names: list[str], **_: float) -> dict[str, Any]:
        self.asked += 1
        group = SimpleNamespace(state=self.state, members=[SimpleNamespace(member_id=one) for one in self.listed])
        return {names[0]: SimpleNamespace(result=lambda: group)}

    # --- the owner

    def gained(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"gained {len(partitions)}")

    def revoked(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        self.events.append(f"revoked {len(partitions)}")
        return []

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(f"lost {len(partitions)}")


def until(reached: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.001)


Start = Callable[[], Scripted]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    begun: list[Scripted] = []

    def start() -> Scripted:
        script = Scripted()
        begun.append(script)
        monkeypatch.setattr(module, "Consumer", script.consumer)
        monkeypatch.setattr(module, "AdminClient", script.admin)
        script.membership.start(["t"])
        return script

    yield start
    for script in begun:
        assert script.membership.close([], PATIENCE_S)


def test_a_member_that_lost_its_partitions_returns_with_the_next_assignment(start: Start) -> None:
    """Also with none in it. What was lost stays with the owner until then."""
    script = start()
    for again in ([0, 1], []):
        script.assign(0, 1)
        assert script.membership.is_member
        script.events.clear()
        script.lose(0, 1)
        assert (script.membership.is_member, script.events) == (False, [])
        script.assign(*again)
        assert script.membership.is_member
        assert script.events == ["lost 2"] + ["gained 2"] * bool(again)
        script.revoke(*again)


def test_a_refusal_that_ends_before_the_session_ends_no_membership(start: Start) -> None:
    """librdkafka looks for the coordinator again and is refused; the rights are back before the session ends: no callback tells so."""
    script = start()
    script.assign(0, 1)
    script.fail(DENIED)
    script.until_asked()
    assert (script.membership.is_member, "GROUP_AUTHORIZATION_FAILED" in str(script.membership.error)) == (False, True)
    script.listed, script.state = ["me", "another"], ConsumerGroupState.PREPARING_REBALANCING
    script.until_asked()
    assert not script.membership.is_member  # not before the brokers have given partitions to everyone
    script.state = ConsumerGroupState.STABLE
    until(lambda: script.membership.is_member, "the group has us")
    assert (script.membership.error, script.membership.shut_out_s) == (None, 0.0)
    assert script.events == ["gained 2"]


def test_without_topics_and_until_the_next_assignment_it_is_no_member(start: Start) -> None:
    script = start()
    script.assign(0)
    script.membership.subscribe([])
    until(lambda: script.events == ["gained 1", "revoked 1"], "the partition is given back")
    until(lambda: not script.membership.is_member, "the group was left")
    script.membership.subscribe(["t"])
    until(lambda: script.consumers == 2, "it joins again")
    script.until_asked()
    assert (script.membership.is_member, script.membership.error) == (False, None)
    script.assign(0)
    assert script.membership.is_member


def test_a_consumer_that_does_not_come_back_is_replaced(start: Start) -> None:
    """Not while the brokers list it: then others are waited for. Closing it may take long."""
    script = start()
    script.assign(0, 1)
    script.listed, script.state = ["me"], ConsumerGroupState.PREPARING_REBALANCING
    script.lose(0, 1)
    script.until_asked()
    assert (script.consumers, script.membership.counters.restarts) == (1, 0)
    script.may_close.clear()
    script.listed = ["another"]
    until(lambda: script.consumers >= 2, "it is replaced")
    script.listed = ["me"]
    script.may_close.set()
    script.assign(0, 1)
    assert script.membership.is_member
    assert script.events == ["gained 2", "lost 2", "gained 2"]
