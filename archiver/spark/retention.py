"""`retention`: plans a sweep, with Spark listing and asking a partition in each task; shows the plan, or carries it out."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from archiver.archive.catalog import find_topic
from archiver.archive.handle import Archive, open_patient_archive
from archiver.archive.policies import note_swept_by, read_policies
from archiver.archive.store_clock import epoch_ms
from archiver.archive.sweeps import SweepReport, SweptTopic, append_report
from archiver.archive.swept import OffsetRanges
from archiver.archive.topics import TopicFact
from archiver.config.model import ArchiverConfig
from archiver.errors import ArchiverError, NotWholeError, StoreTemporaryError, UsageError
from archiver.groups.folds import Folds
from archiver.kafka.group_positions import OFFSETS_TOPIC
from archiver.kafka.settings import KafkaSettings
from archiver.process.json_values import MOST_TEXT
from archiver.process.progress import make_reporter
from archiver.process.text import spell_count
from archiver.restore.request import is_wanted
from archiver.spark.background_start import spark_in_background
from archiver.upkeep.retention.covering_folds import CoveringFolds
from archiver.upkeep.retention.kept_plans import keep_plan, read_plan
from archiver.upkeep.retention.partition_plan import PartitionTerms
from archiver.upkeep.retention.plan import LARGE_SHARE, SweepPlan, TopicSweep, line_of
from archiver.upkeep.retention.survey import PartitionSweep, SurveyTask
from archiver.upkeep.retention.sweep import Swept, sweep_topic
from archiver.upkeep.retention.sweep_survey import SurveyedTopics, SweepSurvey, asking_cluster
from archiver.upkeep.retention.topic_terms import TopicTerms

log = logging.getLogger(__name__)

_MOST_PROBLEMS: Final = 100  # of a report


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What a user asks for. `agreed`: all that is planned may go; `digest`: nothing but what the plan of this name has."""

    is_dry_run: bool = False
    agreed: bool = False
    digest: str = ""
    now_ms: int | None = None  # from when ages are counted; None: now
    topics: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The plan, and what was done. `digest` names the plan, where it was only shown."""

    plan: SweepPlan
    digest: str = ""
    swept: Sequence[Swept] = ()
    waiting: Sequence[TopicSweep] = ()  # of which so much would go that somebody has to agree
    not_planned: int = 0  # objects that may go, and were not in the plan that was agreed on
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        errors = any(partition.error for topic in self.plan.topics for partition in topic.partitions)
        return not errors and not any(one.refused or one.stopped for one in self.swept)


def run_retention(
    config: ArchiverConfig, request: SweepRequest, notice: Callable[[str], None] = lambda _: None
) -> SweepResult:
    """Plan a sweep; carry it out unless this is a dry run."""
    started_s = time.monotonic()
    archive = open_patient_archive(config.storage)
    now_ms = epoch_ms(archive.store.now())
    agreed_on = read_plan(archive, request.digest, now_ms) if request.digest else None
    wanted = None if request.topics is None else partial(is_wanted, topics_regex=request.topics)
    settings = KafkaSettings.parse(config.kafka, config.place_of_kafka)
    with spark_in_background("retention", notice) as start_spark, asking_cluster(settings) as ask:
        survey = SweepSurvey(archive, config, ask)
        notice("asking the cluster what its topics keep")
        seen = survey.survey(wanted)
        plan = _plan(start_spark, config, request, seen, notice)
        plan, covering = _covered(archive, config, plan)
        if request.is_dry_run:
            digest = keep_plan(archive, plan.made_ms, plan.lines())
            return SweepResult(plan=plan, digest=digest, seconds=_since(started_s))
        survey.note(seen.news)
        chosen, left = _only_agreed(plan, agreed_on)
        waiting = [one for one in chosen if one.needs_agreement and not request.agreed and agreed_on is None]
        going = [_without_going(one) if one in waiting else one for one in chosen]
        swept = [
            _sweep(
                archive,
                survey,
                seen.facts[one.topic],
                one,
                is_by_policy=goes_by_policy(request, planned, one),
                covering=covering,
            )
            for planned, one in zip(plan.topics, going, strict=True)
            if one.is_work
        ]
        result = SweepResult(plan=plan, swept=swept, waiting=waiting, not_planned=left, seconds=_since(started_s))
        append_report(archive, report_of(result))
        return result


def _since(started_s: float) -> float:
    return round(time.monotonic() - started_s, 3)


def report_of(result: SweepResult) -> SweepReport:
    """Sum up a run for those who look later."""
    swept = {one.topic: one for one in result.swept}
    problems = [line for one in result.swept for line in one.refused]
    return SweepReport(
        begun_ms=result.plan.made_ms,
        topics={one.topic: _sum_up(one, swept.get(one.topic, Swept(one.topic))) for one in result.plan.topics},
        kept={one.topic: one.why[:MOST_TEXT] for one in result.plan.kept},
        refused=len(problems),
        problems=[line[:MOST_TEXT] for line in problems[:_MOST_PROBLEMS]],
    )


def _sum_up(topic: TopicSweep, swept: Swept) -> SweptTopic:
    return SweptTopic(
        objects=len(swept.deleted),
        records=sum(one.told.records for one in swept.deleted),
        bytes=sum(one.item.size for one in swept.deleted),
        deleted_because={str(why): count for why, count in Counter(one.why for one in swept.deleted).items()},
        kept_because={str(why): count for why, count in topic.kept_because().items()},
        stopped=swept.stopped[:MOST_TEXT],
    )


def _only_agreed(plan: SweepPlan, lines: frozenset[str] | None) -> tuple[list[TopicSweep], int]:
    """Leave out what is not in the plan that was agreed on. Returns also how many objects that are."""
    if lines is None:
        return list(plan.topics), 0

    def agreed(partition: PartitionSweep) -> PartitionSweep:
        kept = tuple(one for one in partition.going if line_of(one) in lines)
        return replace(partition, going=kept)

    chosen = [replace(one, partitions=[agreed(partition) for partition in one.partitions]) for one in plan.topics]
    return chosen, plan.objects - sum(len(one.going) for topic in chosen for one in topic.partitions)


def _without_going(topic: TopicSweep) -> TopicSweep:
    return replace(topic, partitions=[replace(one, going=()) for one in topic.partitions])


def _plan(
    start_spark: Callable[[], Any],
    config: ArchiverConfig,
    request: SweepRequest,
    seen: SurveyedTopics,
    notice: Callable[[str], None],
) -> SweepPlan:
    from archiver.spark.retention_tasks import survey_on_spark  # noqa: PLC0415 - an extra that a backup does not need

    now_ms = seen.store_now_ms if request.now_ms is None else request.now_ms
    if now_ms > seen.store_now_ms and not request.is_dry_run:
        raise UsageError("--now: is in the future, which goes only with --dry-run")
    tasks = [task for terms in seen.terms for task in _tasks(config, terms, seen, now_ms)]
    report_progress = make_reporter(f"looking at {spell_count(len(tasks), 'partition')}", notice)
    found = survey_on_spark(start_spark(), tasks, report_progress) if tasks else []
    of_topic: dict[str, list[PartitionSweep]] = {}
    for one in sorted(found, key=lambda one: one.partition):
        of_topic.setdefault(one.topic, []).append(one)
    topics = [TopicSweep(terms=terms, partitions=of_topic.get(terms.topic, ())) for terms in seen.terms]
    return SweepPlan(made_ms=seen.store_now_ms, now_ms=now_ms, topics=topics, kept=seen.kept)


def _covered(archive: Archive, config: ArchiverConfig, plan: SweepPlan) -> tuple[SweepPlan, CoveringFolds | None]:
    """Leave to go of the offsets topic what folds stand for. Returns these too, if anything may go."""
    topics = list(plan.topics)
    place = next((at for at, one in enumerate(topics) if one.topic == OFFSETS_TOPIC and any(one.going)), None)
    if place is None:
        return plan, None
    topic, covering = topics[place], None
    try:
        archived = find_topic(archive, OFFSETS_TOPIC, use=config.storage.index)
        known_ms = plan.now_ms - max(topic.terms.limits.ms or 0, config.retention.floor_ms)
        covering = CoveringFolds(archive=archive, topic=archived, known_ms=known_ms)
        folds = Folds.of(archive, log.warning)
        partitions = [covering.choose(one, folds) for one in topic.partitions]
    except StoreTemporaryError:
        raise
    except ArchiverError as error:  # of this topic: the others go on
        partitions = [replace(one, going=(), error=one.error or str(error)) for one in topic.partitions]
    topics[place] = replace(topic, partitions=partitions)
    return replace(plan, topics=topics), covering


def _tasks(config: ArchiverConfig, terms: TopicTerms, seen: SurveyedTopics, now_ms: int) -> Iterator[SurveyTask]:
    """A task for each partition whose leader told where its log begins."""
    fact = seen.facts[terms.topic]
    swept: dict[int, dict[int, OffsetRanges]] = {}
    for place, ranges in seen.swept[terms.topic].items():
        swept.setdefault(place.partition, {})[place.life] = ranges
    for number, log_start in sorted(terms.log_starts.items()):
        yield SurveyTask(
            storage=config.storage,
            topic=terms.topic,
            partition=number,
            lineage=tuple(fact.lineage(fact.life_of_partition(terms.topic_id, number).life, number)),
            terms=PartitionTerms(
                limits=terms.limits,
                now_ms=now_ms,
                store_now_ms=seen.store_now_ms,
                min_age_ms=config.retention.min_object_age_ms,
                # Compaction never moves it: there its own limit and folds decide.
                log_start=None if terms.topic == OFFSETS_TOPIC else log_start,
                floor_ms=config.retention.floor_ms,
                holds=terms.holds,
            ),
            swept_by=terms.swept_by,
            swept=swept.get(number, {}),
        )


def goes_by_policy(request: SweepRequest, planned: TopicSweep, going: TopicSweep) -> bool:
    """Tell whether a topic is swept by what it keeps now: then what that takes is foreseen, and later sweeps ask nobody.

    Not so in the time of grace; nor if ages are counted from another time, or a plan that was agreed on has only a part.
    """
    if planned.terms.is_in_grace or request.now_ms is not None:
        return False
    count = len(list(going.going))
    return count > 0 and count >= (1 - LARGE_SHARE) * len(list(planned.going))


def _sweep(
    archive: Archive,
    survey: SweepSurvey,
    fact: TopicFact,
    topic: TopicSweep,
    *,
    is_by_policy: bool,
    covering: CoveringFolds | None,
) -> Swept:
    """Delete what goes of a topic. That it is swept by its policy, is noted first."""
    try:
        noted = read_policies(archive, topic.topic, topic.terms.topic_id) if is_by_policy else ()
        if noted:
            note_swept_by(archive, noted[-1])
    except NotWholeError as error:
        return Swept(topic.topic, stopped=str(error))

    def still_holds(one: TopicSweep) -> str:
        return survey.change_of(one.terms, fact)

    if covering is None or topic.topic != OFFSETS_TOPIC:
        return sweep_topic(archive, topic, still_holds)
    return sweep_topic(archive, topic, still_holds, covering.ensure)
