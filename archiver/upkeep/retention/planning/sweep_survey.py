"""Reads the inputs of a sweep except the objects: topics, policies, holds, unfinished restores, and the cluster's state."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

from archiver.archive.format.handle import Archive
from archiver.archive.format.store_clock import agreed_now_ms
from archiver.archive.notes.applied_limits import AppliedLimits, LimitSource, agreed_streams, read_applied
from archiver.archive.notes.holds import read_holds
from archiver.archive.notes.policies import NotedPolicy, note_policy, read_policies
from archiver.archive.notes.swept import OffsetRanges, SweptPlace, read_swept
from archiver.archive.notes.topics import TopicFact, cleanup_policy, read_newest_topic_facts
from archiver.archive.restores.restore_pins import PinnedObjects, RestorePins
from archiver.config.model import ArchiverConfig
from archiver.config.retention import RetentionConfig
from archiver.errors import ArchiverError, NotWholeError, StoreTemporaryError
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.login.settings import KafkaSettings
from archiver.upkeep.retention.planning.agreed_limits import (
    applied_of,
    applied_of_terms,
    cancel_shorter,
    limits_of_applied,
)
from archiver.upkeep.retention.planning.cluster import LiveCluster, ask_cluster, with_groups_limit
from archiver.upkeep.retention.planning.limits import FOR_EVER, longest, says_delete
from archiver.upkeep.retention.planning.partition_verdict import HeldTimes
from archiver.upkeep.retention.planning.survey import list_partitions
from archiver.upkeep.retention.planning.topic_terms import (
    Asked,
    Judged,
    KeptTopic,
    TopicTerms,
    judge_topic,
    kept_by_policy,
    policy_news,
)

AskCluster = Callable[[Sequence[str]], LiveCluster | None]  # None: this run asks no cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedTopics:
    """The terms of each topic, or why it is not swept."""

    store_now_ms: int
    facts: Mapping[str, TopicFact]
    terms: Sequence[TopicTerms]
    kept: Sequence[KeptTopic]
    news: Sequence[NotedPolicy]  # policies to note
    swept: Mapping[SweptPlace, OffsetRanges]  # swept ranges, also of topics without deletions
    longer: Sequence[AppliedLimits] = ()  # limits that cancel agreements to shorter ones


class SweepSurvey:
    """Reads storage and cluster, as often as needed."""

    def __init__(self, archive: Archive, config: ArchiverConfig, ask: AskCluster) -> None:
        self._archive = archive
        self._config = config
        self._ask = ask
        self.pins = RestorePins(archive)

    def survey(self, wanted: Callable[[str], bool] | None = None) -> SurveyedTopics:
        """Return the terms of the wanted topics. Raises NotWholeError for an unreadable hold."""
        read = read_newest_topic_facts(self._archive, wanted)
        facts = {name: fact for name, fact in sorted(read.items()) if isinstance(fact, TopicFact)}
        kept = [_damaged(name, one) for name, one in read.items() if isinstance(one, NotWholeError)]
        asked = self._asked(sorted(facts))
        terms: list[TopicTerms] = []
        news: list[NotedPolicy] = []
        longer: list[AppliedLimits] = []
        swept: dict[SweptPlace, OffsetRanges] = {}
        for name, fact in facts.items():
            live = None if asked.cluster is None else asked.cluster.topics.get(name)
            try:
                noted = read_policies(self._archive, name, live.topic_id) if live is not None else []
                judged = [self._completed(fact, one) for one in judge_topic(fact, noted, asked)]
                swept |= read_swept(self._archive, name)
            except NotWholeError as error:
                kept.append(_damaged(name, error))
                continue
            longer += _limits_of_kept(fact, self._config.retention, asks_cluster=asked.cluster is not None)
            terms += [one for one in judged if isinstance(one, TopicTerms)]
            kept += [one for one in judged if isinstance(one, KeptTopic)]
            kept += [kept for one in judged if isinstance(one, TopicTerms) for kept in _untold_partitions(fact, one)]
            if live is not None and asked.cluster is not None and is_of(fact, live.topic_id, asked.cluster):
                seen = policy_news(fact, noted, live, asked.store_now_ms)
                news += seen
                # Another run may have noted a policy: then it is no news, and has cancelled no agreement. Terms do that below.
                is_swept = any(isinstance(one, TopicTerms) and one.whose is LimitSource.TOPIC for one in judged)
                longer += [self._seen_of(fact, one) for one in seen or ([] if is_swept else noted[-1:]) if noted]
        if stop := _other_cluster(facts.values(), asked.cluster):
            kept = [one if one.is_damage else replace(one, stop=stop) for one in kept]
        return SurveyedTopics(
            store_now_ms=asked.store_now_ms,
            facts=facts,
            terms=terms,
            kept=sorted(kept, key=lambda one: one.topic),
            news=news,
            longer=[
                *longer,
                *(applied_of_terms(one) for one in terms if one.swept_by != one.noted and not one.noted.keeps_all),
            ],
            swept=swept,
        )

    def _seen_of(self, fact: TopicFact, policy: NotedPolicy) -> AppliedLimits:
        """Return the limits of a new policy: also if they delete nothing, because the topic is kept."""
        limits = kept_by_policy(policy, self._config.retention.of_topic(fact.topic))
        return applied_of(fact.topic, fact.root(fact.current.life), LimitSource.TOPIC, limits)

    def _completed(self, fact: TopicFact, judged: Judged) -> Judged:
        """Add the limits of the last sweep to terms and, if no cluster is asked for log starts, the archived partitions."""
        if isinstance(judged, KeptTopic):
            return judged
        noted = limits_of_applied(read_applied(self._archive, judged.topic).get((judged.root, judged.whose)))
        log_starts = judged.log_starts
        if judged.whose is not LimitSource.TOPIC:
            log_starts = dict.fromkeys(list_partitions(self._archive, judged.topic, fact.lives_of(judged.root)))
        return replace(judged, noted=noted, swept_by=longest([noted, judged.limits]), log_starts=log_starts)

    def note(self, news: Sequence[NotedPolicy], longer: Sequence[AppliedLimits] = ()) -> list[str]:
        """Note the policies of topics from now on. Returns the topics that failed, and why: until noted, more is kept.

        Cancelled agreements are noted first: a policy that is noted is no news to the next sweep.
        """
        failed: dict[str, str] = {}
        agreed = agreed_streams(self._archive) if longer else ()
        steps = [(one.topic, partial(cancel_shorter, self._archive, one)) for one in longer if one.stream in agreed]
        steps += [(one.topic, partial(note_policy, self._archive, one)) for one in news]
        for topic, note in steps:
            try:
                if topic not in failed:
                    note()
            except StoreTemporaryError:
                raise
            except ArchiverError as error:  # of this topic: the others continue
                failed[topic] = f"{topic}: {error}"
        return list(failed.values())

    def change_of(self, before: TopicTerms, fact: TopicFact) -> str:
        """Check the conditions of a topic again. Returns the change; empty: none that keeps more."""
        asked = self._asked([before.topic])
        found = judge_topic(fact, read_policies(self._archive, before.topic, before.topic_id), asked)
        is_of_topic = len(found) == 1  # and not of one of its lives
        kept = [one for one in found if isinstance(one, KeptTopic) and (is_of_topic or one.topic == before.name)]
        if kept:
            return kept[0].why
        again = [one for one in found if isinstance(one, TopicTerms)]
        now = next((one for one in again if (one.root, one.whose) == (before.root, before.whose)), None)
        return "the cluster tells otherwise whether it has the topic" if now is None else _change(before, now)

    def look(self, before: TopicTerms) -> str:
        """Read only holds and unfinished restores again. Returns the one that keeps more of a topic now; empty: none."""
        pins = self._read_pins(agreed_now_ms(self._archive.store))
        if pins.unreadable or before.topic in pins.of_unread:
            return "a restore has begun, of which it is not known what it reads"
        holds = [one for one in read_holds(self._archive).values() if one.is_in_force and one.matches(before.topic)]
        return _new_keeper(
            before, [HeldTimes(one.from_ms, one.until_ms) for one in holds], pins.objects.get(before.topic, {})
        )

    def _read_pins(self, now_ms: int) -> PinnedObjects:
        return self.pins.read_objects(now_ms - self._config.restores.pin_ms)

    def _asked(self, names: Sequence[str]) -> Asked:
        cluster = self._ask(names)  # first: others may be asking it, and storage's answers must not grow old meanwhile
        now_ms = agreed_now_ms(self._archive.store)
        pins = self._read_pins(now_ms)
        unread = {**pins.of_unread, **dict.fromkeys(names if pins.unreadable else (), "".join(pins.unreadable[:1]))}
        return Asked(
            config=self._config.retention,
            cluster=None if cluster is None else with_groups_limit(cluster, self._config.retention.groups_ms),
            holds=tuple(read_holds(self._archive).values()),
            pinned=unread,
            store_now_ms=now_ms,
            pinned_objects=pins.objects,
        )


def _limits_of_kept(fact: TopicFact, config: RetentionConfig, *, asks_cluster: bool) -> Iterator[AppliedLimits]:
    """Yield unlimited limits of each source that keeps all records of a topic now: they cancel earlier agreements to shorter ones."""
    for root in (life.life for life in fact.lives if life.parent is None):
        for whose in _keeping_sources(fact, config, asks_cluster=asks_cluster):
            yield applied_of(fact.topic, root, whose, FOR_EVER)


def _keeping_sources(fact: TopicFact, config: RetentionConfig, *, asks_cluster: bool) -> Collection[LimitSource]:
    """Return the sources of limits that keep all records of a topic now, by its cleanup.policy or by the configuration."""
    if config.keeps(fact.topic):
        return list(LimitSource)
    policy = cleanup_policy(fact)
    if policy is not None and not says_delete(policy):  # a later note may say falsely that it deletes records
        return [LimitSource.FIXED, LimitSource.GONE]
    if asks_cluster:
        return [LimitSource.GONE] if config.gone_ms_of(fact.topic) is None else []
    fixed = config.of_topic(fact.topic).fixed
    return [LimitSource.FIXED] if fixed.ms is None and fixed.bytes is None else []


def _change(before: TopicTerms, now: TopicTerms) -> str:
    """Return a change of a topic's terms that keeps more; empty: none."""
    if now.effective != before.effective:
        return "what the topic keeps was changed"
    if longest([before.limits, now.limits]) != before.limits:
        return "another sweep has noted that the topic kept more"
    if keeper := _new_keeper(before, now.holds, now.pinned):
        return keeper
    begun = {number: start for number, start in before.log_starts.items() if start is not None}
    starts = {number: start for number, start in now.log_starts.items() if start is not None}
    back = [number for number, start in begun.items() if starts.get(number, -1) < start]
    return f"the log of partition {back[0]} does not begin where it did" if back else ""


def _other_cluster(facts: Collection[TopicFact], cluster: LiveCluster | None) -> str:
    """Return a problem if the asked cluster is not the archived one; empty: some topic matches, or none was asked."""
    if cluster is None or not facts or any(fact.cluster_id == cluster.cluster_id for fact in facts):
        return ""
    owners = ", ".join(sorted({fact.cluster_id for fact in facts})[:3])
    return (
        f"no topic of the archive is of cluster {cluster.cluster_id}, which was asked: they are of {owners}; set"
        " kafka.bootstrap.servers to that cluster, or, if it is lost, see retention.fixed and --without-kafka"
    )


def _new_keeper(before: TopicTerms, holds: Sequence[HeldTimes], pinned: Mapping[int, frozenset[str]]) -> str:
    """Return the new hold or restore that keeps more of a topic than before; empty: none."""
    if any(hold not in before.holds for hold in holds):
        return "a hold was added"
    if any(keys - before.pinned.get(number, frozenset()) for number, keys in pinned.items()):
        return "a restore of it has begun"
    return ""


def _damaged(topic: str, error: NotWholeError) -> KeptTopic:
    return KeptTopic(topic=topic, why=str(error), is_damage=True)


def _untold_partitions(fact: TopicFact, terms: TopicTerms) -> Iterator[KeptTopic]:
    """Name the partitions that are not swept because their log start is unknown."""
    for number in range(fact.partitions if terms.whose is LimitSource.TOPIC else 0):
        if number not in terms.log_starts:
            yield KeptTopic(topic=f"{fact.topic}-{number}", why="its leader did not tell where its log begins")


def is_of(fact: TopicFact, topic_id: str, cluster: LiveCluster) -> bool:
    """Return whether the live topic is the archived one."""
    return bool(topic_id) and (topic_id, cluster.cluster_id) == (fact.current.topic_id, fact.cluster_id)


@contextmanager
def asking_cluster(settings: KafkaSettings) -> Iterator[Callable[[Sequence[str]], LiveCluster]]:
    """Connect to the cluster. Threads without a loop can ask it, one after the other."""
    turn = Lock()
    with asyncio.Runner() as runner:
        client = KafkaClient(settings)

        def ask(names: Sequence[str]) -> LiveCluster:
            with turn:
                return runner.run(ask_cluster(client, names))

        runner.run(client.__aenter__())
        try:
            yield ask
        finally:
            runner.run(client.__aexit__(None, None, None))
