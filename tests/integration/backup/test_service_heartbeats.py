"""A running backup leaves notes, from which `archiver status` tells whether it works; also after a kill."""

import json
import signal
import time
from typing import Any

import pytest

from tests.support.brokers import Broker
from tests.support.kafka_topics import create_topic, produce_values
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.service import eventually, running, service_config

pytestmark = [pytest.mark.kafka, pytest.mark.s3]


def test_a_running_backup_says_how_far_it_has_come(broker_41: Broker, site: ArchiveSite, topic: str) -> None:
    create_topic(broker_41.bootstrap, topic, 2, KEEP_ALL)
    produce_values(broker_41.bootstrap, topic, [b"1", b"2", b"3"])

    def status(*ages: str) -> tuple[int, dict[str, Any], str]:
        given = [word for age in ages for word in ("--max-age", age)]
        done = site.run("status", "-c", "one.yaml", "--format", "json", *given)
        return done.returncode, json.loads(done.stdout), done.stderr

    config = service_config(site, broker_41.bootstrap, topic)
    with running(site, config) as instance:
        assert "backup: no run has left a note" in status()[2]
        eventually(lambda: status()[0] == 0, "no note")
        _, found, _ = status()
        (run,) = found["runs"]
        assert (run["kind"], run["processes"], run["partitions"], run["problems"]) == ("backup", 1, 2, [])
        assert found["durable_through"] is not None
        instance.process.send_signal(signal.SIGKILL)
        instance.process.wait()
        time.sleep(2)
        assert status()[0] == 0
        code, found, told = status("1s")
        assert (code, found["working"], "backup: " in told) == (3, False, True)
