"""Sends and receives events of the coordination topic: hints to the other instance to read a role log now.

Role logs are read once an interval in any case. A refusal of Kafka is logged once, and hints are dropped.
"""

import asyncio
import logging
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, NoReturn

from archiver.archive.copies.roles import RolePlace
from archiver.archive.notes.cluster_topics import COORDINATION_TOPIC
from archiver.backup.compacted.turn.events import CoordinationEvent, encode_event, events_in
from archiver.codec.batch import decode_batches, first_batch_bytes, first_step, position_after, whole_batches
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec
from archiver.errors import ArchiverError, CorruptBatchError, KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import Code, broker_error
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.records.fetch import Fetched, FetchProblem, FetchTarget, fetch
from archiver.kafka.records.produce import ProduceOutcome, produce
from archiver.kafka.topics.admin import KafkaAdmin
from archiver.process.running.backoff import Backoff
from archiver.process.running.workers import Workers

log = logging.getLogger(__name__)

_PARTITION: Final = 0  # the topic has one; further partitions are ignored
_CONFIGS: Final = {"cleanup.policy": "compact"}  # the newest event of each partition stays
_NOBODY: Final = -1  # producer: a duplicate event does no harm
_BATCH_BYTES: Final = 4096  # more than an event takes
_FETCH_BYTES: Final = 1_000_000
_MOST_OPENED_BYTES: Final = 1 << 20  # of a batch, decompressed: our largest takes half of that
_WAIT_MS: Final = 5_000
_TRIES: Final = 4
_MOST_TOLD: Final = 10  # different refusals
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_REFUSED_PAUSE_S: Final = 300.0  # a user may grant the right


@dataclass(slots=True)
class _Place:
    """The next position in the topic."""

    topic_id: str
    position: int


class Coordination:
    """Sends events to the other instance's processes, and receives theirs. No method raises refusals of Kafka.

    `others`: the instances whose events count; None: any. An instance ignores its own events: a survey that sends one
    would cause the next survey. `ignored` counts records of the topic that are no events.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        others: Collection[str] | None = None,
    ) -> None:
        self._settings = settings
        self._others = others
        self._decoder = Workers(1, "events")  # a daemon: the end of the process waits for no batch
        self._open = AsyncExitStack()
        self._client: KafkaClient | None = None
        self._place: _Place | None = None
        self._told: set[str] = set()
        self._pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.ignored = 0

    async def start(self) -> None:
        """Find the topic, or create it. Events from now on are received. `hints` keeps looking for a missing topic."""
        try:
            await self._find()
        except ArchiverError as error:
            self._tell_once(error)

    async def close(self) -> None:
        self._client, self._place = None, None
        self._decoder.shutdown(wait=False)
        await self._open.aclose()

    async def tell(self, event: CoordinationEvent) -> None:
        """Publish an event. The event is dropped if the topic is missing or cannot be written."""
        client = self._client
        if client is None or self._place is None:
            return
        pauses = Backoff(_FIRST_PAUSE_S)
        for _ in range(_TRIES):
            try:
                if await self._is_produced(client, _batch_of(event)):
                    return
            except ArchiverError as error:
                self._tell_once(error)
                if not error.retriable:
                    return
            await asyncio.sleep(pauses.next_s())

    async def hints(self) -> frozenset[RolePlace]:
        """Wait for events of others; return their partitions. May be cancelled at any time."""
        while True:
            try:
                found = await self._listen()
            except ArchiverError as error:
                self._tell_once(error)
                await asyncio.sleep(self._pauses.next_s() if error.retriable else _REFUSED_PAUSE_S)
                continue
            self._pauses.reset()
            if found:
                return found

    # --- the topic

    async def _find(self) -> tuple[KafkaClient, _Place]:
        """Return the next offset of the topic: its end, if it is newly found. One caller at a time."""
        if self._client is None:
            self._client = await self._open.enter_async_context(KafkaClient(self._settings))
        if self._place is None:
            self._place = await self._end(self._client)
        return self._client, self._place

    async def _end(self, client: KafkaClient) -> _Place:
        found = await client.describe_topics([COORDINATION_TOPIC])
        if COORDINATION_TOPIC not in found:
            await self._create()
            found = await client.describe_topics([COORDINATION_TOPIC])
        if COORDINATION_TOPIC not in found:
            raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC} was created, and is not known yet")
        offsets = await client.offsets([(COORDINATION_TOPIC, _PARTITION)])
        end = offsets[COORDINATION_TOPIC, _PARTITION].last_stable
        return _Place(found[COORDINATION_TOPIC].topic_id, end)

    async def _create(self) -> None:
        try:
            await KafkaAdmin(self._settings).create_topic(COORDINATION_TOPIC, partitions=1, configs=_CONFIGS)
        except KafkaError as error:
            if error.code != Code.TOPIC_ALREADY_EXISTS:  # by another process
                raise

    async def _is_produced(self, client: KafkaClient, batch: memoryview) -> bool:
        """Write a batch once. Returns whether it is certainly in the topic. Raises KafkaError on a refusal."""
        answer = await produce(client, COORDINATION_TOPIC, _PARTITION, batch, self._settings.request_timeout_ms)
        if answer.outcome not in {ProduceOutcome.DONE, ProduceOutcome.TEMPORARY}:
            raise KafkaError(answer.message, code=answer.error_code)
        return answer.outcome is ProduceOutcome.DONE

    # --- listening

    async def _listen(self) -> frozenset[RolePlace]:
        """Fetch the next events; return their partitions, perhaps none."""
        client, place = await self._find()
        target = FetchTarget(
            topic=COORDINATION_TOPIC, topic_id=place.topic_id, partition=_PARTITION, offset=place.position
        )
        node = await client.leader(COORDINATION_TOPIC, _PARTITION)
        (answer,) = await fetch(
            client,
            node,
            [target],
            max_bytes=_FETCH_BYTES,
            partition_bytes=_FETCH_BYTES,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
        )
        if answer.error is not None:
            self._refuse(client, answer)
        try:
            found, ignored, position = await self._decoder.call(_places_in, answer, place.position, self._others)
        except (CorruptBatchError, ValueError):  # polling finds the same news
            found, ignored, position = frozenset(), 1, max(place.position + 1, answer.last_stable_offset)
        self.ignored += ignored
        place.position = position
        return found

    def _refuse(self, client: KafkaClient, answer: Fetched) -> NoReturn:
        """Forget the state that an answer shows to be stale, and raise that as an error."""
        client.forget_leaders(COORDINATION_TOPIC)
        if answer.error in {FetchProblem.DENIED, FetchProblem.FAILED}:
            doing, right = f"topic {COORDINATION_TOPIC} could not be read", f"Read on topic {COORDINATION_TOPIC}"
            raise broker_error(answer.error_code, doing, right=right)
        self._place = None  # it may be deleted, recreated, or truncated
        raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC} cannot be read now")

    def _tell_once(self, error: ArchiverError) -> None:
        """Log a problem once."""
        what = str(error)
        if error.retriable:
            log.debug("%s", error)
        elif what not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(what)
            log.warning(
                "%s; instances do not tell each other of their turns at once, and look now and then, which is slower and enough",
                error,
            )


def _batch_of(event: CoordinationEvent) -> memoryview:
    encoder = BatchEncoder(
        codec=BatchCodec.NONE,
        batch_bytes=_BATCH_BYTES,
        most_bytes=_BATCH_BYTES,
        producer_id=_NOBODY,
        producer_epoch=_NOBODY,
    )
    encoder.append(encode_event(event), 0)
    return encoder.flush().content


def _places_in(answer: Fetched, position: int, others: Collection[str] | None) -> tuple[frozenset[RolePlace], int, int]:
    """Return partitions in events of others, the number of invalid records, the next offset. Raises CorruptBatchError.

    An unreadable batch counts as one invalid record.
    """
    found: set[RolePlace] = set()
    whole_bytes = len(whole_batches(answer.records, position)[1])  # the last batch may be cut
    ignored, rest, aborted = 0, answer.records[:whole_bytes], answer.aborted
    while len(rest):
        try:
            decoded = decode_batches(first_step(rest), position, aborted, _MOST_OPENED_BYTES)
        except CorruptBatchError:
            first, _ = whole_batches(rest[: first_batch_bytes(rest)], position)
            rest, position, ignored = rest[first_batch_bytes(rest) :], position_after(first, position), ignored + 1
            continue
        for frame in decoded.frames():
            events = events_in(frame)
            found |= {event.place for event in events if others is None or event.instance in others}
            ignored += len(frame) - len(events)
        rest, position, aborted = rest[decoded.source_bytes :], decoded.next_offset, decoded.aborted
    return frozenset(found), ignored, position
