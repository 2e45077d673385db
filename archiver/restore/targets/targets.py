"""Checks, creates and finishes all targets of a restore, with a few requests for all of them together. Used by the Spark job."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from archiver.errors import KafkaError, KafkaTemporaryError, TopicGoneError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import INTERNAL_TOPICS, Refusal, TopicDescription
from archiver.kafka.brokers.codes import Code
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.kafka.topics.deletion import delete_topics_by_id
from archiver.kafka.topics.rights import Operation, missing_rights
from archiver.process.running.failpoints import reach
from archiver.restore.plan.estimate import BatchLimits
from archiver.restore.plan.plan_check import CheckedPlans, PlanCheck, PlanIn
from archiver.restore.plan.request import Existing, RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.purge.archived_logs import ArchivedLogs
from archiver.restore.purge.purge_checks import Purge, grown_problems, unarchived_problems
from archiver.restore.purge.purge_notes import purge_notes
from archiver.restore.targets.config_agreement import Agreement
from archiver.restore.targets.replicas import TargetReplicas, asked_problems, in_sync_problems, kept_problems
from archiver.restore.targets.target_configs import Finish, TargetConfigs
from archiver.restore.targets.target_shape import internal_problem
from archiver.restore.targets.target_survey import Survey, Surveyor, ids_of, offsets_of

log = logging.getLogger(__name__)

_ROUNDS = 5
_ATTEMPTS = 300  # for half a minute
_DESCRIBE_PAUSE_S = 0.1  # before brokers are asked for their topics again
_TO_FILL = (Operation.READ, Operation.WRITE)
_TO_PURGE = (*_TO_FILL, Operation.DELETE)
_PURGED_AT_ONCE = 8


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
    ) -> None:
        self._admin = KafkaAdmin(kafka)
        self._configs = TargetConfigs(self._admin)
        self._agreement = Agreement(kafka, request, notes.restore_id)
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
        )
        self._noted: dict[str, str] = {}  # topic ids of targets with a plan of an earlier run
        self._unfinished: set[str] = set()  # whatever their notes
        self.existing: Collection[str] = ()  # targets that were there when the restore began
        self.purge = Purge()  # the topics to purge, as of the last review

    async def planned(self, client: KafkaClient, asked: Mapping[str, str]) -> tuple[list[TopicPlan], dict[str, str]]:
        """Return the plans that earlier runs noted for unchanged targets, and the targets to plan now.

        Noted plans are not checked yet (`check_noted`).
        """
        found = await client.describe_topics(asked.values())
        ids = ids_of(found)
        self.existing, self._surveyor.purgeable = ids.keys(), ids
        plans = self._notes.plans(ids, self._request.terms)
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
        """Find why targets cannot be filled as planned, a line each. Changes nothing.

        Later reviews, and `prepare`, purge only topics that this one would purge, and that have not grown since.
        """
        self._topics = plans = {topic.target: topic for topic in topics}
        found = await client.describe_topics(plans)
        survey = await self._surveyor.survey(client, found, plans)
        await self._agree(client, survey, plans)
        ours = {name: plan for name, plan in plans.items() if name not in survey.plans or survey.fills(name)}
        survey.problems += await self._agreement.on_end(client, ours, found, survey.purged)
        survey.problems += grown_problems(self.purge.offsets, survey.purge.offsets)
        purging = {} if survey.problems else {name: self._agreement.replicas(name) for name in survey.purged}
        brokers = await self._agreement.on_brokers(client)
        self.purge = survey.purge
        self._surveyor.purgeable = survey.purged
        return TargetReview(
            problems=tuple(survey.problems),
            doubts=tuple(survey.doubts),
            losses=(*await purge_notes(client, survey.offsets, purging), *brokers.warnings(purging)),
            notes=(*self._agreement.notes(plans), *brokers.notes()),
            limits=self._agreement.limits(plans, survey.configs),
            purge=survey.purge,
        )

    def portions(self, topics: Iterable[TopicPlan]) -> list[Sequence[TopicPlan]]:
        """Cut topics into portions to create and fill one after the other. With several, the topics to purge are noted.

        Few topics are purged in each: a restore that stops has deleted no more than those.
        """
        first = self._request.is_first
        ordered = sorted(topics, key=lambda topic: (first(topic.source), topic.objects), reverse=True)
        purged = self.purged_among(ordered)
        few = [purged[begin : begin + _PURGED_AT_ONCE] for begin in range(0, len(purged), _PURGED_AT_ONCE)]
        if len(few) > 1:
            # A missing right to put this note shows before the first topic is deleted.
            self._notes.note_replaced(self.purge.topic_ids, self.purge.replicas)
        others = [topic for topic in ordered if topic.target not in self.purge.topic_ids]
        return [[*others, *next(iter(few), ())], *few[1:]]

    def purged_among(self, topics: Iterable[TopicPlan]) -> list[TopicPlan]:
        """Return the plans whose targets are purged first: before that, all objects of these plans must be read."""
        return [topic for topic in topics if topic.target in self.purge.topic_ids]

    async def prepare(self, client: KafkaClient, names: Collection[str]) -> list[Target]:
        """Create or continue some topics, note their plans, and set their configs for the fill."""
        found, survey, created = await self._create_missing(client, names)
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
        done = {name: (ours[name], finish) for name, finish in finishes.items() if finish.is_done}
        return finishes | await self._configs.with_retention(client, done, self._request)

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

    # --- creation: a run can be killed between any two steps, and run beside another run of this restore

    async def _create_missing(
        self, client: KafkaClient, names: Collection[str]
    ) -> tuple[dict[str, TopicDescription], Survey, set[str]]:
        """Purge and create topics until all targets exist. Also returns the created ones."""
        created: set[str] = set()
        for _ in range(_ROUNDS):
            found = await client.describe_topics(names)
            try:
                survey = await self._surveyor.survey(client, found, self._topics, created)
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
                    await self._add_partitions(survey.short)
                    continue
                if not absent:
                    return found, survey, created
                purged = [name for name in absent if name in survey.purged]
                for some in ([name for name in absent if name not in survey.purged], purged):
                    if some:
                        created |= await self._replace(client, survey, some)
            except TopicGoneError:  # another run of this restore has just purged it
                continue
        raise KafkaError(
            f"the target topics ({', '.join(sorted(names)[:3])}, ...) do not stay: someone else deletes them, or creates"
            " and fills them; stop whoever does, and run the same command again"
        )

    async def _replace(self, client: KafkaClient, survey: Survey, names: Sequence[str]) -> set[str]:
        """Delete existing topics, by the ids that are noted before, and create all of these topics."""
        purged = {name: survey.purged[name] for name in names if name in survey.purged}
        # 1. Only a purge needs these notes. Without a purge, a single note shows early that this user may put notes.
        noted = names[:1] if self._request.existing is Existing.EMPTY else names
        self._notes.note_replaced({name: purged.get(name, "") for name in noted}, survey.replicas)
        if purged:
            await self._check_once_more(client, survey, purged)  # 2. as late as possible
            told = "%s: was deleted with all its records, and is created again (--purge-target)"
            await delete_topics_by_id(client, purged, lambda name: log.warning(told, name))  # 3.
            reach("target.deleted")
        return await self._create(client, names, purged)  # 4. and its plan is noted before its first claim

    async def _check_once_more(self, client: KafkaClient, survey: Survey, purged: Mapping[str, str]) -> None:
        """Refuse a purge if records were written since the survey, or brokers went."""
        now = await offsets_of(client, {name: survey.found[name] for name in purged})
        archived = {name: one for name, one in survey.archived.items() if name in purged}
        survey.problems += await unarchived_problems(client, Purge(purged, now, archived), now)
        survey.problems += grown_problems(self.purge.offsets, now)
        kept = {name: count for name, count in survey.replicas.items() if name in purged}
        survey.problems += (await kept_problems(client, kept, purged)).values()
        survey.refuse()

    async def _create(self, client: KafkaClient, names: Collection[str], purged: Mapping[str, str]) -> set[str]:
        """Create targets, and return this run's; those that another run of this restore creates right now serve as well."""
        left = list(names)
        created: set[str] = set()
        refused: dict[str, Refusal] = {}
        for _ in range(_ATTEMPTS):
            wanted = {name: self._agreement.to_create(self._topics[name]) for name in left}
            refused = await self._admin.create_topics(wanted)
            created.update(name for name in left if name not in refused)
            reach("target.created")
            found = await client.describe_topics(left)
            left = [name for name in left if name not in found or found[name].topic_id == purged.get(name)]
            for name in left:
                # The name of a purged topic may be free a moment later; another run's new topic is named a moment later.
                if name in refused and name not in purged and not _is_there(refused[name]):
                    raise refused[name]
            if not left:
                return created
            await asyncio.sleep(_DESCRIBE_PAUSE_S)
        raise refused.get(left[0]) or KafkaTemporaryError(f"topic {left[0]} was created, but no broker names it")

    async def _add_partitions(self, short: Mapping[str, int]) -> None:
        """Add partitions to topics that brokers created by themselves: while clients ask for such a topic, deleting it would not help."""
        for name, count in short.items():
            log.warning(
                "%s: came by itself when it had been deleted, for a client that asked for it (auto.create.topics.enable), and"
                " is given %d partitions; stop whoever writes to it, or the restore cannot end",
                name,
                count,
            )
        for error in (await self._admin.add_partitions(short)).values():
            if not isinstance(error, KafkaError) or error.code != Code.INVALID_PARTITIONS:
                raise error
            # The topic has as many or more: the broker that described it was stale.
            await asyncio.sleep(_DESCRIBE_PAUSE_S)


def _target(plan: TopicPlan, topic_id: str, limits: BatchLimits, survey: Survey) -> Target:
    if not plan.appends:
        return Target(plan, topic_id, limits)
    first_offsets = {**survey.ends(plan.target), **survey.claims[plan.target].start_offsets}
    return Target(plan, topic_id, limits, first_offsets)


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


def _is_there(refusal: Refusal) -> bool:
    return isinstance(refusal, KafkaError) and refusal.code == Code.TOPIC_ALREADY_EXISTS
