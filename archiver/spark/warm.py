"""Halves the start time of Spark's JVM from now on: `python -m archiver.spark.warm`, once for an installation.

It takes half a minute, and 140 MB beside the code, or in the user's cache.
"""

import sys
from collections.abc import Iterable
from typing import Any

from pyspark import SparkContext

from archiver.process.machine.jvm_classes import options_to_write
from archiver.spark.session.class_cache import place_for_classes
from archiver.spark.session.spark_session import await_stops, open_session


def main() -> None:
    """Use Spark once as our commands use it, and let its JVM write the list of loaded classes."""
    place = place_for_classes()
    if place is None:
        raise SystemExit(
            "archiver: no place for the classes of Spark, beside the code or in the user's cache, that is writable, and for"
            " this user alone"
        )
    file = place.path
    print(f"keeping the classes of Spark in {file}; this takes about half a minute", file=sys.stderr, flush=True)  # noqa: T201
    with options_to_write(file, place.mode) as options:
        with open_session("archiver warm", options) as start_spark:
            spark = start_spark()
            context = spark.sparkContext
            spark.range(10).selectExpr("id", "cast(id AS STRING) AS text").createOrReplaceTempView("numbers")
            spark.sql("SELECT text, count(*) FROM numbers WHERE id < 5 GROUP BY text ORDER BY text").toArrow()
            spark.table("numbers").mapInArrow(_same, "id LONG, text STRING").collect()
            context.parallelize(range(10), 2).map(str).collect()
        _end_jvm(context)
    if not file.is_file():
        raise SystemExit(f"archiver: this Java writes no classes to {file}; Spark starts as before")


def _same(batches: Iterable[Any]) -> Iterable[Any]:
    yield from batches


def _end_jvm(context: SparkContext) -> None:
    """End the JVM, which then writes its file: it ends when its stdin is closed."""
    gateway: Any = context._gateway  # noqa: SLF001
    await_stops()
    gateway.shutdown()
    gateway.proc.communicate()


if __name__ == "__main__":
    main()
