"""Restore and verify as spark-submit runs them, with a packed environment, on executors whose Python has nothing of ours.

A submission takes half a minute: 400 MB are unpacked for the driver and for each executor.
"""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from archiver.process.machine.edition import edition
from tests.support.brokers import REPOSITORY, Broker
from tests.support.foreign_reader import keys_in
from tests.support.java_oracle import JavaOracle
from tests.support.kafka_topics import create_topic
from tests.support.raw_produce import produce_records
from tests.support.records import Rec, generate
from tests.support.round_trip import KEEP_ALL, ArchiveSite
from tests.support.submits import CLUSTER, Submits, bare_python, by_project, complaints, result_of

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.spark, pytest.mark.timeout(900)]

BATCH = 100
ONE_EXECUTOR = "local-cluster[1,2,1024]"
LOG_SETTINGS = REPOSITORY / "archiver" / "spark" / "log4j2.properties"  # as docs/clusters.md has it
# On a local-cluster executors inherit what the driver has; there is no role to fall back on either.
NO_CREDENTIALS = {
    f"spark.executorEnv.{name}": value
    for name, value in {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items()
}
# As docs/spark.md shows it. What a group of offsets adds up to needs every record, read on an executor.
READER = """\
from pyspark.sql import SparkSession
from archiver.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
records = spark.read.format("kafka-archive").option("config", "archive.yaml").option("topic", "{topic}").load()
rows = records.groupBy("partition").agg({{"offset": "sum", "*": "count"}}).orderBy("partition").collect()
print("FOUND", [tuple(row) for row in rows])
"""


def pack(target: Path, *arguments: str) -> Path:
    command = [sys.executable, "-m", "archiver.cli.main", "spark-env", "pack", "-o", str(target), "--format", "json"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, cwd=REPOSITORY, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["stored_bytes"] == target.stat().st_size
    assert told["kernels"] > 0
    assert told["edition"] == edition()
    return target


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("pack") / "env.tar.gz", "--without-sql")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = bare_python(tmp_path_factory.mktemp("python"))
    for name in ("archiver", "numpy", "aiokafka", "pyspark"):
        found = subprocess.run([python, "-c", f"import {name}"], cwd="/", env={}, capture_output=True, check=False)
        assert found.returncode == 1
    return python


@pytest.fixture
def submits(site: ArchiveSite, packed: Path, stranger: Path) -> Submits:
    return Submits(site, packed, stranger)


def archived(broker: Broker, topic: str, site: ArchiveSite, seed: int, partitions: int) -> dict[int, list[Rec]]:
    """Records of every kind in each partition, backed up; archive.yaml and target.yaml stand in the folder."""
    create_topic(broker.bootstrap, topic, partitions, KEEP_ALL)
    written = {number: generate(seed + number, 1_000) for number in range(partitions)}
    for number, records in written.items():
        produce_records(broker.bootstrap, topic, records, size=BATCH, partition=number)
    site.back_up(broker.bootstrap, topic, records=250)
    site.write_config(broker.bootstrap, topic)
    site.write_target(broker.bootstrap)
    return written


def test_restore_with_a_driver_that_has_the_packed_environment_alone(
    broker_41: Broker,
    topic: str,
    site: ArchiveSite,
    submits: Submits,
    java_oracle: JavaOracle,
    seed: int,
    pytestconfig: pytest.Config,
) -> None:
    written = archived(broker_41, topic, site, seed, partitions=4)
    submits.unpack()
    done = submits.run_by_pack(
        *("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back", "--format", "json"),
        confs={"spark.master": CLUSTER if pytestconfig.getoption("--long") else ONE_EXECUTOR},
    )
    (restored,) = result_of(done)["topics"]
    assert restored["records"] == 4_000
    assert java_oracle.consume(broker_41.bootstrap, f"{topic}.back").records == written
    assert complaints(done) == []
    assert submits.executors() in {1, 2}  # the second may have come too late


@pytest.mark.long
def test_verify_with_the_projects_driver(
    broker_41: Broker, topic: str, site: ArchiveSite, submits: Submits, seed: int
) -> None:
    archived(broker_41, topic, site, seed, partitions=1)
    done = submits.run_by_project("verify", "--level", "records", "--format", "json")
    found = result_of(done)
    assert (found["whole"], found["checked"], found["records"]) == (True, 4, 1_000)
    assert submits.executors() in {1, 2}


@pytest.mark.long
def test_a_local_master_needs_no_environment_and_stays_on_this_machine(
    broker_41: Broker, topic: str, site: ArchiveSite, submits: Submits, seed: int
) -> None:
    archived(broker_41, topic, site, seed, partitions=2)
    own = {"spark.master": "local[2]", "spark.archives": None, "spark.pyspark.python": None, "spark.log.level": "INFO"}
    arguments = ("verify", "--level", "records", "--format", "json", "--quiet")
    done = submits.run_by_project(*arguments, confs=own, SPARK_LOCAL_IP=None)
    assert result_of(done)["whole"]
    assert "Registering block manager 127.0.0.1:" in done.stderr
    assert submits.executors() == 0


@pytest.mark.long
def test_what_executors_lack_is_told_in_a_line_and_nothing_is_changed(
    broker_41: Broker, topic: str, site: ArchiveSite, submits: Submits, tmp_path: Path
) -> None:
    create_topic(broker_41.bootstrap, topic, 1, KEEP_ALL)
    produce_records(broker_41.bootstrap, topic, [Rec(0, 1, 0, b"k", b"v")])
    site.back_up(broker_41.bootstrap, topic)
    site.write_config(broker_41.bootstrap, topic)
    site.write_target(broker_41.bootstrap)
    other = tmp_path / "other-python"
    other.write_text("#!/bin/sh\necho cpython-27-vax\n")
    other.chmod(0o755)
    renamed = ("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back")
    python = "spark.pyspark.python"
    for confs, told in (
        ({"spark.archives": None}, "the executors have no ./env/bin/python, which spark.pyspark.python names"),
        ({"spark.archives": None, python: str(submits.python)}, "the executors' Python has no archiver"),
        ({"spark.executorEnv.ARCHIVER_PYTHON": str(other)}, f"{other} is cpython-27-vax"),
    ):
        done = submits.run_by_project(*renamed, confs=confs)
        assert done.returncode == 2, done.stdout + done.stderr
        (complaint,) = complaints(done)
        assert told in complaint
        assert "Traceback" not in done.stdout
    # The driver's sources differ from what was packed.
    shutil.copytree(REPOSITORY / "archiver", tmp_path / "newer" / "archiver")
    shutil.copytree(REPOSITORY / "schemas", tmp_path / "newer" / "schemas")
    with (tmp_path / "newer" / "archiver" / "errors.py").open("a") as changed:
        changed.write("# newer\n")
    done = submits.run(
        *renamed,
        confs={"spark.pyspark.driver.python": sys.executable},
        entry=tmp_path / "newer" / "archiver" / "submit.py",
        PYTHONPATH=str(tmp_path / "newer"),
    )
    (complaint,) = complaints(done)
    assert done.returncode == 2
    assert f"executors have archiver {edition()}, the driver " in complaint
    cluster = site.verify(broker_41.bootstrap, [f"{topic}.back"], against_kafka=True)
    assert not cluster.errors
    assert f"topics.include[0]: '{topic}.back' matches no topic of the cluster" in cluster.notes


def assert_unchanged(broker: Broker, topic: str, site: ArchiveSite) -> None:
    cluster = site.verify(broker.bootstrap, [f"{topic}.back"], against_kafka=True)
    assert [f"'{topic}.back' matches no topic of the cluster" in note for note in cluster.notes].count(True) == 1
    assert keys_in(site.bucket, "control/restores/") == []


def test_executors_that_reach_no_store_are_told_before_a_topic_is_created(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int
) -> None:
    """The driver has the credentials of the environment."""
    archived(broker_41, topic, site, seed, partitions=2)
    submits, confs = by_project(site)
    confs["spark.master"] = ONE_EXECUTOR
    renamed = ("restore", "--target", "target.yaml", "--rename", f"{topic}={topic}.back")
    host = socket.gethostname()

    done = submits.run_by_project(*renamed, confs=confs | NO_CREDENTIALS)
    complaint, way_on = complaints(done)
    assert done.returncode == 2, complaint
    assert "submit it again with --id" in way_on
    assert complaint.startswith(f"archiver: on executor {host}: s3://{site.bucket.name}/topics/{topic}/")
    assert "no credentials; set AWS_ACCESS_KEY_ID" in complaint
    assert "the driver can: give executors the same" in complaint
    assert_unchanged(broker_41, topic, site)


@pytest.mark.long
def test_the_result_comes_last_and_whole_also_to_a_slow_reader(
    broker_41: Broker, topic: str, site: ArchiveSite, seed: int
) -> None:
    """On one stream with what Spark says, as on a terminal, by the settings of docs/clusters.md."""
    archived(broker_41, topic, site, seed, partitions=2)
    submits, confs = by_project(site)
    sql = f"SELECT partition, offset, repeat('x', 60) AS filler FROM `{topic}` ORDER BY partition, offset"
    recipe = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}"}
    confs |= {"spark.master": "local[2]", **recipe}  # the driver's JVM is the same
    with submits.start_by_project("query", sql, confs=confs, stderr=subprocess.STDOUT) as running:
        told = read_slowly(running)
    assert running.returncode == 0, told[-3000:]
    rows = [f"{partition}          {offset:<6}  {'x' * 60}" for partition in range(2) for offset in range(1_000)]
    assert told.splitlines()[-2_000:] == rows


def read_slowly(running: subprocess.Popen[str]) -> str:
    """As somebody who pages through it: when the program has come to its end, more is unread than pipes hold."""
    assert running.stdout is not None
    pieces = []
    while piece := running.stdout.read(2_000):
        pieces.append(piece)
        time.sleep(0.1)
    return "".join(pieces)


@pytest.mark.long
def test_the_data_source(
    broker_41: Broker, topic: str, site: ArchiveSite, stranger: Path, tmp_path: Path, seed: int
) -> None:
    archived(broker_41, topic, site, seed, partitions=2)
    submits = Submits(site, pack(tmp_path / "full.tar.gz"), stranger)
    submits.unpack()
    script = site.folder / "read.py"
    script.write_text(READER.format(topic=topic))
    done = submits.run_by_pack(entry=script)
    assert f"FOUND [(0, {sum(range(1_000))}, 1000), (1, {sum(range(1_000))}, 1000)]" in done.stdout, done.stderr
    assert submits.executors() in {1, 2}
