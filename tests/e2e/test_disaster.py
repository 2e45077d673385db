"""The runbook "Restore after a disaster", as it is printed: groups with and without lag go on where they stood."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.kafka_topics import create_topic, delete_topic
from tests.support.round_trip import ArchiveSite
from tests.support.service import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]

RUNBOOKS: Final = Path(__file__).parents[2] / "docs" / "runbooks.md"
TOPIC: Final = "orders"  # as the runbook has it
PARTITIONS: Final = 3
RUN_S: Final = 240.0
Values = Mapping[int, list[bytes]]  # by partition


def commands_of(heading: str) -> list[list[str]]:
    """The commands of a runbook, in order. Those of its side roads, behind the numbered steps, are not among them."""
    section = re.split(r"^## ", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = [one for one in section if one.startswith(f"{heading}\n")]
    typed = re.findall(r"^ +\$ archiver (.+)$", text, re.MULTILINE)
    return [[word.strip("'") for word in line.split()] for line in typed]


def fill(bootstrap: str) -> None:
    """Transactions, some of them aborted: offsets have holes that a restore closes."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "shop"})
    producer.init_transactions(30)
    for round_number in range(12):
        producer.begin_transaction()
        for number in range(10):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"%d-%d" % (round_number, number), partition=partition)
        if round_number % 3 == 1:
            producer.flush(30)  # what the broker has not begun cannot be aborted
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def consume(bootstrap: str, group: str, each: int, protocol: str = "classic") -> None:
    """As a worker does: read so many records of each partition, commit behind them, and leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    read = dict.fromkeys(range(PARTITIONS), 0)
    behind: dict[int, int] = {}
    try:
        while min(read.values()) < each:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if read[partition] < each:
                read[partition] += 1
                behind[partition] = offset + 1
        positions = [ClientPartition(TOPIC, partition, offset) for partition, offset in behind.items()]
        consumer.commit(offsets=positions, asynchronous=False)
    finally:
        consumer.close()


def values_behind(bootstrap: str, group: str, *, joins: bool) -> Values:
    """What a group reads from where it stands to the end: as a member, or, so that nothing is committed, beside it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        if joins:
            consumer.subscribe([TOPIC])
        else:
            committed = consumer.committed([ClientPartition(TOPIC, partition) for partition in range(PARTITIONS)], 30)
            consumer.assign([one for one in committed if one.offset >= 0])
            ended |= {one.partition for one in committed if one.offset < 0}

        def read() -> bool:
            message = consumer.poll(1)
            if message is not None and (partition := message.partition()) is not None:
                if message.error() is not None:
                    ended.add(partition)
                else:
                    found[partition].append(message.value() or b"")
            return len(ended) == PARTITIONS

        eventually(read, f"{group} did not reach the end", every_s=0)  # it waits for each record itself
    finally:
        consumer.close()
    return found


def run(site: ArchiveSite, command: list[str]) -> str:
    done = site.run(*command, timeout_s=RUN_S)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize("archives_the_deletion", [pytest.param(False, marks=pytest.mark.long), True])
def test_groups_go_on_where_they_stood(
    new_broker: StartBroker, site: ArchiveSite, *, archives_the_deletion: bool
) -> None:
    broker: Broker = new_broker(KAFKA_41)
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    create_topic(broker.bootstrap, "customers")  # the rest of the cluster
    fill(broker.bootstrap)
    consume(broker.bootstrap, "billing", 25)
    consume(broker.bootstrap, "audit", 1, "consumer")
    consume(broker.bootstrap, "reporting", 80)  # it has no lag
    before = {group: values_behind(broker.bootstrap, group, joins=False) for group in ("billing", "audit", "reporting")}
    assert [len(values) for values in before["billing"].values()] == [55] * PARTITIONS
    assert not any(before["reporting"].values())
    config = site.config(broker.bootstrap, [TOPIC, "customers"])
    config["backup"]["groups"] = "topic"
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    site.write_target(broker.bootstrap)
    run(site, ["backup", "--until-end"])
    delete_topic(broker.bootstrap, TOPIC)  # the disaster
    if archives_the_deletion:
        run(site, ["backup", "--until-end"])
    told = [(command, run(site, command)) for command in commands_of("Restore after a disaster")]
    assert [command[0] for command, _ in told] == ["ls", "groups", "restore", "cluster", "cluster"]
    for group, values in before.items():
        assert group in told[1][1]
        assert values_behind(broker.bootstrap, group, joins=True) == values, group
