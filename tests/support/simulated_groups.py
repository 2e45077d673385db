"""A cluster whose only use is that groups have positions in it: what a KafkaClient is asked for that, answered from memory.

It keeps Kafka's rules: a commit without a generation is refused for a group with members, and nothing of it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from archiver.errors import KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import TopicDescription, TopicPartition
from archiver.kafka.brokers.codes import Code
from archiver.kafka.brokers.wire import Call
from archiver.kafka.groups.group_commits import OffsetCommitCall, OffsetDeleteCall
from archiver.kafka.groups.group_coordinators import FindCoordinatorCall
from archiver.kafka.groups.group_positions import GroupPosition, ListedGroup, ListGroupsCall, OffsetFetchCall, Positions
from archiver.kafka.topics.configs import DescribeConfigsCall
from tests.support.kafka_topics import described

Value = TypeVar("Value")
_ATTEMPTS = 3


class SimulatedGroups:
    """`before_call` and `after_call` are told what is asked, and may raise."""

    def __init__(self, cluster_id: str = "cluster") -> None:
        self.cluster = cluster_id
        self.topics: dict[str, str] = {}  # ids by name
        self.positions: dict[str, Positions] = {}
        self.members: set[str] = set()
        self.kinds: dict[str, str] = {}
        self.refused: dict[TopicPartition, Code] = {}  # commits
        self.expiry_minutes = ""
        self.before_call: Callable[[Call[Any]], None] = lambda _: None
        self.after_call: Callable[[Call[Any]], None] = lambda _: None

    @property
    def client(self) -> KafkaClient:
        return cast("KafkaClient", self)

    # --- what tests do

    def create_topic(self, name: str, topic_id: str) -> None:
        self.topics[name] = topic_id
        for positions in self.positions.values():  # brokers delete them with the topic
            for place in [one for one in positions if one[0] == name]:
                del positions[place]

    def put(self, group: str, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        position = GroupPosition(offset=offset, metadata=metadata)
        self.positions.setdefault(group, {})[topic, partition] = position

    # --- what a client is asked

    async def cluster_id(self) -> str:
        return self.cluster

    async def brokers(self) -> frozenset[int]:
        return frozenset({1})

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: described(name, self.topics[name]) for name in names if name in self.topics}

    async def persist(self, once: Callable[[], Awaitable[Value]]) -> Value:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await once()
            except KafkaTemporaryError:
                await asyncio.sleep(0)
        return await once()

    async def send_any(self, call: Call[Any]) -> Any:  # noqa: ANN401
        return await self.send(1, call)

    async def send(self, _node_id: int, call: Call[Any]) -> Any:  # noqa: ANN401
        await asyncio.sleep(0)
        self.before_call(call)
        answer = self._answer(call)
        self.after_call(call)
        return answer

    def _answer(self, call: Call[Any]) -> object:
        match call:
            case FindCoordinatorCall():
                return 0, 1
            case DescribeConfigsCall():
                return []
            case ListGroupsCall():
                return 0, {group: self._listed(group) for group in {*self.positions, *self.members, *self.kinds}}
            case OffsetFetchCall():
                return 0, dict(self.positions.get(call._group, {}))
            case OffsetCommitCall():
                return self._commit(call._group, call._positions)
            case OffsetDeleteCall():
                held = self.positions.get(call._group, {})
                for place in call._partitions:
                    held.pop(place, None)
                return dict.fromkeys(call._partitions, 0)
            case _:
                raise AssertionError(call)

    def _listed(self, group: str) -> ListedGroup:
        return ListedGroup(self.kinds.get(group, "consumer"), "Stable" if group in self.members else "Empty")

    def _commit(self, group: str, positions: Positions) -> dict[TopicPartition, int]:
        if group in self.members:
            return dict.fromkeys(positions, Code.UNKNOWN_MEMBER_ID)
        codes: dict[TopicPartition, int] = {place: self.refused.get(place, Code.NONE) for place in positions}
        taken = {place: one for place, one in positions.items() if not codes[place]}
        self.positions.setdefault(group, {}).update(taken)
        return codes
