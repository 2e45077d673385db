"""The coordination topic: instances tell each other to read a role log now, instead of at the next interval.

An event is a hint, and nothing is lost with it: role logs are looked at now and then in any case. So whatever Kafka refuses here
is told once, and all goes on, slower.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from archiver.archive.cluster_topics import COORDINATION_TOPIC
from archiver.archive.roles import RolePlace
from archiver.backup.compacted.events import CoordinationEvent, encode_events, events_in
from archiver.codec.batch import decode_batches, first_batch_bytes, first_step, position_after, whole_batches
from archiver.codec.batch_encoder import BatchEncoder
from archiver.codec.compression import BatchCodec
from archiver.errors import ArchiverError, CorruptBatchError, KafkaError, KafkaTemporaryError
from archiver.kafka.admin import KafkaAdmin
from archiver.kafka.client import KafkaClient
from archiver.kafka.codes import Code, broker_error
from archiver.kafka.fetch import Fetched, FetchProblem, FetchTarget, fetch
from archiver.kafka.produce import ProduceOutcome, produce
from archiver.kafka.settings import KafkaSettings
from archiver.process.backoff import Backoff
from archiver.process.workers import Workers

log = logging.getLogger(__name__)

_PARTITION: Final = 0  # the topic has one; further partitions are ignored
_CONFIGS: Final = {"cleanup.policy": "compact"}  # the newest event of each partition stays
_NOBODY: Final = -1  # producer: an event that is there twice does no harm
_BATCH_BYTES: Final = 256 * 1024
_EVENT_BYTES: Final = 600  # more than an event takes
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
    """Where the topic is read next."""

    topic_id: str
    position: int


class Coordination:
    """Sends events to the other instance's processes, and receives theirs. No method raises refusals of Kafka.

    `others`: the instances whose events count; None: any. What an instance tells itself, it knows, and a look that tells something
    would bring about the next one. `ignored` counts records of the topic that are no events.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        others: Collection[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._others = others
        self._decoder = Workers(1, "events")  # a daemon: the end of the process waits for no batch
        self._clock = clock
        self._open = AsyncExitStack()
        self._client: KafkaClient | None = None
        self._place: _Place | None = None
        self._finding = asyncio.Lock()
        self._told: set[str] = set()
        self._refusal: ArchiverError | None = None
        self._refused_until_s = 0.0
        self._pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.ignored = 0

    async def start(self) -> None:
        """Find the topic, or create it. Events from now on are received; without the topic, `hints` retries now and then."""
        try:
            await self._find()
        except ArchiverError as error:
            self._tell_once(error)

    async def close(self) -> None:
        self._client, self._place = None, None
        self._decoder.shutdown(wait=False)
        await self._open.aclose()

    async def tell(self, events: Sequence[CoordinationEvent]) -> None:
        """Publish events. Whether they arrived is not known, and does not matter."""
        try:
            client, _ = await self._find()
            at_once = _BATCH_BYTES // _EVENT_BYTES
            for start in range(0, len(events), at_once):
                await self._produce(client, _batch_of(events[start : start + at_once]))
        except ArchiverError as error:
            self._tell_once(error)

    async def hints(self) -> frozenset[RolePlace]:
        """Wait for events of others; return the partitions that they are about. May be cancelled at any time."""
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
        """Return the next offset of the topic: its end, if it was found just now. A refusal is retried only later."""
        async with self._finding:
            if self._refusal is not None and self._clock() < self._refused_until_s:
                raise self._refusal
            if self._client is None:
                self._client = await self._open.enter_async_context(KafkaClient(self._settings))
            if self._place is None:
                try:
                    self._place = await self._end(self._client)
                except KafkaError as error:
                    self._refusal, self._refused_until_s = error, self._clock() + _REFUSED_PAUSE_S
                    raise
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

    async def _produce(self, client: KafkaClient, batch: memoryview) -> None:
        pauses = Backoff(_FIRST_PAUSE_S)
        for number in range(_TRIES):
            try:
                answer = await produce(client, COORDINATION_TOPIC, _PARTITION, batch, self._settings.request_timeout_ms)
            except KafkaTemporaryError:
                if number == _TRIES - 1:
                    raise
            else:
                if answer.outcome is ProduceOutcome.DONE:
                    return
                if answer.outcome is not ProduceOutcome.TEMPORARY:
                    raise KafkaError(answer.message, code=answer.error_code)
            await asyncio.sleep(pauses.next_s())
        self._place = None  # perhaps the topic is gone
        raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC}: an event could not be written in {_TRIES} tries")

    # --- listening

    async def _listen(self) -> frozenset[RolePlace]:
        """Fetch the next events; return the partitions that they are about, perhaps none."""
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
            self._look_again(client, answer)
            return frozenset()
        try:
            found, ignored, position = await self._decoder.call(_places_in, answer, place.position, self._others)
        except (CorruptBatchError, ValueError):  # polling finds the same news
            found, ignored, position = frozenset(), 1, max(place.position + 1, answer.last_stable_offset)
        self.ignored += ignored
        place.position = position
        return found

    def _look_again(self, client: KafkaClient, answer: Fetched) -> None:
        """Forget what an answer shows to be wrong. Raises what lasts, or takes time."""
        client.forget_leaders(COORDINATION_TOPIC)
        match answer.error:
            case FetchProblem.OFFSET_OUT_OF_RANGE | FetchProblem.UNKNOWN_TOPIC_ID | FetchProblem.DIVERGING_EPOCH:
                self._place = None  # created again, or cut back
            case FetchProblem.UNKNOWN_TOPIC_OR_PARTITION:
                self._place = None
                raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC} is gone")
            case FetchProblem.DENIED | FetchProblem.FAILED:
                doing, right = f"topic {COORDINATION_TOPIC} could not be read", f"Read on topic {COORDINATION_TOPIC}"
                raise broker_error(answer.error_code, doing, right=right)
            case _:
                raise KafkaTemporaryError(f"topic {COORDINATION_TOPIC} cannot be read now")

    def _tell_once(self, error: ArchiverError) -> None:
        """Log why something cannot be had."""
        what = str(error)
        if error.retriable:
            log.debug("%s", error)
        elif what not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(what)
            log.warning(
                "%s; instances do not tell each other of their turns at once, and look now and then, which is slower and enough",
                error,
            )


def _batch_of(events: Sequence[CoordinationEvent]) -> memoryview:
    frame = encode_events(events)
    encoder = BatchEncoder(
        codec=BatchCodec.NONE,
        batch_bytes=2 * _BATCH_BYTES,
        most_bytes=2 * _BATCH_BYTES,
        producer_id=_NOBODY,
        producer_epoch=_NOBODY,
    )
    if encoder.append(frame, 0) < len(frame):
        raise ValueError(f"{len(frame)} events are more than a batch takes")
    return encoder.flush().content


def _places_in(answer: Fetched, position: int, others: Collection[str] | None) -> tuple[frozenset[RolePlace], int, int]:
    """Return what events of others are about, how many records are none, and where to go on. Raises CorruptBatchError.

    A batch that cannot be opened counts as one record that is none.
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
