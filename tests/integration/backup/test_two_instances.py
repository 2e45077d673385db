"""Two instances, as processes of their own, that keep a compacted topic by turns: a real broker, a real store."""

import contextlib
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Broker
from tests.support.compacted_copies import generations_of, latest, newest_entry, records_given
from tests.support.examples import EAGER_CLEANER
from tests.support.foreign_reader import read_objects
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic, producer_of
from tests.support.processes import standing_still
from tests.support.round_trip import ArchiveSite
from tests.support.service import Instance, eventually, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

SECONDS = 1 / 86_400


def compacted_config(
    site: ArchiveSite, bootstrap: str, *include: str, turn_s: float = 8.0, **compacted: object
) -> dict[str, Any]:
    config = service_config(site, bootstrap, *include, segment={"age": "1s"}, group=f"g-{site.bucket.name}")
    config["compacted"] = {
        "enabled": True,
        "instances": ["a", "b"],
        "log.backup.length.days": turn_s * SECONDS,
        "takeover": "5s",
        "interval": "500ms",
        "clear.delay": "2s",
        **compacted,
    }
    return config


@contextlib.contextmanager
def instance(
    site: ArchiveSite, config: Mapping[str, Any], name: str, *arguments: str, **environment: str
) -> Iterator[Instance]:
    found = Instance(
        site, config, name, environment, command=("compacted", "run"), arguments=("--instance", name, *arguments)
    )
    try:
        yield found
    except BaseException:
        print(f"--- {found.log_path}\n{found.log[-9000:]}")
        raise
    finally:
        found.kill()


def write(bootstrap: str, topic: str, values: Mapping[str, str | None], partition: int = 0) -> None:
    producer = producer_of(bootstrap)
    for key, value in values.items():
        producer.produce(topic, None if value is None else value.encode(), key=key.encode(), partition=partition)
    assert producer.flush(30) == 0


def holder(site: ArchiveSite, topic: str, partition: int = 0) -> str:
    entry = newest_entry(site.bucket, topic, partition)
    return "" if entry is None else entry.holder


def test_the_other_takes_over(broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle) -> None:
    create_topic(broker.bootstrap, topic, 2, EAGER_CLEANER)
    write(broker.bootstrap, topic, {f"k{number}": f"first {number}" for number in range(200)})
    config = compacted_config(site, broker.bootstrap, topic)
    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        eventually(lambda: holder(site, topic).startswith("a:") and holder(site, topic, 1).startswith("a:"))
        write(broker.bootstrap, topic, {f"k{number}": f"second {number}" for number in range(100)})
        write(broker.bootstrap, topic, {f"k{number}": None for number in range(10)})
        eventually(lambda: holder(site, topic).startswith("b:") and holder(site, topic, 1).startswith("b:"))
        write(broker.bootstrap, topic, {f"k{number}": f"third {number}" for number in range(50, 60)})
        expected = latest(java_oracle.consume(broker.bootstrap, topic).records[0])
        eventually(lambda: latest(records_given(site.bucket, topic)) == expected)
        assert len(expected) == 190
        eventually(lambda: holder(site, topic).startswith("a:"))
    print(generations_of(site.bucket, topic).keys())


def test_a_copy_tells_where_the_log_began(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """As offsets that Kafka has deleted: a clearing keeps a copy that begins lower until somebody accepts that."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 1, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    write(bootstrap, topic, {f"k{number}": "some" for number in range(50)})
    where = TopicPartition(topic, 0, 20)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([where])[where].result(20)
    with instance(site, compacted_config(site, bootstrap, topic), "a", "--initial-role", "active"):
        eventually(lambda: holder(site, topic) != "")
    (keys,) = generations_of(site.bucket, topic).values()
    (first, *_) = read_objects(site.bucket, keys)
    assert (first.base, first.holes, len(first.records)) == (0, "0-19:expired", 30)


def test_the_group_of_the_active_instance_tells_its_lag(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """For whoever watches consumer groups: the generation that holds, and how far it is in storage."""
    create_topic(broker.bootstrap, topic, 1, EAGER_CLEANER)
    write(broker.bootstrap, topic, {f"k{number}": "first" for number in range(50)})
    config = compacted_config(site, broker.bootstrap, topic, turn_s=3600.0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def committed(name: str) -> list[tuple[int, str]]:
        group = f"{config['backup']['group']}-{name}"
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        rows = asked[group].result(20).topic_partitions or []
        return [(row.offset, (row.metadata or "").rstrip("\0").partition(" archive=")[0]) for row in rows]

    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        eventually(lambda: holder(site, topic).startswith("a:"))
        eventually(lambda: committed("a") == [(50, "generation=0")])
        write(broker.bootstrap, topic, {f"k{number}": "second" for number in range(7)})
        eventually(lambda: committed("a") == [(57, "generation=0")])
        assert committed("b") == []


class Fleet:
    """Both instances, as processes that are killed, stopped and started again."""

    def __init__(self, site: ArchiveSite, config: Mapping[str, Any]) -> None:
        self._site = site
        self._config = config
        self.running: dict[str, Instance] = {}

    def start(self, name: str, failpoint: str = "") -> None:
        command, arguments = ("compacted", "run"), ("--instance", name, "--initial-role", ROLES[name])
        environment = {"ARCHIVER_FAILPOINT": failpoint} if failpoint else {}
        self.running[name] = Instance(self._site, self._config, name, environment, command=command, arguments=arguments)

    def see_to(self) -> None:
        """Start again whoever died, without its failpoint."""
        for name, one in self.running.items():
            if one.process.poll() is not None:
                self.start(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.running.values():
            one.kill()


ROLES = {"a": "active", "b": "passive"}
PLACES = (
    "role.begin.decided", "role.begin.put", "role.switch.decided", "role.switch.put", "reading.opened", "segment.closed",
    "segment.put", "position.counted",
)  # fmt: skip


def disturb(fleet: Fleet, dice: random.Random) -> None:
    """Have one process die at a place that it reaches, or at once; or stand still for a while."""
    name = dice.choice(["a", "b"])
    one = fleet.running[name]
    match dice.choice(["kill", "place", "place", "still"]):
        case "kill":
            one.kill()
        case "place":
            one.kill()
            fleet.start(name, f"{dice.choice(PLACES)}:{dice.randint(1, 3)}")
        case _:
            with standing_still(one.process.pid):
                time.sleep(dice.uniform(1, 8))


def fill_oddly(bootstrap: str, topic: str) -> None:
    """Partition 1 is idle, 2 is empty, 3 ends in a marker behind an aborted record."""
    write(bootstrap, topic, {f"idle {number}": "some" for number in range(20)}, 1)
    producer = producer_of(bootstrap, transactional_id=f"{topic}-t")
    producer.init_transactions(20)
    for is_kept in (True, False):
        producer.begin_transaction()
        producer.produce(topic, b"in a transaction", key=b"kept" if is_kept else b"aborted", partition=3)
        if is_kept:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cycles", [2, pytest.param(10, marks=pytest.mark.long)])
def test_cycles_with_deaths(
    broker: Broker, site: ArchiveSite, topic: str, java_oracle: JavaOracle, seed: int, cycles: int
) -> None:
    """After each cycle, what readers are given is what the broker has: the newest value of each key, none that was deleted."""
    dice = random.Random(seed)
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 4, EAGER_CLEANER)
    fill_oddly(bootstrap, topic)
    config = compacted_config(site, bootstrap, topic, turn_s=4.0)
    with Fleet(site, config) as fleet:
        for name in ROLES:
            fleet.start(name)
        switches: dict[int, int] = dict.fromkeys(range(4), -1)
        for cycle in range(cycles):
            write(bootstrap, topic, {f"k{dice.randint(0, 300)}": f"{cycle} {number}" for number in range(200)})
            write(bootstrap, topic, {f"k{dice.randint(0, 300)}": None for _ in range(30)})
            disturb(fleet, dice)

            def all_have_switched(before: Mapping[int, int] = dict(switches)) -> bool:
                fleet.see_to()
                for number, last in before.items():
                    entry = newest_entry(site.bucket, topic, number)
                    if entry is None or (entry.switched or -1) <= last:
                        return False
                return True

            eventually(all_have_switched, f"cycle {cycle}: not all have switched", timeout_s=150, every_s=0.3)
            for number in switches:
                entry = newest_entry(site.bucket, topic, number)
                assert entry is not None
                switches[number] = entry.switched or 0
            seen = java_oracle.consume(bootstrap, topic).records

            def all_is_given(expected: Mapping[int, Any] = {n: latest(r) for n, r in seen.items()}) -> bool:
                fleet.see_to()
                return all(
                    latest(records_given(site.bucket, topic, number)) == expected.get(number, {}) for number in range(4)
                )

            eventually(all_is_given, f"cycle {cycle}: other records are given", timeout_s=60, every_s=0.5)


def test_what_is_read_no_more_goes(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """The archive follows the compacted log: what was rewritten a hundred times does not stay."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 1, EAGER_CLEANER)
    config = compacted_config(site, bootstrap, topic, turn_s=3.0)
    with instance(site, config, "a", "--initial-role", "active"), instance(site, config, "b"):
        for number in range(100):
            write(bootstrap, topic, {f"k{key}": f"{number} " + "text " * 50 for key in range(20)})
        eventually(lambda: holder(site, topic) != "")
        grown = newest_entry(site.bucket, topic)
        assert grown is not None

        def has_turned_twice() -> bool:
            entry = newest_entry(site.bucket, topic)
            return entry is not None and (entry.switched or 0) >= (grown.switched or 0) + 4

        eventually(has_turned_twice)

        def is_small() -> bool:
            write(bootstrap, topic, {"k0": "more"})  # a broker compacts no segment that is written to
            return len(records_given(site.bucket, topic)) < 500

        eventually(is_small, every_s=1.5)
        eventually(lambda: len(generations_of(site.bucket, topic)) <= 2)
    assert len(latest(records_given(site.bucket, topic))) == 20


def test_a_copy_stays_sure_over_restarts(broker: Broker, site: ArchiveSite, topic: str) -> None:
    """Whoever stops, or gives a partition away, says how far it has read: the next process goes on from there, and not from the beginning."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, topic, 1, {"cleanup.policy": "compact", "delete.retention.ms": "15000"})
    write(bootstrap, topic, {f"k{number}": "some" for number in range(20)})
    config = compacted_config(site, bootstrap, topic, turn_s=600.0)
    with instance(site, config, "a", "--initial-role", "active") as first:
        eventually(lambda: holder(site, topic) == "a:0")
        time.sleep(16)
        first.stop()
    with instance(site, config, "a"):
        write(bootstrap, topic, {"more": "some"})
        eventually(lambda: len(records_given(site.bucket, topic)) == 21)
        entry = newest_entry(site.bucket, topic)
        assert entry is not None
        assert (entry.type, entry.holder, entry.told["holder"]["is_sure"]) == ("switch", "a:0", True)
