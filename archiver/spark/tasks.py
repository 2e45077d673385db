"""How plain tasks run on Spark: dealt out, the largest first, each giving back a report."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from archiver.errors import TemporaryError
from archiver.workers import workers

Task = TypeVar("Task")
Report = TypeVar("Report")

_SLICES_PER_CORE = 16
_TOLD_EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a task that looks at things found; `error`: what kept it from looking at all of them."""

    looked_at: int = 0
    problems: tuple[str, ...] = ()
    error: str = ""
    exit_code: int = 0


def run_on_spark(
    spark: SparkContext,
    tasks: Sequence[Task],
    run: Callable[[Task], Report],
    weigh: Callable[[Task], int],
    tell: Callable[[int, int], None] | None = None,
) -> list[Report]:
    """Run the tasks, the largest first, so that no long one starts last. Reports come in no order.

    `tell` is told now and then how many shares of the work are done, and of how many; only one job may run then.
    """
    if not tasks:
        return []

    def run_all(part: Iterable[Sequence[Task]]) -> Iterable[Report]:
        return [run(task) for tasks in part for task in tasks]

    ordered = sorted(tasks, key=weigh, reverse=True)
    # Many small tasks share a Spark task, of which each has a price; dealt out in turn, so that large ones do not.
    slices = min(len(ordered), _SLICES_PER_CORE * spark.defaultParallelism)
    dealt = [ordered[start::slices] for start in range(slices)]
    job = spark.parallelize(dealt, slices).mapPartitions(run_all)
    try:
        reports: list[Report] = job.collect() if tell is None else _watched(spark, job.collect, slices, tell)
    except Py4JJavaError as error:
        reason = str(error.java_exception).strip().partition("\n")[0]
        raise TemporaryError(f"Spark lost its workers: {reason}; run the same command again, it goes on") from error
    return reports


def _watched(
    spark: SparkContext, collect: Callable[[], list[Report]], shares: int, tell: Callable[[int, int], None]
) -> list[Report]:
    tracker = spark.statusTracker()
    with workers(1, "collect") as pool:
        collecting = pool.submit(collect)
        while wait([collecting], _TOLD_EVERY_S).not_done:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tell(sum(stage.numCompletedTasks for stage in stages if stage is not None), shares)
        return collecting.result()
