"""Spark sessions for tests. `spark_avro` reads Avro with Java's own reader: the proof that others can open our files."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from archiver.errors import ArchiverError
from archiver.spark.session.class_cache import options_of_spark
from tests.support.parts import SPARK_AVRO, fetch_part

UNCLOSED = "ignore:unclosed <socket:ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the socket of every collect() to the garbage collector: no error here, but everywhere else."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Some are collected long afterwards: no error in any later test of this process, either."""
    if UNCLOSED not in item.config.getini("filterwarnings"):
        item.config.addinivalue_line("filterwarnings", UNCLOSED)


@pytest.fixture(scope="session")
def spark_avro() -> Iterator[SparkSession]:
    """A session with spark-avro: `spark_avro.read.format("avro").load(directory)` on a bare local directory."""
    try:
        (jar,) = fetch_part(SPARK_AVRO).iterdir()
    except ArchiverError as error:
        pytest.skip(str(error))
    session = (
        SparkSession.builder.master("local[1]")
        .appName("kafka-archiver tests")
        .config("spark.jars", str(jar))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "ERROR")
        # A session of tests is too short for what the JVM's second compiler does.
        .config(
            "spark.driver.extraJavaOptions",
            " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options_of_spark()]),
        )
        .getOrCreate()
    )
    yield session
    session.stop()
