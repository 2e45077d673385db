"""What a restore and a cluster have agreed on: with which configs each target is filled, and what that would cost."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from archiver.kafka.admin import BROKER_DEFAULT, KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import Replicas, TopicDescription
from archiver.kafka.settings import KafkaSettings
from archiver.restore import BatchLimits, TopicPlan
from archiver.restore_request import RestoreRequest, Retention
from archiver.spark.bargain import Configs
from archiver.spark.broker_terms import BrokerTerms, broker_terms
from archiver.spark.fill_terms import FillTerms, FillTermsOf
from archiver.spark.final_terms import FinalTerms, ToCreate
from archiver.spark.in_sync import Copies
from archiver.spark.target_configs import final_changes
from archiver.spelling import spell_count
from archiver.target_limits import batch_limits, fill_problems, is_small, limit_problems

Plans = Mapping[str, TopicPlan]


class Agreement:
    """Of one run; it changes nothing."""

    def __init__(
        self, kafka: KafkaSettings, request: RestoreRequest, restore_id: str, clock_ms: Callable[[], int]
    ) -> None:
        self._asked = FillTermsOf(kafka, request, restore_id)
        self._cluster = kafka.for_tools()
        self._batch_bytes = request.batch_bytes
        self._has_largest = request.retention is not Retention.UNLIMITED
        self._clock_ms = clock_ms
        self._terms: dict[str, FillTerms] = {}
        self._brokers: BrokerTerms | None = None  # once they were asked
        self._final = FinalTerms(KafkaAdmin(kafka), request.replication_factor or BROKER_DEFAULT)
        self._retention = request.retention
        self._refused_in_the_end: dict[str, list[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._terms

    def configs(self, name: str) -> Configs:
        """Return what a target is given."""
        return self._terms[name].configs

    def is_perhaps_limited(self, name: str) -> bool:
        """Tell whether the cluster has refused something for a target, or nobody has asked in this run."""
        return name not in self._terms or bool(self._terms[name].refused)

    def left_out(self, name: str) -> tuple[str, ...]:
        """Tell what of the filling's configs the cluster refuses for a target, and what holds instead."""
        return tuple(self._terms[name].told()) if name in self._terms else ()

    def notes(self, names: Iterable[str]) -> Iterator[str]:
        """Tell the same, and what is refused in the end, once for all targets of which it is true."""
        targets: dict[str, list[str]] = {}
        for name in sorted(names):
            for told in (*self.left_out(name), *self._refused_in_the_end.get(name, ())):
                targets.setdefault(told, []).append(name)
        for told, some in targets.items():
            more = f" and {spell_count(len(some) - 1, 'more target')}" if len(some) > 1 else ""
            yield f"{some[0]}{more}: {told}"

    def limits(self, names: Iterable[str], kept: Mapping[str, Configs]) -> dict[str, BatchLimits]:
        """Return how large batches may be for targets that are limited, also by the configs that they keep."""
        most = None if self._brokers is None else self._brokers.request_bytes
        limited = {name: one.holding for name, one in self._terms.items() if one.refused or is_small(most)} | dict(kept)
        return {name: batch_limits(limited[name], self._batch_bytes, most) for name in names if name in limited}

    async def on_end(self, plans: Plans, absent: Collection[str]) -> None:
        """Ask for the configs that targets are to have in the end; some of them are `absent`."""
        agreed = {name: self._terms[name] for name in plans if name in self._terms}
        changes = {name: final_changes(plans[name], one.holding, self._retention) for name, one in agreed.items()}
        to_create = {
            name: ToCreate(plans[name].target_partitions, agreed[name].configs) for name in absent if name in agreed
        }
        self._refused_in_the_end |= await self._final.told(changes, to_create)

    async def on_brokers(self, client: KafkaClient) -> BrokerTerms:
        """Ask what brokers allow, whatever the configs of a topic are; once."""
        self._brokers = self._brokers or await broker_terms(client)
        return self._brokers

    def copies(self, names: Iterable[str], standing: Mapping[str, TopicDescription]) -> dict[str, Copies]:
        """Return what targets have, those that stand, or would have, as far as that is known."""
        found: dict[str, Copies] = {}
        for name in names:
            terms = self._terms.get(name)
            if terms is not None and name in standing:
                found[name] = Copies(terms.holding, standing[name].fewest)
            elif terms is not None and terms.replicas > 0:
                found[name] = Copies(terms.holding, Replicas(terms.replicas, terms.replicas, 0), is_new=True)
        return found

    async def on_names(self, client: KafkaClient, counts: Mapping[str, int]) -> tuple[bool, list[str]]:
        """Tell whether topics of these names would be filled as is wanted, and why some cannot be created."""
        terms, refused = await self._asked.of_new(client, counts)
        is_as_wanted = not is_small((await self.on_brokers(client)).request_bytes)
        is_as_wanted = is_as_wanted and not any(one.is_doubtful for one in terms.values())
        return is_as_wanted, [str(error) for _, error in sorted(refused.items())]

    async def on_new(self, client: KafkaClient, plans: Plans, purged: Collection[str]) -> list[str]:
        """Agree on topics that are to be created; returns why some cannot be."""
        counts = {name: plan.target_partitions for name, plan in plans.items()}
        terms, refused = await self._asked.of_new(client, counts, purged)
        self._terms |= terms
        unpurged = {name: f"target topic {name} is not purged: " for name in purged}
        return [f"{unpurged.get(name, '')}{error}" for name, error in sorted(refused.items())]

    async def on_standing(self, client: KafkaClient, names: frozenset[str]) -> list[str]:
        """Agree on topics that are there; returns why some cannot be changed."""
        terms, refused = await self._asked.of_standing(client, names)
        self._terms |= terms
        return [str(error) for _, error in sorted(refused.items())]

    def harms(self, plans: Plans, standing: Collection[str]) -> Iterator[tuple[TopicPlan, str]]:
        """Tell what targets would not leave as it was, with the configs that were agreed on."""
        now_ms = self._clock_ms()
        for name, plan in plans.items():
            terms = self._terms.get(name)
            if terms is None or not terms.is_doubtful:
                continue
            if name in standing and not terms.refused:
                problems = limit_problems(plan, terms.holding, now_ms, self._cluster)
            else:
                problems = fill_problems(plan, terms.holding, terms.reasons, now_ms, has_largest=self._has_largest)
            yield from ((plan, problem) for problem in problems)
