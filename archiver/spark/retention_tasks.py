"""The tasks of `retention` as a Spark job: partitions that are listed, and whose objects are asked."""

from collections.abc import Callable, Sequence

from pyspark import SparkContext

from archiver.spark.tasks import run_on_spark
from archiver.upkeep.retention.survey import PartitionSweep, SurveyTask, survey_partition


def survey_on_spark(
    spark: SparkContext, tasks: Sequence[SurveyTask], report_progress: Callable[[int, int], None] | None = None
) -> list[PartitionSweep]:
    """Survey all partitions; `report_progress` gets how many shares of them are done, and of how many."""
    return run_on_spark(spark, tasks, survey_partition, lambda _: 1, report_progress)
