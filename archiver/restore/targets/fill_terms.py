"""The configs of one target for its filling, and the search for those that the cluster accepts. Used by config_agreement."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from archiver.archive.format.message_format import has_old_format
from archiver.codec.selection import LAST_LONG
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.brokers.codes import Code
from archiver.restore.plan.request import RETENTION_KEYS
from archiver.restore.plan.restore_plan import FILL_CONFIGS

Configs = Mapping[str, str]
Ask = Callable[[Mapping[str, Configs]], Awaitable[Mapping[str, Refusal]]]  # returns the refused topics

_OF_CONFIGS = frozenset({Code.POLICY_VIOLATION, Code.INVALID_CONFIG})
_POLICY = "cleanup.policy"
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
    own: Configs  # all configs that are set on it then; an existing topic may have others
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


def lasting(refused: dict[str, Refusal]) -> dict[str, Refusal]:
    """Return the refusals. Raises the first one that is temporary."""
    for error in refused.values():
        if isinstance(error, KafkaTemporaryError):
            raise error
    return refused
