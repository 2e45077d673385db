"""The client of a cluster: asks brokers for topics, leaders, offsets, producers, transactions."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from archiver.errors import KafkaError, KafkaTemporaryError, StrangerError
from archiver.kafka.brokers import calls
from archiver.kafka.brokers.broker_requests import BrokerRequests, final_refusal
from archiver.kafka.brokers.cluster import (
    AbsentError,
    OpenTransaction,
    PartitionOffsets,
    Refusal,
    Replicas,
    TopicDescription,
    TopicPartition,
)
from archiver.kafka.brokers.codes import Code, broker_error
from archiver.kafka.login.settings import KafkaSettings
from archiver.process.output.text import spell_count

Answer = TypeVar("Answer")
Answers = tuple[dict[TopicPartition, Answer], dict[TopicPartition, Refusal]]


class KafkaClient(BrokerRequests):
    """`async with KafkaClient(settings) as client`; every method raises KafkaError (final) or KafkaTemporaryError."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, sleep=sleep, clock=clock)
        self._leaders: dict[str, dict[int, int]] = {}
        self._cluster_id = ""  # of the first answer that named one
        self._stranger: StrangerError | None = None
        self._has_met_stranger = asyncio.Event()

    # --- the cluster

    async def cluster_id(self) -> str:
        return (await self._metadata([])).cluster_id

    def belong_to(self, cluster_id: str) -> None:
        """Refuse answers of any other cluster from now on. Without this call the first answer decides."""
        self._cluster_id = cluster_id

    async def refuse_another_cluster(self) -> None:
        """Wait until another cluster answers at these addresses; then raise StrangerError."""
        await self._has_met_stranger.wait()
        if self._stranger is not None:
            raise self._stranger

    async def _metadata(self, names: Sequence[str] | None) -> calls.Metadata:
        """Ask for metadata of topics (None: all). Raises StrangerError if another cluster answers than before."""
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
        """Return topic ids by name, from one broker. Topics that it does not know, or without an id, are left out."""
        metadata = self._of_our_cluster(await self.send(node_id, calls.MetadataCall(sorted(names))))
        return {topic.name: topic.topic_id for topic in metadata.topics if topic.topic_id and not topic.error_code}

    async def describe_each(
        self, names: Iterable[str] | None
    ) -> tuple[dict[str, TopicDescription], dict[str, Refusal]]:
        """Return found topics, and refusals of others. Absent topics are in neither."""
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
        """Return the cached leader of a partition."""
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
        """Ask once for unknown leaders. Returns partitions without a leader, with reasons."""
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
        """Return the leader of a partition, from the cache or a broker. Call forget_leaders when it has moved."""
        return await self.persist(lambda: self._leader_once(topic, partition))

    async def _leader_once(self, topic: str, partition: int) -> int:
        for error in (await self.learn_leaders([(topic, partition)])).values():
            raise error
        return self._leaders[topic][partition]

    def forget_leaders(self, topic: str) -> None:
        """Drop the cached leaders of this topic."""
        self._leaders.pop(topic, None)

    # --- offsets and transactions

    async def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
        """Return the begins and ends of partitions. Raises the first refusal."""
        found, refused = await self.offsets_each(partitions)
        for error in refused.values():
            raise error
        return found

    async def offsets_each(self, partitions: Iterable[TopicPartition]) -> Answers[PartitionOffsets]:
        """Return the begins and ends of found partitions, and refusals of others."""
        return await self.ask_leaders(partitions, self._offsets_of)

    async def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, Sequence[TopicPartition]], Awaitable[Answers[Answer]]],
    ) -> Answers[Answer]:
        """Have `ask` send a request to each leader. Returns answers, and refusals that are final or lasted through all attempts."""
        found: dict[TopicPartition, Answer] = {}
        refused: dict[TopicPartition, Refusal] = {}
        left = set(partitions)

        async def ask_node(node_id: int, wanted: Sequence[TopicPartition]) -> Answers[Answer]:
            try:
                return await ask(node_id, wanted)
            except (KafkaError, KafkaTemporaryError) as error:
                return {}, dict.fromkeys(wanted, error)

        async def once() -> None:
            refused.clear()
            refused.update(await self.learn_leaders(left))
            by_node: dict[int, list[TopicPartition]] = defaultdict(list)
            for topic, partition in left - refused.keys():
                by_node[self._leaders[topic][partition]].append((topic, partition))
            for some, refused_now in await asyncio.gather(*(ask_node(*asked) for asked in by_node.items())):
                found.update(some)
                refused.update(refused_now)
                for topic, _ in refused_now:
                    self.forget_leaders(topic)
            left.difference_update(found)
            for error in refused.values():
                if isinstance(error, KafkaTemporaryError):
                    raise error

        try:
            await self.persist(once)
        except (KafkaError, KafkaTemporaryError) as error:
            refused |= dict.fromkeys(left - refused.keys(), error)
        return found, {which: final_refusal(error) for which, error in refused.items()}

    async def _offsets_of(self, node_id: int, wanted: Sequence[TopicPartition]) -> Answers[PartitionOffsets]:
        """Ask a leader three times, for start, last stable offset and end, in this order: each only grows, so start <= stable <= end."""
        start, no_start = await self._list_offsets(node_id, wanted, calls.EARLIEST_TIMESTAMP, calls.READ_UNCOMMITTED)
        stable, no_stable = await self._list_offsets(node_id, wanted, calls.LATEST_TIMESTAMP, calls.READ_COMMITTED)
        end, no_end = await self._list_offsets(node_id, wanted, calls.LATEST_TIMESTAMP, calls.READ_UNCOMMITTED)
        refused = no_end | no_stable | no_start
        found = {
            which: PartitionOffsets(
                log_start=start[which].offset,
                last_stable=stable[which].offset,
                high_watermark=end[which].offset,
                leader_epoch=end[which].leader_epoch,
            )
            for which in wanted
            if which not in refused
        }
        return found, refused

    async def _list_offsets(
        self, node_id: int, wanted: Iterable[TopicPartition], timestamp: int, isolation_level: int
    ) -> Answers[calls.ListedOffset]:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in wanted:
            by_topic[topic].append(partition)
        call = calls.ListOffsetsCall(by_topic, timestamp=timestamp, isolation_level=isolation_level)
        rows = {(row.topic, row.partition): row for row in await self.send(node_id, call)}
        refused: dict[TopicPartition, Refusal] = {
            (topic, partition): broker_error(
                row.error_code,
                f"offsets of {topic}[{partition}] from broker {node_id}",
                right=f"Describe on topic {topic}",
            )
            for (topic, partition), row in rows.items()
            if row.error_code
        }
        return {which: row for which, row in rows.items() if not row.error_code}, refused

    async def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> tuple[int, int]:
        """Return the first offset whose record is at or after a time, or the end of the log; and the leader epoch there."""

        async def ask(node_id: int, wanted: Sequence[TopicPartition]) -> Answers[calls.ListedOffset]:
            found, refused = await self._list_offsets(node_id, wanted, timestamp_ms, calls.READ_UNCOMMITTED)
            if any(row.offset < 0 for row in found.values()):
                return await self._list_offsets(node_id, wanted, calls.LATEST_TIMESTAMP, calls.READ_COMMITTED)
            return found, refused

        found, refused = await self.ask_leaders([(topic, partition)], ask)
        for error in refused.values():
            raise error
        return found[topic, partition].offset, found[topic, partition].leader_epoch

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


def _leaderless(topic: str, partition: int, description: TopicDescription | None) -> KafkaTemporaryError:
    if description is None:
        return AbsentError(f"topic {topic} does not exist, or this user may not describe it")
    if partition not in description.partitions:
        return AbsentError(
            f"topic {topic} has {spell_count(len(description.partitions), 'partition')}, and no {partition}"
        )
    return KafkaTemporaryError(f"{topic}[{partition}] has no leader; are its brokers up?")
