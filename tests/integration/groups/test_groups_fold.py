"""`archiver groups fold` on what a broker wrote: positions stay what they were, also when it is killed, and when the objects are gone."""

import json
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from archiver.archive.format.handle import open_archive
from archiver.cli.main import main
from archiver.config.model import StorageConfig
from tests.integration.groups.test_group_positions import commit
from tests.integration.groups.test_groups_show import shown
from tests.support.brokers import KAFKA_41, Broker, StartBroker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

PLACES = ("fold.put", "fold.compared", "fold.noted")


def folded(
    site: ArchiveSite, capsys: pytest.CaptureFixture[str], *options: str, ends_with: int = 0
) -> dict[int, Mapping[str, Any]]:
    capsys.readouterr()
    config = str(site.folder / "archive.yaml")
    assert main(["groups", "fold", "--format", "json", "-c", config, *options]) == ends_with
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    return {row["partition"]: row for row in found["partitions"]}


def without_source(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "source"} for row in found["positions"]]


def commit_all(broker: Broker, topic: str, offset: int) -> None:
    for group in ("billing", "shipping", "mail", "audit"):
        commit(broker, group, ClientPartition(topic, 0, offset), ClientPartition(topic, 1, offset + 1))


def test_positions_stay_what_they_were(
    new_broker: StartBroker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = new_broker(KAFKA_41)
    create_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        produce_values(broker.bootstrap, topic, [b"%d" % number for number in range(20)], partition)
    site.write_config(broker.bootstrap, topic)
    commit_all(broker, topic, 3)
    site.back_up_with(broker.bootstrap, topic, groups="topic")
    commit_all(broker, topic, 5)
    site.back_up_with(broker.bootstrap, topic, groups="topic")
    before = shown(site, capsys)

    planned = folded(site, capsys, "--dry-run")
    due = [number for number, row in planned.items() if row["state"] == "to fold"]
    assert due
    archive = open_archive(StorageConfig(url=site.bucket.url, endpoint=site.bucket.s3.endpoint))
    assert not list(archive.store.list("control/group-folds/"))
    for place in PLACES:  # kill -9, for the first partition that is folded, and then the second, ...
        killed = site.command("groups", "fold", ARCHIVER_FAILPOINT=place)
        killed.communicate(timeout=60)
        assert killed.returncode == -signal.SIGKILL
        assert without_source(shown(site, capsys)) == without_source(before)
    done = folded(site, capsys)
    assert {number for number, row in done.items() if row["state"] == "folded"} == set(due[1:])
    assert {row["state"] for row in folded(site, capsys).values()} == {"nothing new"}
    after = shown(site, capsys)
    assert without_source(after) == without_source(before)
    assert {row["source"] for row in after["positions"]} == {"fold"}

    commit_all(broker, topic, 7)
    site.back_up_with(broker.bootstrap, topic, groups="topic")
    newer = shown(site, capsys)
    assert {row["offset"] for row in newer["positions"] if row["topic"] == topic} == {7, 8}
    objects: dict[str, list[str]] = {}
    for item in archive.store.list("topics/__consumer_offsets/"):
        objects.setdefault(item.key.rpartition("/")[0], []).append(item.key)
    for keys in objects.values():  # as a retention that spares the newest
        archive.store.delete(keys[:-1])
    archive.store.delete([item.key for item in archive.store.list("control/index/")])
    assert without_source(shown(site, capsys)) == without_source(newer)
    assert main(["verify", "--level", "records", "-c", str(site.folder / "archive.yaml"), "--topics", topic]) == 0
