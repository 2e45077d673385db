"""Reads what a sweep is decided on, but for the objects: topics, policies, holds, restores that run, and what the cluster tells."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from archiver.archive.handle import Archive
from archiver.archive.holds import read_holds
from archiver.archive.policies import NotedPolicy, note_policy, read_policies
from archiver.archive.restore_pins import RestorePins
from archiver.archive.store_clock import epoch_ms
from archiver.archive.swept import OffsetRanges, SweptPlace, read_swept
from archiver.archive.topics import TopicFact, read_newest_topic_facts
from archiver.config.model import ArchiverConfig
from archiver.errors import NotWholeError
from archiver.kafka.client import KafkaClient
from archiver.kafka.settings import KafkaSettings
from archiver.upkeep.retention.cluster import LiveCluster, ask_cluster, with_groups_limit
from archiver.upkeep.retention.limits import longest
from archiver.upkeep.retention.topic_terms import Asked, KeptTopic, TopicTerms, judge_topic, policy_news


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedTopics:
    """By which terms each topic is swept, or why nothing of it goes."""

    store_now_ms: int
    facts: Mapping[str, TopicFact]
    terms: Sequence[TopicTerms]
    kept: Sequence[KeptTopic]
    news: Sequence[NotedPolicy]  # what is to be noted of topics
    swept: Mapping[str, Mapping[SweptPlace, OffsetRanges]]  # what counts as swept of topics that may be swept


class SweepSurvey:
    """Asks storage and the cluster, as often as needed."""

    def __init__(self, archive: Archive, config: ArchiverConfig, ask: Callable[[Sequence[str]], LiveCluster]) -> None:
        self._archive = archive
        self._config = config
        self._ask = ask
        self._pins = RestorePins(archive)

    def survey(self, wanted: Callable[[str], bool] | None = None) -> SurveyedTopics:
        """Say of the wanted topics by which terms they are swept. Raises NotWholeError where a hold cannot be read."""
        read = read_newest_topic_facts(self._archive, wanted)
        facts = {name: fact for name, fact in sorted(read.items()) if isinstance(fact, TopicFact)}
        kept = [KeptTopic(topic=name, why=str(one)) for name, one in read.items() if isinstance(one, NotWholeError)]
        asked = self._asked(sorted(facts))
        terms: list[TopicTerms] = []
        news: list[NotedPolicy] = []
        swept: dict[str, Mapping[SweptPlace, OffsetRanges]] = {}
        for name, fact in facts.items():
            live = asked.cluster.topics.get(name)
            try:
                noted = read_policies(self._archive, name, live.topic_id) if live is not None else []
                judged = judge_topic(fact, noted, asked)
                swept[name] = read_swept(self._archive, name) if isinstance(judged, TopicTerms) else {}
            except NotWholeError as error:
                kept.append(KeptTopic(topic=name, why=str(error)))
                continue
            if isinstance(judged, TopicTerms):
                terms.append(judged)
                kept += _untold_partitions(fact, judged)
            else:
                kept.append(judged)
            if live is not None and is_of(fact, live.topic_id, asked.cluster):
                news += policy_news(fact, noted, live, asked.store_now_ms)
        return SurveyedTopics(
            store_now_ms=asked.store_now_ms,
            facts=facts,
            terms=terms,
            kept=sorted(kept, key=lambda one: one.topic),
            news=news,
            swept=swept,
        )

    def note(self, news: Sequence[NotedPolicy]) -> None:
        """Write down what topics keep from now on."""
        for one in news:
            note_policy(self._archive, one)

    def change_of(self, before: TopicTerms, fact: TopicFact) -> str:
        """Ask again what decides about a topic. Returns what has changed since; empty: nothing that keeps more."""
        asked = self._asked([before.topic])
        now = judge_topic(fact, read_policies(self._archive, before.topic, before.topic_id), asked)
        if isinstance(now, KeptTopic):
            return now.why
        if now.effective != before.effective:
            return "what the topic keeps was changed"
        if longest([before.limits, now.limits]) != before.limits:
            return "another sweep has noted that the topic kept more"
        if any(hold not in before.holds for hold in now.holds):
            return "a hold was added"
        back = [number for number, start in before.log_starts.items() if now.log_starts.get(number, -1) < start]
        return f"the log of partition {back[0]} does not begin where it did" if back else ""

    def _asked(self, names: Sequence[str]) -> Asked:
        now_ms = epoch_ms(self._archive.store.now())
        sources, unreadable = self._pins.read_sources(now_ms - self._config.restores.pin_ms)
        if unreadable:
            sources = {**sources, **dict.fromkeys(names, f"(which one is not known: {unreadable[0]})")}
        return Asked(
            config=self._config.retention,
            cluster=with_groups_limit(self._ask(names), self._config.retention.groups_ms),
            holds=tuple(read_holds(self._archive).values()),
            pinned=sources,
            store_now_ms=now_ms,
        )


def _untold_partitions(fact: TopicFact, terms: TopicTerms) -> Iterator[KeptTopic]:
    """Name the partitions of which nothing goes, because nobody told where their logs begin."""
    for number in range(fact.partitions):
        if number not in terms.log_starts:
            yield KeptTopic(topic=f"{fact.topic}-{number}", why="its leader did not tell where its log begins")


def is_of(fact: TopicFact, topic_id: str, cluster: LiveCluster) -> bool:
    """Tell whether what is live is the topic that was archived."""
    return bool(topic_id) and (topic_id, cluster.cluster_id) == (fact.current.topic_id, fact.cluster_id)


@contextmanager
def asking_cluster(settings: KafkaSettings) -> Iterator[Callable[[Sequence[str]], LiveCluster]]:
    """Connect to the cluster, and ask it from a thread without a loop."""
    with asyncio.Runner() as runner:
        client = KafkaClient(settings)
        runner.run(client.__aenter__())
        try:
            yield lambda names: runner.run(ask_cluster(client, names))
        finally:
            runner.run(client.__aexit__(None, None, None))
