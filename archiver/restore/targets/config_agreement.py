"""Agrees with the cluster on the configs of targets, for the fill and for the end, and finds records that these would harm."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping

from archiver.archive.format.message_format import without_ignored_format
from archiver.archive.format.store_clock import machine_now_ms
from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, Replicas, TopicDescription
from archiver.kafka.brokers.codes import DENIED, Code
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import BROKER_DEFAULT, KafkaAdmin, ToCreate
from archiver.kafka.topics.configs import topic_configs_each
from archiver.kafka.topics.creation import if_created, never_created
from archiver.process.output.text import spell_count
from archiver.restore.plan.estimate import BatchLimits
from archiver.restore.plan.request import RETENTION_KEYS, Existing, RestoreRequest, Retention
from archiver.restore.plan.restore_plan import FILL_CONFIGS, TopicPlan
from archiver.restore.plan.target_limits import batch_limits, fill_problems, is_small, limit_problems
from archiver.restore.targets.broker_terms import BrokerTerms, broker_terms
from archiver.restore.targets.fill_terms import (
    Accepted,
    Configs,
    FillTerms,
    accepted,
    is_of_configs,
    lacking,
    lasting,
    said_of,
)
from archiver.restore.targets.replicas import TargetReplicas, unmet_in_the_end
from archiver.restore.targets.target_configs import OTHER_CONFIGS, Changes, final_changes, without_unmet
from archiver.restore.targets.target_shape import unlike_problem

Plans = Mapping[str, TopicPlan]
_LARGEST_NAME = 249
_SHORTEST_MARK = 8  # of a substitute for a name that is too long to extend
_ANY_CHANGE = {"cleanup.policy": "delete"}


class Agreement:
    """The cluster's answers about the configs of this run's targets. Asking changes nothing."""

    def __init__(self, kafka: KafkaSettings, request: RestoreRequest, restore_id: str) -> None:
        self._kafka = kafka
        self._admin = KafkaAdmin(kafka)
        self._request = request
        self._restore_id = restore_id
        # A topic with limits of retention in the end can have the largest limits while it is filled.
        self._sought = () if request.retention is Retention.UNLIMITED else RETENTION_KEYS
        self._terms: dict[str, FillTerms] = {}
        self._defaults: Configs = {}  # of a new topic, once known
        self._default_replicas = 0  # of a new topic, once known
        self._brokers: BrokerTerms | None = None  # once they were asked
        self._kept_replicas: dict[str, int] = {}  # of topics that keep their former number
        self._left_out_in_the_end: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._terms

    def to_create(self, plan: TopicPlan, configs: Configs | None = None) -> ToCreate:
        """Return how a target is created: its partitions, replicas and configs; None: those of the filling."""
        replicas = self._request.replication_factor or self._kept_replicas.get(plan.target, BROKER_DEFAULT)
        return ToCreate(plan.target_partitions, replicas, self.configs(plan.target) if configs is None else configs)

    def replicas(self, name: str) -> int:
        """Return the number of replicas that a target would be created with; 0: unknown."""
        return self._terms[name].replicas if name in self._terms else 0

    def configs(self, name: str) -> Configs:
        """Return the configs that a target is filled with; none before they were agreed on."""
        return self._terms[name].configs if name in self._terms else {}

    def left_out(self, name: str) -> tuple[str, ...]:
        """Return the configs of the filling that the cluster refuses for a target, and the values in force instead."""
        return tuple(self._terms[name].notes()) if name in self._terms else ()

    def notes(self, names: Iterable[str]) -> Iterator[str]:
        """Return a sentence for each config that targets do not get, for the fill or in the end, with the number of targets."""
        yield from _once_each(
            (name, told)
            for name in sorted(names)
            for told in (*self.left_out(name), self._left_out_in_the_end.get(name, ""))
        )

    def limits(self, names: Iterable[str], kept: Mapping[str, Configs]) -> dict[str, BatchLimits]:
        """Return the batch limits of targets that have any, also by configs that they keep."""
        most = None if self._brokers is None else self._brokers.request_bytes
        limited = {name: one.holding for name, one in self._terms.items() if one.refused or is_small(most)} | dict(kept)
        return {name: batch_limits(limited[name], self._request.batch_bytes, most) for name in names if name in limited}

    async def on_end(
        self, client: KafkaClient, plans: Plans, found: Mapping[str, TopicDescription], purged: Collection[str]
    ) -> list[str]:
        """Return why the cluster refuses the final configs of targets, with one request for all of them.

        `found`: existing targets, the `purged` ones included. Brokers (KRaft) check changed configs by their policy also for a
        new topic.
        """
        agreed = {name: self._terms[name] for name in plans if name in self._terms}
        changes = {
            name: final_changes(plans[name], one.holding, one.own, self._request) for name, one in agreed.items()
        }
        replicas = {name: one.replicas for name, one in agreed.items() if one.replicas} | {
            name: min(found[name].replicas) for name, one in agreed.items() if not one.replicas and name in found
        }
        unmet = await unmet_in_the_end(client, changes, replicas)
        changes |= {name: without_unmet(changes[name]) for name in unmet}
        self._left_out_in_the_end |= unmet
        there = {name: some for name, some in changes.items() if name in found and name not in purged}
        refused = await self._admin.alter_configs_of_topics(there, validate_only=True)
        created = {name: _changed(agreed[name].own, some) for name, some in changes.items() if name not in there}
        refused |= await self._refused({name: plans[name] for name in created}, purged, created)
        told = {name: one for name, one in sorted(lasting(refused).items()) if is_of_configs(one)}
        said = "the cluster refuses the configs that the topic is to have in the end ({}); {}"
        return list(_once_each((name, said.format(said_of(one), OTHER_CONFIGS)) for name, one in told.items()))

    async def _refused(
        self, plans: Plans, purged: Collection[str], configs: Mapping[str, Configs]
    ) -> dict[str, Refusal]:
        """Return the new topics that the cluster refuses with these configs. `purged` ones are asked for under free names."""
        asked = {self._asked_as(name, purged): self.to_create(plans[name], some) for name, some in configs.items()}
        refused = lasting(await self._admin.refused_topics(asked))
        return {name: refused[other] for name in configs if (other := self._asked_as(name, purged)) in refused}

    async def on_brokers(self, client: KafkaClient) -> BrokerTerms:
        """Read once the brokers' own limits, which hold for any config of a topic."""
        self._brokers = self._brokers or await broker_terms(client)
        return self._brokers

    def target_replicas(
        self, names: Iterable[str], existing: Mapping[str, TopicDescription]
    ) -> dict[str, TargetReplicas]:
        """Return the known configs and replicas that targets have, or would have."""
        found: dict[str, TargetReplicas] = {}
        for name in names:
            terms = self._terms.get(name)
            if terms is not None and name in existing:
                found[name] = TargetReplicas(terms.holding, existing[name].fewest)
            elif terms is not None and terms.replicas > 0:
                found[name] = TargetReplicas(terms.holding, Replicas(terms.replicas, terms.replicas, 0), is_new=True)
        return found

    async def on_new(
        self, client: KafkaClient, plans: Plans, purged: Collection[str], replicas: Mapping[str, int]
    ) -> list[str]:
        """Agree on the configs of new topics; returns why some cannot be created.

        `purged` topics still exist: until they are deleted, free names that begin like theirs are validated. `replicas`: the
        former number of replicas of topics that keep it.
        """
        self._kept_replicas |= replicas

        async def ask(wanted: Mapping[str, Configs]) -> Mapping[str, Refusal]:
            return await self._refused(plans, purged, wanted)

        known = await self._known_of_new(client, plans, purged)
        agreed, refused = await accepted(ask, dict.fromkeys(plans, self._defaults), known, self._sought)
        untold = {
            self._asked_as(name, purged): self.to_create(plans[name], one.configs)
            for name, one in agreed.items()
            if one.refused and not self._defaults
        }
        told = await if_created(self._kafka, untold)
        for name, one in agreed.items():
            other = self._asked_as(name, purged)
            if other in untold and other not in told:
                refused[name] = _still_unchanged(name)
                continue
            holding = told[other].configs if other in told else {**self._defaults, **one.configs}
            replicas_of = max(self.to_create(plans[name], {}).replication_factor, 0) or self._default_replicas
            self._terms[name] = _terms(one, one.configs, holding, replicas_of)
        refused = {name: _explained(error, name, self._asked_as(name, purged)) for name, error in refused.items()}
        denied = await self._admin.alter_configs_of_topics(dict.fromkeys(plans, _ANY_CHANGE), validate_only=True)
        refused |= {name: error for name, error in denied.items() if _is_denied(error)}
        # The right for the substitute may be another one.
        never = await never_created(self._kafka, [name for name in plans if name in purged and name not in refused])
        return self._refusals(refused | {name: _never_again(name) for name in never}, purged)

    async def _known_of_new(self, client: KafkaClient, plans: Plans, purged: Collection[str]) -> Configs:
        """Return the wanted configs that the cluster knows, from a validation of any new topic that this user may create.

        A topic with the cluster's default number of replicas is validated first: then that number is known, too.
        """
        of_default = [name for name in plans if self.to_create(plans[name], {}).replication_factor < 0]
        if plans and (not self._defaults or (of_default and not self._default_replicas)):
            name = min(of_default or plans)
            other = self._asked_as(name, purged)
            tried = (await if_created(self._kafka, {other: self.to_create(plans[name], {})})).get(other)
            self._defaults = tried.configs if tried else self._defaults
            self._default_replicas = tried.replicas if tried and of_default else self._default_replicas
        if self._defaults or not plans:
            return _known(self._defaults)
        # The configs of a new topic are unknown: those of an existing topic suffice, even one that another run has just created.
        described, _ = await topic_configs_each(client, list(purged or plans)[:1])
        return _known(next((one.effective for one in described.values()), {}))

    def _asked_as(self, name: str, purged: Collection[str]) -> str:
        """Return the name under which a new topic is validated.

        Instead of a purged one, a free name that begins with this name, so that prefixed rights cover both; shorter, if it
        would be too long.
        """
        if name not in purged:
            return name
        end, room = f"-archiver-{self._restore_id}", _LARGEST_NAME - len(name)
        if len(end) > room:
            digest = f"-{hashlib.sha256(f'{end} {name}'.encode()).hexdigest()}"
            end = digest[: room or _SHORTEST_MARK]
        return name[: _LARGEST_NAME - len(end)] + end

    def _refusals(self, refused: Mapping[str, Refusal], purged: Collection[str]) -> list[str]:
        told = []
        for name, error in sorted(refused.items()):
            unpurged = f"target topic {name} is not purged: " if name in purged else ""
            told.append(f"{unpurged}{error}{self._way_past(error)}")
        return told

    def _way_past(self, error: Refusal) -> str:
        """Return advice on a policy that refuses all configs of a filling."""
        if getattr(error, "code", 0) != Code.POLICY_VIOLATION:
            return ""
        if self._request.existing is Existing.PURGE:
            return (
                "; create a topic yourself with what the policy demands, and restore into it with --rename SOURCE=NEW,"
                " without --purge-target: an empty topic is filled"
            )
        return (
            "; create it yourself with what the policy demands, and run the same command again: an empty topic is filled"
            " (with --into-existing its configs stay as they are)"
        )

    async def on_existing(self, client: KafkaClient, names: frozenset[str]) -> list[str]:
        """Agree on the configs of existing topics; returns why some cannot be changed."""
        described, unknown = await topic_configs_each(client, names)
        for error in unknown.values():
            raise error
        known = _known(described[min(names)].effective) if names else {}

        async def ask(wanted: Mapping[str, Configs]) -> dict[str, Refusal]:
            return lasting(await self._admin.alter_configs_of_topics(wanted, validate_only=True))

        held = {name: one.effective for name, one in described.items()}
        agreed, refused = await accepted(ask, held, known, self._sought)
        for name, one in agreed.items():
            holding = await without_ignored_format(client, name, {**held[name], **one.configs})
            self._terms[name] = _terms(one, {**described[name].own, **one.configs}, holding)
        return [str(error) for _, error in sorted(refused.items())]

    async def on_begun(self, client: KafkaClient, plans: Plans) -> list[str]:
        """Return problems of topics that have records, but lack the configs that a restore sets before the first record.

        Such a topic belongs to someone else, and the facts that name this restore for it are false.
        """
        configs, refused = await topic_configs_each(client, plans.keys() & self._terms.keys())
        for error in refused.values():
            raise error
        return [
            unlike_problem(plans[name], self._restore_id, missing, self._kafka.for_tools())
            for name, one in configs.items()
            if (missing := lacking(self._terms[name].configs, one.own))
        ]

    def harms(self, plans: Plans, existing: Collection[str]) -> Iterator[tuple[TopicPlan, str]]:
        """Return the records that targets would change or lose, with the agreed configs."""
        now_ms = machine_now_ms()
        for name, plan in plans.items():
            terms = self._terms.get(name)
            if terms is None or not terms.is_doubtful:
                continue
            if name in existing and not terms.refused:
                problems = limit_problems(plan, terms.holding, now_ms, self._kafka.for_tools())
            else:
                problems = fill_problems(plan, terms.holding, terms.reasons, now_ms, has_largest=bool(self._sought))
            yield from ((plan, problem) for problem in problems)


def _once_each(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Return each sentence about a target once, with the number of other targets that it applies to."""
    targets: dict[str, list[str]] = {}
    for name, sentence in told:
        targets.setdefault(sentence, []).append(name)
    for sentence, some in targets.items():
        more = f" and {spell_count(len(some) - 1, 'more target')}" if len(some) > 1 else ""
        if sentence:
            yield f"{some[0]}{more}: {sentence}"


def _changed(configs: Configs, changes: Changes) -> dict[str, str]:
    """Return configs with changes applied."""
    return {name: value for name, value in {**configs, **changes}.items() if value is not None}


def _known(among: Configs) -> Configs:
    """Return the configs of a filling that the cluster has, by the names in `among`. If that is empty, all are requested."""
    return {name: value for name, value in FILL_CONFIGS.items() if name in among} if among else FILL_CONFIGS


def _terms(agreed: Accepted, own: Configs, holding: Configs, replicas: int = 0) -> FillTerms:
    refused = {name: why for name, why in agreed.refused.items() if name in holding}
    return FillTerms(agreed.configs, own, holding, replicas, refused)


def _is_denied(error: Refusal) -> bool:
    return isinstance(error, KafkaError) and error.code in DENIED


def _explained(error: Refusal, name: str, asked_as: str) -> Refusal:
    if asked_as == name or not isinstance(error, KafkaError):
        return error
    if _is_denied(error):
        prefix = name if asked_as.startswith(name) else asked_as[:-_SHORTEST_MARK]
        return KafkaError(
            "whether it could be created again cannot be asked, which takes a free name that begins like it; grant this user"
            f" Create on topics with the prefix {prefix}, or delete it yourself, and restore again"
        )
    return KafkaError(str(error).replace(asked_as, f"{asked_as}, asked for in its place,", 1), code=error.code)


def _never_again(name: str) -> Refusal:
    return KafkaError(
        f"it could not be created again; grant this user Create on topic {name}, or on the cluster",
        code=Code.TOPIC_AUTHORIZATION_FAILED,
    )


def _still_unchanged(name: str) -> Refusal:
    return KafkaError(
        f"topic {name}: the cluster refuses configs that a restore fills with, and does not tell what would hold instead;"
        f" grant this user DescribeConfigs on topic {name}"
    )
