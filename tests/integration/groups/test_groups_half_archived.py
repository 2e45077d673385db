"""A first backup of `__consumer_offsets` that was killed half way."""

import signal
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition as ClientPartition

from archiver.groups.log.archived_until import offsets_partition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from tests.integration.groups.test_group_positions import commit
from tests.integration.groups.test_groups_show import as_java, of_java, shown
from tests.support.brokers import KAFKA_41, StartBroker
from tests.support.foreign_reader import read_segments
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]


def test_of_a_first_backup_that_was_killed_only_what_was_reached_is_known(
    new_broker: StartBroker, topic: str, site: ArchiveSite, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = new_broker(KAFKA_41, **{"offsets.topic.num.partitions": "50"})
    create_topic(broker.bootstrap, topic, 1)
    groups = [f"group-{number}" for number in range(30)]
    for group in groups:
        commit(broker, group, ClientPartition(topic, 0, 5))
    config: dict[str, Any] = site.config(broker.bootstrap, [topic])
    config["backup"]["groups"] = "topic"
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    died = site.command("backup", "--until-end", ARCHIVER_FAILPOINT="segment.put")
    died.communicate(timeout=90)
    assert died.returncode == -signal.SIGKILL

    reached = {one.partition for one in read_segments(site.bucket, OFFSETS_TOPIC)}
    needed = {offsets_partition(group, 50) for group in groups}
    assert reached < needed
    told = shown(site, capsys, code=3)
    assert {row["group"]: (row["state"], row["offset"]) for row in told["positions"]} == {
        group: ("set", 5) for group in groups if offsets_partition(group, 50) in reached
    }
    (problem,) = told["problems"]
    assert f"{len(needed - reached)} partitions are archived only in part: " in problem
    assert "groups may be missing" in problem
    checked = site.run_within("verify", "-c", "archive.yaml")
    assert checked.returncode == 3
    assert problem[:60] in checked.stdout + checked.stderr

    assert site.run_within("backup", "--until-end").returncode == 0
    assert as_java(shown(site, capsys)) == of_java(broker.bootstrap)
    assert site.run_within("verify", "-c", "archive.yaml").returncode == 0
