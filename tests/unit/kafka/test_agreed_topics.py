"""Whether all brokers say the same of a topic."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from archiver.errors import KafkaError, KafkaTemporaryError
from archiver.kafka.brokers.calls import Metadata, MetadataCall, TopicMetadata
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.brokers.codes import Code
from archiver.kafka.topics.agreed_topics import agreed_topics

Told = dict[str, str | Code]  # a topic id, or why there is none


@dataclass
class Brokers:
    """What each broker tells of topics."""

    told: dict[int, Told | Exception]
    cluster_ids: dict[int, str] = field(default_factory=dict)
    known: frozenset[int] = frozenset({1, 2})  # brokers that a broker knows of

    async def brokers(self) -> frozenset[int]:
        return frozenset(self.told)

    async def send(self, node: int, call: MetadataCall) -> Metadata:
        assert call._names is not None
        told = self.told[node]
        if isinstance(told, Exception):
            raise told
        topics = [topic(name, told[name]) for name in call._names if name in told]
        return Metadata(cluster_id=self.cluster_ids.get(node, "c"), brokers=self.known, controller=1, topics=topics)


def topic(name: str, told: str | Code) -> TopicMetadata:
    code = told if isinstance(told, Code) else Code.NONE
    topic_id = "" if isinstance(told, Code) else told
    return TopicMetadata(name=name, topic_id=topic_id, error_code=code, is_internal=False, partitions=[], operations=0)


def agreed(brokers: Brokers) -> dict[str, str | None]:
    return asyncio.run(agreed_topics(cast("KafkaClient", brokers), ["t", "u"], "c"))


UNKNOWN = Code.UNKNOWN_TOPIC_OR_PARTITION


def test_what_all_say_is_agreed() -> None:
    assert agreed(Brokers({1: {"t": "T", "u": UNKNOWN}, 2: {"t": "T", "u": UNKNOWN}})) == {"t": "T", "u": None}
    assert agreed(Brokers({1: {"t": "T", "u": "U"}, 2: {"t": "V", "u": UNKNOWN}})) == {}
    assert agreed(Brokers({1: {"t": "", "u": UNKNOWN}, 2: {"t": UNKNOWN, "u": ""}})) == {}


@pytest.mark.parametrize(
    "code",
    [
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.LEADER_NOT_AVAILABLE,
        Code.INVALID_TOPIC_EXCEPTION,
        Code.UNKNOWN_SERVER_ERROR,
        Code.UNKNOWN_TOPIC_ID,
    ],
)
def test_no_other_refusal_says_that_there_is_no_topic(code: Code) -> None:
    """Nor does an answer that leaves a topic out."""
    for first, second in ((code, UNKNOWN), (UNKNOWN, code), (code, code)):
        assert agreed(Brokers({1: {"t": first, "u": UNKNOWN}, 2: {"t": second, "u": UNKNOWN}})) == {"u": None}
    assert agreed(Brokers({1: {"u": UNKNOWN}, 2: {"t": UNKNOWN, "u": UNKNOWN}})) == {"u": None}
    assert agreed(Brokers({1: {"t": UNKNOWN, "u": UNKNOWN}, 2: {"u": UNKNOWN}})) == {"u": None}


@pytest.mark.parametrize("failure", [KafkaTemporaryError("down"), KafkaError("refused")])
def test_a_broker_that_does_not_answer_may_know_better(failure: Exception) -> None:
    assert agreed(Brokers({1: {"t": UNKNOWN, "u": "U"}, 2: failure})) == {}


def test_brokers_of_another_cluster_or_without_any_knowledge_prove_nothing() -> None:
    told: dict[int, Told | Exception] = {1: {"t": UNKNOWN, "u": "U"}, 2: {"t": UNKNOWN, "u": "U"}}
    assert agreed(Brokers(told)) == {"t": None, "u": "U"}
    assert agreed(Brokers(told, cluster_ids={2: "d"})) == {}
    assert agreed(Brokers(told, known=frozenset())) == {}
    assert agreed(Brokers({})) == {}
