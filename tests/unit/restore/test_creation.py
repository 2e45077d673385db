"""Targets that two runs of one restore create at the same time."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.errors import KafkaError
from archiver.kafka.brokers.codes import Code
from archiver.kafka.login.settings import KafkaSettings
from archiver.restore.plan.request import RestoreRequest
from archiver.restore.plan.restore_notes import RestoreNotes
from archiver.restore.plan.restore_plan import TopicPlan
from archiver.restore.targets import targets as module
from archiver.restore.targets.targets import Targets
from tests.support.memory_store import MemoryStore


class Brokers:
    """They refuse to create a topic, and name it only at a later question; None: never."""

    def __init__(self, code: Code, named_at: int | None) -> None:
        self._code, self._named_at, self.asked = code, named_at, 0

    async def create_topics(self, wanted: dict[str, Any]) -> dict[str, KafkaError]:
        return {name: KafkaError(f"{name}: refused", code=self._code) for name in wanted}

    async def describe_topics(self, names: list[str]) -> dict[str, Any]:
        self.asked += 1
        is_named = self._named_at is not None and self.asked >= self._named_at
        return {name: SimpleNamespace(topic_id="A") for name in names} if is_named else {}


def create(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr(module, "_DESCRIBE_PAUSE_S", 0.0)
    notes = RestoreNotes(Archive(MemoryStore(), Layout("p")), "mine", "c")
    targets = Targets(
        KafkaSettings.parse({"bootstrap.servers": "none:9092"}), notes, RestoreRequest(), cast("Any", None)
    )
    plan = TopicPlan(source="t", life=0, target="t", partitions=(), final_configs={}, archived_retention={})
    monkeypatch.setattr(targets, "_admin", brokers)
    monkeypatch.setattr(targets, "_topics", {"t": plan})
    return asyncio.run(targets._create(cast("Any", brokers), ["t"], {}))


def test_a_topic_of_another_run_serves_when_brokers_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(Code.TOPIC_ALREADY_EXISTS, named_at=3)
    assert create(brokers, monkeypatch) == set()
    assert brokers.asked == 3


@pytest.mark.parametrize(("code", "most"), [(Code.TOPIC_AUTHORIZATION_FAILED, 1), (Code.TOPIC_ALREADY_EXISTS, 300)])
def test_a_topic_that_brokers_never_name_is_an_error(code: Code, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(code, named_at=None)
    with pytest.raises(KafkaError, match="t: refused"):
        create(brokers, monkeypatch)
    assert brokers.asked == most
