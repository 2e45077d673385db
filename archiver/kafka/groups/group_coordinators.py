"""Finds the coordinator of a consumer group and asks it for the group's positions."""

from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter
from archiver.kafka.groups.group_positions import OffsetFetchCall, Positions


async def coordinator_of(client: KafkaClient, group: str) -> int:
    """Return the node that coordinates a group. Brokers make the topic of all positions when they are first asked for it."""

    async def once() -> int:
        code, node_id = await client.send_any(FindCoordinatorCall(group))
        if code:
            raise broker_error(
                code, f"the coordinator of group {group} could not be found", right=f"Describe on group {group}"
            )
        return node_id

    return await client.persist(once)


async def settled_positions(client: KafkaClient, group: str) -> Positions:
    """Return the positions of one group from its coordinator; empty if it has committed none.

    Raises KafkaTemporaryError while an open transaction may still change that.
    """

    async def once() -> Positions:
        code, positions = await client.send(
            await coordinator_of(client, group), OffsetFetchCall(group, is_settled=True)
        )
        if code:
            what = f"the positions of group {group} could not be read"
            raise broker_error(code, what, right=f"Describe on group {group}")
        return positions

    return await client.persist(once)


class FindCoordinatorCall(Call[tuple[int, int]]):
    """(error code, node). Every supported broker has v3."""

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
        answer.text()  # meaning of the code
        return code, answer.int32()
