"""Requests about metadata, offsets, producers, transactions. FetchCall and ProduceCall are in the modules that use them."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter

UNKNOWN_EPOCH = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
EARLIEST_TIMESTAMP = -2  # these three replace a timestamp in ListOffsets
LATEST_TIMESTAMP = -1
EARLIEST_LOCAL_TIMESTAMP = -4  # the start of the log on the leader's disk; older records are in a remote tier
_KNOWS_LOCAL_START = (
    8  # the first version of ListOffsets that takes EARLIEST_LOCAL_TIMESTAMP: no older Apache Kafka has tiers
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition; leader -1: none at the moment."""

    partition: int
    error_code: int
    leader: int
    replicas: int
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic as a broker describes it."""

    name: str
    topic_id: str
    error_code: int
    is_internal: bool
    partitions: list[PartitionMetadata]
    operations: int  # allowed operations of this user as bits, if asked for and answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A broker's metadata of the cluster and the requested topics."""

    cluster_id: str
    brokers: frozenset[int]
    controller: int  # takes changes to topics, or passes them on
    topics: list[TopicMetadata]


class MetadataCall(Call[Metadata]):
    """Topics by name; `None` asks for all. v10 is the first with topic ids."""

    api_key = 3
    lowest = 10
    highest = 12

    def __init__(self, names: Sequence[str] | None, *, with_operations: bool = False) -> None:
        self._names = names
        self._with_operations = with_operations

    def write(self, out: RequestWriter, version: int) -> None:
        out.count(-1 if self._names is None else len(self._names))
        for name in self._names or ():
            out.raw(bytes(16))
            out.text(name)
            out.tags()
        out.int8(0)  # allow_auto_topic_creation: asking must not create
        if version <= 10:
            out.int8(0)  # include_cluster_authorized_operations
        out.int8(self._with_operations)  # include_topic_authorized_operations
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> Metadata:
        self.throttle_ms = answer.int32()
        brokers = frozenset(answer.array(lambda: _read_broker(answer)))
        cluster_id = answer.text()
        controller = answer.int32()
        topics = answer.array(lambda: _read_topic(answer))
        if version <= 10:
            answer.int32()  # cluster_authorized_operations
        answer.tags()
        return Metadata(cluster_id=cluster_id, brokers=brokers, controller=controller, topics=topics)


def _read_broker(answer: AnswerReader) -> int:
    node_id = answer.int32()
    answer.text()  # host
    answer.int32()  # port
    answer.text()  # rack
    answer.tags()
    return node_id


def _read_topic(answer: AnswerReader) -> TopicMetadata:
    error_code, name, topic_id = answer.int16(), answer.text(), answer.uuid()
    is_internal = bool(answer.int8())
    partitions = answer.array(lambda: _read_partition(answer))
    operations = answer.int32()
    answer.tags()
    return TopicMetadata(
        name=name,
        topic_id=topic_id,
        error_code=error_code,
        is_internal=is_internal,
        partitions=partitions,
        operations=operations,
    )


def _read_partition(answer: AnswerReader) -> PartitionMetadata:
    error_code, partition, leader = answer.int16(), answer.int32(), answer.int32()
    answer.int32()  # leader_epoch
    replicas, in_sync, _ = (tuple(answer.array(answer.int32)) for _ in ("replicas", "in sync", "offline"))
    answer.tags()
    return PartitionMetadata(
        partition=partition, error_code=error_code, leader=leader, replicas=len(replicas), in_sync=in_sync
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """One partition's answer to ListOffsets."""

    topic: str
    partition: int
    error_code: int
    offset: int
    leader_epoch: int


_OFFSET_WANTED = struct.Struct(">iiq")  # partition, current leader epoch, timestamp
_OFFSET_LISTED = struct.Struct(">ihqqi")  # partition, error, timestamp, offset, leader epoch


class ListOffsetsCall(Call[list[ListedOffset]]):
    """Begins (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP) or ends (LATEST_TIMESTAMP, by isolation level) of partitions. Only leaders answer.

    With `leader_epoch`, only a broker that leads in that epoch answers. From v5 on a new leader answers that it does not know yet.
    """

    api_key = 2
    lowest = 5
    highest = _KNOWS_LOCAL_START
    flexible_from = 6

    def __init__(
        self,
        partitions: dict[str, list[int]],
        *,
        timestamp: int,
        isolation_level: int,
        leader_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        self._partitions = partitions
        self._timestamp = timestamp
        self._isolation_level = isolation_level
        self._leader_epoch = leader_epoch
        self.knows_local_start = False  # set by `write`; False: this broker was asked for EARLIEST_TIMESTAMP instead

    def write(self, out: RequestWriter, version: int) -> None:
        self.knows_local_start = version >= _KNOWS_LOCAL_START
        timestamp = (
            EARLIEST_TIMESTAMP
            if self._timestamp == EARLIEST_LOCAL_TIMESTAMP and not self.knows_local_start
            else self._timestamp
        )
        out.int32(-1)  # replica_id: a consumer
        out.int8(self._isolation_level)
        out.count(len(self._partitions))
        for topic, partitions in self._partitions.items():
            out.text(topic)
            out.count(len(partitions))
            for partition in partitions:
                out.raw(_OFFSET_WANTED.pack(partition, self._leader_epoch, timestamp))
                out.tags()
            out.tags()
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> list[ListedOffset]:  # noqa: ARG002 all are read alike
        self.throttle_ms = answer.int32()
        return [offset for topic in answer.array(lambda: _read_listed(answer)) for offset in topic]


def _read_listed(answer: AnswerReader) -> list[ListedOffset]:
    topic = answer.text()
    rows = answer.array(lambda: _read_listed_partition(answer, topic))
    answer.tags()
    return rows


def _read_listed_partition(answer: AnswerReader, topic: str) -> ListedOffset:
    partition, error, _timestamp, offset, epoch = answer.unpack(_OFFSET_LISTED)
    answer.tags()
    return ListedOffset(topic=topic, partition=partition, error_code=error, offset=offset, leader_epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """One partition's answer: the largest epoch that is not above the wanted one, and its end; both -1: not known."""

    topic: str
    partition: int
    error_code: int
    leader_epoch: int
    end_offset: int


_EPOCH_WANTED = struct.Struct(">iii")  # partition, current leader epoch, epoch
_EPOCH_ENDED = struct.Struct(">hiiq")  # error, partition, epoch, end offset


class OffsetForLeaderEpochCall(Call[list[EpochEnd]]):
    """The ends of leader epochs in the leaders' logs: {(topic, partition): epoch}. Only leaders answer."""

    api_key = 23
    lowest = highest = 3
    flexible_from = 4

    def __init__(self, epochs: Mapping[tuple[str, int], int]) -> None:
        self._epochs = epochs

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), epoch in self._epochs.items():
            by_topic.setdefault(topic, []).append((partition, epoch))
        out.int32(-1)  # replica_id: a consumer
        out.count(len(by_topic))
        for topic, wanted in by_topic.items():
            out.text(topic)
            out.count(len(wanted))
            for partition, epoch in wanted:
                out.raw(_EPOCH_WANTED.pack(partition, UNKNOWN_EPOCH, epoch))

    def read(self, answer: AnswerReader, version: int) -> list[EpochEnd]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        return [end for topic in answer.array(lambda: _read_epoch_ends(answer)) for end in topic]


def _read_epoch_ends(answer: AnswerReader) -> list[EpochEnd]:
    topic = answer.text()
    rows = answer.array(lambda: answer.unpack(_EPOCH_ENDED))
    return [
        EpochEnd(topic=topic, partition=partition, error_code=error, leader_epoch=epoch, end_offset=offset)
        for error, partition, epoch, offset in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that the partition's leader remembers; start_offset -1: no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersDescribed:
    """DescribeProducers' answer for one partition."""

    error_code: int
    error_message: str
    producers: list[ActiveProducer]


class DescribeProducersCall(Call[ProducersDescribed]):
    """The producers of one partition; only its leader answers."""

    api_key = 61
    lowest = highest = 0

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(1)
        out.text(self._topic)
        out.count(1)
        out.int32(self._partition)
        out.tags()
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> ProducersDescribed:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        answer.count()  # one topic was asked for
        answer.text()
        answer.count()  # and one partition
        answer.int32()
        error_code, error_message = answer.int16(), answer.text()
        producers = answer.array(lambda: _read_producer(answer))
        return ProducersDescribed(error_code=error_code, error_message=error_message, producers=producers)


_PRODUCER = struct.Struct(">qiiqiq")  # id, epoch, last sequence, last timestamp, coordinator epoch, transaction start


def _read_producer(answer: AnswerReader) -> ActiveProducer:
    producer_id, epoch, sequence, timestamp, _coordinator_epoch, start = answer.unpack(_PRODUCER)
    answer.tags()
    return ActiveProducer(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=sequence,
        last_timestamp_ms=timestamp,
        start_offset=start,
    )


class ListTransactionsCall(Call[tuple[int, dict[int, str]]]):
    """(error code, transactional id by producer id) of the transactions that one broker coordinates. Brokers from 3.0."""

    api_key = 66
    lowest = highest = 0

    def __init__(self, producer_ids: Sequence[int]) -> None:
        self._producer_ids = producer_ids

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(0)  # any state
        out.count(len(self._producer_ids))
        for producer_id in self._producer_ids:
            out.int64(producer_id)
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> tuple[int, dict[int, str]]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        error_code = answer.int16()
        answer.array(answer.text)  # unknown state filters
        return error_code, dict(answer.array(lambda: _read_transaction(answer)))


def _read_transaction(answer: AnswerReader) -> tuple[int, str]:
    transactional_id, producer_id = answer.text(), answer.int64()
    answer.text()  # state
    answer.tags()
    return producer_id, transactional_id


class ApiVersionsCall(Call[dict[int, int]]):
    """The newest version that a broker speaks of each API, by its key."""

    api_key = 18
    lowest = highest = 0
    flexible_from = 3

    def write(self, out: RequestWriter, version: int) -> None:
        """Write nothing: the request has no body."""

    def read(self, answer: AnswerReader, version: int) -> dict[int, int]:  # noqa: ARG002 one version
        answer.int16()  # error code: only for versions of this call that a broker does not know
        rows = answer.array(lambda: (answer.int16(), answer.int16(), answer.int16()))
        return {key: newest for key, _, newest in rows}


class InitProducerIdCall(Call[tuple[int, int, int]]):
    """(error code, producer id, epoch) of a new idempotent producer without a transactional id."""

    api_key = 22
    lowest = 0
    highest = 1
    flexible_from = 2

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 both versions are alike
        out.text(None)
        out.int32(2**31 - 1)  # transaction_timeout_ms: no meaning here

    def read(self, answer: AnswerReader, version: int) -> tuple[int, int, int]:  # noqa: ARG002 both versions are alike
        self.throttle_ms = answer.int32()
        return answer.int16(), answer.int64(), answer.int16()
