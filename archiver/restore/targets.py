"""The target topics of a restore: checked, prepared and finished, with a few requests for all of them together."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from archiver.archive.message_format import without_ignored_format
from archiver.errors import KafkaError, KafkaTemporaryError, NotWholeError, TargetError, TopicGoneError
from archiver.kafka.admin import BROKER_DEFAULT, KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import INTERNAL_TOPICS, PartitionOffsets, Refusal, TopicDescription
from archiver.kafka.codes import Code
from archiver.kafka.configs import topic_configs_each
from archiver.kafka.deletion import delete_topics_by_id
from archiver.kafka.settings import KafkaSettings
from archiver.process.failpoints import reach
from archiver.restore.agreement import Agreement
from archiver.restore.belief import Belief, Believed, PlanIn
from archiver.restore.claims import Claim
from archiver.restore.estimate import BatchLimits
from archiver.restore.fill_terms import is_of_filling
from archiver.restore.fitness import (
    begun_problem,
    internal_problem,
    misfits,
    open_ends,
    unplanned_problem,
    unverified_problem,
)
from archiver.restore.held import held_bytes
from archiver.restore.in_sync import Copies, in_sync_problems
from archiver.restore.joint_claims import JointClaim
from archiver.restore.notes import RestoreNotes
from archiver.restore.plan import TopicPlan
from archiver.restore.purge import (
    Offsets,
    Purge,
    Reading,
    choice_doubts,
    damage_problems,
    grown_problems,
    late_problem,
    purge_problems,
    unarchived_problems,
    unknown_problems,
    unread_problems,
)
from archiver.restore.purge_notes import purge_notes
from archiver.restore.replicas import asked_problems, kept_problems
from archiver.restore.request import Existing, RestoreRequest, Retention
from archiver.restore.standing import cut_short, lost_problems, stranger_problems
from archiver.restore.target_configs import Configs, Finish, TargetConfigs
from archiver.restore.target_limits import NOTHING_HELD, limit_problems
from archiver.restore.target_rights import rights_problems
from archiver.restore.unarchived import ArchivedLog, ArchivedLogs

log = logging.getLogger(__name__)

_ROUNDS = 5
_PURGED_AT_ONCE = 8
_LOOKS = 300  # for half a minute
_PAUSE_S = 0.1

Claims = Mapping[str, Mapping[int, Claim]]  # topic -> partition -> claim


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that is there and ready to be filled, and with what."""

    plan: TopicPlan
    topic_id: str
    limits: BatchLimits
    first_offsets: Mapping[int, int] = field(default_factory=dict)  # where others' records end


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why targets cannot take what is planned for them, and why they perhaps cannot: that is known when records are chosen."""

    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()  # what goes with topics that are purged
    notes: tuple[str, ...] = ()  # what the cluster refuses, and nothing needs
    limits: Mapping[str, BatchLimits] = field(default_factory=dict)  # of targets that keep their own configs
    purge: Purge = field(default_factory=Purge)


@dataclass(slots=True)
class _Look:
    """What stands where targets are wanted, and what it means for this restore."""

    plans: dict[str, TopicPlan] = field(default_factory=dict)  # of topics that are filled as they are
    purged: dict[str, str] = field(default_factory=dict)  # topics that go first, and their ids
    archived: Mapping[str, ArchivedLog] = field(default_factory=dict)  # what of those is itself in the archive
    claims: Claims = field(default_factory=dict)
    joint_claims: Mapping[str, JointClaim] = field(default_factory=dict)  # on all partitions of a topic
    found: Mapping[str, TopicDescription] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    configs: Mapping[str, Configs] = field(default_factory=dict)  # of topics that are appended to
    problems: list[str] = field(default_factory=list)
    short: dict[str, int] = field(default_factory=dict)  # topics that lack partitions, and how many they are to have
    unfit: set[str] = field(default_factory=set)  # topics that are not filled, whatever their configs
    replicas: dict[str, int] = field(default_factory=dict)  # of topics that keep them, purged now or by an earlier run
    doubts: list[str] = field(default_factory=list)  # what may be a problem, by what is chosen

    @property
    def purge(self) -> Purge:
        offsets = {name: self.offsets[name] for name in self.purged}
        return Purge(self.purged, offsets, self.archived, self.replicas)

    def ends(self, name: str) -> dict[int, int]:
        """Tell where the partitions of a topic end."""
        return {number: one.high_watermark for number, one in self.offsets[name].items()}

    def is_claimed(self, name: str) -> bool:
        """Tell whether this restore may have written records to a topic."""
        return bool(self.claims[name]) or name in self.joint_claims

    def is_verified(self, name: str) -> bool:
        """Tell whether earlier runs have filled all partitions, and read them back, and none has lost of it since."""
        return self.was_verified(name) and not self.cut_short(name)

    def was_verified(self, name: str) -> bool:
        """Tell whether earlier runs have noted that of all partitions."""
        if name in self.joint_claims:
            return self.joint_claims[name].verified is not None
        found = [self.claims[name].get(partition.partition) for partition in self.plans[name].partitions]
        return all(claim is not None and claim.verified for claim in found)

    def cut_short(self, name: str) -> Mapping[int, tuple[int, int]]:
        return cut_short(self.claims[name], self.joint_claims.get(name), self.ends(name))

    def fills(self, name: str) -> bool:
        """Tell whether a topic that is there is to be filled as if it had been created for this."""
        return name in self.plans and not self.plans[name].appends and not self.is_verified(name)

    def refuse(self) -> None:
        if self.problems:
            raise TargetError("\n".join(self.problems))


class Targets:
    """The topics that a restore fills, known by their plans once they were checked."""

    def __init__(
        self,
        kafka: KafkaSettings,
        notes: RestoreNotes,
        request: RestoreRequest,
        archived: ArchivedLogs,
        *,
        existing: Collection[str] | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Take the topics that were there when the restore began: no other is purged. None: it has not begun."""
        self._existing = existing
        self._admin = KafkaAdmin(kafka)
        self._configs = TargetConfigs(self._admin, clock_ms)
        self._agreement = Agreement(kafka, request, notes.restore_id, clock_ms)
        self._cluster = kafka.for_tools()
        self._topics: dict[str, TopicPlan] = {}
        self._notes = notes
        self._belief = Belief(notes.layout, notes.restore_id, request)
        self._request = request
        self._archived = archived
        self._clock_ms = clock_ms
        self._unfinished: set[str] = set()  # whatever was noted of them
        self._losses: tuple[str, ...] = ()
        self.purge = Purge()  # what is to be purged, as it was seen last
        self._provided_for: dict[str, str] = {}  # targets that may be purged, and their topic ids

    async def planned(self, client: KafkaClient, wave: Mapping[str, str]) -> tuple[list[TopicPlan], dict[str, str]]:
        """Return what earlier runs have noted as planned for those targets that are still the same, and what is to be planned now.

        Of what was noted nothing holds yet (`believed`).
        """
        found = await client.describe_topics(wave.values())
        plans = self._notes.plans(_ids(found), self._request.terms)
        for source, target in wave.items():
            if target in plans:
                self._belief.check_command(plans[target], source)
        unplanned = {source: target for source, target in wave.items() if target not in plans}
        return list(plans.values()), unplanned

    def believed(self, noted: Iterable[TopicPlan], plan_in: PlanIn) -> Believed:
        """Hold what was noted against what the archive has now."""
        return self._belief.plans(noted, plan_in)

    async def judge(self, client: KafkaClient, topics: Iterable[TopicPlan]) -> "Verdict":
        """Tell why the targets cannot take what is planned for them, a line each. Changes nothing."""
        plans = {topic.target: topic for topic in topics}
        found = await client.describe_topics(plans)
        look = await self._look(client, found, plans)
        await self._agree(client, look, plans)
        ours = {name: plan for name, plan in plans.items() if name not in look.plans or look.fills(name)}
        await self._agreement.on_end(client, ours, found)
        purging = {} if look.problems else {name: self._agreement.replicas(name) for name in look.purged}
        brokers = await self._agreement.on_brokers(client)
        return Verdict(
            problems=tuple(look.problems),
            doubts=tuple(look.doubts),
            losses=(*await purge_notes(client, look.offsets, purging), *brokers.warnings(purging)),
            notes=(*self._agreement.notes(plans), *brokers.notes()),
            limits=self._agreement.limits(plans, look.configs),
            purge=look.purge,
        )

    async def check(self, client: KafkaClient, topics: Sequence[TopicPlan]) -> None:
        """Refuse what cannot go well, before anything is changed. Raises TargetError."""
        self._topics |= {topic.target: topic for topic in topics}
        verdict = await self.judge(client, topics)
        for note in verdict.notes:
            log.info("%s", note)
        if verdict.losses != self._losses:  # they are looked at again when records were chosen
            for loss in verdict.losses:
                log.warning("%s", loss)
        self._losses = verdict.losses
        _Look(problems=list(verdict.problems)).refuse()
        self.purge = verdict.purge
        if self._request.purges_unread:
            self._provided_for |= verdict.purge.topic_ids

    async def check_again(self, client: KafkaClient, topics: Sequence[TopicPlan]) -> None:
        """Refuse what has changed since it was checked: reading an archive may take hours. Raises TargetError."""
        plans = {topic.target: topic for topic in topics}
        look = await self._look(client, await client.describe_topics(plans), plans)
        await self._agree(client, look, plans)
        look.problems += self._unread(look)
        look.problems += grown_problems(self.purge.offsets, look.purge.offsets)
        look.refuse()

    def portions(self, topics: Sequence[TopicPlan]) -> Iterator[list[TopicPlan]]:
        """Put few of those together that are purged: what stops a restore finds no more of them gone."""
        purged = self.purged_among(topics)
        if len(purged) <= _PURGED_AT_ONCE:
            yield list(topics)
            return
        # Who may not note that learns it before the first is gone.
        self._notes.note_replaced(self.purge.topic_ids, self.purge.replicas)
        if others := [topic for topic in topics if topic.target not in self.purge.topic_ids]:
            yield others
        for begin in range(0, len(purged), _PURGED_AT_ONCE):
            yield purged[begin : begin + _PURGED_AT_ONCE]

    def purged_among(self, topics: Iterable[TopicPlan]) -> list[TopicPlan]:
        """Return those that replace what is purged: all of it must be readable before that."""
        return [topic for topic in topics if topic.target in self.purge.topic_ids]

    def provide_for(self, topics: Sequence[TopicPlan], reading: Reading) -> None:
        """Let the targets of topics be purged, by what came of reading all that is to be in their place. Raises NotWholeError."""
        problems = damage_problems(topics, reading, self.purge, skips_damage=self._request.skips_damage)
        if problems:
            raise NotWholeError("\n".join(problems)).in_lines()
        for one in reading.damage:
            log.warning("%s-%d: will not be whole: %s", one.target, one.partition, one.message)
        self._provided_for |= {topic.target: self.purge.topic_ids[topic.target] for topic in topics}

    async def check_names(self, client: KafkaClient, wave: Mapping[str, str], partitions: Mapping[str, int]) -> bool:
        """Refuse what could not be created, whatever is planned for it: that must not wait for its wave. Raises TargetError.

        `partitions`: of each target, as far as is known. Tells whether all is filled as it is wanted; else what a topic would
        lose is known when it is planned.
        """
        problems = [internal_problem(source, target) for source, target in wave.items() if target in INTERNAL_TOPICS]
        counts = {name: partitions.get(name, BROKER_DEFAULT) for name in wave.values()}
        is_as_wanted, refused = await self._agreement.on_names(client, counts)
        _Look(problems=[*problems, *refused, *await rights_problems(client, wave.values(), ())]).refuse()
        return is_as_wanted

    async def prepare(self, client: KafkaClient, names: Collection[str]) -> list[Target]:
        """Create some of the topics, or take them up again, ready to be filled."""
        found, look, created = await self._stand(client, names)
        # Of topics without ids, what was noted may be of another topic: it is finished when this run has done that.
        self._unfinished.update(name for name in look.plans if not found[name].topic_id and not look.is_verified(name))
        for name, plan in self._notes.note_plans(look.plans.values(), _ids(found), self._request.terms).items():
            self._topics[name] = self._belief.plan(
                plan, self._topics[name]
            )  # of two runs at once, the first one's holds
        standing = {name: self._agreement.configs(name) for name in names if look.fills(name) and name not in created}
        await self._configs.set_for_filling(client, {name: found[name] for name in standing}, standing)
        limits, asked = self._agreement.limits(names, look.configs), BatchLimits(self._request.batch_bytes)
        return [_target(self._topics[name], found[name].topic_id, limits.get(name, asked), look) for name in names]

    def finished(self, topic_ids: Mapping[str, str]) -> Collection[str]:
        """Tell which topics have their own configs: this run or an earlier one has set them."""
        return self._notes.finished(topic_ids) - self._unfinished

    def left_out(self, name: str) -> tuple[str, ...]:
        """Tell what of the filling's configs the cluster refuses for a topic, and what holds instead."""
        return self._agreement.left_out(name)

    async def finish(self, client: KafkaClient, topic_ids: Mapping[str, str]) -> dict[str, Finish]:
        """Set the archived configs of topics, once: what was changed after that is the user's, and so is a topic that was there before."""
        noted = [name for name in self.finished(topic_ids) if not self._topics[name].appends]
        self._unfinished |= await self._configs.as_filled(client, noted)
        finished = self.finished(topic_ids)
        unfinished = {name: topic_id for name, topic_id in topic_ids.items() if name not in finished}
        ours = {name: self._topics[name] for name in unfinished if not self._topics[name].appends}
        finishes = await self._configs.set_archived(client, ours, self._request.retention)
        reach("finished.configured")
        left = {name for name, finish in finishes.items() if not finish.is_done}
        self._notes.note_finished({name: unfinished[name] for name in unfinished if name not in left})
        self._unfinished -= unfinished.keys() - left
        if self._request.retention is Retention.ARCHIVED:
            return finishes | await self._configs.with_retention(
                client, {name: (ours[name], finish) for name, finish in finishes.items() if finish.is_done}
            )
        limits = await self._configs.retention_limits(client, filter(self._agreement.is_perhaps_limited, ours))
        return {name: replace(finish, retention=limits.get(name, "")) for name, finish in finishes.items()}

    # --- what is there already

    async def _look(
        self,
        client: KafkaClient,
        found: Mapping[str, TopicDescription],
        plans: Mapping[str, TopicPlan],
        created: AbstractSet[str] = frozenset(),
    ) -> _Look:
        """Tell what each topic that is there means for this restore: to be filled, behind its own records or not, or to be purged.

        `created`: by this run, so that no other restore can have begun them.
        """
        look = _Look(found=found)
        ids = _ids(found)
        look.offsets = offsets = await _offsets(client, found)
        # In this order: who writes records has put its claim before, and its plan before that.
        look.claims, look.joint_claims = self._notes.claims(ids), self._notes.joint_claims(ids)
        noted = self._notes.plans(ids, self._request.terms)
        if self._request.keeps_replicas and (absent := plans.keys() - found.keys()):
            look.replicas = self._notes.replicas_before(absent)
        made = await self._made(client, ids)
        for name in found:
            plan = plans[name]
            if name in noted:
                plan = self._belief.plan(noted[name], plan).mended_by(plan)
            elif look.is_claimed(name):
                look.problems.append(unplanned_problem(name, self._notes.restore_id))
            self._look_at(look, plan, is_begun=name in noted or look.is_claimed(name), is_successor=name in made)
        look.problems += self._begun_problems(look, noted.keys() | created)
        look.problems += self._unverified_problems(look)
        # Another run may have filled some of them, and noted that, since they were asked for their ends.
        offsets |= await _offsets(client, {name: found[name] for name in look.plans if look.cut_short(name)})
        cut = {name: some for name in look.plans if ids[name] and (some := look.cut_short(name))}
        look.problems += lost_problems(cut, self._notes.finished(ids) if cut else ())
        # One that is verified is read back, and nothing is done to it.
        nameless = [name for name in look.plans if not ids[name] and not look.is_verified(name)]
        look.problems += await stranger_problems(client, nameless, look.claims, look.joint_claims, offsets)
        if look.purged:
            kinship = self._archived.kinship(look.purged)
            look.archived = kinship.themselves
            look.problems += unknown_problems(kinship.unknown)
            look.problems += await unarchived_problems(client, look.purge, offsets)
        await self._look_at_appended(client, look)
        return look

    def _look_at(self, look: _Look, plan: TopicPlan, *, is_begun: bool, is_successor: bool) -> None:
        """Tell what becomes of one topic. A successor came after one that this restore has deleted, or when there was none."""
        name, described = plan.target, look.found[plan.target]
        is_made = is_successor and not any(look.ends(name).values())  # by it, or a broker for a client that asked
        if is_begun or (is_made and len(described.partitions) <= plan.target_partitions):
            look.plans[name] = plan
        elif self._request.existing is Existing.PURGE:
            look.purged[name] = described.topic_id
            look.replicas |= {name: max(described.replicas)} if self._request.keeps_replicas else {}
            look.problems += purge_problems(plan, described, look.offsets[name], self._request)
            look.problems += self._late_problems(name, is_successor=is_successor and not is_made)
            look.doubts += choice_doubts(plan, self._request)
            return
        else:
            look.plans[name] = replace(plan, appends=self._request.existing is Existing.APPEND)
        if is_made and not is_begun and len(described.partitions) < plan.target_partitions:
            look.short[name] = plan.target_partitions
            return
        claims = {"is_claimed": look.is_claimed(name), "is_verified": look.is_verified(name)}
        if wrong := list(misfits(look.plans[name], described, look.ends(name), **claims)):
            look.problems += wrong
            look.unfit.add(name)

    async def _look_at_appended(self, client: KafkaClient, look: _Look) -> None:
        """Tell what configs of topics that keep them would do to what comes behind their records."""
        appended = [name for name, plan in look.plans.items() if plan.appends and not look.is_verified(name)]
        look.problems += [problem for name in appended for problem in open_ends(name, look.offsets[name])]
        configs, refused = await topic_configs_each(client, appended)
        for error in refused.values():
            raise error
        look.configs = {
            name: await without_ignored_format(client, name, one.effective) for name, one in configs.items()
        }
        # Of what is begun, a part is ours by now, and was judged before its first record.
        unbegun = {name: effective for name, effective in look.configs.items() if not look.is_claimed(name)}
        held = await held_bytes(client, look.found, unbegun, look.offsets)
        now_ms = self._clock_ms()
        for name, effective in look.configs.items():
            plan = look.plans[name]
            problems = limit_problems(plan, effective, now_ms, self._cluster, held.get(name, NOTHING_HELD))
            self._told(look, plan).extend(problems)

    async def _made(self, client: KafkaClient, ids: Mapping[str, str]) -> set[str]:
        """Tell which topics came after this restore had noted that it would make them: by it, or by brokers for a client that asked.

        One that has configs of somebody else's is somebody else's.
        """
        if self._request.existing is Existing.EMPTY:
            return set()
        # Empty: there was none, which is also all that is known of one without an id.
        came = [name for name, before in self._notes.replaced(ids).items() if before != (ids[name] or None)]
        configs, _ = await topic_configs_each(client, came)
        # Nobody but this restore gives a topic the configs of a filling; one without any may be anybody's, and is made as it
        # should be only where it would be deleted otherwise.
        purges = self._request.existing is Existing.PURGE
        own = {name: configs[name].own if name in configs else None for name in came}
        return {name for name, some in own.items() if (some is None or is_of_filling(some)) and (purges or some)}

    def _begun_problems(self, look: _Look, ours: AbstractSet[str]) -> list[str]:
        """Tell of topics that are not ours and that another restore fills, or will go on to."""
        unbegun = look.plans.keys() - ours - {name for name in look.plans if look.is_claimed(name)}
        ids = {name: topic_id for name in unbegun if (topic_id := look.found[name].topic_id)}
        return [begun_problem(*one) for one in sorted(self._notes.begun_by_others(ids).items())]

    def _unverified_problems(self, look: _Look) -> list[str]:
        """Tell of topics that were noted as finished, and of which not all was noted as verified: that comes first, and stays."""
        claimed = {name: look.found[name].topic_id for name in look.plans if look.is_claimed(name)}
        doubtful = {name: of for name, of in claimed.items() if of and not look.was_verified(name)}
        finished = self._notes.finished(doubtful) if doubtful else ()
        return [unverified_problem(name, self._notes.restore_id) for name in sorted(finished)]

    def _late_problems(self, name: str, *, is_successor: bool) -> list[str]:
        """Tell why a topic is not purged, though others are: nobody can have meant it."""
        is_late = self._existing is not None and name not in self._existing
        return [late_problem(name, is_successor=is_successor)] if is_late or is_successor else []

    def _unread(self, look: _Look) -> list[str]:
        """Tell of topics that took the place of others when those had been looked at."""
        wanted = {name: one for name, one in look.purged.items() if self._existing is None or name in self._existing}
        return unread_problems(wanted, self._provided_for)

    async def _agree(self, client: KafkaClient, look: _Look, plans: Mapping[str, TopicPlan]) -> None:
        """Find out with which configs topics can be filled, and what is wrong with those."""
        new = {name: plan for name, plan in plans.items() if name not in look.plans}
        standing = frozenset(name for name in plans.keys() - look.unfit if look.fills(name))
        look.problems[:0] = await self._creation_problems(client, new, look)
        look.problems += await self._agreement.on_standing(client, standing)
        begun = {name: look.plans[name] for name in standing if any(look.ends(name).values())}
        look.problems += await self._agreement.on_begun(client, begun)
        written = [name for name in plans.keys() - look.unfit if name in new or not look.is_verified(name)]
        look.problems += await rights_problems(client, written, look.purged)
        for plan, problem in self._agreement.harms(new | {name: look.plans[name] for name in standing}, standing):
            self._told(look, plan).append(problem)
        kept = {
            name: Copies(look.configs[name], look.found[name].fewest) for name in look.configs.keys() & plans.keys()
        }
        copies = self._agreement.copies(new.keys() | standing, {name: look.found[name] for name in standing})
        look.problems += await in_sync_problems(client, plans, copies | kept, self._cluster)
        filled = [plans[name] for name in (*new, *standing, *kept)]
        brokers = await self._agreement.on_brokers(client)
        look.problems += filter(None, (brokers.keeps(plan) for plan in filled if plan.target in look.purged))
        for plan in filled:
            self._told(look, plan).extend(filter(None, [brokers.harms(plan)]))

    def _told(self, look: _Look, plan: TopicPlan) -> list[str]:
        """Before records are chosen only bounds are known, of all that there is to choose from."""
        return look.doubts if self._request.is_chosen and not plan.is_chosen else look.problems

    async def _creation_problems(self, client: KafkaClient, plans: Mapping[str, TopicPlan], look: _Look) -> list[str]:
        """A topic that was purged must not turn out to be one that cannot be created, nor may another one beside it."""
        own = [
            internal_problem(plan.source, name)
            for name, plan in plans.items()
            if name in INTERNAL_TOPICS and name not in look.purged
        ]
        if asked := await asked_problems(client, self._request.replication_factor if plans else None):
            return [*own, *asked]
        kept = {name: count for name, count in look.replicas.items() if name in plans}
        short = await kept_problems(client, kept, look.purged)
        others = {name: plan for name, plan in plans.items() if name not in short}
        return [*own, *short.values(), *await self._agreement.on_new(client, others, look.purged, kept)]

    # --- what is made

    async def _stand(
        self, client: KafkaClient, names: Collection[str]
    ) -> tuple[dict[str, TopicDescription], _Look, set[str]]:
        """Purge what is to be purged, and create what is not there, until all targets stand; tells also which were created.

        It can be killed between any two steps, and run beside another run of this restore: what is deleted is named by
        the topic id that was noted before, and is never one that this restore has filled.
        """
        created: set[str] = set()
        for _ in range(_ROUNDS):
            found = await client.describe_topics(names)
            try:
                look = await self._look(client, found, self._topics, created)
            except TopicGoneError:  # another run of this restore has just purged it
                continue
            look.problems += self._unread(look)
            absent = [name for name in names if name not in look.plans]
            new = [
                name
                for name in names
                if name in look.purged or (name not in self._agreement and (name in absent or look.fills(name)))
            ]
            if (
                new
            ):  # since they were checked, and of those that go first once more: others may have been filled meanwhile
                await self._agree(client, look, {name: self._topics[name] for name in new})
            look.refuse()
            if look.short:
                await self._add_partitions(look.short)
                continue
            if not absent:
                return found, look, created
            try:
                kept_back = [name for name in absent if name in look.purged]
                for some in ([name for name in absent if name not in look.purged], kept_back):
                    created |= await self._replace(client, found, look, some) if some else set()
            except TopicGoneError:  # as above
                continue
        raise KafkaError(
            f"the target topics ({', '.join(sorted(names)[:3])}, ...) do not stay: someone else deletes them, or creates"
            " and fills them; stop whoever does, and run the same command again"
        )

    async def _replace(
        self, client: KafkaClient, found: Mapping[str, TopicDescription], look: _Look, names: Sequence[str]
    ) -> set[str]:
        """Purge topics, if they are there, and create them."""
        purged = {name: look.purged[name] for name in names if name in look.purged}
        # 1. Where nothing is purged nobody needs it: then one shows that this user may put notes, before there is anything.
        noted = names[:1] if self._request.existing is Existing.EMPTY else names
        self._notes.note_replaced({name: purged.get(name, "") for name in noted}, look.replicas)
        if purged:
            await self._delete(client, found, look, purged)  # 2.
        return await self._create(client, names, purged)  # 3. and its plan is noted before its first claim

    async def _add_partitions(self, short: Mapping[str, int]) -> None:
        """Take a topic that brokers have made as they make any: while clients ask for it, they would do so again at once."""
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
            await asyncio.sleep(_PAUSE_S)  # it has as many or more: the broker that was looked at had not heard of it

    async def _delete(
        self, client: KafkaClient, found: Mapping[str, TopicDescription], look: _Look, purged: Mapping[str, str]
    ) -> None:
        """Purge topics. What was written since they were looked at counts, up to the last moment that can be seen."""
        await self._look_once_more(client, found, look, purged)
        told = "%s: was deleted with all its records, and is created again (--purge-target)"
        await delete_topics_by_id(client, purged, lambda name: log.warning(told, name))
        reach("target.deleted")

    async def _look_once_more(
        self, client: KafkaClient, found: Mapping[str, TopicDescription], look: _Look, purged: Mapping[str, str]
    ) -> None:
        now = await _offsets(client, {name: found[name] for name in purged})
        archived = {name: one for name, one in look.archived.items() if name in purged}
        look.problems += await unarchived_problems(client, Purge(purged, now, archived), now)
        look.problems += grown_problems(self.purge.offsets, now)
        kept = {name: count for name, count in look.replicas.items() if name in purged}
        look.problems += (await kept_problems(client, kept, purged)).values()
        look.refuse()

    async def _create(self, client: KafkaClient, names: Collection[str], purged: Mapping[str, str]) -> set[str]:
        """Create targets, and tell which were; where another run of this restore does the same right now, theirs is as good."""
        left = list(names)
        created: set[str] = set()
        refused: dict[str, Refusal] = {}
        for _ in range(_LOOKS):
            refused = await self._admin.create_topics(
                {name: self._agreement.to_create(self._topics[name]) for name in left}
            )
            created.update(name for name in left if name not in refused)
            reach("target.created")
            found = await client.describe_topics(left)
            left = [name for name in left if name not in found or found[name].topic_id == purged.get(name)]
            for name in left:
                if name in refused and name not in purged:  # the name of one that was purged may be free a moment later
                    raise refused[name]
            if not left:
                return created
            await asyncio.sleep(_PAUSE_S)
        raise refused.get(left[0]) or KafkaTemporaryError(f"topic {left[0]} was created, but no broker names it")


def _ids(found: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {name: described.topic_id for name, described in found.items()}


async def _offsets(
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


def _target(plan: TopicPlan, topic_id: str, limits: BatchLimits, look: _Look) -> Target:
    if not plan.appends:
        return Target(plan, topic_id, limits)
    joint = look.joint_claims.get(plan.target)
    claimed = {number: claim.start_offset for number, claim in look.claims[plan.target].items()}
    return Target(
        plan,
        topic_id,
        limits,
        first_offsets={**look.ends(plan.target), **claimed, **dict(enumerate(joint.start_offsets if joint else ()))},
    )
