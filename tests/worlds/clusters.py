"""How the brokers of each world are started. All of them are stopped when the world ends."""

import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation as Op
from confluent_kafka.admin._resource import ResourceType as Kind

from archiver.demo.sandbox import JAVA_OPTIONS, fetch_kafka
from tests.support.brokers import CACHE, KAFKA_41
from tests.support.cluster import LOG_REQUESTS, broker_cluster
from tests.support.compiled import jars_with
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import KEEP_ALL
from tests.support.secure_broker import PASSWORD, USER, Certificates, SecureBroker
from tests.support.tiered import TIERED, TIERED_AND_LOCAL, RemoteTier, until_local_from
from tests.support.zookeeper import KAFKA_28, ZooKeeperBroker
from tests.worlds.brokers import Brokers
from tests.worlds.world import Kafka, RefusedTopic, StartKafka

GROUP = "worlds"
CLIENT = "archiver"  # the program's own, by default
_BOUNDS_OF_TIMESTAMPS = frozenset({"message.timestamp.after.max.ms", "message.timestamp.before.max.ms"})  # from 3.6 on
_TOOL_S = 60
_A_HUNDRED_YEARS_MS = 100 * 365 * 86_400_000
_QUOTA = 4_000_000  # bytes a second


def kafka_of(bootstrap: str, version: str) -> Kafka:
    """Without rights, quotas, or anything else that is special."""
    has_bounds = tuple(map(int, version.split(".")[:2])) >= (3, 6)
    return Kafka(
        version=version,
        bootstrap=bootstrap,
        settings={"bootstrap.servers": bootstrap},
        keep_all={name: text for name, text in KEEP_ALL.items() if has_bounds or name not in _BOUNDS_OF_TIMESTAMPS},
    )


def vanilla(version: str) -> StartKafka:
    """One broker as it comes."""

    @contextmanager
    def start(folder: Path) -> Iterator[Kafka]:
        with KafkaBroker(fetch_kafka(version, CACHE), folder) as broker:
            yield kafka_of(broker.bootstrap, version)

    return start


# --- 2.8, before KRaft


@contextmanager
def zookeeper(folder: Path) -> Iterator[Kafka]:
    with ZooKeeperBroker(fetch_kafka(KAFKA_28, CACHE), folder) as broker:
        yield kafka_of(broker.bootstrap, KAFKA_28)


@contextmanager
def without_topic_ids(folder: Path) -> Iterator[Kafka]:
    """An upgraded broker whose protocol was left as it was."""
    properties = {"inter.broker.protocol.version": "2.7"}
    with ZooKeeperBroker(fetch_kafka(KAFKA_28, CACHE), folder, properties=properties) as broker:

        def evidence() -> str:
            ids = _topic_ids(broker.bootstrap)
            assert ids == {0}, ids
            return "no topic has an id"

        yield replace(kafka_of(broker.bootstrap, KAFKA_28), evidence=evidence)


def _topic_ids(bootstrap: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [name for name in admin.list_topics(timeout=20).topics if not name.startswith("_")]
    found = [done.result(20) for done in admin.describe_topics(TopicCollection(names)).values()]
    return {one.topic_id.get_most_significant_bits() for one in found}


@contextmanager
def old_messages(folder: Path) -> Iterator[Kafka]:
    """One topic is written in the format of Kafka 0.10: magic 1."""
    topic = "old-messages"
    with ZooKeeperBroker(fetch_kafka(KAFKA_28, CACHE), folder) as broker:
        create_topic(broker.bootstrap, topic, 2, {"message.format.version": "0.10.2"})
        produce_values(broker.bootstrap, topic, [b"of old"] * 10, enable_idempotence=False)
        refused = RefusedTopic(topic, 3, rf"{topic}-0: offset 0: message set v1 \(written by Kafka before 0\.11\)")
        yield replace(kafka_of(broker.bootstrap, KAFKA_28), refused_topic=refused)


@contextmanager
def long_name(folder: Path) -> Iterator[Kafka]:
    """One topic's objects have names of more than the 255 bytes that files may have."""
    topic = "long" * 62
    with KafkaBroker(fetch_kafka(KAFKA_41, CACHE), folder) as broker:
        create_topic(broker.bootstrap, topic)
        produce_values(broker.bootstrap, topic, [b"with a long name"])
        yield replace(
            kafka_of(broker.bootstrap, KAFKA_41),
            refused_topic=RefusedTopic(topic, 1, f"{topic}-0: the store takes no objects with names of 276 bytes"),
        )


# --- tiered storage


Behaving = Callable[[RemoteTier], AbstractContextManager[None]]


def tiered(behaving: Behaving, configs: Mapping[str, str] = TIERED, brokers_wait_ms: int = 500) -> StartKafka:
    """Most of what is written lies in the remote tier, which behaves so while a command reads it."""

    @contextmanager
    def start(folder: Path) -> Iterator[Kafka]:
        jars = fetch_kafka(KAFKA_41, CACHE)
        tier = RemoteTier(folder / "tier", jars)
        properties = tier.broker_properties() | {"remote.fetch.max.wait.ms": str(brokers_wait_ms)}
        with KafkaBroker(jars, folder / "broker", properties=properties) as broker:
            is_local = configs == TIERED_AND_LOCAL

            def settle(topics: Sequence[str]) -> None:
                for topic in topics:
                    until_local_from(broker, topic, 0 if is_local else 1)

            def evidence() -> str:
                begun = sum(tier.reads(topic, partition) for topic in ("orders", "deals") for partition in range(3))
                assert (begun == 0) == is_local, begun
                return f"{begun} remote reads"

            yield replace(
                kafka_of(broker.bootstrap, KAFKA_41),
                big_bytes=400_000,  # a batch holds some, and must fit into a segment
                of_logs=configs,
                settle=settle,
                while_reading=lambda: behaving(tier),
                evidence=evidence,
            )

    return start


def always(order: int | str) -> Behaving:
    """Reads take so many milliseconds."""

    @contextmanager
    def behave(tier: RemoteTier) -> Iterator[None]:
        tier.behave(order)
        yield
        tier.behave()

    return behave


def at_first(order: int | str, reads: int = 8) -> Behaving:
    """So it goes until so many reads have been tried; then all is well."""

    @contextmanager
    def behave(tier: RemoteTier) -> Iterator[None]:
        enough, over = _lines(tier.folder / "reads") + reads, threading.Event()

        def relent() -> None:
            while _lines(tier.folder / "reads") < enough and not over.wait(0.1):
                pass
            tier.behave()

        tier.behave(order)
        relenting = threading.Thread(target=relent)
        relenting.start()
        try:
            yield
        finally:
            over.set()
            relenting.join()

    return behave


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


# --- more than one broker


@contextmanager
def racks(folder: Path) -> Iterator[Kafka]:
    """Three brokers, each with all partitions: who is in the rack of one reads from that one, which leads none of them."""
    of_node = {node: {"broker.rack": f"rack-{node}"} for node in (1, 2, 3)}
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    shared = {**selector, "default.replication.factor": "3"}
    with broker_cluster(folder, 3, of_node=of_node, log_requests=True, **shared) as cluster:

        def served() -> tuple[int, int]:
            return cluster.bytes_served(3, CLIENT), sum(cluster.bytes_served(node, CLIENT) for node in (1, 2))

        def let_restore(_targets: Sequence[str]) -> None:
            """Until now the third one led nothing: whatever it has served, it has served as a follower."""
            before_restore.append(served())

        def evidence() -> str:
            by_follower, by_leaders = before_restore[0]
            assert by_follower > 0, before_restore
            return f"before the restore {by_follower:,} B came from followers, {by_leaders:,} B from leaders"

        before_restore: list[tuple[int, int]] = []
        made = kafka_of(cluster.bootstrap, KAFKA_41)
        settings = {**made.settings, "client.rack": "rack-3"}
        replicas = ((1, 2, 3), (2, 1, 3))
        yield replace(made, settings=settings, replicas=replicas, let_restore=let_restore, evidence=evidence)


@contextmanager
def managed(folder: Path) -> Iterator[Kafka]:
    """Whoever runs it for others has policies: for topics that are created, and for configs that are changed."""
    jars = jars_with("ManagedPolicies", fetch_kafka(KAFKA_41, CACHE), CACHE, folder / f"kafka-{KAFKA_41}-policies")
    policies = {
        "create.topic.policy.class.name": "ManagedPolicies$Create",
        "alter.config.policy.class.name": "ManagedPolicies$Alter",
        **dict.fromkeys(("default.replication.factor", "transaction.state.log.replication.factor"), "2"),
    }
    with broker_cluster(folder, 2, jars, of_node={}, log_requests=False, **policies) as cluster:
        made = kafka_of(cluster.bootstrap, KAFKA_41)
        allowed = {"retention.ms": str(_A_HUNDRED_YEARS_MS), "max.message.bytes": str(20 << 20)}
        options = ("--retention", "largest")

        def evidence() -> str:
            held = Brokers(made).configs("copy.orders")["retention.ms"]
            assert int(held) == _A_HUNDRED_YEARS_MS, held
            return f"restored with {' '.join(options)}"

        yield replace(
            made,
            keep_all={**made.keep_all, **allowed},
            replicas=((1, 2), (2, 1)),
            restore_options=options,
            evidence=evidence,
            big_bytes=900_000,  # the limit of new topics is the cluster's own, for 2 GiB is refused
        )


# --- brokers that hold back


@contextmanager
def least_rights(folder: Path) -> Iterator[Kafka]:
    """The user of the program may do what docs/reference.md names, and nothing else; backup and restore have rights of their own."""
    certificates = Certificates.make(folder / "certificates")
    with SecureBroker(fetch_kafka(KAFKA_41, CACHE), folder / "broker", certificates) as broker:

        def let_back_up(topics: Sequence[str]) -> None:
            rights = [(Kind.TOPIC, topic, right) for topic in topics for right in (Op.READ, Op.DESCRIBE_CONFIGS)]
            broker.grant(*rights, (Kind.GROUP, GROUP, Op.READ))

        def let_restore(targets: Sequence[str]) -> None:
            needed = (Op.CREATE, Op.READ, Op.WRITE, Op.ALTER_CONFIGS)
            broker.grant(*((Kind.TOPIC, target, right) for target in targets for right in needed))

        settings = {
            "bootstrap.servers": broker.address("SASLTLS"),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(certificates.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        made = kafka_of(broker.bootstrap, KAFKA_41)
        yield replace(made, settings=settings, let_back_up=let_back_up, let_restore=let_restore)


@contextmanager
def quotas(folder: Path) -> Iterator[Kafka]:
    """The program may read and write so many bytes a second; all others as they like."""
    jars = fetch_kafka(KAFKA_41, CACHE)
    options = (*JAVA_OPTIONS, LOG_REQUESTS)
    with KafkaBroker(jars, folder, properties={"quota.window.num": "3"}, java_options=options) as broker:
        limits = f"consumer_byte_rate={_QUOTA},producer_byte_rate={_QUOTA}"
        _change(broker, "--entity-type", "clients", "--entity-name", CLIENT, "--add-config", limits)

        def evidence() -> str:
            throttled = {name: _throttled_ms(broker.log_path, name) for name in ("FETCH", "PRODUCE")}
            assert all(throttled.values()), throttled
            return f"held back for {throttled['FETCH']:,} ms of fetches, {throttled['PRODUCE']:,} ms of puts"

        yield replace(kafka_of(broker.bootstrap, KAFKA_41), evidence=evidence)


def _change(broker: KafkaBroker, *what: str) -> None:
    """Kafka's own tool: librdkafka cannot set quotas."""
    command = ["java", "-cp", f"{broker.jars}/*", "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap]
    subprocess.run([*command, "--alter", *what], check=True, capture_output=True, timeout=_TOOL_S)


def _throttled_ms(log: Path, request: str) -> int:
    lines = log.read_text(errors="replace").splitlines()
    mine = [line for line in lines if f'"{request}"' in line and f'"clientId":"{CLIENT}"' in line]
    return sum(int(found[1]) for line in mine if (found := re.search(r'"throttleTimeMs":(\d+)', line)))
