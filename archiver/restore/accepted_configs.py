"""Which of the wanted configs a cluster accepts for topics, and up to which value: a search by requests that only validate."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from archiver.errors import KafkaError
from archiver.kafka.cluster import Refusal
from archiver.kafka.codes import Code

Configs = Mapping[str, str]
Ask = Callable[[Mapping[str, Configs]], Awaitable[Mapping[str, Refusal]]]  # by topic: which are refused all of them

_OF_CONFIGS = frozenset({Code.POLICY_VIOLATION, Code.INVALID_CONFIG})


@dataclass(frozen=True, slots=True)
class Agreed:
    """The configs that a topic is given, of those that are wanted for it."""

    configs: Configs
    refused: Mapping[str, Refusal] = field(default_factory=dict)  # configs left out or changed, and why


@dataclass(frozen=True, slots=True)
class ConfigSearch:
    """Asks a cluster which configs topics can have.

    `sought` are configs with a value that is too large: where the wanted value of one is refused, the largest accepted value is
    searched for between the topic's own value and the wanted value.
    """

    ask: Ask
    wanted: Configs
    sought: Mapping[str, int]
    defaults: Callable[[str], Configs]  # what a topic has that is given nothing

    async def find(self, names: Collection[str]) -> tuple[dict[str, Agreed], dict[str, Refusal]]:
        """Return what topics are given, and which are refused whatever they are given.

        One question is enough where a cluster takes all. Else one topic of each kind of refusal is asked about config by
        config, and the others are offered the same; those that do not take that are asked about each for itself.
        """
        refused = await self.ask(dict.fromkeys(names, self.wanted))
        agreed = {name: Agreed(self.wanted) for name in names if name not in refused}
        final = {name: error for name, error in refused.items() if not is_of_configs(error)}
        kinds = {name: str(error).replace(name, "") for name, error in refused.items() if name not in final}
        first = {kind: name for name, kind in reversed(kinds.items())}
        offers, no_offers = await self._offers(first.values())
        offered = {name: offers[first[kind]] for name, kind in kinds.items() if first[kind] in offers}
        declined = await self.ask({name: offer.configs for name, offer in offered.items() if name not in offers})
        agreed |= {name: offer for name, offer in offered.items() if name not in declined}
        others, without = await self._offers(kinds.keys() - agreed.keys() - set(first.values()))
        return agreed | others, final | no_offers | without

    async def _offers(self, names: Iterable[str]) -> tuple[dict[str, Agreed], dict[str, Refusal]]:
        """Ask for each topic config by config, then for its accepted configs together."""
        taken: dict[str, dict[str, str]] = {name: {} for name in sorted(names)}
        refused: dict[str, dict[str, Refusal]] = {name: {} for name in taken}
        for config, value in self.wanted.items():
            answers = await self._ask_alone(config, dict.fromkeys(taken, value))
            for name, some in taken.items():
                if name in answers:
                    refused[name][config] = answers[name]
                else:
                    some[config] = value
        for config, too_large in self.sought.items():
            among = {name: int(self.defaults(name).get(config, 0)) for name, some in refused.items() if config in some}
            bounds = {name: (held, too_large) for name, held in among.items() if held >= 0}  # below: no limit
            for name, largest in (await self._largest(config, bounds)).items():
                taken[name][config] = str(largest)
        final = await self.ask(taken)
        return {name: Agreed(taken[name], refused[name]) for name in taken if name not in final}, dict(final)

    async def _largest(self, config: str, within: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Halve ranges of values until the largest accepted value of each is known, for several topics at once."""
        bounds = dict(within)
        found: dict[str, int] = {}
        while tried := {name: (low + high) // 2 for name, (low, high) in bounds.items() if high - low > 1}:
            answers = await self._ask_alone(config, {name: str(value) for name, value in tried.items()})
            for name, value in tried.items():
                low, high = bounds[name]
                bounds[name] = (low, value) if name in answers else (value, high)
            found |= {name: value for name, value in tried.items() if name not in answers}
        return found

    async def _ask_alone(self, config: str, values: Mapping[str, str]) -> Mapping[str, Refusal]:
        return await self.ask({name: {config: value} for name, value in values.items()}) if values else {}


def is_of_configs(error: Refusal) -> bool:
    """Return whether a topic was refused for its configs."""
    return isinstance(error, KafkaError) and error.code in _OF_CONFIGS
