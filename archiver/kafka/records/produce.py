"""Sends finished record batches v2, idempotently, one answer each. Sending a batch again is always safe."""

from dataclasses import dataclass
from enum import Enum, auto

from archiver.kafka.brokers.broker_requests import Lane
from archiver.kafka.brokers.calls import InitProducerIdCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import LEADER_MOVED, TEMPORARY, Code, broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """The producer id and epoch that identify a producer's batches to a broker."""

    producer_id: int
    epoch: int


class ProduceOutcome(Enum):
    """The outcome of sending a batch."""

    DONE = auto()  # the batch is in the log at base_offset, perhaps from an earlier attempt
    OUT_OF_SEQUENCE = auto()  # another run with this identity is ahead, or a batch is missing: read the log's end again
    DUPLICATE = auto()  # the batch is in the log; the broker no longer knows where
    TEMPORARY = auto()  # unknown outcome: send the same batch again
    FATAL = auto()  # the broker will never accept this batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceAnswer:
    """base_offset is -1 unless DONE; message is for people."""

    outcome: ProduceOutcome
    base_offset: int
    error_code: int
    message: str = ""


async def init_producer_id(client: KafkaClient) -> ProducerIdentity:
    """Ask for a new identity for idempotent produce, without a transactional id."""

    async def once() -> ProducerIdentity:
        error_code, producer_id, epoch = await client.send_any(InitProducerIdCall())
        if error_code:  # a broker that has just started has no ids yet
            right = "Write on a topic, or IdempotentWrite on the cluster"
            raise broker_error(error_code, "a producer id was asked for", right=right)
        return ProducerIdentity(producer_id=producer_id, epoch=epoch)

    return await client.persist(once)


async def produce(
    client: KafkaClient, topic: str, partition: int, batch: bytes | memoryview, timeout_ms: int
) -> ProduceAnswer:
    """Send one batch to the partition's leader and wait for all in-sync replicas.

    KafkaTemporaryError: the network failed, and the outcome is unknown; send the same batch again.
    """
    node_id = await client.leader(topic, partition)
    row = await client.send(node_id, ProduceCall(topic, partition, batch, timeout_ms), lane=Lane.PRODUCE)
    if row.error_code in LEADER_MOVED or row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        client.forget_leaders(topic)
    outcome = outcome_of(row.error_code)
    refusal = broker_error(row.error_code, f"{topic}[{partition}]", row.detail, right=f"Write on topic {topic}")
    message = "" if outcome is ProduceOutcome.DONE else str(refusal)
    base_offset = row.base_offset if outcome is ProduceOutcome.DONE else -1
    return ProduceAnswer(outcome=outcome, base_offset=base_offset, error_code=row.error_code, message=message)


_OUTCOMES = {
    Code.NONE: ProduceOutcome.DONE,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceOutcome.OUT_OF_SEQUENCE,
    Code.DUPLICATE_SEQUENCE_NUMBER: ProduceOutcome.DUPLICATE,
    Code.UNKNOWN_TOPIC_OR_PARTITION: ProduceOutcome.TEMPORARY,  # a new topic is not known to every broker at once
}


def outcome_of(error_code: int) -> ProduceOutcome:
    """Return the outcome of a produce error code."""
    if error_code in TEMPORARY and error_code != Code.UNKNOWN_SERVER_ERROR:
        return ProduceOutcome.TEMPORARY
    return next((outcome for code, outcome in _OUTCOMES.items() if code == error_code), ProduceOutcome.FATAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Produced:
    error_code: int
    base_offset: int
    detail: str


class ProduceCall(Call[_Produced]):
    """One batch to one partition. v8 is the last before the compact forms, and the first to name the records that are refused."""

    api_key = 0
    when_sent = "batch.sent"
    lowest = highest = 8
    flexible_from = 9

    def __init__(self, topic: str, partition: int, batch: bytes | memoryview, timeout_ms: int) -> None:
        self._topic = topic
        self._partition = partition
        self._batch = batch
        self._timeout_ms = timeout_ms

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.text(None)  # transactional_id
        out.int16(-1)  # acks: all in-sync replicas
        out.int32(self._timeout_ms)
        out.count(1)
        out.text(self._topic)
        out.count(1)
        out.int32(self._partition)
        out.int32(len(self._batch))
        out.raw(self._batch)

    def read(self, answer: AnswerReader, version: int) -> _Produced:  # noqa: ARG002 one version
        answer.count()  # one topic was sent
        answer.text()
        answer.count()  # and one partition
        answer.int32()
        error_code, base_offset = answer.int16(), answer.int64()
        answer.int64()  # log_append_time_ms
        answer.int64()  # log_start_offset
        wrong = answer.array(lambda: (answer.int32(), answer.text()))
        detail = [answer.text(), *(f"record {index} of the batch: {why}" for index, why in wrong[:3])]
        self.throttle_ms = answer.int32()
        return _Produced(error_code=error_code, base_offset=base_offset, detail=", ".join(filter(None, detail)))
