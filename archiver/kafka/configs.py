"""Configs of topics, as the brokers tell them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from archiver.kafka.client import KafkaClient
from archiver.kafka.cluster import Refusal
from archiver.kafka.codes import broker_error
from archiver.kafka.wire import Call, Reader, Writer

_TOPIC = 2  # a resource's type
_SET_ON_TOPIC = 1  # a value's source


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """All configs that have a value, wherever it comes from; and those alone that were set on the topic itself."""

    effective: Mapping[str, str]
    own: Mapping[str, str]


async def topic_configs(client: KafkaClient, name: str) -> TopicConfigs:
    """The configs of one topic."""
    found, refused = await topic_configs_known(client, [name])
    for error in refused.values():
        raise error
    return found[name]


async def topic_configs_known(
    client: KafkaClient, names: Iterable[str]
) -> tuple[dict[str, TopicConfigs], dict[str, Refusal]]:
    """The configs of those topics that tell, and why the others do not."""
    wanted = sorted(set(names))
    answers = await client.persist(lambda: client.send_any(DescribeConfigsCall(wanted))) if wanted else []
    refused: dict[str, Refusal] = {
        one.topic: broker_error(
            one.error_code,
            f"configs of topic {one.topic} could not be read",
            one.error_message,
            right=f"DescribeConfigs on topic {one.topic}",
        )
        for one in answers
        if one.error_code
    }
    return {one.topic: _configs(one) for one in answers if not one.error_code}, refused


def _configs(described: "_Described") -> TopicConfigs:
    return TopicConfigs(
        effective={row.name: row.value for row in described.rows if row.value is not None},
        own={row.name: row.value for row in described.rows if row.value is not None and row.source == _SET_ON_TOPIC},
    )


class _Row(NamedTuple):
    name: str
    value: str | None  # None: a secret, or none
    source: int


class _Described(NamedTuple):
    topic: str
    error_code: int
    error_message: str
    rows: list[_Row]


class DescribeConfigsCall(Call[list[_Described]]):
    """All configs of topics. v1 is the first that tells where a value comes from, and the oldest that Kafka 4 takes."""

    api_key = 32
    lowest = highest = 1
    flexible_from = 4

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = list(topics)

    def write(self, out: Writer, version: int) -> None:  # noqa: ARG002 one version
        out.count(len(self._topics))
        for topic in self._topics:
            out.int8(_TOPIC)
            out.text(topic)
            out.count(-1)  # all configs
        out.int8(0)  # no synonyms

    def read(self, answer: Reader, version: int) -> list[_Described]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        return answer.array(lambda: _read_described(answer))


def _read_described(answer: Reader) -> _Described:
    error_code, error_message = answer.int16(), answer.text()
    answer.int8()  # resource type
    return _Described(answer.text(), error_code, error_message, answer.array(lambda: _read_row(answer)))


def _read_row(answer: Reader) -> _Row:
    name, value = answer.text(), answer.text_or_none()
    answer.int8()  # read only
    source = answer.int8()
    answer.int8()  # sensitive
    answer.array(lambda: (answer.text(), answer.text_or_none(), answer.int8()))  # synonyms
    return _Row(name, value, source)
