"""Builds the report of each restored topic from its plan, its tasks and its configs, with remaining manual steps."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from archiver.errors import NotWholeError
from archiver.restore.plan.request import RETENTION_KEYS, RestoreRequest, Retention
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import alter_command
from archiver.restore.plan.task import TaskReport
from archiver.restore.report.restore_report import Nothing, TopicReport

_UNLIMITED = "-1"
_A_LONG = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def report_filled(
    topics: Iterable[TopicPlan],
    reports: Iterable[TaskReport],
    read_back: Iterable[TaskReport],
    request: RestoreRequest,
) -> list[TopicReport]:
    """Report filled topics, with the results of their tasks, and the gaps and refusals of their plans. None is finished yet."""
    tasks, read = _by_target(reports), _by_target(read_back)
    nothing = Nothing.CHOSEN if request.is_partial else Nothing.ARCHIVED
    return [
        TopicReport(
            source=topic.source,
            life=topic.life,
            target=topic.target,
            partitions=tuple(
                sorted(
                    [*_with_known_gaps(topic, tasks.get(topic.target, ())), *_refused(topic)],
                    key=lambda one: one.partition,
                )
            ),
            strange_retention=strange_retention(topic),
            appends=topic.appends,
            nothing=None if topic.has_objects else nothing,
            repartition=topic.repartition,
            target_partitions=tuple(read.get(topic.target, ())),
        )
        for topic in topics
    ]


def _by_target(reports: Iterable[TaskReport]) -> Mapping[str, Sequence[TaskReport]]:
    found: dict[str, list[TaskReport]] = {}
    for report in sorted(reports, key=lambda one: one.partition):
        found.setdefault(report.target_topic, []).append(report)
    return found


def retention_command(topic: TopicPlan, retention: Retention, cluster: Sequence[str]) -> str:
    """Return the command that sets the archived retention; empty: nothing is left to set, or no command can."""
    if topic.appends or retention is Retention.ARCHIVED:
        return ""
    archived, given = topic.archived_retention, topic.given_retention
    if strange_retention(topic):
        return ""
    if retention is Retention.UNLIMITED:  # that holds already
        archived = {name: value for name, value in archived.items() if value != _UNLIMITED}
    taken_back = [
        name for name in RETENTION_KEYS if name not in topic.archived_retention and name not in given
    ]  # back to the cluster's own
    if not archived and not taken_back:
        return ""
    return alter_command(cluster, topic.target, archived, taken_back)


def strange_retention(topic: TopicPlan) -> tuple[str, ...]:
    """Return the archived retention configs whose values no topic can have: no backup wrote these facts."""
    archived = topic.archived_retention
    return tuple(f"{name}={archived[name]!r}" for name in sorted(archived) if not _A_LONG.fullmatch(archived[name]))


def _with_known_gaps(topic: TopicPlan, reports: Iterable[TaskReport]) -> list[TaskReport]:
    """Add to each report the known missing parts of the plan that were to be skipped."""
    missing = {partition.partition: partition.missing for partition in topic.partitions}
    return [replace(report, missing=(*missing[report.partition], *report.missing)) for report in reports]


def _advice_for(topic: TopicPlan) -> str:
    """Return advice on a refused partition, which the same command with --repartition leaves out from now on.

    Another id alone does not suffice: into the same target, the records of the other partitions would come twice.
    """
    way = f"--rename {topic.source}=OTHER" if topic.appends else f"--purge-target, which makes {topic.target} again"
    return (
        "with --repartition the same command leaves that partition out from now on, so give it another --id then, and"
        f" {way}"
    )


def _refused(topic: TopicPlan) -> list[TaskReport]:
    advice = "" if topic.may_be_mended else f"; {_advice_for(topic)}"
    return [
        TaskReport(
            target_topic=topic.target,
            partition=partition.partition,
            error=f"{partition.problem}{advice}",
            exit_code=NotWholeError.exit_code,
        )
        for partition in topic.partitions
        if partition.problem
    ]
