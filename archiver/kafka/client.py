"""KafkaClient: one connection pool to a cluster, and what the archiver asks brokers. aiokafka's errors become ours here."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Self, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.errors import NodeNotReadyError

from archiver.errors import KafkaError, KafkaTemporaryError, StrangerError, TopicGoneError
from archiver.kafka import calls
from archiver.kafka.cluster import (
    AbsentError,
    NodeRefusedError,
    OpenTransaction,
    PartitionOffsets,
    Refusal,
    Replicas,
    TopicDescription,
    TopicPartition,
)
from archiver.kafka.codes import Code, broker_error
from archiver.kafka.connection import Connections, watching, work_in_place
from archiver.kafka.refusal import explain, explain_one
from archiver.kafka.settings import KafkaSettings
from archiver.kafka.wire import Call, MalformedAnswerError, ParsedAnswer, RawAnswer
from archiver.process.backoff import Backoff
from archiver.process.text import spell_count

work_in_place()

_ATTEMPTS = 6  # pauses double from retry.backoff.ms on: 3 s in all by default, longer than an election takes

Value = TypeVar("Value")


class Lane(IntEnum):
    """Connections to one broker. A broker answers a connection's requests in order; so that nothing waits behind a long fetch, fetches have their own."""

    CONTROL = 0  # aiokafka's own default group
    FETCH = 2
    PRODUCE = 3
    FETCH_ALONE = 4  # what may take long, one partition at a time


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
        self._leaders: dict[str, dict[int, int]] = {}
        self._connected: AIOKafkaClient | None = None
        self._connections = Connections()
        self._cluster_id = ""  # of the first answer that named one
        self._stranger: StrangerError | None = None
        self._has_met_stranger = asyncio.Event()
        self._silent_since_s: float | None = None

    async def __aenter__(self) -> Self:
        client = AIOKafkaClient(**self._settings.for_aiokafka())  # belongs to the running loop
        client._topics = _NoTopics()  # noqa: SLF001
        watching.set(self._connections)
        try:
            await client.bootstrap()
        except BaseException as error:
            await self._close(client)
            if isinstance(error, (AiokafkaError, OSError, ValueError)):
                raise self._unreachable() from error
            raise
        self._connected = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(self._client)
        self._connected = None

    async def _close(self, client: AIOKafkaClient) -> None:
        """Close all connections. aiokafka alone would wait without a limit, and not for connections that it closed before."""
        closing = asyncio.ensure_future(client.close())
        await self._connections.end()
        await closing

    @property
    def settings(self) -> KafkaSettings:
        return self._settings

    # --- requests

    async def send(self, node_id: int, call: Call[ParsedAnswer], *, lane: Lane = Lane.CONTROL) -> ParsedAnswer:
        """Ask one broker. The outcome of a call that ended in KafkaTemporaryError is unknown."""
        # A quota mutes a connection: a request would wait there, and look like a broker that hangs.
        muted_s = self._muted_until_s.get((node_id, lane), 0.0) - self._clock()
        if muted_s > 0:
            await self._sleep(muted_s)
        watching.set(self._connections)
        try:
            raw: RawAnswer = await self._client.send(node_id, call, group=lane)
        except NodeNotReadyError as error:
            self._note_silence()
            raise self._not_let_in(node_id, call) from error
        except (AiokafkaError, OSError, TimeoutError) as error:
            self._note_silence()
            reason = str(error) or type(error).__name__
            cause = type(error).__name__
            raise KafkaTemporaryError(f"{call.name} to broker {node_id}: {reason}", cause=cause) from error
        self._silent_since_s = None
        try:
            answer: ParsedAnswer = raw.read()
        except MalformedAnswerError as error:
            raise KafkaError(f"broker {node_id} sent an {raw!r} that does not parse: {error}") from error
        if call.throttle_ms > 0:
            self._muted_until_s[node_id, lane] = self._clock() + call.throttle_ms / 1000
        return answer

    @property
    def silent_s(self) -> float | None:
        """For how long requests have failed, and no broker has answered any; None: the last answer is newer."""
        since_s = self._silent_since_s
        return None if since_s is None else self._clock() - since_s

    def _note_silence(self) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = self._clock()

    async def send_any(self, call: Call[ParsedAnswer]) -> ParsedAnswer:
        """Ask whichever broker answers; when none does, look for the cluster at its bootstrap addresses again."""
        try:
            return await self._send_first(call)
        except (KafkaError, KafkaTemporaryError) as failure:
            try:
                await self._client.bootstrap()
            except (AiokafkaError, OSError):
                raise self._unreachable() from failure
        return await self._send_first(call)

    async def _send_first(self, call: Call[ParsedAnswer]) -> ParsedAnswer:
        """Ask one broker after the other. When all fail, raise what a retry may heal; only if nothing may, that none lets us in."""
        failures: list[Refusal] = []
        for node_id in self._nodes():
            try:
                return await self.send(node_id, call)
            except (KafkaError, KafkaTemporaryError) as error:
                failures.append(error)
        for failure in failures:
            if failure.retriable and not isinstance(failure, NodeRefusedError):
                raise failure
        raise KafkaError(str(failures[0])) if failures else self._unreachable()

    # --- the cluster

    async def cluster_id(self) -> str:
        return (await self._metadata([])).cluster_id

    def belong_to(self, cluster_id: str) -> None:
        """Refuse answers of any other cluster from now on. Without this call the first answer decides."""
        self._cluster_id = cluster_id

    async def refuse_another_cluster(self) -> None:
        """Wait until another cluster answers at these addresses, and raise StrangerError then."""
        await self._has_met_stranger.wait()
        if self._stranger is not None:
            raise self._stranger

    async def _metadata(self, names: Sequence[str] | None) -> calls.Metadata:
        """Ask for metadata of topics (None: all). Raises StrangerError when the answer is another cluster's than before."""
        return self._of_our_cluster(await self.send_any(calls.MetadataCall(names)))

    def _of_our_cluster(self, metadata: calls.Metadata) -> calls.Metadata:
        self._cluster_id = self._cluster_id or metadata.cluster_id
        if metadata.cluster_id not in {"", self._cluster_id}:
            self._stranger = StrangerError(
                f"kafka: bootstrap.servers {self._settings.bootstrap_servers}: cluster {metadata.cluster_id} answers there, and"
                f" until now it was cluster {self._cluster_id}; give each cluster its own prefix in storage.url"
            )
            self._has_met_stranger.set()
            raise self._stranger
        return metadata

    async def brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that are up."""
        return (await self._metadata([])).brokers

    async def describe_topics(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        """Describe topics by name (None: all that this user may see). Names that do not exist are left out. Always asks a broker."""
        found, refused = await self.describe_each(names)
        for error in refused.values():
            raise error
        return found

    async def topic_ids(self, node_id: int, names: Iterable[str]) -> dict[str, str]:
        """Return topic ids by name, as one broker has them. Topics without an id there, or unknown there, are left out."""
        metadata = self._of_our_cluster(await self.send(node_id, calls.MetadataCall(sorted(names))))
        return {topic.name: topic.topic_id for topic in metadata.topics if topic.topic_id and not topic.error_code}

    async def describe_each(
        self, names: Iterable[str] | None
    ) -> tuple[dict[str, TopicDescription], dict[str, Refusal]]:
        """Return the topics that were found, and why others were refused. Absent topics are in neither."""
        metadata = await self._metadata(None if names is None else sorted(set(names)))
        if not metadata.brokers <= set(self._nodes()):
            await self._learn_brokers()
        found: dict[str, TopicDescription] = {}
        refused: dict[str, Refusal] = {}
        for topic in metadata.topics:
            self.forget_leaders(topic.name)
            if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code:
                refused[topic.name] = broker_error(
                    topic.error_code, f"topic {topic.name}", right=f"Describe on topic {topic.name}"
                )
                continue
            leaders = {row.partition: row.leader for row in topic.partitions if row.leader >= 0}
            self._leaders.setdefault(topic.name, {}).update(leaders)
            found[topic.name] = TopicDescription(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(sorted(row.partition for row in topic.partitions)),
                leaders=leaders,
                is_internal=topic.is_internal,
                fewest=min(
                    (Replicas(len(row.in_sync), row.replicas, row.partition) for row in topic.partitions),
                    default=Replicas(0, 0, 0),
                ),
                replicas=tuple(row.replicas for row in sorted(topic.partitions, key=lambda row: row.partition)),
            )
        return found, refused

    def known_leader(self, topic: str, partition: int) -> int | None:
        """Return the broker that leads a partition, as far as remembered."""
        return self._leaders.get(topic, {}).get(partition)

    async def replicas_in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the brokers that are in sync with a partition, its leader first. Asks once."""
        metadata = await self._metadata([topic])
        if not metadata.brokers <= set(self._nodes()):
            await self._learn_brokers()
        for error_code in (one.error_code for one in metadata.topics if one.error_code):
            raise broker_error(error_code, f"topic {topic}", right=f"Describe on topic {topic}")
        rows = [row for one in metadata.topics for row in one.partitions if row.partition == partition]
        if not rows or rows[0].leader < 0:
            raise _leaderless(topic, partition, None)
        leader, in_sync = rows[0].leader, rows[0].in_sync
        return leader, *(node for node in in_sync if node != leader)

    async def learn_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Refusal]:
        """Ask once for the leaders that are not known. Returns the partitions that have no leader now, and why."""
        wanted = [which for which in partitions if self.known_leader(*which) is None]
        if not wanted:
            return {}
        found, refused = await self.describe_each({topic for topic, _ in wanted})
        return {
            (topic, partition): refused.get(topic) or _leaderless(topic, partition, found.get(topic))
            for topic, partition in wanted
            if self.known_leader(topic, partition) is None
        }

    async def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition, remembered or asked for. Call forget_leaders when it has moved."""
        return await self.persist(lambda: self._leader_once(topic, partition))

    async def _leader_once(self, topic: str, partition: int) -> int:
        for error in (await self.learn_leaders([(topic, partition)])).values():
            raise error
        return self._leaders[topic][partition]

    def forget_leaders(self, topic: str) -> None:
        """Have the next question for a leader of this topic ask a broker again."""
        self._leaders.pop(topic, None)

    # --- offsets and transactions

    async def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        """Return where partitions begin and end. Raises the first refusal."""
        found, refused = await self.offsets_each(partitions)
        for error in refused.values():
            raise error
        return found

    async def offsets_each(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, PartitionOffsets], dict[TopicPartition, Refusal]]:
        """Return where the partitions begin and end that were found, and why others were refused."""
        found: dict[TopicPartition, PartitionOffsets] = {}
        refused: dict[TopicPartition, Refusal] = {}
        left = set(partitions)

        async def once() -> None:
            some, refused_now = await self._offsets_once(left)
            found.update(some)
            refused.clear()
            refused.update(refused_now)
            left.difference_update(some)
            for error in refused_now.values():
                if isinstance(error, KafkaTemporaryError):
                    raise error

        # Partitions that are still refused after the last attempt are in `refused`.
        with contextlib.suppress(KafkaError, KafkaTemporaryError):
            await self.persist(once)
        refused |= {which: self._unreachable() for which in left - refused.keys()}
        return found, {which: _final(error) for which, error in refused.items()}

    async def _offsets_once(
        self, wanted: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, PartitionOffsets], dict[TopicPartition, Refusal]]:
        refused = await self.learn_leaders(wanted)
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic, partition in set(wanted) - refused.keys():
            by_node[self._leaders[topic][partition]].append((topic, partition))
        answers = await asyncio.gather(*(self._offsets_of(node, which) for node, which in by_node.items()))
        found: dict[TopicPartition, PartitionOffsets] = {}
        for some, not_told in answers:
            found |= some
            refused |= not_told
        return found, refused

    async def _offsets_of(
        self, node_id: int, wanted: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, PartitionOffsets], dict[TopicPartition, Refusal]]:
        """Ask a leader three times, for start, last stable offset and end, in this order: each only grows, so start <= stable <= end."""
        try:
            start = await self._list_offsets(node_id, wanted, calls.EARLIEST_TIMESTAMP, calls.READ_UNCOMMITTED)
            stable = await self._list_offsets(node_id, wanted, calls.LATEST_TIMESTAMP, calls.READ_COMMITTED)
            end = await self._list_offsets(node_id, wanted, calls.LATEST_TIMESTAMP, calls.READ_UNCOMMITTED)
        except KafkaTemporaryError as error:
            for topic, _ in wanted:
                self.forget_leaders(topic)
            return {}, dict.fromkeys(wanted, error)
        found: dict[TopicPartition, PartitionOffsets] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for which in wanted:
            code = next((rows[which].error_code for rows in (start, stable, end) if rows[which].error_code), 0)
            if code:
                self.forget_leaders(which[0])
                refused[which] = broker_error(
                    code,
                    f"offsets of {which[0]}[{which[1]}] from broker {node_id}",
                    right=f"Describe on topic {which[0]}",
                )
                continue
            found[which] = PartitionOffsets(
                log_start=start[which].offset,
                last_stable=stable[which].offset,
                high_watermark=end[which].offset,
                leader_epoch=end[which].leader_epoch,
            )
        return found, refused

    async def _list_offsets(
        self, node_id: int, wanted: Iterable[TopicPartition], timestamp: int, isolation_level: int
    ) -> dict[TopicPartition, calls.ListedOffset]:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in wanted:
            by_topic[topic].append(partition)
        call = calls.ListOffsetsCall(by_topic, timestamp=timestamp, isolation_level=isolation_level)
        return {(row.topic, row.partition): row for row in await self.send(node_id, call)}

    async def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> tuple[int, int]:
        """Return the first offset whose record is at or after a time, or the end of the log; and the leader epoch there."""

        async def once() -> tuple[int, int]:
            node_id = await self._leader_once(topic, partition)
            asked = [(topic, partition)]
            row = (await self._list_offsets(node_id, asked, timestamp_ms, calls.READ_UNCOMMITTED))[topic, partition]
            if row.offset < 0 and not row.error_code:
                row = (await self._list_offsets(node_id, asked, calls.LATEST_TIMESTAMP, calls.READ_COMMITTED))[
                    topic, partition
                ]
            if row.error_code:
                self.forget_leaders(topic)
                doing = f"offsets of {topic}[{partition}] from broker {node_id}"
                raise broker_error(row.error_code, doing, right=f"Describe on topic {topic}")
            return row.offset, row.leader_epoch

        return await self.persist(once)

    async def open_transactions(self, topic: str, partition: int) -> list[OpenTransaction]:
        """Return the open transactions of a partition, oldest first."""
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
        """Return the sequence number of the last record of a producer; None when the leader does not remember the producer."""
        producers = await self._producers(topic, partition)
        return next((one.last_sequence for one in producers if one.producer_id == producer_id), None)

    async def _producers(self, topic: str, partition: int) -> Sequence[calls.ActiveProducer]:
        async def once() -> Sequence[calls.ActiveProducer]:
            node_id = await self._leader_once(topic, partition)
            answer = await self.send(node_id, calls.DescribeProducersCall(topic, partition))
            if answer.error_code:
                self.forget_leaders(topic)
                doing = f"producers of {topic}[{partition}] from broker {node_id}"
                raise broker_error(answer.error_code, doing, answer.error_message, right=f"Read on topic {topic}")
            return answer.producers

        return await self.persist(once)

    async def _transactional_ids(self, producer_ids: Sequence[int]) -> dict[int, str]:
        """Return names by producer id. Names are missing for brokers that do not answer (old, down, not allowed): they are only shown."""
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

    def _unreachable(self) -> Refusal:
        return explain(self._settings, self._connections.reasons)

    def _not_let_in(self, node_id: int, call: Call[ParsedAnswer]) -> KafkaTemporaryError:
        """Explain why a broker cannot be reached: aiokafka reports only that it is not ready."""
        broker = self._client.cluster.broker_metadata(node_id)
        address = f"{broker.host}:{broker.port}" if broker is not None else f"broker {node_id}"
        error = self._connections.reasons.get(address)
        refusal = None if error is None else explain_one(address, error, self._settings.security)
        what = f"{call.name} to broker {node_id}: {refusal or 'it cannot be reached'}"
        if isinstance(refusal, KafkaError):
            return NodeRefusedError(what)
        return KafkaTemporaryError(what, cause="NodeNotReadyError")

    async def _learn_brokers(self) -> None:
        """Have aiokafka read the brokers' addresses again."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._client.force_metadata_update(), self._settings.request_timeout_ms / 1000)

    async def persist(self, once: Callable[[], Awaitable[Value]]) -> Value:
        """Repeat a request that failed for now: elections, and topics so new that not every broker knows them.

        A topic that is absent in the last attempt does not exist.
        """
        backoff = Backoff(self._settings.retry_backoff_ms / 1000)
        for _ in range(_ATTEMPTS - 1):
            try:
                return await once()
            except KafkaTemporaryError:
                await self._sleep(backoff.next_s())
        try:
            return await once()
        except AbsentError as error:
            raise _final(error) from error


def _final(error: Refusal) -> Refusal:
    """Turn an absence that lasted through all attempts into a final error."""
    return TopicGoneError(str(error)) if isinstance(error, AbsentError) else error


class _NoTopics(frozenset[str]):
    """An empty set that is true. aiokafka's refresh asks for all topics where its set is false; we need none from it."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


def _leaderless(topic: str, partition: int, description: TopicDescription | None) -> KafkaTemporaryError:
    if description is None:
        return AbsentError(f"topic {topic} does not exist, or this user may not describe it")
    if partition not in description.partitions:
        return AbsentError(
            f"topic {topic} has {spell_count(len(description.partitions), 'partition')}, and no {partition}"
        )
    return KafkaTemporaryError(f"{topic}[{partition}] has no leader; are its brokers up?")
