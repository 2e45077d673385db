"""The target topics of a restore: checked, prepared and finished, with a few requests for all of them together."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from archiver.errors import KafkaError
from archiver.kafka.admin import KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicDescription
from archiver.kafka.configs import topic_configs
from archiver.kafka.settings import KafkaSettings
from archiver.restore import RETENTION_KEYS, TopicPlan
from archiver.spark.claim import Claim, RestoreNotes

# What a topic is created with. Names that the broker may not have come later, once it has told which it has.
_FIRST_CONFIGS = ("cleanup.policy", *RETENTION_KEYS)

Claims = Mapping[str, Mapping[int, Claim]]  # topic -> partition -> claim


class Targets:
    """The topics that a restore fills, known by their plans once they were checked."""

    def __init__(self, kafka: KafkaSettings, notes: RestoreNotes) -> None:
        self._admin = KafkaAdmin(kafka)
        self._topics: dict[str, TopicPlan] = {}
        self._notes = notes

    async def check(self, client: KafkaClient, topics: Iterable[TopicPlan]) -> None:
        """Refuse what cannot go well, before anything is changed."""
        plans = {topic.target: topic for topic in topics}
        self._topics |= plans
        await self._claims(client, await client.describe_topics(plans))

    async def prepare(self, client: KafkaClient, names: Collection[str]) -> dict[str, str]:
        """Create some of the topics, or take them up again, ready to be filled. Returns their topic ids."""
        found = await client.describe_topics(names)
        found |= await self._create(client, [name for name in names if name not in found])
        claims = await self._claims(client, found)
        await self._set_fill_configs(
            client, [name for name in names if not _is_verified(self._topics[name], claims[name])]
        )
        return {name: described.topic_id for name, described in found.items()}

    async def finish(self, client: KafkaClient, topic_ids: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Set the archived configs of topics, once: what was changed after that is the user's.

        Returns for each topic the configs that the brokers do not have, and that were left out.
        """
        finished = self._notes.finished(topic_ids)
        unfinished = {name: topic_id for name, topic_id in topic_ids.items() if name not in finished}
        known = await _known_configs(client, unfinished)
        refused = await self._admin.alter_configs_of_topics(
            {name: _final_configs(self._topics[name], known) for name in unfinished}
        )
        self._notes.note_finished({name: unfinished[name] for name in unfinished if name not in refused})
        for error in refused.values():
            raise error
        return {name: tuple(sorted(self._topics[name].final_configs.keys() - known)) for name in unfinished}

    async def _claims(self, client: KafkaClient, found: Mapping[str, TopicDescription]) -> Claims:
        """Read what earlier runs of this restore have claimed of the topics that are there; refuse a topic that is not ours to fill."""
        for name, described in found.items():
            _check_shape(self._topics[name], described)
        used = await _partitions_with_records(client, found)
        # In this order: who writes records has put its claim before.
        claims = self._notes.claims({name: described.topic_id for name, described in found.items()})
        for name, numbers in used.items():
            if not claims[name]:
                raise KafkaError(
                    f"target topic {name} is not empty (partition {', '.join(map(str, numbers[:5]))});"
                    f" restore under another name with --rename {self._topics[name].source}=NEW, or delete it if nobody"
                    " needs it"
                )
        return claims

    async def _create(self, client: KafkaClient, names: Sequence[str]) -> dict[str, TopicDescription]:
        """Create targets; where another run of this restore does the same right now, theirs is as good."""
        topics = [self._topics[name] for name in names]
        if not topics:
            return {}
        refused = await self._admin.create_topics(
            {topic.target: len(topic.partitions) for topic in topics},
            configs={name: topics[0].fill_configs[name] for name in _FIRST_CONFIGS},
        )
        found = await client.describe_topics(names)
        for name in names:
            if name not in found:
                raise refused.get(name) or KafkaError(f"topic {name} was created, and is gone again")
        return found

    async def _set_fill_configs(self, client: KafkaClient, names: Collection[str]) -> None:
        known = await _known_configs(client, names)
        refused = await self._admin.alter_configs_of_topics(
            {name: _known_of(self._topics[name].fill_configs, known) for name in names}
        )
        for error in refused.values():
            raise error


async def _partitions_with_records(client: KafkaClient, found: Mapping[str, TopicDescription]) -> dict[str, list[int]]:
    partitions = [(name, number) for name, described in found.items() for number in described.partitions]
    used: dict[str, list[int]] = {}
    for (name, number), offsets in sorted((await client.offsets(partitions)).items()):
        if offsets.high_watermark > 0:
            used.setdefault(name, []).append(number)
    return used


async def _known_configs(client: KafkaClient, topics: Collection[str]) -> Collection[str]:
    """Ask which configs the brokers have; one topic tells for all."""
    return (await topic_configs(client, min(topics))).effective.keys() if topics else ()


def _check_shape(topic: TopicPlan, described: TopicDescription) -> None:
    if len(described.partitions) != len(topic.partitions):
        raise KafkaError(
            f"target topic {topic.target} has {len(described.partitions)} partitions, the archive"
            f" {len(topic.partitions)}; restore under another name with --rename {topic.source}=NEW"
        )


def _is_verified(topic: TopicPlan, claims: Mapping[int, Claim]) -> bool:
    """Tell whether earlier runs have filled all partitions, and read them back."""
    found = [claims.get(partition.partition) for partition in topic.partitions]
    return all(claim is not None and claim.verified for claim in found)


def _known_of(configs: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name in known}


def _final_configs(topic: TopicPlan, known: Collection[str]) -> dict[str, str | None]:
    """Set what was archived, and take back what only the fill needed; retention stays unlimited."""
    taken_back = dict.fromkeys(name for name in topic.fill_configs if name in known and name not in RETENTION_KEYS)
    return taken_back | _known_of(topic.final_configs, known)
