"""Reads a partition's committed records from Kafka, in order, up to an end. Used by restores and `compare`."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

import numpy as np

from archiver.codec.batch import (
    LARGEST_BATCH_BYTES,
    Scratch,
    decode_batches,
    first_step,
    position_after,
    refuse_other_formats,
    whole_batches,
)
from archiver.codec.frame import Column, Frame, Longs
from archiver.codec.kernels import batches as batch_kernels
from archiver.errors import CorruptBatchError, KafkaError, KafkaTemporaryError, TopicGoneError
from archiver.kafka.brokers.broker_requests import Lane
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.records.emptiness import prove_empty
from archiver.kafka.records.fetch import Fetched, FetchProblem, FetchTarget, fetch
from archiver.process.running.backoff import Backoff

_FETCH_BYTES = 3_000_000  # three batches of a restore; below what archiver.process.running.memory maps again each time
_ONE_BATCH = 1  # one byte: brokers send the first batch however large it is
_PATIENCE_S = 60.0
_PAUSE_S = 0.5
_WAIT_S = 0.5  # for the answer to a fetch; doubled after each empty one
_LONGEST_WAIT_S = 15.0


class LogStartError(KafkaError):
    """The log begins behind the start of the range: the broker has deleted earlier records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Offsets of one partition, the end not included."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


class BatchHead(NamedTuple):
    """The header of a batch."""

    base_offset: int
    producer_id: int  # -1: a producer without an id
    leader_epoch: int


async def read_log(client: KafkaClient, wanted: LogRange, take: Callable[[Frame], None]) -> int:
    """Pass the records of a range to `take`, some at a time, in a thread; they are valid until it returns.

    Returns the leader epoch of its last batch; -1: it has none.
    The next batches are fetched meanwhile. Raises LogStartError, TopicGoneError, CorruptBatchError, or KafkaTemporaryError
    after a minute without progress.
    """
    return await read_log_and_writers(client, wanted, lambda frame, _: take(frame))


class _EnoughError(Exception):
    """Ends a reading early."""


async def first_record_offset(client: KafkaClient, wanted: LogRange) -> int | None:
    """Return the offset of the first record in a range; None if it has none. Raises as `read_log`."""
    found: list[int] = []

    def take(frame: Frame) -> None:
        if len(frame):
            found.append(int(frame.column(Column.OFFSET)[0]))
            raise _EnoughError

    with suppress(_EnoughError):
        await read_log(client, wanted, take)
    return found[0] if found else None


async def read_log_and_writers(client: KafkaClient, wanted: LogRange, take: Callable[[Frame, Longs], None]) -> int:
    """Read as read_log, with the writers: (last offset, producer id) of each batch, in order; -1: no id."""
    scratch = Scratch()

    def decode(answer: Fetched, _: Longs, whole_bytes: int, position: int) -> None:
        _hand_over(answer.records[:whole_bytes], answer.aborted, position, wanted.end, scratch, take)

    return await _walk(client, wanted, decode)


async def count_records(client: KafkaClient, wanted: LogRange) -> dict[int, int]:
    """Count the records of a range by producer id. Batches wholly in the range are counted by their headers."""
    counts: Counter[int] = Counter()

    def count(_: Fetched, batches: Longs, __: int, ___: int) -> None:
        refuse_other_formats(batches)
        offsets = batches[batch_kernels.BASE_OFFSET]
        inside = batches[:, (offsets >= wanted.start) & (offsets < wanted.end)]
        producers, places = np.unique(inside[batch_kernels.PRODUCER_ID], return_inverse=True)
        for producer, records in zip(
            producers.tolist(), np.bincount(places, inside[batch_kernels.COUNT]).tolist(), strict=True
        ):
            counts[producer] += int(records)

    await _walk(client, wanted, count)
    return dict(counts)


async def _walk(client: KafkaClient, wanted: LogRange, work: Callable[[Fetched, Longs, int, int], None]) -> int:
    """Pass each answer to `work`, in a thread: its whole batches, their bytes, and the fetched offset.

    Returns the leader epoch of the last batch in the range; -1: it has none.
    """
    position, leader_epoch = wanted.start, -1
    if position >= wanted.end:
        return leader_epoch
    source = _RangeFetches(client, wanted)
    ahead = asyncio.ensure_future(source.fetch_at(position))
    try:
        while position < wanted.end:
            answer = await ahead
            batches, _ = whole_batches(answer.records, position)
            after = position_after(batches, position) if batches.shape[1] else answer.last_stable_offset
            batches = _below(batches, wanted.end)
            if after <= position:
                raise KafkaTemporaryError(
                    f"{wanted.topic}-{wanted.partition} ends at {answer.last_stable_offset}, not at {wanted.end}: did the"
                    " leader change? Run the same command again"
                )
            if after < wanted.end:
                ahead = asyncio.ensure_future(source.fetch_at(after))
            try:
                await asyncio.to_thread(work, answer, batches, _size_of(batches), position)
            except CorruptBatchError as error:
                raise CorruptBatchError(f"{wanted.topic}-{wanted.partition}: {error}") from error
            position, leader_epoch = (
                after,
                int(batches[batch_kernels.LEADER_EPOCH, -1]) if batches.shape[1] else leader_epoch,
            )
        return leader_epoch
    finally:
        ahead.cancel()
        await asyncio.wait([ahead])
        if not ahead.cancelled():
            ahead.exception()  # retrieved, else asyncio would log an error


def _below(batches: Longs, end: int) -> Longs:
    """Leave out batches at or behind the end: they need not be readable."""
    behind = np.flatnonzero(batches[batch_kernels.BASE_OFFSET] >= end)
    return batches[:, : behind[0]] if len(behind) else batches


def _size_of(batches: Longs) -> int:
    return int(batches[batch_kernels.START, -1] + batches[batch_kernels.SIZE, -1]) if batches.shape[1] else 0


async def batch_at(client: KafkaClient, wanted: LogRange) -> BatchHead | None:
    """Return the head of the batch at the start of a range, or of the next one; None: no readable batch."""
    # By the CONTROL connection, which exists already: callers mostly ask for offsets first.
    answer = await _RangeFetches(client, wanted, _ONE_BATCH, Lane.CONTROL).fetch_at(wanted.start)
    batches, _ = whole_batches(answer.records, wanted.start)
    if not batches.shape[1]:
        return None
    return BatchHead(
        *map(int, batches[[batch_kernels.BASE_OFFSET, batch_kernels.PRODUCER_ID, batch_kernels.LEADER_EPOCH], 0])
    )


async def producer_at(client: KafkaClient, wanted: LogRange) -> int:
    """Return the id of the producer that wrote the batch at the start of a range; -1: no id."""
    head = await batch_at(client, wanted)
    return -1 if head is None else head.producer_id


def _hand_over(
    rest: memoryview,
    aborted: Sequence[tuple[int, int]],
    position: int,
    end: int,
    scratch: Scratch,
    take: Callable[[Frame, Longs], None],
) -> None:
    while len(rest) and position < end:
        decoded = decode_batches(first_step(rest), position, aborted, LARGEST_BATCH_BYTES, scratch)
        for frame in decoded.frames():
            is_beyond = len(frame) > 0 and frame.table[Column.OFFSET, -1] >= end
            take(
                frame.rows(0, int(frame.column(Column.OFFSET).searchsorted(end))) if is_beyond else frame,
                decoded.writers,
            )
            if is_beyond:
                return
        rest, position, aborted = rest[decoded.source_bytes :], decoded.next_offset, decoded.aborted


class _RangeFetches:
    """Fetches of one range, one at a time."""

    def __init__(
        self, client: KafkaClient, wanted: LogRange, most_bytes: int = _FETCH_BYTES, lane: Lane = Lane.FETCH
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._most_bytes = most_bytes
        self._lane = lane
        self._waits = Backoff(_WAIT_S, _LONGEST_WAIT_S)
        self._wait_s = self._waits.next_s()

    async def fetch_at(self, position: int) -> Fetched:
        """Return the next batches. An answer without records proves that none exist below its last stable offset."""
        wanted, why = self._wanted, "run the same command again"
        which = f"{wanted.topic}-{wanted.partition}"
        target = FetchTarget(topic=wanted.topic, topic_id=wanted.topic_id, partition=wanted.partition, offset=position)
        deadline_s = monotonic() + _PATIENCE_S
        while monotonic() < deadline_s:
            try:
                answer = await self._fetch(target)
                if answer.error is None:
                    if len(answer.records) or answer.last_stable_offset <= position:
                        return answer
                    emptiness = await prove_empty(self._client, target)
                    if emptiness.reaches > position:
                        return replace(answer, last_stable_offset=emptiness.reaches)
                    self._wait_s, why = self._waits.next_s(), emptiness.advice(position)
                else:
                    _refuse_final(answer, which, position)
                    self._client.forget_leaders(wanted.topic)
            except KafkaTemporaryError:
                self._client.forget_leaders(wanted.topic)
            await asyncio.sleep(_PAUSE_S)
        raise KafkaTemporaryError(f"{which} cannot be read at offset {position}; {why}")

    async def _fetch(self, target: FetchTarget) -> Fetched:
        node = await self._client.leader(target.topic, target.partition)
        (answer,) = await fetch(
            self._client,
            node,
            [target],
            max_bytes=self._most_bytes,
            partition_bytes=self._most_bytes,
            max_wait_ms=round(1000 * self._wait_s),
            min_bytes=1,
            lane=self._lane,
        )
        return answer


def _refuse_final(answer: Fetched, which: str, position: int) -> None:
    """Raise an error if a later fetch cannot help."""
    match answer.error:
        case FetchProblem.OFFSET_OUT_OF_RANGE:
            raise LogStartError(f"{which}: offset {position} is not in the log any more")
        case FetchProblem.UNKNOWN_TOPIC_ID:
            raise TopicGoneError(f"{which}: the topic was deleted, and perhaps created again")
        case FetchProblem.DENIED:
            raise KafkaError(f"{which}: may not be read; grant this user Read on topic {answer.topic}")
        case _:
            pass
