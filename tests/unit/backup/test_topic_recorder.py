"""What is noted of a topic that is created again: when the one before it was last seen."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.topics import TopicFact
from archiver.backup.opening.topic_recorder import LearnedConfigs, TopicRecorder
from archiver.kafka.topics.configs import TopicConfigs
from tests.support.kafka_topics import described
from tests.support.memory_store import MemoryStore

NO_CONFIGS = LearnedConfigs({}, {})


@dataclass
class Clock:
    now_ms: int = 1_000

    def __call__(self) -> int:
        return self.now_ms


class Here:
    """A pool that works at once."""

    async def call(self, work: Any, *given: Any) -> Any:  # noqa: ANN401
        with ThreadPoolExecutor(1) as pool:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *given)


@dataclass
class Site:
    archive: Archive = field(default_factory=lambda: Archive(MemoryStore(), Layout()))
    clock: Clock = field(default_factory=Clock)

    def recorder(self) -> TopicRecorder:
        return TopicRecorder(
            cast("Any", None),
            sink=cast("Any", SimpleNamespace(archive=self.archive)),
            pool=cast("Any", Here()),
            cluster_id="c",
            clock_ms=self.clock,
        )

    def look(self, recorder: TopicRecorder, topic_id: str, at_ms: int) -> TopicFact:
        """As at a refresh of topics: what has not changed is not recorded."""
        self.clock.now_ms = at_ms
        topic = described("t", topic_id)
        recorder.has_changed(topic, NO_CONFIGS)
        return asyncio.run(recorder.record(topic, NO_CONFIGS))


def seen(fact: TopicFact) -> list[tuple[str, int | None, int | None]]:
    return [(life.topic_id, life.seen_ms, life.earlier_seen_ms) for life in fact.lives]


def test_a_running_backup_notes_when_the_earlier_topic_was_last_seen() -> None:
    site = Site()
    recorder = site.recorder()
    site.look(recorder, "A", 1_000)
    site.look(recorder, "A", 5_000)
    assert seen(site.look(recorder, "B", 9_000)) == [("A", 1_000, None), ("B", 9_000, 5_000)]


def test_a_backup_that_missed_the_earlier_topic_notes_nothing_of_it() -> None:
    site = Site()
    first, other = site.recorder(), site.recorder()
    site.look(first, "A", 1_000)
    site.look(other, "B", 2_000)
    site.look(other, "B", 3_000)
    assert seen(site.look(first, "C", 4_000))[2] == ("C", 4_000, None)  # what it saw was no neighbour of this one


def test_how_long_removals_of_positions_are_kept_is_noted_wherever_it_comes_from() -> None:
    configs = TopicConfigs(effective={"delete.retention.ms": "100", "x": "1"}, own={"y": "2"})
    learned = LearnedConfigs({"__consumer_offsets": configs, "t": configs}, {})
    assert learned.own("__consumer_offsets") == {"delete.retention.ms": "100", "y": "2"}
    assert (learned.own("t"), learned.own("other")) == ({"y": "2"}, None)


def test_what_holds_is_noted_wherever_it_was_set() -> None:
    policy = {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
    configs = TopicConfigs(effective={**policy, "retention.ms": "5"}, own={"retention.ms": "5"})
    learned = LearnedConfigs({"t": configs, "u": TopicConfigs(effective={}, own={})}, {})
    assert learned.of("t") == ({"retention.ms": "5"}, policy)
    assert (learned.of("u"), learned.of("other")) == (({}, None), (None, None))


def test_a_policy_that_changes_at_the_brokers_is_news() -> None:
    """Nothing is set on the topic itself, before and after."""
    site = Site()
    recorder = site.recorder()

    def learned(kept_ms: str) -> LearnedConfigs:
        effective = {"cleanup.policy": "compact", "delete.retention.ms": kept_ms, "retention.ms": kept_ms}
        return LearnedConfigs({"t": TopicConfigs(effective=effective, own={})}, {})

    topic = described("t", "A")
    assert recorder.has_changed(topic, learned("5"))
    fact = asyncio.run(recorder.record(topic, learned("5")))
    assert (fact.configs, fact.effective) == ({}, {"cleanup.policy": "compact", "delete.retention.ms": "5"})
    assert not recorder.has_changed(topic, learned("5"))
    assert recorder.has_changed(topic, learned("6"))
    assert recorder.has_changed(described("t", "B"), learned("5"))
    fact = asyncio.run(recorder.record(topic, learned("6")))
    assert fact.effective == {"cleanup.policy": "compact", "delete.retention.ms": "6"}
    assert asyncio.run(recorder.record(topic, NO_CONFIGS)) == fact  # not known now: what was known stays


def test_a_topic_that_is_created_again_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    first, other = site.recorder(), site.recorder()
    for recorder in (first, other):
        site.look(recorder, "A", 1_000)
    assert not caplog.records
    for at_ms, recorder in ((2_000, first), (2_001, other), (2_002, first)):  # each process says it once
        site.look(recorder, "B", at_ms)
    late = site.recorder()
    site.look(late, "B", 3_000)
    assert [(record.levelname, record.getMessage()[:28]) for record in caplog.records] == [
        ("WARNING", "topic t was created again: i")
    ] * 2


def test_recordings_at_once_report_a_recreated_topic_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    recorder = site.recorder()
    site.look(recorder, "A", 1_000)

    async def record_twice() -> None:
        await asyncio.gather(*(recorder.record(described("t", "B"), NO_CONFIGS) for _ in range(2)))

    asyncio.run(record_twice())
    assert caplog.text.count("was created again") == 1
