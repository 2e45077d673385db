"""Topics that brokers report without a topic id: refused if they never had one, else waited for, and nothing is begun meanwhile."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from archiver.archive.format.control import append_fact
from archiver.archive.format.handle import Archive
from archiver.archive.format.layout import Layout
from archiver.archive.notes.cluster_topics import ClusterTopics, refuse_without_ids
from archiver.archive.notes.topic_changes import record_topic
from archiver.archive.notes.topics import Life, TopicFact, topic_stream
from archiver.backup.compacted.work.instance_topics import InstanceTopics
from archiver.backup.opening.opener import Opener
from archiver.backup.opening.start_offsets import StartOffset, StartOffsets
from archiver.backup.opening.topic_recorder import LearnedConfigs, TopicRecorder
from archiver.backup.partition.diagnosis import Retry, judge
from archiver.backup.partition.feed import LASTING_FAILURE_S
from archiver.backup.partition.partition_writer import refuse_stranger
from archiver.backup.service.refused_topics import RefusedTopics
from archiver.config.model import TopicsConfig
from archiver.errors import ArchiverError, LostTopicIdError, NoTopicIdError, StrangerError, TopicGoneError
from archiver.kafka.brokers.cluster import PartitionOffsets, Refusal, TopicDescription
from archiver.kafka.records.fetch import Fetched, FetchProblem
from archiver.kafka.topics.configs import TopicConfigs
from tests.support.feeds import feed_of
from tests.support.kafka_topics import described
from tests.support.memory_store import MemoryStore
from tests.support.segments import SOURCE
from tests.support.topic_notes import note_of


class Here:
    """A pool that works at once."""

    async def call(self, work: Any, *given: Any) -> Any:  # noqa: ANN401
        return work(*given)


@dataclass
class Cluster:
    """Brokers that report these topic ids; `later`: from then on, each for one question."""

    ids: Mapping[str, str]
    later: list[Mapping[str, str]] = field(default_factory=list)

    async def describe_each(self, names: Any) -> tuple[dict[str, TopicDescription], dict[str, Refusal]]:  # noqa: ANN401
        now, self.ids = self.ids, self.later.pop(0) if self.later else self.ids
        return {name: described(name, now[name]) for name in now if names is None or name in names}, {}

    async def describe_topics(self, names: Any) -> dict[str, TopicDescription]:  # noqa: ANN401
        return (await self.describe_each(names))[0]

    async def offsets_each(self, partitions: Any) -> tuple[dict[Any, PartitionOffsets], dict[Any, Refusal]]:  # noqa: ANN401
        at = PartitionOffsets(log_start=0, high_watermark=9, last_stable=7, leader_epoch=3)
        return dict.fromkeys(partitions, at), {}


@dataclass
class Site:
    store: MemoryStore = field(default_factory=MemoryStore)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        self.archive = Archive(self.store, Layout())

    def record(self, topic: str, *ids: str) -> None:
        """Note a topic with lives of these ids; an empty one as an archive may have it from old brokers."""
        lives = tuple(Life(life=number, topic_id=one) for number, one in enumerate(ids))
        fact = TopicFact(topic=topic, cluster_id="c", partitions=1, configs={}, lives=lives)
        append_fact(self.archive, topic_stream(topic), lambda _: note_of(fact))

    @property
    def sink(self) -> Any:  # noqa: ANN401
        silences = SimpleNamespace(silences=0)
        return SimpleNamespace(archive=self.archive, clock=lambda: self.now_s, silence_counter=silences)


# --- which topics are refused, and which are waited for


def refused_of(site: Site, ids: Mapping[str, str]) -> dict[str, Refusal]:
    seen = ClusterTopics({name: described(name, ids[name]) for name in ids}, {})
    found = refuse_without_ids(site.archive, seen)
    assert {name: topic.topic_id for name, topic in found.found.items()} == {
        name: ids[name] for name in ids if ids[name]
    }
    return dict(found.refused)


def test_a_topic_without_an_id_is_refused_unless_the_archive_knows_one() -> None:
    site = Site()
    site.record("old", "")
    site.record("upgraded", "", "U")
    site.record("had", "H")
    site.store.objects["control/topics/broken/000000.json"] = site.store.objects["control/topics/had/000000.json"]
    found = refused_of(site, dict.fromkeys(("new", "old", "upgraded", "had", "broken"), "") | {"fine": "F"})
    assert {name: type(error) for name, error in found.items()} == {
        "new": NoTopicIdError,
        "old": NoTopicIdError,
        "upgraded": LostTopicIdError,
        "had": LostTopicIdError,
        "broken": LostTopicIdError,  # of the note of another topic nothing is known
    }
    assert (found["new"].exit_code, found["had"].exit_code) == (1, 4)
    assert str(found["new"]) == (
        "topic new has no topic id, so it cannot be archived: raise inter.broker.protocol.version to 2.8 or later on all brokers"
    )


def test_the_archive_is_not_read_where_all_topics_have_ids() -> None:
    seen = ClusterTopics({"t": described("t", "A")}, {})
    assert refuse_without_ids(cast("Any", None), seen) is seen


def test_a_running_backup_reports_a_topic_once_and_a_missing_id_when_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    site = Site()
    counted: list[tuple[str, str]] = []
    ledger = SimpleNamespace(failed=lambda *what: counted.append(what))
    refused = RefusedTopics(cast("Any", ledger), lambda: site.now_s)

    def reported(*errors: tuple[str, Refusal]) -> list[tuple[str, str]]:
        caplog.clear()
        refused.note(dict(errors), lambda _: (0,))
        return [(one.levelname, one.getMessage().split(" ")[1]) for one in caplog.records]

    new, had = ("new", NoTopicIdError("new")), ("had", LostTopicIdError("had"))
    assert reported(new, had) == [("WARNING", "new")]
    site.now_s += LASTING_FAILURE_S - 1
    assert reported(new, had) == []
    site.now_s += 1
    assert reported(new, had) == [("WARNING", "had")]
    assert reported(new, had) == []
    assert reported(had) == []
    assert reported() == []
    assert reported(new, had) == [("WARNING", "new")]  # it lasts no longer, since it was over
    assert [name for name, _ in counted] == ["new", "had", "new"]


# --- a topic that had an id


def open_one(site: Site, cluster: Cluster) -> list[ArchiverError]:
    """Open a partition as a running backup does. No partition of it is opened here."""
    opener = Opener(cast("Any", cluster), sink=site.sink, pool=cast("Any", Here()), cluster_id="c")
    refused: list[ArchiverError] = []
    asyncio.run(
        opener.open_all(
            [("t", 0)],
            lambda feed: pytest.fail(f"{feed.source} was opened"),
            lambda _, error: refused.append(error),
            lambda _: None,
        )
    )
    return refused


def test_no_partition_is_opened_while_the_id_of_its_topic_is_missing() -> None:
    site = Site()
    site.record("t", "A")
    before = dict(site.store.objects)
    (error,) = open_one(site, Cluster({"t": ""}))
    assert isinstance(error, LostTopicIdError)
    assert site.store.objects == before


def test_fetches_wait_while_the_id_is_missing() -> None:
    feed = feed_of(leader_epoch=-1)
    answer = cast("Fetched", SimpleNamespace(error=FetchProblem.UNKNOWN_TOPIC_ID, error_code=100))

    def judged(topic_id: str) -> object:
        return asyncio.run(judge(cast("Any", Cluster({SOURCE.topic: topic_id})), feed, answer))

    waiting = judged("")
    assert isinstance(waiting, Retry)
    assert (type(waiting.error), waiting.error.cause) == (LostTopicIdError, "NO_TOPIC_ID")
    assert isinstance(judged("another"), TopicGoneError)


def test_no_life_is_begun_for_a_log_that_was_cut_back_while_the_id_is_missing() -> None:
    site = Site()

    def asked(topic_id: str) -> None:
        cluster = Cluster({SOURCE.topic: topic_id} if topic_id != "gone" else {})
        recorder = TopicRecorder(cast("Any", cluster), sink=site.sink, pool=cast("Any", Here()), cluster_id="c")
        asyncio.run(recorder.refuse_recreated(SOURCE))

    asked(SOURCE.topic_id)
    for topic_id, expected in (("", LostTopicIdError), ("another", TopicGoneError), ("gone", TopicGoneError)):
        with pytest.raises(expected):
            asked(topic_id)


def test_an_instance_keeps_a_topic_whose_id_is_missing_and_takes_no_new_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    site = Site()
    sink = site.sink
    sink.troubles = SimpleNamespace(note_works=lambda _: None)
    compact = TopicConfigs(effective={"cleanup.policy": "compact"}, own={})

    async def learn(topics: Any) -> LearnedConfigs:  # noqa: ANN401
        return LearnedConfigs({topic.name: compact for topic in topics}, {})

    def look(taken: InstanceTopics, **ids: str) -> dict[str, str]:
        taken.client = cast("Any", Cluster(ids))
        monkeypatch.setattr(taken.recorder, "learn_configs", learn)
        asyncio.run(taken.refresh())
        return {name: topic.topic_id for name, topic in taken.described.items()}

    def instance() -> InstanceTopics:
        recorder = TopicRecorder(cast("Any", None), sink=sink, pool=cast("Any", Here()), cluster_id="c")

        async def nothing(*_: object) -> None:
            pass

        return InstanceTopics(
            request=cast("Any", SimpleNamespace(topics=TopicsConfig(include=(".*",)), sink=sink)),
            client=cast("Any", None),
            recorder=recorder,
            pool=cast("Any", Here()),
            margin_ms=None,
            gone=cast("Any", SimpleNamespace(look=nothing)),
        )

    running = instance()
    assert look(running, a="A", b="B") == {"a": "A", "b": "B"}
    before = dict(site.store.objects)
    late = instance()
    for taken, expected in ((running, {"a": "A", "b": "B"}), (late, {"b": "B"})):
        assert look(taken, a="", b="B") == expected
        assert not caplog.records
        site.now_s += LASTING_FAILURE_S
        for _ in range(2):
            assert look(taken, a="", b="B") == expected
        assert [one.getMessage()[:21] for one in caplog.records] == ["topic a had a topic i"]
        caplog.clear()
        assert look(taken, a="A", b="B") == {"a": "A", "b": "B"}
    assert site.store.objects == before
    for _ in range(2):
        assert look(running, a="A", b="B", new="") == {"a": "A", "b": "B"}
    assert [one.getMessage()[:25] for one in caplog.records] == ["topic new has no topic id"]


# --- a life with an empty id


def test_an_object_without_a_topic_id_is_not_continued() -> None:
    refuse_stranger(SOURCE, "key", topic_id=SOURCE.topic_id, cluster_id=SOURCE.cluster_id)
    with pytest.raises(StrangerError, match="key: belongs to topic id"):
        refuse_stranger(SOURCE, "key", topic_id="", cluster_id=SOURCE.cluster_id)


def test_a_topic_that_had_no_id_begins_a_life() -> None:
    site = Site()
    site.record("t", "", "")
    fact = record_topic(site.archive, topic="t", topic_id="A", cluster_id="c", partitions=1, configs={})
    assert [(life.topic_id, life.parent) for life in fact.lives] == [("", None), ("", None), ("A", None)]
    assert fact.life_of_partition("A", 0).life == 2


def test_a_late_start_that_was_noted_without_an_id_is_of_no_topic() -> None:
    """Whether the topic is the noted one is unknown: all of it is archived."""
    source = replace(SOURCE, partition=0)

    def first_of(noted: str) -> StartOffset:
        starts = StartOffsets(
            cast("Any", Cluster({source.topic: noted})), cast("Any", Site().sink), cast("Any", Here()), "latest"
        )

        async def run() -> StartOffset:
            await starts.note_present()
            return await starts.first(source)

        return asyncio.run(run())

    assert first_of(source.topic_id) == StartOffset(7, 3, source.topic_id)
    assert first_of("") == first_of("another") == StartOffset(0, -1, source.topic_id)
