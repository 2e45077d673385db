"""Sends batches to a broker for restore tasks: rate limit, retries, and the meaning of answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from archiver.codec.batch_encoder import EncodedBatch
from archiver.errors import (
    KafkaError,
    KafkaTemporaryError,
)
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.connection import CLOSED
from archiver.kafka.records.produce import ProduceOutcome, produce
from archiver.process.running.failpoints import reach

_PRODUCE_TIMEOUT_MS = 30_000
Value = TypeVar("Value")

ATTEMPTS = 60
ATTEMPT_PAUSE_S = 0.5  # between two attempts
_CREDIT_S = 1.0


class Behind(Exception):  # noqa: N818 - a turn of the loop, not an error
    """Another attempt with our producer id is ahead of us: the log's end must be read again."""


async def patiently(attempt: Callable[[], Awaitable[Value]]) -> Value:
    """Retry a call without effects until a broker answers: a cluster that has just started has no coordinator yet."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt()
        except KafkaTemporaryError:
            await asyncio.sleep(ATTEMPT_PAUSE_S)
    return await attempt()


class RateLimit:
    """Holds a sender back to so many bytes a second."""

    def __init__(self, rate_bytes: int) -> None:
        self._rate_bytes = rate_bytes
        self._free_at_s: float | None = None  # before the first

    async def wait_for(self, size: int) -> None:
        """Wait for as long as so many bytes take, before they are sent: each of many small tasks sends only once.

        The time to make and send them counts as waited, unless it is long: senders may not catch up at once after an outage.
        """
        if self._rate_bytes:
            now_s = asyncio.get_running_loop().time()
            begun_s = now_s if self._free_at_s is None else max(self._free_at_s, now_s - _CREDIT_S)
            self._free_at_s = begun_s + size / self._rate_bytes
            await asyncio.sleep(self._free_at_s - now_s)


async def send(
    client: KafkaClient,
    topic: str,
    partition: int,
    batch: EncodedBatch,
    what: str,
    find_sent: Callable[[], Awaitable[int | None]],
    *,
    asks_first: bool,
) -> int:
    """Send a batch until the broker answers. Returns the offset of the batch. Raises Behind. `what`: its name in messages.

    Repeating a batch is safe as long as the broker remembers its producer id and sequence number. That time depends on
    the timestamps of the records: when those are old, a broker that restarts has forgotten the producer, and one that
    runs forgets it every ten minutes. So `find_sent` asks whether the batch is there before it is repeated; with
    `asks_first`, before it is sent at all.
    """
    told, closed = "", 0
    for _ in range(ATTEMPTS):
        try:
            offset = await find_sent() if asks_first else None
            if offset is not None:
                return offset
        except KafkaTemporaryError as error:
            told = str(error)
            await asyncio.sleep(ATTEMPT_PAUSE_S)
            continue
        try:
            answer = await produce(client, topic, partition, batch.content, _PRODUCE_TIMEOUT_MS)
        except KafkaTemporaryError as error:
            asks_first, told = True, str(error)
            closed += error.cause == CLOSED
            await asyncio.sleep(ATTEMPT_PAUSE_S)
            continue
        match answer.outcome:
            case ProduceOutcome.DONE:
                reach("batch.answered")
                return answer.base_offset
            case ProduceOutcome.OUT_OF_SEQUENCE | ProduceOutcome.DUPLICATE:
                raise Behind
            case ProduceOutcome.FATAL:
                raise KafkaError(f"the broker refuses {what}: {answer.message}")
            case ProduceOutcome.TEMPORARY:
                asks_first, told = True, answer.message
                await asyncio.sleep(ATTEMPT_PAUSE_S)
    if closed == ATTEMPTS:  # and the requests between them were answered
        raise KafkaTemporaryError(
            f"no broker took {what}: the connection was closed at each of {closed} requests with a batch of"
            f" {len(batch.content):,} bytes; raise socket.request.max.bytes of the brokers, if it is less, and run the same"
            " command again"
        )
    raise KafkaTemporaryError(f"no broker took {what} ({told}); run the same command again")
