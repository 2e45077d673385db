"""Which topics a cluster has: an empty list of topics is believed only if it stays empty."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from archiver.archive.notes import cluster_topics
from archiver.archive.notes.cluster_topics import find_cluster_topics
from archiver.config.model import TopicsConfig
from archiver.kafka.brokers.cluster import Refusal, TopicDescription
from tests.support.kafka_topics import described


class StartingBroker:
    """A broker that knows no topic until it was asked so often for all of them."""

    def __init__(self, topics: Iterable[str], empty_answers: int) -> None:
        self._topics = [*topics]
        self._empty_answers = empty_answers
        self.asked = 0

    async def describe_each(
        self, names: Iterable[str] | None
    ) -> tuple[dict[str, TopicDescription], dict[str, Refusal]]:
        self.asked += names is None
        known = [] if self.asked <= self._empty_answers else self._topics
        return {name: described(name, "id") for name in known if names is None or name in names}, {}


def find(broker: StartingBroker, known: Iterable[str]) -> set[str]:
    found = asyncio.run(find_cluster_topics(cast("Any", broker), TopicsConfig(include=(".*",)), {*known}))
    return {*found.found}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_topics, "_ASK_AGAIN_S", 0.0)


def test_topics_are_not_gone_while_a_restarted_broker_knows_none() -> None:
    assert find(StartingBroker(["a", "b"], empty_answers=3), ["a"]) == {"a", "b"}


def test_all_topics_are_gone_when_every_answer_is_empty() -> None:
    broker = StartingBroker([], empty_answers=0)
    assert find(broker, ["a"]) == set()
    assert broker.asked == cluster_topics._EMPTY_ANSWERS


def test_an_empty_cluster_is_asked_once_where_nothing_is_archived() -> None:
    broker = StartingBroker([], empty_answers=0)
    assert find(broker, []) == set()
    assert broker.asked == 1
