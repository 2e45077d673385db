"""A local Spark gives nothing to other users of the machine, and takes nothing from the folder that it is started in."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import REPOSITORY
from tests.support.strangers import NOBODY, listening, what_a_stranger_gets

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}

SESSION = """
import json, os, sys
from archiver.spark.session.spark_session import open_session

def same(batches):
    yield from batches

with open_session("test") as start_spark:
    spark = start_spark()
    context = spark.sparkContext
    assert len(spark.range(10).mapInArrow(same, "id LONG").collect()) == 10
    assert context.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
    disk = context._jsc.sc().env().blockManager().diskBlockManager()
    files = [context._temp_dir, *(folder.getPath() for folder in disk.localDirs())]
    workers = spark.range(2, numPartitions=2).mapInArrow(same, "id LONG").rdd.mapPartitions(lambda _: [os.getppid()])
    jvm = context._gateway.proc.pid
    print(json.dumps({"jvm": jvm, "files": files, "temporary": context._jvm.java.lang.System.getProperty("java.io.tmpdir"),
                      "daemons": sorted(set(workers.collect()))}), flush=True)
    sys.stdin.readline()
"""


class Session:
    """One that has worked, as a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", said: str, folder: Path) -> None:
        self.process = process
        self.folder = folder
        told = json.loads(said)
        self.files: list[str] = told["files"]
        self.temporary = Path(told["temporary"])
        self.pids = [process.pid, told["jvm"], *told["daemons"]]
        self.command_line = Path(f"/proc/{told['jvm']}/cmdline").read_text()
        self.addresses, self.sockets = listening(self.pids)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """In somebody's folder, with what Java, Spark and their libraries may look for."""
    outer = tmp_path_factory.mktemp("somebodys")
    here = outer / "work"
    for folder in (here / "conf", here / "metastore_db", here / "spark-warehouse", outer / "bin", outer / "jars"):
        folder.mkdir(parents=True)
    told = "spark.hadoop.of.a.stranger=yes\nspark.driver.extraJavaOptions=-Dof.a.stranger=yes\n"
    for name in (
        "spark-defaults.conf",
        "conf/spark-defaults.conf",
        "log4j2.properties",
        "derby.properties",
        "pyspark-shell",
    ):
        (here / name).write_text(told)
    for name in ("hive-site.xml", "core-site.xml", "log4j2.xml"):
        (here / name).write_text("<broken")
    for name in (".hotspotrc", ".hotspot_compiler"):
        (here / name).write_text("-XX:+Unknown")
    for name in ("numpy", "pyspark", "py4j", "pyarrow"):
        (here / f"{name}.py").write_text("raise RuntimeError('of a stranger')")
    (outer / "bin" / "spark-submit").write_text(f"#!/bin/sh\ntouch {outer}/ran\nexit 1\n")
    (outer / "bin" / "spark-submit").chmod(0o755)
    unset = {"SPARK_HOME", "SPARK_LOCAL_DIRS", "TMPDIR"}
    environment = {name: text for name, text in os.environ.items() if name not in unset}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SESSION],
        cwd=here,
        env=environment | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        try:
            said = process.stdout.readline()
            assert said, f"it did not start; a stranger's ran: {(outer / 'ran').exists()}"
            yield Session(process, said, outer)
        finally:
            process.kill()


def test_nothing_of_the_current_folder_is_used(session: Session) -> None:
    assert not (session.folder / "ran").exists()
    assert "of.a.stranger" not in session.command_line
    assert not list((session.folder / "work" / "metastore_db").iterdir())


def test_it_listens_on_the_loopback_address_alone(session: Session) -> None:
    """Spark's own port, that of its blocks, and py4j's: all of the JVM."""
    assert {address for address, _ in session.addresses} <= LOOPBACK
    assert len(session.addresses) == 3
    assert len(session.sockets) >= 2  # of the workers' daemons, and of what counts for tasks
    assert all(Path(path).parent == session.temporary for path in session.sockets)


def test_no_secret_is_among_its_arguments(session: Session) -> None:
    """Anybody may read those."""
    assert "spark.authenticate=true" in session.command_line
    assert not re.search(r"secret|password", session.command_line)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_nothing(session: Session) -> None:
    ports = [port for _, port in session.addresses]
    files = [*session.files, *session.sockets, str(session.temporary)]
    assert what_a_stranger_gets(ports, session.sockets, files, uid=NOBODY) == []


def test_all_of_its_files_are_in_one_folder_that_is_ours(session: Session) -> None:
    assert all(Path(file).is_relative_to(session.temporary) for file in session.files)
    assert session.temporary.name.startswith("archiver-spark-")
    found = [session.temporary, *session.temporary.rglob("*")]
    assert [one for one in found if one.is_dir() and one.stat().st_mode & 0o77] == []


def test_its_files_go_with_it_however_it_ends(session: Session) -> None:
    """The last test of the module: the driver is killed."""
    session.process.kill()
    deadline_s = time.monotonic() + 30
    while session.temporary.exists():
        assert time.monotonic() < deadline_s, list(session.temporary.rglob("*"))
        time.sleep(0.05)
