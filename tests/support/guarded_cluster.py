"""Two brokers that ask for a password: one of them may refuse a client that the other one lets in."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from archiver.demo.sandbox import fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import BrokerCluster
from tests.support.kafka_broker import KafkaBroker, free_ports
from tests.support.secure_broker import PASSWORD, USER

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = "listener.name.guard.plain.sasl.jaas.config"


class GuardedBroker(KafkaBroker):
    """Brokers and tests speak to each other in plaintext."""

    def __init__(self, jars: Path, data_dir: Path, node: int, *, joins: Self | None) -> None:
        super().__init__(
            jars, data_dir, joins=joins, properties={"offsets.topic.num.partitions": "1", "node.id": str(node)}
        )
        (port,) = free_ports(1)
        self.door = f"127.0.0.1:{port}"
        doors = f"PLAINTEXT://{self.bootstrap},GUARD://{self.door}"
        self._properties |= {
            "listeners": f"{doors},CONTROLLER://{self.controller}" if joins is None else doors,
            "advertised.listeners": doors,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARD:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
        }
        self.let_in(True)

    def let_in(self, is_fitting: bool) -> None:
        """From its next start on; otherwise it was given another password for the user."""
        self._properties[_USERS] = f'{_PLAIN} user_{USER}="{PASSWORD if is_fitting else "another"}";'


@dataclass(frozen=True, slots=True)
class GuardedCluster:
    brokers: Mapping[int, GuardedBroker]

    @property
    def plain(self) -> BrokerCluster:
        return BrokerCluster(self.brokers)

    @property
    def kafka(self) -> dict[str, str]:
        """The section `kafka` of a configuration: the second broker comes first."""
        return {
            "bootstrap.servers": f"{self.brokers[2].door},{self.brokers[1].door}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }


@contextmanager
def guarded_cluster(folder: Path) -> Iterator[GuardedCluster]:
    """Brokers that are not started yet; stopped at the end."""
    jars = fetch_kafka(KAFKA_41, CACHE)
    first = GuardedBroker(jars, folder / "node-1", 1, joins=None)
    second = GuardedBroker(jars, folder / "node-2", 2, joins=first)
    try:
        yield GuardedCluster({1: first, 2: second})
    finally:
        first.kill()
        second.kill()
