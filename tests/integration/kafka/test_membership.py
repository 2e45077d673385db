"""Members of a consumer group against real brokers, with both protocols."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # public, but not marked so

from archiver.config.model import GroupProtocol
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group import GroupSettings, Hint
from archiver.kafka.groups.membership import Membership
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.running.children import start_child
from tests.support import token_server
from tests.support.brokers import KAFKA_41, REPOSITORY, Broker, StartBroker
from tests.support.kafka_topics import create_topic, produce_values, settings_of
from tests.support.processes import standing_still

pytestmark = pytest.mark.kafka

PATIENCE_S = 100.0
SESSION_MS = 10_000
SOON_S = 5.0  # well under the session timeout
# With the consumer protocol the brokers hold what a member asks for in the classic one.
QUICK_CONSUMERS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
SHORT_SESSIONS = {**QUICK_CONSUMERS, "group.consumer.session.timeout.ms": "2000"}


class Recorder:
    """An owner that keeps what it hears, and archives up to offset 100 + partition in no time."""

    def __init__(self) -> None:
        self.membership: Membership | None = None
        self.held: set[TopicPartition] = set()
        self.events: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.found: dict[TopicPartition, Hint] = {}
        self.stumble = 0
        self._changed = threading.Condition()

    def gained(self, partitions: Sequence[TopicPartition]) -> None:
        if self.stumble:
            self.stumble -= 1
            raise ValueError("stumbled")
        assert self.membership is not None
        self.found |= self.membership.committed(partitions)
        self._note("gained", partitions, self.held | set(partitions))

    def revoked(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        assert self.membership is not None
        self.membership.committed(partitions)  # answers, although the member's thread is here
        self._note("revoked", partitions, self.held - set(partitions))
        return [hint_of(key) for key in partitions]

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("lost", partitions, self.held - set(partitions))

    def _note(self, what: str, partitions: Sequence[TopicPartition], held: set[TopicPartition]) -> None:
        with self._changed:
            self.held = held
            self.events.append((what, tuple(sorted(partitions))))
            self._changed.notify_all()

    def heard(self, what: str) -> list[TopicPartition]:
        return [key for kind, keys in self.events if kind == what for key in keys]

    def until(self, reached: Callable[["Recorder"], bool], timeout_s: float = PATIENCE_S) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: reached(self), timeout_s), self.events


def hint_of(key: TopicPartition) -> Hint:
    return Hint(topic=key[0], partition=key[1], offset=100 + key[1], base=key[1])


@dataclass(frozen=True)
class Group:
    bootstrap: str
    name: str
    protocol: GroupProtocol

    @contextmanager
    def member(
        self, *topics: str, session_ms: int = SESSION_MS, stumble: int = 0
    ) -> Iterator[tuple[Membership, Recorder]]:
        recorder = Recorder()
        recorder.stumble = stumble
        recorder.membership = membership = Membership(
            settings_of(self.bootstrap),
            GroupSettings(group=self.name, protocol=self.protocol, session_timeout_ms=session_ms, refresh_ms=500),
            recorder,
            retry_s=0.2,
            admission_s=2.0,
        )
        membership.start(topics)
        try:
            yield membership, recorder
        finally:
            assert membership.close([], PATIENCE_S)
            assert not membership._delivered


@pytest.fixture(scope="module")
def quick_broker(new_module_broker: StartBroker) -> Broker:
    return new_module_broker(**QUICK_CONSUMERS)


@pytest.fixture(params=["3.9-classic", "4.1-classic", "4.1-consumer"])
def group(request: pytest.FixtureRequest, topic: str) -> Group:
    version, protocol = request.param.split("-")
    broker: Broker = request.getfixturevalue("broker_39" if version == "3.9" else "quick_broker")
    return Group(broker.bootstrap, f"group-of-{topic}", GroupProtocol(protocol))


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def offsets_in(found: Mapping[TopicPartition, Hint]) -> set[int]:
    return {hint.offset for hint in found.values()}


def partitions_of(topic: str, count: int) -> set[TopicPartition]:
    return {(topic, number) for number in range(count)}


def test_members_share_and_hand_over_and_see_no_record(group: Group, topic: str) -> None:
    create_topic(group.bootstrap, topic, partitions=4)
    everything = partitions_of(topic, 4)
    with group.member(topic) as (first, one):
        one.until(lambda it: it.held == everything)
        produce_to_all(group.bootstrap, topic)
        with group.member(topic) as (second, two):
            two.until(lambda it: len(it.held) == 2)
            one.until(lambda it: it.held == everything - two.held)
            moved = set(two.held)
            assert set(one.heard("revoked")) == moved
            assert two.found == {key: hint_of(key) for key in moved}  # read inside gained: committed before
            produce_to_all(group.bootstrap, topic)
            first.commit([Hint(topic=key[0], partition=key[1], offset=7, base=None) for key in everything])
            kept = next(iter(one.held))
            until(lambda: offsets_in(first.committed([kept])) == {7}, "the hint of a held partition is committed")
            assert first.committed(moved) == two.found  # those of others are not
            left_at = time.monotonic()
            last = [Hint(topic=key[0], partition=key[1], offset=9, base=None) for key in moved]
            assert second.close(last, SOON_S)
            one.until(lambda it: it.held == everything, SOON_S)
            assert time.monotonic() - left_at < SOON_S
            assert offsets_in({key: one.found[key] for key in moved}) == {9}
            assert two.events == [("gained", tuple(sorted(moved)))]
        assert sorted(one.heard("revoked")) == sorted(moved)
        produce_to_all(group.bootstrap, topic)
        counted = first.counters
        assert counted.rebalances == len(one.events)
        assert (counted.restarts, first.error) == (0, None)
        assert counted.commits == 2


def produce_to_all(bootstrap: str, topic: str) -> None:
    for partition in range(4):
        produce_values(bootstrap, topic, [b"x" * 100] * 50, partition)


def test_topics_and_partitions_come_and_go(group: Group, topic: str) -> None:
    other = topic + "-other"
    create_topic(group.bootstrap, topic)
    create_topic(group.bootstrap, other)
    with group.member(topic) as (membership, owner):
        owner.until(lambda it: it.held == {(topic, 0)})
        membership.subscribe([other, topic, topic])
        owner.until(lambda it: it.held == {(topic, 0), (other, 0)})
        admin = AdminClient({"bootstrap.servers": group.bootstrap, "log_level": 2})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE_S)
        owner.until(lambda it: it.held == {(topic, 0), (topic, 1), (other, 0)})
        assert not owner.heard("revoked")
        admin.delete_topics([other])[other].result(PATIENCE_S)
        membership.subscribe([topic])
        owner.until(lambda it: it.held == partitions_of(topic, 2))
        early = [Hint(topic=topic, partition=number, offset=7, base=None) for number in range(2)]

        def settled() -> bool:
            """A rebalance that is still under way refuses commits: those of other threads, and those at the end."""
            membership.commit(early)
            return offsets_in(membership.committed(partitions_of(topic, 2))) == {7}

        until(settled, "commits get through")
        membership.subscribe([])
        owner.until(lambda it: it.held == set())
        hints = {key: hint_of(key) for key in partitions_of(topic, 2)}
        until(lambda: membership.committed(hints) == hints, "what was given back was committed")
        membership.subscribe([topic])
        owner.until(lambda it: it.held == partitions_of(topic, 2))
        assert not owner.heard("lost")
        assert (membership.error, membership.counters.restarts) == (None, 0)


def test_what_others_committed_is_read_as_far_as_it_goes(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic, partitions=6)
    told = ["", "junk", "base=-1", "base=17 ", "base=17"]
    rows = [ClientPartition(topic, number, 20, metadata=text) for number, text in enumerate(told)]
    name = f"group-of-{topic}"
    settings = GroupSettings(group=name, protocol=GroupProtocol.CLASSIC, session_timeout_ms=SESSION_MS, refresh_ms=500)
    membership = Membership(settings_of(broker.bootstrap), settings, Recorder())
    until(lambda: has_coordinator(membership, topic), "the group has a coordinator")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    request = ConsumerGroupTopicPartitions(name, rows)
    altered = admin.alter_consumer_group_offsets([request])[name].result(PATIENCE_S)
    assert {row.error for row in altered.topic_partitions} == {None}
    found = membership.committed([*partitions_of(topic, 6), (topic + "-absent", 0)])
    bases = {key[1]: hint.base for key, hint in found.items()}
    assert bases == {0: None, 1: None, 2: None, 3: None, 4: 17}
    assert offsets_in(found) == {20}
    assert membership.committed([]) == {}
    assert membership.close([], 0)  # never started


def has_coordinator(membership: Membership, topic: str) -> bool:
    """On a new broker it takes a moment."""
    try:
        return membership.committed([(topic, 0)]) == {}
    except KafkaTemporaryError:
        return False


def test_without_brokers_it_waits_and_says_so() -> None:
    with Group("127.0.0.1:1", "group", GroupProtocol.CLASSIC).member("topic") as (membership, _):
        until(lambda: membership.counters.client_errors.total() > 0, "trouble is counted")
        assert membership.error is None
    settings = GroupSettings(group="g", protocol=GroupProtocol.CLASSIC, session_timeout_ms=SESSION_MS, refresh_ms=500)
    lonely = Membership(settings_of("127.0.0.1:1", socket_timeout_ms=300), settings, Recorder())
    with pytest.raises(KafkaTemporaryError, match=r"group g: committed.*bootstrap\.servers"):
        lonely.committed([("topic", 0)])


SLEEPER = """
import sys
from archiver.config.model import GroupProtocol
from archiver.kafka.groups.membership import Membership
from archiver.kafka.groups.group import GroupSettings, Hint
from archiver.kafka.login.settings import KafkaSettings

class Owner:
    def gained(self, partitions): print("gained", flush=True)
    def lost(self, partitions): print("lost", flush=True)
    def revoked(self, partitions):
        print("revoked", flush=True)
        return [Hint(topic=topic, partition=number, offset=666, base=None) for topic, number in partitions]

bootstrap, name, protocol, topic = sys.argv[1:]
group = GroupSettings(group=name, protocol=GroupProtocol(protocol), session_timeout_ms=2000, refresh_ms=500)
member = Membership(KafkaSettings.parse({"bootstrap.servers": bootstrap}), group, Owner())
member.start([topic])
sys.stdin.read()
member.close([], 5)
"""


@pytest.mark.parametrize("protocol", list(GroupProtocol))
def test_a_member_that_slept_through_its_session_is_told_that_it_lost(
    shared_broker: StartBroker, topic: str, protocol: GroupProtocol
) -> None:
    broker = shared_broker(KAFKA_41, **SHORT_SESSIONS)
    group = Group(broker.bootstrap, f"group-of-{topic}", protocol)
    create_topic(broker.bootstrap, topic)
    command = [sys.executable, "-c", SLEEPER, broker.bootstrap, group.name, protocol, topic]
    with start_child(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sleeper:
        try:
            assert sleeper.stdout is not None
            assert sleeper.stdout.readline() == "gained\n"
            with group.member(topic, session_ms=2000) as (membership, heir):
                until(lambda: members_of(group) == 2, "both are members")
                with standing_still(sleeper.pid):
                    heir.until(lambda it: it.held == {(topic, 0)})
                assert sleeper.stdout.readline() == "lost\n"
                until(lambda: members_of(group) == 2, "the sleeper is a member again")
                assert membership.committed([(topic, 0)]) == {}
            assert sleeper.stdout.readline() == "gained\n"
        finally:
            sleeper.kill()


def members_of(group: Group) -> int:
    admin = AdminClient({"bootstrap.servers": group.bootstrap, "log_level": 2})
    return len(admin.describe_consumer_groups([group.name])[group.name].result(PATIENCE_S).members)


def test_a_restart_of_the_broker_is_survived(new_broker: StartBroker, topic: str) -> None:
    broker = new_broker(KAFKA_41, **QUICK_CONSUMERS)
    create_topic(broker.bootstrap, topic)
    old, new = (Group(broker.bootstrap, protocol.value, protocol) for protocol in GroupProtocol)
    with old.member(topic) as (classic, one), new.member(topic) as (consumer, two):
        for owner in (one, two):
            owner.until(lambda it: it.held == {(topic, 0)})
        broker.stop()
        for membership in (classic, consumer):
            until(lambda it=membership: it.counters.client_errors.total() > 0, "the loss is noticed")  # type: ignore[misc]
        broker.start()
        create_topic(broker.bootstrap, topic + "-later")
        wanted = {(topic, 0): hint_of((topic, 0))}
        for membership, owner in ((classic, one), (consumer, two)):
            membership.subscribe([topic, topic + "-later"])
            owner.until(lambda it: it.held == {(topic, 0), (topic + "-later", 0)})
            membership.commit([hint_of((topic, 0))])
            until(lambda it=membership: it.committed(wanted) == wanted, "commits go on")  # type: ignore[misc]
            assert (membership.error, membership.counters.restarts) == (None, 0)


def test_a_refusal_is_told(broker_39: Broker, topic: str) -> None:
    create_topic(broker_39.bootstrap, topic)
    too_long_ms = 3_000_000  # brokers allow 30 min
    with Group(broker_39.bootstrap, topic + "-1", GroupProtocol.CLASSIC).member(topic, session_ms=too_long_ms) as (
        it,
        _,
    ):
        until(lambda: it.error is not None, "the broker refuses the session timeout")
        assert "session timeout" in str(it.error)
    with Group(broker_39.bootstrap, topic + "-2", GroupProtocol.CONSUMER).member(topic) as (it, _):
        until(lambda: it.error is not None, "the broker does not know the protocol")
        assert isinstance(it.error, KafkaError)
        assert "brokers from 4.0" in str(it.error)


def test_a_refusal_ends(new_broker: StartBroker, topic: str) -> None:
    broker = new_broker(KAFKA_41, **{"group.max.size": "1"})
    create_topic(broker.bootstrap, topic)
    group = Group(broker.bootstrap, "group", GroupProtocol.CLASSIC)
    with group.member(topic) as (first, one):
        one.until(lambda it: bool(it.held))
        with group.member(topic) as (second, two):
            until(lambda: second.error is not None, "the group is full")
            assert "GROUP_MAX_SIZE_REACHED" in second.counters.client_errors
            assert first.close([], SOON_S)
            two.until(lambda it: bool(it.held))
            assert second.error is None


def test_a_broken_consumer_is_replaced(new_broker: StartBroker, topic: str) -> None:
    broker = new_broker(KAFKA_41, **{"group.coordinator.rebalance.protocols": "classic"})
    create_topic(broker.bootstrap, topic)
    with Group(broker.bootstrap, "stumbling", GroupProtocol.CLASSIC).member(topic, stumble=1) as (membership, owner):
        owner.until(lambda it: bool(it.held))
        assert owner.events == [("lost", ((topic, 0),)), ("gained", ((topic, 0),))]
        assert (membership.counters.restarts, membership.error) == (1, None)
    with Group(broker.bootstrap, "fatal", GroupProtocol.CONSUMER).member(topic) as (membership, _):
        until(lambda: membership.counters.restarts > 1, "librdkafka cannot go on, again and again")
        assert isinstance(membership.error, KafkaError)


def test_a_group_that_gets_no_new_token_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka asks for tokens itself, now and then: what comes then no start of a service has seen."""
    lives_s = [3.0]
    monkeypatch.setattr(token_server, "give", lambda: ("token", 1000 * (time.time() + lives_s[0])))
    away = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
    settings = KafkaSettings.parse(away | {"token_provider": "tests.support.token_server:give"})
    group = GroupSettings(group="a", protocol=GroupProtocol.CLASSIC, session_timeout_ms=SESSION_MS, refresh_ms=1000)
    membership = Membership(settings, group, Recorder())
    membership.start(["orders"])
    time.sleep(1)
    assert not caplog.records
    lives_s[0] = -60.0
    deadline_s = time.monotonic() + PATIENCE_S
    while not caplog.records and time.monotonic() < deadline_s:
        time.sleep(0.05)
    membership.close([], 5.0)
    told = "there is no token: tests.support.token_server:give gave one that had expired"
    assert caplog.messages[0].startswith(told)
    with pytest.raises(KafkaError, match=told):  # who comes later
        Membership(settings, group, Recorder())
