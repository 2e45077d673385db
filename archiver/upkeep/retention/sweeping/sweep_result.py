"""The result of a sweep: for the printers of `retention`, its exit code, and the report that stays in the archive."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from archiver.archive.notes.sweeps import SweepReport, SweptControl, SweptTopic
from archiver.errors import NotWholeError
from archiver.process.values.json_values import MOST_TEXT
from archiver.upkeep.retention.planning.sweep_plan import SweepPlan, TopicSweep
from archiver.upkeep.retention.planning.topic_terms import KeptTopic
from archiver.upkeep.retention.sweeping.debris import DebrisKind, DebrisPlan
from archiver.upkeep.retention.sweeping.debris_sweep import DebrisSwept
from archiver.upkeep.retention.sweeping.sweep import TopicSweepResult

_MOST_PROBLEMS: Final = 100  # of a report


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The plan, and the results. `digest` names the plan if it was only shown."""

    plan: SweepPlan
    digest: str = ""
    swept: Sequence[TopicSweepResult] = ()
    is_dry_run: bool = False
    waiting: Sequence[TopicSweep] = ()  # topics that need an agreement
    not_planned: int = 0  # objects that may go, and were not in the plan that was agreed on
    seconds: float = 0.0
    newly_noted: int = 0  # topics whose retention no sweep had noted before, or that has changed since
    not_noted: Sequence[str] = ()  # topics whose policies could not be noted, and why
    not_taken_back: Sequence[str] = ()  # why existing objects that count as swept are unknown
    debris: DebrisPlan = field(default_factory=DebrisPlan)
    debris_swept: DebrisSwept = field(default_factory=DebrisSwept)
    holds: Sequence[str] = ()  # in force, as they were read last; not read by a sweep of some topics

    @property
    def is_complete(self) -> bool:
        return report_of(self).is_complete

    @property
    def exit_code(self) -> int:
        damaged = any(part.problems for topic in self.plan.topics for part in topic.partitions)
        if damaged or any(one.stop for one in self.plan.kept):
            return NotWholeError.exit_code
        return 0 if self.is_complete else 1

    def done_by_topic(self) -> Mapping[str, TopicSweepResult]:
        """Return the result for each topic of the plan, by its name there; some have none."""
        swept = {one.topic: one for one in self.swept}
        return {one.name: swept.get(one.name, TopicSweepResult(one.name)) for one in self.plan.topics}


def report_of(result: SweepResult) -> SweepReport:
    """Sum up a run for the report in the archive."""
    done = result.done_by_topic()
    refused = [line for one in result.swept for line in one.refused]
    failed = list(failures_of(result))
    problems = [*failed, *refused, *result.debris_swept.refused]
    return SweepReport(
        begun_ms=result.plan.made_ms,
        topics={one.name: _sum_up(one, done[one.name]) for one in result.plan.topics}
        | {one.topic: _stopped(one) for one in result.plan.kept if one.stop},
        kept={one.topic: one.why[:MOST_TEXT] for one in result.plan.kept if not one.stop},
        without_kafka=result.plan.without_kafka,
        refused=len(refused) + result.debris_swept.refusals,
        problems=[line[:MOST_TEXT] for line in problems[:_MOST_PROBLEMS]],
        took_ms=round(1000 * result.seconds),
        waiting=[one.name for one in result.waiting],
        failed=len(failed),
        control={str(kind): _sum_up_control(kind, result) for kind in DebrisKind},
    )


def _sum_up_control(kind: DebrisKind, result: SweepResult) -> SweptControl:
    return SweptControl(
        groups=result.debris_swept.groups[kind],
        objects=result.debris_swept.objects[kind],
        bytes=result.debris_swept.bytes[kind],
        kept_because={str(why): count for why, count in result.debris.staying.get(kind, {}).items()},
    )


def failures_of(result: SweepResult) -> Iterator[str]:
    """Yield why topics, partitions and control objects could not be read, listed or asked, and which objects that cover others are damaged."""
    yield from (f"{one.topic}: {one.why}" for one in result.plan.kept if one.is_damage)
    for topic in result.plan.topics:
        yield from (f"{one.topic}-{one.partition}: {one.error}" for one in topic.partitions if one.error)
        yield from (f"{one.topic}-{one.partition}: {line}" for one in topic.partitions for line in one.problems)
    yield from result.not_noted
    yield from result.not_taken_back
    yield from result.debris.errors


def _sum_up(topic: TopicSweep, swept: TopicSweepResult) -> SweptTopic:
    return SweptTopic(
        objects=len(swept.deleted),
        records=swept.records,
        bytes=swept.bytes,
        deleted_because={str(why): count for why, count in Counter(one.why for one in swept.deleted).items()},
        kept_because={str(why): count for why, count in topic.kept_because().items()},
        stopped=swept.stopped[:MOST_TEXT],
    )


def _stopped(topic: KeptTopic) -> SweptTopic:
    nothing: dict[str, int] = {}
    return SweptTopic(
        objects=0, records=0, bytes=0, deleted_because=nothing, kept_because=nothing, stopped=topic.stop[:MOST_TEXT]
    )
