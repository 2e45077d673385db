"""The tasks of `verify` as Spark jobs: objects that are read and checked, partitions that are compared."""

from collections.abc import Callable, Mapping, Sequence

from pyspark import SparkContext

from archiver.archive.segments import Segment
from archiver.config.model import StorageConfig
from archiver.spark.tasks import run_on_spark
from archiver.upkeep.check import check_tasks, run_check
from archiver.upkeep.compare import CompareTask, run_compare
from archiver.upkeep.covered_ranges import Covered
from archiver.upkeep.findings import Findings
from archiver.upkeep.object_check import Level


def check_on_spark(
    spark: SparkContext,
    storage: StorageConfig,
    segments: Sequence[Segment],
    level: Level,
    report_progress: Callable[[int, int], None] | None = None,
    covered: Mapping[str, Sequence[Covered]] | None = None,
) -> list[Findings]:
    """Read all the objects, each once; `report_progress` gets how many shares of them are read, and of how many."""
    tasks = list(check_tasks(storage, segments, level, covered))
    return run_on_spark(spark, tasks, run_check, lambda task: len(task.segments), report_progress)


def compare_on_spark(
    spark: SparkContext, tasks: Sequence[CompareTask], report_progress: Callable[[int, int], None] | None = None
) -> list[Findings]:
    """Compare all partitions, the largest first; `report_progress` as in check_on_spark."""
    return run_on_spark(spark, tasks, run_compare, lambda task: task.log.end - task.log.start, report_progress)
