"""A Spark session of the tests, and the credentials of a bucket."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from archiver.spark.session.spark_session import SQL_SETTINGS, TALKING_LOGGERS
from tests.support.brokers import S3, Bucket
from tests.support.bucket_archive import BucketArchive
from tests.support.foreign_reader import s3_client
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


def sql_session(spark: SparkSession) -> SparkSession:
    """A session of its own, as a process has it that asks by SQL."""
    session = spark.newSession()
    for name, text in SQL_SETTINGS.items():
        session.conf.set(name, text)
    return session


@contextmanager
def lent_archive(s3: S3, spark: SparkSession, spool: Path) -> Iterator[BucketArchive]:
    """An archive in a new bucket, whose credentials Spark's workers have."""
    bucket = Bucket(s3, f"spark-{uuid.uuid4().hex[:12]}")
    s3_client(bucket).create_bucket(Bucket=bucket.name)
    with pytest.MonkeyPatch.context() as patch:
        for logger in TALKING_LOGGERS:
            patch.setattr(PySparkLogger.getLogger(logger), "disabled", True)
        lend_bucket(bucket, spark.sparkContext, patch)
        yield BucketArchive(bucket, spool)
