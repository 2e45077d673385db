"""The positions of consumer groups, asked of the brokers, through confluent-kafka's AdminClient."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not marked so
    AdminClient,
    ListConsumerGroupsResult,
)

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.admin import client_error
from archiver.kafka.client import Refusal, TopicPartition
from archiver.kafka.settings import KafkaSettings

OFFSETS_TOPIC: Final = "__consumer_offsets"
# A request names one group, and 64 at once ask for 3,000 groups in a second; more of them save little.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """What a group has committed of a partition; epoch -1 and empty metadata where it told none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Positions = dict[TopicPartition, GroupPosition]


class GroupAdmin:
    """Asks for groups of the classic and the consumer protocol, with members and without."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin = AdminClient({**settings.for_confluent(), "log_level": 2})

    async def positions_known(self) -> tuple[dict[str, Positions], dict[str, Refusal]]:
        """What each group has committed, perhaps nothing; and why some groups do not tell.

        Raises when a broker does not tell its groups, for nobody knows then which are missing; and when none tells anything.
        """
        found: dict[str, Positions] = {}
        refused: dict[str, Refusal] = {}

        async def ask(groups: Iterator[str]) -> None:
            for group in groups:
                try:
                    found[group] = await self._positions_of(group)
                except (KafkaError, KafkaTemporaryError) as error:
                    refused[group] = error

        groups = iter(await self._groups())
        await asyncio.gather(*(ask(groups) for _ in range(_AT_ONCE)))
        for error in refused.values():
            if not found and isinstance(error, KafkaTemporaryError):
                raise error
        return found, refused

    async def _groups(self) -> list[str]:
        what = "the consumer groups could not be listed"
        listing: Future[ListConsumerGroupsResult] = self._admin.list_consumer_groups()
        try:
            listed = await asyncio.wrap_future(listing)
        except KafkaException as refusal:
            raise client_error(refusal, what) from refusal
        for error in cast("list[KafkaException]", listed.errors):
            raise client_error(error, what)
        return [group.group_id for group in listed.valid or ()]

    async def _positions_of(self, group: str) -> Positions:
        what = f"the positions of group {group} could not be read"
        asked: Future[ConsumerGroupTopicPartitions]
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        try:
            told = (await asyncio.wrap_future(asked)).topic_partitions or []
        except KafkaException as error:
            raise client_error(error, what) from error
        for row in told:
            if row.error is not None:
                raise client_error(KafkaException(row.error), f"{what}: {row.topic}-{row.partition}")
        return {
            (row.topic, row.partition): GroupPosition(
                offset=row.offset,
                leader_epoch=-1 if epoch is None else epoch,
                metadata=row.metadata or "",
            )
            for row in told
            for epoch in (cast("int | None", row.leader_epoch),)  # its stub leaves None out
            if row.offset >= 0
        }
