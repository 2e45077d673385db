"""Reads the sizes of partitions on the brokers' disks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicDescription
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter

_RIGHT = "Describe on the cluster"
_TELLS_REFUSAL = (
    3  # the first version with an error code; older ones answer a user without the right with an empty list
)


class LogSizes(NamedTuple):
    """Bytes by partition, on its largest replica; `unknown`: reasons for missing sizes."""

    bytes: Mapping[int, int]
    unknown: str = ""


async def log_sizes(client: KafkaClient, topics: Mapping[str, TopicDescription]) -> dict[str, LogSizes]:
    """Ask all brokers: retention depends on the leader's size, and the leader may change. Without its answer a size is unknown."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    refused = ""
    for node in sorted(await client.brokers()) if topics else ():
        try:
            rows = await client.persist(lambda: _ask(client, node, topics))  # noqa: B023 - it is awaited here
        except (KafkaError, KafkaTemporaryError) as error:
            refused = refused or str(error)
            continue
        for row in rows:
            found.setdefault((row.topic, row.partition), {})[node] = row.size
    return {name: _sizes_of(described, found, refused) for name, described in topics.items()}


def _sizes_of(
    described: TopicDescription, found: Mapping[tuple[str, int], Mapping[int, int]], refused: str
) -> LogSizes:
    sizes: dict[int, int] = {}
    for number in described.partitions:
        by_node = found.get((described.name, number), {})
        if described.leaders.get(number) in by_node:
            sizes[number] = max(by_node.values())
    if len(sizes) == len(described.partitions):
        return LogSizes(sizes)
    return LogSizes(sizes, refused or f"its leader does not tell; grant this user {_RIGHT}")


class _SizeRow(NamedTuple):
    topic: str
    partition: int
    size: int


async def _ask(client: KafkaClient, node: int, topics: Mapping[str, TopicDescription]) -> Sequence[_SizeRow]:
    call = DescribeLogDirsCall({name: described.partitions for name, described in topics.items()})
    code, rows = await client.send(node, call)
    if code:
        raise broker_error(code, f"sizes of logs from broker {node}", right=_RIGHT)
    return rows


class DescribeLogDirsCall(Call[tuple[int, list[_SizeRow]]]):
    """(error code, sizes) of the replicas that a broker has of some partitions; of a log that is moving to another disk, the old copy."""

    api_key = 35
    lowest = 1
    highest = _TELLS_REFUSAL
    flexible_from = 2

    def __init__(self, partitions: Mapping[str, Iterable[int]]) -> None:
        self._partitions = {name: list(numbers) for name, numbers in partitions.items()}

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 all are written alike
        out.count(len(self._partitions))
        for name, numbers in self._partitions.items():
            out.text(name)
            out.count(len(numbers))
            for number in numbers:
                out.int32(number)
            out.tags()
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> tuple[int, list[_SizeRow]]:
        self.throttle_ms = answer.int32()
        code = answer.int16() if version >= _TELLS_REFUSAL else 0
        return code, [row for rows in answer.array(lambda: _read_dir(answer)) for row in rows]


def _read_dir(answer: AnswerReader) -> list[_SizeRow]:
    answer.int16()  # its error, with which it lists nothing
    answer.text()  # its path
    rows = [row for rows in answer.array(lambda: _read_topic(answer)) for row in rows]
    answer.tags()
    return rows


def _read_topic(answer: AnswerReader) -> list[_SizeRow]:
    topic = answer.text()
    found = answer.array(lambda: _read_partition(answer))
    answer.tags()
    return [_SizeRow(topic, partition, size) for partition, size, is_moving in found if not is_moving]


def _read_partition(answer: AnswerReader) -> tuple[int, int, bool]:
    partition, size = answer.int32(), answer.int64()
    answer.int64()  # how far the replica is behind
    row = partition, size, bool(answer.int8())
    answer.tags()
    return row
