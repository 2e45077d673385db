"""KafkaClient: one connection pool to a cluster, and what the archiver asks brokers. aiokafka's errors become ours here."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Self, TypeVar

import aiokafka.conn
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as AiokafkaError

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka import calls
from archiver.kafka.codes import Code, broker_error
from archiver.kafka.settings import KafkaSettings
from archiver.kafka.wire import Answer, Call, MalformedAnswerError, RawAnswer

# aiokafka's 64 KB costs a fifth of the CPU when answers are megabytes (docs/benchmarks.md).
aiokafka.conn.READER_LIMIT = 1 << 20

_ATTEMPTS = 6  # with pauses that double from retry.backoff.ms: 3 s by default, longer than an election takes

Value = TypeVar("Value")
TopicPartition = tuple[str, int]


class Lane(IntEnum):
    """Connections to one broker. A broker answers a connection's requests in order: nothing waits behind a long fetch."""

    CONTROL = 0  # aiokafka's own default group
    FETCH = 2
    PRODUCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic. `topic_id` is empty where the broker has none; a partition without a leader is not in `leaders`."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    leaders: Mapping[int, int]
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """Where a partition begins and ends: log_start <= last_stable <= high_watermark."""

    log_start: int
    high_watermark: int
    last_stable: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that holds back the last stable offset; `transactional_id` is empty where the brokers do not tell."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str = ""


class KafkaClient:
    """`async with KafkaClient(settings) as client`; every method raises KafkaError (final) or KafkaTemporaryError."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._clock = clock
        self._muted_until_s: dict[tuple[int, Lane], float] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._connected: AIOKafkaClient | None = None

    async def __aenter__(self) -> Self:
        client = AIOKafkaClient(**self._settings.for_aiokafka())  # belongs to the running loop
        client._topics = _NoTopics()  # noqa: SLF001
        try:
            await client.bootstrap()
        except (AiokafkaError, OSError, ValueError) as error:
            await client.close()
            raise self._unreachable() from error
        self._connected = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()
        self._connected = None

    @property
    def settings(self) -> KafkaSettings:
        return self._settings

    # --- requests

    async def send(self, node_id: int, call: Call[Answer], *, lane: Lane = Lane.CONTROL) -> Answer:
        """Ask one broker. The outcome of a call that ended in KafkaTemporaryError is unknown."""
        # A request to a connection that a quota has muted would lie there and look like a broker that hangs.
        muted_s = self._muted_until_s.get((node_id, lane), 0.0) - self._clock()
        if muted_s > 0:
            await self._sleep(muted_s)
        try:
            raw: RawAnswer = await self._client.send(node_id, call, group=lane)
        except (AiokafkaError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise KafkaTemporaryError(f"{call.name} to broker {node_id}: {reason}") from error
        try:
            answer: Answer = raw.read()
        except MalformedAnswerError as error:
            raise KafkaError(f"broker {node_id} sent an {raw!r} that does not parse: {error}") from error
        if call.throttle_ms > 0:
            self._muted_until_s[node_id, lane] = self._clock() + call.throttle_ms / 1000
        return answer

    async def send_any(self, call: Call[Answer]) -> Answer:
        """Ask whichever broker answers; when none does, look for the cluster at its bootstrap addresses again."""
        trouble: KafkaTemporaryError | None = None
        for node_id in self._nodes():
            try:
                return await self.send(node_id, call)
            except KafkaTemporaryError as error:
                trouble = error
        try:
            await self._client.bootstrap()
        except (AiokafkaError, OSError) as error:
            raise self._unreachable() from (trouble or error)
        return await self.send(self._client.get_random_node(), call)

    # --- the cluster

    async def cluster_id(self) -> str:
        return (await self.send_any(calls.MetadataCall([]))).cluster_id

    async def describe_topics(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        """Topics by name, all that this user may see for None; names that do not exist are left out. Always asks."""
        metadata = await self.send_any(calls.MetadataCall(None if names is None else sorted(set(names))))
        if not metadata.brokers <= set(self._nodes()):
            await self._learn_brokers()
        found: dict[str, TopicDescription] = {}
        for topic in metadata.topics:
            self.forget_leaders(topic.name)
            if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code:
                raise broker_error(topic.error_code, f"topic {topic.name}")
            leaders = {row.partition: row.leader for row in topic.partitions if row.leader >= 0}
            self._leaders.update({(topic.name, partition): node for partition, node in leaders.items()})
            found[topic.name] = TopicDescription(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(sorted(row.partition for row in topic.partitions)),
                leaders=leaders,
                is_internal=topic.is_internal,
            )
        return found

    async def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The broker that leads each partition, from memory as far as known; call forget_leaders when one has moved."""
        wanted = list(partitions)
        return await self.persist(lambda: self._leaders_once(wanted))

    async def _leaders_once(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        unknown = {topic for topic, partition in wanted if (topic, partition) not in self._leaders}
        found = await self.describe_topics(unknown) if unknown else {}
        for topic, partition in wanted:
            if (topic, partition) not in self._leaders:
                raise _leaderless(topic, partition, found.get(topic))
        return {which: self._leaders[which] for which in wanted}

    async def leader(self, topic: str, partition: int) -> int:
        return (await self.leaders([(topic, partition)]))[topic, partition]

    def forget_leaders(self, topic: str) -> None:
        """The next `leaders` asks for this topic again."""
        for which in [known for known in self._leaders if known[0] == topic]:
            del self._leaders[which]

    # --- offsets and transactions

    async def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        """Begin and ends of partitions: three requests to each leader, in an order that keeps them consistent."""
        wanted = list(partitions)
        return await self.persist(lambda: self._offsets_once(wanted))

    async def _offsets_once(self, wanted: list[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for which, node_id in (await self._leaders_once(wanted)).items():
            by_node[node_id].append(which)
        answers = await asyncio.gather(*(self._offsets_of(node, which) for node, which in by_node.items()))
        return {which: offsets for answer in answers for which, offsets in answer.items()}

    async def _offsets_of(self, node_id: int, wanted: list[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        # Each of the three only grows, so that what is asked later cannot be below what was asked before.
        start = await self._list_offsets(node_id, wanted, calls.EARLIEST, calls.READ_UNCOMMITTED)
        stable = await self._list_offsets(node_id, wanted, calls.LATEST, calls.READ_COMMITTED)
        end = await self._list_offsets(node_id, wanted, calls.LATEST, calls.READ_UNCOMMITTED)
        return {
            which: PartitionOffsets(
                log_start=start[which].offset,
                last_stable=stable[which].offset,
                high_watermark=end[which].offset,
                leader_epoch=end[which].leader_epoch,
            )
            for which in wanted
        }

    async def _list_offsets(
        self, node_id: int, wanted: list[TopicPartition], timestamp: int, isolation_level: int
    ) -> dict[TopicPartition, calls.ListedOffset]:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in wanted:
            by_topic[topic].append(partition)
        call = calls.ListOffsetsCall(by_topic, timestamp=timestamp, isolation_level=isolation_level)
        listed = {(row.topic, row.partition): row for row in await self.send(node_id, call)}
        for (topic, partition), row in listed.items():
            if row.error_code:
                self.forget_leaders(topic)
                raise broker_error(row.error_code, f"offsets of {topic}[{partition}] from broker {node_id}")
        return listed

    async def open_transactions(self, topic: str, partition: int) -> list[OpenTransaction]:
        """The transactions that are open in a partition, oldest first."""
        producers = [one for one in await self._producers(topic, partition) if one.start_offset >= 0]
        names = await self._transactional_ids([producer.producer_id for producer in producers])
        transactions = [
            OpenTransaction(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                start_offset=producer.start_offset,
                last_timestamp_ms=producer.last_timestamp_ms,
                transactional_id=names.get(producer.producer_id, ""),
            )
            for producer in producers
        ]
        return sorted(transactions, key=lambda transaction: transaction.start_offset)

    async def last_sequence(self, topic: str, partition: int, producer_id: int) -> int | None:
        """The sequence number of the last record that a producer wrote; None when the leader does not remember it."""
        producers = await self._producers(topic, partition)
        return next((one.last_sequence for one in producers if one.producer_id == producer_id), None)

    async def _producers(self, topic: str, partition: int) -> Sequence[calls.ActiveProducer]:
        async def once() -> Sequence[calls.ActiveProducer]:
            node_id = (await self._leaders_once([(topic, partition)]))[topic, partition]
            answer = await self.send(node_id, calls.DescribeProducersCall(topic, partition))
            if answer.error_code:
                self.forget_leaders(topic)
                doing = f"producers of {topic}[{partition}] from broker {node_id}"
                raise broker_error(answer.error_code, doing, answer.error_message)
            return answer.producers

        return await self.persist(once)

    async def _transactional_ids(self, producer_ids: Sequence[int]) -> dict[int, str]:
        """Names are a courtesy: a broker that does not tell (old, down, or not allowed) leaves them empty."""
        names: dict[int, str] = {}
        for node_id in self._nodes() if producer_ids else ():
            with contextlib.suppress(KafkaError, KafkaTemporaryError):
                names |= (await self.send(node_id, calls.ListTransactionsCall(producer_ids)))[1]
        return names

    # --- inside

    @property
    def _client(self) -> AIOKafkaClient:
        if self._connected is None:
            raise RuntimeError("use KafkaClient inside `async with`")
        return self._connected

    def _nodes(self) -> list[int]:
        return [broker.nodeId for broker in self._client.cluster.brokers()]

    def _unreachable(self) -> KafkaTemporaryError:
        return KafkaTemporaryError(
            f"no Kafka broker answers at kafka: bootstrap.servers {self._settings.bootstrap_servers}; "
            "check the address, that the brokers run, and that this is a plaintext listener"
        )

    async def _learn_brokers(self) -> None:
        """Have aiokafka read the brokers' addresses again."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._client.force_metadata_update(), self._settings.request_timeout_ms / 1000)

    async def persist(self, once: Callable[[], Awaitable[Value]]) -> Value:
        """Try again while it may heal: elections, and topics so new that not every broker knows them.

        What is still absent at the end is final.
        """
        pause = self._settings.retry_backoff_ms / 1000
        for _ in range(_ATTEMPTS - 1):
            try:
                return await once()
            except KafkaTemporaryError:
                await self._sleep(pause)
            pause *= 2
        try:
            return await once()
        except _AbsentError as error:
            raise KafkaError(str(error)) from error


class _NoTopics(frozenset[str]):
    """aiokafka's refresh takes an empty set for "all topics"; it shall ask for none: we keep topics ourselves."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class _AbsentError(KafkaTemporaryError):
    """No such topic or partition: may be too new to be known everywhere."""


def _leaderless(topic: str, partition: int, description: TopicDescription | None) -> KafkaTemporaryError:
    if description is None:
        return _AbsentError(f"topic {topic} does not exist, or this user may not describe it")
    if partition not in description.partitions:
        return _AbsentError(f"topic {topic} has {len(description.partitions)} partitions, and no {partition}")
    return KafkaTemporaryError(f"{topic}[{partition}] has no leader; are its brokers up?")
