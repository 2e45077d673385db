"""The brokers and the S3 that everything else is tested on."""

import http.client
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from archiver.demo.sandbox import EmbeddedS3, fetch_kafka
from archiver.errors import ArchiverError, TemporaryError
from archiver.process.machine.jvm_classes import options_to_write
from archiver.process.running.children import start_child
from tests.support.brokers import CACHE, KAFKA_41, REPOSITORY, Broker, StartBroker
from tests.support.kafka_broker import KafkaBroker, free_ports, keep_classes
from tests.support.processes import descendants, tree_of
from tests.support.service import eventually

pytestmark = pytest.mark.kafka


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics)


def wait_for_death(pid: int, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.02)


def test_each_version_serves(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    assert topic in topics(broker.bootstrap)


def test_ten_megabytes_go_through(broker: Broker, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    refusals: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 20 * 1024 * 1024})
    producer.produce(topic, os.urandom(10 * 1024 * 1024), on_delivery=lambda error, _: refusals.append(error))
    assert producer.flush(30) == 0
    assert refusals == [None]


def test_a_broker_maps_classes_that_were_kept_and_starts_without_them(tmp_path: Path) -> None:
    jars = tmp_path / "kafka"
    jars.symlink_to(fetch_kafka(KAFKA_41, CACHE))
    classes = tmp_path / "kafka.jsa"
    keep_classes(jars)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka", "kafka.jsa"]
    with KafkaBroker(jars, tmp_path / "mapped") as broker:
        assert str(classes) in Path(f"/proc/{broker.pid}/maps").read_text()
    with options_to_write(classes) as options:  # as of another Java
        Path(options[0].partition("=")[2]).write_bytes(bytes(classes.stat().st_size))
    with KafkaBroker(jars, tmp_path / "other") as broker:
        assert str(classes) not in Path(f"/proc/{broker.pid}/maps").read_text()


def test_a_free_port_is_given_to_one_process_and_a_server_may_listen_there() -> None:
    (port,) = free_ports(1)
    other = "import socket; socket.socket().bind(('127.0.0.1', int(__import__('sys').argv[1])))"
    looked = subprocess.run([sys.executable, "-c", other, str(port)], capture_output=True, check=False)
    assert b"Address already in use" in looked.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        pass


def test_topics_outlive_restart_and_kill_on_the_same_port(new_broker: StartBroker, topic: str) -> None:
    own = new_broker()
    bootstrap, first_pid = own.bootstrap, own.pid
    create_topic(bootstrap, topic)
    own.restart()
    assert own.bootstrap == bootstrap
    assert own.pid != first_pid
    assert topic in topics(bootstrap)
    own.kill()
    assert not own.running
    own.start()
    assert topic in topics(bootstrap)


def test_stop_leaves_no_process(new_broker: StartBroker) -> None:
    own = new_broker()
    pid = own.pid
    assert sandbox_processes(pid)
    own.stop()
    own.stop()
    wait_for_death(pid)
    # The watcher goes home when it has read that it may.
    eventually(lambda: not sandbox_processes(pid), "a process is left")


def sandbox_processes(group: int) -> list[str]:
    """The JVM and its watcher share the process group that the broker began."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,stat=,args=", "-g", str(group)], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if " Z" not in line]


# What tests and demo start, and what each of it is a child of: all of them are gone when that is killed.
PARENT = """
import sys, time
from pathlib import Path
from archiver.demo.sandbox import fetch_kafka
from tests.support.kafka_broker import KafkaBroker
from tests.support.brokers import CACHE, KAFKA_41, Bucket
from tests.support.java_oracle import JavaOracle
from tests.support.minio import minio_or_skip
from tests.support.processes import descendants, tree_of
from tests.support.round_trip import ArchiveSite

what, folder = sys.argv[1], Path(sys.argv[2])
jars = fetch_kafka(KAFKA_41, CACHE)
if what == "broker":
    child = KafkaBroker(jars, folder)
    child.start()
    pid = child.pid
elif what == "minio":
    child = minio_or_skip()
    pid = child.pid
elif what == "oracle":
    child = JavaOracle(jars, CACHE)
    pid = child.pid
else:
    store = minio_or_skip()
    site = ArchiveSite(Bucket(store, "absent"), folder)
    site.write_config("127.0.0.1:9", "orders")
    child = site.command("backup")
    pid = child.pid
end_s = time.monotonic() + 60
while not descendants(pid) and time.monotonic() < end_s:  # its watcher
    time.sleep(0.01)
print(*tree_of(pid), flush=True)
sys.stdin.read()
"""


@pytest.mark.s3
@pytest.mark.parametrize(
    "what", ["broker", "command", *(pytest.param(one, marks=pytest.mark.long) for one in ("minio", "oracle"))]
)
def test_a_killed_parent_takes_along_what_it_has_started(what: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, what, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    for pid in pids:
        wait_for_death(pid)


def test_a_child_that_is_waited_for_leaves_no_watcher() -> None:
    child = start_child(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    eventually(lambda: bool(descendants(child.pid)))
    pids = tree_of(child.pid)
    assert child.communicate("what it reads", timeout=60)[0] == "what it reads"
    for pid in pids:
        wait_for_death(pid)


def test_a_broker_that_dies_at_start_tells_why(tmp_path: Path) -> None:
    bad = KafkaBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path, properties={"num.io.threads": "0"})
    with pytest.raises(ArchiverError, match=r"num\.io\.threads"):
        bad.start()
    assert not bad.running


def test_a_setting_that_only_the_server_refuses_is_told_too(tmp_path: Path) -> None:
    good = KafkaBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path)
    with good:
        pass
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=99\n")
    with pytest.raises(ArchiverError, match=r"died at start with 1(.|\n)*node"):
        good.start()


def test_java_missing_or_old_is_an_error_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArchiverError, match="install Java 17"):
        fetch_kafka(KAFKA_41, tmp_path / "cache")
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(ArchiverError, match=r"Java 8: install Java 17"):
        fetch_kafka(KAFKA_41, tmp_path / "cache")


def test_an_unreachable_registry_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on the discard port. Ivy reads its settings below the home directory."""
    settings = tmp_path / ".ivy2" / "ivysettings.xml"
    settings.parent.mkdir()
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers>'
        '<ibiblio name="none" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(
        TemporaryError, match=r"could not fetch kafka-4\.1\.1 from the Maven registry(.|\n)*ivysettings"
    ):
        fetch_kafka(KAFKA_41, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_embedded_s3_has_its_bucket() -> None:
    with EmbeddedS3("demo") as s3:
        connection = http.client.HTTPConnection(s3.endpoint.removeprefix("http://"), timeout=10)
        connection.request("HEAD", "/demo")
        assert connection.getresponse().status == 200
        connection.close()
    with pytest.raises(OSError):  # noqa: PT011  # refused or reset
        connection.request("HEAD", "/demo")
