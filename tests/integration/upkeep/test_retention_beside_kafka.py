"""Sweeps beside a broker that deletes, compacts and is purged: what it still has, by Kafka's own consumer, is in the archive after each sweep."""

import random
from dataclasses import dataclass, field

import pytest

from tests.support.brokers import KAFKA_41, StartBroker
from tests.support.foreign_reader import keys_in
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, recreate_topic
from tests.support.real_sweeps import (
    DAY_MS,
    EAGER,
    assert_archived,
    assert_restored,
    cut,
    produce_aged,
    until_swept,
)
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.target_topics import set_configs

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(240)]

ROLLING = KEEP_ALL | {"segment.ms": "1000"}  # a new file for each record that is a second younger than the file's first
FUTURE_MS = -80 * 365 * DAY_MS


@pytest.fixture
def eager(shared_broker: StartBroker) -> KafkaBroker:
    return shared_broker(KAFKA_41, **EAGER)


def days(*ages: float) -> list[int]:
    return [round(age * DAY_MS) for age in ages]


@dataclass(slots=True)
class _Walk:
    """One topic, to which things happen by chance; after each a sweep comes."""

    broker: KafkaBroker
    site: ArchiveSite
    topic: str
    oracle: JavaOracle
    policy: str
    chance: random.Random
    life: int = 0
    ends: dict[int, int] = field(default_factory=dict)  # of the archive
    former: dict[str, list[str]] = field(default_factory=dict)  # directories of lives that ended, with their objects

    @property
    def directory(self) -> str:
        return f"{self.topic}@{self.life}" if self.life else self.topic

    def run(self) -> None:
        """Everything happens, in an order that chance makes."""
        steps = [self.produce, self.backfill, self.meet_the_future, self.cut, self.shorten, self.purge]
        steps += [self.produce, self.produce, self.backfill, self.cut, self.recreate]
        self.chance.shuffle(steps)
        for happens in steps:
            print(happens.__name__)
            happens()
            self.back_up()
            until_swept(self.site, self.broker, self.topic)
            self.check()

    def back_up(self) -> None:
        self.site.back_up(self.broker.bootstrap, self.topic, records=self.chance.choice([1, 2, 5]))

    def check(self) -> None:
        kept = assert_archived(self.site.bucket, self.broker.bootstrap, self.topic, self.oracle, self.directory)
        for number, one in kept.items():
            assert one.end >= self.ends.get(number, 0)
            self.ends[number] = one.end
        for directory, keys in self.former.items():
            assert keys_in(self.site.bucket, f"topics/{directory}/") == keys

    def produce(self) -> None:
        newest = self.chance.uniform(0, 3)
        ages = [newest + age * self.chance.uniform(0, 2) for age in range(self.chance.randint(1, 6), 0, -1)]
        produce_aged(self.broker.bootstrap, self.topic, days(*ages), self.chance.randrange(2))

    def backfill(self) -> None:
        produce_aged(self.broker.bootstrap, self.topic, days(40, 30, 35), self.chance.randrange(2))

    def meet_the_future(self) -> None:
        produce_aged(self.broker.bootstrap, self.topic, [FUTURE_MS], self.chance.randrange(2))

    def cut(self) -> None:
        number = self.chance.randrange(2)
        offsets = self.oracle.consume(self.broker.bootstrap, self.topic).ranges[number]
        cut(self.broker, self.topic, self.chance.randint(*offsets), number)

    def shorten(self) -> None:
        set_configs(self.broker, self.topic, retention_ms=str(days(self.chance.choice([0.5, 2, 5, 20]))[0]))

    def purge(self) -> None:
        set_configs(self.broker, self.topic, retention_ms="1000")
        until_swept(self.site, self.broker, self.topic)
        self.check()
        set_configs(self.broker, self.topic, retention_ms=str(5 * DAY_MS))

    def recreate(self) -> None:
        self.former[self.directory] = keys_in(self.site.bucket, f"topics/{self.directory}/")
        recreate_topic(self.broker.bootstrap, self.topic, 2, self.configs | {"retention.ms": str(DAY_MS // 2)})
        self.life, self.ends = self.life + 1, {}
        until_swept(self.site, self.broker, self.topic)  # before a backup has seen the new one
        for number in range(2):  # young ones: of a life without an object a restore takes the one before
            produce_aged(self.broker.bootstrap, self.topic, days(0.2, 0.1), number)

    @property
    def configs(self) -> dict[str, str]:
        return ROLLING | {"retention.ms": str(5 * DAY_MS), "cleanup.policy": self.policy}


@pytest.mark.parametrize("policy", ["delete", pytest.param("compact,delete", marks=pytest.mark.long)])
def test_whatever_happens_to_a_topic(
    eager: KafkaBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, policy: str, seed: int
) -> None:
    walk = _Walk(eager, site, topic, java_oracle, policy, random.Random(f"{seed} {policy}"))
    create_topic(eager.bootstrap, topic, 2, walk.configs)
    walk.produce()
    walk.back_up()
    walk.run()
    assert site.verify(eager.bootstrap, [topic], against_kafka=True).is_whole
    assert_restored(site, eager.bootstrap, topic, java_oracle, walk.directory, is_compacted="compact" in policy)
