"""Sets and deletes positions of consumer groups without members, as an administrator does."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from archiver.errors import KafkaError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicPartition
from archiver.kafka.brokers.codes import Code, broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter
from archiver.kafka.groups.group_coordinators import coordinator_of
from archiver.kafka.groups.group_positions import Positions

Codes = Mapping[TopicPartition, int]

# No member: a broker takes it only for a group that has none, whichever protocol the group uses.
_NO_GENERATION: Final = -1
_BATCH_BYTES: Final = 1_000_000  # below message.max.bytes by default, 1,048,588
_RECORD_BYTES: Final = 72  # of a commit, without its texts: 43 under value v3, and 16 more for a topic id
_HAS_MEMBERS: Final = frozenset({
    Code.UNKNOWN_MEMBER_ID,
    Code.ILLEGAL_GENERATION,
    Code.STALE_MEMBER_EPOCH,
    Code.FENCED_MEMBER_EPOCH,
    Code.GROUP_SUBSCRIBED_TO_TOPIC,
    Code.NON_EMPTY_GROUP,
    Code.REBALANCE_IN_PROGRESS,
})  # fmt: skip


class GroupActiveError(KafkaError):
    """The group has members, so nothing was changed."""


async def commit_positions(client: KafkaClient, group: str, positions: Positions) -> None:
    """Set positions of one group in one request. Raises GroupActiveError when it has members, and then changes nothing.

    Only if they do not fit into a batch of `__consumer_offsets`, they take several requests, each refused
    like this. After KafkaTemporaryError the outcome is unknown. No request is retried here: a consumer may have committed
    meanwhile, so the caller must read the positions first.
    """
    node_id = await coordinator_of(client, group)
    for some in _batches(group, positions):
        codes = await client.send(node_id, OffsetCommitCall(group, some))
        _refuse(group, codes, "set", f"Read on group {group}")


def _batches(group: str, positions: Positions) -> Iterator[Positions]:
    """Split positions so that their records fit into a batch of the offsets topic, which has the brokers' default size."""
    batch: Positions = {}
    size = 0
    for place, position in sorted(positions.items()):
        record_bytes = _RECORD_BYTES + sum(len(text.encode()) for text in (group, place[0], position.metadata))
        if batch and size + record_bytes > _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
        batch[place] = position
        size += record_bytes
    if batch:
        yield batch


async def delete_positions(client: KafkaClient, group: str, partitions: Collection[TopicPartition]) -> None:
    """Delete positions of one group. A missing group has none. Raises as `commit_positions`.

    Brokers also do it for a group with members, if none of these has subscribed to the topic.
    """
    codes = await client.send(await coordinator_of(client, group), OffsetDeleteCall(group, partitions))
    found = {place: code for place, code in codes.items() if code != Code.GROUP_ID_NOT_FOUND}
    _refuse(group, found, "deleted", f"Delete on group {group}")


def _refuse(group: str, codes: Codes, done: str, right: str) -> None:
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
                right=f"{right}, and Read on topic {topic}",
            )


class OffsetCommitCall(Call[Codes]):
    """An error code for each position. Every supported broker has v8."""

    api_key = 8
    lowest = highest = 8
    flexible_from = 8
    when_sent = "positions.sent"

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
    when_sent = "deletion.sent"

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
