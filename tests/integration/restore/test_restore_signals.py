"""A signal ends a restore in order: what it had begun is known, it says how to go on, and nothing of Spark is left."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from archiver.interrupt import INTERRUPTED
from tests.support.brokers import Broker, GivenS3
from tests.support.faulty_s3 import Fault, FaultyS3
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import with_client
from tests.support.processes import command_of, descendants, state_of
from tests.support.restore_kills import DAEMON
from tests.support.round_trip import ArchiveSite
from tests.support.target_topics import archived, log_of, on_target, records_of, restored, until

pytestmark = [pytest.mark.installed, pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(240)]

START_S = 120.0  # of Spark, where others want the cores, too
END_S = 60.0  # half of what a request of a busy store is repeated for
SLOW = ("--rate", "100B", "--batch-bytes", "100")
ending = pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])


@contextmanager
def begun(site: ArchiveSite, broker: Broker, topic: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    site.write_config(broker.bootstrap, topic)
    site.write_target(broker.bootstrap)
    names = ("--topics", topic, "--rename", f"{topic}={topic}.back", "--format", "json")
    run = site.command("restore", "--target", "target.yaml", *names, *more)
    try:
        yield run
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def assert_ended(run: subprocess.Popen[str], below: Sequence[int]) -> str:
    """In order, and with all processes below it. Returns the id that it has told."""
    out, err = run.communicate(timeout=END_S)
    assert run.returncode == 4, err
    found, (*_, said, way_on) = json.loads(out), err.splitlines()
    assert (found["failure"], found["topics"], said) == (INTERRUPTED, [], f"archiver: {INTERRUPTED}"), err
    assert way_on.startswith(f"archiver: restore {found['id']} is not done; go on with: archiver ")
    assert way_on.endswith(f" --id {found['id']}")
    until(lambda: all(state_of(pid) in {"", "Z"} for pid in below), END_S)
    return str(found["id"])


@ending
def test_it_ends_while_it_fills_and_goes_on(
    broker_41: Broker, topic: str, site: ArchiveSite, java_oracle: JavaOracle, number: signal.Signals
) -> None:
    written = archived(broker_41, topic, site, records_of(400))

    def has_records() -> bool:
        found = with_client(broker_41.bootstrap, lambda client: client.describe_topics([f"{topic}.back"]))
        return bool(found) and log_of(broker_41, f"{topic}.back")[1] > 0

    with begun(site, broker_41, topic, *SLOW) as run:
        until(has_records, START_S)
        below = descendants(run.pid)
        assert any("java" in command_of(pid) for pid in below)
        assert any(DAEMON in command_of(pid) for pid in below)
        os.kill(run.pid, number)
        if number == signal.SIGTERM:
            os.kill(run.pid, number)  # as `timeout` does
        restore_id = assert_ended(run, below)
    assert 0 < log_of(broker_41, f"{topic}.back")[1] < 400
    assert restored(site, broker_41, topic, restore_id=restore_id).errors == ()
    assert on_target(java_oracle, broker_41, f"{topic}.back") == written


@ending
def test_it_does_not_wait_for_a_store_that_is_busy(
    broker_41: Broker, topic: str, site: ArchiveSite, number: signal.Signals
) -> None:
    """What is asked for again and again, for two minutes, is not what anybody waits for any more."""
    archived(broker_41, topic, site, records_of(20))
    s3 = site.bucket.s3
    with FaultyS3(s3.endpoint) as proxy:
        given = GivenS3(endpoint=proxy.endpoint, access_key=s3.access_key, secret_key=s3.secret_key)
        behind = replace(site, bucket=replace(site.bucket, s3=given))
        with (
            proxy.failing(Fault.SLOW_DOWN, "PUT", naming=f"{topic}.back/plan/"),
            begun(behind, broker_41, topic) as run,
        ):
            until(lambda: proxy.requests.get("PUT", 0) > 8, START_S)
            below = descendants(run.pid)
            os.kill(run.pid, number)
            assert_ended(run, below)
