"""How plain tasks run on Spark: dealt out, the largest first, each giving back a report."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from archiver.errors import TemporaryError

Task = TypeVar("Task")
Report = TypeVar("Report")

_SLICES_PER_CORE = 16


def run_on_spark(
    spark: SparkContext, tasks: Sequence[Task], run: Callable[[Task], Report], weigh: Callable[[Task], int]
) -> list[Report]:
    """Run the tasks, the largest first, so that no long one starts last. Reports come in no order."""
    if not tasks:
        return []

    def run_all(part: Iterable[Sequence[Task]]) -> Iterable[Report]:
        return [run(task) for tasks in part for task in tasks]

    ordered = sorted(tasks, key=weigh, reverse=True)
    # Many small tasks share a Spark task, of which each has a price; dealt out in turn, so that large ones do not.
    slices = min(len(ordered), _SLICES_PER_CORE * spark.defaultParallelism)
    dealt = [ordered[start::slices] for start in range(slices)]
    try:
        reports: list[Report] = spark.parallelize(dealt, slices).mapPartitions(run_all).collect()
    except Py4JJavaError as error:
        reason = str(error.java_exception).strip().partition("\n")[0]
        raise TemporaryError(f"Spark lost its workers: {reason}; run the same command again, it goes on") from error
    return reports
