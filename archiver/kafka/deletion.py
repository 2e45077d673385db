"""Deletes topics by their ids: a topic that has got the name meanwhile stays."""

from collections.abc import Iterable

from archiver.kafka import calls
from archiver.kafka.client import KafkaClient
from archiver.kafka.codes import Code, broker_error
from archiver.kafka.wire import Call, Reader, Writer, uuid_bytes

_DONE = frozenset({Code.NONE, Code.UNKNOWN_TOPIC_ID})  # another one may have deleted it first


async def delete_topics_by_id(client: KafkaClient, topic_ids: Iterable[str]) -> None:
    """Have topics deleted; those that are gone already are not an error. Brokers may still name them for a moment."""
    left = set(topic_ids)

    async def once() -> None:
        controller = (await client.send_any(calls.MetadataCall([]))).controller
        for topic_id, code, message in await client.send(controller, _DeleteTopicsCall(sorted(left), client)):
            if code not in _DONE:
                doing = f"topic of id {topic_id} could not be deleted"
                raise broker_error(code, doing, message, right="Delete and Describe on the topic")
            left.discard(topic_id)

    if left:
        await client.persist(once)


class _DeleteTopicsCall(Call[list[tuple[str, int, str]]]):
    """v6 is the first that names topics by id; every supported broker has it."""

    api_key = 20
    lowest = highest = 6
    flexible_from = 4

    def __init__(self, topic_ids: Iterable[str], client: KafkaClient) -> None:
        self._topic_ids = list(topic_ids)
        self._timeout_ms = client.settings.request_timeout_ms

    def write(self, out: Writer, version: int) -> None:  # noqa: ARG002 one version
        out.count(len(self._topic_ids))
        for topic_id in self._topic_ids:
            out.text(None)  # not by name
            out.raw(uuid_bytes(topic_id))
            out.tags()
        out.int32(self._timeout_ms)
        out.tags()

    def read(self, answer: Reader, version: int) -> list[tuple[str, int, str]]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        found = answer.array(lambda: _read_deleted(answer))
        answer.tags()
        return found


def _read_deleted(answer: Reader) -> tuple[str, int, str]:
    answer.text()  # its name, where this user may know it
    row = answer.uuid(), answer.int16(), answer.text()
    answer.tags()
    return row
