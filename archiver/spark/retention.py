"""Runs `retention` with Spark: tasks of a Spark job survey the partitions of a sweep."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from archiver.config.model import ArchiverConfig
from archiver.spark.session.background_start import spark_in_background
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask, survey_partition
from archiver.upkeep.retention.sweeping.run_sweep import SurveyPartitions, SweepRequest, run_sweep
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult


def run_retention(
    config: ArchiverConfig, request: SweepRequest, notice: Callable[[str], None] = lambda _: None
) -> SweepResult:
    """Plan a sweep; carry it out unless this is a dry run."""
    return run_sweep(config, request, _surveying(notice), notice)


@contextmanager
def _surveying(notice: Callable[[str], None]) -> Iterator[SurveyPartitions]:
    """Start Spark in the background. The yielded function waits for it."""
    with spark_in_background("retention", notice) as start_spark:

        def survey(
            tasks: Sequence[SurveyTask], report_progress: Callable[[int, int], None]
        ) -> Sequence[PartitionSweep]:
            from archiver.spark.session.tasks import run_on_spark  # noqa: PLC0415 - an extra that a backup does not need

            return run_on_spark(start_spark(), tasks, survey_partition, lambda _: 1, report_progress)

        yield survey
