"""`archiver groups show` tells what Kafka's own Admin tells at the same moment, and what was so at earlier ones."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from archiver.cli.main import main
from archiver.groups.log.archived_until import offsets_partition
from tests.integration.groups.test_group_positions import commit, java_positions, member
from tests.support.brokers import KAFKA_39, KAFKA_41, KAFKA_44, Broker, StartBroker
from tests.support.group_histories import Hands, moment_ms
from tests.support.kafka_topics import create_topic, delete_topic, produce_values
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

Groups = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]


def shown(site: ArchiveSite, capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["groups", "show", "--format", "json", "-c", str(site.folder / "archive.yaml"), *options]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def as_java(found: Mapping[str, Any]) -> Groups:
    """In the shape of `java_positions`; a group without a position is in neither."""
    groups: dict[str, Any] = {}
    for row in found["positions"]:
        if row["state"] == "set":
            told = {"offset": row["offset"]}
            told |= {} if row["leader_epoch"] is None else {"leader_epoch": row["leader_epoch"]}
            told |= {"metadata": row["metadata"]} if row["metadata"] else {}
            groups.setdefault(row["group"], {}).setdefault(row["topic"], {})[str(row["partition"])] = told
    return groups


def of_java(bootstrap: str) -> Groups:
    return {group: topics for group, topics in java_positions(bootstrap).items() if topics}


def commit_in_transaction(bootstrap: str, group: str, position: ClientPartition, *, commits: bool) -> None:
    with open_transaction(bootstrap, group, position) as producer:
        if commits:
            producer.commit_transaction(30)


@contextmanager
def open_transaction(bootstrap: str, group: str, position: ClientPartition) -> Iterator[Producer]:
    """Abort it at the end, unless it was committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-{position.offset}"})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
    try:
        yield producer
        with suppress(KafkaException):  # it was committed
            producer.abort_transaction(30)
    finally:
        consumer.close()


def test_it_tells_which_transaction_holds_the_log_back(
    broker: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(broker.bootstrap, topic)
    produce_values(broker.bootstrap, topic, [b"one"])
    site.write_config(broker.bootstrap, topic)
    group = f"{topic}-group"
    commit(broker, group, ClientPartition(topic, 0, 1))
    early_ms = moment_ms()
    commit(broker, group, ClientPartition(topic, 0, 2))
    with open_transaction(broker.bootstrap, group, ClientPartition(topic, 0, 9)):
        commit(broker, group, ClientPartition(topic, 0, 3))
        before_ms = moment_ms()
        commit(broker, group, ClientPartition(topic, 0, 4))
        site.back_up_with(broker.bootstrap, topic, groups="topic")
        told = shown(site, capsys, "--against-kafka", code=3)
        assert [(row["state"], row["offset"]) for row in told["positions"] if row["group"] == group] == [
            ("unknown", None)
        ]
        held = {row["partition"]: row for row in told["live_offsets_partitions"] if row["last_stable"] < row["end"]}
        mine = held[offsets_partition(group, len(told["live_offsets_partitions"]))]
        assert mine["transactions"][0]["transactional_id"] == f"{group}-9"
        assert mine["transactions"][0]["start_offset"] == mine["last_stable"]
        assert main(["groups", "show", "--against-kafka", "-c", str(site.folder / "archive.yaml")]) == 3
        line, out = f"held back at {mine['last_stable']} by a transaction of producer id", capsys.readouterr()
        assert line in out.out
        assert f"archived only in part: {mine['partition']} (" in out.err
        assert site.run_within("verify", "-c", "archive.yaml").returncode == 3
        told = shown(site, capsys, "--as-of", str(early_ms))  # the archive has all of then
        assert [row["offset"] for row in told["positions"] if row["group"] == group] == [1]
        shown(site, capsys, "--as-of", str(before_ms), code=3)
    site.back_up_with(broker.bootstrap, topic, groups="topic")
    told = shown(site, capsys)
    assert [row["offset"] for row in told["positions"] if row["group"] == group] == [4]
    assert site.run_within("verify", "-c", "archive.yaml").returncode == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", [KAFKA_39, KAFKA_41, pytest.param(KAFKA_44, marks=pytest.mark.worlds)])
def test_it_tells_what_the_brokers_tell_and_told(
    version: str, new_broker: StartBroker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = new_broker(version)
    create_topic(broker.bootstrap, topic, 3)
    create_topic(broker.bootstrap, f"{topic}-kept")
    for partition in range(3):
        produce_values(broker.bootstrap, topic, [b"%d" % number for number in range(20)], partition)
    site.write_config(broker.bootstrap, topic)
    commit(broker, "simple", ClientPartition(topic, 0, 5, metadata="ü"), ClientPartition(topic, 1, 0, leader_epoch=0))
    commit_in_transaction(broker.bootstrap, "streams", ClientPartition(topic, 2, 7), commits=True)
    commit_in_transaction(broker.bootstrap, "streams", ClientPartition(topic, 2, 9), commits=False)
    with member(broker, "members", topic, "classic" if version == KAFKA_39 else "consumer") as consumer:
        consumer.commit(offsets=[ClientPartition(topic, 2, 11)], asynchronous=False)
    early = of_java(broker.bootstrap)
    time.sleep(0.05)
    early_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    commit(broker, "simple", ClientPartition(topic, 0, 6), ClientPartition(topic, 2, 1))
    commit(broker, "idle", ClientPartition(topic, 1, 20))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # it must live until it has answered
    admin.delete_consumer_groups(["members"])["members"].result(20)
    late = of_java(broker.bootstrap)

    site.back_up_with(broker.bootstrap, topic, groups="topic")
    found = shown(site, capsys)
    assert as_java(found) == late
    assert as_java(shown(site, capsys, "--as-of", str(early_ms))) == early
    lags = {(row["group"], row["partition"]): row["lag"] for row in found["positions"] if row["topic"] == topic}
    assert (lags["simple", 0], lags["idle", 1]) == (14, 0)
    removed = [row for row in found["positions"] if row["group"] == "members"]
    assert [(row["offset"], row["state"], row["cause"]) for row in removed] == [(None, "removed", "group deleted")]

    delete_topic(broker.bootstrap, topic)
    Hands.of(broker.bootstrap).wait_until_forgotten(["simple", "streams", "idle"], topic, 3)
    assert not any(topic in held for held in of_java(broker.bootstrap).values())
    site.back_up_with(broker.bootstrap, f"{topic}-kept", groups="topic")
    ended = {
        (row["group"], row["partition"]): row["offset"]
        for row in shown(site, capsys)["positions"]
        if row["state"] == "topic deleted"
    }
    # Nobody committed to the topic between the end of the group `members` and that of the topic: nothing tells them apart.
    assert ended == {
        ("members", 2): 11,
        ("simple", 0): 6,
        ("simple", 1): 0,
        ("simple", 2): 1,
        ("streams", 2): 7,
        ("idle", 1): 20,
    }
