"""A Spark session of ours, or the one that spark-submit gave."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def open_session(name: str) -> Iterator[SparkSession]:
    """Use the active session, or start one on all local cores and stop it in the end."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    spark = (
        SparkSession.builder.appName(name)
        .master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    # Workers must run the interpreter that this program runs in, not the first python3 of the path.
    spark.sparkContext.pythonExec = sys.executable
    try:
        yield spark
    finally:
        spark.stop()
