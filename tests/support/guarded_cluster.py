"""Brokers with separate credentials: one broker may refuse a client that the others let in."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from archiver.demo.sandbox import fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import BrokerCluster
from tests.support.kafka_broker import KafkaBroker, free_ports
from tests.support.secure_broker import PASSWORD, USER, Certificates

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_GROUPS = {"offsets.topic.num.partitions": "1"}


@dataclass(frozen=True, slots=True)
class Guard:
    """How brokers authenticate clients: properties of a broker, properties that refuse, and those of the clients."""

    protocol: str
    fitting: Mapping[str, str]
    other: Mapping[str, str]
    of_clients: Mapping[str, str]


def by_password(_: Path) -> Guard:
    """A broker that was given another password for the user."""
    name = "listener.name.guard.plain.sasl.jaas.config"
    mechanism = {"sasl.enabled.mechanisms": "PLAIN"}
    return Guard(
        "SASL_PLAINTEXT",
        {**mechanism, name: f'{_PLAIN} user_{USER}="{PASSWORD}";'},
        {**mechanism, name: f'{_PLAIN} user_{USER}="another";'},
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        },
    )


def by_certificate(folder: Path) -> Guard:
    """A broker with a certificate of an authority that nobody knows."""
    ours, others = (Certificates.make(folder / name) for name in ("ours", "others"))

    def shown(certificates: Certificates) -> dict[str, str]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.folder / "broker.both")}

    return Guard("SSL", shown(ours), shown(others), {"security.protocol": "ssl", "ssl.ca.location": str(ours.ca)})


class GuardedBroker(KafkaBroker):
    """Brokers and tests speak to each other in plaintext."""

    def __init__(self, jars: Path, data_dir: Path, guard: Guard, node: int, *, joins: Self | None) -> None:
        super().__init__(jars, data_dir, joins=joins, properties={**_GROUPS, "node.id": str(node)})
        (port,) = free_ports(1)
        self.door = f"127.0.0.1:{port}"
        self._guard = guard
        doors = f"PLAINTEXT://{self.bootstrap},GUARD://{self.door}"
        kinds = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARD:{guard.protocol}"
        self._properties |= {
            "listeners": f"{doors},CONTROLLER://{self.controller}" if joins is None else doors,
            "advertised.listeners": doors,
            "listener.security.protocol.map": kinds,
            "inter.broker.listener.name": "PLAINTEXT",
        }
        self.let_in(True)

    def let_in(self, is_fitting: bool) -> None:
        """From its next start on."""
        self._properties |= self._guard.fitting if is_fitting else self._guard.other


@dataclass(frozen=True, slots=True)
class GuardedCluster:
    brokers: Mapping[int, GuardedBroker]
    guard: Guard

    @property
    def plain(self) -> BrokerCluster:
        return BrokerCluster(self.brokers)

    @property
    def kafka(self) -> dict[str, str]:
        """The section `kafka` of a configuration: the last broker comes first."""
        doors = [broker.door for _, broker in sorted(self.brokers.items(), reverse=True)]
        return {"bootstrap.servers": ",".join(doors), **self.guard.of_clients}


@contextmanager
def guarded_cluster(folder: Path, guard: Guard, nodes: int) -> Iterator[GuardedCluster]:
    """Brokers that are not started yet; stopped at the end."""
    jars = fetch_kafka(KAFKA_41, CACHE)
    brokers: dict[int, GuardedBroker] = {}
    for node in range(1, nodes + 1):
        brokers[node] = GuardedBroker(jars, folder / f"node-{node}", guard, node, joins=brokers.get(1))
    with ExitStack() as stack:
        for broker in brokers.values():
            stack.callback(broker.kill)
        yield GuardedCluster(brokers, guard)
