"""The brokers and the S3 that everything else is tested on."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from archiver.demo.sandbox import fetch_kafka
from archiver.errors import ArchiverError, TemporaryError
from tests.support.brokers import CACHE, KAFKA_41, REPOSITORY, StartBroker
from tests.support.kafka_broker import KafkaBroker
from tests.support.service import eventually

pytestmark = pytest.mark.kafka


def wait_for_death(pid: int, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.02)


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
while what != "command" and not descendants(pid) and time.monotonic() < end_s:  # its watcher; a forked command has none
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


def test_a_broker_that_dies_at_start_tells_why(tmp_path: Path) -> None:
    bad = KafkaBroker(fetch_kafka(KAFKA_41, CACHE), tmp_path, properties={"num.io.threads": "0"})
    with pytest.raises(ArchiverError, match=r"num\.io\.threads"):
        bad.start()
    assert not bad.running


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
