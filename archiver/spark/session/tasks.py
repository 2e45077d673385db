"""Runs plain tasks on Spark, the largest first. Each returns a report."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from archiver.errors import TemporaryError
from archiver.process.output.text import spell_count
from archiver.process.running.workers import workers
from archiver.spark.session.failure import RUN_AGAIN, failure_of
from archiver.spark.session.spark_submit import is_local

Task = TypeVar("Task")
Report = TypeVar("Report")

_SLICES_PER_CORE = 16
_CORES_OF_A_CLUSTER = 64  # at least: most of its executors may come when the tasks are dealt out already
_TOLD_EVERY_S = 2.0


def run_on_spark(
    spark: SparkContext,
    tasks: Sequence[Task],
    run: Callable[[Task], Report],
    weigh: Callable[[Task], int],
    report_progress: Callable[[int, int], None] | None = None,
    is_first: Callable[[Task], bool] = lambda _: False,
    most_at_once: int | None = None,
) -> list[Report]:
    """Run tasks, those of `is_first` before all others, and the largest first, so that no long one starts last. Reports come in no order.

    `report_progress` gets the number of finished shares and their total, now and then and at the end; only one job may
    run then.
    `most_at_once`: no more run at once, even if the cluster has more executors meanwhile.
    """
    if not tasks:
        return []

    def run_all(part: Iterable[Sequence[Task]]) -> Iterable[Report]:
        return [run(task) for tasks in part for task in tasks]

    cores = spark.defaultParallelism if is_local(spark.master) else max(spark.defaultParallelism, _CORES_OF_A_CLUSTER)
    if most_at_once is None or is_local(spark.master):
        shares = share_out(tasks, weigh, is_first, _SLICES_PER_CORE * cores)
    else:
        shares = share_out(tasks, lambda task: (is_first(task), weigh(task)), lambda _: False, most_at_once)
    slices = len(shares)
    job = spark.parallelize(shares, slices).mapPartitions(run_all)
    try:
        reports: list[Report] = (
            job.collect() if report_progress is None else _watched(spark, job.collect, slices, report_progress)
        )
    except Py4JJavaError as error:
        raise failure_of(error) from error
    if len(reports) != len(tasks):  # when the JVM dies while it hands reports over, PySpark takes that for their end
        raise TemporaryError(
            f"Spark told of {spell_count(len(reports), 'task')}, not of {len(tasks)}: it died; {RUN_AGAIN}"
        )
    return reports


def share_out(
    tasks: Sequence[Task], weigh: Callable[[Task], Any], is_first: Callable[[Task], bool], most: int
) -> list[list[Task]]:
    """Deal tasks out to shares, in order of their start: many small tasks share one Spark task, which takes time to start.

    They are dealt out in turn, so that large tasks do not share one, and none waits for a task that may come later.
    """
    shares: list[list[Task]] = []
    for some in ([one for one in tasks if is_first(one)], [one for one in tasks if not is_first(one)]):
        ordered = sorted(some, key=weigh, reverse=True)
        count = min(len(ordered), most)
        shares += [ordered[start::count] for start in range(count)]
    return shares


def _watched(
    spark: SparkContext, collect: Callable[[], list[Report]], shares: int, report_progress: Callable[[int, int], None]
) -> list[Report]:
    tracker = spark.statusTracker()
    done = 0  # the tracker knows only running stages
    with workers(1, "collect") as pool:
        collecting = pool.submit(collect)
        while wait([collecting], _TOLD_EVERY_S).not_done:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = max(done, sum(stage.numCompletedTasks for stage in stages if stage is not None))
            report_progress(done, shares)
        reports = collecting.result()
    report_progress(shares, shares)
    return reports
