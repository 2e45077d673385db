"""Where groups stand while transactions of offsets are open, slow, or aborted: the archive against what the broker itself told then."""

import random
import time
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from tests.integration.groups.test_group_positions import commit
from tests.integration.groups.test_groups_show import shown
from tests.support.brokers import Broker
from tests.support.group_histories import moment_ms
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

PLAIN, IN_TRANSACTIONS = ("plain-a", "plain-b"), ("eos-a", "eos-b", "eos-c")
Place = tuple[str, int]  # group, partition


class Open(NamedTuple):
    """A transaction that has offsets and was not ended yet."""

    place: Place
    producer: Producer
    consumer: Consumer


class World:
    """Groups of one topic on a broker."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker, self.topic, self.open = broker, topic, list[Open]()
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        self._producers: dict[Place, Producer] = {}
        self.told: list[tuple[int, dict[Place, int]]] = []

    def group(self, name: str) -> str:
        return f"{self.topic}-{name}"

    def commit(self, place: Place, offset: int) -> None:
        commit(self.broker, self.group(place[0]), ClientPartition(self.topic, place[1], offset))

    def begin(self, place: Place, offset: int) -> None:
        shared = {"bootstrap.servers": self.broker.bootstrap, "log_level": 0}
        if place not in self._producers:
            self._producers[place] = Producer({**shared, "transactional.id": f"{self.group(place[0])}-{place[1]}"})
            self._producers[place].init_transactions(60)
        producer, consumer = self._producers[place], Consumer({**shared, "group.id": self.group(place[0])})
        producer.begin_transaction()
        position = ClientPartition(self.topic, place[1], offset)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 60)
        self.open.append(Open(place, producer, consumer))

    def end(self, one: Open, *, commits: bool) -> None:
        self.open.remove(one)
        if commits:
            one.producer.commit_transaction(60)
        else:
            one.producer.abort_transaction(60)
        one.consumer.close()

    def ask(self) -> None:
        """Note what the broker tells now."""
        time.sleep(0.3)  # it tells a commit soon behind the marker
        before, found = moment_ms(), dict[Place, int]()
        for name in (*PLAIN, *IN_TRANSACTIONS):
            asked = [ConsumerGroupTopicPartitions(self.group(name))]
            (done,) = self._admin.list_consumer_group_offsets(asked).values()
            for one in done.result(60).topic_partitions:
                if one.offset >= 0:
                    found[name, one.partition] = one.offset
        self.told.append((before, found))

    def step(self, drawn: random.Random, offset: int) -> None:
        place = drawn.choice(IN_TRANSACTIONS), drawn.randrange(2)
        if drawn.random() < 0.3:
            self.commit((drawn.choice(PLAIN), drawn.randrange(2)), offset)
        elif self.open and drawn.random() < 0.4:
            self.end(drawn.choice(self.open), commits=drawn.random() < 0.7)
        elif all(one.place != place for one in self.open):
            self.begin(place, offset)
        else:
            self.commit(place, offset)  # of another client, while the transaction is open


def check(rows: list[dict[str, Any]], world: World, told: dict[Place, int]) -> int:
    """Compare. Returns of how many positions two offsets are told."""
    found = {(row["group"].removeprefix(f"{world.topic}-"), row["partition"]): row for row in rows}
    between = 0
    for place in found.keys() | told.keys():
        row, true = found.get(place, {"state": "none", "offset": None}), told.get(place)
        if row["state"] == "ambiguous":
            assert place[0] in IN_TRANSACTIONS, row
            assert true in {row["offset"], row["or_offset"]}, (row, true)
            assert row["or_ms"] > 0
            between += 1
        else:
            assert row["state"] in {"none", "set"}
            assert row["offset"] == true, (place, row, true)
    return between


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(8))
def test_the_archive_tells_what_the_broker_told(
    seed: int, broker: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        produce_values(broker.bootstrap, topic, [b"x"] * 10, partition)
    site.write_config(broker.bootstrap, topic)
    drawn, world = random.Random(seed), World(broker, topic)
    for number in range(14):
        for _ in range(drawn.randrange(1, 3)):
            world.step(drawn, 10 * number + drawn.randrange(10))
        world.ask()
    for one in list(world.open):
        world.end(one, commits=drawn.random() < 0.7)
    world.ask()
    site.back_up_with(broker.bootstrap, topic, groups="topic")
    between = 0
    for at_ms, told in world.told:
        rows = shown(site, capsys, "--as-of", str(at_ms), "--topics", topic)["positions"]
        between += check(rows, world, told)
    assert between > 0
    rows = shown(site, capsys, "--topics", topic)["positions"]
    assert check(rows, world, world.told[-1][1]) == 0
