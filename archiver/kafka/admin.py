"""Creates, alters and deletes topics, through confluent-kafka's AdminClient."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.codes import Code, client_error
from archiver.kafka.settings import KafkaSettings

_POLL_S = 0.1  # between looks at a topic that comes or goes
BROKER_DEFAULT = -1  # partitions, replication factor: the cluster's own

Key = TypeVar("Key")
Value = TypeVar("Value")


class KafkaAdmin:
    """Creates, alters and deletes topics. Needs no closing: librdkafka ends with the object."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._timeout_s = settings.request_timeout_ms / 1000
        self._clock = clock
        self._sleep = sleep
        # Its own log lines would go to stderr in a format of their own; what matters comes back as an exception.
        self._admin = AdminClient({**settings.for_confluent(), "log_level": 2})

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and return when every partition is served. One that exists is an error."""
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
        await self._one(self._admin.create_topics([topic]), f"topic {name} could not be created")
        await self._until(lambda: self._is_served(name), f"topic {name} was created, but not every partition is served")

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and return when it is gone. One that does not exist is an error."""
        await self._one(self._admin.delete_topics([name]), f"topic {name} could not be deleted")
        await self._until(lambda: self._is_gone(name), f"topic {name} was deleted, but is still there")

    async def alter_topic_configs(
        self, name: str, *, set_to: Mapping[str, str] | None = None, delete: Iterable[str] = ()
    ) -> None:
        """Set some configs and take others back to the cluster's; the rest stay. All or nothing."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in (set_to or {}).items()
        ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in delete]
        if not entries:
            return
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        what = f"configs of topic {name} could not be set"
        await self._one(self._admin.incremental_alter_configs([resource]), what)

    async def _is_served(self, name: str) -> bool:
        """Metadata names leaders before they serve: with 500 partitions here seconds before. So ask them for their ends."""
        description = await self._describe(name)
        if description is None or any(row.leader is None for row in description.partitions):
            return False
        wanted = {TopicPartition(name, row.id): OffsetSpec.latest() for row in description.partitions}  # type: ignore[no-untyped-call]
        futures = self._admin.list_offsets(wanted, request_timeout=self._timeout_s).values()
        answers = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        return not any(isinstance(answer, BaseException) for answer in answers)

    async def _is_gone(self, name: str) -> bool:
        return await self._describe(name) is None

    async def _describe(self, name: str) -> TopicDescription | None:
        futures = self._admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout_s)
        try:
            return await asyncio.wrap_future(futures[name])
        except KafkaException as error:
            if error.args[0].code() == Code.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise _error(error, f"topic {name} could not be described") from error

    async def _until(self, reached: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        deadline = self._clock() + self._timeout_s
        while not await reached():
            if self._clock() > deadline:
                raise KafkaTemporaryError(f"{otherwise} after {self._timeout_s:g} s; look at the brokers' logs")
            await self._sleep(_POLL_S)

    async def _one(self, futures: Mapping[Key, "Future[Value]"], what: str) -> Value:
        (future,) = futures.values()
        return await self._settle(future, what)

    async def _settle(self, future: "Future[Value]", what: str) -> Value:
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            raise _error(error, what) from error


def _error(error: KafkaException, what: str) -> KafkaError | KafkaTemporaryError:
    cause = error.args[0]
    return client_error(cause.code(), what, cause.str())
