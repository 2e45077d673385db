"""Deletes topics by their ids, so that a newer topic of the same name stays."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from archiver.errors import KafkaTemporaryError
from archiver.kafka.brokers import calls
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import Code, broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter, uuid_bytes
from archiver.process.output.text import spell_count

log = logging.getLogger(__name__)

_DONE = frozenset({Code.NONE, Code.UNKNOWN_TOPIC_ID})  # another client may have deleted the topic first
_POLLS = 300  # polls, for half a minute
_PAUSE_S = 0.1


async def delete_topics_by_id(
    client: KafkaClient, topic_ids: Mapping[str, str], report_deleted: Callable[[str], None] = lambda _: None
) -> None:
    """Delete topics, and return when no broker names them; absent topics are no error.

    `report_deleted` is called with the name of each topic that a broker has agreed to delete. Waits for a quota of changes, without a limit.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}

    async def once() -> None:
        controller = (await client.send_any(calls.MetadataCall([]))).controller
        call = _DeleteTopicsCall(sorted(names), client)
        answers = await client.send(controller, call)
        refused = [row for row in answers if row[1] not in _DONE and row[1] != Code.THROTTLING_QUOTA_EXCEEDED]
        for topic_id in [topic_id for topic_id, code, _ in answers if code in _DONE]:
            report_deleted(names.pop(topic_id))
        for topic_id, code, message in refused:
            doing = f"topic {names[topic_id]} could not be deleted"
            raise broker_error(code, doing, message, right=f"Delete and Describe on topic {names[topic_id]}")
        if names:
            await _wait(call.throttle_ms, len(names))

    while names:
        await client.persist(once)
    await _until_unnamed(client, topic_ids)


async def _wait(throttle_ms: int, left: int) -> None:
    log.info(
        "a quota of changes (controller_mutation_rate) holds %s back for %.1f s",
        spell_count(left, "deletion"),
        throttle_ms / 1000,
    )
    await asyncio.sleep(max(_PAUSE_S, throttle_ms / 1000))


async def _until_unnamed(client: KafkaClient, topic_ids: Mapping[str, str]) -> None:
    left = sorted(topic_ids)
    for _ in range(_POLLS):
        found = await client.describe_topics(left) if left else {}
        left = sorted(name for name, described in found.items() if described.topic_id == topic_ids[name])
        if not left:
            return
        await asyncio.sleep(_PAUSE_S)
    raise KafkaTemporaryError(f"topic {left[0]} was deleted, but is still there; run the command again")


class _DeleteTopicsCall(Call[list[tuple[str, int, str]]]):
    """v6 is the first that names topics by id; every supported broker has it."""

    api_key = 20
    lowest = highest = 6
    flexible_from = 4

    def __init__(self, topic_ids: Iterable[str], client: KafkaClient) -> None:
        self._topic_ids = list(topic_ids)
        self._timeout_ms = client.settings.request_timeout_ms

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(len(self._topic_ids))
        for topic_id in self._topic_ids:
            out.text(None)  # not by name
            out.raw(uuid_bytes(topic_id))
            out.tags()
        out.int32(self._timeout_ms)
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> list[tuple[str, int, str]]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        found = answer.array(lambda: _read_deleted(answer))
        answer.tags()
        return found


def _read_deleted(answer: AnswerReader) -> tuple[str, int, str]:
    answer.text()  # its name, if this user may know it
    row = answer.uuid(), answer.int16(), answer.text()
    answer.tags()
    return row
