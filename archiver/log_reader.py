"""A partition's committed records out of Kafka, in order, up to an end: to compare with what is known of them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from archiver.codec import batch_kernels as k
from archiver.codec.batch import Scratch, decode_batches, first_step, position_after, whole_batches
from archiver.errors import CorruptBatchError, KafkaError, KafkaTemporaryError, TopicGoneError
from archiver.frame import Column, Frame, Longs
from archiver.kafka.client import KafkaClient
from archiver.kafka.fetch import Fetched, FetchProblem, FetchTarget, fetch

_FETCH_BYTES = 3_000_000  # three batches of a restore; below what archiver.memory maps anew each time
_ATTEMPTS = 60
_PAUSE_S = 0.5
_EMPTY_AT_MOST = 3  # answers in a row


class LogStartError(KafkaError):
    """The log begins later than it was to be read from: the broker has deleted what lay before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Offsets of one partition, the end not included."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


async def read_log(client: KafkaClient, wanted: LogRange, take: Callable[[Frame], None]) -> None:
    """Hand over the records of a range, some at a time, in a thread; they are valid until `take` returns.

    What comes next is fetched meanwhile. Raises LogStartError, TopicGoneError, CorruptBatchError, or KafkaTemporaryError
    after half a minute without progress.
    """
    await read_log_and_writers(client, wanted, lambda frame, _: take(frame))


async def read_log_and_writers(client: KafkaClient, wanted: LogRange, take: Callable[[Frame, Longs], None]) -> None:
    """Hand over also who wrote them: (last offset, producer id) of each batch, in order; -1: one without an id."""
    scratch = Scratch()

    def decode(answer: Fetched, _: Longs, whole_bytes: int, position: int) -> None:
        _hand_over(answer.records[:whole_bytes], answer.aborted, position, wanted.end, scratch, take)

    await _walk(client, wanted, decode)


async def count_records(client: KafkaClient, wanted: LogRange) -> dict[int, int]:
    """Return how many records of a range each producer wrote, by its id. Whole batches: by their headers alone."""
    counts: Counter[int] = Counter()

    def count(_: Fetched, batches: Longs, __: int, ___: int) -> None:
        offsets = batches[k.BASE_OFFSET]
        inside = batches[:, (offsets >= wanted.start) & (offsets < wanted.end)]
        producers, places = np.unique(inside[k.PRODUCER_ID], return_inverse=True)
        for producer, records in zip(producers.tolist(), np.bincount(places, inside[k.COUNT]).tolist(), strict=True):
            counts[producer] += int(records)

    await _walk(client, wanted, count)
    return dict(counts)


async def _walk(client: KafkaClient, wanted: LogRange, work: Callable[[Fetched, Longs, int, int], None]) -> None:
    """Let `work`, in a thread, have each answer: its whole batches, how many bytes those are, and where it was fetched."""
    position, empty = wanted.start, 0
    if position >= wanted.end:
        return
    ahead = asyncio.ensure_future(_fetch_at(client, wanted, position))
    try:
        while position < wanted.end:
            answer = await ahead
            batches, whole = whole_batches(answer.records, position)
            after = position_after(batches, position)
            empty = 0 if after > position else empty + 1
            if empty and answer.last_stable_offset < wanted.end:
                raise KafkaTemporaryError(
                    f"{wanted.topic}-{wanted.partition} ends at {answer.last_stable_offset}, not at {wanted.end}: did the"
                    " leader change? Run the same command again"
                )
            if empty == _EMPTY_AT_MOST:
                return  # compaction has left nothing up to the end
            if after < wanted.end:
                ahead = asyncio.ensure_future(_fetch_at(client, wanted, after))
            try:
                await asyncio.to_thread(work, answer, batches, len(whole), position)
            except CorruptBatchError as error:
                raise CorruptBatchError(f"{wanted.topic}-{wanted.partition}: {error}") from error
            position = after
    finally:
        ahead.cancel()
        await asyncio.wait([ahead])
        if not ahead.cancelled():
            ahead.exception()  # seen; else asyncio complains that nobody did


async def producer_at(client: KafkaClient, wanted: LogRange) -> int:
    """Return the id of the producer that wrote what stands at the start of a range; -1: one without an id."""
    answer = await _fetch_at(client, wanted, wanted.start)
    batches, _ = whole_batches(answer.records, wanted.start)
    return int(batches[k.PRODUCER_ID, 0]) if batches.shape[1] else -1


def _hand_over(
    rest: memoryview,
    aborted: Sequence[tuple[int, int]],
    position: int,
    end: int,
    scratch: Scratch,
    take: Callable[[Frame, Longs], None],
) -> None:
    while len(rest) and position < end:
        decoded = decode_batches(first_step(rest), position, aborted, scratch=scratch)
        frame = decoded.frame
        if len(frame) and frame.table[Column.OFFSET, -1] >= end:
            frame = frame.rows(0, int(frame.column(Column.OFFSET).searchsorted(end)))
        take(frame, decoded.writers)
        rest, position, aborted = rest[decoded.source_bytes :], decoded.next_offset, decoded.aborted


async def _fetch_at(client: KafkaClient, wanted: LogRange, position: int) -> Fetched:
    which = f"{wanted.topic}-{wanted.partition}"
    target = FetchTarget(topic=wanted.topic, topic_id=wanted.topic_id, partition=wanted.partition, offset=position)
    for _ in range(_ATTEMPTS):
        node = await client.leader(wanted.topic, wanted.partition)
        try:
            (answer,) = await fetch(
                client,
                node,
                [target],
                max_bytes=_FETCH_BYTES,
                partition_bytes=_FETCH_BYTES,
                max_wait_ms=500,
                min_bytes=1,
            )
        except KafkaTemporaryError:
            answer = None
        problem = None if answer is None else answer.error
        if answer is not None and problem is None:
            return answer
        if problem is FetchProblem.OFFSET_OUT_OF_RANGE:
            raise LogStartError(f"{which}: offset {position} is not in the log any more")
        if problem is FetchProblem.UNKNOWN_TOPIC_ID:
            raise TopicGoneError(f"{which}: the topic was deleted, and perhaps created again")
        if problem is FetchProblem.DENIED:
            raise KafkaError(f"{which}: may not be read; grant this user Read on topic {wanted.topic}")
        client.forget_leaders(wanted.topic)
        await asyncio.sleep(_PAUSE_S)
    raise KafkaTemporaryError(f"{which} cannot be read at offset {position}; run the same command again")
