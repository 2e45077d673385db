"""Asks the brokers which operations this user may do on topics and on the cluster."""

from collections.abc import Collection, Mapping
from enum import IntEnum

from archiver.kafka.brokers import calls
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter

_UNTOLD = -(2**31)


class Operation(IntEnum):
    """Operations that cannot be tried without doing them. Brokers return one bit for each allowed one."""

    READ = 3
    WRITE = 4
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8

    @property
    def right(self) -> str:
        """The operation's name in ACLs."""
        return self.name.capitalize()


async def missing_rights(
    client: KafkaClient, wanted: Mapping[str, Collection[Operation]]
) -> dict[str, list[Operation]]:
    """Return wanted operations on topics that this user may not do. If brokers do not answer, none counts as missing."""
    if not wanted:
        return {}
    metadata = await client.send_any(calls.MetadataCall(sorted(wanted), with_operations=True))
    missing = {topic.name: missing_among(wanted[topic.name], topic.operations) for topic in metadata.topics}
    return {name: some for name, some in missing.items() if some}


def missing_among(wanted: Collection[Operation], told: int) -> list[Operation]:
    """Return the operations whose bits are not set."""
    return [] if told == _UNTOLD else [one for one in sorted(wanted) if not told >> one & 1]


async def may_on_cluster(client: KafkaClient, operation: Operation) -> bool:
    """Return whether this user may do an operation on the cluster; also True if brokers do not answer."""
    return not missing_among([operation], await client.send_any(_ClusterOperationsCall()))


class _ClusterOperationsCall(Call[int]):
    """Asks what this user may do with the cluster, a bit each; the rest of DescribeCluster's answer is skipped."""

    api_key = 60
    lowest = highest = 0

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.int8(1)  # include operations
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> int:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        code = answer.int16()
        answer.text_or_none()  # the broker's message
        answer.text()  # the cluster's id
        answer.int32()  # the controller
        answer.array(lambda: _read_broker(answer))
        operations = answer.int32()
        answer.tags()
        return _UNTOLD if code else operations


def _read_broker(answer: AnswerReader) -> None:
    answer.int32()  # its id
    answer.text()  # host
    answer.int32()  # port
    answer.text_or_none()  # rack
    answer.tags()
