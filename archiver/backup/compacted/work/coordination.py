"""Sends and receives events of the coordination topic: hints to the other instance to read a role log now.

Role logs are read once an interval in any case. So an event that fails is dropped, and a refusal of Kafka is logged once.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, NamedTuple

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
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_REFUSED_PAUSE_S: Final = 300.0  # a user may grant the right


class _Next(NamedTuple):
    """The next position in the topic."""

    topic_id: str
    position: int


class Coordination:
    """Sends events to the other instance's processes, and receives theirs. No refusal of Kafka is raised.

    `client` waits in long fetches, so nothing else uses it. `others`: the instances whose events count. An instance
    ignores its own events: a survey that sends one would cause the next survey.
    """

    def __init__(self, client: KafkaClient, settings: KafkaSettings, pool: Workers, others: Collection[str]) -> None:
        self._client = client
        self._settings = settings
        self._pool = pool
        self._others = others
        self._next: _Next | None = None
        self._told: set[str] = set()
        self._pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    async def tell(self, event: CoordinationEvent) -> None:
        """Publish an event, if the topic is known and can be written."""
        if self._next is None:
            return
        content, timeout_ms = _batch_of(event), self._settings.request_timeout_ms
        try:
            answer = await produce(self._client, COORDINATION_TOPIC, _PARTITION, content, timeout_ms)
        except ArchiverError as error:
            self._tell_once(error)
            return
        if answer.outcome not in {ProduceOutcome.DONE, ProduceOutcome.TEMPORARY}:
            self._tell_once(KafkaError(answer.message, code=answer.error_code))

    async def hints(self) -> frozenset[RolePlace]:
        """Wait for events of others; return their partitions. May be cancelled at any time."""
        while True:
            try:
                found = await self._listen(self._next or await self.find())
            except ArchiverError as error:
                self._tell_once(error)
                await asyncio.sleep(self._pauses.next_s() if error.retriable else _REFUSED_PAUSE_S)
                continue
            self._pauses.reset()
            if found:
                return found

    async def find(self) -> _Next:
        """Find the topic, or create it. Events behind its present end are received."""
        found = await self._client.describe_topics([COORDINATION_TOPIC])
        if COORDINATION_TOPIC not in found:
            await self._create()
            found = await self._client.describe_topics([COORDINATION_TOPIC])
        if COORDINATION_TOPIC not in found:
            raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC} was created, and is not known yet")
        offsets = await self._client.offsets([(COORDINATION_TOPIC, _PARTITION)])
        end = offsets[COORDINATION_TOPIC, _PARTITION].last_stable
        self._next = _Next(found[COORDINATION_TOPIC].topic_id, end)
        return self._next

    async def _create(self) -> None:
        try:
            await KafkaAdmin(self._settings).create_topic(COORDINATION_TOPIC, partitions=1, configs=_CONFIGS)
        except KafkaError as error:
            if error.code != Code.TOPIC_ALREADY_EXISTS:  # by another process
                raise

    async def _listen(self, at: _Next) -> frozenset[RolePlace]:
        """Fetch the next events; return their partitions, perhaps none."""
        target = FetchTarget(topic=COORDINATION_TOPIC, topic_id=at.topic_id, partition=_PARTITION, offset=at.position)
        node = await self._client.leader(COORDINATION_TOPIC, _PARTITION)
        (answer,) = await fetch(
            self._client,
            node,
            [target],
            max_bytes=_FETCH_BYTES,
            partition_bytes=_FETCH_BYTES,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
        )
        if answer.error is not None:
            self._client.forget_leaders(COORDINATION_TOPIC)
            if answer.error in {FetchProblem.DENIED, FetchProblem.FAILED}:
                doing, right = f"topic {COORDINATION_TOPIC} could not be read", f"Read on topic {COORDINATION_TOPIC}"
                raise broker_error(answer.error_code, doing, right=right)
            self._next = None  # it may be deleted, recreated, or truncated
            raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC} cannot be read now")
        try:
            found, position = await self._pool.call(_places_in, answer, at.position, self._others)
        except (CorruptBatchError, ValueError):
            found, position = frozenset(), max(at.position + 1, answer.last_stable_offset)
        self._next = at._replace(position=position)
        return found

    def _tell_once(self, error: ArchiverError) -> None:
        """Log a refusal once. Temporary errors are of no interest: other work reports them."""
        if not error.retriable and str(error) not in self._told:
            self._told.add(str(error))
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


def _places_in(answer: Fetched, position: int, others: Collection[str]) -> tuple[frozenset[RolePlace], int]:
    """Return the partitions in events of others, and the next offset. An unreadable batch is skipped.

    Raises CorruptBatchError.
    """
    found: set[RolePlace] = set()
    whole_bytes = len(whole_batches(answer.records, position)[1])  # the last batch may be cut
    rest, aborted = answer.records[:whole_bytes], answer.aborted
    while len(rest):
        try:
            decoded = decode_batches(first_step(rest), position, aborted, _MOST_OPENED_BYTES)
        except CorruptBatchError:
            first, _ = whole_batches(rest[: first_batch_bytes(rest)], position)
            rest, position = rest[first_batch_bytes(rest) :], position_after(first, position)
            continue
        found |= {one.place for frame in decoded.frames() for one in events_in(frame) if one.instance in others}
        rest, position, aborted = rest[decoded.source_bytes :], decoded.next_offset, decoded.aborted
    return frozenset(found), position
