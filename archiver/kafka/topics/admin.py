"""Creates, alters and deletes topics, through confluent-kafka's AdminClient."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from archiver.errors import KafkaTemporaryError
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.brokers.codes import Code, client_error
from archiver.kafka.login.settings import KafkaSettings

_POLL_S = 0.1  # between polls for a created or deleted topic
_MOST_CHANGES = 5_000  # topics, partitions and configs in one request: a KRaft controller refuses 10,000
BROKER_DEFAULT = -1  # partitions, replication factor: the cluster's own


@dataclass(frozen=True, slots=True)
class ToCreate:
    """A topic to create."""

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


Key = TypeVar("Key")
Value = TypeVar("Value")


class KafkaAdmin:
    """Creates, alters and deletes topics. Needs no closing: librdkafka ends with the object."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._timeout_s = settings.request_timeout_ms / 1000
        # librdkafka would log to stderr in its own format; important errors are raised as exceptions.
        self._properties = {**settings.for_confluent(), "log_level": 2}
        self._admin = AdminClient(self._properties)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and return when every partition is served. A topic that exists is an error."""
        refused = await self.create_topics({name: ToCreate(partitions, replication_factor, configs or {})})
        for error in refused.values():
            raise error

    async def create_topics(self, wanted: Mapping[str, ToCreate]) -> dict[str, Refusal]:
        """Create topics, and return when every partition is served.

        Returns refused topics, with reasons: an existing topic is refused.
        """
        refused: dict[str, Refusal] = {}
        for topics in _new_topics(wanted):
            refused |= await self._refused_to_create(topics)
            await self._until_served({topic.topic: 1 for topic in topics if topic.topic not in refused})
        return refused

    async def refused_topics(self, wanted: Mapping[str, ToCreate]) -> dict[str, Refusal]:
        """Return refusals of topics, as a dry run of their creation. Topics are not refused because they exist."""
        refused: dict[str, Refusal] = {}
        for topics in _new_topics(wanted):
            refused |= await self._refused_to_create(topics, validate_only=True, allowed=Code.TOPIC_ALREADY_EXISTS)
        return refused

    async def _refused_to_create(
        self, topics: list[NewTopic], *, validate_only: bool = False, allowed: Code | None = None
    ) -> dict[str, Refusal]:
        """Ask on a separate connection: brokers answer at once, and then mute it while a quota of changes lasts."""
        admin = AdminClient(self._properties)
        return await self._refused(
            admin.create_topics(topics, validate_only=validate_only),
            "topic {} could not be created",
            "Create on topic {}, or on the cluster",
            allowed,
        )

    async def add_partitions(self, totals: Mapping[str, int]) -> dict[str, Refusal]:
        """Increase topics to these partition counts, and wait until all are served. Returns the refusals."""
        wanted = [NewPartitions(name, total) for name, total in totals.items()]
        refused = await self._refused(
            self._admin.create_partitions(wanted), "partitions of topic {} could not be added", "Alter on topic {}"
        )
        await self._until_served({name: total for name, total in totals.items() if name not in refused})
        return refused

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and return when it is gone. A topic that does not exist is an error."""
        refused = await self._refused(
            self._admin.delete_topics([name]), "topic {} could not be deleted", "Delete on topic {}"
        )
        for error in refused.values():
            raise error
        await self._until(lambda: self._is_gone(name), lambda: f"topic {name} was deleted, but is still there")

    async def alter_topic_configs(
        self, name: str, *, set_to: Mapping[str, str] | None = None, delete: Iterable[str] = ()
    ) -> None:
        """Set some configs, and reset others to the cluster's; the rest stay. Atomic."""
        changes = dict.fromkeys(delete) | dict(set_to or {})
        for error in (await self.alter_configs_of_topics({name: changes})).values():
            raise error

    async def alter_configs_of_topics(
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[str, Refusal]:
        """Set configs of topics (None: reset to the cluster's); the rest stay. Atomic per topic.

        Returns refused topics, with reasons. `validate_only`: the brokers only check, and change nothing.
        """
        refused: dict[str, Refusal] = {}
        for names in _portions({name: len(wanted) for name, wanted in changes.items() if wanted}):
            resources = [_resource(name, changes[name]) for name in names]
            answers = self._admin.incremental_alter_configs(resources, validate_only=validate_only)
            by_name = {resource.name: future for resource, future in answers.items()}
            refused |= await self._refused(by_name, "configs of topic {} could not be set", "AlterConfigs on topic {}")
        return refused

    async def _until_served(self, unserved: dict[str, int]) -> None:
        """Wait until each of these topics has at least this partition count, and all are served."""

        async def are_served() -> bool:
            for name in await self._served(unserved) if unserved else ():
                del unserved[name]
            return not unserved

        await self._until(are_served, lambda: f"topic {min(unserved)} was created, but not every partition is served")

    async def _served(self, totals: Mapping[str, int]) -> set[str]:
        """Return whether leaders answer. Metadata names leaders seconds before they serve (500 partitions), so ask for offsets."""
        described = await self._describe_all(totals)
        led = {
            name: found
            for name, found in described.items()
            if len(found.partitions) >= totals[name] and not any(row.leader is None for row in found.partitions)
        }
        wanted = {
            TopicPartition(name, row.id): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for name, found in led.items()
            for row in found.partitions
        }
        futures = self._admin.list_offsets(wanted, request_timeout=self._timeout_s) if wanted else {}
        answers = await _gather(futures)
        return led.keys() - {which.topic for which, answer in answers.items() if isinstance(answer, KafkaException)}

    async def _is_gone(self, name: str) -> bool:
        return not await self._describe_all([name])

    async def _describe_all(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Describe topics; those that do not exist are left out."""
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s)
        answers = await _gather(futures)
        found: dict[str, TopicDescription] = {}
        for name, answer in answers.items():
            if isinstance(answer, TopicDescription):
                found[name] = answer
            elif answer.args[0].code() != Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise _error(answer, f"topic {name} could not be described", f"Describe on topic {name}") from answer
        return found

    async def _until(self, reached: Callable[[], Awaitable[bool]], otherwise: Callable[[], str]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not await reached():
            if time.monotonic() > deadline:
                raise KafkaTemporaryError(f"{otherwise()} after {self._timeout_s:g} s; look at the brokers' logs")
            await asyncio.sleep(_POLL_S)

    async def _refused(
        self,
        futures: "Mapping[str, Future[Value]]",
        what: str,
        right: str,
        allowed: Code | None = None,
    ) -> dict[str, Refusal]:
        """Wait for the answers about topics. `what` and `right` are templates for the topic's name; A code that is `allowed` is no refusal."""
        answers = await _gather(futures)
        return {
            name: _error(answer, what.format(name), right.format(name))
            for name, answer in answers.items()
            if isinstance(answer, KafkaException) and answer.args[0].code() != allowed
        }


async def _gather(futures: "Mapping[Key, Future[Value]]") -> dict[Key, Value | KafkaException]:
    """Wait for all answers; a refusal is returned in its place as an exception."""
    answers = await asyncio.gather(*map(asyncio.wrap_future, futures.values()), return_exceptions=True)
    found: dict[Key, Value | KafkaException] = {}
    for key, answer in zip(futures, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, KafkaException):
            raise answer
        found[key] = answer
    return found


def _new_topics(wanted: Mapping[str, ToCreate]) -> Iterator[list[NewTopic]]:
    """Return the topics as confluent-kafka takes them."""
    for names in _portions({name: topic.partitions + len(topic.configs) + 1 for name, topic in wanted.items()}):
        topics = {name: wanted[name] for name in names}
        yield [
            NewTopic(name, topic.partitions, topic.replication_factor, config=dict(topic.configs))
            for name, topic in topics.items()
        ]


def _resource(name: str, changes: Mapping[str, str | None]) -> ConfigResource:
    set_to, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    entries = [
        ConfigEntry(key, value, incremental_operation=delete if value is None else set_to)
        for key, value in changes.items()
    ]
    return ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)


def _portions(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Divide topics into requests that are small enough for a controller."""
    portion: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if portion and filled + size > _MOST_CHANGES:
            yield portion
            portion, filled = [], 0
        portion.append(name)
        filled += size
    if portion:
        yield portion


def _error(error: KafkaException, what: str, right: str) -> Refusal:
    cause = error.args[0]
    return client_error(cause.code(), what, cause.str(), right=right)
