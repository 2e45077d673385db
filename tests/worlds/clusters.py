"""How the brokers of each world are started. All of them are stopped when the world ends."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from archiver.sandbox import KafkaBroker, fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.round_trip import KEEP_ALL
from tests.worlds.world import ANY_TIMESTAMP, Kafka, StartKafka


def vanilla(version: str) -> StartKafka:
    """One broker as it comes."""

    @contextmanager
    def start(folder: Path) -> Iterator[Kafka]:
        with KafkaBroker(fetch_kafka(version, CACHE), folder) as broker:
            yield kafka_of(broker.bootstrap, version)

    return start


def kafka_of(bootstrap: str, version: str) -> Kafka:
    """Without rights, quotas, or anything else that is special."""
    return Kafka(
        version=version,
        bootstrap=bootstrap,
        settings={"bootstrap.servers": bootstrap},
        keep_all=keep_all(version),
    )


def keep_all(version: str) -> dict[str, str]:
    has_bounds = tuple(map(int, version.split(".")[:2])) >= (3, 6)
    return {name: text for name, text in KEEP_ALL.items() if has_bounds or name not in ANY_TIMESTAMP}
