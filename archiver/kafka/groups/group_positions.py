"""Reads the positions of consumer groups from their coordinators.

confluent-kafka's AdminClient cuts metadata at a zero byte, which its own consumer commits, and leaves out groups of Kafka
Streams' own protocol.
"""

import asyncio
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.calls import MetadataCall
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal, TopicPartition
from archiver.kafka.brokers.codes import Code, broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter
from archiver.kafka.topics.rights import Operation, may_on_cluster

OFFSETS_TOPIC: Final = "__consumer_offsets"
_AT_ONCE = 16  # requests to one broker; it answers a connection's requests one after the other
# Empty: committed by a client that never joined. Other kinds (connect, share) have no such positions.
_WITH_POSITIONS = frozenset({"", "consumer", "streams"})
_WITHOUT_MEMBERS = frozenset({"", "Empty", "Dead"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """A group's committed position in a partition; epoch -1 and empty metadata if none were committed."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Positions = dict[TopicPartition, GroupPosition]


async def positions_each(client: KafkaClient) -> tuple[dict[str, Positions], dict[str, Refusal]]:
    """Return the positions of each group, perhaps none, and refusals of others.

    Raises if unknown groups could be missing: a coordinator is down, or has just moved.
    """
    found: dict[str, Positions] = {}
    refused: dict[str, Refusal] = {}

    async def ask(node_id: int, groups: Iterator[str]) -> None:
        for group in groups:
            code, positions = await client.send(node_id, OffsetFetchCall(group))
            if not code:
                found[group] = positions
            elif code != Code.GROUP_ID_NOT_FOUND:  # the group was deleted meanwhile
                refused[group] = broker_error(
                    code, f"the positions of group {group} could not be read", right=f"Describe on group {group}"
                )

    async def ask_broker(node_id: int) -> None:
        listed = await _groups_of_broker(client, node_id)
        groups = (group for group, one in listed.items() if one.has_positions)
        await asyncio.gather(*(ask(node_id, groups) for _ in range(_AT_ONCE)))

    coordinators = await _coordinators(client)
    await asyncio.gather(*map(ask_broker, coordinators.brokers))
    if await _coordinators(client) != coordinators:
        raise KafkaTemporaryError("groups got other coordinators while they were asked; some may have been missed")
    refused = {
        group: error for group, error in refused.items() if group not in found
    }  # found with another coordinator: the group has moved meanwhile
    for error in refused.values():
        if not found and isinstance(error, KafkaTemporaryError):
            raise error
    return found, refused


async def positions_of(client: KafkaClient, group: str) -> Positions:
    """Return the positions of one group; empty if the group does not exist."""

    async def once() -> Positions:
        failure: KafkaTemporaryError | None = None  # of a broker that may coordinate the group
        for node_id in sorted(await client.brokers()):
            try:
                code, positions = await client.send(node_id, OffsetFetchCall(group))
            except KafkaTemporaryError as error:
                failure = error
                continue
            if code == Code.GROUP_ID_NOT_FOUND:
                return {}
            if code and code != Code.NOT_COORDINATOR:
                what = f"the positions of group {group} could not be read"
                raise broker_error(code, what, right=f"Describe on group {group}")
            if not code:
                return positions
        if failure is not None:
            raise failure
        return {}  # no coordinator exists: no group has ever committed

    return await client.persist(once)


async def sees_all_groups(client: KafkaClient) -> bool:
    """Return whether this user sees all groups: without the right, brokers list only some and return no error."""
    if await may_on_cluster(client, Operation.DESCRIBE):
        return True
    try:
        await positions_of(
            client, f"archiver-{uuid.uuid4()}"
        )  # no such group exists, so a right on some groups does not cover it
    except KafkaError as error:
        if error.code != Code.GROUP_AUTHORIZATION_FAILED:
            raise
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Coordinators:
    """The brokers to ask. `leaders`: of the partitions of the offsets topic; empty if this user may not see it."""

    brokers: frozenset[int]
    leaders: dict[int, int]


async def _coordinators(client: KafkaClient) -> _Coordinators:
    metadata = await client.send_any(MetadataCall([OFFSETS_TOPIC]))
    leaders = {row.partition: row.leader for topic in metadata.topics for row in topic.partitions}
    for partition, leader in leaders.items():
        if leader < 0:
            raise KafkaTemporaryError(
                f"{OFFSETS_TOPIC}[{partition}] has no leader; the positions of its groups are unknown"
            )
    return _Coordinators(metadata.brokers, leaders)


async def list_groups(client: KafkaClient) -> dict[str, "ListedGroup"]:
    """Return the groups that this user may describe, with kind and state."""

    async def once() -> dict[str, ListedGroup]:
        nodes = sorted(await client.brokers())
        some = await asyncio.gather(*(_groups_of_broker(client, node_id) for node_id in nodes))
        return {group: one for found in some for group, one in found.items()}

    return await client.persist(once)


async def _groups_of_broker(client: KafkaClient, node_id: int) -> dict[str, "ListedGroup"]:
    code, groups = await client.send(node_id, ListGroupsCall())
    if code:
        right = "Describe on the groups, or on the cluster"
        raise broker_error(code, f"the groups of broker {node_id} could not be listed", right=right)
    return groups


class ListedGroup(NamedTuple):
    """The kind of a group, by its protocol type; and its state."""

    kind: str
    state: str

    @property
    def has_positions(self) -> bool:
        return self.kind in _WITH_POSITIONS

    @property
    def has_members(self) -> bool:
        return self.state not in _WITHOUT_MEMBERS


UNLISTED: Final = ListedGroup("", "")


class ListGroupsCall(Call[tuple[int, dict[str, ListedGroup]]]):
    """(error code, groups by name) of the groups that one broker coordinates, and that this user may describe."""

    api_key = 16
    lowest = highest = 4  # the first with states
    flexible_from = 3

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(0)  # in any state
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> tuple[int, dict[str, ListedGroup]]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        return answer.int16(), dict(answer.array(lambda: _read_group(answer)))


def _read_group(answer: AnswerReader) -> tuple[str, ListedGroup]:
    group, kind, state = answer.text(), answer.text(), answer.text()
    answer.tags()
    return group, ListedGroup(kind, state)


_COMMITTED = struct.Struct(">iqi")  # partition, offset, leader epoch


class OffsetFetchCall(Call[tuple[int, Positions]]):
    """(error code, positions) of one group, those that this user may describe. Later versions name several groups."""

    api_key = 9
    lowest = highest = 7

    def __init__(self, group: str, *, is_settled: bool = False) -> None:
        self._group = group
        self._is_settled = is_settled

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.text(self._group)
        out.count(-1)  # all topics
        out.int8(int(self._is_settled))  # 0: return the position before an open transaction; 1: refuse
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> tuple[int, Positions]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        positions: Positions = {}
        refusals: list[int] = []
        for _ in range(answer.count()):
            topic = answer.text()
            for _ in range(answer.count()):
                partition, offset, leader_epoch = answer.unpack(_COMMITTED)
                position = GroupPosition(offset=offset, leader_epoch=leader_epoch, metadata=answer.text())
                refusals.append(answer.int16())
                answer.tags()
                if offset >= 0:
                    positions[topic, partition] = position
            answer.tags()
        return answer.int16() or next(filter(None, refusals), 0), positions
