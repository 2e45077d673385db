"""Dry runs of topic creation: the configs and replicas that topics would get, and refusals."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from archiver.kafka.brokers import calls
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import DENIED, TEMPORARY, broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter
from archiver.kafka.login.settings import KafkaSettings
from archiver.kafka.topics.admin import ToCreate


class IfCreated(NamedTuple):
    """All configs that a new topic would have, and how many replicas of each partition."""

    configs: Mapping[str, str]
    replicas: int


async def if_created(settings: KafkaSettings, topics: Mapping[str, ToCreate]) -> dict[str, IfCreated]:
    """Return the configs and replicas that topics would get.

    Topics that could not be created, or whose configs this user may not see, are left out.
    """
    return {name: topic for name, _, topic in await _tried(settings, topics) if topic.configs}


async def never_created(settings: KafkaSettings, names: Collection[str]) -> list[str]:
    """Return which topics this user may not create, existing ones included: brokers check the right before anything else."""
    tried = await _tried(settings, {name: ToCreate(1) for name in names})
    return [name for name, code, _ in tried if code in DENIED]


async def _tried(settings: KafkaSettings, topics: Mapping[str, ToCreate]) -> list[tuple[str, int, IfCreated]]:
    """Return for each topic the error code of its creation, and the configs it would have."""
    if not topics:
        return []
    call = _TryCreationCall(topics, settings.request_timeout_ms)
    async with KafkaClient(settings) as client:  # a client of its own: a quota of changes may mute its connections

        async def once() -> list[tuple[str, int, IfCreated]]:
            controller = (await client.send_any(calls.MetadataCall([]))).controller
            answers = await client.send(controller, call)
            for name, code, _ in answers:
                if code in TEMPORARY:
                    raise broker_error(code, f"configs of a new topic {name} could not be read")
            return answers

        return await client.persist(once)


class _TryCreationCall(Call[list[tuple[str, int, IfCreated]]]):
    """Asks to create topics, as a trial. v5 is the first that returns configs; later ones refuse for a quota where v5 only waits."""

    api_key = 19
    lowest = highest = 5
    flexible_from = 5

    def __init__(self, topics: Mapping[str, ToCreate], timeout_ms: int) -> None:
        self._topics = topics
        self._timeout_ms = timeout_ms

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(len(self._topics))
        for name, topic in self._topics.items():
            out.text(name)
            out.int32(topic.partitions)
            out.int16(topic.replication_factor)
            out.count(0)  # replicas are the brokers' to assign
            out.count(len(topic.configs))
            for key, value in topic.configs.items():
                out.text(key)
                out.text(value)
                out.tags()
            out.tags()
        out.int32(self._timeout_ms)
        out.int8(1)  # validate only
        out.tags()

    def read(self, answer: AnswerReader, version: int) -> list[tuple[str, int, IfCreated]]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        found = answer.array(lambda: _read_topic(answer))
        answer.tags()
        return found


def _read_topic(answer: AnswerReader) -> tuple[str, int, IfCreated]:
    name, code = answer.text(), answer.int16()
    answer.text()  # message of a refusal
    answer.int32()  # partitions
    replicas = answer.int16()
    rows = answer.array(lambda: _read_config(answer))
    answer.tags()
    return name, code, IfCreated({key: value for key, value in rows if value is not None}, replicas)


def _read_config(answer: AnswerReader) -> tuple[str, str | None]:
    row = answer.text(), answer.text_or_none()
    answer.int8()  # read only
    answer.int8()  # source
    answer.int8()  # sensitive
    answer.tags()
    return row
