"""Agrees with the cluster on the configs of targets, for the fill and for the end, and finds records that these would harm."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, Replicas, TopicDescription
from archiver.kafka.brokers.codes import Code
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import BROKER_DEFAULT, KafkaAdmin, ToCreate
from archiver.kafka.topics.configs import topic_configs_each
from archiver.process.output.text import spell_count
from archiver.restore.plan.estimate import BatchLimits
from archiver.restore.plan.request import RETENTION_KEYS, Existing, RestoreRequest, Retention
from archiver.restore.plan.restore_plan import UNLIMITED, TopicPlan
from archiver.restore.plan.target_limits import batch_limits, fill_problems, is_small, limit_problems
from archiver.restore.targets.broker_terms import BrokerTerms, broker_terms
from archiver.restore.targets.fill_terms import (
    Configs,
    FillTerms,
    FillTermsOf,
    is_of_configs,
    lacking,
    lasting,
    said_of,
)
from archiver.restore.targets.replicas import TargetReplicas, unmet_in_the_end
from archiver.restore.targets.target_configs import OTHER_CONFIGS, Changes, final_changes, without_unmet
from archiver.restore.targets.target_shape import unlike_problem

Plans = Mapping[str, TopicPlan]


class Agreement:
    """The cluster's answers about the configs of this run's targets. Asking changes nothing."""

    def __init__(
        self, kafka: KafkaSettings, request: RestoreRequest, restore_id: str, clock_ms: Callable[[], int]
    ) -> None:
        self._asked = FillTermsOf(kafka, request, restore_id)
        self._cluster = kafka.for_tools()
        self._restore_id = restore_id
        self._batch_bytes = request.batch_bytes
        self._has_largest = request.retention is not Retention.UNLIMITED
        self._clock_ms = clock_ms
        self._terms: dict[str, FillTerms] = {}
        self._brokers: BrokerTerms | None = None  # once they were asked
        self._admin = KafkaAdmin(kafka)
        self._request = request
        self._replication_factor = request.replication_factor
        self._replication_factors: dict[str, int] = {}  # of topics that keep their former number
        self._purges = request.existing is Existing.PURGE
        self._left_out_in_the_end: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._terms

    def to_create(self, plan: TopicPlan) -> ToCreate:
        """Return how a target is created: its partitions, replicas and configs."""
        terms = self._terms.get(plan.target)
        return ToCreate(
            plan.target_partitions,
            self._replication_factor or self._replication_factors.get(plan.target, BROKER_DEFAULT),
            {} if terms is None else terms.configs,
        )

    def replicas(self, name: str) -> int:
        """Return the number of replicas that a target would be created with; 0: unknown."""
        return self._terms[name].replicas if name in self._terms else 0

    def configs(self, name: str) -> Configs:
        """Return the configs that a target is filled with."""
        return self._terms[name].configs

    def is_perhaps_limited(self, name: str) -> bool:
        """Return whether the cluster refused a config for a target, or was not asked in this run."""
        return name not in self._terms or bool(self._terms[name].refused)

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
        return {name: batch_limits(limited[name], self._batch_bytes, most) for name in names if name in limited}

    async def on_end(self, client: KafkaClient, plans: Plans, found: Mapping[str, TopicDescription]) -> list[str]:
        """Return why the cluster refuses the final configs of targets, with one request for all of them.

        `found`: existing targets; some of them are purged first. Brokers (KRaft) check changed configs by their policy also
        for a new topic.
        """
        agreed = {name: self._terms[name] for name in plans if name in self._terms}
        changes = {name: final_changes(plans[name], one.holding, self._request) for name, one in agreed.items()}
        replicas = {name: one.replicas for name, one in agreed.items() if one.replicas} | {
            name: min(found[name].replicas) for name, one in agreed.items() if not one.replicas and name in found
        }
        unmet = await unmet_in_the_end(client, changes, replicas)
        changes |= {name: without_unmet(changes[name]) for name in unmet}
        self._left_out_in_the_end |= unmet
        created = {name: self.to_create(plans[name]) for name in changes.keys() - found.keys()}
        there = {name: some for name, some in changes.items() if name not in created}
        refused = await self._admin.alter_configs_of_topics(there, validate_only=True)
        refused |= await self._admin.refused_topics(
            {name: replace(one, configs=_changed(one.configs, changes[name])) for name, one in created.items()}
        )
        told = {name: one for name, one in sorted(lasting(refused).items()) if is_of_configs(one)}
        said = "the cluster refuses the configs that the topic is to have in the end ({}); {}"
        return list(_once_each((name, said.format(said_of(one), OTHER_CONFIGS)) for name, one in told.items()))

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

        `replicas`: the former number of replicas of topics that keep it.
        """
        self._replication_factors |= replicas
        terms, refused = await self._asked.of_new(
            client, {name: self.to_create(plan) for name, plan in plans.items()}, purged
        )
        self._terms |= terms
        return self._refusals(refused, purged)

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
        if self._purges:
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
        terms, refused = await self._asked.of_existing(client, names)
        self._terms |= terms
        return [str(error) for _, error in sorted(refused.items())]

    async def on_begun(self, client: KafkaClient, plans: Plans) -> list[str]:
        """Return problems of topics that have records, but lack the configs that a restore sets before the first record.

        Such a topic belongs to someone else, and the facts that name this restore for it are false.
        """
        configs, refused = await topic_configs_each(client, plans.keys() & self._terms.keys())
        for error in refused.values():
            raise error
        return [
            unlike_problem(plans[name], self._restore_id, missing, self._cluster)
            for name, one in configs.items()
            if (missing := lacking(self._terms[name].configs, one.own)) and not self._is_ended(plans[name], one.own)
        ]

    def _is_ended(self, plan: TopicPlan, own: Configs) -> bool:
        """Return whether a topic has exactly the final configs: the run that set them may have been killed before its note."""
        changes = final_changes(plan, self._terms[plan.target].holding, self._request)
        kept = () if self._request.retention is Retention.ARCHIVED else RETENTION_KEYS
        return dict(own) == _changed(dict.fromkeys(kept, UNLIMITED), changes)

    def harms(self, plans: Plans, existing: Collection[str]) -> Iterator[tuple[TopicPlan, str]]:
        """Return the records that targets would change or lose, with the agreed configs."""
        now_ms = self._clock_ms()
        for name, plan in plans.items():
            terms = self._terms.get(name)
            if terms is None or not terms.is_doubtful:
                continue
            if name in existing and not terms.refused:
                problems = limit_problems(plan, terms.holding, now_ms, self._cluster)
            else:
                problems = fill_problems(plan, terms.holding, terms.reasons, now_ms, has_largest=self._has_largest)
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
