"""Surveys existing topics with the names of targets, and decides to fill, append to, purge or refuse each. Changes nothing.

1. Read the ends of the topics, then this restore's claims and plans: in this order, see `survey`.
2. Decide on each topic: fill it unchanged, append to it, purge it, or refuse it.
3. Verified records must still exist, and topics to fill must be this restore's alone.
4. For purged topics, find their archived logs; for topics that are appended to, the harm of their own configs.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from archiver.archive.format.message_format import without_ignored_format
from archiver.archive.format.store_clock import machine_now_ms
from archiver.errors import KafkaError, TargetError, TopicGoneError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import PartitionOffsets, TopicDescription
from archiver.kafka.brokers.codes import Code
from archiver.kafka.records.log_reader import LogRange, producer_at
from archiver.kafka.topics.configs import topic_configs_each
from archiver.kafka.topics.log_dirs import LogSizes, log_sizes
from archiver.restore.plan.claims import TargetClaims
from archiver.restore.plan.plan_check import PlanCheck
from archiver.restore.plan.request import Existing, RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.plan.target_limits import NOTHING_HELD, is_limited, limit_problems
from archiver.restore.purge.archived_logs import ArchivedLog, ArchivedLogs
from archiver.restore.purge.purge_checks import (
    Offsets,
    Purge,
    choice_doubts,
    late_problem,
    purge_problems,
    unarchived_problems,
    unknown_problems,
)
from archiver.restore.targets.fill_terms import is_of_filling
from archiver.restore.targets.lost_records import lost_problems
from archiver.restore.targets.target_configs import Configs
from archiver.restore.targets.target_shape import (
    begun_problem,
    misfits,
    open_ends,
    regrown_problems,
    unplanned_problem,
    unverified_problem,
)

_TIERS = ("remote.storage.enable", "confluent.tier.enable")
_IN_PART = "a part of it is in the remote tier, of which the brokers tell nothing"


@dataclass(slots=True)
class Survey:
    """The existing topics with the names of targets, and the decision on each."""

    plans: dict[str, TopicPlan] = field(default_factory=dict)  # of topics that are filled unchanged
    purged: dict[str, str] = field(default_factory=dict)  # topics that are deleted first, and their ids
    archived: Mapping[str, ArchivedLog] = field(default_factory=dict)  # their archived logs, if any
    claims: Mapping[str, TargetClaims] = field(default_factory=dict)
    found: Mapping[str, TopicDescription] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    configs: Mapping[str, Configs] = field(default_factory=dict)  # of topics that are appended to
    problems: list[str] = field(default_factory=list)
    short: dict[str, int] = field(default_factory=dict)  # topics that lack partitions, and the wanted number
    unfit: set[str] = field(default_factory=set)  # topics that are not filled, whatever their configs
    replicas: dict[str, int] = field(default_factory=dict)  # of topics that keep them, purged now or by an earlier run
    doubts: list[str] = field(default_factory=list)  # possible problems, depending on the chosen records

    @property
    def purge(self) -> Purge:
        offsets = {name: self.offsets[name] for name in self.purged}
        return Purge(self.purged, offsets, self.archived, self.replicas)

    def ends(self, name: str) -> dict[int, int]:
        """Return the ends of a topic's partitions."""
        return {number: one.high_watermark for number, one in self.offsets[name].items()}

    def is_claimed(self, name: str) -> bool:
        """Return whether this restore may have written records to a topic."""
        return bool(self.claims[name])

    def is_verified(self, name: str) -> bool:
        """Return whether earlier runs have filled and read back all partitions, and none has lost records since."""
        return self.was_verified(name) and not self.cut_short(name)

    def was_verified(self, name: str) -> bool:
        """Return whether earlier runs have noted all partitions as verified."""
        return self.claims[name].are_verified(one.partition for one in self.plans[name].partitions)

    def cut_short(self, name: str) -> Mapping[int, tuple[int, int]]:
        return self.claims[name].cut_short(self.ends(name))

    def fills(self, name: str) -> bool:
        """Return whether an existing topic is to be filled as if this restore had created it, with the configs of a filling."""
        return name in self.plans and not self.plans[name].appends and not self.is_verified(name)

    def note(self, plan: TopicPlan, request: RestoreRequest, problems: Iterable[str]) -> None:
        """Note problems of a plan: as doubts before records are chosen, while only bounds of the choice are known."""
        (self.doubts if request.chooses(is_copied=plan.is_copied) and not plan.is_chosen else self.problems).extend(
            problems
        )

    def refuse(self) -> None:
        refuse(self.problems)


def refuse(problems: Sequence[str]) -> None:
    """Raise TargetError if any problem exists."""
    if problems:
        raise TargetError("\n".join(problems))


class Surveyor:
    """Surveys the targets of one restore repeatedly: others change them meanwhile."""

    def __init__(
        self,
        notes: RestoreNotes,
        plan_check: PlanCheck,
        request: RestoreRequest,
        archived: ArchivedLogs,
        *,
        cluster: Sequence[str],
    ) -> None:
        self._notes = notes
        self._plan_check = plan_check
        self._request = request
        self._archived = archived
        self._cluster = cluster
        self.purgeable: Mapping[str, str] = {}  # the topics that may be purged, and their ids

    async def survey(
        self,
        client: KafkaClient,
        found: Mapping[str, TopicDescription],
        plans: Mapping[str, TopicPlan],
        created: AbstractSet[str] = frozenset(),
    ) -> Survey:
        """Decide on each existing topic: to fill, to append to, or to purge.

        `created`: by this run, so that no other restore can have begun them.
        """
        survey = Survey(found=found)
        ids = ids_of(found)
        survey.offsets = offsets = await offsets_of(client, found)
        # In this order: a writer of records has put its claim before, and its plan before that.
        joint = self._notes.topic_claims(ids)
        survey.claims = {name: TargetClaims(some, joint.get(name)) for name, some in self._notes.claims(ids).items()}
        noted = self._notes.plans(ids, self._request.terms)
        if self._request.keeps_replicas and (absent := plans.keys() - found.keys()):
            survey.replicas = self._notes.replicas_before(absent)
        made = await self._made(client, ids)
        for name in found:
            plan = plans[name]
            if name in noted:
                self._plan_check.check_command(noted[name], plan.source)
                plan = replace(plan, appends=noted[name].appends)
            elif survey.is_claimed(name):
                survey.problems.append(unplanned_problem(name, self._notes.restore_id))
            self._survey_topic(
                survey, plan, is_begun=name in noted or survey.is_claimed(name), is_successor=name in made
            )
        survey.problems += self._regrown_problems(survey, noted)
        survey.problems += self._begun_problems(survey, noted.keys() | created)
        survey.problems += self._unverified_problems(survey, noted)
        # Another run may have filled some of them, and noted that, since they were asked for their ends.
        offsets |= await offsets_of(client, {name: found[name] for name in survey.plans if survey.cut_short(name)})
        cut = {name: some for name in survey.plans if ids[name] and (some := survey.cut_short(name))}
        survey.problems += lost_problems(cut, self._notes.finished(ids) if cut else ())
        # A verified topic is only read back.
        nameless = [name for name in survey.plans if not ids[name] and not survey.is_verified(name)]
        survey.problems += await _stranger_problems(client, nameless, survey.claims, offsets)
        if survey.purged:
            survey.archived, unknown = self._archived.find(survey.purged)
            survey.problems += unknown_problems(unknown)
            survey.problems += await unarchived_problems(client, survey.purge, offsets)
        await self._survey_appended(client, survey)
        return survey

    def _survey_topic(self, survey: Survey, plan: TopicPlan, *, is_begun: bool, is_successor: bool) -> None:
        """Decide on one topic. A successor was created after this restore had deleted its topic, or had found none."""
        name, described = plan.target, survey.found[plan.target]
        # Made by this restore, or by a broker for some client.
        is_made = is_successor and not any(survey.ends(name).values())
        if is_begun or (is_made and len(described.partitions) <= plan.target_partitions):
            survey.plans[name] = plan
        elif self._request.existing is Existing.PURGE:
            survey.purged[name] = described.topic_id
            survey.replicas |= {name: max(described.replicas)} if self._request.keeps_replicas else {}
            survey.problems += purge_problems(plan, described, survey.offsets[name], self._request)
            is_written = is_successor and not is_made
            if is_written or self.purgeable.get(name) != described.topic_id:
                survey.problems.append(late_problem(name, is_successor=is_written))
            survey.doubts += choice_doubts(plan, self._request)
            return
        else:
            survey.plans[name] = replace(plan, appends=self._request.existing is Existing.APPEND)
        if is_made and not is_begun and len(described.partitions) < plan.target_partitions:
            survey.short[name] = plan.target_partitions
            return
        claims = {"is_claimed": survey.is_claimed(name), "is_verified": survey.is_verified(name)}
        if wrong := list(misfits(survey.plans[name], described, survey.ends(name), **claims)):
            survey.problems += wrong
            survey.unfit.add(name)

    async def _survey_appended(self, client: KafkaClient, survey: Survey) -> None:
        """Find the harm of topics' own configs to records that are appended."""
        appended = [name for name, plan in survey.plans.items() if plan.appends and not survey.is_verified(name)]
        survey.problems += [problem for name in appended for problem in open_ends(name, survey.offsets[name])]
        configs, refused = await topic_configs_each(client, appended)
        for error in refused.values():
            raise error
        survey.configs = {
            name: await without_ignored_format(client, name, one.effective) for name, one in configs.items()
        }
        # A begun topic is partly ours, and was judged before its first record.
        unbegun = {name: effective for name, effective in survey.configs.items() if not survey.is_claimed(name)}
        held = await _held_bytes(client, survey.found, unbegun, survey.offsets)
        now_ms = machine_now_ms()
        for name, effective in survey.configs.items():
            plan = survey.plans[name]
            problems = limit_problems(plan, effective, now_ms, self._cluster, held.get(name, NOTHING_HELD))
            survey.note(plan, self._request, problems)

    async def _made(self, client: KafkaClient, ids: Mapping[str, str]) -> set[str]:
        """Return the topics created since this restore noted that it would create them: by itself, or by brokers for some client.

        A topic with own configs that no filling sets belongs to someone else.
        """
        if self._request.existing is Existing.EMPTY:
            return set()
        # Empty: no topic, or a topic without an id.
        came = [name for name, before in self._notes.replaced(ids).items() if before != (ids[name] or None)]
        configs, _ = await topic_configs_each(client, came)
        # Only this restore sets the configs of a filling. A topic without configs may be anyone's: it counts as ours
        # only if it would be deleted otherwise.
        purges = self._request.existing is Existing.PURGE
        own = {name: configs[name].own if name in configs else None for name in came}
        return {name for name, some in own.items() if (some is None or is_of_filling(some)) and (purges or some)}

    def _regrown_problems(self, survey: Survey, noted: Mapping[str, TopicPlan]) -> list[str]:
        """Return problems of topics that an earlier run was to append to: one that grew without a claim may have its records."""
        appended = {name: survey.found[name].topic_id for name, plan in noted.items() if plan.appends}
        planned = self._notes.planned_ends(appended) if appended else {}
        return [
            problem
            for name, ends in planned.items()
            if survey.claims[name].joint is None
            for problem in regrown_problems(
                noted[name], ends, survey.ends(name), survey.claims[name].partitions, self._notes.restore_id
            )
        ]

    def _begun_problems(self, survey: Survey, ours: AbstractSet[str]) -> list[str]:
        """Return problems of topics that another restore has begun to fill."""
        unbegun = survey.plans.keys() - ours - {name for name in survey.plans if survey.is_claimed(name)}
        ids = {name: topic_id for name in unbegun if (topic_id := survey.found[name].topic_id)}
        return [begun_problem(*one) for one in sorted(self._notes.begun_by_others(ids).items())]

    def _unverified_problems(self, survey: Survey, noted: Container[str]) -> list[str]:
        """Return problems of topics noted as finished but not as verified: that is noted first, and never withdrawn then.

        Includes appended topics with neither a claim nor a plan: their records would be restored twice.
        """
        bare = {name for name, plan in survey.plans.items() if plan.appends and name not in noted}
        ours = [name for name in survey.plans if name in bare or survey.is_claimed(name)]
        named = {name: survey.found[name].topic_id for name in ours}
        doubtful = {name: of for name, of in named.items() if of and not survey.was_verified(name)}
        finished = self._notes.finished(doubtful) if doubtful else ()
        return [unverified_problem(name, self._notes.restore_id) for name in sorted(finished)]


def ids_of(found: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {name: described.topic_id for name, described in found.items()}


async def offsets_of(
    client: KafkaClient, found: Mapping[str, TopicDescription]
) -> dict[str, dict[int, PartitionOffsets]]:
    partitions = [(name, number) for name, described in found.items() for number in described.partitions]
    by_topic: dict[str, dict[int, PartitionOffsets]] = {name: {} for name in found}
    try:
        asked = await client.offsets(partitions)
    except KafkaError as error:
        if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicGoneError(str(error)) from error
        raise
    for (name, number), offsets in sorted(asked.items()):
        by_topic[name][number] = offsets
    return by_topic


async def _stranger_problems(
    client: KafkaClient, topics: Iterable[str], claims: Mapping[str, TargetClaims], offsets: Offsets
) -> list[str]:
    """Return the topics with foreign records where this restore's first ones should be. Expired records prove nothing.

    Without topic ids, a topic of that name may not be the one that an earlier run began to fill.
    """
    problems = []
    for topic in topics:
        strange = []
        for number, start in claims[topic].start_offsets.items():
            one, where = (
                offsets[topic].get(number),
                LogRange(topic=topic, topic_id="", partition=number, start=start, end=start + 1),
            )
            if one is None or not one.log_start <= start < one.high_watermark:
                continue
            if await producer_at(client, where) not in claims[topic].producer_ids(number):
                strange.append(str(number))
        if strange:
            problems.append(
                f"target topic {topic} has no topic id, and is not the one that this restore has begun to fill: the records in"
                f" partition {', '.join(strange)} are not of this restore; delete the topic and restore again, or restore under"
                " another name with --rename and another --id"
            )
    return problems


async def _held_bytes(
    client: KafkaClient,
    found: Mapping[str, TopicDescription],
    configs: Mapping[str, Mapping[str, str]],
    offsets: Mapping[str, Mapping[int, PartitionOffsets]],
) -> dict[str, LogSizes]:
    """Return the size of partitions by topic; asks only for topics of `configs` with records and a limit of bytes."""
    limited = {
        name: found[name]
        for name, effective in configs.items()
        if is_limited(effective) and any(one.high_watermark > one.log_start for one in offsets[name].values())
    }
    tiered = {name for name in limited if any(configs[name].get(switch) == "true" for switch in _TIERS)}
    sizes = await log_sizes(client, limited)
    return {name: LogSizes(one.bytes, _IN_PART) if name in tiered else one for name, one in sizes.items()}
