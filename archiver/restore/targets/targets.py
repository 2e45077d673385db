"""Checks, creates and finishes all targets of a restore, with a few requests for all of them together. Used by the Spark job."""

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from archiver.archive.format.store_clock import machine_now_ms
from archiver.errors import KafkaError, NotWholeError, TopicGoneError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import INTERNAL_TOPICS, TopicDescription
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.rights import Operation, missing_rights
from archiver.process.running.failpoints import reach
from archiver.restore.plan.estimate import BatchLimits
from archiver.restore.plan.plan_check import CheckedPlans, PlanCheck, PlanIn
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.purge.archived_logs import ArchivedLogs
from archiver.restore.purge.purge import ArchiveReading, Purge, damage_problems, grown_problems
from archiver.restore.purge.purge_notes import purge_notes
from archiver.restore.targets.config_agreement import Agreement
from archiver.restore.targets.replicas import TargetReplicas, asked_problems, in_sync_problems, kept_problems
from archiver.restore.targets.target_configs import Finish, TargetConfigs
from archiver.restore.targets.target_creation import TargetCreation
from archiver.restore.targets.target_shape import internal_problem
from archiver.restore.targets.target_survey import Survey, Surveyor, ids_of, refuse

log = logging.getLogger(__name__)

_ROUNDS = 5
_TO_FILL = (Operation.READ, Operation.WRITE)
_TO_PURGE = (*_TO_FILL, Operation.DELETE)
_PURGED_AT_ONCE = 8
_FIRST_TOPICS = 16  # enough to keep the cores busy while the others are created


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that exists and is ready to be filled, and its plan."""

    plan: TopicPlan
    topic_id: str
    limits: BatchLimits
    first_offsets: Mapping[int, int] = field(default_factory=dict)  # after others' records


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReview:
    """Why targets cannot be filled as planned; doubts are possible reasons, until records are chosen."""

    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()  # losses of purged topics
    notes: tuple[str, ...] = ()  # refused configs that are not needed
    limits: Mapping[str, BatchLimits] = field(default_factory=dict)  # of targets that keep their own configs
    purge: Purge = field(default_factory=Purge)


class Targets:
    """The topics that a restore fills, known by their plans after the check."""

    def __init__(
        self,
        kafka: KafkaSettings,
        notes: RestoreNotes,
        request: RestoreRequest,
        archived: ArchivedLogs,
        *,
        existing: Collection[str] | None = None,
        clock_ms: Callable[[], int] = machine_now_ms,
    ) -> None:
        """Take the topics that existed when the restore began: no other is purged. None: it has not begun."""
        admin = KafkaAdmin(kafka)
        self._configs = TargetConfigs(admin, clock_ms)
        self._agreement = Agreement(kafka, request, notes.restore_id, clock_ms)
        self._cluster = kafka.for_tools()
        self._topics: dict[str, TopicPlan] = {}
        self._notes = notes
        self._plan_check = PlanCheck(notes.archive.layout, notes.restore_id, request)
        self._request = request
        self._surveyor = Surveyor(
            notes,
            self._plan_check,
            request,
            archived,
            cluster=self._cluster,
            existing=existing,
            clock_ms=clock_ms,
        )
        self._creation = TargetCreation(
            admin, notes, request.existing, lambda name: self._agreement.to_create(self._topics[name])
        )
        self._noted: dict[str, str] = {}  # topic ids of targets with a plan of an earlier run
        self._unfinished: set[str] = set()  # whatever their notes
        self._losses: tuple[str, ...] = ()
        self.purge = Purge()  # the topics to purge, as of the last check
        self._provided_for: dict[str, str] = {}  # targets that may be purged, and their topic ids

    async def planned(self, client: KafkaClient, asked: Mapping[str, str]) -> tuple[list[TopicPlan], dict[str, str]]:
        """Return the plans that earlier runs noted for unchanged targets, and the targets to plan now.

        Noted plans are not checked yet (`check_noted`).
        """
        found = await client.describe_topics(asked.values())
        plans = self._notes.plans(ids := ids_of(found), self._request.terms)
        self._noted |= {target: ids[target] for target in plans}
        for source, target in asked.items():
            if target in plans:
                self._plan_check.check_command(plans[target], source)
        unplanned = {source: target for source, target in asked.items() if target not in plans}
        return list(plans.values()), unplanned

    def check_noted(self, noted: Iterable[TopicPlan], plan_in: PlanIn) -> CheckedPlans:
        """Compare noted plans with the present archive."""
        found = self._plan_check.check_plans(noted, plan_in)
        self._notes.check_earlier_plans({one.target: self._noted[one.target] for one in found.plans})
        return found

    async def review(self, client: KafkaClient, topics: Iterable[TopicPlan]) -> "TargetReview":
        """Find why targets cannot be filled as planned, a line each. Changes nothing."""
        plans = {topic.target: topic for topic in topics}
        found = await client.describe_topics(plans)
        survey = await self._surveyor.survey(client, found, plans)
        await self._agree(client, survey, plans)
        ours = {name: plan for name, plan in plans.items() if name not in survey.plans or survey.fills(name)}
        survey.problems += await self._agreement.on_end(client, ours, found)
        purging = {} if survey.problems else {name: self._agreement.replicas(name) for name in survey.purged}
        brokers = await self._agreement.on_brokers(client)
        return TargetReview(
            problems=tuple(survey.problems),
            doubts=tuple(survey.doubts),
            losses=(*await purge_notes(client, survey.offsets, purging), *brokers.warnings(purging)),
            notes=(*self._agreement.notes(plans), *brokers.notes()),
            limits=self._agreement.limits(plans, survey.configs),
            purge=survey.purge,
        )

    async def check(self, client: KafkaClient, topics: Sequence[TopicPlan]) -> None:
        """Refuse targets that cannot be filled, before anything is changed. Raises TargetError."""
        self._topics |= {topic.target: topic for topic in topics}
        review = await self.review(client, topics)
        for note in review.notes:
            log.info("%s", note)
        if review.losses != self._losses:  # targets are checked again after the choice of records
            for loss in review.losses:
                log.warning("%s", loss)
        self._losses = review.losses
        refuse(review.problems)
        self.purge = review.purge
        if self._request.purges_unread:
            self._provided_for |= review.purge.topic_ids

    async def check_again(self, client: KafkaClient, topics: Sequence[TopicPlan]) -> None:
        """Refuse changes since the check: reading an archive may take hours. Raises TargetError."""
        plans = {topic.target: topic for topic in topics}
        survey = await self._surveyor.survey(client, await client.describe_topics(plans), plans)
        await self._agree(client, survey, plans)
        survey.problems += self._surveyor.unread(survey, self._provided_for)
        survey.problems += grown_problems(self.purge.offsets, survey.purge.offsets)
        survey.refuse()

    def portions(self, topics: Sequence[TopicPlan]) -> list[Sequence[TopicPlan]]:
        """Cut topics into portions. With several portions, the topics to purge are noted."""
        if len(self.purged_among(topics)) > _PURGED_AT_ONCE:
            # A missing right to put this note shows before the first topic is deleted.
            self._notes.note_replaced(self.purge.topic_ids, self.purge.replicas)
        return cut_into_portions(topics, self.purge.topic_ids)

    def purged_among(self, topics: Iterable[TopicPlan]) -> list[TopicPlan]:
        """Return the plans whose targets are purged first: before that, all objects of these plans must be read."""
        return [topic for topic in topics if topic.target in self.purge.topic_ids]

    def provide_for(self, topics: Sequence[TopicPlan], reading: ArchiveReading) -> None:
        """Allow targets to be purged, by the result of reading their replacements. Raises NotWholeError."""
        problems = damage_problems(topics, reading, self.purge, skips_damage=self._request.skips_damage)
        if problems:
            raise NotWholeError("\n".join(problems)).in_lines()
        for one in reading.damage:
            log.warning("%s-%d: will not be whole: %s", one.target, one.partition, one.message)
        self._provided_for |= {topic.target: self.purge.topic_ids[topic.target] for topic in topics}

    async def prepare(
        self, client: KafkaClient, names: Collection[str], check_others: Callable[[], None]
    ) -> list[Target]:
        """Create or continue some topics, so that they are ready for the fill. `check_others` is called before a delete."""
        found, survey, created = await self._create_missing(client, names, check_others)
        # Notes of a topic without an id may be of another topic: it counts as finished only when this run has finished it.
        self._unfinished.update(
            name for name in survey.plans if not found[name].topic_id and not survey.is_verified(name)
        )
        ends = {name: survey.ends(name) for name, plan in survey.plans.items() if plan.appends}
        for name, plan in self._notes.note_plans(
            survey.plans.values(), ids_of(found), self._request.terms, ends
        ).items():
            # Of two concurrent runs, the first one's plan is valid.
            self._topics[name] = self._plan_check.check_held(plan, self._topics[name])
        existing = {name: self._agreement.configs(name) for name in names if survey.fills(name) and name not in created}
        await self._configs.set_for_filling(client, {name: found[name] for name in existing}, existing)
        limits, asked = self._agreement.limits(names, survey.configs), BatchLimits(self._request.batch_bytes)
        return [_target(self._topics[name], found[name].topic_id, limits.get(name, asked), survey) for name in names]

    def finished(self, topic_ids: Mapping[str, str]) -> Collection[str]:
        """Return the topics with their final configs: this run or an earlier one has set them."""
        return self._notes.finished(topic_ids) - self._unfinished

    def left_out(self, name: str) -> tuple[str, ...]:
        """Return the configs of the filling that the cluster refuses for a topic, and the values in force instead."""
        return self._agreement.left_out(name)

    async def finish(self, client: KafkaClient, topic_ids: Mapping[str, str]) -> dict[str, Finish]:
        """Set the final configs of topics, once: later changes are the user's. Topics that are appended to keep theirs."""
        noted = [name for name in self.finished(topic_ids) if not self._topics[name].appends]
        self._unfinished |= await self._configs.as_filled(client, noted)
        finished = self.finished(topic_ids)
        unfinished = {name: topic_id for name, topic_id in topic_ids.items() if name not in finished}
        ours = {name: self._topics[name] for name in unfinished if not self._topics[name].appends}
        finishes = await self._configs.set_archived(client, ours, self._request)
        reach("finished.configured")
        left = {name for name, finish in finishes.items() if not finish.is_done}
        self._notes.note_finished({name: unfinished[name] for name in unfinished if name not in left})
        self._unfinished -= unfinished.keys() - left
        if self._request.sets_retention:
            return finishes | await self._configs.with_retention(
                client, {name: (ours[name], finish) for name, finish in finishes.items() if finish.is_done}
            )
        limits = await self._configs.retention_limits(client, filter(self._agreement.is_perhaps_limited, ours))
        return {name: replace(finish, retention=limits.get(name, "")) for name, finish in finishes.items()}

    async def _agree(self, client: KafkaClient, survey: Survey, plans: Mapping[str, TopicPlan]) -> None:
        """Find configs for filling topics, and their problems."""
        new = {name: plan for name, plan in plans.items() if name not in survey.plans}
        existing = frozenset(name for name in plans.keys() - survey.unfit if survey.fills(name))
        survey.problems[:0] = await self._creation_problems(client, new, survey)
        survey.problems += await self._agreement.on_existing(client, existing)
        begun = {name: survey.plans[name] for name in existing if any(survey.ends(name).values())}
        survey.problems += await self._agreement.on_begun(client, begun)
        written = [name for name in plans.keys() - survey.unfit if name in new or not survey.is_verified(name)]
        survey.problems += await _rights_problems(client, written, survey.purged)
        for plan, problem in self._agreement.harms(new | {name: survey.plans[name] for name in existing}, existing):
            survey.note(plan, self._request, [problem])
        kept = {
            name: TargetReplicas(survey.configs[name], survey.found[name].fewest)
            for name in survey.configs.keys() & plans.keys()
        }
        copies = self._agreement.target_replicas(new.keys() | existing, {name: survey.found[name] for name in existing})
        survey.problems += await in_sync_problems(client, plans, copies | kept, self._cluster)
        filled = [plans[name] for name in (*new, *existing, *kept)]
        brokers = await self._agreement.on_brokers(client)
        survey.problems += filter(None, (brokers.keeps(plan) for plan in filled if plan.target in survey.purged))
        for plan in filled:
            survey.note(plan, self._request, filter(None, [brokers.harms(plan)]))

    async def _creation_problems(
        self, client: KafkaClient, plans: Mapping[str, TopicPlan], survey: Survey
    ) -> list[str]:
        """Return why topics cannot be created: checked before any topic is purged."""
        own = [
            internal_problem(plan.source, name)
            for name, plan in plans.items()
            if name in INTERNAL_TOPICS and name not in survey.purged
        ]
        if asked := await asked_problems(client, self._request.replication_factor if plans else None):
            return [*own, *asked]
        kept = {name: count for name, count in survey.replicas.items() if name in plans}
        short = await kept_problems(client, kept, survey.purged)
        others = {name: plan for name, plan in plans.items() if name not in short}
        return [*own, *short.values(), *await self._agreement.on_new(client, others, survey.purged, kept)]

    # --- creation

    async def _create_missing(
        self, client: KafkaClient, names: Collection[str], check_others: Callable[[], None]
    ) -> tuple[dict[str, TopicDescription], Survey, set[str]]:
        """Purge and create topics until all targets exist. Also returns the created ones.

        A run can be killed between any two steps, and run beside another run of this restore: deletes use
        the topic id that was noted before, and never that of a topic that this restore has filled.
        """
        created: set[str] = set()
        for _ in range(_ROUNDS):
            found = await client.describe_topics(names)
            try:
                survey = await self._surveyor.survey(client, found, self._topics, created)
            except TopicGoneError:  # another run of this restore has just purged it
                continue
            survey.problems += self._surveyor.unread(survey, self._provided_for)
            absent = [name for name in names if name not in survey.plans]
            new = [
                name
                for name in names
                if name in survey.purged or (name not in self._agreement and (name in absent or survey.fills(name)))
            ]
            # Since the check, others may have been filled; and topics to purge are checked once more.
            if new:
                await self._agree(client, survey, {name: self._topics[name] for name in new})
            survey.refuse()
            if survey.short:
                await self._creation.add_partitions(survey.short)
                continue
            if not absent:
                return found, survey, created
            try:
                kept_back = [name for name in absent if name in survey.purged]
                for some in ([name for name in absent if name not in survey.purged], kept_back):
                    if some:
                        ends = self.purge.offsets
                        created |= await self._creation.replace(client, survey, some, ends, check_others)
            except TopicGoneError:  # as above
                continue
        raise KafkaError(
            f"the target topics ({', '.join(sorted(names)[:3])}, ...) do not stay: someone else deletes them, or creates"
            " and fills them; stop whoever does, and run the same command again"
        )


def cut_into_portions(topics: Sequence[TopicPlan], purged: Container[str]) -> list[Sequence[TopicPlan]]:
    """Cut topics into portions that are created and filled one after the other.

    The first one is small, so that records come early. Few topics are purged in each: a restore that stops has deleted no more
    than those.
    """
    deleted = [topic for topic in topics if topic.target in purged]
    others = [topic for topic in topics if topic.target not in purged]
    if len(deleted) <= _PURGED_AT_ONCE and len(others) <= _FIRST_TOPICS:
        return [topics]
    few = [deleted[begin : begin + _PURGED_AT_ONCE] for begin in range(0, len(deleted), _PURGED_AT_ONCE)]
    return [some for some in (others[:_FIRST_TOPICS], others[_FIRST_TOPICS:], *few) if some]


def _target(plan: TopicPlan, topic_id: str, limits: BatchLimits, survey: Survey) -> Target:
    if not plan.appends:
        return Target(plan, topic_id, limits)
    joint = survey.topic_claims.get(plan.target)
    claimed = {number: claim.start_offset for number, claim in survey.claims[plan.target].items()}
    return Target(
        plan,
        topic_id,
        limits,
        first_offsets={**survey.ends(plan.target), **claimed, **dict(enumerate(joint.start_offsets if joint else ()))},
    )


async def _rights_problems(client: KafkaClient, filled: Collection[str], purged: Collection[str]) -> list[str]:
    """Return the missing rights on topics to fill, some of them purged first, a line for each topic.

    Create and AlterConfigs are not among these rights: brokers check them when topics are validated (fill_terms).
    """
    missing = await missing_rights(client, {name: _TO_PURGE if name in purged else _TO_FILL for name in filled})
    return [
        f"target topic {name} {'is not purged' if name in purged else 'cannot be filled'}: grant this user"
        f" {' and '.join(one.right for one in some)} on topic {name}"
        for name, some in sorted(missing.items())
    ]
