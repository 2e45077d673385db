"""Archived topics that Kafka no longer has: one line for each, and counted until somebody accepts that."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.cluster_topics import ClusterTopics
from archiver.archive.notes.topic_changes import accept_gone, record_topic
from archiver.archive.notes.topics import read_topic
from archiver.backup.reports.gone_topics import GoneTopics
from archiver.errors import KafkaError
from tests.support.memory_store import MemoryStore


class Here:
    """A pool that works at once."""

    async def call(self, work: Any, *given: Any) -> Any:  # noqa: ANN401
        return work(*given)


@dataclass
class Site:
    archive: Archive = field(default_factory=lambda: Archive(MemoryStore(), Layout()))
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.gone = GoneTopics(self.archive, cast("Any", Here()), lambda: self.now_s)

    def record(self, topic: str, topic_id: str = "i") -> None:
        record_topic(self.archive, topic=topic, topic_id=topic_id, cluster_id="c", partitions=1, configs={})

    def look(self, wanted: Iterable[str], there: Iterable[str], refused: Iterable[str] = ()) -> set[str]:
        seen = ClusterTopics(dict.fromkeys(there, cast("Any", None)), dict.fromkeys(refused, KafkaError("denied")))
        asyncio.run(self.gone.look([*wanted], seen))
        return set(self.gone.names)


def test_a_deleted_topic_is_reported_once_and_counts_until_accepted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    site = Site()
    for name in ("a", "b", "denied"):
        site.record(name)
    known = ["a", "b", "denied", "never"]  # of the last one nothing was archived
    assert site.look(known, ["a", "b", "never"], ["denied"]) == set()
    for _ in range(5):
        assert site.look(known, ["b"], ["denied"]) == {"a"}
    assert [record.getMessage().split(";")[0][:40] for record in caplog.records] == [
        "a: archived, and deleted in Kafka. What "
    ]
    accept_gone(site.archive, "a")
    site.now_s += 601
    assert site.look(known, ["b"], ["denied"]) == set()
    site.now_s += 601
    assert site.look(["b", "denied"], ["b"], ["denied"]) == set()  # a is left out by the configuration
    assert len(caplog.records) == 1


def test_a_topic_that_is_deleted_again_is_reported_again(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.record("a")
    assert site.look(["a"], []) == {"a"}
    accept_gone(site.archive, "a")
    fact = read_topic(site.archive, "a")
    assert fact is not None
    assert fact.is_accepted_gone
    site.record("a")  # the same topic is there: that it may be gone holds no longer
    fact = read_topic(site.archive, "a")
    assert fact is not None
    assert not fact.is_accepted_gone
    assert site.look(["a"], ["a"]) == set()
    accept_gone(site.archive, "a")
    site.record("a", "another")
    assert site.look(["a"], ["a"]) == set()
    caplog.clear()
    assert site.look(["a"], []) == {"a"}
    assert len(caplog.records) == 1
