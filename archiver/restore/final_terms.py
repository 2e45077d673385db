"""Which of the archived configs the cluster will refuse to set when a target is filled: asked before anything is changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from archiver.errors import KafkaTemporaryError
from archiver.kafka.admin import KafkaAdmin, ToCreate
from archiver.kafka.cluster import Refusal
from archiver.restore.accepted_configs import is_of_configs
from archiver.restore.target_configs import Changes

_LEFT_OUT = "it is left out in the end"


@dataclass(frozen=True, slots=True)
class FinalTerms:
    """Asks the cluster about the configs of the end, with a few requests for all targets together.

    Brokers (KRaft) ask their policy for changed configs also about a topic that is created.
    """

    admin: KafkaAdmin

    async def find_refused(
        self, wanted: Mapping[str, Changes], to_create: Mapping[str, ToCreate]
    ) -> dict[str, list[str]]:
        """Return by target which of the wanted configs will be refused. Targets that are to be created have the configs of the filling."""
        refused = await self._ask(wanted, to_create)
        names = sorted(name for name, error in refused.items() if is_of_configs(error))
        told: dict[str, list[str]] = {name: [] for name in names}
        for config in sorted({config for name in names for config, value in wanted[name].items() if value is not None}):
            some = {name: {config: wanted[name][config]} for name in names if wanted[name].get(config) is not None}
            for name, error in (await self._ask(some, to_create)).items():
                said = getattr(error, "said", "") or str(error)
                told[name].append(
                    f"the cluster refuses {config}={wanted[name][config]}, as archived ({said}); {_LEFT_OUT}"
                )
        return told

    async def _ask(self, wanted: Mapping[str, Changes], to_create: Mapping[str, ToCreate]) -> dict[str, Refusal]:
        there = {name: changes for name, changes in wanted.items() if name not in to_create}
        refused = await self.admin.alter_configs_of_topics(there, validate_only=True)
        refused |= await self.admin.refused_topics(
            {
                name: replace(to_create[name], configs=dict(_changed(to_create[name].configs, wanted[name])))
                for name in wanted.keys() & to_create.keys()
            }
        )
        for error in refused.values():
            if isinstance(error, KafkaTemporaryError):
                raise error
        return refused


def _changed(configs: Mapping[str, str], changes: Changes) -> Iterator[tuple[str, str]]:
    for name, value in {**configs, **changes}.items():
        if value is not None:
            yield name, value
