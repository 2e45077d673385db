"""`restore --groups` by the installed command on a Spark of its own, killed before the groups and among them, and run again."""

import json
import re
import signal

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from archiver.kafka.group_positions import positions_of
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.dealt_groups import read_on, unread
from tests.support.dealt_records import fill
from tests.support.kafka_topics import with_client
from tests.support.processes import end_of
from tests.support.round_trip import ArchiveSite

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(900)]

RUN_S = 240.0
PARTITIONS = 5


def test_killed_the_same_command_goes_on_and_groups_miss_nothing(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int, pytestconfig: pytest.Config
) -> None:
    """Dealt out by key: where groups stand is found by Spark, too."""
    written = fill(broker_41, topic, [120, 0, 80], seed)
    committed = {f"{topic}.some": {0: 70, 2: 11}, f"{topic}.all": {0: 120, 2: 80}}
    for group, offsets in committed.items():
        commit(broker_41, group, *(ClientPartition(topic, number, at) for number, at in offsets.items()))
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    site.back_up_with(broker_41.bootstrap, topic, groups="snapshot", segment={"records": 40})
    target = f"{topic}.back"
    command = ["restore", "--target", "target.yaml", "--topics", topic, "--rename", f"{topic}={target}"]
    command += ["--repartition", str(PARTITIONS), "--groups", f"{re.escape(topic)}.*", "--groups-approximate"]
    command += ["--format", "json"]

    def stands(group: str) -> list[int]:
        found = with_client(broker_41.bootstrap, lambda client: positions_of(client, group))
        return [one.offset for (name, _), one in sorted(found.items()) if name == target]

    failpoints = ("finished.noted", "positions.answered")
    for failpoint in failpoints if pytestconfig.getoption("--long") else failpoints[1:]:
        killed = end_of(site.command(*command, ARCHIVER_FAILPOINT=failpoint), RUN_S)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert any(map(stands, committed)) == (failpoint == "positions.answered")

    done = site.run(*command, timeout_s=RUN_S)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    result = json.loads(done.stdout)
    outcomes = {
        position["outcome"] for group in result["groups"]["applied"]["groups"] for position in group["positions"]
    }
    assert "set by an earlier run" in outcomes
    assert outcomes <= {"set", "set by an earlier run"}
    for plan in result["groups"]["plan"]["groups"]:
        (dealt,) = plan["dealt"]
        assert dealt["offsets"] == stands(plan["group"])
        read, wanted = (
            read_on(broker_41.bootstrap, target, plan["group"], dealt["offsets"]),
            unread(written, committed[plan["group"]]),
        )
        assert (wanted <= read.keys(), read.total() - len(wanted)) == (True, dealt["read_again"])
