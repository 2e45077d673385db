"""Runs the plans and tasks of restore, upkeep and groups on Spark. The only user of PySpark.

`register(spark)` registers the data source `kafka-archive` (docs/spark.md).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let `spark.read.format("kafka-archive")` read archives, for as long as this session lives."""
    from archiver.spark.table.source import source_for  # noqa: PLC0415 - importing the package alone needs no Spark

    spark.dataSource.register(source_for(spark.sparkContext.defaultParallelism))
