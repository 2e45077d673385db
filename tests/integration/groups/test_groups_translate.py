"""`archiver groups translate` tells where groups are to stand on the target: a real consumer that starts there reads what follows."""

import json
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from archiver.cli.main import main
from archiver.codec.selection import TopicSelection
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import create_topic, delete_topic, produce_values
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


def translated(
    site: ArchiveSite, capsys: pytest.CaptureFixture[str], *options: str, exit_code: int = 0, restore: str = "mine"
) -> dict[str, Any]:
    capsys.readouterr()
    files = ["-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")]
    assert main(["groups", "translate", *files, "--restore", restore, "--format", "json", *options]) == exit_code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def read_at(broker: Broker, topic: str, partition: int, offset: int) -> bytes | None:
    """The value of the next record that a consumer reads there; None: it reads none."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([ClientPartition(topic, partition, offset)])
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            return message.value()
        assert "_PARTITION_EOF" in str(message.error())
        return None
    finally:
        consumer.close()


def produce_and_commit(broker: Broker, topic: str, group: str) -> None:
    create_topic(broker.bootstrap, topic, 3)
    create_topic(broker.bootstrap, f"{topic}.other")
    for partition in range(3):
        produce_values(broker.bootstrap, topic, [b"%d-%d" % (partition, number) for number in range(50)], partition)
    produce_values(broker.bootstrap, f"{topic}.other", [b"x"])
    commit(broker, f"{group}.early", ClientPartition(topic, 0, 3), ClientPartition(f"{topic}.other", 0, 1))
    commit(
        broker,
        f"{group}.within",
        ClientPartition(topic, 0, 25, metadata="kept ü"),
        ClientPartition(topic, 1, 50),
        ClientPartition(topic, 2, 49),
    )


def test_a_consumer_goes_on_with_the_next_restored_record(
    broker_41: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    produce_and_commit(broker_41, topic, topic)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    site.back_up_with(broker_41.bootstrap, topic, groups="snapshot")
    window = TopicSelection(offsets={0: (10, 39), 1: (10, 2**62), 2: (0, 2**62)})
    site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], restore_id="mine", wanted=window)
    produce_values(broker_41.bootstrap, f"{topic}.back", [b"since"], 1)  # producers write on

    found = translated(site, capsys, "--groups", f"{topic}.*", "--rename-group", f"{topic}.early=renamed")
    groups = {one["archived_group"]: one for one in found["groups"]}
    assert (groups[f"{topic}.early"]["group"], found["whole"]) == ("renamed", True)
    rows = {(name, row["partition"]): row for name, group in groups.items() for row in group["positions"]}
    told = {
        key: (row["committed"], row["offset"], [one["kind"] for one in row["remarks"]]) for key, row in rows.items()
    }
    assert told == {
        (f"{topic}.early", 0): (3, 0, ["before the first restored record"]),
        (f"{topic}.within", 0): (25, 15, ["exact"]),
        (f"{topic}.within", 1): (50, 40, ["at the end of the archive"]),
        (f"{topic}.within", 2): (49, 49, ["exact"]),
    }
    assert rows[f"{topic}.within", 0]["metadata"] == "kept ü\0"  # librdkafka commits the zero, too
    nexts = {
        key: read_at(broker_41, row["target_topic"], row["target_partition"], row["offset"])
        for key, row in rows.items()
    }
    assert nexts == {
        (f"{topic}.early", 0): b"0-10",
        (f"{topic}.within", 0): b"0-25",
        (f"{topic}.within", 1): b"since",
        (f"{topic}.within", 2): b"2-49",
    }
    early = groups[f"{topic}.early"]
    assert [(row["topic"], row["reason"]) for row in early["not_set"]] == [(f"{topic}.other", "topic not restored")]
    assert [row["partition"] for row in early["without_commit"]] == [1, 2]
    assert groups[f"{topic}.within"]["without_commit"] == []


def test_what_cannot_be_translated_is_told_and_stops_nothing_else(
    broker_41: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    produce_and_commit(broker_41, topic, topic)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    site.back_up_with(broker_41.bootstrap, topic, groups="snapshot")
    site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.back"], restore_id="mine")
    site.restore(
        broker_41.bootstrap, topics=topic, rename=[f"{topic}={topic}.dealt"], restore_id="dealt", repartition=2
    )
    options = ("--groups", f"{topic}.within")

    def outcome(restore: str = "mine", exit_code: int = 3) -> tuple[list[int], list[tuple[int, str, str]]]:
        (group,) = translated(site, capsys, *options, exit_code=exit_code, restore=restore)["groups"]
        unset = [(row["partition"], row["reason"], row["told"]) for row in group["not_set"]]
        return [row["partition"] for row in group["positions"]], unset

    assert outcome(exit_code=0) == ([0, 1, 2], [])
    (place, told) = outcome("dealt")
    assert (place, {why for _, why, _ in told}) == ([], {"topic repartitioned"})
    assert "--reset-offsets --to-datetime" in told[0][2]

    _forge(site, topic)
    place, told = outcome()
    assert place == [2]
    assert [(number, why) for number, why, _ in told] == [
        (0, "partition not restored whole"),
        (1, "partition not restored whole"),
    ]
    assert "the offset map is gone" in told[0][2]
    assert "is not the map of what was read back" in told[1][2]

    assert main(["groups", "translate", *_files(site), "--restore", "other"]) == 2
    assert "there are dealt, mine" in capsys.readouterr().err
    delete_topic(broker_41.bootstrap, f"{topic}.back")
    assert "is not on the cluster" in outcome()[1][0][2]
    create_topic(broker_41.bootstrap, f"{topic}.back", 3)
    assert "created again since" in outcome()[1][0][2]


def _files(site: ArchiveSite) -> list[str]:
    return ["-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")]


def _forge(site: ArchiveSite, topic: str) -> None:
    """One map goes, and another becomes that of a third partition."""
    client, bucket = s3_client(site.bucket), site.bucket.name
    (first, second, third) = (
        keys_in(site.bucket, f"control/restores/mine/{topic}.back/{number}/offsets/")[0] for number in range(3)
    )
    client.delete_object(Bucket=bucket, Key=first)
    found = client.get_object(Bucket=bucket, Key=third)
    client.put_object(Bucket=bucket, Key=second, Body=found["Body"].read(), Metadata=found["Metadata"])
