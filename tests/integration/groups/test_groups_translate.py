"""`archiver groups translate` names what it cannot translate, with the reason."""

import json
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from archiver.cli.main import main
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.kafka_topics import create_topic, delete_topic, produce_values
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


def translated(
    site: ArchiveSite, capsys: pytest.CaptureFixture[str], *options: str, exit_code: int, restore: str
) -> dict[str, Any]:
    capsys.readouterr()
    files = ["-c", str(site.folder / "archive.yaml"), "--target", str(site.folder / "target.yaml")]
    assert main(["groups", "translate", *files, "--restore", restore, "--format", "json", *options]) == exit_code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_cannot_be_translated_is_told_and_stops_nothing_else(
    broker_41: Broker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(broker_41.bootstrap, topic, 3)
    for number in range(3):
        produce_values(broker_41.bootstrap, topic, [b"value"] * 50, number)
    commit(broker_41, f"{topic}.within", *(ClientPartition(topic, number, 25 + number) for number in range(3)))
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
