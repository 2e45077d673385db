"""A backup of `__consumer_offsets` that was killed half way, while a real broker had compacted the log."""

import signal
import time
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from archiver.cli.main import main
from archiver.groups.log import doubts
from archiver.groups.log.archived_until import offsets_partition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from tests.integration.groups.test_group_positions import commit
from tests.integration.groups.test_groups_show import as_java, of_java, shown
from tests.support.brokers import KAFKA_39, KAFKA_41, Broker, StartBroker
from tests.support.foreign_reader import read_segments
from tests.support.group_cases import MOST_TRIES, SOON_CLEAN
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.round_trip import ArchiveSite, errors_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(180)]

GROUP: Final = "group"
_OFFSETS_PARTITIONS: Final = 4


def clean_soon(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in SOON_CLEAN.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(20)


def until_gone(broker: Broker, topic: str, oracle: JavaOracle, offset: int) -> None:
    """Commit to another position again and again: the cleaner takes only what lies before the newest segment."""
    place = offsets_partition(GROUP, _OFFSETS_PARTITIONS)
    for number in range(MOST_TRIES):
        commit(broker, GROUP, ClientPartition(topic, 1, 100 + number))
        time.sleep(0.2)
        left = oracle.consume(broker.bootstrap, OFFSETS_TOPIC).records[place or 0]
        if offset not in {record.offset for record in left}:
            return
    raise AssertionError("the cleaner did nothing")


@pytest.mark.parametrize("version", [pytest.param(KAFKA_39, marks=pytest.mark.long), KAFKA_41])
def test_what_compaction_took_in_favour_of_what_is_not_archived_is_unknown(
    version: str, new_broker: StartBroker, topic: str, site: ArchiveSite, java_oracle: JavaOracle,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    broker = new_broker(version, **{"log.cleaner.backoff.ms": "100"})
    create_topic(broker.bootstrap, topic, 8)
    for partition, offset in ((0, 5), (1, 1)):
        commit(broker, GROUP, ClientPartition(topic, partition, offset))
    assert not errors_of(site.back_up_with(broker.bootstrap, topic, groups="topic"))

    commit(broker, GROUP, ClientPartition(topic, 0, 6))  # at offset 2
    for partition in range(2, 8):
        commit(broker, GROUP, ClientPartition(topic, partition, partition))
    commit(broker, GROUP, ClientPartition(topic, 0, 7))
    clean_soon(broker)
    until_gone(broker, topic, java_oracle, 2)

    config: dict[str, Any] = site.config(broker.bootstrap, [topic], records=4)
    config["backup"]["groups"] = "topic"
    (site.folder / "archive.yaml").write_text(yaml.safe_dump(config))
    died = site.command("backup", "--until-end", ARCHIVER_FAILPOINT="segment.put")
    died.communicate(timeout=60)
    assert died.returncode == -signal.SIGKILL
    segments = read_segments(site.bucket, OFFSETS_TOPIC)
    assert [(one.base, one.next) for one in segments] == [(0, 2), (2, 7)]
    assert int(segments[-1].metadata["archiver-unserved"]) == 1
    assert int(segments[-1].metadata["archiver-stable-end"]) > 9

    monkeypatch.setattr(doubts, "_UNCOMPACTED_MS", 0)  # this broker compacts what is young, too
    lagging = shown(site, capsys, code=3)
    assert {row["state"] for row in lagging["positions"]} == {"unknown"}
    (log,) = lagging["offsets_partitions"]
    archived = shown(site, capsys, "--as-of", str(log["last_ms"]))
    told = {row["partition"]: (row["state"], row["offset"]) for row in archived["positions"]}
    assert told == {**dict.fromkeys(range(5), ("unknown", None)), 5: ("set", 5)}
    fold = ["groups", "fold", "-c", str(site.folder / "archive.yaml")]
    assert main(fold) == 3
    assert "back up again first" in capsys.readouterr().out

    assert site.run_within("backup", "--until-end").returncode == 0
    assert as_java(shown(site, capsys)) == of_java(broker.bootstrap)
    assert main(fold) == 0
    assert as_java(shown(site, capsys)) == of_java(broker.bootstrap)


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
