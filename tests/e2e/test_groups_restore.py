"""`restore --groups` by the installed command on a Spark of its own, killed and run again; and groups that are reset by time instead."""

import json
import re
import signal
import subprocess
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from archiver.kafka.groups.group_positions import positions_of
from tests.conftest import kafka_jars
from tests.integration.groups.test_group_positions import commit
from tests.support.brokers import Broker
from tests.support.dealt_records import Rows, fill
from tests.support.kafka_topics import with_client
from tests.support.processes import end_of
from tests.support.round_trip import ArchiveSite
from tests.support.zookeeper import KAFKA_28

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(900)]

RUN_S = 240.0


def archived(broker: Broker, topic: str, site: ArchiveSite, seed: int) -> tuple[Rows, dict[str, dict[int, int]]]:
    """Archive a topic of three partitions and two groups. Returns its records, and where the groups stood."""
    written = fill(broker, topic, [120, 0, 80], seed)
    committed = {f"{topic}.some": {0: 70, 2: 11}, f"{topic}.all": {0: 120, 2: 80}}
    for group, offsets in committed.items():
        commit(broker, group, *(ClientPartition(topic, number, at) for number, at in offsets.items()))
    site.write_config(broker.bootstrap, topic)
    site.write_target(broker.bootstrap)
    site.back_up_with(broker.bootstrap, topic, groups="snapshot", segment={"records": 40})
    return written, committed


def test_killed_the_same_command_goes_on_and_groups_miss_nothing(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int, pytestconfig: pytest.Config
) -> None:
    _, committed = archived(broker_41, topic, site, seed)
    target = f"{topic}.back"
    command = ["restore", "--target", "target.yaml", "--topics", topic, "--rename", f"{topic}={target}"]
    command += ["--groups", f"{re.escape(topic)}.*", "--format", "json"]

    def stands(group: str) -> dict[int, int]:
        found = with_client(broker_41.bootstrap, lambda client: positions_of(client, group))
        return {number: one.offset for (name, number), one in found.items() if name == target}

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
    assert {group: stands(group) for group in committed} == committed


def test_after_repartition_a_reset_by_time_misses_no_record(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int
) -> None:
    """By the commands of docs/runbooks.md."""
    written, committed = archived(broker_41, topic, site, seed)
    target, group = f"{topic}.back", f"{topic}.some"
    site.restore(broker_41.bootstrap, topics=topic, rename=[f"{topic}={target}"], repartition=4)
    told = site.run(
        "query",
        f"SELECT date_format(min(timestamp), \"yyyy-MM-dd'T'HH:mm:ss.SSS\") AS at FROM `{topic}` r LEFT JOIN (SELECT * FROM `@groups`"
        f" WHERE `group` = '{group}' AND topic = '{topic}') g ON r.partition = g.partition"
        " WHERE g.offset IS NULL OR r.offset >= g.offset",
        "--format",
        "json",
        timeout_s=RUN_S,
    )
    assert told.returncode == 0, told.stderr
    tool = ["java", "-cp", f"{kafka_jars(KAFKA_28)}/*", "kafka.admin.ConsumerGroupCommand"]
    asked = ["--bootstrap-server", broker_41.bootstrap, "--group", group, "--topic", target]
    asked += ["--reset-offsets", "--to-datetime", json.loads(told.stdout)["at"], "--execute"]
    reset = subprocess.run([*tool, *asked], capture_output=True, text=True, check=False, timeout=RUN_S)
    assert target in reset.stdout, (reset.stdout, reset.stderr)
    unread = {
        (source, at) for source, rows in written.items() for at in range(committed[group].get(source, 0), len(rows))
    }
    assert unread <= read_on(broker_41, target, group, 4).keys()


def read_on(broker: Broker, topic: str, group: str, partitions: int) -> Counter[tuple[int, int]]:
    """Read as a consumer of the group up to the end. Returns records by source partition and offset there."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "enable.partition.eof": True})
    consumer.subscribe([topic])
    found, ended = Counter[tuple[int, int]](), set[int | None]()
    try:
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, "nothing came"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            told = dict(message.headers() or [])["at"]
            assert isinstance(told, bytes)
            source, _, at = told.partition(b"/")
            found[int(source), int(at)] += 1
    finally:
        consumer.close()
    return found
