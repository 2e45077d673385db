"""What a failed job of Spark's is taken for, by what Spark says of it."""

import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PythonException

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout, SegmentKey
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, add_swept
from archiver.archive.reading.gone_objects import gone_error
from archiver.errors import ArchiverError, SweptError, TemporaryError, UsageError
from archiver.spark.session.failure import failure_of, jvm_errors_as_ours, raised_in
from archiver.spark.session.tasks import run_on_spark
from tests.support.memory_store import MemoryStore

_ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent"
    " failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
)
_DAEMON = (
    _ABORTED + "org.apache.spark.SparkException: \nError from python worker:\n  {}\nPYTHONPATH was:\n  /spark.zip\n"
)


def told(text: str) -> ArchiverError:
    """All that is asked of the error is its Java exception, as text."""
    error: Any = SimpleNamespace(java_exception=text)
    return failure_of(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_DAEMON.format("archiver: host has no Python 3.11"), "on the executors: host has no Python 3.11"),
        (_DAEMON.format("/usr/bin/python3: No module named archiver"), "the executors' Python has no archiver"),
        (_DAEMON.format("(ModuleNotFoundError: No module named 'archiver')"), "the executors' Python has no archiver"),
        (_ABORTED + 'java.io.IOException: Cannot run program "./env/bin/python": error=2', "no ./env/bin/python"),
        (_ABORTED + "[PYTHON_VERSION_MISMATCH] Python in worker has 3.12", "Python in worker has 3.12"),
    ],
)
def test_an_environment_that_does_not_fit_is_for_the_user_to_mend(text: str, expected: str) -> None:
    error = told(text)
    assert isinstance(error, UsageError)
    assert expected in str(error)
    assert "\n" not in str(error)


def test_lost_executors_are_temporary() -> None:
    error = told(_ABORTED + "ExecutorLostFailure (executor 1 exited)\nDriver stacktrace:\n\tat ...")
    assert isinstance(error, TemporaryError)
    assert "executor 1 exited" in str(error)
    assert "stacktrace" not in str(error)


def test_an_object_that_a_sweep_took_ends_a_query_as_any_damage_does() -> None:
    """A worker raises it, and Spark hands on its traceback; `cat` ends with the same exit code."""
    store = MemoryStore()
    key = SegmentKey(topic="t", partition=0, base=0)
    add_swept(Archive(store, Layout()), SweptPlace("t", 0, 0), OffsetRanges.of([(0, 10)]))
    raised = gone_error(store, Layout().segment_key(key), 10)
    trace = "".join(traceback.format_exception(raised))
    found = raised_in(PythonException(f"Traceback (most recent call last):\n  File x\n{trace}"))
    assert (type(found), str(found)) == (SweptError, str(raised))
    assert raised.exit_code == 3


@pytest.mark.parametrize("error", [Py4JError("calling o1"), Py4JNetworkError("is empty"), ConnectionRefusedError(111)])
def test_a_jvm_that_is_gone_is_temporary(error: Exception) -> None:
    with pytest.raises(TemporaryError, match=r"JVM is gone: .*run the same command again"), jvm_errors_as_ours():
        raise error


def test_reports_that_a_dying_jvm_took_with_it_are_missed() -> None:
    """PySpark reads them up to the end of a socket, and takes an early end for the end."""
    job = SimpleNamespace(mapPartitions=lambda _: SimpleNamespace(collect=lambda: ["one"]))
    spark: Any = SimpleNamespace(master="local[2]", defaultParallelism=2, parallelize=lambda *_: job)
    with pytest.raises(TemporaryError, match="Spark told of 1 task, not of 2"):
        run_on_spark(spark, ["a", "b"], str, len)
    assert run_on_spark(spark, ["a"], str, len) == ["one"]
