"""Clusters of several brokers: start, stop, and damage to the logs on their disks."""

import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from archiver.demo.sandbox import JAVA_OPTIONS, fetch_kafka
from archiver.errors import KafkaError
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import with_client
from tests.support.round_trip import KEEP_ALL

_REQUEST_S = 20.0
_LED_S = 60.0
LOG_REQUESTS = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"


@dataclass(frozen=True, slots=True)
class BrokerCluster:
    """Brokers by node id. Node 1 is also the controller: it stays up, unless the whole cluster is stopped."""

    nodes: Mapping[int, KafkaBroker]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, those that are down included."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def create_topic(
        self, topic: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> None:
        """`replicas` are the nodes of each partition, its first leader first. Returns when all are led."""
        new = NewTopic(
            topic,
            num_partitions=len(replicas),
            replica_assignment=[list(nodes) for nodes in replicas],
            config={**KEEP_ALL, **(configs or {})},
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([new])[topic].result(_REQUEST_S)
        partitions = [(topic, number) for number in range(len(replicas))]
        deadline_s = time.monotonic() + _LED_S
        while True:
            try:
                with_client(self.bootstrap, lambda client: client.offsets(partitions))
            except (
                KafkaError
            ):  # a broker that has not heard of the topic after some seconds still may, on a busy machine
                if time.monotonic() > deadline_s:
                    raise
            else:
                return

    def start_all(self) -> None:
        """Start all brokers that are down, at the same time."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(KafkaBroker.start, [node for node in self.nodes.values() if not node.running]))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader; -1: none."""
        return self._describe(topic, partition)[0]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return self._describe(topic, partition)[1]

    def bytes_served(self, node: int, client_id: str) -> int:
        """Bytes of records that a node has sent to a client, by its own log of requests."""
        lines = self._fetches(node, client_id)
        return sum(int(size) for line in lines for size in re.findall(r'"recordsSizeInBytes":(\d+)', line))

    def fetches(self, node: int, client_id: str) -> int:
        """How many a node has answered to a client, by the same log."""
        return len(self._fetches(node, client_id))

    def _fetches(self, node: int, client_id: str) -> list[str]:
        log = self.nodes[node].log_path.read_text(errors="replace")
        return [line for line in log.splitlines() if '"FETCH"' in line and f'"clientId":"{client_id}"' in line]

    def _describe(self, topic: str, partition: int) -> tuple[int, set[int]]:
        # Of node 1 alone: it is up, and as the controller it is the first to know.
        admin = AdminClient({"bootstrap.servers": self.nodes[1].bootstrap, "log_level": 0})
        found = admin.list_topics(topic, timeout=_REQUEST_S).topics[topic].partitions[partition]
        return found.leader, set(found.isrs)


@contextmanager
def broker_cluster(
    folder: Path,
    nodes: int,
    jars: Path | None = None,
    /,
    *,
    of_node: Mapping[int, Mapping[str, str]] | None = None,
    log_requests: bool = False,
    **properties: str,
) -> Iterator[BrokerCluster]:
    """Started, and stopped at the end; `jars` are 4.1's where none are given. `properties` are everyone's, `of_node` those of one.

    For `bytes_served` they log requests.
    """
    jars = jars or fetch_kafka(KAFKA_41, CACHE)
    shared = {
        "offsets.topic.replication.factor": str(nodes),
        "offsets.topic.num.partitions": "1",
        "replica.lag.time.max.ms": "3000",
        **properties,
    }
    options = (*JAVA_OPTIONS, LOG_REQUESTS) if log_requests else JAVA_OPTIONS
    brokers: dict[int, KafkaBroker] = {}
    for node in range(1, nodes + 1):
        own = {**shared, **(of_node or {}).get(node, {}), "node.id": str(node)}
        brokers[node] = KafkaBroker(
            jars, folder / f"node-{node}", joins=brokers.get(1), properties=own, java_options=options
        )
    with ExitStack() as stack:
        for broker in brokers.values():
            stack.callback(broker.kill)
        cluster = BrokerCluster(brokers)
        cluster.start_all()
        yield cluster


def log_folder(broker: KafkaBroker, topic: str, partition: int) -> Path:
    return broker.data_dir / "log" / f"{topic}-{partition}"


def cut_log(broker: KafkaBroker, topic: str, partition: int, end: int) -> None:
    """Truncate a log behind a batch, as a power failure may. The broker must be down."""
    content, at = (log_folder(broker, topic, partition) / f"{0:020}.log").read_bytes(), 0
    while at < len(content) and struct.unpack_from(">q", content, at)[0] < end:
        at += 12 + int(struct.unpack_from(">i", content, at + 8)[0])
    write_log(broker, topic, partition, content[:at])


def write_log(broker: KafkaBroker, topic: str, partition: int, content: bytes) -> None:
    """Put batches in place of those that there are. The broker must be down; it makes its indexes again."""
    folder = log_folder(broker, topic, partition)
    (folder / f"{0:020}.log").write_bytes(content)
    for kind in ("*.index", "*.timeindex", "*.snapshot"):
        for other in folder.glob(kind):
            other.unlink()


@dataclass(frozen=True, slots=True)
class LogFile:
    """A copy of a log on disk, from which it can be restored."""

    path: Path
    content: bytes

    def restore(self) -> None:
        self.write(self.content)

    def write(self, content: bytes) -> None:
        with self.path.open("r+b") as file:  # the broker has this very file open
            file.write(content)


def corrupt_log(broker: KafkaBroker, topic: str, partition: int, at_offset: int) -> LogFile:
    """Flip a bit in the batch that begins at an offset. Brokers do not check what they serve."""
    path = log_folder(broker, topic, partition) / f"{0:020}.log"
    whole, at = path.read_bytes(), 0
    while struct.unpack_from(">q", whole, at)[0] != at_offset:
        at += 12 + int(struct.unpack_from(">i", whole, at + 8)[0])
    broken = bytearray(whole)
    broken[at + 11 + int(struct.unpack_from(">i", whole, at + 8)[0])] ^= 1
    log = LogFile(path, whole)
    log.write(bytes(broken))
    return log
