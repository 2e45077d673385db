"""Python workers of Spark: where they import from, and what is said when there are none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from archiver.archive.notes.topics import record_cluster
from archiver.spark.session.failure import cause_line
from tests.support.brokers import REPOSITORY, Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.records import generate
from tests.support.round_trip import archive_site, environment_of

ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent"
    " failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): "
)
# As Spark 4.1 writes them.
DAEMON = f"""{ABORTED}org.apache.spark.SparkException:\x20
Error from python worker:
  Traceback (most recent call last):
    File "/opt/archiver/codec/batch.py", line 8, in <module>
      import numpy as np
    File "/home/me/numpy.py", line 1, in <module>
  RuntimeError: this numpy is none
PYTHONPATH was:
  /opt/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from archiver.spark.daemon's stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)

Driver stacktrace:"""
TASK = f"""{ABORTED}org.apache.spark.api.python.PythonException:\x20
Traceback (most recent call last):
  File "/opt/one.py", line 1, in one
    raise KeyError("a")
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/two.py", line 2, in two
    return f(iterator)
           ^^^^^^^^^^^
ValueError: many
lines of it

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)"""


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        (DAEMON, "RuntimeError: this numpy is none"),
        (TASK, "ValueError: many"),
        (TASK.replace("PythonException: \n", "PythonException: "), "ValueError: many"),
        ("org.apache.spark.SparkException: \nSpark was shut down", "Spark was shut down"),
        ("", "it does not say why"),
    ],
)
def test_the_cause_is_found_in_what_spark_says(report: str, cause: str) -> None:
    assert cause_line(report) == cause


@pytest.mark.s3
@pytest.mark.spark
def test_workers_do_not_look_into_the_current_folder(bucket: Bucket, tmp_path: Path) -> None:
    """Modules of the same names lie there, and may be the ones of a user's own project."""
    for name in ("numpy.py", "archiver/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise RuntimeError('not what was meant')")
    archive_orders(bucket, tmp_path)
    done = verify_records(bucket, tmp_path, str(REPOSITORY))
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of them read" in done.stdout


@pytest.mark.s3
@pytest.mark.spark
def test_workers_that_do_not_start_are_told_with_their_cause(bucket: Bucket, tmp_path: Path) -> None:
    """A package of the path that only they import."""
    archive_orders(bucket, tmp_path)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'spark.daemon' in ' '.join(sys.orig_argv): sys.modules['numpy'] = None\n"
    )
    done = verify_records(bucket, tmp_path, f"{tmp_path}{os.pathsep}{REPOSITORY}")
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if "executors" in line)
    assert "cannot load what tasks need: " in line
    assert "numpy" in line


def archive_orders(bucket: Bucket, folder: Path) -> None:
    with archive_site(bucket, folder):
        archive = BucketArchive(bucket, folder)
        record_cluster(archive.handle, "c")
        archive.write_topic_fact("orders")
        archive.put("orders", 0, generate(1, 20), each=10)


def verify_records(bucket: Bucket, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "archiver", "verify", "--level", "records", "--quiet", "--url", bucket.url],
        cwd=folder,
        env=environment_of(bucket) | {"AWS_ENDPOINT_URL": bucket.s3.endpoint, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
