"""A Spark session of the tests, and the credentials of a bucket."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark import SparkContext

from tests.support.brokers import Bucket
from tests.support.round_trip import environment_of

DAEMON = "spark.python.daemon.module"


@contextmanager
def own_daemon(context: SparkContext) -> Iterator[None]:
    """Spark's workers are started as commands of ours have them started: forked, with what they need imported already.

    In sessions of others each of them imports all of it: tests/spark/test_source.py tries these.
    """
    assert context._jvm is not None
    settings = context._jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set(DAEMON, "archiver.spark.daemon")
    try:
        yield
    finally:
        settings.remove(DAEMON)


def lend_bucket(bucket: Bucket, context: SparkContext, patch: pytest.MonkeyPatch) -> None:
    """Give this process and the workers of a session the bucket's credentials; the workers are of this Python."""
    credentials = {name: text for name, text in environment_of(bucket).items() if name.startswith("AWS_")}
    for name, text in credentials.items():
        patch.setenv(name, text)
    patch.setattr(context, "pythonExec", sys.executable)
    patch.setattr(context, "environment", {**context.environment, **credentials})
