"""Reads and changes the configs of topics and brokers."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.brokers.codes import broker_error
from archiver.kafka.brokers.wire import AnswerReader, Call, RequestWriter

_TOPIC, BROKER = 2, 4  # types of resources in DescribeConfigs
_SET_ON_TOPIC = 1  # a source of a value
_POLLS = 300  # polls, for half a minute
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """Configs of one topic: all with a value, from any source, and those set on the topic itself."""

    effective: Mapping[str, str]
    own: Mapping[str, str]


async def topic_configs(client: KafkaClient, name: str) -> TopicConfigs:
    """Return the configs of one topic. Raises its refusal."""
    found, refused = await topic_configs_each(client, [name])
    for error in refused.values():
        raise error
    return found[name]


async def topic_configs_each(
    client: KafkaClient, names: Iterable[str]
) -> tuple[dict[str, TopicConfigs], dict[str, Refusal]]:
    """Return the configs of found topics, and refusals of others."""
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


async def broker_configs(client: KafkaClient, keys: Collection[str]) -> dict[int, Mapping[str, str]]:
    """Return some configs of the brokers that are up; none of brokers that refuse (it takes DescribeConfigs on the cluster)."""
    nodes = sorted(await client.brokers())
    found = await asyncio.gather(*(_configs_of_broker(client, node, keys) for node in nodes))
    return dict(zip(nodes, found, strict=True))


async def _configs_of_broker(client: KafkaClient, node: int, keys: Collection[str]) -> Mapping[str, str]:
    call = DescribeConfigsCall([str(node)], keys, kind=BROKER)
    try:
        answers = await client.persist(lambda: client.send(node, call))
    except (KafkaError, KafkaTemporaryError):  # the configs only foretell what this broker may refuse later
        return {}
    return {key: value for one in answers if not one.error_code for key, value in _configs(one).effective.items()}


async def wait_until_changed(
    client: KafkaClient, changed: Mapping[str, Mapping[str, str | None]], nodes: Mapping[str, Collection[int]]
) -> None:
    """Wait until all brokers of a topic return its changed configs; None: nothing is set on the topic.

    The controller takes a change first; brokers learn of it a little later.
    """
    left = {
        node: {name: changes for name, changes in changed.items() if changes and node in nodes[name]}
        for node in sorted({node for some in nodes.values() for node in some})
    }
    for _ in range(_POLLS):
        for node, topics in left.items():
            left[node] = await _still_unchanged(client, node, topics)
        if not any(left.values()):
            return
        await asyncio.sleep(_PAUSE_S)
    node, topics = next((node, topics) for node, topics in left.items() if topics)
    name, changes = next(iter(topics.items()))
    wanted = ", ".join(f"{key}={value or '(default)'}" for key, value in changes.items())
    raise KafkaTemporaryError(
        f"broker {node} still has other configs of topic {name} than were set ({wanted}); look at its log, and run the"
        " same command again"
    )


async def _still_unchanged(
    client: KafkaClient, node: int, topics: Mapping[str, Mapping[str, str | None]]
) -> dict[str, Mapping[str, str | None]]:
    if not topics:
        return {}
    call = DescribeConfigsCall(topics, sorted({key for changes in topics.values() for key in changes}))
    answers = await client.persist(lambda: client.send(node, call))
    own = {one.topic: _configs(one).own for one in answers}
    return {
        name: changes
        for name, changes in topics.items()
        if any(own.get(name, {}).get(key) != value for key, value in changes.items())
    }


def _configs(described: "_Described") -> TopicConfigs:
    return TopicConfigs(
        effective={row.name: row.value for row in described.rows if row.value is not None},
        own={row.name: row.value for row in described.rows if row.value is not None and row.source == _SET_ON_TOPIC},
    )


class _ConfigRow(NamedTuple):
    name: str
    value: str | None  # None: secret, or not set
    source: int
    is_read_only: bool
    is_sensitive: bool


class _Described(NamedTuple):
    topic: str
    error_code: int
    error_message: str
    rows: list[_ConfigRow]


class DescribeConfigsCall(Call[list[_Described]]):
    """Asks for some or all configs of topics, or of a broker. v1 is the first with the source of a value, and the oldest in Kafka 4."""

    api_key = 32
    lowest = highest = 1
    flexible_from = 4

    def __init__(self, names: Iterable[str], keys: Collection[str] | None = None, *, kind: int = _TOPIC) -> None:
        self._names = list(names)
        self._keys = keys
        self._kind = kind

    def write(self, out: RequestWriter, version: int) -> None:  # noqa: ARG002 one version
        out.count(len(self._names))
        for name in self._names:
            out.int8(self._kind)
            out.text(name)
            out.count(-1 if self._keys is None else len(self._keys))
            for key in self._keys or ():
                out.text(key)
        out.int8(0)  # no synonyms

    def read(self, answer: AnswerReader, version: int) -> list[_Described]:  # noqa: ARG002 one version
        self.throttle_ms = answer.int32()
        return answer.array(lambda: _read_described(answer))


def _read_described(answer: AnswerReader) -> _Described:
    error_code, error_message = answer.int16(), answer.text()
    answer.int8()  # resource type
    return _Described(answer.text(), error_code, error_message, answer.array(lambda: _read_row(answer)))


def _read_row(answer: AnswerReader) -> _ConfigRow:
    name, value, is_read_only = answer.text(), answer.text_or_none(), bool(answer.int8())
    source, is_sensitive = answer.int8(), bool(answer.int8())
    answer.array(lambda: (answer.text(), answer.text_or_none(), answer.int8()))  # synonyms
    return _ConfigRow(name, value, source, is_read_only, is_sensitive)
