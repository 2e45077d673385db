"""A client belongs to one cluster: another one at the same addresses is refused by its first answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from archiver.errors import StrangerError
from archiver.kafka.brokers.calls import Metadata
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings


def metadata(cluster_id: str) -> Metadata:
    return Metadata(cluster_id=cluster_id, brokers=frozenset({1}), controller=1, topics=[])


def client_of(answers: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> KafkaClient:
    client, left = KafkaClient(KafkaSettings.parse({"bootstrap.servers": "kafka:9092"})), list(answers)

    async def send_any(_: Any) -> Metadata:  # noqa: ANN401
        return metadata(left.pop(0))

    monkeypatch.setattr(client, "send_any", send_any)
    monkeypatch.setattr(client, "_nodes", lambda: [1])
    return client


def test_another_cluster_is_refused_and_waiting_tasks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        client = client_of(["one", "one", "", "two"], monkeypatch)
        waiting = asyncio.create_task(client.refuse_another_cluster())
        assert await client.cluster_id() == "one"
        await client.describe_topics(["t"])
        await client.brokers()  # a broker that tells no id proves nothing
        assert not waiting.done()
        with pytest.raises(StrangerError, match="cluster two answers there, and until now it was cluster one"):
            await client.describe_topics(["t"])
        with pytest.raises(StrangerError):
            await waiting

    asyncio.run(body())


def test_a_second_client_belongs_to_the_cluster_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(["two"], monkeypatch)
    client.belong_to("one")
    with pytest.raises(StrangerError):
        asyncio.run(client.describe_topics(["t"]))
