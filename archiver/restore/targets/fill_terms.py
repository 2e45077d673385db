"""Finds the configs for filling each target that the cluster accepts, and why it refuses others, before anything is changed."""

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from archiver.archive.format.message_format import has_old_format, without_ignored_format
from archiver.codec.selection import LAST_LONG
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.brokers.codes import DENIED, Code
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import KafkaAdmin, ToCreate
from archiver.kafka.topics.configs import topic_configs_each
from archiver.kafka.topics.creation import if_created, never_created
from archiver.restore.plan.request import RETENTION_KEYS, RestoreRequest, Retention
from archiver.restore.plan.restore_plan import FILL_CONFIGS

Configs = Mapping[str, str]
Ask = Callable[[Mapping[str, Configs]], Awaitable[Mapping[str, Refusal]]]  # returns the refused topics

_OF_CONFIGS = frozenset({Code.POLICY_VIOLATION, Code.INVALID_CONFIG})
_LARGEST_NAME = 249
_SHORTEST_MARK = 8  # of a substitute for a name that is too long to extend
_POLICY = "cleanup.policy"
_ANY_CHANGE = {_POLICY: "delete"}
_TAKEN_BACK = (_POLICY, "message.timestamp.type", "segment.bytes", "segment.ms")
_LIMITED = (*RETENTION_KEYS, "max.message.bytes")  # configs that clusters limit


@dataclass(frozen=True, slots=True)
class Accepted:
    """The configs of a filling that the cluster accepts for a topic, and why it refuses the others."""

    configs: Configs
    refused: Mapping[str, Refusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FillTerms:
    """The configs of one topic for its filling, and the wanted ones that the cluster refuses."""

    configs: Configs  # set on the topic
    holding: Configs  # all configs of the topic then
    replicas: int = 0  # of a new topic; 0: unknown
    refused: Mapping[str, Refusal] = field(default_factory=dict)  # by config: why it differs from the wanted value

    @property
    def is_doubtful(self) -> bool:
        """Whether a topic with these configs may delete or refuse restored records."""
        return bool(self.refused) or has_old_format(self.holding)

    @property
    def reasons(self) -> dict[str, str]:
        """Why the cluster refuses configs of the filling, by config, in its own words."""
        return {name: said_of(error) for name, error in self.refused.items()}

    def notes(self) -> Iterator[str]:
        """Return a sentence for each config that differs from the wanted one during the fill."""
        for name, said in self.reasons.items():
            yield f"the cluster refuses {name}={FILL_CONFIGS[name]} ({said}); it is filled with {name}={self.holding[name]}"


class FillTermsOf:
    """Finds the terms of topics, with a few requests to the cluster for all topics together."""

    def __init__(self, kafka: KafkaSettings, request: RestoreRequest, restore_id: str) -> None:
        self._kafka = kafka
        self._admin = KafkaAdmin(kafka)
        self._mark = f"-archiver-{restore_id}"
        # A topic with limits of retention in the end can have the largest limits while it is filled.
        self._sought = () if request.retention is Retention.UNLIMITED else RETENTION_KEYS
        self._defaults: Configs = {}  # of a new topic, once known
        self._replicas = 0  # by default

    async def of_new(
        self, client: KafkaClient, topics: Mapping[str, ToCreate], taken: Collection[str] = ()
    ) -> tuple[dict[str, FillTerms], dict[str, Refusal]]:
        """Return the terms of new topics, and why others cannot be created.

        Topics in `taken` still exist, and are purged first: until then, free names that begin like theirs are validated.
        """
        asked_as = {name: self._stand_in(name, number) if name in taken else name for number, name in enumerate(topics)}
        asked = {asked_as[name]: topic for name, topic in topics.items()}

        async def ask(wanted: Mapping[str, Configs]) -> dict[str, Refusal]:
            return lasting(
                await self._admin.refused_topics(
                    {name: replace(asked[name], configs=configs) for name, configs in wanted.items()}
                )
            )

        known = await self._known_of_new(client, asked, taken)
        agreed, refused = await accepted(ask, dict.fromkeys(asked, self._defaults), known, self._sought)
        untold = {
            name: replace(asked[name], configs=one.configs)
            for name, one in agreed.items()
            if one.refused and not self._defaults
        }
        told = await if_created(self._kafka, untold)
        refused |= {name: _still_unchanged(name) for name in untold.keys() - told}
        terms = {
            name: _terms(
                agreed[other],
                told[other].configs if other in told else {**self._defaults, **agreed[other].configs},
                max(topics[name].replication_factor, 0) or self._replicas,
            )
            for name, other in asked_as.items()
            if other not in refused
        }
        why = {name: _explained(refused[other], name, other) for name, other in asked_as.items() if other in refused}
        why |= await self._denied(topics)
        return terms, why | await self._never_again([name for name in topics if name in taken and name not in why])

    async def _known_of_new(
        self, client: KafkaClient, topics: Mapping[str, ToCreate], taken: Collection[str]
    ) -> Configs:
        """Return the wanted configs that the cluster knows, from a validation of any new topic that this user may create.

        A topic with the cluster's default number of replicas is validated first: then that number is known, too.
        """
        of_default = [name for name, topic in topics.items() if topic.replication_factor < 0]
        if topics and (not self._defaults or (of_default and not self._replicas)):
            name = min(of_default or topics)
            tried = (await if_created(self._kafka, {name: topics[name]})).get(name)
            self._defaults = tried.configs if tried else self._defaults
            self._replicas = tried.replicas if tried and of_default else self._replicas
        if self._defaults or not topics:
            return _known(self._defaults)
        # The configs of a new topic are unknown: those of an existing topic suffice, even one that another run has just created.
        described, _ = await topic_configs_each(client, list(taken or topics)[:1])
        return _known(next((one.effective for one in described.values()), {}))

    async def _denied(self, names: Iterable[str]) -> dict[str, Refusal]:
        """Return the topics whose archived configs this user may not set: brokers check that for absent topics, too."""
        refused = await self._admin.alter_configs_of_topics(dict.fromkeys(names, _ANY_CHANGE), validate_only=True)
        return {name: error for name, error in refused.items() if _is_denied(error)}

    async def _never_again(self, names: Collection[str]) -> dict[str, Refusal]:
        """Return the taken names that this user may not create: the right for the substitute may be another one."""
        return {
            name: KafkaError(
                f"it could not be created again; grant this user Create on topic {name}, or on the cluster",
                code=Code.TOPIC_AUTHORIZATION_FAILED,
            )
            for name in await never_created(self._kafka, names)
        }

    async def of_existing(
        self, client: KafkaClient, names: frozenset[str]
    ) -> tuple[dict[str, FillTerms], dict[str, Refusal]]:
        """Return the terms of topics that exist, and why the configs of others cannot be changed."""
        described, unknown = await topic_configs_each(client, names)
        for error in unknown.values():
            raise error
        known = _known(described[min(names)].effective) if names else {}

        async def ask(wanted: Mapping[str, Configs]) -> dict[str, Refusal]:
            return lasting(await self._admin.alter_configs_of_topics(wanted, validate_only=True))

        held = {name: one.effective for name, one in described.items()}
        agreed, refused = await accepted(ask, held, known, self._sought)
        terms = {
            name: _terms(one, await without_ignored_format(client, name, {**described[name].effective, **one.configs}))
            for name, one in agreed.items()
        }
        return terms, refused

    def _stand_in(self, name: str, number: int) -> str:
        """Return a free name that begins with this name, so that prefixed rights cover both; shorter, if it would be too long."""
        end, room = f"{self._mark}-{number}", _LARGEST_NAME - len(name)
        if len(end) > room:
            digest = f"-{hashlib.sha256(f'{end} {name}'.encode()).hexdigest()}"
            end = digest[: room or _SHORTEST_MARK]
        return name[: _LARGEST_NAME - len(end)] + end


async def accepted(
    ask: Ask, held: Mapping[str, Configs], wanted: Configs, sought: Collection[str]
) -> tuple[dict[str, Accepted], dict[str, Refusal]]:
    """Return the wanted configs that the cluster accepts for each topic, and the topics that it refuses without any.

    One request suffices if the cluster accepts all. Otherwise the refused topics are validated config by config, and then
    with all accepted ones. `held`: each topic's configs without these. `sought`: configs whose largest accepted
    value is used.
    """
    refused = dict(await ask(dict.fromkeys(held, wanted)))
    found = {name: Accepted(wanted) for name in held if name not in refused}
    taken: dict[str, dict[str, str]] = {name: {} for name, error in refused.items() if is_of_configs(error)}
    reasons: dict[str, dict[str, Refusal]] = {name: {} for name in taken}
    for config, value in wanted.items() if taken else ():
        answers = await ask({name: {config: value} for name in taken})
        for name, some in taken.items():
            if name in answers:
                reasons[name][config] = answers[name]
            else:
                some[config] = value
    for config in sought:
        limits = {name: int(held[name].get(config, 0)) for name, why in reasons.items() if config in why}
        for name, value in (await _largest(ask, config, limits)).items():
            taken[name][config] = value
    final = {name: error for name, error in refused.items() if name not in taken} | dict(await ask(taken))
    return found | {name: Accepted(some, reasons[name]) for name, some in taken.items() if name not in final}, final


async def _largest(ask: Ask, config: str, limits: Mapping[str, int]) -> dict[str, str]:
    """Find the largest accepted value of a config for several topics at once, above their limits; negative: no limit."""
    bounds = {name: (limit, LAST_LONG) for name, limit in limits.items() if limit >= 0}
    found: dict[str, str] = {}
    while tried := {name: (low + high) // 2 for name, (low, high) in bounds.items() if high - low > 1}:
        answers = await ask({name: {config: str(value)} for name, value in tried.items()})
        for name, value in tried.items():
            low, high = bounds[name]
            bounds[name] = (low, value) if name in answers else (value, high)
        found |= {name: str(value) for name, value in tried.items() if name not in answers}
    return found


def said_of(error: Refusal) -> str:
    """Return why a topic was refused, in the cluster's own words."""
    return getattr(error, "said", "") or str(error)


def is_of_configs(error: Refusal) -> bool:
    """Return whether a topic was refused for its configs."""
    return isinstance(error, KafkaError) and error.code in _OF_CONFIGS


def is_of_filling(own: Configs) -> bool:
    """Return whether a topic's own configs can be those of a filling: it has none, or only configs that a restore sets."""
    return not own or (_POLICY in own and all(FILL_CONFIGS.get(name) == own[name] or name in _LIMITED for name in own))


def lacking(wanted: Configs, own: Configs) -> dict[str, str]:
    """Return the `wanted` configs of a filling that a topic lacks, or has with other values.

    Configs that clusters limit are not compared: their values differ from topic to topic.
    """
    return {name: value for name, value in wanted.items() if name not in _LIMITED and own.get(name) != value}


def is_as_filled(own: Configs) -> bool:
    """Return whether a topic has all configs that are removed at the end: only a restore sets all of these."""
    return not lacking({name: FILL_CONFIGS[name] for name in _TAKEN_BACK}, own)


def _known(among: Configs) -> Configs:
    """Return the configs of a filling that the cluster has, by the names in `among`. If that is empty, all are requested."""
    return {name: value for name, value in FILL_CONFIGS.items() if name in among} if among else FILL_CONFIGS


def _terms(agreed: Accepted, holding: Configs, replicas: int = 0) -> FillTerms:
    refused = {name: why for name, why in agreed.refused.items() if name in holding}
    return FillTerms(agreed.configs, holding, replicas, refused)


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


def _still_unchanged(name: str) -> Refusal:
    return KafkaError(
        f"topic {name}: the cluster refuses configs that a restore fills with, and does not tell what would hold instead;"
        f" grant this user DescribeConfigs on topic {name}"
    )


def lasting(refused: dict[str, Refusal]) -> dict[str, Refusal]:
    """Return the refusals. Raises the first one that is temporary."""
    for error in refused.values():
        if isinstance(error, KafkaTemporaryError):
            raise error
    return refused


def _is_denied(error: Refusal) -> bool:
    return isinstance(error, KafkaError) and error.code in DENIED
