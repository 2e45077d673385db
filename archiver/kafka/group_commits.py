"""Sets and deletes positions of consumer groups, as an administrator does: only where nobody is a member."""

from collections.abc import Collection, Mapping
from typing import Final

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import TopicPartition
from archiver.kafka.codes import Code, broker_error, code_text
from archiver.kafka.group_positions import Positions
from archiver.kafka.wire import AnswerReader, Call, RequestWriter

Codes = Mapping[TopicPartition, int]

# No member: a broker takes it only for a group that has none, whichever protocol the group uses.
_NO_GENERATION: Final = -1
_HAS_MEMBERS: Final = frozenset({
    Code.UNKNOWN_MEMBER_ID,
    Code.ILLEGAL_GENERATION,
    Code.STALE_MEMBER_EPOCH,
    Code.FENCED_MEMBER_EPOCH,
    Code.GROUP_SUBSCRIBED_TO_TOPIC,
    Code.NON_EMPTY_GROUP,
    Code.REBALANCE_IN_PROGRESS,
})  # fmt: skip


_MOVED: Final = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE})


class GroupActiveError(KafkaError):
    """A group has members: what it has committed is theirs, and nothing was changed."""


async def commit_positions(client: KafkaClient, group: str, positions: Positions) -> None:
    """Set positions of one group in one request. Raises GroupActiveError when it has members, and then changes nothing."""
    _refuse(group, await _ask_coordinator(client, group, OffsetCommitCall(group, positions)), "set")


async def delete_positions(client: KafkaClient, group: str, partitions: Collection[TopicPartition]) -> None:
    """Take positions of one group away. A group that is not there has none. Raises GroupActiveError."""
    codes = await _ask_coordinator(client, group, OffsetDeleteCall(group, partitions))
    _refuse(group, {key: code for key, code in codes.items() if code != Code.GROUP_ID_NOT_FOUND}, "deleted")


def _refuse(group: str, codes: Codes, done: str) -> None:
    for (topic, partition), code in sorted(codes.items()):
        if code in _HAS_MEMBERS:
            raise GroupActiveError(
                f"group {group} has members, so none of its positions was {done}; stop its consumers, and run the same"
                " command again"
            )
        if code:
            raise broker_error(
                code,
                f"the position of group {group} in {topic}-{partition} could not be {done}",
                right=f"Read on group {group} and topic {topic}",
            )


async def _ask_coordinator(client: KafkaClient, group: str, call: Call[Codes]) -> Codes:
    """Ask the group's coordinator; where that moves, again."""

    async def once() -> Codes:
        codes = await client.send(await _coordinator(client, group), call)
        moved = _MOVED.intersection(codes.values())
        if moved:
            raise KafkaTemporaryError(f"the coordinator of group {group} moves: {code_text(min(moved))}")
        return codes

    return await client.persist(once)


async def _coordinator(client: KafkaClient, group: str) -> int:
    """Return the node that coordinates a group. Brokers make the topic of all positions when they are first asked for it."""
    code, node_id = await client.send_any(FindCoordinatorCall(group))
    if code:
        raise broker_error(
            code, f"the coordinator of group {group} could not be found", right=f"Describe on group {group}"
        )
    return node_id


class FindCoordinatorCall(Call[tuple[int, int]]):
    """(error code, node). v3 is what every supported broker has."""

    api_key = 10
    lowest = highest = 3
    flexible_from = 3

    def __init__(self, group: str) -> None:
        self._group = group

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.text(self._group)
        out.int8(0)  # a group, not a transaction
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> tuple[int, int]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        code = answer.int16()
        answer.text()  # what the code means
        return code, answer.int32()


class OffsetCommitCall(Call[Codes]):
    """An error code for each position. v8 is what every supported broker has."""

    api_key = 8
    lowest = highest = 8
    flexible_from = 8

    def __init__(self, group: str, positions: Positions) -> None:
        self._group = group
        self._positions = positions

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.text(self._group)
        out.int32(_NO_GENERATION)
        out.text("")  # no member
        out.text(None)  # nor a static one
        by_topic = _by_topic(self._positions)
        out.count(len(by_topic))
        for topic, partitions in by_topic.items():
            out.text(topic)
            out.count(len(partitions))
            for partition in partitions:
                position = self._positions[topic, partition]
                out.int32(partition)
                out.int64(position.offset)
                out.int32(position.leader_epoch)
                out.text(position.metadata)
                out.tags()
            out.tags()
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> Codes:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        return _read_codes(answer)


class OffsetDeleteCall(Call[Codes]):
    """An error code for each position; one for the whole group is that of each."""

    api_key = 47
    lowest = highest = 0
    flexible_from = 1

    def __init__(self, group: str, partitions: Collection[TopicPartition]) -> None:
        self._group = group
        self._partitions = partitions

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.text(self._group)
        by_topic = _by_topic(self._partitions)
        out.count(len(by_topic))
        for topic, partitions in by_topic.items():
            out.text(topic)
            out.count(len(partitions))
            for partition in partitions:
                out.int32(partition)

    def read(self, answer: AnswerReader, version: int) -> Codes:  # noqa: ARG002 one version
        code = answer.int16()
        self.throttle_ms = answer.int32()
        codes = _read_codes(answer)
        return dict.fromkeys(self._partitions, code) if code else codes


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _read_codes(answer: AnswerReader) -> Codes:
    codes: dict[TopicPartition, int] = {}
    for _ in range(answer.count()):
        topic = answer.text()
        for _ in range(answer.count()):
            partition = answer.int32()
            codes[topic, partition] = answer.int16()
            answer.tags()
        answer.tags()
    answer.tags()
    return codes
