"""Logs open transactions that hold back the last stable offset: later records cannot be archived."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from archiver.backup.partition.feed import Feed
from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition

log = logging.getLogger(__name__)

# As long as the transaction of an ordinary producer lasts at most: it times out after a minute.
HELD_BACK_S: Final = 60.0
_EVERY_S = 10.0
_MOST_AT_ONCE = 20  # partitions asked about in one round


async def watch_transactions(
    client: KafkaClient,
    feeds: Mapping[TopicPartition, Feed],
    *,
    clock: Callable[[], float],
    clock_ms: Callable[[], int],
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Log each transaction that holds a partition back, once."""
    named: set[tuple[TopicPartition, int, int]] = set()
    asked_at_s: dict[TopicPartition, float] = {}
    while True:
        await wait(_EVERY_S)
        now_s = clock()
        held_back = [
            feed
            for feed in feeds.values()
            if feed.held_back_since_s is not None and now_s - feed.held_back_since_s > HELD_BACK_S
        ]
        # Partitions with the oldest answer come first, so that each one is checked.
        held_back.sort(key=lambda feed: asked_at_s.get(feed.key, 0.0))
        for feed in held_back[:_MOST_AT_ONCE]:
            asked_at_s[feed.key] = now_s
            await _name_transactions(client, feed, named, clock_ms)
        asked_at_s = {feed.key: asked_at_s.get(feed.key, 0.0) for feed in held_back}
        present = {
            (feed.key, one.producer_id, one.start_offset) for feed in held_back for one in feed.open_transactions
        }
        named &= present


async def learn_open_transactions(client: KafkaClient, feed: Feed) -> None:
    """Ask the broker which transactions hold back the last stable offset of a partition."""
    try:
        feed.open_transactions = tuple(await client.open_transactions(*feed.key))
    except (KafkaError, KafkaTemporaryError) as error:
        log.warning("%s: who holds back the last stable offset is not known: %s", feed.source, error)


async def _name_transactions(
    client: KafkaClient, feed: Feed, named: set[tuple[TopicPartition, int, int]], clock_ms: Callable[[], int]
) -> None:
    await learn_open_transactions(client, feed)
    for transaction in feed.open_transactions:
        which = (feed.key, transaction.producer_id, transaction.start_offset)
        if which in named:
            continue
        named.add(which)
        log.warning(
            "%s: a transaction holds the end back at offset %d: %s, last written to %.0f s ago;"
            " end it with kafka-transactions.sh",
            feed.source,
            feed.last_stable,
            transaction,
            (clock_ms() - transaction.last_timestamp_ms) / 1000,
        )
