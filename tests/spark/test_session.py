"""What goes into the JVM of a job's Spark, and what comes out of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from archiver.process.machine.jvm_classes import options_to_read, options_to_write
from archiver.spark.session import class_cache
from tests.support.brokers import REPOSITORY

# It goes on when the first line is seen.
SAYING = """
import sys, time
from archiver.spark.session.spark_session import open_context

with open_context("test") as start_spark:
    said = start_spark()._jvm.java.lang.System.err
    said.println("while it is wanted")
    sys.stdin.readline()
said.println("while it stops")
time.sleep(1)
"""


@pytest.mark.spark
def test_what_the_jvm_says_is_told_until_it_stops() -> None:
    """Threads that it interrupts tell their stacks, and nothing is wrong."""
    with subprocess.Popen(
        [sys.executable, "-c", SAYING], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert process.stderr.readline() == "while it is wanted\n"
        assert process.communicate("\n", timeout=60)[1] == ""
        assert process.returncode == 0


APART = """
import os
from archiver.spark.session.spark_session import open_context

with open_context("test") as start_spark:
    spark = start_spark()
    java = spark._jvm.java.lang.System
    print(java.getenv("AWS_SECRET_ACCESS_KEY"), java.getenv("KAFKA_PASSWORD"), java.getenv("HADOOP_CREDSTORE_PASSWORD"), java.getenv("PATH") == os.environ["PATH"])
    print(spark.parallelize([0], 1).map(lambda _: os.environ["AWS_SECRET_ACCESS_KEY"] + os.environ["KAFKA_PASSWORD"]).first())
    conf = spark._jsc.sc().getConf().toDebugString()
    print("s3cret" in conf, "passw0rd" in conf)
"""


@pytest.mark.spark
def test_credentials_are_in_the_environment_of_workers_and_not_of_the_jvm() -> None:
    """The JVM evaluates SQL of users."""
    environment = {
        **os.environ,
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "KAFKA_PASSWORD": "-passw0rd",
        "HADOOP_CREDSTORE_PASSWORD": "-w0rd",
    }
    done = subprocess.run(
        [sys.executable, "-c", APART], env=environment, capture_output=True, text=True, timeout=110, check=True
    )
    assert done.stdout.splitlines() == ["None None None True", "s3cret-passw0rd", "False False"]


MAPPING = """
import sys
import time
from pathlib import Path
from archiver.spark.session import spark_session as session
from archiver.spark.session.class_cache import options_of_spark

with session.open_session("test") as start_spark:
    spark = start_spark()
    assert spark.range(3).count() == 3
    file = "".join(options_of_spark()[:1]).partition("=")[2] or "nothing"
    print(file in Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text())
"""


@pytest.mark.spark
@pytest.mark.long
def test_it_maps_the_classes_that_were_kept_and_starts_without_them(tmp_path: Path) -> None:
    """In an environment of its own that has our code and this PySpark."""
    code = tmp_path / "archiver"
    shutil.copytree(Path(class_cache.__file__).parents[2], code, ignore=shutil.ignore_patterns("*.jsa"))
    home = tmp_path / "home"

    def run(*arguments: str) -> str:
        command = ["env", f"PYTHONPATH={tmp_path}", f"HOME={home}", sys.executable, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=True)
        return done.stdout + done.stderr

    assert run("-c", MAPPING) == "False\n"
    told = run("-m", "archiver.spark.warm")
    (kept,) = code.rglob("*.jsa")
    assert told == f"keeping the classes of Spark in {kept}; this takes about half a minute\n"
    assert kept.name.startswith(f"spark-{pyspark.__version__}-")
    assert run("-c", MAPPING) == "True\n"
    with options_to_write(kept) as options:  # as of another Java
        Path(options[0].partition("=")[2]).write_bytes(bytes(kept.stat().st_size))
    assert run("-c", MAPPING) == "False\n"
    assert not home.exists()


def test_classes_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "classes.jsa"
    assert options_to_read(file) == []

    def write(text: bytes) -> None:
        with options_to_write(file) as options:
            Path(options[0].partition("=")[2]).write_bytes(text)
            assert not file.exists()
            if text == b"half":
                raise KeyError

    with options_to_write(file):  # by a Java that writes none
        pass
    with pytest.raises(KeyError):
        write(b"half")
    assert list(file.parent.iterdir()) == []
    write(b"whole")
    assert list(file.parent.iterdir()) == [file]
    assert str(file) in options_to_read(file)[0]


def test_classes_that_are_not_as_they_were_written_are_left_alone(tmp_path: Path) -> None:
    """A JVM dies of a file that was cut."""
    file = tmp_path / "classes.jsa"
    with options_to_write(file) as options:
        Path(options[0].partition("=")[2]).write_bytes(b"classes" * 1000)
    whole = file.read_bytes()
    broken = [whole[:length] for length in (0, 3, 4, 4096, len(whole) - 1)]
    broken += [bytes(len(whole)), whole[:9] + b"C" + whole[10:], whole[:-1] + b"x"]
    for content in broken:
        file.write_bytes(content)
        assert options_to_read(file) == []
    file.write_bytes(whole)
    assert options_to_read(file)


NAMELESS = """
import os, pathlib
from archiver.spark.session.spark_session import open_session

with open_session("test") as start_spark:
    spark = start_spark()
    java = spark._jvm.java.lang.System
    home = pathlib.Path(java.getProperty("user.home"))
    print(os.getuid(), spark.sparkContext.sparkUser(), java.getProperty("user.name"), home.name.startswith("archiver-spark-"))
    print(spark.sql("SELECT 1 + 1").collect()[0][0], spark.sparkContext.parallelize([1, 2], 2).map(str).collect())
"""


@pytest.mark.spark
def test_a_user_without_a_name_has_spark(tmp_path: Path) -> None:
    """As in a container that is given a number: the machine knows neither a name nor a home of that user."""
    become = ["unshare", "--user", "--map-user=12345"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*become, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine lets us be nobody else")
    environment = {name: text for name, text in os.environ.items() if name != "HOME"}
    done = subprocess.run(
        [*become, sys.executable, "-c", NAMELESS],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stdout.splitlines() == ["12345 12345 12345 True", "2 ['1', '2']"], done.stderr
    assert list(tmp_path.iterdir()) == []  # Java takes ? for the home, in the current folder
