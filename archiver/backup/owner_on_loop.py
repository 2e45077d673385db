"""Passes the calls of a group, which come in a thread of their own, to the owner of its partitions, on the loop."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import TimeoutError as WaitError
from typing import Final, Protocol

from archiver.kafka.cluster import TopicPartition
from archiver.kafka.group import Hint

# Flushing revoked partitions delays the whole group's rebalance; the poll interval would allow 5 min.
RELEASE_S: Final = 20.0


class Holder(Protocol):
    """Works on partitions, on the loop."""

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        """Take partitions over."""

    async def release(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        """Flush held records of revoked partitions within RELEASE_S; return the hints to commit first."""

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop partitions that another instance has already."""


class OwnerOnLoop:
    """The owner of partitions, as the group sees it. To be made on the loop."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._loop = asyncio.get_running_loop()

    def gained(self, partitions: Sequence[TopicPartition]) -> None:
        self._loop.call_soon_threadsafe(self._holder.gain, partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> Sequence[Hint]:
        async def release() -> Sequence[Hint]:
            return await self._holder.release(partitions)

        try:
            return asyncio.run_coroutine_threadsafe(release(), self._loop).result(RELEASE_S + 5)
        except WaitError:
            return []

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._loop.call_soon_threadsafe(self._holder.lose, partitions)
