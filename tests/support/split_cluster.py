"""A leader and a follower whose connection can be cut: both still serve clients, and the follower gets no new records."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from archiver.demo.sandbox import JAVA_OPTIONS, fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import LOG_REQUESTS, BrokerCluster
from tests.support.kafka_broker import KafkaBroker, free_ports
from tests.support.relay import delayed_address

LEADER, FOLLOWER = 1, 2


@contextmanager
def leader_and_follower(folder: Path) -> Iterator[tuple[BrokerCluster, Callable[[], None]]]:
    """Yield the two brokers, in `rack-1` and `rack-2`, and a function that cuts their connection. Both log requests."""
    with ExitStack() as stack:
        cable = stack.enter_context(ExitStack())
        of_leader, of_follower = (f"127.0.0.1:{port}" for port in free_ports(2))
        far_end = cable.enter_context(delayed_address(of_leader, 0.0))
        leader = _Cabled(folder, LEADER, of_leader, far_end, joins=None)
        follower = _Cabled(folder, FOLLOWER, of_follower, of_follower, joins=leader)
        for broker in (leader, follower):
            stack.callback(broker.kill)
        cluster = BrokerCluster({LEADER: leader, FOLLOWER: follower})
        cluster.start_all()
        yield cluster, cable.close


class _Cabled(KafkaBroker):
    """A broker that other brokers reach by a listener of their own, whose address leads through the relay that can be cut."""

    def __init__(self, folder: Path, node: int, door: str, far_end: str, *, joins: Self | None) -> None:
        super().__init__(
            fetch_kafka(KAFKA_41, CACHE),
            folder / f"node-{node}",
            joins=joins,
            java_options=(*JAVA_OPTIONS, LOG_REQUESTS),
        )
        plain = f"PLAINTEXT://{self.bootstrap}"
        doors = f"{plain},CABLE://{door}"
        self._properties |= {
            "node.id": str(node),
            "broker.rack": f"rack-{node}",
            "listeners": f"{doors},CONTROLLER://{self.controller}" if joins is None else doors,
            "advertised.listeners": f"{plain},CABLE://{far_end}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CABLE:PLAINTEXT",
            "inter.broker.listener.name": "CABLE",
            "offsets.topic.num.partitions": "1",
            "replica.lag.time.max.ms": "3000",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }
