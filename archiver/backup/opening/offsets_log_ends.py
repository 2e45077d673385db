"""Notes the log ends of `__consumer_offsets` before they are read, so that readers of the archive know lagging partitions.

A partition may lag because a backup was killed, a transaction is open, or its fetches fail. Used by the openers of partitions,
by backups that end, and by the service. The notes are in the topic's control fact (docs/format.md §8, `ends`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from archiver.archive.format.handle import Archive
from archiver.archive.notes.topic_changes import record_ends
from archiver.backup.partition.feed import Feed
from archiver.backup.reports.troubles import Troubles
from archiver.errors import ArchiverError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.groups.group_positions import OFFSETS_TOPIC
from archiver.process.running.workers import Workers

_EVERY_S: Final = 30.0
_WHOSE: Final = "ends of logs"
_LAGS_S: Final = 60.0  # behind the age of a segment: as long as the transaction of an ordinary producer lasts at most


class OffsetsLogEnds:
    """Notes the log ends of the offsets topic."""

    def __init__(self, client: KafkaClient, archive: Archive, pool: Workers, clock_ms: Callable[[], int]) -> None:
        self._client = client
        self._archive = archive
        self._pool = pool
        self._clock_ms = clock_ms
        self._noted: dict[TopicPartition, int] = {}

    async def note_opened(self, feeds: Collection[Feed], ends: Mapping[TopicPartition, int] | None) -> None:
        """Note the log ends of opened partitions. `ends`: these ends, if the caller knows them."""
        keys = [feed.key for feed in feeds]
        if ends is None:
            asked, _ = await self._client.offsets_each(keys)
            ends = {key: one.high_watermark for key, one in asked.items()}
        await self._note(feeds, ends)

    async def settle(self, feeds: Iterable[Feed]) -> None:
        """Note that partitions read to their ends have only markers and aborted records behind the newest object."""
        feeds = [feed for feed in feeds if feed.key in self._noted]
        await self._note(
            [feed for feed in feeds if self._is_over(feed)], {feed.key: self._noted[feed.key] for feed in feeds}
        )

    async def watch(
        self,
        feeds: Mapping[TopicPartition, Feed],
        age_s: float,
        clock: Callable[[], float],
        troubles: Troubles,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Note partitions that begin to lag, and those whose lag ended without an object, as long as the service runs."""
        while True:
            await wait(_EVERY_S)
            mine = [feed for feed in feeds.values() if feed.key[0] == OFFSETS_TOPIC]
            lagging = [feed for feed in mine if self._lags(feed, clock() - age_s - _LAGS_S)]
            try:
                await self._note(lagging, {feed.key: feed.high_watermark or 0 for feed in lagging})
                await self.settle(mine)
                troubles.note_works(_WHOSE)
            except ArchiverError as error:
                troubles.note(error, f"{error}; it is noted again in {_EVERY_S:.0f} s", _WHOSE, stops_puts=False)

    def _lags(self, feed: Feed, since_s: float) -> bool:
        if feed.pending_since_s is None or feed.pending_since_s > since_s:
            return False
        return self._noted.get(feed.key, 0) <= feed.writer.durable_position

    def _is_over(self, feed: Feed) -> bool:
        writer, end = feed.writer, self._noted[feed.key]
        return not writer.holds_records and writer.position >= min(end, feed.high_watermark or end) > writer.objects_end

    async def _note(self, feeds: Collection[Feed], ends: Mapping[TopicPartition, int]) -> None:
        feeds = [feed for feed in feeds if feed.key in ends]
        if not feeds:
            return
        archived = {feed.key: feed.writer.objects_end for feed in feeds}
        # Offsets that were read, or are known to be empty, and are in no object, have no records for the archive.
        needed = {
            feed.key: archived[feed.key] if feed.writer.durable_position >= ends[feed.key] else ends[feed.key]
            for feed in feeds
        }
        await self._pool.call(
            record_ends,
            self._archive,
            OFFSETS_TOPIC,
            {number: end for (_, number), end in needed.items()},
            {number: end for (_, number), end in archived.items()},
            self._clock_ms(),
        )
        self._noted |= needed
