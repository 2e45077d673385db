"""A run of `retention`: plans a sweep, and carries it out unless the plan is only shown.

Partitions are listed and asked by a callable: the command gives one that has Spark do it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from archiver.archive.format.handle import Archive, open_patient_archive
from archiver.archive.format.store_clock import agreed_now_ms
from archiver.archive.notes.holds import read_holds
from archiver.archive.notes.sweeps import append_report
from archiver.archive.notes.topics import TopicFact
from archiver.archive.reading.catalog import find_topic, is_wanted
from archiver.config.model import ArchiverConfig
from archiver.errors import ArchiverError, NotWholeError, StoreError, StoreTemporaryError, UsageError
from archiver.groups.log.folds import Folds
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.progress import make_reporter
from archiver.process.output.text import spell_count
from archiver.upkeep.retention.planning.agreed_limits import note_agreed
from archiver.upkeep.retention.planning.covering_folds import CoveringFolds
from archiver.upkeep.retention.planning.kept_plans import keep_plan, read_plan
from archiver.upkeep.retention.planning.partition_verdict import PartitionTerms
from archiver.upkeep.retention.planning.survey import PartitionSweep, SurveyTask
from archiver.upkeep.retention.planning.sweep_plan import LARGE_SHARE, SweepPlan, TopicSweep, line_of
from archiver.upkeep.retention.planning.sweep_survey import AskCluster, SurveyedTopics, SweepSurvey, asking_cluster
from archiver.upkeep.retention.planning.topic_terms import KeptTopic, TopicTerms
from archiver.upkeep.retention.sweeping.debris import DebrisPlan, DebrisTerms, debris_terms, survey_debris
from archiver.upkeep.retention.sweeping.debris_sweep import DebrisSwept, sweep_debris
from archiver.upkeep.retention.sweeping.sweep import TopicWork, sweep_topics
from archiver.upkeep.retention.sweeping.sweep_result import SweepResult, report_of
from archiver.upkeep.retention.sweeping.swept_corrections import LEFT_ALONE_MS, take_back_all

log = logging.getLogger(__name__)

# Surveys partitions, and reports how many shares of the work are done, and of how many.
SurveyPartitions = Callable[[Sequence[SurveyTask], Callable[[int, int], None]], Sequence[PartitionSweep]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """A user's request. `agreed`: the whole plan may be deleted; `digest`: only the objects of the plan with this digest.

    `without_kafka`: use the fixed limits of the configuration, and ask no cluster.
    """

    is_dry_run: bool = False
    agreed: bool = False
    digest: str = ""
    now_ms: int | None = None  # from when ages are counted; None: now
    topics: str | None = None
    without_kafka: bool = False


def run_sweep(
    config: ArchiverConfig,
    request: SweepRequest,
    surveying: AbstractContextManager[SurveyPartitions],
    notice: Callable[[str], None] = lambda _: None,
) -> SweepResult:
    """Plan a sweep; carry it out unless this is a dry run. `surveying` is entered when a survey is likely to follow."""
    started_s = time.monotonic()
    asking = _asking(config, request)
    archive = open_patient_archive(config.storage)
    now_ms = agreed_now_ms(archive.store)
    agreed_on = read_plan(archive, request.digest, now_ms) if request.digest else None
    wanted = None if request.topics is None else partial(is_wanted, topics_regex=request.topics)
    with surveying as survey_partitions, asking as ask:
        survey = SweepSurvey(archive, config, ask)
        notice("asking the cluster what its topics keep" if not request.without_kafka else "reading what there is")
        seen = survey.survey(wanted)
        plan = _plan(survey_partitions, config, request, seen, notice)
        plan, covering = _covered(archive, config, plan)
        notice("looking for control objects that nobody needs any longer")

        holds: dict[str, bool] = {}  # whether each is in force

        def ask_debris() -> DebrisTerms:
            found = read_holds(archive)
            holds.update({name: hold.is_in_force for name, hold in found.items()})
            return debris_terms(archive, config, found, request.now_ms, survey.pins)

        leaves_debris = wanted is not None or any(one.stop for one in seen.kept)
        debris = DebrisPlan() if leaves_debris else survey_debris(archive, ask_debris())
        if request.is_dry_run:
            return _shown(archive, plan, debris, started_s)
        chosen, chosen_debris, not_planned = _only_agreed(plan, debris, agreed_on, request.digest)
        not_noted = survey.note(seen.news, seen.longer)
        left_alone_ms = min(LEFT_ALONE_MS, config.retention.min_object_age_ms)
        not_taken_back = take_back_all(archive, seen.swept, left_alone_ms)
        waiting = [one for one in chosen if one.needs_agreement and not request.agreed and agreed_on is None]
        going = [_without_going(one) if one in waiting else one for one in chosen]
        work = list(_works(archive, survey, request, seen.facts, zip(plan.topics, going, strict=True), covering))
        progress = make_reporter("deleting what goes", notice, "partition")
        swept = sweep_topics(archive, work, progress, left_alone_ms=left_alone_ms)
        debris_swept = DebrisSwept() if leaves_debris else _sweep_debris(archive, chosen_debris, ask_debris)
        result = SweepResult(
            plan=plan,
            swept=swept,
            waiting=waiting,
            not_planned=not_planned,
            newly_noted=len({one.topic for one in seen.news}) - len(not_noted),
            not_noted=not_noted,
            not_taken_back=not_taken_back,
            debris=debris,
            debris_swept=debris_swept,
            seconds=_since(started_s),
            holds=[name for name, is_in_force in holds.items() if is_in_force],
        )
        append_report(archive, report_of(result))
        return result


def _shown(archive: Archive, plan: SweepPlan, debris: DebrisPlan, started_s: float) -> SweepResult:
    """Keep a plan in the archive, where `--yes DIGEST` finds it."""
    digest = keep_plan(archive, plan.made_ms, [*plan.lines(), *debris.lines()])
    waiting = [one for one in plan.topics if one.needs_agreement]
    return SweepResult(
        plan=plan, digest=digest, is_dry_run=True, waiting=waiting, seconds=_since(started_s), debris=debris
    )


def _asking(config: ArchiverConfig, request: SweepRequest) -> AbstractContextManager[AskCluster]:
    """Connect to the cluster, unless the run asks none. Raises UsageError if no other limits are configured."""
    if not request.without_kafka:
        return asking_cluster(KafkaSettings.of(config))
    if not config.retention.says_fixed:
        raise UsageError(
            "--without-kafka: the configuration does not say what topics keep; set retention.fixed.ms or retention.fixed.bytes"
        )
    return nullcontext(lambda _: None)


def _since(started_s: float) -> float:
    return round(time.monotonic() - started_s, 3)


def _sweep_debris(archive: Archive, chosen: DebrisPlan, ask: Callable[[], DebrisTerms]) -> DebrisSwept:
    """Delete debris, looked at once more: the topics before it may have taken hours. Reports what prevents that."""
    try:
        terms = ask()
        again = survey_debris(archive, terms).only(frozenset(chosen.lines()))
        swept = sweep_debris(archive, again.going, lambda: ask().snapshots_stay, terms.store_now_ms)
    except (NotWholeError, StoreError) as error:
        return DebrisSwept(refusals=1, refused=[str(error)])
    swept.refusals += len(again.errors)
    swept.refused += again.errors
    return swept


def _only_agreed(
    plan: SweepPlan, debris: DebrisPlan, lines: frozenset[str] | None, digest: str
) -> tuple[list[TopicSweep], DebrisPlan, int]:
    """Keep only what the agreed plan has. Also returns how many objects are left out.

    `lines`: of the agreed plan; None: no plan. Raises UsageError if nothing of it may be deleted.
    """
    if lines is None:
        return list(plan.topics), debris, 0

    def agreed(partition: PartitionSweep) -> PartitionSweep:
        kept = tuple(one for one in partition.going if line_of(one) in lines)
        shadowed = tuple(one for one in partition.shadowed if line_of(one.going) in lines)
        return replace(partition, going=kept, shadowed=shadowed)

    chosen = [replace(one, partitions=[agreed(partition) for partition in one.partitions]) for one in plan.topics]
    chosen_debris = debris.only(lines)
    objects = sum(partition.objects for topic in chosen for partition in topic.partitions)
    if not objects and not chosen_debris.going:
        raise UsageError(
            f"--yes {digest}: nothing of that plan may go by now: it was carried out, or this run has another"
            " configuration, --topics or --without-kafka than the dry run; `archiver retention --dry-run` prints a new one"
        )
    more = sum(one.objects for one in debris.going) - sum(one.objects for one in chosen_debris.going)
    return chosen, chosen_debris, plan.objects - objects + more


def _without_going(topic: TopicSweep) -> TopicSweep:
    return replace(topic, partitions=[replace(one, going=(), shadowed=()) for one in topic.partitions])


def _plan(
    survey_partitions: SurveyPartitions,
    config: ArchiverConfig,
    request: SweepRequest,
    seen: SurveyedTopics,
    notice: Callable[[str], None],
) -> SweepPlan:
    now_ms = seen.store_now_ms if request.now_ms is None else request.now_ms
    if now_ms > seen.store_now_ms and not request.is_dry_run:
        raise UsageError("--now: is in the future, which goes only with --dry-run")
    tasks = [task for terms in seen.terms for task in _tasks(config, terms, seen, now_ms)]
    report_progress = make_reporter(f"looking at {spell_count(len(tasks), 'partition')}", notice)
    found = survey_partitions(tasks, report_progress) if tasks else []
    by_lives: dict[tuple[str, int], list[PartitionSweep]] = {}
    for one in sorted(found, key=lambda one: one.partition):
        by_lives.setdefault((one.topic, one.root), []).append(one)
    topics = [TopicSweep(terms=terms, partitions=by_lives.get((terms.topic, terms.root), ())) for terms in seen.terms]
    strange = {one.topic: one.stranger for one in found if one.stranger}
    stopped = [KeptTopic(topic=one.name, why=why, stop=why) for one in topics if (why := strange.get(one.topic))]
    return SweepPlan(
        made_ms=seen.store_now_ms,
        now_ms=now_ms,
        topics=[one for one in topics if one.topic not in strange],
        kept=sorted([*seen.kept, *stopped], key=lambda one: one.topic),
        without_kafka=request.without_kafka,
    )


def _covered(archive: Archive, config: ArchiverConfig, plan: SweepPlan) -> tuple[SweepPlan, CoveringFolds | None]:
    """Keep only deletes of the offsets topic that folds replace. Returns these folds too, if any delete is left."""
    topics = list(plan.topics)
    place = next((at for at, one in enumerate(topics) if one.topic == OFFSETS_TOPIC and any(one.going)), None)
    if place is None:
        return plan, None
    topic, covering = topics[place], None
    try:
        archived = find_topic(archive, OFFSETS_TOPIC, use=config.storage.index)
        known_ms = plan.now_ms - max(topic.terms.limits.ms or 0, topic.terms.limits.floor_ms)
        covering = CoveringFolds(archive=archive, topic=archived, known_ms=known_ms)
        folds = Folds.of(archive, log.warning)
        partitions = [covering.choose(one, folds) for one in topic.partitions]
    except StoreTemporaryError:
        raise
    except ArchiverError as error:  # of this topic: the others continue
        partitions = [
            replace(one, going=(), unforeseen_bytes=0, error=one.error or str(error)) for one in topic.partitions
        ]
    topics[place] = replace(topic, partitions=partitions)
    return replace(plan, topics=topics), covering


def _tasks(config: ArchiverConfig, terms: TopicTerms, seen: SurveyedTopics, now_ms: int) -> Iterator[SurveyTask]:
    """Yield a task for each partition whose log start the leader returned; without a cluster, for each archived one."""
    fact = seen.facts[terms.topic]
    for number, log_start in sorted(terms.log_starts.items()):
        yield SurveyTask(
            storage=config.storage,
            topic=terms.topic,
            partition=number,
            root=terms.root,
            lineage=tuple(fact.lineage(terms.newest, number)),
            terms=PartitionTerms(
                limits=terms.limits,
                now_ms=now_ms,
                store_now_ms=seen.store_now_ms,
                min_age_ms=config.retention.min_object_age_ms,
                # Compaction never moves it: there its own limit and folds decide.
                log_start=None if terms.topic == OFFSETS_TOPIC else log_start,
                holds=terms.holds,
                pinned=terms.pinned.get(number, frozenset()),
                topic_id=terms.topic_id,
            ),
            swept_by=terms.swept_by,
        )


def goes_by_policy(request: SweepRequest, planned: TopicSweep, going: TopicSweep) -> bool:
    """Return whether a topic is swept by its terms: then their deletes are foreseen, and later sweeps need no agreement.

    Not so if ages are counted from another time, or a plan that was agreed on has only a part.
    """
    if request.now_ms is not None:
        return False
    objects = len(list(going.going))
    return objects > 0 and objects >= (1 - LARGE_SHARE) * len(list(planned.going))


def _works(
    archive: Archive,
    survey: SweepSurvey,
    request: SweepRequest,
    facts: Mapping[str, TopicFact],
    topics: Iterable[tuple[TopicSweep, TopicSweep]],
    covering: CoveringFolds | None,
) -> Iterator[TopicWork]:
    """Yield the topics with deletes, and the checks before these. Notes agreements. `topics`: each as planned, and as agreed on."""
    for planned, topic in topics:
        if not topic.is_work:
            continue
        work = TopicWork(
            topic, lambda one: survey.change_of(one.terms, facts[one.topic]), lambda one: survey.look(one.terms)
        )
        is_agreed = (request.agreed or bool(request.digest)) and planned.unforeseen_share > 0
        if is_agreed and goes_by_policy(request, planned, topic):
            work = work._replace(refusal=note_agreed(archive, topic.terms))
        if covering is not None and topic.topic == OFFSETS_TOPIC:
            work = work._replace(ensure=covering.ensure)
        yield work
