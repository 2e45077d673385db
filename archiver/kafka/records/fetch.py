"""Fetches record batches as the brokers store them, by topic id if the broker can."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import groupby

from archiver.errors import KafkaError
from archiver.kafka.brokers.broker_requests import Lane
from archiver.kafka.brokers.calls import READ_COMMITTED, UNKNOWN_EPOCH
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import DENIED, LEADER_MOVED, TEMPORARY, Code, broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, MalformedAnswerError, RequestWriter, uuid_bytes

# v12 is the first with last_fetched_epoch, v13 names topics by id. Both are encoded alike. Every supported broker has v12.
BY_NAME = 12
BY_TOPIC_ID = 13


class FetchProblem(Enum):
    """Why an answer has no records of one partition."""

    OFFSET_OUT_OF_RANGE = auto()  # below the log start or above the end: ask for the offsets
    DIVERGING_EPOCH = auto()  # the log was truncated; `diverging` has the offset
    UNKNOWN_TOPIC_ID = auto()  # the topic was deleted, and perhaps created again
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    NOT_LEADER = auto()  # forget the leaders, ask again
    TEMPORARY = auto()
    THROTTLED = auto()  # a quota; the client sends the next fetch when the broker takes requests again
    DENIED = auto()
    FAILED = auto()  # any other code; a retry does not help


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTarget:
    """The next position. `last_fetched_epoch` is the leader epoch of the last batch read, -1 before the first."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    last_fetched_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The broker's log agrees with ours up to the end of this epoch, below this offset."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One partition's answer.

    `records` is a slice of the whole answer, and keeps all of it in memory. The last batch may be cut, and the first may
    begin before the wanted offset. `aborted` are (producer id, first offset) of aborted transactions in it.
    """

    topic: str
    partition: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    by_topic_id: bool
    error: FetchProblem | None
    error_code: int = 0
    preferred_replica: int = -1  # a follower in our rack to read from instead
    diverging: Divergence | None = None


async def fetch(
    client: KafkaClient,
    node_id: int,
    targets: Sequence[FetchTarget],
    *,
    max_bytes: int,
    partition_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    rack: str = "",
    lane: Lane = Lane.FETCH,
) -> list[Fetched]:
    """Fetch, read_committed. Returns one answer per target, in their order. Brokers serve in that order until max_bytes are full.

    Brokers send the first batch of any size, so a record above partition_bytes or max_bytes is no obstacle. With a rack
    leaders may answer with no more than the replica to ask instead. An answer without records proves nothing about the log:
    see archiver.kafka.records.emptiness.
    """
    limit_ms = client.settings.request_timeout_ms // 2  # a longer wait would look like a dead broker
    call = FetchCall(
        targets,
        max_bytes=max_bytes,
        partition_bytes=partition_bytes,
        max_wait_ms=min(max_wait_ms, limit_ms),
        min_bytes=min_bytes,
        rack=rack,
    )
    error_code, answers = await client.send(node_id, call, lane=lane)
    if error_code:
        raise broker_error(error_code, f"fetch from broker {node_id}")
    # In an answer, refused partitions come last, whatever their place in the request.
    by_partition = {(answer.topic, answer.partition): answer for answer in answers}
    missing = [which for target in targets if (which := (target.topic, target.partition)) not in by_partition]
    if missing and call.throttle_ms:
        by_partition |= {which: _throttled(*which) for which in missing}
    elif missing:
        raise KafkaError(f"broker {node_id} left out {len(missing)} of {len(targets)} partitions, such as {missing[0]}")
    in_order = [by_partition[target.topic, target.partition] for target in targets]
    return await _refuse_others(client, node_id, targets, in_order)


async def _refuse_others(
    client: KafkaClient, node_id: int, targets: Sequence[FetchTarget], answers: list[Fetched]
) -> list[Fetched]:
    """Refuse records of a newer topic with the wanted name: a broker that serves by name does not distinguish them.

    The same broker is asked for the topic's id after its answer. This proves the records' origin: a broker learns of a
    deletion before it has records of the next topic of that name, and ids are never reused.
    """
    names = {
        target.topic
        for target, answer in zip(targets, answers, strict=True)
        if len(answer.records) and target.topic_id and not answer.by_topic_id
    }
    if not names:
        return answers
    ids = await client.topic_ids(node_id, names)
    return [
        _refused(answer, FetchProblem.UNKNOWN_TOPIC_ID)
        if target.topic in names and ids.get(target.topic) != target.topic_id
        else answer
        for target, answer in zip(targets, answers, strict=True)
    ]


def _refused(answer: Fetched, problem: FetchProblem) -> Fetched:
    return replace(answer, records=memoryview(b""), aborted=(), high_watermark=-1, last_stable_offset=-1, error=problem)


def _throttled(topic: str, partition: int) -> Fetched:
    return Fetched(
        topic=topic,
        partition=partition,
        records=memoryview(b""),
        aborted=(),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        by_topic_id=False,
        error=FetchProblem.THROTTLED,
    )


_HEADER = struct.Struct(">iiiibii")  # replica, max wait, min bytes, max bytes, isolation level, session, session epoch
_WANTED = struct.Struct(">iiqiqi")  # partition, leader epoch, offset, last fetched epoch, log start (followers), bytes
_ANSWERED = struct.Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iq")
_DIVERGING_TAG = 0


class FetchCall(Call[tuple[int, list[Fetched]]]):
    """A fetch without a session: each request names all its partitions."""

    api_key = 1
    lowest = BY_NAME

    def __init__(
        self,
        targets: Sequence[FetchTarget],
        *,
        max_bytes: int,
        partition_bytes: int,
        max_wait_ms: int,
        min_bytes: int,
        rack: str = "",
    ) -> None:
        self.highest = BY_TOPIC_ID if all(target.topic_id for target in targets) else BY_NAME
        self._targets = targets
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._rack = rack

    def write(self, out: RequestWriter, version: int) -> None:
        header = (-1, self._max_wait_ms, self._min_bytes, self._max_bytes, READ_COMMITTED, 0, -1)
        out.raw(_HEADER.pack(*header))
        # Only neighbours share a topic entry: the order decides which is served first, so a topic may appear twice.
        topics = [
            list(group) for _, group in groupby(self._targets, key=lambda target: (target.topic_id, target.topic))
        ]
        out.count(len(topics))
        for targets in topics:
            self._write_topic(out, version, targets)
        out.count(0)  # forgotten topics: of sessions
        out.text(self._rack)
        out.tags()

    def _write_topic(self, out: RequestWriter, version: int, targets: list[FetchTarget]) -> None:
        if version >= BY_TOPIC_ID:
            out.raw(uuid_bytes(targets[0].topic_id))
        else:
            out.text(targets[0].topic)
        out.count(len(targets))
        for target in targets:
            wanted = (target.partition, -1, target.offset, target.last_fetched_epoch, -1, self._partition_bytes)
            out.raw(_WANTED.pack(*wanted))
            out.tags()
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> tuple[int, list[Fetched]]:
        self.throttle_ms = answer.int32()
        error_code = answer.int16()
        answer.int32()  # session_id
        by_topic_id = version >= BY_TOPIC_ID
        names = {(target.topic_id if by_topic_id else target.topic): target.topic for target in self._targets}
        fetched: list[Fetched] = []
        for _ in range(answer.count()):
            which = answer.uuid() if by_topic_id else answer.text()
            if which not in names:
                raise MalformedAnswerError(f"topic {which} was not requested")
            fetched.extend(answer.array(lambda name=names[which]: _read_partition(answer, name, by_topic_id)))  # type: ignore[misc]
            answer.tags()
        answer.tags()
        return error_code, fetched


def _read_partition(answer: AnswerReader, topic: str, by_topic_id: bool) -> Fetched:
    partition, error_code, high_watermark, last_stable_offset, log_start_offset = answer.unpack(_ANSWERED)
    aborted_count = answer.count()
    aborted = tuple(_read_aborted(answer) for _ in range(aborted_count)) if aborted_count > 0 else ()
    preferred_replica = answer.int32()
    records = answer.blob()
    tags = answer.tags()
    diverging = _read_divergence(tags.get(_DIVERGING_TAG))
    return Fetched(
        topic=topic,
        partition=partition,
        records=records,
        aborted=aborted,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        by_topic_id=by_topic_id,
        preferred_replica=preferred_replica,
        error=FetchProblem.DIVERGING_EPOCH if diverging else problem_of(error_code),
        error_code=error_code,
        diverging=diverging,
    )


def _read_aborted(answer: AnswerReader) -> tuple[int, int]:
    producer_id, first_offset = answer.unpack(_ABORTED)
    answer.tags()
    return producer_id, first_offset


def _read_divergence(field: memoryview | None) -> Divergence | None:
    if field is None:
        return None
    epoch, end_offset = AnswerReader(field, flexible=True).unpack(_DIVERGING)
    return Divergence(epoch=epoch, end_offset=end_offset)


_PROBLEMS = {
    Code.OFFSET_OUT_OF_RANGE: FetchProblem.OFFSET_OUT_OF_RANGE,
    Code.UNKNOWN_TOPIC_OR_PARTITION: FetchProblem.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID: FetchProblem.UNKNOWN_TOPIC_ID,
    Code.INCONSISTENT_TOPIC_ID: FetchProblem.UNKNOWN_TOPIC_ID,
}


def problem_of(error_code: int) -> FetchProblem | None:
    """Return the problem of a partition's error code."""
    if error_code == Code.NONE:
        return None
    for codes, problem in ((LEADER_MOVED, FetchProblem.NOT_LEADER), (DENIED, FetchProblem.DENIED)):
        if error_code in codes:
            return problem
    if error_code in TEMPORARY:
        return FetchProblem.TEMPORARY
    return next((problem for code, problem in _PROBLEMS.items() if code == error_code), FetchProblem.FAILED)
