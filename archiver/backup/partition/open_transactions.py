"""Logs open transactions that hold back the last stable offset: later records cannot be archived."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
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
    for turn in count():
        await wait(_EVERY_S)
        now_s = clock()
        held_back = [
            feed
            for feed in feeds.values()
            if feed.held_back_since_s is not None and now_s - feed.held_back_since_s > HELD_BACK_S
        ]
        start = turn * _MOST_AT_ONCE % max(1, len(held_back))
        for feed in (held_back[start:] + held_back[:start])[:_MOST_AT_ONCE]:
            await _name_transactions(client, feed, clock_ms)


async def learn_open_transactions(client: KafkaClient, feed: Feed) -> None:
    """Ask the broker which transactions hold back the last stable offset of a partition."""
    try:
        feed.open_transactions = tuple(await client.open_transactions(*feed.key))
    except (KafkaError, KafkaTemporaryError) as error:
        log.warning("%s: who holds back the last stable offset is not known: %s", feed.source, error)


async def _name_transactions(client: KafkaClient, feed: Feed, clock_ms: Callable[[], int]) -> None:
    named = {(one.producer_id, one.start_offset) for one in feed.open_transactions}
    await learn_open_transactions(client, feed)
    for transaction in feed.open_transactions:
        if (transaction.producer_id, transaction.start_offset) not in named:
            log.warning(
                "%s: a transaction holds the end back at offset %d: %s, last written to %.0f s ago;"
                " end it with kafka-transactions.sh",
                feed.source,
                feed.last_stable,
                transaction,
                (clock_ms() - transaction.last_timestamp_ms) / 1000,
            )
