"""How the broker of each world is started. It is stopped when the world ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archiver.demo.sandbox import fetch_kafka
from tests.support.brokers import CACHE
from tests.support.kafka_broker import KafkaBroker
from tests.support.round_trip import KEEP_ALL
from tests.support.zookeeper import KAFKA_28, ZooKeeperBroker
from tests.worlds.world import Kafka, StartKafka

_BOUNDS_OF_TIMESTAMPS = frozenset({"message.timestamp.after.max.ms", "message.timestamp.before.max.ms"})  # from 3.6 on


def _kafka_of(bootstrap: str, version: str) -> Kafka:
    has_bounds = tuple(map(int, version.split(".")[:2])) >= (3, 6)
    return Kafka(
        version=version,
        bootstrap=bootstrap,
        keep_all={name: text for name, text in KEEP_ALL.items() if has_bounds or name not in _BOUNDS_OF_TIMESTAMPS},
    )


def vanilla(version: str) -> StartKafka:
    """One broker as it comes."""

    @contextmanager
    def start(folder: Path) -> Iterator[Kafka]:
        with KafkaBroker(fetch_kafka(version, CACHE), folder) as broker:
            yield _kafka_of(broker.bootstrap, version)

    return start


@contextmanager
def zookeeper(folder: Path) -> Iterator[Kafka]:
    """2.8, before KRaft."""
    with ZooKeeperBroker(fetch_kafka(KAFKA_28, CACHE), folder) as broker:
        yield _kafka_of(broker.bootstrap, KAFKA_28)
